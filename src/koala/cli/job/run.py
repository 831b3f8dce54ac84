"""``koala run``: a command as a job, with its output and its exit code here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from koala.cli.connection import be_patient, with_client
from koala.cli.errors import EXIT_INTERRUPTED, UserError, say
from koala.cli.job.commands import SOURCE, CommandOptions, command_options, job_of_words
from koala.cli.job.logs import POLL_S, OutputReader, follow_output
from koala.cli.job.sending import travelling
from koala.cli.job.text_problems import shown_at_place
from koala.cli.job.waiting import WaitingReasons, exit_code, print_failure, warn_if_hopeless
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from pathlib import Path

    from koala.client import Client
    from koala.model.api import JobSummary


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("words", metavar="[--] COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@command_options()
@click.option(
    "--with",
    "with_paths",
    metavar="PATH",
    multiple=True,
    type=click.Path(),
    help="A file or a directory that travels with the job; may be given several times.",
)
@with_client
@click.pass_context
def run(
    ctx: click.Context,
    client: Client,
    /,
    words: tuple[str, ...],
    with_paths: tuple[str, ...],
    processors: int | None,
    walltime: str | None,
    name: str | None,
    type: str | None,  # noqa: A002 - click names it after its option
) -> None:
    """Run a command on the grid, as if it ran here.

    \b
    koala run -- hostname
    koala run -n 4 --walltime 10m --with mesh.dat -- ./solver mesh.dat

    The command becomes a job. What it writes to its standard output and standard error comes out here as it is
    written, and its exit code is that of koala run. It is not started again when it fails; its standard input is
    empty. Ctrl-C cancels the job.

    A program with a relative path, such as ./solver, is a file here and travels with the job; any other is one of the
    site where the job runs. Without --with no other files travel.
    """
    options = CommandOptions(processors, walltime, name, type)
    text, files = job_of_words(words, options)
    job = _submitted(client, text, travelling(files, with_paths))
    be_patient(client)
    try:
        told = warn_if_hopeless(client, job, None)
        ended = _followed(client, job, told)
    except KeyboardInterrupt:
        client.cancel(job.id)
        say(f"\nJob {job.id} is cancelled.", err=True)
        ctx.exit(EXIT_INTERRUPTED)
    print_failure(ended)
    ctx.exit(exit_code(ended))


def _submitted(client: Client, text: str, files: dict[str, str | Path]) -> JobSummary:
    from koala.client import InvalidError

    try:
        with byte_counter("sent", wanted=bool(files)) as progress:
            return client.submit(text, source=SOURCE, files=files, progress=progress).job
    except InvalidError as error:
        raise UserError(clean(shown_at_place(error, text, SOURCE))) from None


def _followed(client: Client, job: JobSummary, told: str) -> JobSummary:
    """Return the job when it has ended, after printing all its output; until it starts, print why it waits."""
    from koala.client import ENDED_STATES

    reasons = WaitingReasons(client, told)
    seen = job
    while seen.state not in ENDED_STATES and not client.job(job.id).components:
        reasons.tell(seen)
        seen = client.wait(job.id, timeout_s=POLL_S)
    if client.job(job.id).components:
        output, errors = OutputReader(client, job.id), OutputReader(client, job.id, stream="stderr", err=True)
        follow_output(client, job.id, [output, errors])
    return client.wait_ended(job.id)
