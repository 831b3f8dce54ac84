"""Runs one case of the mini-grid study on the kernel, and returns its numbers."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from koala.model.grid import Grid, LinkGroup, Network, Site
from koala.model.request import Pattern
from koala.policies import Catalogue, Form, Policy
from koala.study import ParameterError
from koala_papers.minigrid.cases import CLUSTERS, ISLANDS, MiniGridCase

if TYPE_CHECKING:
    from koala.simulator import MiniGrid, MiniGridJobs, MiniGridRun

NODES = 100
LINK_MBIT_S = 1000.0
# The number of jobs that warm the kernel up before it is timed.
_WARM_UP_JOBS = 10
_THRESHOLD = "lslt"
_QUARTERS = 4


def run_case(case: MiniGridCase, jobs_per_cluster: int, seed: int, clusters: int = CLUSTERS) -> dict[str, Any]:
    """Return the numbers of one run; the same case, sizes and seed give the same."""
    from koala.simulator import run_mini_grid

    jobs = _jobs(clusters, jobs_per_cluster, seed, case.bsbw_low, case.bsbw_high, case.pattern, case.whole_gaps)
    return _numbers(jobs, run_mini_grid(jobs, _grid(case.wiring, clusters), case.name))


def run_case_timed(case: MiniGridCase, jobs_per_cluster: int, seed: int, clusters: int = CLUSTERS) -> dict[str, Any]:
    """Return the same, and how many jobs a second the kernel ran, once it was compiled or read from disk."""
    from koala.simulator import run_mini_grid

    grid = _grid(case.wiring, clusters)
    run_mini_grid(_jobs(clusters, _WARM_UP_JOBS, seed, case.bsbw_low, case.bsbw_high, case.pattern), grid, case.name)
    jobs = _jobs(clusters, jobs_per_cluster, seed, case.bsbw_low, case.bsbw_high, case.pattern)
    before_s = time.perf_counter()
    run = run_mini_grid(jobs, grid, case.name)
    took_s = time.perf_counter() - before_s
    return {**_numbers(jobs, run), "jobs_per_s": len(jobs) / took_s}


# Units with the same jobs come one after the other, and drawing them takes a good part of a run.
@lru_cache(maxsize=1)
def _jobs(
    clusters: int,
    jobs_per_cluster: int,
    seed: int,
    bsbw_low: float,
    bsbw_high: float,
    pattern: str,
    whole_gaps: bool = False,
) -> MiniGridJobs:
    from koala.simulator import mini_grid_workload

    return mini_grid_workload(
        clusters,
        jobs_per_cluster,
        bsbw_low if bsbw_low == bsbw_high else (bsbw_low, bsbw_high),
        seed,
        patterns={Pattern(pattern): 1.0},
        whole_gaps=whole_gaps,
    )


def _grid(wiring: str, clusters: int) -> MiniGrid:
    """Return the clusters in a star; or two islands of half of them, each behind one more link."""
    from koala.simulator import MiniGrid

    sites = tuple(Site(name=f"C{number}", processors=NODES) for number in range(1, clusters + 1))
    groups: tuple[LinkGroup, ...] = ()
    if wiring == ISLANDS:
        half = clusters // 2
        groups = tuple(
            LinkGroup(name=name, uplink_mbit_s=LINK_MBIT_S, members=tuple(site.name for site in members))
            for name, members in (("east", sites[:half]), ("west", sites[half:]))
        )
    return MiniGrid.of(Grid(sites=sites, network=Network(uplink_mbit_s=LINK_MBIT_S, groups=groups)))


def _numbers(jobs: MiniGridJobs, run: MiniGridRun) -> dict[str, Any]:
    """Return means over all jobs, and the load of the links.

    ``mean_stretch`` is the time of all co-allocated jobs together as a multiple of their time on one cluster, 1
    without any. ``saturation`` is the greatest demand on any link and ``mean_saturation`` that of the links on
    average over time, as multiples of the capacity; ``wasted_node_share`` is the share of the held node-seconds that
    stretching cost. ``quarters_turnaround_s`` are the means of the quarters of all jobs, in the order of their
    submission.
    """
    import numpy

    turnaround_s = run.end_s - jobs.submit_s
    apart = numpy.flatnonzero(run.clusters > 1)
    held_s = float((run.end_s[apart] - run.start_s[apart]).sum())
    worked_s = float(jobs.work_s[apart].sum())
    node_s = float(numpy.dot(jobs.work_s, jobs.size)) + run.wasted_node_s
    return {
        "jobs": len(jobs),
        "mean_turnaround_s": float(turnaround_s.mean()),
        "mean_wait_s": float((run.start_s - jobs.submit_s).mean()),
        "mean_stretch": held_s / worked_s if worked_s > 0.0 else 1.0,
        "coallocated_share": len(apart) / len(jobs),
        "mean_clusters": float(run.clusters.mean()),
        "saturation": max(run.saturation_most),
        "mean_saturation": sum(run.saturation_mean) / len(run.saturation_mean),
        "wasted_node_share": run.wasted_node_s / node_s,
        "quarters_turnaround_s": [float(part.mean()) for part in numpy.array_split(turnaround_s, _QUARTERS)],
    }


# ------------------------------------------------------------------------------------- asked by a user


def asked_case(policy: str, lslt: float | None, bsbw_low: float, bsbw_high: float) -> MiniGridCase:
    """Return the case of a policy as a user names it, with or without a separate threshold.

    A policy without a threshold ignores it. Raises ParameterError, or the catalogue's error for an unknown policy or
    invalid parameters.
    """
    found = _find(policy)
    named = f"{_THRESHOLD}=" in found.name
    if named and lslt is not None:
        raise ParameterError(f"minigrid: the threshold is in {found.name} and in --lslt {lslt:g}; give it once")
    case = MiniGridCase(found.name, None if named or not _has_threshold(found) else lslt, bsbw_low, bsbw_high)
    Catalogue.builtin().find(case.name)
    return case


def threshold_of(case: MiniGridCase) -> float | None:
    """Return how far the policy lets links be used, possibly its own choice; None if it ignores them."""
    found = Catalogue.builtin().find(case.name)
    return found.module.threshold if found.module is not None and _has_threshold(found) else None


def _find(text: str) -> Policy:
    """Return the policy of this name, with any dashes, blanks and capitals."""
    catalogue = Catalogue.builtin()
    linked = [each for each in catalogue if each.form is Form.LINKS]
    bare, bracket, inside = text.partition("(")
    same = [each.name for each in linked if _plain(each.name) == _plain(bare)]
    found = catalogue.find(f"{same[0]}{bracket}{inside}" if same else text)
    if found.form is not Form.LINKS:
        known = ", ".join(each.name for each in linked)
        raise ParameterError(f"minigrid, parameter policy: {found.name} is not made for links; there are {known}")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _has_threshold(policy: Policy) -> bool:
    return any(each.name == _THRESHOLD for each in policy.parameters)
