"""The live runs: single jobs on an otherwise idle lab, the source of the simulation's model, and the workload of the
paper at small scale under each policy. Both are replays: see ``koala.study.replay``."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from koala import AsyncClient
from koala.model.grid import Background, Grid
from koala.model.request import Application, Component, JobType, Request
from koala.simulator import DONE, Arrival, JobRow, Result, equal_parts, read_workload, stream, workload_from_file
from koala.study.live import LiveGrid
from koala.study.replay import SLEEPER, Program, Replay, Replayed, ReplayPlan, ReplaySettings, plan_replay
from koala_papers.koala2006.study import POLICIES, measures
from koala_papers.live2006.host import undisturbed
from koala_papers.live2006.load import LoadController

APPLICATIONS = ("laplace", "heat")
# Processors of a job -> its numbers of components under WF and CM.
SIZES: dict[int, tuple[int, ...]] = {4: (2,), 6: (2, 3)}
# The numbers of components with a measured start-up; if there are more than sites, some share a site.
COMPONENTS = (1, 2, 3, 4)
STARTS = 6
# Single jobs come at a random moment in this period, to avoid synchrony with a batch system that starts jobs in
# rounds.
PAUSE_S = 2.0
# Separates the names of the sites in a job's row.
SITES_JOINED_BY = "+"
WALLTIME_S = 300
# Long enough for any job of a calibration, which never waits for another.
_MODEL_S = 10.0


class SolverProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The problem of the applications: ``size`` x ``size`` points, for a number of iterations, each with an
    additional rest."""

    size: int
    work_ms: float = 0.0
    laplace_iterations: int
    heat_iterations: int


class WorkloadDraw(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a run: their number, their interarrival time, and the seed of all draws."""

    jobs: int
    interarrival_s: float
    seed: int


def programs(problem: SolverProblem) -> dict[str, Callable[[Request], Program]]:
    """Return the real solvers, by the names that the workload has for them."""

    def laplace(_request: Request) -> Program:
        return _solver(problem, "laplace", "--tolerance", "0", "--iterations-max", str(problem.laplace_iterations))

    def heat(_request: Request) -> Program:
        return _solver(problem, "heat", "--steps", str(problem.heat_iterations))

    return {"laplace": laplace, "heat": heat}


def _solver(problem: SolverProblem, name: str, *arguments: str) -> Program:
    work = ("--work-ms", str(problem.work_ms))
    words = ("-m", f"koala.examples.applications.{name}", "--size", str(problem.size), *work, *arguments)
    # The solvers are single-threaded; threads of numpy would only disturb the other processes.
    environment = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"))
    return Program(Application(executable=sys.executable, arguments=words, environment=environment), JobType.MPI)


# ----------------------------------------------------------------------------------------- the workload


def arrivals(grid: Grid, drawn: WorkloadDraw, policy: str) -> list[Arrival]:
    """Return the jobs of one run, without their execution times; only their requests differ between policies."""
    sizes = ", ".join(
        f"{{processors: {processors}, components: [{', '.join(map(str, components))}]}}"
        for processors, components in SIZES.items()
    )
    mix = ", ".join(f"{{application: {name}, sizes: [{sizes}]}}" for name in APPLICATIONS)
    text = f"""
name: live2006
generate:
  - jobs: {drawn.jobs}
    interarrival_s: {{exponential: {drawn.interarrival_s}}}
    request: {POLICIES[policy]}
    walltime: {WALLTIME_S}
    execution_s: {_MODEL_S}
    mix: [{mix}]
"""
    return list(workload_from_file(read_workload(text, "live2006")).arrivals(grid, drawn.seed))


async def run_policy(
    live: LiveGrid, policy: str, drawn: WorkloadDraw, problem: SolverProblem, background: Background
) -> dict[str, Any]:
    """Run the workload under one policy, and return its measures."""
    settings = ReplaySettings(policy=policy, programs=programs(problem))
    made = plan_replay("live2006", arrivals(live.grid, drawn, policy), live.grid, settings)
    controller = LoadController(live.lab, live.grid, background, drawn.seed)
    replayed = await _replayed(live, made, controller, policy, drawn.seed)
    return {
        **run_measures(replayed.result),
        "jobs": [_as_json(row) for row in replayed.result.rows()],
        "lag_s": max((each.lag_s for each in replayed.submissions), default=0.0),
        "wasted_share": replayed.waste.share,
        "local_load": dict(controller.shares()),
    }


def run_measures(result: Result) -> dict[str, Any]:
    """Return the measures of a run, live or simulated, and how many jobs were on each set of sites."""
    return {**measures(result), "sites": dict(Counter(sites_of(row) for row in result.rows()))}


def _as_json(row: JobRow) -> dict[str, Any]:
    """Return a job's properties, its places and its times."""
    return {
        "name": row.name,
        "processors": row.processors,
        "sites": row.sites,
        "submitted_s": row.submitted,
        "queue_s": row.queue_s,
        "overhead_s": row.overhead_s,
        "execution_s": row.execution_s,
    }


async def _replayed(live: LiveGrid, made: ReplayPlan, controller: LoadController, policy: str, seed: int) -> Replayed:
    async with controller.holding(), AsyncClient(live.server) as client:
        replay = Replay(client, made, stop=lambda: False)
        return await replay.run(await client.overview(), policy=policy, seed=seed)


# ---------------------------------------------------------------------------------------- the calibration


def calibrated(
    live: LiveGrid, problem: SolverProblem, background: Background, seed: int, stolen_percent_max: float
) -> dict[str, Any]:
    """Return the start-up of each number of components, each application and size alone on one, two and all clusters,
    and beside another job like it."""
    return asyncio.run(_calibrated(live, problem, background, seed, stolen_percent_max))


async def _calibrated(
    live: LiveGrid, problem: SolverProblem, background: Background, seed: int, stolen_percent_max: float
) -> dict[str, Any]:
    controller = LoadController(live.lab, live.grid, background, seed)
    async with controller.holding(), AsyncClient(live.server) as client:
        pauses = stream(seed, "pauses")
        host: list[tuple[float, int]] = []

        async def measured(runs: Iterable[tuple[Request, ...]]) -> list[tuple[Request, JobRow]]:
            found: list[tuple[Request, JobRow]] = []
            for requests in runs:
                rows, stolen_percent, tries = await undisturbed(partial(measure, requests), stolen_percent_max)
                host.append((stolen_percent, tries))
                found += zip(requests, rows, strict=True)
            return found

        async def measure(requests: tuple[Request, ...]) -> list[JobRow]:
            await asyncio.sleep(pauses.uniform(0.0, PAUSE_S))
            return await _rows(live, client, problem, *requests)

        starts = await measured((request,) for request in _starts(live.grid, seed))
        single = await measured((request,) for request in _single_jobs(live.grid, seed))
        paired = await measured(_pairs(live.grid, seed))
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (_, one), (_, other) in zip(paired[::2], paired[1::2], strict=True):
        for row in (one, other):
            seconds = _seconds(row.execution_s)
            pairs[_key(row)].append((seconds, overlap_s(one, other) / seconds))
    return {
        "overheads": [(_places(request), _seconds(row.overhead_s)) for request, row in (*starts, *single)],
        "executions": {_key(row): _seconds(row.execution_s) for _, row in single},
        "pairs": dict(pairs),
        "host": host,
    }


def overlap_s(one: JobRow, other: JobRow) -> float:
    """Return how long both ran at the same time."""
    if one.started is None or one.finished is None or other.started is None or other.finished is None:
        return 0.0
    return max(0.0, min(one.finished, other.finished) - max(one.started, other.started))


def _places(request: Request) -> list[str]:
    """Return the site of each component."""
    return [component.site or "" for component in request.components]


async def _rows(live: LiveGrid, client: AsyncClient, problem: SolverProblem, *requests: Request) -> list[JobRow]:
    """Run these jobs together, and nothing else; raise CalibrationError if one is not done."""
    together = [Arrival(0.0, request, _MODEL_S) for request in requests]
    made = plan_replay(requests[0].name, together, live.grid, ReplaySettings(programs=programs(problem)))
    overview = await client.overview()
    replayed = await Replay(client, made, stop=lambda: False).run(overview, policy=overview.policy)
    rows = list(replayed.result.rows())
    for row in rows:
        if row.outcome != DONE:
            raise CalibrationError(f"{row.name} on {row.sites or 'no site'}: {row.reason or row.outcome}")
    return rows


def _key(row: JobRow) -> str:
    return f"{row.name}/{row.processors}/{sites_of(row)}"


def sites_of(row: JobRow) -> str:
    """Return the sites of a job, independent of the order of placement."""
    return SITES_JOINED_BY.join(sorted(row.sites.split(SITES_JOINED_BY)))


def _seconds(value: float | None) -> float:
    assert value is not None, "a job that was done has all times"
    return value


class CalibrationError(RuntimeError):
    """A job of the calibration did not end well."""

    def for_user(self) -> str:
        """Return which job, and why."""
        return str(self)


def _starts(grid: Grid, seed: int) -> Iterator[Request]:
    """Yield short jobs of each number of components; the sites take turns."""
    names = [site.name for site in grid.sites]
    for turn, components in itertools.product(range(STARTS), COMPONENTS):
        yield _fixed(SLEEPER, components, _in_turn(names, components, seed + turn))


def _single_jobs(grid: Grid, seed: int) -> Iterator[Request]:
    """Yield every application and size on one set of clusters for each number of clusters; the sets take turns, so
    that as many seeds as there are sites cover all of them."""
    names = [site.name for site in grid.sites]
    for turn, (application, processors) in enumerate(itertools.product(APPLICATIONS, SIZES), seed):
        for clusters in range(1, len(names) + 1):
            sets = list(itertools.combinations(names, clusters))
            yield _fixed(application, processors, _in_turn(sets[turn % len(sets)], clusters, turn))


def _pairs(grid: Grid, seed: int) -> Iterator[tuple[Request, Request]]:
    """Yield two equal jobs at the same time, on one cluster each or on two each, in turn."""
    names = [site.name for site in grid.sites]
    kinds = itertools.product(APPLICATIONS, SIZES)
    for turn, (application, processors) in enumerate(kinds, seed):
        clusters = 1 + turn % 2
        yield (
            _fixed(application, processors, _in_turn(names, clusters, turn)),
            _fixed(application, processors, _in_turn(names, clusters, turn + 1)),
        )


def _in_turn(names: Sequence[str], count: int, turn: int) -> list[str]:
    """Return this many names, beginning at another one each turn."""
    return [names[(turn + index) % len(names)] for index in range(count)]


def _fixed(application: str, processors: int, sites: Sequence[str]) -> Request:
    """Return a job with a component on each of these sites."""
    real = Application(executable=SLEEPER, arguments=("0.2",)) if application == SLEEPER else None
    return Request(
        name=application,
        walltime_s=WALLTIME_S,
        components=tuple(
            Component(processors=part, site=site, application=real or Application(executable=application))
            for part, site in zip(equal_parts(processors, len(sites)), sites, strict=True)
        ),
    )
