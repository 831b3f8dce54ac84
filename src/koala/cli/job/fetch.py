"""``koala job fetch``: what a job made, brought to this machine."""

from __future__ import annotations

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
    component-2. Of an array, what each element made is below its index. Small files come many at a time. The same
    command goes on where one that was interrupted stopped: what is there and right stays, anything else is replaced.
    One that cannot be had keeps no other, and is named at the end.
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
    made = [_Made(each, _place(found, directory, each)) for each in client.each_output(job_id)]
    if not made:
        raise _nothing_made(found)
    with byte_counter() as progress:
        problems = client.fetch_files([(each.output, each.brought) for each in made], progress=progress)
    came = [each for each in made if each.brought not in problems]
    for each in came:
        _unpack(each)
        if not as_json:
            shown = f"{size(each.output.size_bytes)} from {clean(each.output.replicas[0].site)}"
            say(f"{clean(str(each.here))}: {shown}")
    if as_json:
        print_json([each.output.model_dump(mode="json") | {"here": str(each.here)} for each in came])
    else:
        say(f"Job {job_id}: {counted(len(came), 'output')} in {clean(str(directory))}.")
    for each in made:
        if each.brought in problems:
            say(f"{clean(each.output.name)} did not come: {clean(problems[each.brought])}", err=True)
    if found.state != "done":
        say(f"Not all is there: job {job_id} {found.state}: {clean(found.reason)}", err=True)
    if problems or found.state != "done":
        ctx.exit(FailedError.exit_code)


class _Made(NamedTuple):
    """An output, and where it comes to lie."""

    output: OutputInfo
    here: Path

    @property
    def brought(self) -> Path:
        """Where its bytes come: the archive of a directory beside that, to be unpacked."""
        return self.here.with_name(f".{self.here.name}.tar") if self.output.directory else self.here


def _nothing_made(job: JobSummary) -> Exception:
    if job.state != "done":
        return FailedError(f"nothing that job {job.id} made was collected; it {job.state}: {clean(job.reason)}")
    logs = job.id if job.elements is None else first_element(job)
    return UserError(
        f"job {job.id} has no outputs; name them in its description (outputs: [result.h5], in a batch script "
        f"#KOALA --outputs result.h5), or read what it printed with koala job logs {logs}"
    )


def _place(job: JobSummary, directory: Path, output: OutputInfo) -> Path:
    """Where an output comes to lie; the daemon's word on paths is not taken for more than it is."""
    from koala.model.job_array import read_array
    from koala.model.outputs import output_problem

    if output_problem(output.path) is not None:
        raise FailedError(f"the daemon tells of an output {clean(output.path)}, which leads out of the directory")
    if job.elements is not None:
        directory = directory / str(read_array(job.elements.indices).index_at(output.job - job.id - 1))
    return (directory / f"component-{output.part}" if output.part else directory) / output.path


def _unpack(made: _Made) -> None:
    if not made.output.directory:
        return
    from koala.client.archive import unpack

    for left_out in unpack(made.brought, made.here):
        say(f"{clean(str(made.here))}: {clean(left_out)} is left out, as it is no file or leads away", err=True)
