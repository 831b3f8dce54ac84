"""The jobs of ``koala replay``: a workload or a trace, parsed as ``koala simulate`` does, as a plan."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.cli.libraries import refuse_without
from koala.cli.simulate.trace import trace_remarks
from koala.cli.simulate.workload import DISCIPLINES

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.grid import Grid, StoredFile
    from koala.model.request import Request
    from koala.policies import Catalogue
    from koala.simulator.workloads.workload import Arrival
    from koala.study.replay.plan import Program, Programs, ReplayPlan, ReplaySettings

_TRACE_ENDINGS = (".swf", ".gwf")
_PACKED_ENDINGS = (".gz", ".xz", ".bz2")


class ReplayOptions(NamedTuple):
    """The options of a replay, from the command line."""

    source: str
    speed: float
    policy: str | None
    limit: int | None
    seed: int
    applications: tuple[str, ...]


class ReplaySource(NamedTuple):
    """A plan, the origin of its jobs for the results (``about``), and remarks on them for the reader."""

    plan: ReplayPlan
    about: dict[str, Any]
    is_trace: bool
    remarks: Sequence[str] = ()


def is_trace(name: str) -> bool:
    """Return True if the name is a trace's: it ends in .swf or .gwf, perhaps packed."""
    path = Path(name.casefold())
    bare = path.with_suffix("") if path.suffix in _PACKED_ENDINGS else path
    return bare.suffix in _TRACE_ENDINGS


def read_source(client: Client, grid: Grid, catalogue: Catalogue, options: ReplayOptions) -> ReplaySource:
    """The jobs that were asked for, as the live grid can run them."""
    from koala.study.replay.plan import ReplaySettings

    policy = options.policy
    if policy is not None and policy.casefold() in DISCIPLINES:
        raise UserError(
            f"--policy {policy}: a discipline is for simulated traces; on a live grid the scheduler places jobs, "
            "so name a placement policy, see koala policies"
        )
    settings = ReplaySettings(speed=options.speed, policy=policy, programs=_programs(options.applications))
    if is_trace(options.source):
        return _trace(grid, catalogue, options, settings)
    return _workload(client, grid, catalogue, options, settings)


def _workload(
    client: Client, grid: Grid, catalogue: Catalogue, options: ReplayOptions, settings: ReplaySettings
) -> ReplaySource:
    import msgspec

    from koala.descriptions.workload.form import read_workload
    from koala.simulator.workloads.generators import workload_from_file
    from koala.study.replay.plan import first_jobs, plan_replay

    workload = workload_from_file(read_workload(*read_named("workload", options.source)))
    arrivals = first_jobs(workload.arrivals(grid, options.seed), options.limit)
    files = _stored(client, arrivals)
    workload.check(msgspec.structs.replace(grid, files=files), catalogue)
    settings.files = {file.name for file in files}
    planned = plan_replay(workload.name, arrivals, grid, settings, hold_when_waiting=workload.hold_when_waiting)
    return ReplaySource(planned, {"workload": workload.name}, is_trace=False)


def _stored(client: Client, arrivals: Sequence[Arrival]) -> tuple[StoredFile, ...]:
    """Return the input files of the jobs that the live grid has."""
    from koala.client import NotFoundError
    from koala.model.grid import StoredFile

    names = {
        file.name
        for arrival in arrivals
        for component in arrival.request.components
        for file in component.input_files
    }
    found = []
    for name in sorted(names):
        try:
            file = client.file(name)
        except NotFoundError:
            continue
        sites = tuple(dict.fromkeys(replica.site for replica in file.replicas))
        found.append(StoredFile(name=name, size_bytes=file.size_bytes, replicas=sites))
    return tuple(found)


def _trace(grid: Grid, catalogue: Catalogue, options: ReplayOptions, settings: ReplaySettings) -> ReplaySource:
    refuse_without("koala replay", "traces")
    from koala.simulator.trace_run import trace_workload
    from koala.simulator.traces.reader import read_trace
    from koala.simulator.traces.summary import skipped_json
    from koala.study.replay.plan import first_jobs, plan_replay

    trace = read_trace(Path(options.source))
    divides = catalogue.find(options.policy or grid.scheduler.policy).form.divides
    arrivals = first_jobs(
        trace_workload(trace, divides=divides, walltimes=False).arrivals(grid, options.seed), options.limit
    )
    planned = plan_replay(trace.name, arrivals, grid, settings, names=trace.ids.tolist())
    about = {
        "trace": trace.name,
        "format": trace.format,
        "engine": "live",
        "skipped": skipped_json(trace),
        "reordered": trace.reordered,
    }
    return ReplaySource(planned, about, is_trace=True, remarks=trace_remarks(trace))


def _programs(given: Sequence[str]) -> Programs:
    """Parse ``--application NAME=JOB``: jobs of that application run what the job file has."""
    from koala.descriptions import read_job
    from koala.study.replay.plan import Program

    programs: dict[str, Any] = {}
    for text in given:
        name, equals, job = text.partition("=")
        if not (name and equals and job):
            raise UserError(
                f"--application {text}: write NAME=JOB, the application's name and a job file that runs it"
            )
        described = read_job(*read_named("job", job))
        program = Program(described.components[0].application, described.job_type)
        programs[name] = functools.partial(_always, program)
    return programs


def _always(program: Program, _request: Request) -> Program:
    return program
