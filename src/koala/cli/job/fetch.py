"""``koala job fetch``: brings a job's outputs and streams to this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from koala.cli.connection import JOB_ID, complete_job, with_client
from koala.cli.errors import FailedError, UserError, say
from koala.cli.job.streams import Brought, bring, written_by
from koala.cli.job.waiting import watch_job
from koala.cli.terminal.output import counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean, shown_state, size

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
    """Bring the outputs of a job to this machine, with its standard output and standard error.

    Outputs of the first component are at their own paths below the directory, those of component 2 below component-2;
    the streams are stdout.txt and stderr.txt. Outputs of an array's element are below its index. Small files come
    many at a time. After an interruption the same command continues: correct files stay, others are replaced. A file
    that cannot be fetched does not stop the others, and is named at the end.
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
    taken = {each.here for each in made}
    written = [each for each in written_by(client, found, directory) if each.here not in taken]
    if not made and not written:
        raise _nothing_made(client, found)
    with byte_counter() as progress:
        problems = client.fetch_files([(each.output, each.brought) for each in made], progress=progress)
    streams = bring(client, written)
    came = [each for each in made if each.brought not in problems]
    for each in came:
        _unpack(each)
        if not as_json:
            shown = f"{size(each.output.size_bytes)} from {clean(each.output.replicas[0].site)}"
            say(f"{clean(str(each.here))}: {shown}")
    here = [each for each in streams if not each.problem]
    if as_json:
        outputs = [msgspec.to_builtins(each.output) | {"here": str(each.here)} for each in came]
        print_json([*outputs, *map(_as_data, here)])
    else:
        for stream in here:
            if stream.size_bytes:
                say(f"{clean(str(stream.written.here))}: {size(stream.size_bytes)} from {clean(stream.site)}")
        counts = f"{counted(len(came), 'output')} and {counted(len(here), 'stream')}"
        say(f"Job {job_id}: {counts} in {clean(str(directory))}.")
    for each in made:
        if each.brought in problems:
            say(f"{clean(each.output.name)} was not fetched: {clean(problems[each.brought])}", err=True)
    for stream in streams:
        if stream.problem:
            say(f"{clean(str(stream.written.here))} was not fetched: {clean(stream.problem)}", err=True)
    if found.state != "done":
        say(f"The outputs are incomplete: job {job_id} {found.state}: {clean(found.reason)}", err=True)
    elif not made:
        say(f"Note: it has no outputs{_why_none(client, job_id)}", err=True)
    if problems or found.state != "done" or any(each.problem and not each.gone for each in streams):
        ctx.exit(FailedError.exit_code)


def _as_data(brought: Brought) -> dict[str, str | int]:
    """Return a stream that was fetched, for a program."""
    where = brought.written
    return {
        "job": where.job,
        "part": where.part,
        "stream": where.stream,
        "site": brought.site,
        "size_bytes": brought.size_bytes,
        "here": str(where.here),
    }


_HOW_TO_NAME = "name them in its description (outputs: [result.h5], in a batch script #KOALA --outputs result.h5)"


class _Made(NamedTuple):
    """An output, and its path here."""

    output: OutputInfo
    here: Path

    @property
    def brought(self) -> Path:
        """Where its bytes come: for a directory an archive beside it, to be unpacked."""
        return self.here.with_name(f".{self.here.name}.tar") if self.output.directory else self.here


def _why_none(client: Client, job_id: int) -> str:
    """Return why a finished job has no outputs: it names none, or they are gone."""
    from koala.descriptions import read_job

    request = read_job(client.job(job_id).description, f"job {job_id}")
    if any(part.outputs for part in request.components):
        return " any more: they were forgotten, or their time is over (keep_outputs_for)"
    return f"; {_HOW_TO_NAME}"


def _nothing_made(client: Client, job: JobSummary) -> Exception:
    if job.state != "done":
        return FailedError(f"no output of job {job.id} was collected; it {job.state}: {clean(job.reason)}")
    return UserError(f"job {job.id} has no outputs{_why_none(client, job.id)}")


def _place(job: JobSummary, directory: Path, output: OutputInfo) -> Path:
    """Return the path of an output; the daemon's paths are checked, not trusted."""
    from koala.model.job_array import read_array
    from koala.model.outputs import output_problem

    if output_problem(output.path) is not None:
        raise FailedError(f"the daemon reports an output {clean(output.path)}, which leads out of the directory")
    if job.elements is not None:
        directory = directory / str(read_array(job.elements.indices).index_at(output.job - job.id - 1))
    return (directory / f"component-{output.part}" if output.part else directory) / output.path


def _unpack(made: _Made) -> None:
    if not made.output.directory:
        return
    from koala.client.archive import unpack

    for left_out in unpack(made.brought, made.here):
        say(f"{clean(str(made.here))}: {clean(left_out)} is left out, as it is no file or leads away", err=True)
