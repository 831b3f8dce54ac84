"""``koala submit``: give a job to the daemon, ask where it would go, or wait for its end.

A problem in a text is shown at its place: the daemon reports the place, and the text is here. Waiting is in
``koala.cli.job.waiting``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.connection import complete_example, with_client
from koala.cli.errors import EXIT_REFUSED, UserError, say
from koala.cli.examples import read_named
from koala.cli.job.commands import SOURCE, CommandOptions, command_options, wrapped_job
from koala.cli.job.graph import Described, preempted, print_notes, submit_graph, when_words
from koala.cli.job.sending import files_of, text_to_send, travelling
from koala.cli.job.text_problems import shown_at_place, source_to_send
from koala.cli.job.waiting import end_with, warn_if_hopeless, watch_job
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean, clock_at, span
from koala.descriptions import is_graph
from koala.words.expectations import with_its_time

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import DryRun, JobSummary, Submitted


@click.command()
@click.argument("job", metavar="[JOB|-]", required=False, shell_complete=complete_example("job"))
@click.option(
    "--wrap", "command", metavar="TEXT", help="Instead of a JOB: one line for the shell, which is its script."
)
@command_options("With --wrap: ")
@click.option("--wait", "to_wait", is_flag=True, help="Wait until the job has ended, and exit with its exit code.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only say where it would go now, and when it would start; exits with 3 when it would wait.",
)
@click.option("--token-id", metavar="TEXT", help="The same text again gives the same job, not a second one.")
@click.option(
    "--with",
    "with_paths",
    metavar="PATH",
    multiple=True,
    type=click.Path(),
    help="A program, another file or a directory that travels with the job; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def submit(
    ctx: click.Context,
    client: Client,
    /,
    job: str | None,
    command: str | None,
    processors: int | None,
    walltime: str | None,
    name: str | None,
    type: str | None,  # noqa: A002 - click names it after its option
    to_wait: bool,
    dry_run: bool,
    token_id: str | None,
    with_paths: tuple[str, ...],
    as_json: bool,
) -> None:
    """Submit a job to the daemon.

    \b
    koala submit job.yaml
    koala submit hello --wait
    koala submit job.yaml --with build/solver --with config
    koala submit --wrap './solver mesh.dat > result' --with solver --with mesh.dat
    generate-job | koala submit -

    JOB is a file (YAML, RSL or a batch script), the name of an example, or - for standard input. A YAML file with
    `jobs:` has several that wait for each other by name: all are accepted, or none. When this returns the job is on
    record and outlives any crash of the daemon. A job that can never fit is accepted too, with a warning: the grid
    may grow.

    The files that the job names under `files`, next to its own file, and each --with PATH, under its last name, are
    sent to the daemon and are there where each component starts. Files that were sent before are not sent again.

    With --wait the exit code is that of the job's application: 0 when the job is done, its own code when it failed
    with one, 1 otherwise; for several jobs it is that of the first that failed. Ctrl-C stops waiting and leaves the
    job running.
    """
    if dry_run and (to_wait or token_id is not None):
        raise UserError("--dry-run submits nothing; leave out --wait and --token-id")
    if token_id is not None:
        _check_token_id(token_id)
    text, source, files = _described(job, command, CommandOptions(processors, walltime, name, type), with_paths)
    if is_graph(text, source):
        graph = Described(text, source, files)
        submit_graph(ctx, client, graph, token_id, to_wait=to_wait, dry_run=dry_run, as_json=as_json)
        return
    if dry_run:
        _print_dry_run(ctx, _dry_run(client, text, source, files), as_json)
        return
    submitted = _submit(client, text, source, token_id, files)
    summary = submitted.job
    if as_json and not to_wait:
        print_json(submitted)
    elif not as_json:
        _print_submitted(summary, submitted.new)
        print_notes({"": submitted.notes})
    if submitted.warning:
        say(f"Warning: {clean(submitted.warning)}. It is cancelled at once; submit it without that.", err=True)
    told = warn_if_hopeless(client, summary, submitted.never_fits)
    if to_wait:
        ended = watch_job(ctx, client, summary.id, None, as_json=as_json, known=summary, told=told)
        end_with(ctx, ended, as_json)


def _described(
    job: str | None, command: str | None, options: CommandOptions, with_paths: tuple[str, ...]
) -> tuple[str, str, dict[str, str | Path]]:
    """Return the description, its name in messages, and the files that travel with it."""
    if command is not None:
        if job is not None:
            raise UserError("--wrap is the job; leave out JOB, or --wrap")
        return wrapped_job(command, options), SOURCE, travelling({}, with_paths)
    if job is None:
        raise UserError("there is no job; name a file, an example or -, or write a command with --wrap")
    if options.given:
        raise UserError(f"{options.given} is for --wrap; write it into the job")
    found = text_to_send(job, "a job", "the one of koala examples show hello")
    text, source = found or read_named("job", job)
    return text, source, files_of(text, source, Path(job) if Path(job).is_file() else None, with_paths)


def _check_token_id(text: str) -> None:
    from koala.model.api import CLIENT_TOKEN_CHARACTERS_MAX

    if not text or len(text) > CLIENT_TOKEN_CHARACTERS_MAX or not text.isprintable():
        raise UserError(
            f"--token-id: it must be 1 to {CLIENT_TOKEN_CHARACTERS_MAX} visible characters "
            "(CLIENT_TOKEN_CHARACTERS_MAX); use letters and digits"
        )


def _submit(client: Client, text: str, source: str, token_id: str | None, files: dict[str, str | Path]) -> Submitted:
    from koala.client import ConflictError, InvalidError

    try:
        with byte_counter("sent", wanted=bool(files)) as progress:
            return client.submit(
                text, source=source_to_send(source), client_token=token_id, files=files, progress=progress
            )
    except InvalidError as error:
        raise UserError(shown_at_place(error, text, source)) from None
    except ConflictError as error:
        raise UserError(error.for_user().replace("client_token", "--token-id")) from None


def _dry_run(client: Client, text: str, source: str, files: dict[str, str | Path]) -> DryRun:
    from koala.client import InvalidError

    try:
        return client.dry_run(text, source=source_to_send(source), files=files)
    except InvalidError as error:
        raise UserError(shown_at_place(error, text, source)) from None


def _print_submitted(job: JobSummary, new: bool) -> None:
    what = "Submitted job" if new else "Submitted before: job"
    array = "" if job.elements is None else f", {counted(job.elements.size, 'element')}"
    say(f"{what} {job.id} ({clean(job.name)}, {counted(job.processors, 'processor')}{array}).")
    if new and sys.stdout.isatty():
        then = f"koala job logs {job.id} --follow" if job.elements is None else f"koala jobs --array {job.id}"
        say(f"next: koala job explain {job.id}, {then}", err=True)


def _print_dry_run(ctx: click.Context, answer: DryRun, as_json: bool) -> None:
    from koala.cli.terminal.refusals import print_refusal

    if as_json:
        print_json(answer)
    elif answer.refusal is not None:
        print_refusal(answer.refusal)
    else:
        _print_places(answer)
    if not as_json:
        for told in when_words(answer, time.time()):
            console().print(told, markup=False, highlight=False)
        print_notes({"": answer.notes})
        if answer.kept_back:
            why = with_its_time(answer.kept_back, answer.begins_at, clock_at(None))
            say(f"It would not go now: {clean(why)}.")
    if answer.refusal is not None or answer.kept_back:
        ctx.exit(EXIT_REFUSED)


def _print_places(answer: DryRun) -> None:
    from rich.table import Table
    from rich.text import Text

    with_files = any(place.files for place in answer.places)
    table = Table(box=None, pad_edge=False)
    table.add_column("component", justify="right")
    table.add_column("processors", justify="right")
    table.add_column("site")
    if with_files:
        table.add_column("files from")
    for place in answer.places:
        files = ", ".join(f"{each.name} from {each.source} ({span(each.transfer_s)})" for each in place.files)
        cells = [str(place.component), str(place.processors), place.site]
        table.add_row(*(Text(clean(cell)) for cell in ([*cells, files] if with_files else cells)))
    total = sum(place.processors for place in answer.places)
    sites = len({place.site for place in answer.places})
    out = console()
    out.print(table)
    out.print(
        Text(f"{answer.policy}: {counted(total, 'processor')} on {counted(sites, 'site')}; nothing is submitted")
    )
    if victims := preempted(answer):
        whose = " of yours" if answer.preempts_others else ""
        lost = f": {span(answer.lost_processor_s)} of processor time{whose} would be lost" if answer.preempts else ""
        out.print(Text(f"It would preempt {victims} of low priority for these{lost}."))
