"""The records of a job taken away at any moment: the others are loaded, and nobody speaks of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState, Kind, Scheduler
from koala.model.dependency import Dependency
from koala.model.job_array import read_array
from koala.model.messages import Tick
from tests.core.test_storm import STEPS_MAX, Storm
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, part
from tests.support.core_records import records_of, scheduler_of


def without(scheduler: Scheduler, job: int, change: Callable[[dict[str, Any]], None] | None = None) -> Scheduler:
    """A scheduler that goes on without the job; ``change`` is what its array has of it."""
    kept = records_of(scheduler)
    array = scheduler.ledger.jobs[job].array if job in scheduler.ledger.jobs else 0
    kept.bodies = {
        (kind, key): body
        for (kind, key), body in kept.bodies.items()
        if not (kind in (Kind.JOB, Kind.PLACES, Kind.RUN) and key == str(job))
        and not (kind is Kind.CLAIM and key.startswith(f"{job}."))
    }
    kept.known.pop(job, None)
    if array and change is not None:
        fields = msgspec.json.decode(kept.bodies[Kind.JOB, str(array)])
        change(fields)
        kept.bodies[Kind.JOB, str(array)] = msgspec.json.encode(fields)
    again = scheduler_of(scheduler.grid, None, kept)
    assert not again.damaged
    assert_ledger_balances(again.ledger)
    assert all(claim.job_id != job for claim in again.ledger.claims.values())
    assert all(job not in transfer.jobs for transfer in again.ledger.transfers.by_id.values())
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


def test_a_transfer_that_only_the_removed_job_needed_is_not_made_and_a_shared_one_is() -> None:
    driver = CoreDriver({"a": 8, "b": 1}, files={"f": (30.0, ("b",)), "g": (30.0, ("b",))})
    driver.submit(ask(part(2, "a", "f", "g")))
    driver.submit(ask(part(2, "a", "f")))
    again = without(driver.scheduler, 1)
    assert [(transfer.key[0], transfer.jobs) for transfer in again.ledger.transfers.by_id.values()] == [
        ("f", {2: None})
    ]


def test_whoever_waits_for_the_removed_job_finds_that_it_was_cancelled() -> None:
    driver = CoreDriver({"a": 4}, scan_interval_s=0.0)
    driver.run(ask(2))
    driver.submit(ask(1, after=(Dependency(job=1),)))
    assert driver.state(2) is JobState.HELD
    again = without(driver.scheduler, 1)
    again.handle(Tick(at=driver.now + 1.0))
    assert again.ledger.ended[2].state is JobState.CANCELLED


def an_array(processors: int = 1) -> CoreDriver:
    driver = CoreDriver({"a": processors}, scan_interval_s=0.0)
    driver.submit(ask(1, array=read_array("0-3")))  # 1, and 2 to 5
    return driver


def test_an_array_does_not_wait_for_an_element_that_was_removed() -> None:
    driver = an_array()
    assert sorted(driver.ledger.jobs) == [1, 2, 3, 4]
    again = without(
        driver.scheduler, 2, lambda array: array["unfolds"].setdefault("not_done", {}).update({"0": "cancelled"})
    )
    for step in range(1, 4):
        again.handle(Tick(at=driver.now + step))
    array = again.ledger.jobs[1]
    assert (array.elements.live, array.elements.made, array.elements.not_done) == (3, 4, {0: "cancelled"})


def test_elements_of_a_removed_array_are_cancelled() -> None:
    driver = an_array()
    again = without(driver.scheduler, 1)
    for step in range(1, 4):
        again.handle(Tick(at=driver.now + step))
    assert not again.ledger.jobs
    assert again.ledger.ended[3].state is JobState.CANCELLED
