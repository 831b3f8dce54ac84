"""``koala submit``: give a job to the daemon, ask where it would go, or wait for its end.

``watch_job`` and ``end_with`` also serve ``koala job wait``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from koala.cli.connecting import be_patient, with_client
from koala.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_REFUSED, FailedError, UserError
from koala.cli.examples import read_named
from koala.cli.output import console, counted, print_json
from koala.cli.words import clean, places_words, span

if TYPE_CHECKING:
    from koala.client import Client
    from koala.wire import DryRun, JobSummary

# How often the line that shows progress is renewed.
PROGRESS_S = 1.0
EXIT_CODE_MAX = 255


@click.command()
@click.argument("job", metavar="JOB|-")
@click.option("--wait", "to_wait", is_flag=True, help="Wait until the job has ended, and exit with its exit code.")
@click.option("--dry-run", is_flag=True, help="Only say where it would go now; exits with 3 when it would wait.")
@click.option("--token-id", metavar="TEXT", help="The same text again gives the same job, and no second one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def submit(
    ctx: click.Context,
    client: Client,
    /,
    job: str,
    to_wait: bool,
    dry_run: bool,
    token_id: str | None,
    as_json: bool,
) -> None:
    """Submit a job to the daemon.

    \b
    koala submit job.yaml
    koala submit hello --wait
    generate-job | koala submit -

    JOB is a file (YAML, RSL or a Slurm script), the name of an example, or - for standard input. When this returns
    the job is on record and outlives any crash of the daemon.

    With --wait the exit code is that of the job's application: 0 when the job is done, its own code when it failed
    with one, 1 otherwise. Ctrl-C stops waiting and leaves the job running.
    """
    if dry_run and (to_wait or token_id is not None):
        raise UserError("--dry-run submits nothing; leave out --wait and --token-id")
    text, source = _read(job)
    if dry_run:
        _print_dry_run(ctx, client.dry_run(text, source=source), as_json)
        return
    submitted = client.submit(text, source=source, client_token=token_id)
    summary = submitted.job
    if not to_wait:
        if as_json:
            print_json(submitted.model_dump(mode="json"))
        else:
            _print_submitted(summary, submitted.new)
        return
    if not as_json:
        _print_submitted(summary, submitted.new)
    end_with(ctx, watch_job(ctx, client, summary.id, None), as_json)


def _read(job: str) -> tuple[str, str]:
    if job != "-":
        return read_named("job", job)
    from koala.descriptions import decoded
    from koala.wire import DESCRIPTION_BYTES_MAX

    data = sys.stdin.buffer.read(DESCRIPTION_BYTES_MAX + 1)
    if len(data) > DESCRIPTION_BYTES_MAX:
        raise UserError(f"standard input has more than {DESCRIPTION_BYTES_MAX} bytes (DESCRIPTION_BYTES_MAX)")
    if not data.strip():
        raise UserError("standard input is empty; write a job into it")
    return decoded(data, "standard input"), "standard input"


def _print_submitted(job: JobSummary, new: bool) -> None:
    what = "Submitted job" if new else "Submitted before: job"
    click.echo(f"{what} {job.id} ({clean(job.name)}, {counted(job.processors, 'processor')}).")
    if new and sys.stdout.isatty():
        click.echo(f"next: koala job explain {job.id}, koala job logs {job.id} --follow", err=True)


def _print_dry_run(ctx: click.Context, answer: DryRun, as_json: bool) -> None:
    from koala.cli.refusals import print_refusal

    if as_json:
        print_json(answer.model_dump(mode="json"))
    elif answer.refusal is not None:
        print_refusal(answer.refusal)
    else:
        _print_places(answer)
    if answer.refusal is not None:
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
        cells = [str(place.component + 1), str(place.processors), place.site]
        table.add_row(*(Text(clean(cell)) for cell in ([*cells, files] if with_files else cells)))
    total = sum(place.processors for place in answer.places)
    sites = len({place.site for place in answer.places})
    out = console()
    out.print(table)
    out.print(
        Text(f"{answer.policy}: {counted(total, 'processor')} on {counted(sites, 'site')}; nothing is submitted")
    )


def watch_job(ctx: click.Context, client: Client, job: int, timeout_s: float | None) -> JobSummary:
    """The job when it has ended, or when the time is up. On a terminal a line shows meanwhile how it stands;
    Ctrl-C leaves the job alone and ends the command."""
    screen = console(stderr=True)
    be_patient(client)
    try:
        if not screen.is_terminal:
            return client.wait_ended(job, timeout_s)
        return _watch_on_terminal(client, job, timeout_s)
    except KeyboardInterrupt:
        click.echo(
            f"\nJob {job} goes on. See it with `koala job show {job}`, wait again with `koala job wait {job}`, "
            f"end it with `koala job cancel {job}`.",
            err=True,
        )
        ctx.exit(EXIT_INTERRUPTED)


def _watch_on_terminal(client: Client, job: int, timeout_s: float | None) -> JobSummary:
    import time

    from rich.markup import escape

    from koala.client import ENDED_STATES

    end = None if timeout_s is None else time.monotonic() + timeout_s
    with console(stderr=True).status(f"job {job}") as status:
        while True:
            left_s = PROGRESS_S if end is None else max(0.0, min(PROGRESS_S, end - time.monotonic()))
            seen = client.wait(job, timeout_s=left_s)
            if seen.state in ENDED_STATES or (end is not None and time.monotonic() >= end):
                return seen
            status.update(escape(_progress(client, seen)))


def _progress(client: Client, job: JobSummary) -> str:
    """Where the job is and, while it waits, why."""
    import time

    words = f"job {job.id} {job.state} {span(time.time() - job.since)}"
    if job.state != "waiting":
        return f"{words} {places_words(job.places)}"
    refusal = client.explain(job.id).refusal
    why = "" if refusal is None else f": {clean(refusal.reason)}"
    line = "" if job.place_in_line is None else f", number {job.place_in_line} in its queue"
    return f"{words}{line}{why}"


def end_with(ctx: click.Context, job: JobSummary, as_json: bool) -> None:
    """Print how the job ended and exit with its code."""
    from koala.client import ENDED_STATES

    if as_json:
        print_json(job.model_dump(mode="json"))
    if job.state not in ENDED_STATES:
        raise FailedError(f"job {job.id} is still {job.state}; it goes on")
    if not as_json:
        _print_end(job)
    ctx.exit(exit_code(job))


def exit_code(job: JobSummary) -> int:
    """The exit code for the end of a job: its own where it failed with one."""
    if job.state == "done":
        return 0
    own = job.exit_code
    return own if own is not None and 0 < own <= EXIT_CODE_MAX else EXIT_FAILED


def _print_end(job: JobSummary) -> None:
    begun = job.submitted_at if job.started_at is None else job.started_at
    ended = begun if job.ended_at is None else job.ended_at
    ran = f"ran {span(ended - begun)}" if job.started_at is not None else "never started"
    where = f" on {places_words(job.places)}" if job.places and job.started_at is not None else ""
    click.echo(f"Job {job.id} is {job.state}: {ran}{where}.")
    if job.state != "done" and job.reason:
        click.echo(
            f"{clean(job.reason)}; see koala job explain {job.id} and koala job logs {job.id} --stderr", err=True
        )
