"""A job taken out of a split snapshot at any moment: what is left goes together, and nobody speaks of the job."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import Scheduler, job_numbers, join_snapshot, split_snapshot
from koala.core.state.removal import without_job
from koala.model.messages import Tick
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


@settings(max_examples=60, deadline=None)
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
    assert driver.ledger.jobs[waiter].spots is None
    again = without(driver.scheduler, holder)
    for step in range(1, 4):  # the first one leads to a scan
        again.handle(Tick(at=driver.now + 100.0 * step))
    assert again.ledger.jobs[waiter].spots is not None
