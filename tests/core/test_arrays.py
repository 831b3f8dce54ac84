"""Arrays: one submission, of which the elements become jobs a few at a time."""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobExplanation, JobState
from koala.core.placement import MADE_AHEAD_MAX, MADE_AT_ONCE_MAX
from koala.core.scheduler import CANCELLED_AT_ONCE_MAX
from koala.core.standing import element_counts
from koala.core.state.expected_starts import ELEMENTS_FORESEEN_MAX
from koala.model.dependency import Condition, Dependency
from koala.model.facts import ElementMade, JobEnded
from koala.model.job_array import ARRAY_ELEMENTS_MAX, ARRAY_RANGES_MAX, ArrayError, element_number, read_array
from koala.model.messages import (
    HoldAsked,
    JobOutcome,
    JobQuarantined,
    JobSubmitted,
    Outcome,
    RequeueAsked,
    StartComponent,
    Tick,
    UnholdAsked,
)
from koala.model.request import Request
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of


def a_driver(processors: int = 4) -> CoreDriver:
    return CoreDriver({"a": processors}, scan_interval_s=0.0)


def submit(driver: CoreDriver, request: Request) -> int:
    """Submit a job under the next number that no element has."""
    number = driver.scheduler.last_job + 1
    driver.send(JobSubmitted(at=driver.now, job=number, request=request))
    return number


def finish(driver: CoreDriver, *jobs: int, outcome: Outcome = Outcome.DONE) -> None:
    for job in jobs:
        tokens = driver.tokens(job)
        driver.ready(*tokens)
        driver.end(*tokens, outcome=outcome)
        driver.settle()


def counts(driver: CoreDriver, array: int = 1) -> tuple[int, ...]:
    found = element_counts(driver.job(array))
    assert found is not None
    return found.waiting, found.running, found.done, found.failed, found.cancelled


def test_as_many_elements_start_as_fit_and_two_are_made_ahead() -> None:
    """waiting -> unfolding -> done"""
    driver = a_driver()
    commands = driver.submit(ask(1, array=read_array("10-19")))
    starts = [(start.job, start.array, start.index) for start in kind(commands, StartComponent)]
    assert starts == [(2, 1, 10), (3, 1, 11), (4, 1, 12), (5, 1, 13)]
    assert len(kind(commands, ElementMade)) == 4 + MADE_AHEAD_MAX
    assert driver.state(1) is JobState.UNFOLDING
    assert counts(driver) == (10, 0, 0, 0, 0)
    assert [job.id for job in driver.ledger.low] == [6, 7]
    assert_ledger_balances(driver.ledger)
    finish(driver, *range(2, 12))
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert counts(driver) == (0, 0, 10, 0, 0)
    assert_clean(driver.ledger)


def test_only_elements_that_run_count_as_running() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (600.0, ("b",))}, scan_interval_s=0.0)
    driver.submit(ask(part(1, "a", "f"), array=read_array("0-2")))
    assert driver.state(2) is JobState.PLACED
    assert counts(driver) == (3, 0, 0, 0, 0), "a file is on its way"

    driver = a_driver()
    driver.submit(ask(1, array=read_array("0-9")))
    driver.ready(*driver.tokens(2), *driver.tokens(3))
    assert counts(driver) == (8, 2, 0, 0, 0)
    driver.end(*driver.tokens(2), outcome=Outcome.SITE_FAILED)
    assert counts(driver) == (9, 1, 0, 0, 0), "it waits again"
    twin = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    assert element_counts(twin.ledger.jobs[1]) == element_counts(driver.job(1))
    driver.end(*driver.tokens(3))
    assert counts(driver) == (9, 0, 1, 0, 0)


def test_elements_stand_in_line_as_if_all_had_come_with_their_array() -> None:
    driver = a_driver(2)
    driver.submit(ask(2, array=read_array("0-4")))
    later = submit(driver, ask(2))
    order = [2]
    while driver.ledger.jobs:
        finish(driver, order[-1])
        order += [job.id for job in driver.ledger.jobs.values() if job.state is JobState.STARTING]
    assert order == [2, 3, 4, 5, 6, later]


def test_an_array_of_a_hundred_thousand_costs_the_queue_two_jobs() -> None:
    driver = a_driver()
    driver.run(ask(4))
    driver.submit(ask(1, array=read_array(f"0-{ARRAY_ELEMENTS_MAX - 1}")))
    assert len(driver.ledger.jobs) == 2 + MADE_AHEAD_MAX
    assert driver.scheduler.last_job == 2 + ARRAY_ELEMENTS_MAX
    driver.cancel(2)
    assert len(driver.ledger.jobs) == 1
    assert counts(driver, 2) == (0, 0, 0, 0, ARRAY_ELEMENTS_MAX)


def test_no_more_elements_live_than_the_limit() -> None:
    driver = a_driver()
    driver.submit(ask(1, array=read_array("0-9%2")))
    assert sorted(driver.ledger.jobs) == [1, 2, 3]
    finish(driver, 2)
    assert sorted(driver.ledger.jobs) == [1, 3, 4]


def test_very_many_that_fit_start_in_several_goes() -> None:
    driver = a_driver(2 * MADE_AT_ONCE_MAX)
    commands = driver.submit(ask(1, array=read_array("0-9999")))
    assert len(kind(commands, ElementMade)) == MADE_AT_ONCE_MAX
    driver.settle()
    assert driver.ledger.states[JobState.STARTING] == 2 * MADE_AT_ONCE_MAX


def test_elements_of_many_components_start_in_more_goes() -> None:
    driver = a_driver(1_000)
    commands = driver.submit(ask(*[1] * 100, array=read_array("0-9")))
    assert len(kind(commands, ElementMade)) == MADE_AT_ONCE_MAX // 100
    driver.settle()
    assert driver.ledger.states[JobState.STARTING] == 10


def test_an_array_fails_when_an_element_fails_and_the_others_go_on() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-2"), restarts_max=0))
    finish(driver, 2, outcome=Outcome.FAILED)
    finish(driver, 3)
    driver.cancel(4)
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason == "of 3 elements 1 failed (index 0) and 1 were cancelled"
    assert counts(driver) == (0, 0, 1, 1, 1)


def test_cancelling_an_array_ends_its_elements_and_makes_no_more() -> None:
    driver = a_driver()
    driver.submit(ask(1, array=read_array("0-9")))
    driver.cancel(1)
    assert not driver.ledger.jobs
    assert counts(driver) == (0, 0, 0, 0, 10)


def test_very_many_elements_are_cancelled_in_several_goes_also_over_a_restart() -> None:
    driver = a_driver(3 * CANCELLED_AT_ONCE_MAX)
    driver.submit(ask(1, array=read_array("0-9999")))
    driver.settle()
    commands = driver.cancel(1)
    assert len(kind(commands, JobEnded)) == 1 + CANCELLED_AT_ONCE_MAX
    assert driver.scheduler.due_at == driver.now
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    for _ in range(3):
        again.handle(Tick(at=driver.now))
    assert not again.ledger.jobs
    assert not again.ledger.follow_ups.left
    driver.settle()
    assert not driver.ledger.jobs


def test_an_array_costs_what_changes_however_many_elements_have_failed() -> None:
    """What is counted is kept, and said again after a restart."""
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-9"), restarts_max=0))
    driver.cancel(11)
    finish(driver, 2, 3, outcome=Outcome.FAILED)
    finish(driver, 4)
    array = driver.ledger.jobs[1]
    assert (dict(array.elements.not_done_as), array.elements.not_made) == ({"cancelled": 1, "failed": 2}, 1)
    twin = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler)).ledger.jobs[1]
    assert (twin.elements.not_done_as, twin.elements.not_made) == (
        array.elements.not_done_as,
        array.elements.not_made,
    )
    assert element_counts(twin) == element_counts(array)


def test_an_element_that_is_cancelled_before_it_is_made_never_is() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-4")))
    for _ in range(2):
        driver.cancel(6)
    assert counts(driver) == (4, 0, 0, 0, 1)
    finish(driver, 2, 3, 4, 5)
    assert driver.ended(1).outcome is JobOutcome.CANCELLED
    assert [made.index for made in driver.all(ElementMade)] == [0, 1, 2, 3]


def test_a_job_waits_for_all_elements_or_for_one() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-3")))  # 1, and 2 to 5
    one = element_number(1, read_array("0-3"), 1)
    assert one == 3
    first = submit(driver, ask(1, after=(Dependency(job=one),)))
    started = submit(driver, ask(1, after=(Dependency(job=1, condition=Condition.STARTED),)))
    done = submit(driver, ask(1, after=(Dependency(job=1),)))
    finish(driver, 2)
    assert driver.state(first) is JobState.HELD
    finish(driver, 3)
    assert driver.state(first) is JobState.WAITING
    finish(driver, 4)
    driver.ready(*driver.tokens(5))
    assert driver.state(started) is JobState.WAITING
    assert driver.state(done) is JobState.HELD
    driver.end(*driver.tokens(5))
    assert driver.state(done) is JobState.WAITING


def test_those_who_wait_for_an_element_that_is_never_made_end() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-9")))
    one = submit(driver, ask(1, after=(Dependency(job=10),)))
    other = submit(driver, ask(1, after=(Dependency(job=11),)))
    driver.cancel(10)
    assert "job 10 was cancelled" in driver.ended(one).reason
    driver.cancel(1)
    assert "job 11 was cancelled" in driver.ended(other).reason


def test_a_held_array_makes_no_more_elements_until_it_is_let_go() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-9"), hold=True))
    assert driver.state(1) is JobState.HELD
    driver.send(UnholdAsked(at=0.0, job=1))
    driver.settle()
    assert driver.state(2) is JobState.STARTING
    driver.send(HoldAsked(at=0.0, job=1))
    told = driver.scheduler.explain(1)
    assert told is not None
    assert "no more of its elements are made: it is held" in meaning(told)
    assert meaning(told).endswith("10 waiting")
    finish(driver, 2, 3, 4)
    assert sorted(driver.ledger.jobs) == [1]
    driver.send(UnholdAsked(at=0.0, job=1))
    driver.settle()
    assert driver.state(5) is JobState.STARTING


def test_a_held_element_makes_room_for_the_next() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-9")))
    for job in (3, 4):
        driver.send(HoldAsked(at=0.0, job=job))
    finish(driver, 2)
    assert driver.state(5) is JobState.STARTING


def test_an_array_in_quarantine_is_put_back() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-9")))
    driver.send(JobQuarantined(at=0.0, job=1, reason="a defect"))
    finish(driver, 2, 3, 4)
    assert sorted(driver.ledger.jobs) == [1]
    driver.send(RequeueAsked(at=0.0, job=1))
    driver.settle()
    assert driver.state(5) is JobState.STARTING


def test_a_restart_goes_on_with_the_array() -> None:
    driver = a_driver(1)
    driver.submit(ask(1, array=read_array("0-5")))
    driver.cancel(7)
    finish(driver, 2)
    written = records_of(driver.scheduler)
    twin = scheduler_of(driver.scheduler.grid, None, written)
    assert records_of(twin) == written
    driver.scheduler, driver.ledger = twin, twin.ledger
    finish(driver, 3, 4, 5, 6)
    assert driver.ended(1).reason == "of 6 elements 1 were cancelled"


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("0-3", [0, 1, 2, 3], None),
        ("7", [7], None),
        ("1,3,5-9:2%4", [1, 3, 5, 7, 9], 4),
        (" 0-20:10 , 30 % 1", [0, 10, 20, 30], 1),
    ],
)
def test_an_array_is_read_and_written(text: str, indices: list[int], limit: int | None) -> None:
    spec = read_array(text)
    assert ([spec.index_at(position) for position in range(spec.size)], spec.limit) == (indices, limit)
    assert [spec.position_of(index) for index in indices] == [*range(len(indices))]
    assert spec.position_of(max(indices) + 1) is None
    assert read_array(str(spec)) == spec
    with pytest.raises(IndexError):
        spec.index_at(spec.size)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "neither an index"),
        ("a-b", "neither an index"),
        ("0-999999999", "ARRAY_ELEMENTS_MAX"),
        ("5-1", "do not increase"),
        ("3,1", "do not increase"),
        ("1-3:0", "do not increase"),
        ("0-9999999999", "ARRAY_INDEX_MAX"),
        ("0-9%0", "not even one"),
        ("0-9%", "not a number of elements"),
        (",".join("1" for _ in range(ARRAY_RANGES_MAX + 1)), "ARRAY_RANGES_MAX"),
    ],
)
def test_what_is_no_array_is_refused(text: str, what: str) -> None:
    with pytest.raises(ArrayError) as caught:
        read_array(text)
    assert what in f"{caught.value}; {caught.value.advice}"


def test_an_array_whose_elements_find_no_place_in_their_only_try_is_over_at_once() -> None:
    driver = a_driver()
    driver.submit(ask(9, array=read_array("10-70:10"), placement_tries_max=1))
    ended = driver.ended(1)
    assert ended.outcome is JobOutcome.FAILED
    assert ended.reason == "of 7 elements 7 failed (indices 10, 20, 30, 40, 50 and 2 more)"
    assert not driver.ledger.arrays


@pytest.mark.parametrize(
    ("elements", "limit", "foreseen"), [(5, "", 3), (5, "%2", 3), (100, "", ELEMENTS_FORESEEN_MAX)]
)
def test_what_is_told_of_a_job_behind_an_array_counts_elements_that_are_no_jobs_yet(
    elements: int, limit: str, foreseen: int
) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=8)
    driver.run(ask(10, walltime_s=100.0))
    submit(driver, ask(10, walltime_s=50.0, array=read_array(f"1-{elements}{limit}")))
    behind = submit(driver, ask(10, walltime_s=10.0))
    driver.settle()
    told = driver.scheduler.explain(behind)
    assert told is not None
    planned_at = 100.0 + MADE_AHEAD_MAX * 50.0
    assert driver.job(behind).plan_at == planned_at
    at = planned_at + foreseen * 50.0
    assert (told.expected_at, told.latest_at) == (at, None if foreseen == ELEMENTS_FORESEEN_MAX else at)


def test_what_is_told_of_a_job_behind_an_array_at_its_limit_counts_all_its_elements() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0, plan_depth=1)
    submit(driver, ask(1, walltime_s=60.0, array=read_array("0-9%2")))
    driver.settle()
    behind = submit(driver, ask(4, walltime_s=60.0))
    driver.settle()
    assert driver.scheduler.told(behind) == (300.0, 300.0)


def test_a_job_behind_an_array_is_told_of_the_elements_that_come_before_it() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.submit(ask(10, array=read_array("1-100"), walltime_s=10.0))
    driver.send(JobSubmitted(at=driver.now, job=102, request=ask(10, walltime_s=10.0)))
    driver.settle()
    told = driver.scheduler.explain(102)
    assert told is not None
    waiting = [job for job in driver.ledger.jobs.values() if job.array and job.state is JobState.WAITING]
    assert (told.place_in_line, told.elements_before) == (1 + len(waiting), 99 - len(waiting))
    element = driver.scheduler.explain(waiting[0].id)
    assert element is not None
    assert element.elements_before == 0


def explained(driver: CoreDriver, job: int) -> JobExplanation:
    found = driver.scheduler.explain(job)
    assert found is not None
    return found


@pytest.mark.parametrize("parameters", [{}, {"plan_depth": 3}])
def test_an_array_is_explained_by_its_next_element(parameters: dict[str, Any]) -> None:
    driver = CoreDriver({"a": 4}, **parameters)
    driver.run(ask(1, walltime_s=100.0))
    driver.submit(ask(2, array=read_array("1-5"), walltime_s=50.0))
    array, element = explained(driver, 2), explained(driver, 4)
    assert (driver.state(3), driver.state(4)) == (JobState.STARTING, JobState.WAITING)
    assert array.next_element == 4
    assert array.refusal is not None
    for field in ("refusal", "place_in_line", "waiting_since", "expected_at", "expected_sites", "latest_at"):
        assert getattr(array, field) == getattr(element, field)
    driver.ready("3.1")
    driver.end("3.1", "1.1")
    driver.pass_time(120.0)
    assert explained(driver, 2).next_element == 6


def test_of_elements_that_wait_the_one_that_stands_first_is_next() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    driver.submit(ask(4, array=read_array("1-5")))
    driver.ready("2.1")
    assert explained(driver, 1).next_element == 3
    driver.end("2.1", outcome=Outcome.SITE_FAILED)
    driver.settle()
    assert (driver.state(2), driver.state(3)) == (JobState.WAITING, JobState.STARTING)
    assert explained(driver, 1).next_element == 4


def test_an_array_that_may_have_no_more_elements_at_a_time_says_so() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(1, array=read_array("1-5%2")))
    array = explained(driver, 1)
    assert meaning(array).endswith("no more than 2 are under way at a time (%2)")
    assert (array.next_element, array.refusal, array.place_in_line) == (None, None, None)


def test_an_array_whose_elements_have_all_begun_has_no_next_one() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(1, array=read_array("1-3")))
    array = explained(driver, 1)
    assert (array.next_element, "at a time" in meaning(array)) == (None, False)
