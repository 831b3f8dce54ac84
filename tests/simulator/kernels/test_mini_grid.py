"""The kernel runs mini-grids as its naive twin does, bit by bit, and refuses what cannot be run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, LinkGroup, Network, Route, Site
from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, RING, SILENT, UNLIMITED_BIT_S
from koala.model.request import SiteName
from koala.policies.errors import UnknownPolicyError
from koala.policies.forms import ModuleChoice
from koala.policies.minigrid.meta_scheduling import (
    A1_FEWEST,
    A1_INDEX,
    A1_LEAST,
    A1_MOST_FREE,
    A2,
    B1,
    B2,
    B3,
    B4,
    B5,
    INITIAL,
    MIGRATION_ONLY,
)
from koala.policies.wiring import star
from koala.simulator.kernels.mini_grid import (
    KERNEL_JOBS_MAX,
    KERNEL_NODES_MAX,
    KERNEL_SITES_MAX,
    MiniGrid,
    MiniGridError,
    MiniGridJobs,
    MiniGridRun,
    mini_grid_workload,
    run_mini_grid,
)
from koala.simulator.kernels.queue import (
    END,
    FIRST,
    HOLE,
    ROW,
    close_ranks,
    join,
    leave,
    next_fitting,
    nobody_waiting,
)
from tests.support.minigrid_twin import Outcome, TwinJob, TwinRun, run_naively

MODULES = {
    "Migration-Only": MIGRATION_ONLY,
    "Initial": INITIAL,
    "A1 by index": A1_INDEX,
    "A1 most free": A1_MOST_FREE,
    "A1 fewest": A1_FEWEST,
    "A1 least": A1_LEAST,
    "A2": A2,
    "B1": B1,
    "B2": B2,
    "B3": B3,
    "B4": B4,
    "B5": B5,
}
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES.keys())
MBIT_S = 10**6


def as_arrays(jobs: Sequence[TwinJob]) -> MiniGridJobs:
    columns: list[Any] = [numpy.array(column) for column in zip(*jobs, strict=True)] or [numpy.empty(0)] * 8
    return MiniGridJobs(*columns)


def outcomes(ran: MiniGridRun) -> list[tuple[float, float, int] | None]:
    rows = zip(ran.start_s.tolist(), ran.end_s.tolist(), ran.clusters.tolist(), strict=True)
    return [None if math.isnan(row[0]) else row for row in rows]


def as_outcomes(twin: TwinRun) -> list[tuple[float, float, int] | None]:
    def row(outcome: Outcome | None) -> tuple[float, float, int] | None:
        if outcome is None:
            return None
        return outcome.start_s, outcome.end_s, sum(part > 0 for part in outcome.parts)

    return [row(outcome) for outcome in twin.outcomes]


# Few values, so that there are ties of every kind; some whose sums are exact, and some whose are not.
times_s = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 0.1, 0.7, 1.3])
bandwidths_bit_s = st.sampled_from([0.0, 0.25, 3e6, 10e6, 17e6, 60e6])
capacities_bit_s = st.sampled_from([1, 20 * MBIT_S, 50 * MBIT_S, 130 * MBIT_S, UNLIMITED_BIT_S])


@st.composite
def job_lists(draw: st.DrawFn, nodes: Sequence[int]) -> list[TwinJob]:
    """Jobs that arrive faster than they leave. Bandwidths and patterns are mixed, or the same for all."""
    only = draw(st.sampled_from([None, ALL_TO_ALL, ALL_TO_ALL, RING]))
    patterns = st.sampled_from([ALL_TO_ALL, RING, CUBE, MASTER_WORKER, SILENT]) if only is None else st.just(only)
    job = st.builds(
        TwinJob,
        submit_s=times_s.map(lambda at_s: at_s * 2),
        size=st.integers(1, min(sum(nodes), 12)),
        home=st.integers(-1, len(nodes) - 1),
        work_s=times_s,
        share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        per_processor_bit_s=bandwidths_bit_s,
        pattern=patterns,
        dimensions=st.integers(1, 3),
    )
    return sorted(draw(st.lists(job, min_size=1, max_size=24)), key=lambda job: job.submit_s)


@st.composite
def star_worlds(draw: st.DrawFn) -> tuple[list[TwinJob], MiniGrid]:
    nodes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any))
    capacity = draw(st.lists(capacities_bit_s, min_size=len(nodes), max_size=len(nodes)))
    grid = MiniGrid(tuple(nodes), star([f"C{site}" for site in range(len(nodes))], capacity))
    return draw(job_lists(nodes)), grid


@st.composite
def routed_worlds(draw: st.DrawFn) -> tuple[list[TwinJob], MiniGrid]:
    """Sites of which some are behind a shared uplink, and some joined by a named link."""
    nodes = draw(st.lists(st.integers(1, 7), min_size=2, max_size=5))
    names = [SiteName(f"C{site}") for site in range(len(nodes))]
    mbit_s = st.sampled_from([None, 20.0, 50.0, 130.0])
    behind = draw(st.integers(1, len(nodes) - 1))
    network = Network(
        uplink_mbit_s=draw(mbit_s),
        groups=(LinkGroup(name="hall", members=tuple(names[:behind]), uplink_mbit_s=draw(mbit_s)),),
        links=(("cable", draw(st.sampled_from([15.0, 60.0]))),),
        routes=(Route(between=(names[0], names[-1]), over=("cable",)),),
    )
    sites = tuple(Site(name=name, processors=size) for name, size in zip(names, nodes, strict=True))
    return draw(job_lists(nodes)), MiniGrid.of(Grid(sites=sites, network=network))


def assert_like_the_twin(jobs: list[TwinJob], grid: MiniGrid, choice: ModuleChoice) -> None:
    twin = run_naively(jobs, grid.nodes, grid.wiring, choice)
    ran = run_mini_grid(as_arrays(jobs), grid, choice)
    assert outcomes(ran) == as_outcomes(twin)
    assert ran.unplaced == twin.outcomes.count(None)
    most = zip(twin.demand_most_bit_s, grid.wiring.capacity_bit_s, strict=True)
    assert ran.saturation_most == tuple(demand / capacity for demand, capacity in most)
    whole = [None if outcome is None else max(outcome.parts) == sum(outcome.parts) for outcome in twin.outcomes]
    sites = [
        outcome.parts.index(max(outcome.parts)) if outcome is not None and is_whole else -1
        for outcome, is_whole in zip(twin.outcomes, whole, strict=True)
    ]
    assert ran.site.tolist() == sites


@settings(deadline=None, max_examples=40)
@given(
    world=star_worlds(), threshold=st.sampled_from([0.4, 0.8, 1.0, 1.2]), chunk=st.sampled_from([0.3, 0.7, 0.85, 1.0])
)
def test_every_job_starts_and_ends_as_in_the_twin(
    world: tuple[list[TwinJob], MiniGrid], threshold: float, chunk: float
) -> None:
    for name, module in MODULES.items():
        note(name)
        assert_like_the_twin(*world, ModuleChoice(module, threshold, chunk))


@settings(deadline=None, max_examples=15)
@given(world=routed_worlds(), threshold=st.sampled_from([0.4, 1.0]))
def test_links_that_sites_share_slow_jobs_as_in_the_twin(
    world: tuple[list[TwinJob], MiniGrid], threshold: float
) -> None:
    for name, module in MODULES.items():
        note(name)
        assert_like_the_twin(*world, ModuleChoice(module, threshold))


@every_module
@pytest.mark.parametrize("bsbw_mbit_s", [400.0, (200.0, 900.0)])
def test_the_papers_workload_runs_as_in_the_twin(module: int, bsbw_mbit_s: float | tuple[float, float]) -> None:
    drawn = mini_grid_workload(4, 60, bsbw_mbit_s, seed=7)
    assert_like_the_twin(rows_of(drawn), MiniGrid.star(), ModuleChoice(module))


def rows_of(jobs: MiniGridJobs) -> list[TwinJob]:
    fields = (getattr(jobs, field.name) for field in dataclasses.fields(jobs))
    columns = (numpy.broadcast_to(field, len(jobs)).tolist() for field in fields)
    return [TwinJob(*row) for row in zip(*columns, strict=True)]


@every_module
@settings(deadline=None, max_examples=15)
@given(world=star_worlds())
def test_what_the_links_carried_and_what_was_wasted_follows_from_the_jobs(
    module: int, world: tuple[list[TwinJob], MiniGrid]
) -> None:
    jobs, grid = world
    twin = run_naively(jobs, grid.nodes, grid.wiring, ModuleChoice(module))
    ran = run_mini_grid(as_arrays(jobs), grid, ModuleChoice(module))
    carried = [0.0] * len(grid.nodes)
    wasted_node_s = 0.0
    ends_s = [jobs[0].submit_s]
    for job, outcome in zip(jobs, twin.outcomes, strict=True):
        if outcome is None:
            continue
        ran_s = outcome.end_s - outcome.start_s
        ends_s.append(outcome.end_s)
        wasted_node_s += (ran_s - job.work_s) * job.size
        for link, bit_s in grid.wiring.demands_bit_s(
            job.pattern, job.dimensions, outcome.parts, job.per_processor_bit_s
        ):
            carried[link] += bit_s * ran_s / grid.wiring.capacity_bit_s[link]
    lasted_s = max(ends_s) - jobs[0].submit_s
    means = [amount / lasted_s if lasted_s > 0 else 0.0 for amount in carried]
    assert ran.saturation_mean == pytest.approx(means)
    assert ran.wasted_node_s == pytest.approx(wasted_node_s, abs=1e-6)


# ------------------------------------------------------------------------------------------- by hand


def three(submit_s: float, share: float = 0.5, per_processor_bit_s: float = 60e6) -> TwinJob:
    """Three processors that talk to each other, for 10 s if they are on one cluster."""
    return TwinJob(submit_s, 3, 0, 10.0, share, per_processor_bit_s)


@pytest.mark.parametrize("module", ["A2", "B5"])
def test_an_unlimited_link_has_room_for_the_least_traffic_there_is(module: str) -> None:
    grid = MiniGrid((1, 1), star(["C0", "C1"], [1, UNLIMITED_BIT_S]))
    job = TwinJob(0.0, 2, 0, 1.0, 0.0, 0.25, MASTER_WORKER, 1)
    assert_like_the_twin([job], grid, ModuleChoice(MODULES[module]))


def test_ends_slide_both_ways_as_jobs_come_and_go() -> None:
    """Clusters of two nodes with links of 90 Mbit/s: both jobs have a processor on the second, and send 60 each.

    While both run they get three quarters of that and take 1 + 0.5 * (4/3 - 1) = 7/6 of their time. The first has 6 s
    left at 4 s and ends at 11 s instead of 10; the second has then done 6 s of its 10, and ends at 15 s.
    """
    ran = run_mini_grid(as_arrays([three(0.0), three(4.0)]), MiniGrid.star((2, 2, 2), 90.0), "Initial")
    assert ran.clusters.tolist() == [2, 2]
    assert ran.start_s.tolist() == [0.0, 4.0]
    assert ran.end_s.tolist() == pytest.approx([11.0, 15.0], rel=1e-12)
    assert ran.saturation_most == pytest.approx((60 / 90, 120 / 90, 60 / 90))
    assert ran.saturation_mean == pytest.approx((60 * 11 / 90 / 15, 60 * 22 / 90 / 15, 60 * 11 / 90 / 15))
    assert ran.wasted_node_s == pytest.approx(3 * 1 + 3 * 1)


def test_ideal_runs_on_links_without_a_limit() -> None:
    ran = run_mini_grid(as_arrays([three(0.0), three(4.0)]), MiniGrid.star((2, 2, 2), 90.0), "Ideal")
    assert ran.end_s.tolist() == [10.0, 14.0]
    assert ran.wasted_node_s == 0.0


def test_a_job_that_never_finds_a_place_is_reported_and_holds_up_nobody() -> None:
    jobs = [three(0.0), three(1.0)._replace(size=2), three(2.0)._replace(size=1)]
    ran = run_mini_grid(as_arrays(jobs), MiniGrid.star((2, 2, 2)), "Migration-Only")
    assert ran.unplaced == 1
    assert outcomes(ran) == [None, (1.0, 11.0, 1), (2.0, 12.0, 1)]
    assert (ran.site.tolist(), ran.clusters.tolist()) == ([-1, 0, 1], [0, 1, 1])


def test_nothing_happens_without_jobs() -> None:
    ran = run_mini_grid(as_arrays([]), MiniGrid.star(), "B1")
    assert (len(ran.start_s), ran.unplaced, ran.saturation_mean) == (0, 0, (0.0,) * 4)


@pytest.mark.parametrize("lslt", [0.4, 0.7, 1.0, 1.2])
@pytest.mark.parametrize("policy", ["A1", "A1(order=most-free)", "A1(objective=least-bandwidth)"])
def test_a1_never_brings_a_link_beyond_the_threshold(policy: str, lslt: float) -> None:
    name = policy.replace(")", f", lslt={lslt})") if policy.endswith(")") else f"{policy}(lslt={lslt})"
    ran = run_mini_grid(mini_grid_workload(4, 2_000, (200.0, 900.0)), MiniGrid.star(), name)
    assert (ran.clusters > 1).mean() > 0.05
    assert 0.9 * lslt < max(ran.saturation_most) <= lslt


def test_one_value_for_all_jobs_is_the_same_as_one_for_each() -> None:
    drawn = mini_grid_workload(4, 500, 500.0)
    assert (len(drawn.share), len(drawn.pattern), len(drawn.dimensions)) == (1, 1, 1)
    each = as_arrays(rows_of(drawn))
    assert len(each.share) == len(drawn)
    assert outcomes(run_mini_grid(each, MiniGrid.star(), "B1")) == outcomes(
        run_mini_grid(drawn, MiniGrid.star(), "B1")
    )


def test_a_long_queue_is_passed_over_as_in_the_twin() -> None:
    """Everybody comes at once, sorted so that the small ones are far behind."""
    jobs = [TwinJob(0.0, 1 + 3 * (number < 250), -1, 1.0 + number % 7, 0.3, 5e6) for number in range(300)]
    assert_like_the_twin(jobs, MiniGrid.star((3, 2, 3), 20.0), ModuleChoice(B1))


def test_a_queue_of_many_thousands_is_passed_over_as_if_one_looked_at_each() -> None:
    """Rows of large jobs, then of some small ones, then of large ones again; jobs leave, and ranks are closed."""
    rng = numpy.random.default_rng(3)
    sizes = numpy.concatenate([rng.integers(3, 7, 3 * ROW + 5), rng.integers(1, 7, ROW), rng.integers(5, 7, ROW)])
    waiting = nobody_waiting(len(sizes))
    for job, size in enumerate(sizes.tolist()):
        join(waiting, job, size)
    left = dict(enumerate(sizes.tolist()))
    for most in rng.integers(0, 7, 400).tolist():
        begin = int(rng.integers(waiting.bounds[FIRST], waiting.bounds[END]))
        place = next_fitting(waiting, begin, most)
        expected = next((at for at in range(begin, waiting.bounds[END]) if waiting.size[at] <= most), None)
        assert (place if place < waiting.bounds[END] else None) == expected
        for taken in range(begin, min(begin + 100, waiting.bounds[END])):
            if waiting.size[taken] <= most:
                del left[int(waiting.job[taken])]
                leave(waiting, taken)
        close_ranks(waiting)
    held = range(waiting.bounds[FIRST], waiting.bounds[END])
    assert {int(waiting.job[at]): int(waiting.size[at]) for at in held if waiting.size[at] != HOLE} == left


def test_what_comes_as_another_goes_leaves_no_trace_on_the_others() -> None:
    """The share of the first job is the same before and after that instant, so its end stays, to the last bit."""
    grid, first, second = MiniGrid.star((2, 2, 2), 90.0), three(0.0)._replace(work_s=77.7), three(1.1)
    alone = run_mini_grid(as_arrays([first, second]), grid, "Initial")
    third = three(float(alone.end_s[1]))._replace(work_s=100.0)
    ran = run_mini_grid(as_arrays([first, second, third]), grid, "Initial")
    assert ran.start_s[2] == ran.end_s[1] == alone.end_s[1]
    long_second = run_mini_grid(as_arrays([first, second._replace(work_s=100.0)]), grid, "Initial")
    assert ran.end_s[0] == long_second.end_s[0] != alone.end_s[0]
    assert_like_the_twin([first, second, third], grid, ModuleChoice(INITIAL))


def test_a_job_waits_no_longer_than_until_the_next_event_when_the_belief_has_fallen() -> None:
    """B5 on 16 clusters of a node. The first job is seen to send 100 Mbit/s, too much for another pair of nodes; the
    twelve nodes of the third need less, and when they are seen to send nearly nothing, the second fits at last."""
    jobs = [TwinJob(at_s, size, -1, 1000.0, 0.3, 100e6) for at_s, size in ((0.0, 2), (1.0, 2), (2.0, 12), (3.0, 16))]
    jobs[2] = jobs[2]._replace(per_processor_bit_s=1e3)
    grid = MiniGrid.star((1,) * 16, 100.0)
    ran = run_mini_grid(as_arrays(jobs), grid, "B5")
    assert ran.start_s[:3].tolist() == [0.0, 3.0, 2.0]
    assert_like_the_twin(jobs, grid, ModuleChoice(B5, 1.1))


# ------------------------------------------------------------------------------------- what is refused


def test_a_policy_is_chosen_by_its_name_and_parameters() -> None:
    jobs, grid = mini_grid_workload(4, 500, 500.0), MiniGrid.star()
    by_name = run_mini_grid(jobs, grid, "b3(0.7, lslt=0.6)")
    assert outcomes(by_name) == outcomes(run_mini_grid(jobs, grid, ModuleChoice(B3, 0.6, 0.7)))
    assert outcomes(by_name) != outcomes(run_mini_grid(jobs, grid, "B3"))


def test_a_policy_that_is_none_of_the_kernels_is_refused_with_those_that_are() -> None:
    jobs = as_arrays([three(0.0)])
    with pytest.raises(UnknownPolicyError):
        run_mini_grid(jobs, MiniGrid.star(), "B9")
    with pytest.raises(MiniGridError, match="WF is none of the kernel's; those are: Migration-Only, Initial, Ideal"):
        run_mini_grid(jobs, MiniGrid.star(), "WF")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"submit_s": math.nan}, "the job at index 1 has nan as its submit_s; give seconds"),
        ({"submit_s": -1.0}, "the job at index 1 is submitted before the one ahead of it; sort by submission"),
        ({"size": 0}, "the job at index 1 has 0 as its size; there are 400 nodes"),
        ({"size": 401}, "the job at index 1 has 401 as its size; there are 400 nodes"),
        ({"home": 4}, "the job at index 1 has 4 as its home; give the index of a cluster, or -1"),
        ({"work_s": -0.5}, "the job at index 1 has -0.5 as its work_s; give seconds"),
        ({"work_s": math.inf}, "the job at index 1 has inf as its work_s; give seconds"),
        ({"share": 1.5}, "the job at index 1 has 1.5 as its share; give a fraction"),
        ({"per_processor_bit_s": 1e17}, "the job at index 1 has 1e.17 as its per_processor_bit_s; give 0 to"),
        ({"pattern": 5}, "the job at index 1 has 5 as its pattern"),
        ({"dimensions": 9}, "the job at index 1 has 9 as its dimensions; give 1 to 8"),
    ],
)
def test_a_job_that_cannot_be_is_named(changes: dict[str, Any], message: str) -> None:
    jobs = as_arrays([three(0.0), three(0.0)._replace(**changes)])
    with pytest.raises(MiniGridError, match=message) as refused:
        run_mini_grid(jobs, MiniGrid.star(), "B1")
    assert refused.value.for_user() == str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("size", 2**32 + 1, "4294967297"), ("size", 2.5, "2.5"), ("home", math.nan, "nan"), ("pattern", 256, "256")],
)
def test_a_number_that_would_be_another_one_in_the_kernel_is_named(name: str, value: float, shown: str) -> None:
    jobs = dataclasses.replace(as_arrays([three(0.0)]), **{name: numpy.array([value])})
    with pytest.raises(MiniGridError, match=f"the job at index 0 has {shown} as its {name}; give a whole number"):
        run_mini_grid(jobs, MiniGrid.star(), "B1")


@pytest.mark.parametrize(
    "choice", [ModuleChoice(B1, math.nan), ModuleChoice(B1, 0.0), ModuleChoice(B3, 1.0, math.nan)]
)
def test_a_choice_by_what_is_no_number_is_refused(choice: ModuleChoice) -> None:
    with pytest.raises(MiniGridError, match="give a threshold above 0, and a chunk above 0 and up to 1"):
        run_mini_grid(as_arrays([three(0.0)]), MiniGrid.star(), choice)


def test_jobs_of_the_longest_time_there_is_end_on_the_thinnest_link_there_is() -> None:
    jobs = [three(1e250)._replace(work_s=1e250, share=1.0, per_processor_bit_s=7e17)] * 2
    ran = run_mini_grid(as_arrays(jobs), MiniGrid((2, 2, 2), star(["C1", "C2", "C3"], [1] * 3)), "Initial")
    assert ran.clusters.tolist() == [2, 2]
    assert numpy.isfinite(ran.end_s).all()
    assert ran.end_s.min() > 1e267


def test_a_column_of_another_length_is_named() -> None:
    jobs = dataclasses.replace(as_arrays([three(0.0)] * 3), work_s=numpy.array([1.0]))
    with pytest.raises(MiniGridError, match="there are 1 values of work_s for 3 jobs"):
        run_mini_grid(jobs, MiniGrid.star(), "B1")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "a grid of 0 clusters; give 1 to"),
        ((1,) * (KERNEL_SITES_MAX + 1), f"a grid of {KERNEL_SITES_MAX + 1} clusters; give 1 to"),
        ((3, -1), "clusters of -1 to 3 nodes"),
        ((0, 0), "0 in all; give each 0 or more"),
        ((1, KERNEL_NODES_MAX), "KERNEL_NODES_MAX"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(nodes: tuple[int, ...], message: str) -> None:
    with pytest.raises(MiniGridError, match=message):
        MiniGrid.star(nodes)


@pytest.mark.parametrize("mbit_s", [0.0, -1.0, math.nan, math.inf])
def test_links_of_no_capacity_are_refused(mbit_s: float) -> None:
    with pytest.raises(MiniGridError, match=f"links of {mbit_s} Mbit/s; give a number above 0"):
        MiniGrid.star((1, 1), mbit_s)
    with pytest.raises(MiniGridError, match="links of 0 to 5 bit/s; give each 1 to"):
        MiniGrid((1, 1), star(["C1", "C2"], [0, 5]))


def test_the_largest_grids_are_taken() -> None:
    many = MiniGrid.star((1,) * KERNEL_SITES_MAX)
    assert outcomes(run_mini_grid(as_arrays([three(0.0)]), many, "Initial")) == [(0.0, 10.0, 3)]
    large = MiniGrid.star((KERNEL_NODES_MAX - 1, 1))
    job = three(0.0)._replace(size=KERNEL_NODES_MAX, per_processor_bit_s=0.0)
    assert outcomes(run_mini_grid(as_arrays([job]), large, "B1")) == [(0.0, 10.0, 2)]


def test_more_jobs_than_have_numbers_are_refused() -> None:
    column: Any = numpy.broadcast_to(numpy.zeros(1), KERNEL_JOBS_MAX + 1)
    with pytest.raises(MiniGridError, match="KERNEL_JOBS_MAX"):
        run_mini_grid(MiniGridJobs(*[column] * 8), MiniGrid.star(), "B1")


def test_links_must_be_those_of_the_clusters() -> None:
    with pytest.raises(MiniGridError, match="links for 2 sites and 3 clusters"):
        MiniGrid((1, 1, 1), star(["C1", "C2"]))
