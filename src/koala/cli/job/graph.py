"""``koala submit`` of several jobs that wait for each other: all are accepted, or none."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from koala.cli.errors import EXIT_REFUSED, UserError, say, wrapped
from koala.cli.job.text_problems import shown_at_place, source_to_send
from koala.cli.job.waiting import end_with_graph, warn_of_refusal
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.refusals import ASKED_MAX, NEVER_FITS
from koala.cli.terminal.words import clean, clock, clock_at, shown_state
from koala.words.expectations import start_sentences, with_its_time
from koala.words.phrases import listed

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import DryRun, DryRunGraph, DryRunGraphJob, SubmittedGraph


# The event of a job that another waits for; success needs no words.
_BECOMES = {"ended": "the end of ", "started": "the start of ", "failed": "the failure of "}


class Described(NamedTuple):
    """A text, its name in messages, and the files that travel with its jobs."""

    text: str
    source: str
    files: dict[str, str | Path]


def submit_graph(
    ctx: click.Context,
    client: Client,
    graph: Described,
    token_id: str | None,
    *,
    to_wait: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Submit the jobs, and wait for them if requested; or print where they would go now."""
    from koala.client import ConflictError, InvalidError

    try:
        source = source_to_send(graph.source)
        if dry_run:
            _print_dry_run(ctx, client.dry_run_graph(graph.text, source=source, files=graph.files), as_json)
            return
        with byte_counter("sent", wanted=bool(graph.files)) as progress:
            submitted = client.submit_graph(
                graph.text, source=source, client_token=token_id, files=graph.files, progress=progress
            )
    except InvalidError as error:
        raise UserError(shown_at_place(error, graph.text, graph.source)) from None
    except ConflictError as error:
        raise UserError(error.for_user().replace("client_token", "--token-id")) from None
    if as_json and not to_wait:
        print_json(submitted)
    elif not as_json:
        _print_submitted(submitted)
        print_notes({each.name: each.notes for each in submitted.jobs})
    for each in submitted.jobs:
        if each.warning:
            say(
                f"Warning: {clean(each.name)} (job {each.job.id}) is cancelled at once: {clean(each.warning)}.",
                err=True,
            )
    for each in submitted.jobs[:ASKED_MAX]:
        if each.never_fits is not None:
            warn_of_refusal(each.job, each.never_fits, f"{clean(each.name)} (job {each.job.id})")
    if to_wait:
        end_with_graph(ctx, client, submitted, as_json=as_json)


def _print_submitted(submitted: SubmittedGraph) -> None:
    what = "Submitted" if submitted.new else "Submitted before:"
    click.echo(f"{what} {counted(len(submitted.jobs), 'job')}, all of them.")
    for each in submitted.jobs:
        array = "" if each.job.elements is None else f", {counted(each.job.elements.size, 'element')}"
        size = counted(each.job.processors, "processor")
        click.echo(f"  job {each.job.id}  {clean(each.name)} ({size}{array}): {shown_state(each.job)}")


def print_notes(of: Mapping[str, Sequence[str]]) -> None:
    """Print the jobs' notes on standard error: they are no part of the answer. A note that several jobs share is
    printed once."""
    by_note: dict[str, list[str]] = {}
    for name, notes in of.items():
        for note in notes:
            by_note.setdefault(note, []).append(clean(name))
    for note, names in by_note.items():
        who = f"{listed(names)}: " if any(names) else ""
        click.echo(wrapped(f"note: {who}{clean(note)}", console(stderr=True).width), err=True)


def preempted(answer: DryRun) -> str:
    """Name the jobs that a job would preempt: ``jobs 3 and 4 and 2 jobs of other users``; empty if none."""
    names = []
    if answer.preempts:
        noun = "job" if len(answer.preempts) == 1 else "jobs"
        names.append(f"{noun} {listed([str(job) for job in answer.preempts])}")
    if answer.preempts_others:
        names.append(f"{counted(answer.preempts_others, 'job')} of other users")
    return " and ".join(names)


def when_words(answer: DryRun, now: float) -> list[str]:
    """Describe when a job would start if it were submitted now; empty if it would start at once, or only after other
    events."""
    if answer.kept_back or (answer.refusal is not None and answer.refusal.permanent):
        return []
    if answer.refusal is None:
        if answer.expected_at is None or answer.expected_at < now + 1.0:
            return []
        return [f"Its files would be there at {clock(answer.expected_at, now)}, and it would start then."]
    sentences = [clean(each) for each in start_sentences(answer, now, clock_at(now))]
    if not sentences and answer.place_in_line is not None:
        line = f"It would be number {answer.place_in_line} in its queue"
        if answer.refusal.shortages:
            return [f"{line}; its start is known once it has a plan."]
        return [f"{line}, where it waits: {clean(answer.refusal.reason)}."]
    return sentences


def after_words(each: DryRunGraphJob) -> str:
    """Name the jobs of the graph that it waits for, and the event: ``, after a and the failure of b``."""
    after = each.after or {"done": each.waits_for}
    awaited = [f"{_BECOMES.get(becomes, '')}{clean(name)}" for becomes, names in after.items() for name in names]
    return f", after {listed(awaited)}" if awaited else ""


def _print_dry_run(ctx: click.Context, answer: DryRunGraph, as_json: bool) -> None:
    from rich.text import Text

    if as_json:
        print_json(answer)
    out, now = console(), time.time()
    for each in () if as_json else answer.jobs:
        elements = f", {counted(each.elements, 'element')}" if each.elements else ""
        size = f" ({counted(each.processors, 'processor')}{elements})" if each.processors else ""
        refusal = each.dry_run.refusal
        if refusal is not None:
            words = f"{NEVER_FITS if refusal.permanent else 'no place'}: {clean(refusal.reason)}"
            if refusal.cure:
                words += f"; would help: {clean(refusal.cure)}"
        else:
            words = ", ".join(f"{place.processors} on {clean(place.site)}" for place in each.dry_run.places)
        if victims := preempted(each.dry_run):
            words += f", where it would preempt {victims}"
        if each.dry_run.kept_back:
            why = with_its_time(each.dry_run.kept_back, each.dry_run.begins_at, clock_at(now))
            words += f", but not now: {clean(why)}"
        out.print(Text(f"{clean(each.name)}{size}{after_words(each)}: {words}"))
        for sentence in () if each.waits_for else when_words(each.dry_run, now):
            out.print(Text(f"  {sentence}"))
    if not as_json:
        print_notes({each.name: each.dry_run.notes for each in answer.jobs})
        out.print(Text("each as if it were alone; nothing is submitted"))
    if any(each.dry_run.refusal is not None or each.dry_run.kept_back for each in answer.jobs):
        ctx.exit(EXIT_REFUSED)
