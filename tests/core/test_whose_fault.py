"""Only a site's own failures count against it; what fails by itself counts against the job, which ends."""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.core.state.site_belief import Trust
from koala.model.errors import Fault
from koala.model.messages import Outcome, StartComponent, TransferEnded
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, part

SITES = {"a": 10, "b": 9, "c": 8}
LONG_S = 70.0  # longer than any rest after a quick return


def _costs(driver: CoreDriver) -> dict[str, tuple[int, str]]:
    """What sites have against them, where they have anything."""
    sites = driver.ledger.sites.sites
    return {site.name: (site.errors, site.last_error) for site in sites if site.errors or site.last_error}


def _fail(
    driver: CoreDriver, outcome: Outcome, fault: Fault | None, *, at_barrier: bool, reason: str = "why"
) -> bool:
    """Let the only component of job 1 fail where it is placed now; whether it was placed."""
    driver.pass_time(LONG_S)
    tokens = driver.tokens(1)
    for token in tokens:
        if at_barrier:
            driver.ready(token)
        driver.end(token, outcome=outcome, fault=fault, reason=reason)
    return bool(tokens)


@pytest.mark.parametrize("fault", [Fault.JOB, Fault.USER])
@pytest.mark.parametrize(
    ("outcome", "at_barrier"),
    [(Outcome.REFUSED, False), (Outcome.FAILED, False), (Outcome.FAILED, True)],
    ids=["refused", "before the barrier", "at its opening"],
)
def test_a_job_that_fails_by_itself_at_each_try_ends_failed_and_costs_no_site_anything(
    outcome: Outcome, *, at_barrier: bool, fault: Fault
) -> None:
    """claiming -> waiting, or running -> unwinding -> waiting; then failed"""
    driver = CoreDriver(SITES, scan_interval_s=0.0, error_threshold=1, restarts_max=2)
    driver.submit(ask(5))
    tries = 0
    while driver.state(1) is not JobState.FAILED and tries < 10:
        tries += _fail(driver, outcome, fault, at_barrier=at_barrier, reason="its link has no name")
    assert tries == 3
    assert _costs(driver) == {}
    assert driver.ended(1).reason == "component 0 failed on c: its link has no name, after 2 restarts"
    assert driver.ended(1).failures == 3
    assert_clean(driver.ledger)


def test_without_a_limit_of_its_own_a_job_that_fails_by_itself_ends_by_that_of_sites() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1, restarts_max=None, site_restarts_max=4)
    driver.submit(ask(5))
    while driver.state(1) is not JobState.FAILED:
        assert _fail(driver, Outcome.REFUSED, Fault.JOB, at_barrier=False)
    assert len(driver.all(StartComponent)) == 5
    assert _costs(driver) == {}


@pytest.mark.parametrize(("outcome", "at_barrier"), [(Outcome.REFUSED, False), (Outcome.SITE_FAILED, True)])
def test_what_is_our_own_fault_costs_no_site_anything_and_is_tried_again(
    outcome: Outcome, *, at_barrier: bool
) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1, restarts_max=0)
    driver.submit(ask(5))
    for _ in range(5):
        assert _fail(driver, outcome, Fault.OURS, at_barrier=at_barrier)
    assert driver.state(1) is not JobState.FAILED
    assert _costs(driver) == {}
    assert_ledger_balances(driver.ledger)


@pytest.mark.parametrize("fault", [Fault.SITE, None])
@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.SITE_FAILED])
def test_what_is_the_sites_fault_or_nobodys_that_is_known_before_the_barrier_counts_against_it(
    outcome: Outcome, fault: Fault | None
) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1)
    driver.submit(ask(5))
    _fail(driver, outcome, fault, at_barrier=False)
    assert _costs(driver) == {"a": (1, "why")}
    assert driver.ledger.sites.sites[0].trust is Trust.UNUSABLE


@pytest.mark.parametrize(("fault", "ends"), [(Fault.USER, True), (Fault.SITE, False), (None, False)])
def test_a_job_whose_file_cannot_be_brought_by_its_owners_fault_is_not_tried_for_ever(
    fault: Fault | None, *, ends: bool
) -> None:
    files = {"f": (10.0, ("store",))}
    driver = CoreDriver({"a": 10, "store": 1}, files=files, scan_interval_s=0.0, transfer_tries_max=1, restarts_max=2)
    driver.submit(ask(part(5, "a", "f")))
    for _ in range(3):
        driver.pass_time(1.0)
        if fault is not None:
            transfer = driver.transfers()[-1]
            driver.send(TransferEnded(at=driver.now, transfer=transfer, ok=False, reason="it changed", fault=fault))
        else:
            driver.end_transfer(driver.transfers()[-1], ok=False)
    assert (driver.state(1) is JobState.FAILED) is ends
    if ends:
        assert driver.ended(1).reason == "file f could not be brought to a: it changed, after 2 restarts"
