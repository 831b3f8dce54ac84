"""The plain kernel starts every job when and where its naive twin and the core do, and refuses nonsense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, SchedulerParameters, Site
from koala.simulator import Workload, simulate
from koala.simulator.kernels.plain import (
    DISCIPLINES,
    PLAIN_JOBS_MAX,
    PLAIN_PROCESSORS_MAX,
    PlainKernelError,
    run_plain,
)
from koala.simulator.kernels.queue import BLOCK
from tests.support.plain_twin import Job, Started, run_naively

every_discipline = pytest.mark.parametrize("discipline", DISCIPLINES)


def run_compiled(jobs: Sequence[Job], capacity: Sequence[int], discipline: str) -> list[Started]:
    columns: list[Any] = [list(column) for column in zip(*jobs, strict=True)] or [[], [], [], []]
    submit_s, run_s, size, requested_s = columns
    ran = run_plain(submit_s, run_s, size, capacity, discipline, requested_s)
    return [Started(*each) for each in zip(ran.start_s.tolist(), ran.site.tolist(), strict=True)]


def ascending(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.submit_s)


# Few values, so that there are ties of every kind; halves, so that sums are exact, and tenths, so that they are not.
times_s = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.0, 0.1, 0.7])


@st.composite
def small_worlds(draw: st.DrawFn) -> tuple[list[Job], list[int]]:
    capacity = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any))
    job = st.builds(Job, times_s.map(lambda at_s: at_s * 3), times_s, st.integers(1, max(capacity)), times_s)
    return ascending(draw(st.lists(job, max_size=25))), capacity


def drawn_jobs(
    rng: random.Random, count: int, *, sizes: tuple[int, int], load_mean_s: float, whole: bool, exact: bool
) -> list[Job]:
    """Poisson arrivals and exponential run times, in whole seconds if so; a mean of 10 s between arrivals."""
    jobs, now_s = [], 0.0
    for _ in range(count):
        now_s += rng.expovariate(1 / 10)
        run_s = rng.expovariate(1 / load_mean_s)
        if whole:
            run_s = float(round(run_s))
        requested_s = run_s if exact else run_s * rng.choice([0.5, 1.0, 1.0, 1.5, 4.0])
        jobs.append(Job(float(int(now_s)) if whole else now_s, run_s, rng.randint(*sizes), requested_s))
    return jobs


@st.composite
def busy_worlds(draw: st.DrawFn) -> tuple[list[Job], list[int]]:
    """Queues of several blocks, and clusters of several groups."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    clusters = draw(st.sampled_from([1, 2, 4, 16, 17, 40]))
    capacity = [rng.randint(5, 30) for _ in range(clusters)]
    load = draw(st.sampled_from([0.7, 1.0, 3.0]))
    sizes = 1, max(capacity)
    jobs = drawn_jobs(
        rng,
        draw(st.integers(1, 300)),
        sizes=sizes,
        load_mean_s=load * 10 * sum(capacity) / (sum(sizes) / 2),
        whole=draw(st.booleans()),
        exact=draw(st.booleans()),
    )
    if draw(st.booleans()):
        jobs = [job._replace(submit_s=0.0) for job in jobs]
    return jobs, capacity


@settings(deadline=None, max_examples=120)
@given(world=small_worlds())
def test_each_job_starts_when_and_where_it_does_in_the_naive_twin(world: tuple[list[Job], list[int]]) -> None:
    for discipline in DISCIPLINES:
        assert run_compiled(*world, discipline) == run_naively(*world, discipline), discipline


@settings(deadline=None, max_examples=20)
@given(world=busy_worlds())
def test_so_it_does_with_long_queues_and_many_clusters(world: tuple[list[Job], list[int]]) -> None:
    for discipline in DISCIPLINES:
        assert run_compiled(*world, discipline) == run_naively(*world, discipline), discipline


@settings(deadline=None, max_examples=60)
@given(world=small_worlds())
def test_easy_goes_by_the_run_times_where_nothing_is_requested(world: tuple[list[Job], list[int]]) -> None:
    jobs, capacity = world
    exact = [job._replace(requested_s=job.run_s) for job in jobs]
    submit_s, run_s, size = ([job[column] for job in jobs] for column in range(3))
    ran = run_plain(submit_s, run_s, size, capacity, "easy")
    assert ran.start_s.tolist() == [started.at_s for started in run_naively(exact, capacity, "easy")]


def test_the_kernel_starts_every_job_when_and_where_the_core_does_under_the_simulator() -> None:
    jobs = drawn_jobs(random.Random(11), 2_000, sizes=(10, 50), load_mean_s=120.0, whole=True, exact=True)
    jobs = [job._replace(run_s=max(1.0, job.run_s)) for job in jobs]
    submit_s, run_s, size, _ = (list(column) for column in zip(*jobs, strict=True))
    grid = Grid(
        sites=tuple(Site(name=f"c{index}", processors=100) for index in range(4)),
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
    )
    rows = simulate(grid, Workload.from_arrays(submit_s, size, run_s), policy="WF").rows()
    ran = run_plain(submit_s, run_s, size, [100] * 4, "first-fit")
    of_the_core = [(row.started, row.sites) for row in rows]
    of_the_kernel = [(at_s, f"c{site}") for at_s, site in zip(ran.start_s.tolist(), ran.site.tolist(), strict=True)]
    assert of_the_core == of_the_kernel
    assert sum(at_s > submitted_s for at_s, submitted_s in zip(ran.start_s, submit_s, strict=True)) > BLOCK


def test_what_ends_at_a_moment_ends_all_together_before_anything_else() -> None:
    # Both jobs of two processors end at 5: only then is there room for the one of four, and it comes before the
    # job that is submitted at 5 and would fit.
    ran = run_plain([0, 0, 1, 5], [5, 5, 5, 5], [2, 2, 4, 1], [4], "first-fit")
    assert ran.start_s.tolist() == [0, 0, 5, 10]


def test_a_job_of_no_length_makes_way_before_the_next_arrival() -> None:
    assert run_plain([0, 0], [0, 1], [4, 4], [4], "fcfs").start_s.tolist() == [0, 0]


def test_easy_lets_a_job_pass_only_if_it_ends_before_the_head_can_start() -> None:
    # The second job needs all processors, at 10; the third would still run then, the fourth ends just in time.
    ran = run_plain([0, 1, 2, 3], [10, 5, 20, 7], [3, 4, 1, 1], [4], "easy")
    assert ran.start_s.tolist() == [0, 10, 15, 3]


def test_easy_lets_a_job_pass_that_takes_only_what_the_head_leaves() -> None:
    ran = run_plain([0, 1, 2, 3], [10, 5, 20, 20], [3, 3, 1, 1], [4], "easy")
    assert ran.start_s.tolist() == [0, 10, 2, 15]


def test_easy_expects_a_job_that_runs_on_after_its_time_to_end_at_any_moment() -> None:
    # The first job asked for 5 s and runs for 10: at 6 the head may start at any moment, and nobody may pass it.
    ran = run_plain([0, 1, 2, 6], [10, 5, 3, 1], [3, 4, 1, 1], [4], "easy", [5, 5, 3, 1])
    assert ran.start_s.tolist() == [0, 10, 2, 15]


def test_easy_looks_at_the_whole_queue_again_while_jobs_run_on_after_their_time() -> None:
    # At 6 the first job is late, and one processor would be idle beside the head: too few for the fourth job. At 9
    # the second is late too, and there are enough, though nothing has ended: the last arrival lets the fourth start.
    run_s, requested_s = [100, 100, 10, 50, 1], [5, 8, 10, 50, 1]
    ran = run_plain([0, 0, 1, 6, 9], run_s, [4, 4, 5, 2, 10], [10], "easy", requested_s)
    assert ran.start_s.tolist() == [0, 0, 100, 9, 110]


def test_easy_reserves_the_cluster_where_the_head_can_start_first() -> None:
    # Both clusters are taken, until 10 and until 6; the head waits for the second, and the last for the first.
    ran = run_plain([0, 0, 1, 2], [10, 6, 5, 7], [4, 3, 4, 1], [4, 4], "easy")
    assert ran.start_s.tolist() == [0, 0, 6, 10]
    assert ran.site.tolist() == [0, 1, 1, 0]


@every_discipline
def test_compiled_and_as_python_the_kernel_gives_the_same(discipline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    jobs = drawn_jobs(rng, 300, sizes=(1, 20), load_mean_s=400.0, whole=False, exact=False)
    capacity = [20] * 20
    fast = run_compiled(jobs, capacity, discipline)
    monkeypatch.setattr("koala.simulator.kernels.plain.compiled", lambda function: function)
    assert run_compiled(jobs, capacity, discipline) == fast


def test_arrays_of_any_kind_are_taken_and_left_as_they_were() -> None:
    submit_s = numpy.arange(10)[::2]
    run_s = numpy.full(5, 3.0, numpy.float32)
    size = numpy.broadcast_to(numpy.int64(2), 5)
    ran = run_plain(submit_s, run_s, size, (2, 2), "first-fit")
    assert (ran.start_s.tolist(), ran.site.tolist()) == ([0, 2, 4, 6, 8], [0, 1, 0, 1, 0])
    assert (ran.start_s.dtype.name, ran.site.dtype.name) == ("float64", "int32")
    assert (submit_s.tolist(), run_s.tolist(), size.tolist()) == ([0, 2, 4, 6, 8], [3.0] * 5, [2] * 5)


@every_discipline
def test_no_jobs_give_an_empty_run(discipline: str) -> None:
    ran = run_plain([], [], [], [1], discipline)
    assert (len(ran.start_s), len(ran.site)) == (0, 0)


def test_the_largest_cluster_and_the_largest_job_there_can_be() -> None:
    ran = run_plain([0, 0, 1], [5, 5, 5], [1, PLAIN_PROCESSORS_MAX, 1], [PLAIN_PROCESSORS_MAX], "first-fit")
    assert ran.start_s.tolist() == [0, 6, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"discipline": "lifo"}, "there is no discipline 'lifo'; the disciplines are fcfs, first-fit, easy"),
        ({"capacity": []}, "no clusters can have [] processors; give one or more"),
        ({"capacity": [4, -1]}, "no clusters can have [4, -1] processors"),
        ({"capacity": [PLAIN_PROCESSORS_MAX + 1]}, "(PLAIN_PROCESSORS_MAX)"),
        ({"size": [1, 5]}, "the job at index 1 has 5 processors, more than any cluster has (4); leave it out"),
        ({"size": [0, 1]}, "the job at index 0 has 0 processors; it needs at least 1"),
        ({"submit_s": [2, 1]}, "the job at index 1 is submitted at 1.0 s, before the job ahead of it; sort"),
        ({"submit_s": [0]}, "there are 1 values of submit_s for 2 jobs; give each job one"),
        ({"submit_s": [0, numpy.inf]}, "the job at index 1 has inf as its submit_s"),
        ({"run_s": [1, numpy.nan]}, "the job at index 1 has nan as its run_s; give seconds, 0 or more"),
        ({"requested_s": [-1, 1], "discipline": "easy"}, "the job at index 0 has -1.0 as its requested_s"),
        ({"size": numpy.broadcast_to(1, PLAIN_JOBS_MAX + 1)}, f"more than {PLAIN_JOBS_MAX} (PLAIN_JOBS_MAX)"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name_and_a_way_out(changes: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"submit_s": [0, 1], "run_s": [1, 1], "size": [1, 1], "capacity": [4]}
    with pytest.raises(PlainKernelError) as refused:
        run_plain(**{**arguments, "discipline": "fcfs", **changes})
    assert words in refused.value.for_user()
