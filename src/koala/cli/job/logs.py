"""``koala job logs``: the output of a job's components; with several, each line begins with a number."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Literal

import click

from koala.cli.connection import JOB_ID, be_patient, complete_job, with_client
from koala.cli.errors import UserError
from koala.cli.terminal.output import counted
from koala.cli.terminal.words import first_element

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JobDetail

# The interval at which --follow looks for more.
POLL_S = 0.5
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_cyan", "bright_magenta", "bright_yellow")


class _ComponentNumber(click.ParamType[int | None]):
    """A component's number, or ``all``."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "all":
            return None
        try:
            number = int(str(value))
        except ValueError:
            number = -1
        if number < 0:
            self.fail(f"{value!r} is not a component; write a number from 0 on, or all", param, ctx)
        return number


class OutputReader:
    """Prints one component's output from the beginning on, to the standard output or the standard error (``err``);
    lines that are marked with its number are printed whole."""

    def __init__(
        self,
        client: Client,
        job: int,
        component: int = 0,
        run: int | None = None,
        stream: Literal["stdout", "stderr"] = "stdout",
        mark: str = "",
        *,
        err: bool = False,
    ) -> None:
        self._client = client
        self._job = job
        self._component = component
        self._run = run
        self._stream = stream
        self._mark = mark
        self._err = err
        self._offset = 0
        self._begun = ""
        self._token: str | None = None

    def print_new(self) -> bool:
        """Print what is there now. Returns True if there was anything."""
        piece = self._client.output(
            self._job, part=self._component, run=self._run, stream=self._stream, offset=self._offset
        )
        if self._token not in (None, piece.token):
            # The job was started again: this is another component's output, from its beginning.
            self._offset = 0
            self._token = None
            return True
        self._token = piece.token
        self._offset = piece.next_offset
        self._print(piece.text)
        return bool(piece.text)

    def _print(self, text: str) -> None:
        if not self._mark:
            click.echo(text, nl=False, err=self._err)
            return
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            click.echo(f"{self._mark}{line}", err=self._err)

    def finish(self) -> None:
        """Print a last line that has no end."""
        if self._begun:
            click.echo(f"{self._mark}{self._begun}", err=self._err)
            self._begun = ""


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.option(
    "--part",
    "component",
    type=_ComponentNumber(),
    default="all",
    show_default=True,
    help="One component, counted from 0, or all.",
)
@click.option("--run", type=click.IntRange(min=1), metavar="N", help="An earlier run of the job, counted from 1.")
@click.option("--stderr", "errors", is_flag=True, help="What went to standard error, instead of standard output.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job has ended.")
@with_client
def logs(client: Client, /, job_id: int, component: int | None, run: int | None, errors: bool, follow: bool) -> None:
    """Print what a job's components wrote.

    With several components each line begins with the number of its component. An MPI job is one program: what all its
    ranks write comes through component 0. --follow waits for a job that has not started.
    """
    if follow:
        be_patient(client)
    job = _placed(client, job_id, follow and run is None)
    count = _component_count(job)
    if component is not None and component >= count:
        raise UserError(
            f"job {job_id} has no component {component}; it has {counted(count, 'component')}, counted from 0"
        )
    chosen = range(count) if component is None else [component]
    stream: Literal["stdout", "stderr"] = "stderr" if errors else "stdout"
    readers = [OutputReader(client, job_id, each, run, stream, _mark(each, len(chosen))) for each in chosen]
    if follow:
        follow_output(client, job_id, readers)
    else:
        _print_all(readers)


def _placed(client: Client, job_id: int, to_wait: bool) -> JobDetail:
    """Return the job once some components of it have been started."""
    from koala.client import ENDED_STATES

    while True:
        job = client.job(job_id)
        if job.elements is not None:
            raise UserError(
                f"job {job_id} is an array, and each of its elements writes for itself; see koala job logs "
                f"{first_element(job)}, and koala jobs --array {job_id} for all of them"
            )
        if job.components:
            return job
        if job.state in ENDED_STATES:
            raise UserError(f"job {job_id} is {job.state} and never started; see koala job explain {job_id}")
        if not to_wait:
            raise UserError(
                f"job {job_id} is {job.state}: no component of it has started yet; --follow waits for it, and "
                f"koala job explain {job_id} says why it waits"
            )
        time.sleep(POLL_S)


def _component_count(job: JobDetail) -> int:
    """Return how many components the job has, or had in its last run."""
    return len(job.places) or max(each.part for each in job.components) + 1


def _mark(component: int, count: int) -> str:
    if count < 2:
        return ""
    mark = f"{component:>{len(str(count - 1))}} | "
    return click.style(mark, fg=_COLOURS[component % len(_COLOURS)]) if sys.stdout.isatty() else mark


def _print_all(readers: list[OutputReader]) -> None:
    """Print what is there. A component without output gets a note; if none has any, that is an error."""
    from koala.client import NotFoundError

    missing: list[NotFoundError] = []
    for reader in readers:
        try:
            while reader.print_new():
                pass
        except NotFoundError as error:
            missing.append(error)
        reader.finish()
    if len(missing) == len(readers):
        raise missing[0]
    for each in missing:
        click.echo(f"Note: {each.for_user()}", err=True)


def follow_output(client: Client, job_id: int, readers: list[OutputReader]) -> None:
    """Print output as it comes, until the job has ended and all is printed."""
    from koala.client import ENDED_STATES, NotFoundError

    def printed(reader: OutputReader) -> bool:
        try:
            return reader.print_new()
        except NotFoundError:  # a component that is yet to be started
            return False

    while True:
        # The end is asked for before the output, so that no earlier output is missed.
        ended = client.wait(job_id, timeout_s=0).state in ENDED_STATES
        more = [printed(reader) for reader in readers]
        if any(more):
            continue
        if ended:
            break
        client.wait(job_id, timeout_s=POLL_S)
    for reader in readers:
        reader.finish()
