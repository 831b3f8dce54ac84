"""``koala job fetch``: what a job made, brought to this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from koala.cli.connection import JOB_ID, complete_job, with_client
from koala.cli.errors import FailedError, UserError, say
from koala.cli.job.waiting import watch_job
from koala.cli.terminal.output import counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean, first_element, shown_state, size

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import JobSummary, OutputInfo


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.option(
    "--to", "target", metavar="DIR", help="The directory for it, made where there is none. By default job-ID."
)
@click.option("--wait", "waits", is_flag=True, help="Wait until the job has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def fetch(ctx: click.Context, client: Client, /, job_id: int, target: str | None, waits: bool, as_json: bool) -> None:
    """Bring what a job made to this machine: the outputs that its description names.

    What the first component made is at its own path below the directory, what component 2 made is below
    component-2. Of an array, what each element made is below its index. The same command goes on where one that was
    interrupted stopped; what is there is replaced.
    """
    from koala.client import ENDED_STATES

    found: JobSummary = client.job(job_id)
    if waits:
        found = watch_job(ctx, client, job_id, None)
    if found.state not in ENDED_STATES:
        raise UserError(
            f"job {job_id} is {shown_state(found)}, and what it makes is there when it is done; add --wait"
        )
    directory = Path(f"job-{job_id}" if target is None else target)
    made = list(_elements_made(client, found, directory) if found.elements else _made(client, job_id, directory))
    if not made:
        raise _nothing_made(found)
    for each in made:
        with byte_counter() as progress:
            _bring(client, each.output, each.here, progress)
        if not as_json:
            shown = f"{size(each.output.size_bytes)} from {clean(each.output.replicas[0].site)}"
            say(f"{clean(str(each.here))}: {shown}")
    if as_json:
        print_json([each.output.model_dump(mode="json") | {"here": str(each.here)} for each in made])
    else:
        say(f"Job {job_id}: {counted(len(made), 'output')} in {clean(str(directory))}.")
    if found.state != "done":
        say(f"Not all is there: job {job_id} {found.state}: {clean(found.reason)}", err=True)
        ctx.exit(FailedError.exit_code)


class _Made(NamedTuple):
    """An output, and where it comes to lie."""

    output: OutputInfo
    here: Path


def _made(client: Client, job_id: int, directory: Path) -> Iterator[_Made]:
    for each in client.outputs(job_id):
        yield _Made(each, _place(directory, each))


def _elements_made(client: Client, array: JobSummary, directory: Path) -> Iterator[_Made]:
    """What the elements of an array made, those with the lowest indices first."""
    for element in sorted(client.each_job(array=array.id), key=lambda each: each.array_index or 0):
        yield from _made(client, element.id, directory / str(element.array_index))


def _nothing_made(job: JobSummary) -> Exception:
    if job.state != "done":
        return FailedError(f"nothing that job {job.id} made was collected; it {job.state}: {clean(job.reason)}")
    logs = job.id if job.elements is None else first_element(job)
    return UserError(
        f"job {job.id} has no outputs; name them in its description (outputs: [result.h5], in a batch script "
        f"#KOALA --outputs result.h5), or read what it printed with koala job logs {logs}"
    )


def _place(directory: Path, output: OutputInfo) -> Path:
    """Where an output comes to lie; the daemon's word on paths is not taken for more than it is."""
    from koala.model.outputs import output_problem

    if output_problem(output.path) is not None:
        raise FailedError(f"the daemon tells of an output {clean(output.path)}, which leads out of the directory")
    return (directory / f"component-{output.part}" if output.part else directory) / output.path


def _bring(client: Client, output: OutputInfo, place: Path, progress: Callable[[int, int], None] | None) -> None:
    if not output.directory:
        client.fetch_file(output.name, place, progress=progress)
        return
    from koala.client.archive import unpack

    archive = place.with_name(f".{place.name}.tar")
    client.fetch_file(output.name, archive, progress=progress)
    for left_out in unpack(archive, place):
        say(f"{clean(str(place))}: {clean(left_out)} is left out, as it is no file or leads away", err=True)
