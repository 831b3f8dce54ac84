"""Whether a site is used: errors, cool-down, the probe with one job, and the operator's word."""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.core.state.site_belief import Trust
from koala.model.facts import JobPlaced
from koala.model.messages import Outcome, SiteDrained, SiteResumed, SiteSilent, StartComponent
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, kind, part


def silence(driver: CoreDriver, site: str, times: int) -> None:
    """The site does not answer so often, and then it does."""
    for _ in range(times):
        driver.send(SiteSilent(at=driver.now, site=site, reason="no route to host"))
    driver.report(site, others=0)


def trust(driver: CoreDriver, site: str) -> Trust:
    return driver.ledger.sites.sites[driver.ledger.index[site]].trust


def test_consecutive_errors_up_to_the_threshold_make_a_site_unusable() -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    silence(driver, "a", 4)
    assert (trust(driver, "a"), driver.idle("a")) == (Trust.USABLE, 10)
    silence(driver, "a", 1)
    assert (trust(driver, "a"), driver.idle("a")) == (Trust.UNUSABLE, 0)
    assert kind(driver.submit(ask(5)), JobPlaced) == [JobPlaced(job=1, places=(("b", 5),))]


@pytest.mark.parametrize("outcome", [Outcome.SITE_FAILED, Outcome.ABSENT, Outcome.REFUSED, Outcome.ABORTED])
def test_a_component_that_its_site_broke_or_refused_counts_as_an_error(outcome: Outcome) -> None:
    driver = CoreDriver({"a": 10}, error_threshold=1)
    driver.run(ask(9))
    driver.end("1.1", outcome=outcome)
    assert trust(driver, "a") is Trust.UNUSABLE


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_failure_of_the_application_is_not_the_sites_error(outcome: Outcome) -> None:
    driver = CoreDriver({"a": 10}, error_threshold=1)
    driver.run(ask(9))
    driver.end("1.1", outcome=outcome)
    assert trust(driver, "a") is Trust.USABLE


def test_what_we_aborted_ourselves_is_not_the_sites_error() -> None:
    driver = CoreDriver({"a": 10}, error_threshold=1)
    driver.run(ask(9))
    driver.cancel(1)
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert trust(driver, "a") is Trust.USABLE


def test_a_success_resets_the_count() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(5))
    silence(driver, "a", 4)
    driver.end("1.1")
    silence(driver, "a", 4)
    assert trust(driver, "a") is Trust.USABLE


def test_after_the_cool_down_the_site_is_probed_with_exactly_one_job() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, cooldown_s=600.0)
    silence(driver, "a", 5)
    for _ in range(3):
        driver.submit(ask(2))
    assert kind(driver.wait_until(599.9), JobPlaced) == []
    placed = kind(driver.wait_until(600.0), JobPlaced)
    assert [record.job for record in placed] == [1]
    assert (trust(driver, "a"), driver.idle("a")) == (Trust.PROBING, 0)
    driver.submit(ask(1))
    assert driver.state(4) is JobState.WAITING


def test_a_probe_that_succeeds_makes_the_site_usable() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, cooldown_s=600.0)
    silence(driver, "a", 5)
    for _ in range(3):
        driver.submit(ask(2))
    driver.wait_until(600.0)
    driver.ready("1.1")
    driver.end("1.1")
    assert trust(driver, "a") is Trust.USABLE
    assert [record.job for record in kind(driver.settle(), JobPlaced)] == [2, 3]


def test_a_probe_of_several_components_at_the_site_is_one_job() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, cooldown_s=600.0)
    silence(driver, "a", 5)
    driver.submit(ask(part(3, "a"), part(3, "a")))
    driver.submit(ask(2))
    assert len(kind(driver.wait_until(600.0), StartComponent)) == 2
    driver.ready("1.1", "1.2")
    driver.end("1.1")
    assert trust(driver, "a") is Trust.USABLE


def test_an_error_while_it_is_probed_makes_the_site_unusable_for_another_cool_down() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, cooldown_s=600.0)
    silence(driver, "a", 5)
    driver.submit(ask(2))
    driver.wait_until(610.0)
    driver.end("1.1", outcome=Outcome.SITE_FAILED)
    assert (trust(driver, "a"), driver.idle("a")) == (Trust.UNUSABLE, 0)
    assert kind(driver.wait_until(1209.9), JobPlaced) == []
    assert [record.job for record in kind(driver.wait_until(1210.0), JobPlaced)] == [1]


def test_a_probe_that_ends_without_a_verdict_leaves_the_site_to_the_next() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, cooldown_s=600.0)
    silence(driver, "a", 5)
    driver.submit(ask(2))
    driver.submit(ask(2))
    driver.wait_until(600.0)
    driver.cancel(1)
    driver.settle()
    assert driver.state(2) is JobState.WAITING
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert [record.job for record in kind(driver.settle(), JobPlaced)] == [2]
    assert_ledger_balances(driver.ledger)


def test_a_placed_probe_keeps_others_away_until_it_moves_or_claims() -> None:
    driver = CoreDriver(
        {"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, scan_interval_s=0.0, cooldown_s=600.0
    )
    silence(driver, "a", 5)
    driver.submit(ask(part(5, "a", "f")))
    driver.submit(ask(part(2, "a")))
    driver.wait_until(600.0)
    assert (driver.state(1), driver.state(2)) == (JobState.PLACED, JobState.WAITING)
    driver.cancel(1)
    assert [record.job for record in kind(driver.settle(), JobPlaced)] == [2]


def test_a_job_placed_before_its_site_became_unusable_claims_nothing_there() -> None:
    for hold_placed in (False, True):
        driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, hold_placed=hold_placed)
        driver.submit(ask(part(5, "a", "f")))
        silence(driver, "a", 5)
        assert kind(driver.wait_until(100.0), StartComponent) == []
        assert driver.state(1) is JobState.WAITING


def test_a_drained_site_gets_nothing_new_and_what_runs_there_goes_on() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(4))
    driver.send(SiteDrained(at=1.0, site="a"))
    driver.submit(ask(4))
    assert driver.idle("a") == 0
    assert (driver.state(1), driver.state(2)) == (JobState.RUNNING, JobState.WAITING)
    driver.end("1.1")
    assert driver.state(1) is JobState.DONE
    assert kind(driver.wait_until(1000.0), JobPlaced) == []


def test_a_resumed_site_is_used_again_at_the_next_scan() -> None:
    driver = CoreDriver({"a": 10})
    driver.send(SiteDrained(at=1.0, site="a"))
    driver.submit(ask(4))
    driver.wait_until(30.0)
    driver.send(SiteResumed(at=30.0, site="a"))
    assert driver.idle("a") == 10
    driver.wait_until(36.0)
    assert driver.job(1).placed_at == 36.0


def test_an_operator_can_put_an_unusable_site_back_and_its_errors_are_forgotten() -> None:
    driver = CoreDriver({"a": 10})
    silence(driver, "a", 5)
    driver.send(SiteResumed(at=1.0, site="a"))
    assert (trust(driver, "a"), driver.idle("a")) == (Trust.USABLE, 10)
    silence(driver, "a", 4)
    assert trust(driver, "a") is Trust.USABLE


def test_a_drained_site_stays_drained_through_its_cool_down() -> None:
    driver = CoreDriver({"a": 10}, cooldown_s=600.0)
    driver.send(SiteDrained(at=0.0, site="a"))
    silence(driver, "a", 5)
    driver.wait_until(700.0)
    assert driver.idle("a") == 0


def test_every_cool_down_lasts_its_full_time() -> None:
    """Unusable at 0, put back at 500, unusable again at 550: the alarm of the first cool-down is void."""
    driver = CoreDriver({"a": 10}, cooldown_s=600.0)
    silence(driver, "a", 5)
    driver.wait_until(500.0)
    driver.send(SiteResumed(at=500.0, site="a"))
    driver.wait_until(550.0)
    silence(driver, "a", 5)
    driver.wait_until(1149.0)
    assert trust(driver, "a") is Trust.UNUSABLE
    driver.wait_until(1150.0)
    assert trust(driver, "a") is Trust.PROBING


def test_words_about_unknown_sites_change_nothing() -> None:
    driver = CoreDriver({"a": 10})
    for kind_of in (SiteDrained, SiteResumed):
        driver.send(kind_of(at=0.0, site="z"))
    driver.send(SiteSilent(at=0.0, site="z", reason="no route to host"))
    assert driver.idle("a") == 10


# ----------------------------------------------------------------------------------- quota and reports


@pytest.mark.parametrize(
    ("processors", "quota", "others", "ours", "idle"),
    [
        (100, 1.0, 0, 0, 100),
        (100, 0.29, 0, 0, 29),
        (10, 0.75, 0, 0, 7),
        (100, 0.8, 30, 20, 30),
        (100, 0.5, 60, 20, 0),
        (100, 0.5, 30, 20, 0),
        (0, 1.0, 0, 0, 0),
    ],
)
def test_idle_is_the_quota_less_what_others_and_we_hold_and_never_negative(
    processors: int, quota: float, others: int, ours: int, idle: int
) -> None:
    driver = CoreDriver({"a": max(processors, ours)}, quotas={"a": quota})
    if ours:
        driver.run(ask(ours))
    driver.report("a", others=others, processors=processors)
    assert driver.idle("a") == idle
    assert_ledger_balances(driver.ledger)


def test_a_job_that_no_quota_lets_in_waits_though_the_site_is_empty() -> None:
    driver = CoreDriver({"a": 10}, quotas={"a": 0.5})
    assert kind(driver.submit(ask(6)), JobPlaced) == []
    assert kind(driver.submit(ask(5)), JobPlaced) == [JobPlaced(job=2, places=(("a", 5),))]


def test_a_site_that_grows_is_used_to_its_new_size() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(15))
    driver.report("a", others=0, processors=20)
    driver.settle()
    assert driver.state(1) is JobState.STARTING


def test_a_site_is_probed_though_an_older_job_still_runs_there() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=2, cooldown_s=100.0)
    driver.run(ask(4))
    silence(driver, "a", 2)
    driver.submit(ask(3))
    driver.submit(ask(3))
    driver.wait_until(100.0)
    assert (driver.state(2), driver.state(3)) == (JobState.STARTING, JobState.WAITING)
