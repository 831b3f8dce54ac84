"""Incremental claiming: when a placed job is claimed, what a claiming try does, and when it is given up.

The file ``f`` is at ``store`` and takes 100 s to anywhere else, so a job that is placed at 0 has its start at 100.
"""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.core.running import START_REACHED_S
from koala.model.facts import JobEnded, JobRequeued
from koala.model.messages import (
    AbortComponent,
    CancelTransfer,
    JobOutcome,
    Outcome,
    ReleaseBarrier,
    SiteDrained,
    StartComponent,
    StartTransfer,
)
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part


def claiming_driver(**parameters: Any) -> CoreDriver:
    """Two sites of 10 processors and the store; only components that are pinned to it fit on the store."""
    return CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))}, **parameters)


def claiming_times(driver: CoreDriver, job: int, until: float) -> list[float]:
    """Every claiming time (JCT) that the job is given up to then."""
    times = [driver.job(job).awaiting_claims.claim_at]
    while times[-1] < until:
        driver.wait_until(times[-1])
        if driver.state(job) not in (JobState.PLACED, JobState.CLAIMING):
            break
        times.append(driver.job(job).awaiting_claims.claim_at)
    return times


# ---------------------------------------------------------------------------------------- the timeline


def test_the_job_start_time_lies_one_longest_transfer_after_the_placement() -> None:
    """FTT is the largest of the components' estimates, and a component's files come one after the other."""
    driver = CoreDriver(
        {"a": 10, "b": 10, "store": 1},
        files={"f": (40.0, ("store",)), "g": (30.0, ("store",)), "h": (50.0, ("store",))},
    )
    driver.wait_until(7.0)
    driver.submit(ask(part(5, "a", "f", "g"), part(5, "b", "h")))
    job = driver.job(1)
    assert (job.placed_at, job.start_estimate, job.first_start_estimate) == (7.0, 77.0, 77.0)
    assert job.awaiting_claims.claim_at == 7.0 + 0.75 * 70.0


def test_files_that_are_there_already_take_no_time_and_the_claim_is_made_at_once() -> None:
    """waiting -> placed -> starting"""
    driver = CoreDriver({"a": 10, "store": 4}, files={"f": (100.0, ("store",))})
    commands = driver.submit(ask(part(4, "store", "f")))
    assert [start.site for start in kind(commands, StartComponent)] == ["store"]
    assert kind(commands, StartTransfer) == []
    assert driver.job(1).start_estimate == 0.0


def test_the_claim_waits_until_the_fraction_l_of_the_transfer_has_passed() -> None:
    """waiting -> placed -> starting"""
    driver = claiming_driver()
    assert kind(driver.submit(ask(part(10, "a", "f"))), StartComponent) == []
    assert driver.state(1) is JobState.PLACED
    assert kind(driver.wait_until(74.9), StartComponent) == []
    (start,) = kind(driver.wait_until(75.0), StartComponent)
    assert (start.site, start.processors) == ("a", 10)
    assert driver.state(1) is JobState.STARTING


def test_failed_claims_come_ever_closer_to_the_start_and_below_one_second_is_reached() -> None:
    driver = claiming_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.report("a", others=1)
    driver.report("b", others=1)
    assert claiming_times(driver, 1, 100.0) == [75.0, 93.75, 98.4375, 100.0]
    assert 100.0 - (98.4375 + 0.75 * (100.0 - 98.4375)) < START_REACHED_S < 100.0 - 98.4375
    driver.wait_until(100.0)
    assert driver.state(1) is JobState.WAITING


def test_at_the_job_start_time_started_components_are_aborted_and_the_job_returns() -> None:
    """waiting -> placed -> claiming -> waiting"""
    driver = claiming_driver()
    driver.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    driver.wait_until(75.0)
    assert driver.state(1) is JobState.CLAIMING
    assert driver.tokens(1) == ["1.1"]
    driver.ready("1.1")
    assert kind(driver.wait_until(99.9), JobRequeued) == []
    commands = driver.wait_until(100.0)
    assert [(abort.site, abort.token) for abort in kind(commands, AbortComponent)] == [("a", "1.1")]
    (requeued,) = kind(commands, JobRequeued)
    assert requeued.reason == "1 of 2 components unclaimed at the job start time"
    assert {cancel.transfer for cancel in kind(commands, CancelTransfer)} == set(driver.transfers())
    assert driver.state(1) is JobState.WAITING
    assert [job.id for job in driver.ledger.low] == [1]
    assert_ledger_balances(driver.ledger)


def test_each_return_lowers_l_down_to_its_floor_and_the_next_claim_uses_it() -> None:
    """placed -> waiting, again and again"""
    driver = claiming_driver(scan_interval_s=0.0)
    driver.submit(ask(part(10, "a", "f")))
    fractions = []
    for _ in range(6):
        job = driver.job(1)
        assert job.placed_at == driver.now
        fractions.append((job.awaiting_claims.claim_at - driver.now) / 100.0)
        driver.report("a", others=1)
        driver.wait_until(driver.now + 100.0)
        assert driver.state(1) is JobState.WAITING
        driver.report("a", others=0)
        driver.settle()
    assert fractions == pytest.approx([0.75, 0.625, 0.5, 0.375, 0.25, 0.25])


def test_the_start_delay_is_told_by_the_first_and_the_last_job_start_time() -> None:
    """placed -> waiting -> placed -> starting -> running -> done"""
    driver = claiming_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.report("a", others=1)
    driver.wait_until(101.0)
    driver.report("a", others=0)
    driver.wait_until(108.0)
    assert driver.job(1).awaiting_claims.claim_at == 108.0 + 0.625 * 100.0
    driver.wait_until(208.0)
    driver.end_transfer(driver.transfers()[-1])
    driver.ready(*driver.tokens(1))
    driver.wait_until(300.0)
    driver.end(*driver.tokens(1))
    record = driver.ended(1)
    assert (record.first_start_estimate, record.last_start_estimate) == (100.0, 208.0)
    assert (record.placed_at, record.started_at, record.ended_at) == (108.0, 208.0, 300.0)
    assert (record.placement_tries, record.claiming_tries) == (2, 5)
    assert_clean(driver.ledger)


def test_a_preset_fraction_step_and_floor_are_used() -> None:
    driver = claiming_driver(claim_fraction=0.5, claim_fraction_step=0.2, claim_fraction_min=0.45)
    driver.submit(ask(part(10, "a", "f")))
    assert driver.job(1).awaiting_claims.claim_at == 50.0
    driver.report("a", others=1)
    driver.wait_until(101.0)
    driver.report("a", others=0)
    driver.wait_until(108.0)
    assert driver.job(1).awaiting_claims.claim_at == pytest.approx(108.0 + 45.0)


# -------------------------------------------------------------------------------------------- limits


def test_claiming_tries_used_up_fail_the_job() -> None:
    """placed -> failed"""
    driver = claiming_driver()
    driver.submit(ask(part(10, "a", "f"), claiming_tries_max=2))
    driver.report("a", others=1)
    assert kind(driver.wait_until(98.0), JobEnded) == []
    (record,) = kind(driver.wait_until(99.0), JobEnded)
    assert (record.outcome, record.claiming_tries) == (JobOutcome.FAILED, 2)
    assert record.reason == "not all components could be claimed in 2 tries"
    assert_clean(driver.ledger)


def test_claiming_tries_are_limited_also_where_no_file_has_to_be_brought() -> None:
    """starting -> waiting -> starting -> waiting -> ... -> failed"""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=100)
    driver.submit(ask(10, claiming_tries_max=2))
    for _ in range(4):
        driver.pass_time(1.0)
        if 1 in driver.ledger.jobs:
            driver.end(*driver.tokens(1), outcome=Outcome.REFUSED)
            driver.settle()
    assert 1 not in driver.ledger.jobs
    assert (driver.ended(1).outcome, driver.ended(1).claiming_tries) == (JobOutcome.FAILED, 2)


def test_an_atomic_claim_starts_nothing_while_one_component_cannot_start() -> None:
    """waiting -> placed -> starting"""
    driver = claiming_driver(claim_threshold=1.0)
    driver.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    assert kind(driver.wait_until(93.0), StartComponent) == []
    assert driver.state(1) is JobState.PLACED
    driver.report("b", others=0)
    assert [start.site for start in kind(driver.wait_until(93.75), StartComponent)] == ["b", "a"]
    assert driver.state(1) is JobState.STARTING


@pytest.mark.parametrize(("threshold", "claimed"), [(0.5, 1), (0.51, 0)])
def test_a_claim_goes_on_when_the_fraction_of_startable_components_reaches_t(threshold: float, claimed: int) -> None:
    driver = claiming_driver(claim_threshold=threshold)
    driver.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    driver.wait_until(75.0)
    assert len(driver.tokens(1)) == claimed


def test_components_that_were_claimed_before_count_towards_t() -> None:
    """placed -> claiming, and the second claim finds 1 of 2 started already"""
    driver = claiming_driver(claim_threshold=0.5)
    driver.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    driver.wait_until(75.0)
    driver.report("a", others=10)
    driver.report("b", others=0)
    driver.wait_until(93.75)
    assert driver.state(1) is JobState.STARTING


# --------------------------------------------------------------------------------- competing claims


def test_placed_processors_are_not_held_by_default_so_another_job_may_take_them() -> None:
    driver = claiming_driver()
    driver.submit(ask(part(10, "a", "f")))
    assert driver.idle("a") == 10
    driver.submit(ask(part(10, "a")))
    assert driver.state(2) is JobState.STARTING


def test_placed_processors_are_held_when_the_grid_says_so() -> None:
    driver = claiming_driver(hold_placed=True)
    driver.submit(ask(part(8, "a", "f")))
    assert driver.idle("a") == 2
    driver.submit(ask(part(3, "a")))
    assert driver.state(2) is JobState.WAITING
    driver.wait_until(75.0)
    assert driver.state(1) is JobState.STARTING
    assert_ledger_balances(driver.ledger)


# -------------------------------------------------------------------------------------- re-placement


def replacement_driver(**parameters: Any) -> CoreDriver:
    """The file is at ``far`` and at ``near``, which has room for the component."""
    return CoreDriver({"a": 10, "far": 1, "near": 10}, files={"f": (100.0, ("far", "near"))}, **parameters)


def test_a_component_that_cannot_start_moves_where_its_file_can_be_in_time() -> None:
    """waiting -> placed -> starting: at 75 only the site that has the file can have it before 100"""
    driver = replacement_driver()
    driver.report("near", others=10)
    driver.submit(ask(part(10, None, "f")))
    assert driver.job(1).places == (("a", 10),)
    driver.report("a", others=10)
    driver.report("near", others=0)
    commands = driver.wait_until(75.0)
    assert [start.site for start in kind(commands, StartComponent)] == ["near"]
    assert [cancel.transfer for cancel in kind(commands, CancelTransfer)] == driver.transfers()
    assert driver.job(1).start_estimate == 100.0
    assert_ledger_balances(driver.ledger)
    assert kind(driver.ready(*driver.tokens(1)), ReleaseBarrier) != []


def test_a_component_stays_where_no_other_transfer_would_end_before_the_start() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.report("b", others=10)
    driver.submit(ask(part(10, None, "f")))
    driver.report("a", others=10)
    driver.report("b", others=0)
    assert kind(driver.wait_until(99.0), StartComponent) == []
    assert driver.job(1).places == (("a", 10),)


def test_the_transfer_of_a_moved_component_starts_at_once_and_the_old_one_is_cancelled() -> None:
    """Two components: the one with the long file sets the start at 100, the other's short file can still move."""
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",)), "g": (20.0, ("store",))})
    driver.submit(ask(part(4, "a", "f"), part(6, None, "g")))
    assert driver.job(1).places == (("a", 4), ("b", 6))
    driver.report("b", others=10)
    commands = driver.wait_until(75.0)
    (moved,) = kind(commands, StartTransfer)
    assert (moved.file, moved.source, moved.target) == ("g", "store", "a")
    (cancelled,) = kind(commands, CancelTransfer)
    assert cancelled.transfer == next(each.transfer for each in driver.all(StartTransfer) if each.target == "b")
    assert {start.site for start in kind(commands, StartComponent)} == {"a"}
    driver.wait_until(95.0)
    driver.ready(*driver.tokens(1))
    driver.end_transfer(moved.transfer)
    assert driver.state(1) is JobState.STARTING
    driver.end_transfer(driver.transfers()[0])
    assert driver.state(1) is JobState.RUNNING
    assert_ledger_balances(driver.ledger)


def test_a_transfer_that_another_component_still_needs_is_not_cancelled_by_a_move() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",)), "g": (20.0, ("store",))})
    driver.submit(ask(part(8, "a", "f"), part(5, "b", "g"), part(5, None, "g")))
    assert [site for site, _ in driver.job(1).places] == ["a", "b", "b"]
    driver.report("a", others=2, processors=15)
    driver.report("b", others=5)
    commands = driver.wait_until(75.0)
    assert [each.target for each in kind(commands, StartTransfer)] == ["a"]
    assert kind(commands, CancelTransfer) == []
    assert_ledger_balances(driver.ledger)


def test_a_component_whose_site_the_user_chose_is_not_moved() -> None:
    driver = replacement_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.report("a", others=10)
    assert kind(driver.wait_until(99.0), StartComponent) == []
    assert driver.job(1).places == (("a", 10),)


def test_the_components_of_one_claim_do_not_take_the_same_processors_twice() -> None:
    """Two components are stuck and one site has room for one of them only."""
    driver = CoreDriver({"a": 12, "far": 1, "near": 6}, files={"f": (100.0, ("far", "near"))})
    driver.report("near", others=6)
    driver.submit(ask(part(6, None, "f"), part(6, None, "f")))
    driver.report("a", others=12)
    driver.report("near", others=0)
    assert [start.site for start in kind(driver.wait_until(75.0), StartComponent)] == ["near"]
    assert driver.state(1) is JobState.CLAIMING
    assert_ledger_balances(driver.ledger)


# ------------------------------------------------------------------------- sites that do not take part


@pytest.mark.parametrize("hold_placed", [False, True])
def test_nothing_is_claimed_on_a_site_that_was_drained_after_the_placement(hold_placed: bool) -> None:
    """An operator's word holds for placed jobs too: nothing new goes there."""
    driver = claiming_driver(hold_placed=hold_placed)
    driver.submit(ask(part(10, "a", "f")))
    driver.send(SiteDrained(at=1.0, site="a"))
    assert kind(driver.wait_until(99.0), StartComponent) == []
    driver.wait_until(100.0)
    assert driver.state(1) is JobState.WAITING


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT])
def test_a_component_that_its_site_did_not_take_is_claimed_again_while_there_is_time(outcome: Outcome) -> None:
    """placed -> starting -> claiming -> starting"""
    driver = claiming_driver()
    driver.submit(ask(part(6, "a", "f"), part(6, "b", "f")))
    driver.wait_until(76.0)
    assert driver.end("1.2", outcome=outcome) == []
    assert driver.state(1) is JobState.CLAIMING
    assert driver.job(1).awaiting_claims.claim_at == 76.0 + 0.75 * 24.0
    assert_ledger_balances(driver.ledger)
    (start,) = kind(driver.wait_until(94.0), StartComponent)
    assert (start.site, start.part, start.token) == ("b", 1, "1.3")
    assert driver.state(1) is JobState.STARTING
    assert driver.job(1).claim_fraction == 0.75


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT])
def test_after_the_job_start_time_a_component_that_was_not_taken_returns_the_job(outcome: Outcome) -> None:
    """starting -> waiting"""
    driver = claiming_driver()
    driver.submit(ask(part(6, "a", "f"), part(6, "b", "f")))
    driver.wait_until(101.0)
    commands = driver.end("1.2", outcome=outcome, reason="no queue for you")
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1"]
    (requeued,) = kind(commands, JobRequeued)
    assert "no queue for you" in requeued.reason
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)


def test_claims_that_succeeded_do_not_count_against_the_limit() -> None:
    """running -> unwinding -> waiting -> placed -> starting"""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(10, claiming_tries_max=1))
    driver.pass_time(50.0)
    driver.end(*driver.tokens(1), outcome=Outcome.SITE_FAILED)
    driver.settle()
    assert driver.state(1) is JobState.STARTING


def test_a_job_out_of_claiming_tries_fails_at_once_and_not_at_its_next_placement() -> None:
    """placed -> failed"""
    driver = claiming_driver()
    driver.submit(ask(part(10, "a", "f"), claiming_tries_max=1))
    driver.report("a", others=1)
    driver.wait_until(100.0)
    assert driver.ended(1).reason == "not all components could be claimed in 1 try"


def test_a_component_moves_to_a_site_where_the_jobs_own_transfer_has_brought_its_file() -> None:
    """placed -> claiming -> starting"""
    driver = CoreDriver({"a": 20, "b": 16, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(10, None, "f")))
    assert driver.job(1).places == (("a", 5), ("b", 10))
    driver.report("b", others=16)
    driver.end_transfer(driver.transfers()[0])
    driver.wait_until(75.0)
    assert driver.job(1).places == (("a", 5), ("a", 10))
    assert driver.state(1) is JobState.STARTING
