"""Waiting for the end of a job: its progress meanwhile, Ctrl-C, and the exit code of its end.

Serves ``koala submit --wait`` and ``koala job wait``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from koala.cli.connection import be_patient
from koala.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, FailedError, say
from koala.cli.terminal.output import console, print_json
from koala.cli.terminal.refusals import NEVER_FITS, verdict
from koala.cli.terminal.words import clean, elements_words, expected, places_words, shown_state, span
from koala.model.dependency import NEVER_COMES

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import Explanation, JobSummary, Refusal, SubmittedGraph

# The intervals at which a terminal shows the job's state, and a log gets a new reason.
PROGRESS_S = 1.0
LOG_PROGRESS_S = 5.0
# At most this many reasons why a job waits are printed without a terminal, each once.
REASONS_TOLD_MAX = 20
EXIT_CODE_MAX = 255
QUARANTINED = "is set aside after an error inside Koala until an operator puts it back (koala job requeue)"

Tell = Callable[["JobSummary"], None]


def watch_job(
    ctx: click.Context,
    client: Client,
    job: int,
    timeout_s: float | None,
    *,
    as_json: bool = False,
    known: JobSummary | None = None,
    told: str = "",
) -> JobSummary:
    """Return the job when it has ended, or when the time is up. On a terminal a line shows its state meanwhile;
    elsewhere each reason why it waits is printed once, except the one ``told`` before. Ctrl-C leaves the job alone
    and ends the command; with ``as_json`` the last known state of the job is then printed, at least ``known``."""
    be_patient(client)
    watch = _Watch(client, job, timeout_s, known)
    try:
        return _watched(client, watch, told)
    except KeyboardInterrupt:
        if as_json and watch.seen is not None:
            print_json(watch.seen)
        say(
            f"\nJob {job} goes on. See it with `koala job show {job}`, wait again with `koala job wait {job}`, "
            f"end it with `koala job cancel {job}`.",
            err=True,
        )
        ctx.exit(EXIT_INTERRUPTED)


def end_with_graph(ctx: click.Context, client: Client, graph: SubmittedGraph, *, as_json: bool) -> None:
    """Wait until all jobs of a graph have ended, the ones that others wait for first, print the end of each, and exit
    with the code of the first that failed. If another job's end made a job unneeded, such as one that waits for a
    failure that did not come, the other's end counts. Ctrl-C leaves the jobs alone."""
    be_patient(client)
    seen = [each.job for each in graph.jobs]

    def told() -> None:
        if as_json:
            jobs = [msgspec.structs.replace(each, job=job) for each, job in zip(graph.jobs, seen, strict=True)]
            print_json(msgspec.structs.replace(graph, jobs=jobs))

    try:
        for index, job in enumerate(seen):
            seen[index] = _watched(client, _Watch(client, job.id, None, job), "")
            if not as_json:
                _print_end(seen[index])
    except KeyboardInterrupt:
        told()
        say("\nThe jobs go on. See them with `koala jobs`.", err=True)
        ctx.exit(EXIT_INTERRUPTED)
    told()
    ctx.exit(next((code for job in seen if not _is_unneeded(job) and (code := exit_code(job))), 0))


def _is_unneeded(job: JobSummary) -> bool:
    return job.state == "cancelled" and NEVER_COMES in job.reason


def _watched(client: Client, watch: _Watch, told: str) -> JobSummary:
    if not console(stderr=True).is_terminal:
        return watch.until_ended(WaitingReasons(client, told).tell, LOG_PROGRESS_S)
    return _on_terminal(client, watch)


class _Watch:
    """One wait for a job. ``seen`` is its last known state."""

    def __init__(self, client: Client, job: int, timeout_s: float | None, known: JobSummary | None) -> None:
        self.seen = known
        self._client = client
        self.job = job
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    def until_ended(self, tell: Tell, every_s: float) -> JobSummary:
        """Wait, and report the job's state at this interval."""
        from koala.client import ENDED_STATES

        wait_s = 0.0  # the current state comes first
        while True:
            left_s = wait_s if self._end is None else max(0.0, min(wait_s, self._end - time.monotonic()))
            self.seen = self._client.wait(self.job, timeout_s=left_s)
            if self.seen.state in ENDED_STATES or (self._end is not None and time.monotonic() >= self._end):
                return self.seen
            tell(self.seen)
            wait_s = every_s


def _on_terminal(client: Client, watch: _Watch) -> JobSummary:
    from rich.markup import escape

    with console(stderr=True).status(f"job {watch.job}") as status:
        return watch.until_ended(lambda seen: status.update(escape(_progress(client, seen))), PROGRESS_S)


class WaitingReasons:
    """Prints why a job waits, on lines of their own, each reason once."""

    def __init__(self, client: Client, told: str) -> None:
        self._client = client
        self._told = {told}

    def tell(self, job: JobSummary) -> None:
        """Print why it waits, unless that was printed."""
        if job.state == "quarantined" and QUARANTINED not in self._told:
            self._told.add(QUARANTINED)
            say(f"Job {job.id} {QUARANTINED}: koala job explain {job.id} shows why.", err=True)
        if job.state != "waiting" or len(self._told) >= REASONS_TOLD_MAX:
            return
        found = self._client.explain(job.id)
        if found.refusal is None or found.refusal.reason in self._told:
            return
        self._told.add(found.refusal.reason)
        say(f"Job {job.id} waits: {_why(found.refusal)}{_plan(found)}.", err=True)


def _progress(client: Client, job: JobSummary) -> str:
    """Describe the job's state and, while it waits, why."""
    words = f"job {job.id} {shown_state(job)} {span(time.time() - job.since)}"
    if job.state == "quarantined":
        return f"{words}: it {QUARANTINED}"
    if job.elements is not None:
        return f"{words}; {elements_words(job.elements)}"
    if job.state != "waiting":
        return f"{words} {places_words(job.places)}"
    found = client.explain(job.id)
    why = f": {_why(found.refusal)}{_plan(found)}" if found.refusal is not None else _plan(found)
    line = "" if job.place_in_line is None else f", number {job.place_in_line} in its queue"
    return f"{words}{line}{why}"


def _why(refusal: Refusal) -> str:
    return f"it {NEVER_FITS}: {clean(refusal.reason)}" if refusal.permanent else clean(refusal.reason)


def _plan(found: Explanation) -> str:
    """Describe when and where it is expected, if known."""
    return "" if found.expected_at is None else f"; {expected(found.expected_at, found.expected_sites)}"


def warn_if_hopeless(client: Client, job: JobSummary, never_fits: Refusal | None) -> str:
    """Warn at once, on standard error, if waiting alone will not help a newly submitted job. Returns the printed
    reason, empty without one."""
    from koala.client import ClientError

    if never_fits is not None:
        return warn_of_refusal(job, never_fits)
    if job.state not in ("waiting", "unfolding"):
        return ""
    try:
        found = client.explain(job.id)
    except ClientError:  # the job is on record, as requested
        return ""
    return warn_of_refusal(job, found.refusal) if found.refusal is not None and verdict(found) else ""


def warn_of_refusal(job: JobSummary, refusal: Refusal, who: str = "it") -> str:
    """Warn on standard error that a job, or the elements of an array, which are all alike, wait in vain. Returns the
    reason."""
    if job.elements is not None:
        who = f"each element of {'the array' if who == 'it' else who}"
    what = f"{who} {NEVER_FITS}" if refusal.permanent else f"waiting alone will not help {who}"
    say(
        f"Warning: {what}: {clean(refusal.reason)}; {clean(refusal.cure)}. It waits; see koala job explain {job.id}, "
        f"or end it with koala job cancel {job.id}.",
        err=True,
    )
    return refusal.reason


def end_with(ctx: click.Context, job: JobSummary, as_json: bool) -> None:
    """Print how the job ended and exit with its code."""
    from koala.client import ENDED_STATES

    if as_json:
        print_json(job)
    if job.state not in ENDED_STATES:
        raise FailedError(f"job {job.id} is still {job.state}; it goes on")
    if not as_json:
        _print_end(job)
    ctx.exit(exit_code(job))


def exit_code(job: JobSummary) -> int:
    """Return the exit code for the end of a job: its own if it failed with one."""
    if job.state == "done":
        return 0
    own = job.exit_code
    return own if own is not None and 0 < own <= EXIT_CODE_MAX else EXIT_FAILED


_ENDS = {"done": "is done", "failed": "failed", "cancelled": "was cancelled"}


def _print_end(job: JobSummary) -> None:
    if job.elements is not None:
        _print_end_of_array(job, elements_words(job.elements))
        return
    begun = job.submitted_at if job.started_at is None else job.started_at
    ended = begun if job.ended_at is None else job.ended_at
    ran = f"ran {span(ended - begun)}" if job.started_at is not None else "never started"
    where = f" on {places_words(job.places)}" if job.places and job.started_at is not None else ""
    say(f"Job {job.id} {_ENDS.get(job.state, f'is {job.state}')}: {ran}{where}.")
    print_failure(job)


def print_failure(job: JobSummary) -> None:
    """Print why an ended job is not done, and which commands show more."""
    if job.state == "done":
        return
    reason = "" if job.reason == job.state else clean(job.reason)
    advice = f"see koala job explain {job.id}"
    if job.started_at is not None:
        advice += f" and koala job logs {job.id} --stderr"
    if reason or job.state == "failed":
        say("; ".join(filter(None, (reason, advice))), err=True)


def _print_end_of_array(job: JobSummary, elements: str) -> None:
    """Print the end of an array: its elements ran."""
    after = "" if job.ended_at is None else f" after {span(job.ended_at - job.submitted_at)}"
    say(f"Job {job.id} {_ENDS.get(job.state, f'is {job.state}')}{after}; {elements}.")
    if job.state == "failed":
        say(f"see koala jobs --array {job.id} --state failed, and koala job explain {job.id}", err=True)
