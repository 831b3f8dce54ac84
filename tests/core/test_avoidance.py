"""After a run that failed a job rests, and goes elsewhere as long as there is another way."""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.core.failures.avoidance import AVOIDED_MAX
from koala.model.errors import Fault
from koala.model.facts import JobPlaced
from koala.model.grid import RESTART_REST_S_MAX
from koala.model.messages import ChangeAsked, JobOutcome, Outcome, SiteDrained, SiteResumed, StartComponent
from koala.model.request import Priority
from koala.policies.interface import can_ever_fit
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of


def _fail(driver: CoreDriver, exit_code: int | None = 1, outcome: Outcome = Outcome.FAILED) -> str:
    """Let the job's component fail; the site at which it did."""
    driver.settle()
    (claim,) = driver.job(1).placed.claims
    assert claim is not None
    driver.ready(claim.token)
    driver.pass_time(1.0)
    driver.end(claim.token, outcome=outcome, exit_code=exit_code)
    return driver.ledger.names[claim.site]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SITE_FAILED])
def test_a_restart_goes_to_other_sites_before_one_comes_again(outcome: Outcome) -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, scan_interval_s=0.0)
    driver.submit(ask(5, restarts_max=5))
    where = [_fail(driver, outcome=outcome) for _ in range(5)]
    assert where == ["a", "b", "c", "a", "b"]  # the oldest failure is forgotten first
    assert_ledger_balances(driver.ledger)


def test_a_job_without_another_way_goes_where_it_failed() -> None:
    driver = CoreDriver({"a": 10, "b": 4}, scan_interval_s=0.0)
    driver.submit(ask(5))
    assert [_fail(driver), _fail(driver), _fail(driver)] == ["a", "a", "a"]
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert_clean(driver.ledger)


def test_a_job_waits_for_the_other_site_while_that_is_busy_and_goes_back_when_it_has_avoided_for_long() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, avoid_failed_s=100.0, check_interval_s=None)
    driver.submit(ask(5))
    driver.run(ask(part(9, "b")))
    _fail(driver)
    driver.pass_time(50.0)
    assert driver.state(1) is JobState.WAITING
    assert "it avoids a, where a run of it failed, while other sites have room" in driver.story(1)
    driver.pass_time(51.0)
    assert driver.state(1) is JobState.STARTING
    assert driver.job(1).places == (("a", 5),)


def test_a_job_whose_priority_is_changed_while_it_rests_rests_on() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, check_interval_s=None, restart_rest_s=60.0)
    driver.submit(ask(5))
    _fail(driver)
    driver.pass_time(20.0)
    driver.send(ChangeAsked(at=driver.now, job=1, priority=Priority.HIGH))
    driver.pass_time(39.0)
    assert driver.state(1) is JobState.WAITING
    driver.pass_time(2.0)
    assert driver.state(1) is JobState.STARTING
    assert_ledger_balances(driver.ledger)


def test_what_a_job_avoids_follows_the_sites_that_are_taken_out_and_put_back() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, check_interval_s=None, restart_rest_s=60.0)
    driver.submit(ask(5))
    _fail(driver)
    assert driver.job(1).avoiding == ("a",)
    driver.send(SiteDrained(at=driver.now, site="b"))
    assert driver.job(1).avoiding == ()
    driver.send(SiteResumed(at=driver.now, site="b"))
    assert driver.job(1).avoiding == ("a",)
    driver.send(SiteDrained(at=driver.now, site="b"))
    driver.pass_time(60.0)
    assert driver.job(1).places == (("a", 5),)


def test_a_job_in_line_keeps_its_place_when_it_need_not_avoid_any_more() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, check_interval_s=None)
    driver.submit(ask(5))
    driver.run(ask(part(9, "b")))
    _fail(driver)
    assert driver.state(1) is JobState.WAITING
    driver.run(ask(part(10, "a")))
    driver.submit(ask(5))
    driver.send(SiteDrained(at=driver.now, site="b"))
    assert [job.id for job in driver.ledger.low] == [1, 4]
    driver.end(*driver.tokens(3))
    driver.settle()
    assert driver.job(1).places == (("a", 5),)


def test_components_with_sites_of_their_own_go_back_there() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.submit(ask(part(5, "a")))
    assert [_fail(driver), _fail(driver)] == ["a", "a"]


def test_what_is_avoided_has_a_bound() -> None:
    names = [f"s{number:02}" for number in range(AVOIDED_MAX + 3)]
    driver = CoreDriver(dict.fromkeys(names, 10), scan_interval_s=0.0)
    driver.submit(ask(5, restarts_max=100))
    assert [_fail(driver) for _ in range(AVOIDED_MAX + 2)] == [*names[: AVOIDED_MAX + 1], names[0]]
    assert len(driver.job(1).avoided) == AVOIDED_MAX


def test_restarts_rest_twice_as_long_each_time_up_to_a_bound() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, restart_rest_s=100.0)
    driver.submit(ask(5, restarts_max=10))
    for rest_s in (100.0, 200.0, 400.0, RESTART_REST_S_MAX, RESTART_REST_S_MAX):
        _fail(driver)
        assert f"it rests for {rest_s:g} s before it is placed again" == driver.story(1)[-1]
        assert kind(driver.pass_time(rest_s - 1.0), JobPlaced) == []
        assert kind(driver.pass_time(1.0), JobPlaced) != []


def test_what_the_site_says_was_its_own_doing_restarts_at_once_and_anywhere() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, restart_rest_s=100.0)
    driver.run(ask(5))
    driver.end(*driver.tokens(1), outcome=Outcome.SITE_FAILED, fault=Fault.SITE)
    driver.pass_time(1.0)
    assert driver.job(1).places == (("a", 5),)


@pytest.mark.parametrize(
    ("codes", "exit_code", "why"),
    [
        ({"never_on": (3,)}, 3, "after which it is never started again (never_on)"),
        ({"never_on": (3,)}, 4, None),
        ({"retry_on": (75,)}, 3, "not among those after which it is started again (retry_on)"),
        ({"retry_on": (75,)}, 75, None),
        ({"retry_on": (75,)}, None, None),
    ],
)
def test_exit_codes_say_whether_a_job_is_started_again(
    codes: dict[str, Any], exit_code: int | None, why: str | None
) -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.submit(ask(5, **codes))
    _fail(driver, exit_code)
    if why is None:
        driver.settle()
        assert driver.job(1).places == (("b", 5),)
    else:
        assert why in driver.ended(1).reason


def test_a_component_is_told_which_run_it_is_for() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.submit(ask(5))
    driver.end(*driver.tokens(1), outcome=Outcome.REFUSED)  # it has not run
    driver.pass_time(70.0)
    _fail(driver)
    driver.settle()
    assert [start.run for start in driver.all(StartComponent)] == [1, 1, 2]


def test_what_a_job_avoids_survives_a_restart_of_the_scheduler() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, restart_rest_s=10.0)
    driver.submit(ask(5))
    _fail(driver)
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    driver.pass_time(10.0)
    assert driver.job(1).places == (("b", 5),)
    assert_ledger_balances(driver.ledger)


def test_when_a_site_is_taken_out_jobs_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = CoreDriver({"a": 10, "b": 10, "c": 10}, scan_interval_s=0.0, restart_rest_s=1000.0, restarts_max=9)
    for job in range(1, 6):
        token = driver.run(ask(part(6), restarts_max=9))[0]
        driver.end(token, outcome=Outcome.FAILED, exit_code=1)
        assert driver.job(job).avoiding == ("a",)
    asked = []

    def counted(*question: Any) -> bool:
        asked.append(question)
        return can_ever_fit(*question)

    monkeypatch.setattr("koala.core.failures.avoidance.can_ever_fit", counted)
    driver.send(SiteDrained(at=driver.now, site="b"))
    driver.send(SiteDrained(at=driver.now, site="c"))
    assert len(asked) == 2
    assert {driver.job(job).avoiding for job in range(1, 6)} == {()}
    assert_ledger_balances(driver.ledger)
