"""Jobs that are not tried yet: for other jobs, for their time, or because somebody holds them."""

from __future__ import annotations

import pytest

from koala.core import JobState, Kind
from koala.core import scheduler as core_scheduler
from koala.model.dependency import DEPENDENCIES_MAX, DEPENDENCIES_TOLD_MAX, Condition, Dependency
from koala.model.facts import JobHeld, JobUnheld
from koala.model.messages import (
    ChangeAsked,
    EndedJob,
    HoldAsked,
    JobOutcome,
    JobQuarantined,
    JobSubmitted,
    Outcome,
    RequeueAsked,
    RestartAsked,
    SiteLost,
    StartComponent,
    Tick,
    UnholdAsked,
)
from koala.model.request import InvalidRequestError, Priority, Request
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of


def after(*jobs: int, condition: Condition = Condition.DONE) -> tuple[Dependency, ...]:
    return tuple(Dependency(job=job, condition=condition) for job in jobs)


def test_a_job_waits_until_another_is_done() -> None:
    """held, waiting, placed"""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    commands = driver.submit(ask(2, after=after(1)))
    assert driver.state(2) is JobState.HELD
    assert kind(commands, JobHeld) == [JobHeld(job=2, waits_for=after(1))]
    assert not kind(commands, StartComponent)
    assert len(driver.ledger.low) == 0
    assert_ledger_balances(driver.ledger)
    explanation = driver.scheduler.explain(2)
    assert explanation is not None
    assert meaning(explanation) == "not tried yet: it waits for job 1 to be done"
    assert [(each.job, each.condition) for each in explanation.waits_for] == [(1, Condition.DONE)]
    commands = driver.end(*tokens)
    assert kind(commands, JobUnheld) == [JobUnheld(job=2)]
    commands += driver.settle()
    assert [start.job for start in kind(commands, StartComponent)] == [2]
    assert "a dependency is satisfied: job 1 is done" in driver.story(2)


@pytest.mark.parametrize(
    ("condition", "outcome", "expected"),
    [
        (Condition.DONE, Outcome.DONE, JobState.STARTING),
        (Condition.DONE, Outcome.FAILED, JobState.CANCELLED),
        (Condition.ENDED, Outcome.DONE, JobState.STARTING),
        (Condition.ENDED, Outcome.FAILED, JobState.STARTING),
        (Condition.FAILED, Outcome.FAILED, JobState.STARTING),
        (Condition.FAILED, Outcome.DONE, JobState.CANCELLED),
        (Condition.STARTED, Outcome.DONE, JobState.STARTING),
    ],
)
def test_what_becomes_of_a_job_decides_over_those_that_wait(
    condition: Condition, outcome: Outcome, expected: JobState
) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2, restarts_max=0))
    driver.submit(ask(2, after=after(1, condition=condition)))
    driver.end(*tokens, outcome=outcome)
    driver.settle()
    assert driver.state(2) is expected


def test_a_broken_dependency_names_what_was_waited_for_and_breaks_those_that_wait_in_turn() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(2))
    driver.submit(ask(2, after=after(1)))
    driver.submit(ask(2, after=after(2)))
    driver.submit(ask(2, after=after(3, condition=Condition.ENDED)))
    driver.cancel(1)
    driver.settle()
    assert driver.ended(2).outcome is JobOutcome.CANCELLED
    assert driver.ended(2).reason == "it waits for job 1 to be done, which can never come: job 1 was cancelled"
    assert "job 2 was cancelled" in driver.ended(3).reason
    assert driver.state(4) is JobState.STARTING


def test_a_job_that_never_starts_breaks_the_wait_for_its_start() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(10))
    driver.submit(ask(10))
    driver.submit(ask(2, after=after(2, condition=Condition.STARTED)))
    driver.cancel(2)
    assert "job 2 ended before it started" in driver.ended(3).reason


def test_those_who_wait_for_the_same_job_stand_in_line_by_their_numbers() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    tokens = driver.run(ask(4))
    for _ in range(3):
        driver.submit(ask(3, after=after(1)))
    driver.end(*tokens)
    driver.settle()
    assert [job.id for job in driver.ledger.low] == [3, 4]
    assert driver.state(2) is JobState.STARTING


def test_all_conditions_must_hold() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    first, second = driver.run(ask(2)), driver.run(ask(2))
    driver.submit(ask(2, after=(*after(1), *after(2))))
    commands = driver.end(*first)
    assert kind(commands, JobHeld) == [JobHeld(job=3, waits_for=after(2))]
    assert driver.state(3) is JobState.HELD
    driver.end(*second)
    driver.settle()
    assert driver.state(3) is JobState.STARTING


def test_a_job_that_ended_before_is_told_with_the_submission() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    done = EndedJob(job=1, outcome=JobOutcome.DONE, started=True)
    failed = EndedJob(job=2, outcome=JobOutcome.FAILED, started=True)
    driver.send(JobSubmitted(at=0.0, job=3, request=ask(2, after=after(1)), ended=(done,)))
    assert driver.state(3) is JobState.STARTING
    driver.send(JobSubmitted(at=0.0, job=4, request=ask(2, after=after(1, 2)), ended=(done, failed)))
    assert "job 2 failed" in driver.ended(4).reason
    driver.send(JobSubmitted(at=0.0, job=5, request=ask(2, after=after(9))))
    assert "job 9 is not known" in driver.ended(5).reason


def test_a_job_is_not_tried_before_its_time() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(2, begin_at=50.0))
    driver.submit(ask(2, begin_in_s=20.0))
    assert driver.next_wake() == 20.0
    driver.wait_until(20.0)
    assert driver.state(1) is JobState.HELD
    assert driver.state(2) is JobState.STARTING
    driver.wait_until(50.0)
    assert driver.state(1) is JobState.STARTING
    assert "its time has come (begin_at)" in driver.story(1)


def test_a_held_job_is_let_go() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(2, hold=True))
    assert driver.state(1) is JobState.HELD
    for _ in range(2):
        driver.send(UnholdAsked(at=driver.now, job=1))
    driver.settle()
    assert driver.state(1) is JobState.STARTING


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_that_has_not_started_can_be_held(waits: bool) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    if waits:
        driver.run(ask(10))
    driver.submit(ask(2))
    job = 2 if waits else 1
    for _ in range(2):
        driver.send(HoldAsked(at=driver.now, job=job))
    assert driver.state(job) is JobState.HELD
    assert_ledger_balances(driver.ledger)
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    assert explanation.held
    driver.cancel(job)
    assert driver.state(job) is JobState.CANCELLED


def test_a_running_job_is_not_held() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(2))
    driver.send(HoldAsked(at=driver.now, job=1))
    assert driver.state(1) is JobState.RUNNING
    assert not driver.job(1).held


def test_a_requeued_job_runs_again_and_no_failure_is_counted() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.send(RestartAsked(at=driver.now, job=1))
    assert driver.state(1) is JobState.UNWINDING
    driver.end(*tokens, outcome=Outcome.ABORTED)
    driver.pass_time(2.0)  # it lost its places in the instant in which it got them
    assert driver.state(1) is JobState.STARTING
    assert driver.job(1).failures == 0


def test_a_requeued_job_can_be_held() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.send(RestartAsked(at=driver.now, job=1, hold=True))
    driver.end(*tokens, outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.HELD
    driver.send(UnholdAsked(at=driver.now, job=1))
    driver.settle()
    driver.end(*driver.tokens(1), outcome=Outcome.ABORTED)
    driver.cancel(1)
    assert_clean(driver.ledger)


def test_a_waiting_job_gets_another_walltime_and_keeps_its_place() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(10))
    driver.submit(ask(6, walltime_s=100.0))
    driver.submit(ask(6))
    driver.send(ChangeAsked(at=driver.now, job=2, walltime_s=500.0))
    assert [job.id for job in driver.ledger.low] == [2, 3]
    driver.end(*tokens)
    driver.settle()
    assert driver.all(StartComponent)[-1].walltime_s == 500.0
    driver.send(ChangeAsked(at=driver.now, job=2, walltime_s=900.0))
    assert driver.job(2).walltime_s == 500.0  # it has places


def test_a_waiting_job_changes_the_queue_with_its_priority() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(10))
    driver.submit(ask(6))
    driver.submit(ask(6, hold=True))
    for job in (2, 3):
        driver.send(ChangeAsked(at=driver.now, job=job, priority=Priority.HIGH))
    assert [job.id for job in driver.ledger.high] == [2]
    assert_ledger_balances(driver.ledger)
    driver.send(UnholdAsked(at=driver.now, job=3))
    assert [job.id for job in driver.ledger.high] == [2, 3]


def test_a_job_that_changes_its_priority_in_quarantine_has_a_place_of_its_own_in_the_other_queue() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=3)
    driver.run(ask(10, high=True, walltime_s=1_000.0))
    for priority in (False, False, True, True, False):
        driver.submit(ask(7, high=priority, walltime_s=100.0))
    driver.send(JobQuarantined(at=driver.now, job=6, reason="a defect"))
    driver.send(ChangeAsked(at=driver.now, job=6, priority=Priority.HIGH))
    driver.send(RequeueAsked(at=driver.now, job=6))
    assert [job.id for job in driver.ledger.high] == [4, 5, 6]
    assert len({job.position for job in driver.ledger.high}) == 3
    driver.cancel(5)
    assert [job.id for job in driver.ledger.high] == [4, 6]
    assert_ledger_balances(driver.ledger)


def test_a_job_whose_run_is_being_ended_is_held_when_it_comes_back() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.send(RestartAsked(at=driver.now, job=1))
    assert driver.state(1) is JobState.UNWINDING
    driver.send(RestartAsked(at=driver.now, job=1, hold=True))
    driver.end(*tokens, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(1) is JobState.HELD


def test_a_job_that_is_put_back_from_quarantine_is_held_where_that_is_asked() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(10))
    driver.submit(ask(2))
    driver.send(JobQuarantined(at=driver.now, job=2, reason="a defect"))
    commands = driver.send(RequeueAsked(at=driver.now, job=2, hold=True))
    assert driver.state(2) is JobState.HELD
    assert kind(commands, JobHeld) == [JobHeld(job=2, held=True)]


def test_those_who_wait_hear_of_a_job_that_ends_when_a_lost_site_is_left() -> None:
    """Its claiming tries are used up: that is found out after the event itself was handled."""
    driver = CoreDriver({"a": 10, "b": 2}, files={"f": (30.0, ("b",))}, scan_interval_s=0.0, barrier_timeout_s=600.0)
    driver.submit(ask(part(10, "a", "f"), high=True, claiming_tries_max=3))
    driver.submit(ask(1, after=after(1, condition=Condition.FAILED)))
    driver.run(ask(10))
    driver.pass_time(29.0)
    for transfer in driver.transfers():
        driver.end_transfer(transfer)
    driver.pass_time(5.0)
    driver.send(SiteLost(at=driver.now, site="a", reason="a fire"))
    assert driver.state(1) is JobState.FAILED
    assert driver.state(2) is JobState.WAITING


def test_a_restart_remembers_what_jobs_wait_for() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.submit(ask(2, after=after(1)))
    driver.submit(ask(2, begin_at=50.0))
    driver.submit(ask(2, hold=True))
    driver.send(ChangeAsked(at=driver.now, job=4, priority=Priority.HIGH, walltime_s=7.0))
    written = records_of(driver.scheduler)
    twin = scheduler_of(driver.scheduler.grid, None, written)
    assert records_of(twin) == written
    assert twin.ledger.jobs[4].high
    driver.scheduler, driver.ledger = twin, twin.ledger
    driver.end(*tokens)
    driver.settle()
    assert driver.state(2) is JobState.STARTING
    assert driver.state(3) is JobState.HELD


def test_a_job_whose_dependency_an_operator_took_out_ends() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(2, hold=True))
    driver.submit(ask(2, after=after(1)))
    kept = records_of(driver.scheduler)
    del kept.bodies[Kind.JOB, "1"], kept.known[1]
    twin = scheduler_of(driver.scheduler.grid, None, kept)
    driver.scheduler, driver.ledger = twin, twin.ledger
    driver.submit(ask(1))
    assert driver.state(2) is JobState.CANCELLED


def test_a_job_in_quarantine_still_hears_of_what_it_waits_for() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    driver.submit(ask(2, after=after(1), begin_at=30.0))
    driver.send(JobQuarantined(at=driver.now, job=2, reason="a defect"))
    driver.end(*tokens)
    driver.send(RequeueAsked(at=driver.now, job=2))
    assert driver.state(2) is JobState.HELD
    driver.wait_until(30.0)
    assert driver.state(2) is JobState.STARTING


def test_a_long_chain_of_broken_dependencies_ends_at_once() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(2, hold=True))
    for job in range(1, 1_500):
        driver.submit(ask(2, after=after(job)))
    driver.cancel(1)
    driver.settle()
    assert not driver.ledger.jobs
    assert not driver.ledger.dependents


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"after": tuple(Dependency(job=job) for job in range(DEPENDENCIES_MAX + 1))}, "DEPENDENCIES_MAX"),
        ({"after": (Dependency(job=1), Dependency(job=1))}, "twice"),
        ({"after": (Dependency(job=-1),)}, "not the number of a job"),
        ({"begin_at": float("nan")}, "not a time"),
        ({"begin_in_s": -1.0}, "not a time"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(fields: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidRequestError, match=what):
        Request(components=ask(1).components, **fields)  # type: ignore[arg-type]


def test_very_many_that_wait_for_one_are_told_in_several_goes_also_over_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_scheduler, "TOLD_AT_ONCE_MAX", 3)
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(2))
    for _ in range(10):
        driver.submit(ask(1, after=(*after(1), *after(1, condition=Condition.STARTED))))
    last = driver.submit(ask(1, after=after(5)))
    assert kind(last, JobHeld)
    commands = driver.end(*tokens)
    told = [each.job for each in kind(commands, JobUnheld)]
    assert told == [2, 3, 4], "three as the job ends"
    assert driver.scheduler.due_at == driver.now
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    assert (again.ledger.last_notified, [each.job for each in again.ledger.dependency_events]) == (4, [1])
    commands = [each for _ in range(3) for each in again.handle(Tick(at=driver.now)).entries]
    assert [each.job for each in kind(commands, JobUnheld)] == [5, 6, 7, 8, 9, 10, 11]
    assert not again.ledger.dependency_events
    driver.settle()
    assert all(driver.state(number) is not JobState.HELD for number in range(2, 12))
    assert_ledger_balances(driver.ledger)


def test_what_is_told_of_a_job_that_waits_for_very_many_is_bounded() -> None:
    """Each time that one of them has come: else a job of a few kilobytes would write megabytes of journal."""
    driver = CoreDriver({"a": 100}, scan_interval_s=0.0)
    tokens = [driver.run(ask(1))[0] for _ in range(40)]
    driver.submit(ask(1, after=after(*range(1, 41))))
    driver.end(*tokens)
    told = driver.all(JobHeld)
    assert [len(each.waits_for) + each.more for each in told] == list(range(40, 0, -1))
    assert max(len(each.waits_for) for each in told) == DEPENDENCIES_TOLD_MAX
    assert driver.state(41) is not JobState.HELD
    assert "kept back: it waits for job 1 to be done, job 2 to be done" in "\n".join(driver.story(41))
    assert "and 35 more" in "\n".join(driver.story(41))


def test_fewer_are_told_at_once_where_each_waits_for_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling a job goes through all that it waits for: one event would cost jobs times dependencies."""
    monkeypatch.setattr(core_scheduler, "TOLD_AT_ONCE_MAX", 30)
    driver = CoreDriver({"a": 1_000}, scan_interval_s=0.0)
    tokens = [driver.run(ask(1))[0] for _ in range(450)]
    for others in (after(1, 2), after(*range(1, 451))):
        for _ in range(30):
            driver.submit(ask(1, after=others))
    commands = driver.end(tokens[0])
    told = [each.job for each in kind(commands, JobHeld)]
    assert told == list(range(451, 481)), "those who wait for two"
    told = [each.job for each in kind(driver.send(Tick(at=driver.now)), JobHeld)]
    assert told == list(range(481, 484)), "and in the next go three of the others"
    driver.settle()
    assert len({each.job for each in driver.all(JobHeld)}) == 60
    assert_ledger_balances(driver.ledger)
