"""The scheduler under the simulated world runs mini-grids as the kernel and its naive twin do, bit by bit."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.cli.examples import read_named
from koala.descriptions import read_grid
from koala.descriptions.workload.form import read_workload
from koala.model.grid import Grid, LinkGroup, Network, Route, SchedulerParameters, Site
from koala.model.network import per_processor_bit_s
from koala.model.request import Communication, Component, Flexibility, Pattern, Request
from koala.policies import Catalogue
from koala.simulator import Arrival, Workload, simulate
from koala.simulator.kernels.mini_grid import MiniGrid, MiniGridJobs, run_mini_grid
from koala.simulator.workloads.generators import workload_from_file
from tests.support.minigrid_twin import TwinJob, run_naively

# Ideal is Initial with other links; it needs no comparison of its own.
POLICIES = [
    *(policy.name for policy in Catalogue.builtin() if policy.module is not None and policy.name != "Ideal"),
    *("A1(order=most-free)", "A1(objective=fewest-clusters)", "A1(objective=least-bandwidth)"),
    *("A1(lslt=0.7)", "B1(lslt=0.5)", "B2(lslt=1.2)", "B3(chunk=0.6)", "B5(lslt=0.8)"),
]
JOBS_MAX = 40


@st.composite
def grids(draw: st.DrawFn, *, shared_links: bool) -> Grid:
    """One to five clusters with links of any capacity, alone or behind others."""
    count = draw(st.integers(3 if shared_links else 1, 5))
    names = [f"c{number}" for number in range(count)]
    mbit_s = st.sampled_from([None, 50.0, 200.0, 1000.0])
    network = Network(uplink_mbit_s=draw(mbit_s))
    if shared_links:
        network = Network(
            uplink_mbit_s=draw(mbit_s),
            groups=(LinkGroup(name="g", members=(names[0], names[1]), uplink_mbit_s=draw(mbit_s)),),
            links=(("sea", draw(st.sampled_from([50.0, 300.0]))),),
            routes=(Route(between=(names[-1], names[0]), over=("sea",)),),
        )
    return Grid(
        sites=tuple(
            Site(name=name, processors=draw(st.integers(1, 60)), uplink_mbit_s=draw(st.none() | mbit_s))
            for name in names
        ),
        network=network,
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
    )


@st.composite
def workloads(draw: st.DrawFn, grid: Grid) -> list[Arrival]:
    """Jobs that often arrive and end at the same times, every one small enough for the whole grid."""
    names = [site.name for site in grid.sites]
    total = sum(site.processors for site in grid.sites)
    communication = st.builds(
        Communication,
        pattern=st.sampled_from(list(Pattern)),
        bisection_mbit_s=st.sampled_from([0.0, 20.0, 130.0, 300.0, 900.0]),
        share=st.sampled_from([0.0, 0.3, 1.0]),
        dimensions=st.integers(1, 3),
    )
    same = draw(st.none() | communication)
    jobs = []
    at_s = 0.0
    for _ in range(draw(st.integers(1, JOBS_MAX))):
        at_s += draw(st.sampled_from([0.0, 0.0, 1.0, 10.0, 33.3, 100.0]))
        request = Request(
            components=(Component(processors=draw(st.integers(1, total))),),
            flexible=Flexibility(),
            home=draw(st.none() | st.sampled_from(names)),
            communication=draw(communication) if same is None else same,
        )
        jobs.append(Arrival(at_s, request, draw(st.sampled_from([1.0, 10.0, 100.0]) | st.floats(1.0, 500.0))))
    return jobs


def as_arrays(grid: Grid, jobs: list[Arrival]) -> MiniGridJobs:
    """The same jobs as the kernel wants them."""
    index = {site.name: number for number, site in enumerate(grid.sites)}
    requests = [each.request for each in jobs]
    talks = [request.communication or Communication(pattern=Pattern.NONE) for request in requests]
    bit_s = [
        per_processor_bit_s(
            talk.pattern.number, talk.dimensions, request.processors, (talk.bisection_mbit_s or 0.0) * 1_000_000
        )
        for request, talk in zip(requests, talks, strict=True)
    ]
    return MiniGridJobs(
        submit_s=numpy.array([each.at_s for each in jobs]),
        size=numpy.array([request.processors for request in requests], numpy.int32),
        home=numpy.array([index.get(request.home or "", -1) for request in requests], numpy.int32),
        work_s=numpy.array([each.execution_s for each in jobs]),
        share=numpy.array([talk.share for talk in talks]),
        per_processor_bit_s=numpy.array(bit_s),
        pattern=numpy.array([talk.pattern.number for talk in talks], numpy.int8),
        dimensions=numpy.array([talk.dimensions for talk in talks], numpy.int8),
    )


# When each job started and ended, and on how many clusters it ran.
Times = list[tuple[float | None, float | None, int]]


def by_scheduler(grid: Grid, jobs: list[Arrival], policy: str) -> Times:
    rows = simulate(grid, Workload.from_arrivals(jobs), policy=policy).rows()
    return [(row.started, row.finished, row.clusters) for row in rows]


def by_kernel(grid: Grid, jobs: list[Arrival], policy: str) -> Times:
    ran = run_mini_grid(as_arrays(grid, jobs), MiniGrid.of(grid), policy)
    columns = zip(ran.start_s.tolist(), ran.end_s.tolist(), ran.clusters.tolist(), strict=True)
    return [(start_s, end_s, clusters) if clusters else (None, None, 0) for start_s, end_s, clusters in columns]


def by_twin(grid: Grid, jobs: list[Arrival], policy: str) -> Times:
    arrays = as_arrays(grid, jobs)
    columns = [getattr(arrays, field).tolist() for field in TwinJob._fields]
    choice = Catalogue.builtin().find(policy).module
    assert choice is not None
    mini_grid = MiniGrid.of(grid)
    ran = run_naively(
        [TwinJob(*job) for job in zip(*columns, strict=True)], mini_grid.nodes, mini_grid.wiring, choice
    )
    return [
        (None, None, 0) if one is None else (one.start_s, one.end_s, sum(part > 0 for part in one.parts))
        for one in ran.outcomes
    ]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=5, deadline=None)
@given(st.data(), st.booleans())
def test_start_and_end_of_every_job_are_those_of_the_kernel_and_of_its_twin(
    policy: str, data: st.DataObject, shared_links: bool
) -> None:
    grid = data.draw(grids(shared_links=shared_links))
    jobs = data.draw(workloads(grid))
    times = by_scheduler(grid, jobs, policy)
    assert times == by_twin(grid, jobs, policy)
    assert times == by_kernel(grid, jobs, policy)


def shipped() -> tuple[Grid, list[Arrival]]:
    grid = read_grid(*read_named("grid", "minigrid"))
    workload = workload_from_file(read_workload(*read_named("workload", "minigrid")))
    arrivals = workload.arrivals(grid, seed=1)
    return grid, [next(arrivals) for _ in range(1_000)]


@pytest.mark.parametrize("policy", ["Migration-Only", "B1", "A1", "B5"])
def test_the_shipped_grid_and_workload_give_the_same_in_both(policy: str) -> None:
    grid, jobs = shipped()
    assert by_scheduler(grid, jobs, policy) == by_kernel(grid, jobs, policy)
