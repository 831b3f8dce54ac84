"""The sites' own schedulers: small cases checked by hand, and what EASY promises on drawn ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.simulator.world.local_queue import (
    WALLTIME_DEFAULT_S,
    LocalJob,
    easy_backfilling,
    first_come_first_served,
    first_fit,
)


def running(processors: int, end_at: float) -> LocalJob:
    job = LocalJob(processors, None)
    job.expected_end_at = end_at
    return job


def test_fcfs_stops_at_the_first_job_that_does_not_fit() -> None:
    small, large, tiny = LocalJob(2, 10.0), LocalJob(8, 10.0), LocalJob(1, 10.0)
    assert first_come_first_served([small, large, tiny], 4, [], 0.0) == [small]


def test_first_fit_passes_over_what_does_not_fit() -> None:
    small, large, tiny = LocalJob(2, 10.0), LocalJob(8, 10.0), LocalJob(1, 10.0)
    assert first_fit([small, large, tiny], 4, [], 0.0) == [small, tiny]


def test_easy_backfills_what_ends_before_the_head_can_start() -> None:
    # 4 idle; 6 come free at 100, when the head of 10 can start: only a job that is over by then may pass.
    head, short_job, long_job = LocalJob(10, 50.0), LocalJob(4, 100.0), LocalJob(4, 101.0)
    assert easy_backfilling([head, long_job, short_job], 4, [running(6, 100.0)], 0.0) == [short_job]


def test_easy_backfills_a_long_job_beside_the_head() -> None:
    # At 100 there will be 10 free and the head takes 8: two stay free for ever, and no more than two.
    head, two, one = LocalJob(8, 50.0), LocalJob(2, 1e6), LocalJob(1, 1e6)
    assert easy_backfilling([head, two, one], 4, [running(6, 100.0)], 0.0) == [two]


def test_easy_counts_all_jobs_that_end_together() -> None:
    head, beside = LocalJob(8, 50.0), LocalJob(2, 1e6)
    ends = [running(4, 100.0), running(4, 100.0)]
    assert easy_backfilling([head, beside], 2, ends, 0.0) == [beside]


def test_easy_takes_a_job_over_its_time_as_ending_now() -> None:
    head, long_job = LocalJob(10, 50.0), LocalJob(4, 1.0)
    assert easy_backfilling([head, long_job], 4, [running(6, 100.0)], 200.0) == []


def test_a_job_without_a_walltime_is_expected_to_run_the_default() -> None:
    assert LocalJob(1, None).walltime_s == WALLTIME_DEFAULT_S


JOBS = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 50)), min_size=2, max_size=25)


@settings(max_examples=150, deadline=None)
@given(JOBS)
def test_easy_starts_a_head_no_later_than_it_could_have_started_alone(jobs: list[tuple[int, int]]) -> None:
    """Once a job is the head and must wait, nothing that begins later may push it back."""
    queue = [LocalJob(processors, float(walltime)) for processors, walltime in jobs]
    holding: list[LocalJob] = []
    idle, now = 10, 0.0
    promised: dict[int, float] = {}
    while queue or holding:
        for job in easy_backfilling(queue, idle, holding, now):
            assert now <= promised.get(id(job), now)
            queue.remove(job)
            idle -= job.processors
            assert idle >= 0
            job.expected_end_at = now + job.walltime_s
            holding.append(job)
        if queue:
            promised.setdefault(id(queue[0]), _earliest(queue[0], idle, holding))
        now = min(job.expected_end_at for job in holding)
        idle += sum(job.processors for job in holding if job.expected_end_at == now)
        holding = [job for job in holding if job.expected_end_at != now]


def _earliest(head: LocalJob, idle: int, holding: list[LocalJob]) -> float:
    for job in sorted(holding, key=lambda each: each.expected_end_at):
        idle += job.processors
        if idle >= head.processors:
            return job.expected_end_at
    raise AssertionError("every job fits an empty site")
