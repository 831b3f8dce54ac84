"""Early claims: shortly before the time of its plan a job claims its places and keeps them, within a budget.

Site a is idle and local users hold site b until 500 s; the job wants both, and is planned for then.
"""

from __future__ import annotations

from typing import Any

from koala.core import JobState
from koala.model.messages import AbortComponent, SiteDrained, SiteReported, StartComponent, StartTransfer
from koala.policies import Catalogue
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of

PLANNED_AT = 500.0


def make_driver(**parameters: Any) -> CoreDriver:
    chosen: dict[str, Any] = {
        "scan_interval_s": 0.0,
        "plan_depth": 1,
        "check_interval_s": None,
        "barrier_timeout_s": 100.0,
        "hold_budget": 0.05,
        "hold_budget_per_job": 0.05,
        "hold_ahead_s": 50.0,
    }
    driver = CoreDriver({"a": 10, "b": 10}, **chosen | parameters)
    others_hold(driver, 10)
    driver.submit(ask(part(10, "a"), part(10, "b"), walltime_s=1_000.0))
    driver.settle()
    assert driver.job(1).plan_at == PLANNED_AT
    return driver


def others_hold(driver: CoreDriver, processors: int) -> None:
    releases = ((PLANNED_AT, processors),) if processors else ()
    now = driver.ledger.now
    driver.send(SiteReported(at=now, site="b", processors=10, others=processors, releases=releases))


def started_at(driver: CoreDriver) -> list[float]:
    return driver.times(StartComponent)


def test_it_claims_what_is_there_and_stands_in_line_for_the_rest() -> None:
    """waiting -> placed -> starting -> running"""
    driver = make_driver()
    driver.wait_until(449.0)
    assert driver.state(1) is JobState.WAITING
    driver.wait_until(451.0)
    assert started_at(driver) == [450.0, 450.0]
    assert [command.begin_at for command in driver.all(StartComponent)] == [PLANNED_AT, PLANNED_AT]
    assert driver.state(1) is JobState.STARTING
    assert_ledger_balances(driver.ledger)
    assert "its plan is near: it claims its places, and keeps them for at most 150 s (hold_budget)" in driver.story(1)
    driver.ready("1.1")
    driver.accept("1.2")
    driver.wait_until(500.0)
    others_hold(driver, 0)
    driver.ready("1.2")
    assert (driver.state(1), driver.job(1).wasted_processor_s) == (JobState.RUNNING, 500.0)
    assert [site.early_wasted_processor_s for site in driver.ledger.sites] == [500.0, 0.0]
    assert not driver.job(1).claims_early
    driver.end("1.1", "1.2")
    assert_clean(driver.ledger)


def test_nobody_else_takes_what_it_keeps() -> None:
    driver = make_driver()
    driver.wait_until(451.0)
    driver.submit(ask(10, walltime_s=10.0))
    driver.settle()
    assert driver.state(2) is JobState.WAITING


def test_without_a_budget_nothing_is_claimed_early() -> None:
    driver = make_driver(hold_budget=0.0)
    driver.wait_until(499.0)
    assert started_at(driver) == []


def test_it_claims_when_the_rest_of_the_time_can_be_paid_for() -> None:
    # One job may keep 20 processors for 110 s, and gives up 100 s after the time of its plan.
    driver = make_driver(hold_window_s=1_000.0, hold_budget=1.0, hold_budget_per_job=0.11)
    driver.wait_until(499.0)
    assert started_at(driver) == [490.0, 490.0]
    driver = make_driver(hold_window_s=1_000.0, hold_budget=0.11, hold_budget_per_job=1.0)
    driver.wait_until(499.0)
    assert started_at(driver) == [490.0, 490.0]


def test_all_is_given_back_where_the_rest_does_not_come_and_the_budget_is_spent() -> None:
    """starting -> waiting"""
    driver = make_driver(hold_window_s=1_000.0, hold_budget=0.15, hold_budget_per_job=0.15)
    driver.wait_until(451.0)
    driver.ready("1.1")
    driver.accept("1.2")
    driver.wait_until(599.0)
    assert driver.state(1) is JobState.STARTING
    commands = driver.wait_until(600.0)
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1", "1.2"]
    assert driver.state(1) is JobState.WAITING
    assert any("what it claimed early is given back" in line for line in driver.story(1))
    assert driver.ledger.kept_early == [(1, 20, 450.0, 600.0)]
    driver.wait_until(700.0)
    assert len(started_at(driver)) == 2


def test_what_was_kept_counts_no_more_after_the_window() -> None:
    driver = make_driver(hold_window_s=1_000.0, hold_budget=0.15, hold_budget_per_job=0.15)
    driver.wait_until(460.0)
    driver.cancel(1)
    assert driver.ledger.kept_early == [(1, 20, 450.0, 460.0)]  # it pays for as long as it kept them
    driver.pass_time(1_000.0)
    driver.submit(ask(1))
    assert driver.ledger.kept_early == []


def with_a_file(transfer_s: float, **parameters: Any) -> CoreDriver:
    """The same, where the job reads a file that is at b."""
    driver = CoreDriver(
        {"a": 10, "b": 10},
        files={"f": (transfer_s, ("b",))},
        scan_interval_s=0.0,
        plan_depth=1,
        check_interval_s=None,
        barrier_timeout_s=100.0,
        hold_budget=0.05,
        hold_budget_per_job=0.05,
        hold_ahead_s=50.0,
        **parameters,
    )
    others_hold(driver, 10)
    driver.submit(ask(part(10, "a", "f"), part(10, "b"), walltime_s=1_000.0))
    driver.settle()
    assert driver.job(1).plan_at == PLANNED_AT
    return driver


def test_its_files_are_brought_while_it_waits_at_the_barrier() -> None:
    """waiting -> placed -> starting -> running"""
    driver = with_a_file(40.0)
    driver.wait_until(451.0)
    assert (started_at(driver), driver.times(StartTransfer)) == ([450.0, 450.0], [450.0])
    driver.ready("1.1", "1.2")
    driver.wait_until(490.0)
    assert driver.state(1) is JobState.STARTING
    driver.end_transfer("t1")
    assert driver.state(1) is JobState.RUNNING
    assert_ledger_balances(driver.ledger)


def test_where_its_files_do_not_come_in_time_all_is_given_back() -> None:
    """waiting -> placed -> starting -> waiting"""
    driver = with_a_file(40.0, answer_timeout_s=200.0)
    driver.wait_until(451.0)
    driver.ready("1.1", "1.2")
    driver.wait_until(599.0)
    assert driver.state(1) is JobState.STARTING
    commands = driver.wait_until(600.0)
    assert len(kind(commands, AbortComponent)) == 2
    assert any("given back: its files were not there in time" in line for line in driver.story(1))


def test_who_has_files_that_take_longer_than_until_its_plan_claims_nothing_early() -> None:
    driver = with_a_file(60.0)
    driver.wait_until(499.0)
    assert started_at(driver) == []


def test_for_what_our_own_jobs_hold_it_waits_until_they_let_go() -> None:
    """placed -> claiming -> starting"""
    driver = CoreDriver(
        {"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1, hold_budget=1.0, hold_budget_per_job=1.0
    )
    low = driver.run(ask(part(10, "b"), walltime_s=300.0))
    driver.submit(ask(part(10, "a"), part(10, "b")))
    driver.wait_until(10.0)
    assert (driver.state(2), [claim is None for claim in driver.job(2).placed.claims]) == (
        JobState.CLAIMING,
        [False, True],
    )
    driver.end(*low)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_no_claim_is_made_where_a_site_is_drained() -> None:
    driver = make_driver()
    driver.wait_until(440.0)
    driver.send(SiteDrained(at=440.0, site="b"))
    driver.wait_until(499.0)
    assert started_at(driver) == []


def test_no_claim_is_made_by_a_plan_whose_time_is_over() -> None:
    """As when all its sites were shut until then."""
    driver = make_driver()
    early = driver.scheduler._placement.early
    now = driver.ledger.now
    driver.job(1).planned.at = now - 100.0  # it would give back at once what it claims
    assert early.due() is None
    driver.job(1).planned.at = now - 99.0
    assert early.due() is driver.job(1)


def test_the_records_keep_what_is_kept() -> None:
    driver = make_driver()
    driver.wait_until(451.0)
    again = scheduler_of(driver.scheduler.grid, Catalogue.builtin(), records_of(driver.scheduler))
    assert again.ledger.kept_early == [(1, 20, 450.0, 600.0)]
    assert again.ledger.jobs[1].early_until == 600.0
