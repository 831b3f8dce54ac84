"""A job taken out of a split snapshot at any moment: what is left goes together, and nobody speaks of the job."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState, Scheduler, job_numbers, join_snapshot, split_snapshot
from koala.core.state.job import Job
from koala.core.state.snapshots.removal import (
    ElementsOnRecord,
    HeldComponent,
    with_elements_counted,
    with_job_put_back,
    without_job,
)
from koala.model.dependency import Dependency
from koala.model.facts import JobHeld
from koala.model.job_array import read_array
from koala.model.messages import ComponentEnded, JobSubmitted, Outcome, Tick
from tests.core.test_shapes import driver_of, job, shaped
from tests.core.test_storm import STEPS_MAX, Storm
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, part


def without(scheduler: Scheduler, job: int) -> Scheduler:
    """A scheduler that goes on without the job."""
    snapshot = scheduler.snapshot()
    header, sections = split_snapshot(snapshot)
    requests = dict(zip(job_numbers(sections), snapshot.requests, strict=True))
    assert join_snapshot(header, sections, snapshot.requests) == snapshot
    removed = without_job(header, sections, job)
    assert removed.was_there is (job in requests)
    left = [requests[number] for number in job_numbers(removed.sections)]
    again = Scheduler.from_snapshot(scheduler.grid, None, join_snapshot(removed.header, removed.sections, left))
    assert_ledger_balances(again.ledger)
    assert not set(removed.transfers) & set(again.ledger.transfers.by_id)
    assert all(claim.job_id != job for claim in again.ledger.claims.values())
    assert set(again.ledger.jobs) == set(scheduler.ledger.jobs) - {job}
    return again


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_without_any_job_at_any_moment_the_scheduler_goes_on(data: st.DataObject) -> None:
    storm = Storm(data)
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        storm.step()
    scheduler = storm.driver.scheduler
    known = [*scheduler.ledger.jobs, *{claim.job_id for claim in scheduler.ledger.claims.values()}, 10_000]
    again = without(scheduler, data.draw(st.sampled_from(known)))
    for step in range(1, 20):
        again.handle(Tick(at=storm.driver.now + 30.0 * step))
        assert_ledger_balances(again.ledger)


def test_what_the_removed_job_held_is_there_for_those_who_wait() -> None:
    driver = CoreDriver({"a": 4})
    holder, waiter = 1, 2
    driver.run(ask(part(4, "a")))
    driver.submit(ask(part(4, "a")))
    assert driver.ledger.jobs[waiter].placement is None
    again = without(driver.scheduler, holder)
    for step in range(1, 4):  # the first one leads to a scan
        again.handle(Tick(at=driver.now + 100.0 * step))
    assert again.ledger.jobs[waiter].placement is not None


def put_back(
    scheduler: Scheduler, job: Job, *held: HeldComponent, at: float, kept_back: JobHeld | None = None
) -> Scheduler:
    """A scheduler that goes on with this job in place of its own."""
    snapshot = scheduler.snapshot()
    header, sections = split_snapshot(snapshot)
    requests = dict(zip(job_numbers(sections), snapshot.requests, strict=True)) | {job.id: job.request}
    back = with_job_put_back(header, sections, job, held, at, kept_back)
    there = [requests[number] for number in job_numbers(back.sections)]
    again = Scheduler.from_snapshot(scheduler.grid, None, join_snapshot(back.header, back.sections, there))
    assert again.ledger.jobs[job.id].state is back.state
    again.handle(Tick(at=at))
    assert_ledger_balances(again.ledger)
    return again


def test_a_job_that_is_put_back_no_longer_waits_for_what_had_come_since_it_was_last_seen() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.submit(ask(2, after=(Dependency(job=1),)))
    early = driver.scheduler.snapshot()
    driver.end(*tokens)
    driver.settle()
    (token,) = driver.tokens(2)
    for held in ([], [HeldComponent(token=token, component=0, site="a", processors=2)]):
        stale = Scheduler.from_snapshot(driver.scheduler.grid, None, early).ledger.jobs[2]
        again = put_back(driver.scheduler, stale, *held, at=driver.now)
        if held:
            assert again.ledger.jobs[2].state is JobState.UNWINDING
            again.handle(ComponentEnded(at=driver.now, token=token, outcome=Outcome.ABORTED))
        again.handle(Tick(at=driver.now + 1.0))
        assert again.ledger.jobs[2].state is JobState.STARTING


def test_a_job_that_is_put_back_is_kept_back_by_what_is_on_record() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(2))
    waits, held, dated = (Job.submitted(number, ask(2), 0.0, 1.0) for number in (2, 3, 4))
    again = put_back(driver.scheduler, waits, at=driver.now, kept_back=JobHeld(job=2, waits_for=(Dependency(job=1),)))
    assert again.ledger.dependents == {1: {2: None}}
    again = put_back(again, held, at=driver.now, kept_back=JobHeld(job=3, held=True))
    again = put_back(again, dated, at=driver.now, kept_back=JobHeld(job=4, begins_at=driver.now + 50.0))
    assert [again.ledger.jobs[number].state for number in (2, 3, 4)] == [JobState.HELD] * 3
    again.handle(Tick(at=driver.now + 50.0))
    again.handle(Tick(at=driver.now + 51.0))
    assert [again.ledger.jobs[number].state for number in (2, 3)] == [JobState.HELD] * 2
    assert again.ledger.jobs[4].state is JobState.STARTING
    without_it = without(again, 1)
    without_it.handle(Tick(at=driver.now + 52.0))
    assert without_it.ledger.ended[2].state is JobState.CANCELLED


def an_array(processors: int = 1) -> CoreDriver:
    driver = CoreDriver({"a": processors}, scan_interval_s=0.0)
    driver.submit(ask(1, array=read_array("0-3")))  # 1, and 2 to 5
    return driver


def test_an_array_does_not_wait_for_an_element_that_was_removed() -> None:
    driver = an_array()
    assert sorted(driver.ledger.jobs) == [1, 2, 3, 4]
    again = without(driver.scheduler, 2)
    for step in range(1, 4):
        again.handle(Tick(at=driver.now + step))
    array = again.ledger.jobs[1]
    assert (array.elements.live, array.elements.made, array.elements.not_done) == (3, 4, {0: "cancelled"})
    driver = an_array(4)
    for number in (2, 3, 4):
        driver.cancel(number)
    again = without(driver.scheduler, 5)
    again.handle(Tick(at=driver.now + 1.0))
    assert again.ledger.ended[1].state is JobState.CANCELLED


def test_an_array_that_is_put_back_goes_on_making_elements_in_their_order() -> None:
    driver = CoreDriver({"a": 1}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(1))
    fresh = Job.submitted(2, ask(1, array=read_array("0-3")), 0.0, 1.0)
    again = put_back(driver.scheduler, fresh, at=driver.now)
    assert again.ledger.jobs[2].state is JobState.UNFOLDING
    assert again.last_job == 6
    assert [job.index for job in again.ledger.jobs.values() if job.array] == [0, 1]
    again.handle(JobSubmitted(at=driver.now, job=7, request=ask(1)))
    assert [job.id for job in again.ledger.low] == [3, 4, 7]


def test_an_array_whose_elements_are_counted_by_the_record_makes_the_others() -> None:
    driver = an_array()
    stale = Job.submitted(1, ask(1, array=read_array("0-3")), 0.0, 1.0)
    snapshot = driver.scheduler.snapshot()
    header, sections = split_snapshot(snapshot)
    requests = dict(zip(job_numbers(sections), snapshot.requests, strict=True))
    back = with_job_put_back(header, sections, stale, [], driver.now)
    told = {1: ElementsOnRecord(made=3, started=1, not_done={3: "cancelled"})}
    counted = with_elements_counted(back.sections, told, driver.now)
    there = [requests[number] for number in job_numbers(counted)]
    again = Scheduler.from_snapshot(driver.scheduler.grid, None, join_snapshot(back.header, counted, there))
    array = again.ledger.jobs[1]
    assert (array.elements.made, array.elements.live, array.elements.ahead) == (3, 3, 2)
    again.handle(Tick(at=driver.now + 1.0))
    assert (array.elements.made, array.elements.live, array.elements.started, array.elements.not_done) == (
        3,
        3,
        1,
        {3: "cancelled"},
    )
    assert_ledger_balances(again.ledger)


def test_two_starts_of_one_component_that_is_put_back_are_both_of_that_component() -> None:
    driver = driver_of()
    driver.submit(ask(2))
    held = [HeldComponent(token=token, component=0, site="a", processors=2) for token in ("1.1", "1.2")]
    again = put_back(driver.scheduler, Job.submitted(1, ask(2), 0.0, 1.0), *held, at=driver.now)
    assert [(claim.component, claim.given_up) for claim in again.ledger.claims.values()] == [(0, True), (0, False)]
    again.handle(JobSubmitted(at=driver.now + 1.0, job=2, request=job(shaped(2, 4, gpus=1))))
    again.handle(ComponentEnded(at=driver.now + 2.0, token=held[1].token, outcome=Outcome.ABORTED))
    assert again.ledger.jobs[1].state is not JobState.UNWINDING
    assert_ledger_balances(again.ledger)
