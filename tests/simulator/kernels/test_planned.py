"""The planned kernel starts co-allocated jobs when and where the core does with one plan a queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, SchedulerParameters, Site
from koala.model.request import Application, Component, Flexibility, Request
from koala.simulator import Workload, simulate
from koala.simulator.kernels import planned
from koala.simulator.kernels.plain import PlainKernelError
from koala.simulator.kernels.planned import run_planned
from koala.simulator.workloads.workload import Arrival

Jobs = list[tuple[float, float, tuple[int, ...], float]]  # submitted, runs, components, requested


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Jobs, list[int]]:
    """More work than fits, in whole seconds so that there are ties; some jobs as wide as the grid."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    capacity = [rng.randint(2, 12) for _ in range(rng.choice((1, 2, 4, 5)))]
    jobs: Jobs = []
    now_s = 0.0
    for _ in range(draw(st.integers(1, 60))):
        now_s += rng.choice((0.0, 1.0, 3.0, rng.expovariate(1 / 5)))
        run_s = rng.choice((1.0, 10.0, 25.0, rng.uniform(1.0, 60.0)))
        widest = max(capacity) if rng.random() < 0.8 else min(capacity)
        components = tuple(rng.randint(1, widest) for _ in range(rng.choice((1, 1, 2, 3))))
        if sum(components) > sum(capacity):
            components = components[:1]
        jobs.append((now_s, run_s, components, run_s * rng.choice((1.0, 1.0, 2.0, 7.0))))
    return jobs, capacity


def in_core(jobs: Jobs, capacity: list[int], policy: str) -> list[tuple[float | None, set[str]]]:
    grid = Grid(
        sites=tuple(Site(name=f"c{index}", processors=size) for index, size in enumerate(capacity)),
        scheduler=SchedulerParameters(policy=policy, scan_interval_s=0.0, check_interval_s=None, plan_depth=1),
    )
    application = Application(executable="job")
    arrivals = []
    for submit_s, run_s, sizes, requested_s in jobs:
        if policy == "FCM":
            components: tuple[Component, ...] = (Component(processors=sum(sizes), application=application),)
        else:
            components = tuple(Component(processors=size, application=application) for size in sizes)
        request = Request(
            components=components,
            flexible=Flexibility() if policy == "FCM" else None,
            walltime_s=requested_s,
        )
        arrivals.append(Arrival(submit_s, request, run_s))
    rows = simulate(grid, Workload.from_arrivals(arrivals)).rows()
    return [(row.started, set(row.sites.split("+"))) for row in rows]


def in_kernel(jobs: Jobs, capacity: list[int], policy: str) -> list[tuple[float | None, set[str]]]:
    most = max(len(components) for _, _, components, _ in jobs)
    run = run_planned(
        [job[0] for job in jobs],
        [job[1] for job in jobs],
        [[*job[2], *[0] * (most - len(job[2]))] for job in jobs],
        capacity,
        [job[3] for job in jobs],
        divides=policy == "FCM",
    )
    return [
        (start, {f"c{site}" for site, part in enumerate(parts) if part})
        for start, parts in zip(run.start_s.tolist(), run.parts.tolist(), strict=True)
    ]


def fitting(jobs: Jobs, capacity: list[int]) -> Jobs:
    """Those that WF can place on an idle grid."""
    found = []
    for job in jobs:
        left = list(capacity)
        for size in sorted(job[2], reverse=True):
            site = left.index(max(left))
            left[site] -= size
        if min(left) >= 0:
            found.append(job)
    return found


@pytest.mark.parametrize("policy", ["FCM", "WF"])
@settings(max_examples=40, deadline=None)
@given(world=worlds())
def test_jobs_start_when_and_where_they_do_in_the_core(policy: str, world: tuple[Jobs, list[int]]) -> None:
    jobs, capacity = world
    if policy == "WF":
        jobs = fitting(jobs, capacity)
    if jobs:
        assert in_kernel(jobs, capacity, policy) == in_core(jobs, capacity, policy)


def test_no_jobs_are_no_work() -> None:
    run = run_planned([], [], [], [4], [], divides=True)
    assert run.parts.shape == (0, 1)


def test_too_many_jobs_times_clusters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "PLANNED_CELLS_MAX", 3)
    with pytest.raises(PlainKernelError, match="PLANNED_CELLS_MAX"):
        run_planned([0.0, 0.0], [1.0, 1.0], [[1], [1]], [2, 2], [1.0, 1.0], divides=True)
