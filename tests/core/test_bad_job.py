"""A job that breaks its own components is to blame, not the sites: it costs one site its trust at most, and ends."""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.core.state.site_belief import Trust
from koala.model.errors import Fault
from koala.model.facts import JobEnded
from koala.model.grid import RESTARTS_WITHOUT_REST_MAX
from koala.model.messages import JobOutcome, Outcome, SiteDrained, SiteResumed, StartComponent
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, part
from tests.support.core_records import records_of, scheduler_of


def _trusted(driver: CoreDriver) -> dict[str, bool]:
    return {site.name: site.trust is Trust.USABLE for site in driver.ledger.sites}


def _errors(driver: CoreDriver) -> dict[str, int]:
    return {site.name: site.errors for site in driver.ledger.sites}


def _break(driver: CoreDriver, job_id: int = 1) -> str:
    """Let the job's only component reach the barrier and break; the site at which it did."""
    driver.pass_time(70.0)  # longer than any rest after a quick return
    (claim,) = driver.job(job_id).placed.claims
    assert claim is not None
    driver.ready(claim.token)
    assert driver.state(job_id) is JobState.RUNNING
    driver.end(claim.token, outcome=Outcome.SITE_FAILED, reason="its directory at the site was removed")
    return driver.ledger.names[claim.site]


def _end_of_run(
    driver: CoreDriver, outcome: Outcome, *, fault: Fault | None = None, exit_code: int | None = None
) -> None:
    """Let the job's only component reach the barrier, and end there."""
    driver.pass_time(70.0)
    (claim,) = driver.job(1).placed.claims
    assert claim is not None
    driver.ready(claim.token)
    driver.end(claim.token, outcome=outcome, fault=fault, reason="its link has no name", exit_code=exit_code)


def test_a_job_that_breaks_its_components_on_two_sites_ends_and_costs_no_site_its_trust() -> None:
    """running -> unwinding -> waiting, on one site until that is unusable, then on another; then failed"""
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, scan_interval_s=0.0, restarts_max=3, avoid_failed_s=0.0)
    driver.submit(ask(5))
    where: list[str] = []
    while driver.job(1).state is not JobState.FAILED and len(where) < 50:
        where.append(_break(driver))
        if len(where) == 5:
            assert _trusted(driver) == {"a": False, "b": True, "c": True}
        if len(where) == 6:
            assert all(_trusted(driver).values())  # and what it had cost the first is taken back
    assert where[:6] == ["a"] * 5 + ["b"]
    assert len(where) == 5 + 3 + 1  # the site's failures, then those of the application up to its limit
    assert _errors(driver) == {"a": 0, "b": 0, "c": 0}
    (ended,) = driver.all(JobEnded)
    assert ended.outcome is JobOutcome.FAILED
    assert ended.reason.endswith(
        "the job itself is to blame, as it broke a component on a and on b, after 8 restarts"
    )
    assert (
        sum("the job itself is to blame" in line and "failure of its application" in line for line in driver.story(1))
        == 1
    )
    assert "a is trusted again" in driver.story(1)
    assert_clean(driver.ledger)


def test_a_job_that_avoids_where_it_broke_is_to_blame_at_the_second_site() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, scan_interval_s=0.0, restarts_max=3)
    driver.submit(ask(5))
    where = [_break(driver) for _ in range(1 + 3 + 1)]
    assert where[:3] == ["a", "b", "c"]
    assert driver.job(1).state is JobState.FAILED
    assert all(_trusted(driver).values())


def test_a_job_that_breaks_again_where_another_has_done_well_since_is_to_blame() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(5))
    _break(driver)
    driver.run(ask(5))
    assert _errors(driver) == {"a": 1}
    driver.end("2.1")
    assert _errors(driver) == {"a": 0}
    _break(driver)
    assert _errors(driver) == {"a": 0}
    assert "as it broke a component on a again, where others do well" in "\n".join(driver.story(1))


def test_a_job_that_did_well_in_part_is_no_proof_that_its_site_is_well() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(part(2, "a"), part(2, "a")))
    for first, second in (("1.1", "1.2"), ("1.3", "1.4")):
        driver.pass_time(70.0)
        driver.ready(first)
        driver.ready(second)
        driver.end(first)
        driver.end(second, outcome=Outcome.SITE_FAILED)
    assert _errors(driver) == {"a": 1}
    assert not driver.job(1).to_blame


def test_what_breaks_before_the_barrier_is_never_the_jobs_doing() -> None:
    """No application ran: starting -> waiting."""
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, error_threshold=1)
    driver.submit(ask(5))
    for token in ("1.1", "1.2"):
        driver.pass_time(70.0)
        driver.end(token, outcome=Outcome.SITE_FAILED)
    assert _trusted(driver) == {"a": False, "b": False}
    assert not driver.job(1).to_blame


def test_restarts_are_bounded_also_where_sites_are_to_blame() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=100, site_restarts_max=4, restarts_max=None)
    driver.submit(ask(5))
    for _ in range(5):
        _break(driver)
    (ended,) = driver.all(JobEnded)
    assert ended.outcome is JobOutcome.FAILED
    assert ended.reason == "component 0 failed on a: its directory at the site was removed, after 4 restarts"
    assert len(driver.all(StartComponent)) == 5


def test_restarts_of_a_job_that_is_to_blame_are_bounded_also_without_a_limit_of_its_own() -> None:
    driver = CoreDriver(
        {"a": 10, "b": 9}, scan_interval_s=0.0, error_threshold=1, site_restarts_max=4, restarts_max=None
    )
    driver.submit(ask(5))
    tries = 0
    while driver.job(1).state is not JobState.FAILED and tries < 50:
        _break(driver)
        tries += 1
    assert tries == 4 + 1


@pytest.mark.parametrize("fault", [Fault.JOB, Fault.SITE, Fault.OURS])
def test_what_breaks_is_counted_anew_after_a_run_in_which_the_application_returned(fault: Fault) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=100, site_restarts_max=4, restarts_max=None)
    driver.submit(ask(5))
    for _ in range(3):
        for _ in range(4):
            _end_of_run(driver, Outcome.SITE_FAILED, fault=fault)
        _end_of_run(driver, Outcome.FAILED, exit_code=1)
    for _ in range(4):
        _end_of_run(driver, Outcome.SITE_FAILED, fault=fault)
    assert driver.job(1).state is not JobState.FAILED
    _end_of_run(driver, Outcome.SITE_FAILED, fault=fault)
    (ended,) = driver.all(JobEnded)
    assert ended.reason == "component 0 failed on a: its link has no name, after 19 restarts"
    assert len(driver.all(StartComponent)) == 20


def test_a_job_that_restarts_very_often_rests_although_the_grid_asks_for_no_rests() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, restarts_max=None, restart_rest_s=0.0, avoid_failed_s=0.0)
    driver.submit(ask(5))
    for _ in range(RESTARTS_WITHOUT_REST_MAX):
        _end_of_run(driver, Outcome.FAILED, exit_code=1)
        assert not driver.story(1)[-1].startswith("it rests")
    for rest_s in (1, 2, 4):
        _end_of_run(driver, Outcome.FAILED, exit_code=1)
        assert driver.story(1)[-1] == f"it rests for {rest_s} s before it is placed again"


def test_the_blame_survives_a_restart_of_the_scheduler() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, error_threshold=1)
    driver.submit(ask(5))
    _break(driver)
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    _break(driver)
    assert driver.job(1).to_blame == "it broke a component on a and on b"
    assert all(_trusted(driver).values())
    assert_ledger_balances(driver.ledger)


def test_a_site_that_an_operator_trusts_again_is_not_proven_to_be_well() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(5))
    _break(driver)
    driver.send(SiteResumed(at=driver.now, site="a"))
    assert _errors(driver) == {"a": 0}
    _break(driver)
    assert _errors(driver) == {"a": 1}
    assert not driver.job(1).to_blame


def test_where_sites_say_that_their_nodes_failed_the_job_is_not_to_blame() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, restarts_max=0)
    driver.submit(ask(5))
    where = []
    for _ in range(7):
        driver.pass_time(70.0)  # longer than any rest after a quick return
        (claim,) = driver.job(1).placed.claims
        assert claim is not None
        driver.ready(claim.token)
        where.append(driver.ledger.names[claim.site])
        driver.end(claim.token, outcome=Outcome.SITE_FAILED, reason="x", fault=Fault.SITE)
    assert set(where) == {"a", "b"}
    assert driver.job(1).to_blame == ""
    assert driver.job(1).state is not JobState.FAILED


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_site_at_which_all_fails_is_taken_out_at_the_threshold_unless_its_job_has_another_place_before(
    elsewhere: bool,
) -> None:
    """Its operator ends whatever starts there. A job that does well elsewhere after one error leaves it at that."""
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, error_threshold=2, cooldown_s=6_000.0, restarts_max=10)
    for site in ("b", "c"):
        driver.send(SiteDrained(at=driver.now, site=site))
    driver.submit(ask(5))
    assert _break(driver) == "a"
    if not elsewhere:
        assert _break(driver) == "a"
        driver.pass_time(70.0)
        assert driver.state(1) is JobState.WAITING, "nothing else is to be had"
    for site in ("b", "c"):
        driver.send(SiteResumed(at=driver.now, site=site))
    driver.pass_time(70.0)
    (claim,) = driver.job(1).placed.claims
    assert claim is not None
    assert driver.ledger.names[claim.site] == "b"
    driver.ready(claim.token)
    driver.end(claim.token)
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert _trusted(driver) == {"a": elsewhere, "b": True, "c": True}
