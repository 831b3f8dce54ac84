"""The plan of a replay: the jobs of a workload or a trace, turned into jobs that a live grid can run.

A job with an application of its own runs that. Any other has only a run time, and sleeps for it. Properties that a
live grid cannot reproduce are omitted and reported, once for each kind. ``replay`` submits the jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

from koala.model.grid import Grid
from koala.model.request import Application, JobType, Request
from koala.policies.interface import quota_processors
from koala.simulator.workloads.workload import Arrival, Workload

# A replay keeps every job in memory until its end, and submits each by a call of its own.
REPLAYED_JOBS_MAX = 100_000
# The program of a job that has only a run time.
SLEEPER = "sleep"
# A program cannot sleep for no time at all, nor is a shorter time worth a process.
SLEEP_S_MIN = 0.001

replace = msgspec.structs.replace


class Program(NamedTuple):
    """The program of a job: its application, and how it is started."""

    application: Application
    job_type: JobType = JobType.PLAIN


# Programs for jobs that name only an application: by that name, given the request of the job.
Programs: TypeAlias = Mapping[str, Callable[[Request], Program]]


class ReplayError(ValueError):
    """An impossible replay; the message says why and what to change."""

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


class PlannedJob(NamedTuple):
    """One job of a replay: ``at_s`` after its beginning, with the simulator's input for the same job.

    ``name`` is its name in the workload or the trace: its number there.
    """

    name: int
    at_s: float
    request: Request
    arrival: Arrival


class OmittedJob(NamedTuple):
    """A job that is not submitted, and why."""

    name: int
    request: Request
    reason: str


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """The jobs of a replay in order of time, those that the grid can never hold, and remarks on omitted properties.

    ``hold_when_waiting``: while this many jobs wait, the submission is held back, and all later ones shift.
    """

    title: str
    jobs: Sequence[PlannedJob]
    too_large: Sequence[OmittedJob] = ()
    notes: Sequence[str] = ()
    hold_when_waiting: int | None = None

    def simulated(self) -> Workload:
        """Return the same jobs at the same times for the simulator."""
        arrivals = [job.arrival for job in self.jobs]
        return Workload.from_arrivals(arrivals, name=self.title, hold_when_waiting=self.hold_when_waiting)


@dataclass(kw_only=True)
class ReplaySettings:
    """The settings of a replay. ``files`` are the input files that the live grid has."""

    speed: float = 1.0
    policy: str | None = None
    programs: Programs = field(default_factory=dict)
    files: Collection[str] = ()


def first_jobs(arrivals: Iterable[Arrival], limit: int | None) -> list[Arrival]:
    """Return at most this many of the jobs; enough for ``plan_replay`` to detect that there are too many."""
    return list(islice(arrivals, REPLAYED_JOBS_MAX + 1 if limit is None else limit))


def plan_replay(
    title: str,
    arrivals: Sequence[Arrival],
    grid: Grid,
    settings: ReplaySettings,
    *,
    names: Sequence[int] | None = None,
    hold_when_waiting: int | None = None,
) -> ReplayPlan:
    """Return the replay of these jobs, which come in order of time, on that grid; it begins with the first of them.

    ``names`` replace the names 1, 2, ... Raises ReplayError if there are no jobs, or too many.
    """
    if not arrivals:
        raise ReplayError(f"{title}: there are no jobs in it to submit")
    if len(arrivals) > REPLAYED_JOBS_MAX:
        raise ReplayError(
            f"{title}: it has more than {REPLAYED_JOBS_MAX:,} jobs (REPLAYED_JOBS_MAX); "
            "take the first ones with --limit"
        )
    first_s = arrivals[0].at_s
    fitting = _Fitting(grid)
    remarks: Counter[str] = Counter()
    jobs: list[PlannedJob] = []
    too_large: list[OmittedJob] = []
    for number, arrival in enumerate(arrivals):
        name = number + 1 if names is None else names[number]
        reason = fitting.refuses(arrival.request)
        if reason:
            too_large.append(OmittedJob(name, arrival.request, reason))
            continue
        live = _live(arrival, settings, remarks)
        at_s = (arrival.at_s - first_s) / settings.speed
        jobs.append(PlannedJob(name, at_s, live.request, live._replace(at_s=at_s)))
    notes = [f"{count} {'job' if count == 1 else 'jobs'} {remark}" for remark, count in remarks.items()]
    return ReplayPlan(title=title, jobs=jobs, too_large=too_large, notes=notes, hold_when_waiting=hold_when_waiting)


class _Fitting:
    """The jobs that the sites can never hold, even when idle: the daemon would keep them waiting for ever."""

    def __init__(self, grid: Grid) -> None:
        self._processors = {site.name: quota_processors(site.processors, site.quota) for site in grid.sites}
        self._largest = max(self._processors.values())
        self._all = sum(self._processors.values())

    def refuses(self, request: Request) -> str:
        """Return why the grid can never hold it; empty if it can."""
        if request.processors > self._all:
            return f"the sites have {self._all} processors in all"
        if request.is_total:
            return ""
        for component in request.components:
            most = self._largest if component.site is None else self._processors.get(component.site, self._largest)
            if request.flexible is None and component.processors > most:
                where = "the largest site" if component.site is None else component.site
                return f"a component has {component.processors} processors and {where} has {most}"
        return ""


def _live(arrival: Arrival, settings: ReplaySettings, remarks: Counter[str]) -> Arrival:
    """Return the job for the live grid and, with the time that it is expected to run there, for the simulator."""
    request, execution_s = arrival.request, arrival.execution_s
    program = settings.programs.get(request.components[0].application.name)
    if program is not None:
        runs = program(request)
        request = _running(request, runs)
    elif not has_own_application(request):
        execution_s = max(SLEEP_S_MIN, execution_s / settings.speed)
        nap = Application(executable=SLEEPER, arguments=(f"{execution_s:.3f}",))
        request = _running(request, Program(nap))
        if arrival.per_extra_cluster:
            remarks["would be slowed down by combining clusters: they sleep as long as on one"] += 1
            arrival = arrival._replace(per_extra_cluster=0.0, bandwidth_share=0.0, latency_share=0.0)
        if request.communication is not None:
            # Their demands on the links still count for policies that consider them, without effect on run times.
            remarks["would communicate: they sleep, and the links between their sites carry nothing"] += 1
            request = replace(request, communication=replace(request.communication, share=0.0))
    request = _with_files(request, settings.files, remarks)
    if settings.policy is not None and request.policy is None:
        request = replace(request, policy=settings.policy)
    return arrival._replace(request=request, execution_s=execution_s)


def has_own_application(request: Request) -> bool:
    """Return True if the request names what to run: a script, a path, or a program with arguments.

    A bare name is how workloads and traces name an application with only a known run time.
    """
    return all(
        component.application != Application(executable=component.application.executable)
        or "/" in (component.application.executable or "")
        for component in request.components
    )


def _running(request: Request, program: Program) -> Request:
    components = tuple(replace(each, application=program.application) for each in request.components)
    return replace(request, components=components, job_type=program.job_type)


def _with_files(request: Request, known: Collection[str], remarks: Counter[str]) -> Request:
    """Return the request without the input files that only a simulated grid has."""
    missing = {file.name for each in request.components for file in each.input_files} - set(known)
    if not missing:
        return request
    remarks["would read input files that the grid does not have: they read nothing"] += 1
    components = tuple(
        replace(each, input_files=tuple(file for file in each.input_files if file.name not in missing))
        for each in request.components
    )
    return replace(request, components=components)
