"""The experiment of 2005: jobs of two priorities with files, placed close to them, on a testbed that keeps failing.

This module defines the runs and their measures. ``utilisation`` follows the use of processors, ``data`` evaluates the
measurements; the claims are in ``claims`` and the figures in ``figures``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from koala.model.grid import Grid, SiteFaults
from koala.simulator import (
    UtilisationRecorder,
    Workload,
    example_grid,
    example_workload,
    fingerprint,
    simulate,
    workload_from_file,
)
from koala.study import Conclusion, FinishedUnit, Parameters, Unit, varied
from koala_papers.experiment import PaperExperiment
from koala_papers.koala2005.claims import claims
from koala_papers.koala2005.data import STABLE, UNSTABLE, Koala2005Data, cells_of
from koala_papers.koala2005.figures import figures

GRID = "das2-2005"
WORKLOAD = "koala2005"

METHOD = (
    (
        "500 jobs of 36 or 72 processors in 3, 4, 6 or 8 equal components come as a Poisson process, one a "
        "minute, held back while 100 wait. Each reads a file of 4 or 8 GB that has two replicas, and half of them "
        "have high priority. They are placed close to their files (CF) and claimed incrementally (ICP) on four "
        "clusters with 310 processors. The scheduler is the one that runs live; sites, links and users are "
        "simulated."
    ),
    (
        "Nodes of two processors, four at one cluster and one at the largest, are misconfigured, the same ones for a "
        "whole run: a job that is given one fails at once. Besides, every component may break, at that one cluster "
        "often, and the cluster goes down again and again, until failures make the scheduler take it out and 250 "
        "processors are left. The same jobs under the same seeds on the same grid with good nodes, without outages "
        "and with few failures are the stable system, for comparison."
    ),
    (
        "Utilisation counts the processors that our jobs and the clusters' ordinary users hold, as a share of the "
        "clusters that are not taken out, as the paper's figure does. Our jobs hold processors from the claim on, "
        "also while they wait at the barrier for their files and for each other. The paper says that up to 80-90 "
        "% were used. That is a level which was reached and not the mean of a run with its empty beginning and "
        "end; here it is the hour of each run with the highest mean."
    ),
    (
        "The failure share of a group of jobs is the runs that failed, out of these and the runs that succeeded. "
        "Placement time is from the submission to the last placement, start delay from the first estimate of the "
        "start to the last. Processor time is gained from a job's placement until it claims, since others may have "
        "its processors, and wasted from the claim until its start. Each seed gives one value; intervals are "
        "Student's t at 95 % over seeds, and a slope is a least-squares fit over the jobs of one seed. A claim holds "
        "only when every interval lies where it says."
    ),
    (
        "Ours, since the paper gives no numbers: the arrival rate, the chance of failures, the ordinary users "
        "(17.5 % of the processors, the middle of what the experiment of 2006 held on the same system) and the "
        "start-up times. The chance of a component's failure is an input, so the height of the failure share is "
        "put in, as is that of bad nodes; how it depends on components and on priority, and what it does to "
        "placement times, is not. The setting was chosen by looking at seeds 901 and 902."
    ),
)

JobCount = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Chance = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Koala2005Parameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``: the number of submitted jobs;
    - ``stable_component_failure``: the chance that a component breaks on the stable system.
    """

    jobs: JobCount = 500
    stable_component_failure: Chance = 0.01


class Koala2005(PaperExperiment[Koala2005Parameters]):
    """The unstable testbed, and a stable one beside it, under the same seeds."""

    name = "koala2005"
    title = "Co-allocation with priorities and files on an unreliable testbed"
    question = "Do all jobs get through while clusters fail, and what do priority, size and components do to them?"
    method = METHOD
    seeds_max = 80
    parameters_type = Koala2005Parameters

    def quick(self, parameters: Koala2005Parameters) -> Koala2005Parameters:
        return msgspec.structs.replace(parameters, jobs=120)

    def units(self, parameters: Koala2005Parameters, seed: int, repetitions: int) -> list[Unit]:
        inputs = fingerprint(grids=(GRID,), workloads=(WORKLOAD,))
        return [
            Unit(
                label=f"{system} system, seed {each}",
                work={
                    "system": system,
                    "seed": each,
                    "jobs": parameters.jobs,
                    "component_failure": parameters.stable_component_failure if system == STABLE else None,
                    "inputs": inputs,
                },
            )
            for each in range(seed, seed + repetitions)
            for system in (UNSTABLE, STABLE)
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        grid = example_grid(GRID)
        if work["system"] == STABLE:
            grid = _stable(grid, work["component_failure"])
        return measures(grid, _workload(work["jobs"]), work["seed"])

    def conclude(self, parameters: Koala2005Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        data = Koala2005Data(results)
        return Conclusion(data.as_json(), claims(data), figures(data), [_removal_note(data)])


def _removal_note(data: Koala2005Data) -> str:
    """Return when the flaky cluster was taken out, in words."""
    taken_out = [run["taken_out"] for run in data.runs(UNSTABLE).values()]
    times_min = sorted(min(times) / 60.0 for each in taken_out if (times := list(each.values())))
    if not times_min:
        return "No cluster was taken out in any run."
    counts = Counter(site for each in taken_out for site in each)
    sites = ", ".join(f"{site} in {counts[site]}" for site in sorted(counts))
    middle = times_min[len(times_min) // 2]
    return (
        f"In {len(times_min)} of {len(taken_out)} runs on the unstable system a cluster was taken out ({sites}), "
        f"the first after {times_min[0]:.0f} to {times_min[-1]:.0f} minutes (median {middle:.0f})."
    )


def _workload(jobs: int) -> Workload:
    return workload_from_file(varied(example_workload(WORKLOAD), jobs=jobs))


def _stable(grid: Grid, component_failure: float) -> Grid:
    """Return the grid without outages, and with this single chance of failure everywhere."""
    faults = SiteFaults(component_failure=component_failure)
    sites = tuple(
        msgspec.structs.replace(site, simulation=msgspec.structs.replace(site.simulation, faults=faults))
        for site in grid.sites
    )
    return msgspec.structs.replace(grid, sites=sites)


def measures(grid: Grid, workload: Workload, seed: int) -> dict[str, Any]:
    """Return one run in numbers: sums for each group of jobs, and the use of processors over time."""
    use = UtilisationRecorder(msgspec.structs.replace(grid, files=(*grid.files, *workload.files(grid, seed))))
    result = simulate(grid, workload, seed=seed, log=use.take)
    rows = list(result.rows())
    metrics = result.metrics()
    submitted_s = max(row.submitted for row in rows)
    return {
        "outcomes": metrics["outcomes"],
        "not_completed": workload.jobs - metrics["outcomes"].get("done", 0),
        "cells": {name: cell.as_json() for name, cell in cells_of(rows).items()},
        "use": use.as_json(submitted_s),
        "taken_out": use.taken_out_s,
        "component_failures": metrics["failures"],
        "preemptions": metrics["preemptions"],
        "makespan_s": metrics["makespan_s"],
        "log_sha256": metrics["log_sha256"],
    }
