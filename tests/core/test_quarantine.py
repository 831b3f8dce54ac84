"""A job that our own code raises on is set aside: any state -> quarantined -> waiting or cancelled.

It gives back all that it holds, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koala.core import HandlingError, JobState
from koala.core.life.job import Job
from koala.core.plans import JobPlans
from koala.model.facts import JobPlaced, JobRequeued
from koala.model.messages import (
    AbortComponent,
    CancelAsked,
    CancelTransfer,
    ComponentEnded,
    ComponentReady,
    JobQuarantined,
    JobSubmitted,
    Outcome,
    RequeueAsked,
    StartComponent,
    Tick,
)
from koala.policies import Catalogue
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, make_grid, part
from tests.support.core_records import records_of, scheduler_of
from tests.support.raising_policy import POISON, SICK, raising_policy


def quarantine(driver: CoreDriver, job: int, reason: str = "an error inside Koala") -> None:
    driver.send(JobQuarantined(at=driver.now, job=job, reason=reason))
    assert_ledger_balances(driver.ledger)


def end_of(driver: CoreDriver, job: int, outcome: Outcome = Outcome.ABORTED) -> None:
    for token in [token for token, claim in driver.ledger.claims.items() if claim.job.id == job]:
        driver.send(ComponentEnded(at=driver.now, token=token, outcome=outcome))


def ready(driver: CoreDriver) -> None:
    for token in list(driver.ledger.claims):
        driver.send(ComponentReady(at=driver.now, token=token))


def fail_one(driver: CoreDriver) -> None:
    token = next(iter(driver.ledger.claims))
    driver.send(ComponentEnded(at=driver.now, token=token, outcome=Outcome.SITE_FAILED))


BROUGHT_THERE: dict[JobState, tuple[Callable[[CoreDriver], None], ...]] = {
    JobState.WAITING: (),
    JobState.PLACED: (),
    JobState.STARTING: (),
    JobState.RUNNING: (ready,),
    JobState.UNWINDING: (ready, fail_one),
}


@pytest.mark.parametrize("state", BROUGHT_THERE)
def test_a_job_in_any_state_gives_back_all_that_it_holds_and_can_be_put_back_or_cancelled(state: JobState) -> None:
    """... -> quarantined -> waiting -> starting -> quarantined -> cancelled"""
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (100.0, ("b",))})
    job = 1
    if state is JobState.WAITING:
        request = ask(9)
    elif state is JobState.PLACED:
        request = ask(part(2, "a", "f"), part(2, "b"))
    else:
        request = ask(2, 2)
    driver.send(JobSubmitted(at=0.0, job=job, request=request))
    for bring in BROUGHT_THERE[state]:
        bring(driver)
    assert driver.ledger.jobs[job].state is state
    quarantine(driver, job)
    assert driver.ledger.jobs[job].state is JobState.QUARANTINED
    assert len(driver.ledger.claiming) == len(driver.ledger.high) == len(driver.ledger.low) == 0
    assert not driver.ledger.transfers.by_id
    assert all(claim.aborting for claim in driver.ledger.claims.values())
    end_of(driver, job)
    assert all((site.ours, site.promised, site.earmarked) == (0, 0, 0) for site in driver.ledger.sites)
    again = kind(driver.send(RequeueAsked(at=driver.now, job=job)), JobRequeued)
    assert [each.job for each in again] == [job]
    quarantine(driver, job)
    end_of(driver, job)
    driver.send(CancelAsked(at=driver.now, job=job))
    assert_clean(driver.ledger)


def test_a_run_that_a_site_still_holds_keeps_its_job_in_quarantine() -> None:
    """running -> quarantined -> quarantined -> starting"""
    driver = CoreDriver({"a": 4})
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(2)))
    ready(driver)
    quarantine(driver, 1)
    assert kind(driver.send(RequeueAsked(at=driver.now, job=1)), StartComponent) == []
    assert len(driver.ledger.claims) == driver.ledger.states[JobState.QUARANTINED] == 1
    end_of(driver, 1)
    driver.send(RequeueAsked(at=driver.now, job=1))
    driver.wait_until(driver.now + 100.0)
    assert driver.ledger.jobs[1].state is JobState.STARTING


def test_the_core_says_which_jobs_it_was_busy_with_when_its_own_code_raised() -> None:
    driver = CoreDriver({"a": 8}, catalogue=raising_policy(), scan_interval_s=0.0)
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(8)))
    driver.send(JobSubmitted(at=1.0, job=2, request=ask(POISON)))  # waits, under a policy without a defect
    driver.send(CancelAsked(at=2.0, job=1))
    end_of(driver, 1)
    with pytest.raises(HandlingError, match="an error of ours") as raised:
        driver.send(JobSubmitted(at=3.0, job=3, request=ask(POISON, policy=SICK)))
    assert raised.value.jobs == (3,)


def test_jobs_that_ask_for_the_same_are_named_together_when_a_scan_raises_on_them() -> None:
    sick = False
    driver = CoreDriver({"a": 8}, catalogue=raising_policy(sick=lambda: sick), scan_interval_s=0.0)
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(8)))
    for job in (2, 3):
        driver.send(JobSubmitted(at=1.0, job=job, request=ask(POISON, policy=SICK)))
    sick = True
    end_of(driver, 1)
    with pytest.raises(HandlingError) as raised:
        driver.wait_until(driver.now + 200.0)
    assert raised.value.jobs == (2, 3)


def test_what_is_due_does_not_keep_a_job_from_its_quarantine() -> None:
    """What raises at every tick is set aside before the next one: then time goes on for the others."""
    sick = False
    driver = CoreDriver({"a": 8}, catalogue=raising_policy(sick=lambda: sick), scan_interval_s=10.0)
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(8)))
    driver.send(JobSubmitted(at=1.0, job=2, request=ask(POISON, policy=SICK)))
    driver.send(JobSubmitted(at=2.0, job=3, request=ask(8)))
    end_of(driver, 1)  # it is placed again, behind the others
    record = records_of(driver.scheduler)
    sick = True
    with pytest.raises(HandlingError) as raised:
        driver.scheduler.handle(Tick(at=100.0))
    assert raised.value.jobs == (2,)
    after = scheduler_of(driver.scheduler.grid, raising_policy(), record)
    after.handle(JobQuarantined(at=100.0, job=2, reason="an error of ours"))
    placed = kind([*after.handle(Tick(at=100.0)).entries, *after.handle(Tick(at=200.0)).entries], JobPlaced)
    assert [each.job for each in placed] == [3]
    assert after.ledger.jobs[2].state is JobState.QUARANTINED


def test_what_a_job_in_quarantine_gives_back_is_looked_at_in_the_next_scan_and_not_between_two() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, files={"f": (100.0, ("b",))}, scan_interval_s=30.0, hold_placed=True)
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(part(4, "a", "f"))))
    driver.send(JobSubmitted(at=1.0, job=2, request=ask(part(4, "a"))))
    assert [job.state for job in driver.ledger.jobs.values()] == [JobState.PLACED, JobState.WAITING]
    for at in (30.0, 60.0):
        driver.scheduler.handle(Tick(at=at))
    driver.scheduler.handle(JobQuarantined(at=95.0, job=1, reason="an error of ours"))
    assert not kind(driver.scheduler.handle(Tick(at=95.0)).entries, JobPlaced)
    scan_at = driver.ledger.low.scan_due_at
    assert scan_at % 30.0 == 0.0
    assert [each.job for each in kind(driver.scheduler.handle(Tick(at=scan_at)).entries, JobPlaced)] == [2]


def test_a_job_that_could_not_even_be_submitted_is_on_record_in_quarantine() -> None:
    driver = CoreDriver({"a": 8}, catalogue=raising_policy())
    request = ask(POISON, policy=SICK)
    driver.send(JobSubmitted(at=0.0, job=1, request=request, defect="an error inside Koala (X)"))
    told = driver.scheduler.explain(1)
    assert told is not None
    assert (told.state, told.placement_tries) == (JobState.QUARANTINED, 0)
    assert "an error inside Koala (X)" in meaning(told)
    assert "koala job requeue 1" in meaning(told)
    assert "koala job cancel 1" in meaning(told)
    restored = scheduler_of(driver.scheduler.grid, Catalogue.builtin(), records_of(driver.scheduler))
    assert restored.explain(1) == told  # also where its policy is not known any more
    driver.send(CancelAsked(at=1.0, job=1))
    assert_clean(driver.ledger)


def test_what_raises_while_it_is_given_back_is_left_out_and_told() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(2, 2)))
    job = driver.ledger.jobs[1]
    job.placed.link_demands = [(10**6, 1)]  # which no link has
    aborts = kind(driver.send(JobQuarantined(at=0.0, job=1, reason="an error of ours")), AbortComponent)
    assert len(aborts) == 2
    assert any("could not be given back properly: IndexError" in line for line in driver.story(1))


def test_a_step_that_raises_keeps_the_job_from_giving_back_nothing_else() -> None:
    """It waits for preempted processors and for a file; a restart goes on from there, and so do the others."""
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(75.0)
    assert driver.job(1).earmarks
    driver.job(1).placed.link_demands = [(10**6, 1)]  # which no link has
    commands = driver.send(JobQuarantined(at=driver.now, job=1, reason="an error of ours"))
    assert len(kind(commands, CancelTransfer)) == 1
    assert scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler)).ledger.jobs.keys() == {1, 2}
    driver.end(*tokens, outcome=Outcome.ABORTED)
    driver.pass_time(100.0)
    assert driver.state(2) is JobState.STARTING


def test_a_job_that_a_site_will_never_run_can_be_put_back_when_the_grid_has_the_site_no_more() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.submit(ask(5))
    driver.end("1.1", outcome=Outcome.UNSUITABLE, reason="too long")
    quarantine(driver, 1)
    driver.scheduler = scheduler_of(make_grid({"b": 9}), None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    driver.send(RequeueAsked(at=driver.now, job=1))
    assert driver.state(1) is JobState.WAITING
    assert not driver.job(1).barred


def test_a_plan_that_raises_in_the_scan_of_the_other_queue_blames_none_of_its_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = CoreDriver({"a": 10, "b": 10}, plan_depth=2, scan_interval_s=10.0, high_scans_per_low_scan=1)
    for number in range(2):
        driver.run(ask(10, walltime_s=100.0 + number))
    driver.submit(ask(part(10, "a"), high=True, walltime_s=50.0))
    driver.submit(ask(part(10, "b"), walltime_s=50.0))
    driver.submit(ask(part(10, "b"), walltime_s=60.0))
    make = JobPlans._make

    def broken(self: JobPlans, job: Job) -> Any:
        if job.id == 3 and not self._queue.high:
            raise RuntimeError("an error of ours")
        return make(self, job)

    monkeypatch.setattr(JobPlans, "_make", broken)
    driver.wait_until(12.0)
    driver.report("a", others=0, processors=12)
    driver.report("a", others=5, processors=10)
    with pytest.raises(HandlingError) as raised:
        driver.pass_time(500.0)
    assert not set(raised.value.jobs) & {4, 5}
