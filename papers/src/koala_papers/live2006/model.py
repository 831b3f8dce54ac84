"""The simulation of the live experiment: a model fitted to measurements of single jobs, and its predictions for the
same workload. Pure except for the simulator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from types import MappingProxyType
from typing import Any

import msgspec

from koala.model.grid import Background, Grid, GridSimulation, SiteKind, SiteSimulation, Startup
from koala.simulator import Arrival, JobRow, Result, Workload, simulate
from koala_papers.calibrate.das2 import ExecutionTimeModel, form_of
from koala_papers.live2006.runs import SITES_JOINED_BY, WorkloadDraw, arrivals, overlap_s, run_measures, sites_of

# The papers' scheduler makes no plans, and only placed jobs preempt: parameters as a grid file has them.
PAPERS_SCHEDULER: Mapping[str, object] = MappingProxyType({"plan_depth": 0, "preemption": "claiming-only"})
# How often a simulation is repeated with the concurrent jobs that the previous one showed.
ROUNDS = 4
# The number of steps in sums of chances, and in the search for a time.
_STEPS = 200
_HALVINGS = 30

replace = msgspec.structs.replace


class SimulationModel(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a simulation: start-up times by site, execution times by application and processors, and the
    fraction by which a job on one cluster, or on several, takes longer for each concurrent job that computes all the
    time.

    ``forms`` are the execution times in the form of a workload file, ``times`` the same as measured on each set of
    sites.
    """

    startups: dict[str, Startup]
    forms: dict[str, ExecutionTimeModel]
    times: dict[str, dict[str, float]]
    crowding_one: float = 0.0
    crowding_several: float = 0.0

    def by_clusters_s(self, kind: str) -> dict[int, float]:
        """Return the mean execution time on each number of clusters."""
        return {clusters: fmean(times) for clusters, times in _by_clusters(self.times[kind]).items()}

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return {
            "startups": {site: msgspec.to_builtins(startup) for site, startup in self.startups.items()},
            "applications": {
                name: {
                    "one_cluster_s": next(iter(form.by_size.values())),
                    "per_extra_cluster": form.beta,
                    "by_clusters_s": {str(count): seconds for count, seconds in self.by_clusters_s(name).items()},
                    "by_sites_s": self.times[name],
                }
                for name, form in self.forms.items()
            },
            "crowding": {"one_cluster": self.crowding_one, "several": self.crowding_several},
        }


def executions(calibrations: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """Return the measurements of single jobs: by application/processors and by clusters, a mean for each
    repetition."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for calibration in calibrations:
        for kind, by_sites in _by_sites([calibration]).items():
            for clusters, seconds in _by_clusters(by_sites).items():
                found[kind][clusters].append(fmean(seconds))
    return {key: dict(sorted(by_clusters.items())) for key, by_clusters in sorted(found.items())}


def _by_sites(calibrations: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean time of single jobs, by application/processors and by their sites."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for calibration in calibrations:
        for key, seconds in calibration["executions"].items():
            kind, _, sites = key.rpartition("/")
            found[kind][sites].append(seconds)
    return {
        kind: {sites: fmean(times) for sites, times in sorted(by_sites.items())}
        for kind, by_sites in sorted(found.items())
    }


def _by_clusters(by_sites: Mapping[str, float]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for sites, seconds in by_sites.items():
        found[len(sites.split(SITES_JOINED_BY))].append(seconds)
    return dict(sorted(found.items()))


def overheads(calibrations: Iterable[Mapping[str, Any]]) -> dict[int, list[float]]:
    """Return the times from placement to start, by components, a value for each job."""
    found: dict[int, list[float]] = defaultdict(list)
    for places, seconds in starts(calibrations):
        found[len(places)].append(seconds)
    return dict(sorted(found.items()))


def starts(calibrations: Iterable[Mapping[str, Any]]) -> list[tuple[list[str], float]]:
    """Return for every job the site of each component, and the time from placement to start."""
    return [(places, seconds) for calibration in calibrations for places, seconds in calibration["overheads"]]


def fitted(calibrations: Sequence[Mapping[str, Any]]) -> SimulationModel:
    """Return the model that comes nearest to the measurements."""
    times = _by_sites(calibrations)
    forms = {
        kind: form_of(
            {int(kind.partition("/")[2]): {count: fmean(all_s) for count, all_s in _by_clusters(each).items()}}
        )
        for kind, each in times.items()
    }
    one, several = (crowding(calibrations, of_one=of_one) for of_one in (True, False))
    return SimulationModel(
        startups=fitted_startups(starts(calibrations)),
        forms=forms,
        times=times,
        crowding_one=one,
        crowding_several=several,
    )


def crowding(calibrations: Sequence[Mapping[str, Any]], *, of_one: bool) -> float:
    """Return by which fraction jobs on one cluster, or on several, took longer beside another job than alone on the
    same clusters, for each other job that computes all the time: by least squares, since pairs share only some of
    their time."""
    alone = _by_sites(calibrations)
    points = []
    for calibration in calibrations:
        for key, seconds in calibration["pairs"].items():
            kind, _, sites = key.rpartition("/")
            # Without a measurement of a single job in any seed nothing can be compared.
            if (SITES_JOINED_BY not in sites) is of_one and sites in alone.get(kind, {}):
                alone_s = alone[kind][sites]
                computes = computing_share(computing_s(alone[kind]), alone_s)
                points += [(computes * share, each_s / alone_s - 1.0) for each_s, share in seconds]
    width = sum(beside**2 for beside, _ in points)
    return max(0.0, sum(beside * longer for beside, longer in points) / width) if width > 0.0 else 0.0


def computing_s(by_sites: Mapping[str, float]) -> float:
    """Return how long a job computes: its shortest time. The rest is distance, and batch systems."""
    return min(by_sites.values())


def computing_share(busy_s: float, seconds: float) -> float:
    """Return the share of a job's time in which it computes."""
    return min(1.0, busy_s / seconds)


def fitted_startups(measured: Sequence[tuple[Sequence[str], float]]) -> dict[str, Startup]:
    """Return start-up times of components at each site that reproduce the measured overheads, given as the site of
    each component and the time of the job.

    A site's start-up time, and its spread, is that of jobs of one component there. A job starts with its last
    component, and in a simulation each component draws its own time: the more components, the longer the longest. The
    excess of jobs of several components is attributed to each further component, the same at all sites.
    """
    alone: dict[str, list[float]] = defaultdict(list)
    several = []
    for places, seconds in measured:
        if len(places) > 1:
            several.append((places, seconds))
        else:
            alone[places[0]].append(seconds)
    startups = {site: Startup(base_s=fmean(all_s), jitter=_jitter(all_s)) for site, all_s in sorted(alone.items())}
    further_s = _further_s(startups, several) if several else 0.0
    return {site: replace(startup, per_component_s=further_s) for site, startup in startups.items()}


def _further_s(startups: Mapping[str, Startup], several: Sequence[tuple[Sequence[str], float]]) -> float:
    """Return the time of each further component with which these jobs take the measured time on average."""
    wanted_s = fmean(seconds for _, seconds in several)

    def modelled_s(further_s: float) -> float:
        given = {site: replace(startup, per_component_s=further_s) for site, startup in startups.items()}
        return fmean(longest_startup_s(given, places) for places, _ in several)

    low_s, high_s = 0.0, wanted_s
    if modelled_s(low_s) >= wanted_s:
        return 0.0
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if modelled_s(middle_s) < wanted_s else (low_s, middle_s)
    return low_s


def longest_startup_s(startups: Mapping[str, Startup], places: Sequence[str]) -> float:
    """Return the mean of the longest start-up of components at these sites, each of which draws its own."""
    bounds = []
    for place in places:
        startup = startups[place]
        middle_s = startup.base_s + startup.per_component_s * (len(places) - 1)
        bounds.append((middle_s * (1.0 - startup.jitter), middle_s * (1.0 + startup.jitter)))
    # Nothing is over before the longest of the lower bounds; from there on, by the chance that all are.
    least_s, most_s = max(low for low, _ in bounds), max(high for _, high in bounds)
    step_s = (most_s - least_s) / _STEPS
    chances = (_all_over(bounds, least_s + (step + 0.5) * step_s) for step in range(_STEPS))
    return least_s + sum(1.0 - chance for chance in chances) * step_s


def _all_over(bounds: Sequence[tuple[float, float]], at_s: float) -> float:
    """Return the chance that times which are uniform between these bounds are all over."""
    return math.prod(
        1.0 if at_s >= high_s else max(0.0, (at_s - low_s) / (high_s - low_s)) for low_s, high_s in bounds
    )


def _jitter(values: Sequence[float]) -> float:
    """A uniform factor between 1 - j and 1 + j has the spread j / sqrt(3)."""
    mean = fmean(values)
    return min(0.99, math.sqrt(3.0) * pstdev(values) / mean) if mean > 0 else 0.0


def simulated_grid(grid: Grid, startups: Mapping[str, Startup], background: Background) -> Grid:
    """Return the lab's grid for a simulation, with the users that the load controller represents."""
    sites = tuple(
        replace(
            site,
            kind=SiteKind.SIMULATED,
            batch=None,
            simulation=SiteSimulation(background=background, startup=startups[site.name]),
        )
        for site in grid.sites
    )
    return replace(grid, sites=sites, simulation=GridSimulation())


def timed(model: SimulationModel, jobs: Iterable[Arrival]) -> list[Arrival]:
    """Return the jobs with the execution times of the model."""
    found = []
    for arrival in jobs:
        request = arrival.request
        form = model.forms[f"{request.name}/{request.processors}"]
        execution_s = form.by_size[request.processors]
        found.append(arrival._replace(execution_s=execution_s, per_extra_cluster=form.beta))
    return found


def predicted(
    model: SimulationModel, grid: Grid, policy: str, drawn: WorkloadDraw, background: Background, runs: int
) -> list[dict[str, Any]]:
    """Return the simulator's results for the same jobs beside the same users, with other start-up times in each
    run."""
    simulated = simulated_grid(grid, model.startups, replace(background, seed=drawn.seed))
    jobs = timed(model, arrivals(grid, drawn, policy))
    first_s = jobs[0].at_s
    moved = [each._replace(at_s=each.at_s - first_s) for each in jobs]
    return [run_measures(_settled(model, simulated, moved, policy, seed)) for seed in range(1, runs + 1)]


def _settled(model: SimulationModel, grid: Grid, jobs: Sequence[Arrival], policy: str, seed: int) -> Result:
    """Return a simulation in which each job takes the measured time on its clusters, lengthened by its concurrent
    jobs.

    The places of a job and its concurrent jobs follow from a simulation, so it is repeated until they hardly change.
    The first one uses the form of workload files.
    """
    result = simulate(grid, Workload.from_arrivals(jobs), policy=policy, seed=seed)
    for _ in range(ROUNDS):
        rows = list(result.rows())
        again = [
            job._replace(execution_s=measured_s(model, row) * factor, per_extra_cluster=0.0)
            for job, row, factor in zip(jobs, rows, crowded_factors(model, rows), strict=True)
        ]
        result = simulate(grid, Workload.from_arrivals(again), policy=policy, seed=seed)
    return result


def measured_s(model: SimulationModel, row: JobRow) -> float:
    """Return the execution time of single jobs on these sites; by the form if that was not measured."""
    kind = _kind(row)
    return model.times[kind].get(sites_of(row)) or model.forms[kind].seconds(row.processors, max(1, row.clusters))


def crowded_factors(model: SimulationModel, rows: Sequence[JobRow]) -> list[float]:
    """Return the factor by which each job takes longer because of concurrent jobs. These count by the time that they
    share with it, and by the part of their time in which they compute."""
    computes = {
        row.job: computing_share(computing_s(model.times[_kind(row)]), measured_s(model, row)) for row in rows
    }
    factors = []
    for row in rows:
        shared_s = sum(overlap_s(row, other) * computes[other.job] for other in rows if other.job != row.job)
        beside = shared_s / row.execution_s if row.execution_s else 0.0
        share = model.crowding_one if row.clusters <= 1 else model.crowding_several
        factors.append(1.0 + share * beside)
    return factors


def _kind(row: JobRow) -> str:
    return f"{row.name}/{row.processors}"
