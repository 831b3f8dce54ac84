"""What is held against a site, what clears it, and what blames nobody."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.core.state.blame import ACCUSATION_S, ACCUSATIONS_KEPT_MAX, Accusation, SiteRecord
from koala.model.facts import SiteDistrusted
from koala.model.messages import JobSubmitted, Outcome, SiteResumed
from koala.model.request import Application, Component
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances
from tests.support.core_records import records_of, scheduler_of


def _grid(**parameters: Any) -> CoreDriver:
    return CoreDriver({"bad": 10, "good": 9}, scan_interval_s=0.0, cooldown_s=1_000.0, **parameters)


def _submit(driver: CoreDriver, owner: str, program: str = "solve", **fields: Any) -> int:
    request = ask(Component(processors=5, application=Application(executable=program)), **fields)
    job = driver.scheduler._placement.last_job + 1
    driver.send(JobSubmitted(at=driver.now, job=max(job, 1), request=request, owner=owner))
    return max(job, 1)


def _end(driver: CoreDriver, job: int, outcome: Outcome, exit_code: int | None) -> str:
    driver.pass_time(5.0)
    (claim,) = driver.job(job).placed.claims
    assert claim is not None
    driver.ready(claim.token)
    driver.pass_time(5.0)
    driver.end(claim.token, outcome=outcome, exit_code=exit_code)
    return driver.ledger.names[claim.site]


def _fails_at_bad(driver: CoreDriver, owner: str, program: str = "solve", exit_code: int | None = 127) -> None:
    """A job fails at the bad site, which is tried first, and does well at the other."""
    job = _submit(driver, owner, program)
    assert _end(driver, job, Outcome.FAILED, exit_code) == "bad"
    assert _end(driver, job, Outcome.DONE, 0) == "good"


def _trust(driver: CoreDriver) -> str:
    return str(driver.ledger.sites.sites[0].trust)


def _lost(driver: CoreDriver) -> list[str]:
    return [command.reason for command in driver.all(SiteDistrusted)]


def test_two_users_whose_program_is_missing_at_a_site_cost_it_its_trust_and_the_reason_is_told() -> None:
    driver = _grid()
    _fails_at_bad(driver, "ann")
    assert _lost(driver) == []
    _fails_at_bad(driver, "bob")
    (reason,) = _lost(driver)
    assert reason == (
        "failures here of applications that did well elsewhere: exit code 127 (job 1), exit code 127 (job 2)"
    )
    assert _trust(driver) == "unusable"
    assert driver.ledger.sites.sites[0].record.distrusted == reason
    assert_ledger_balances(driver.ledger)


def test_failures_without_a_sign_of_the_site_weigh_half() -> None:
    driver = _grid()
    for number in range(3):
        _fails_at_bad(driver, f"user-{number}", exit_code=1)
        assert _lost(driver) == []
    _fails_at_bad(driver, "one more", exit_code=1)
    assert len(_lost(driver)) == 1


def test_one_user_accuses_a_site_once_for_one_program() -> None:
    driver = _grid()
    for _ in range(10):
        _fails_at_bad(driver, "ann")
    assert _lost(driver) == []
    _fails_at_bad(driver, "ann", "another")
    assert len(_lost(driver)) == 1


def test_a_success_there_clears_the_site() -> None:
    driver = _grid()
    _fails_at_bad(driver, "ann")
    assert _end(driver, _submit(driver, "carol", "other"), Outcome.DONE, 0) == "bad"
    _fails_at_bad(driver, "bob")
    assert _lost(driver) == []


def test_a_site_that_is_tried_again_and_fails_again_is_out_again_and_one_that_does_well_is_trusted() -> None:
    driver = _grid()
    _fails_at_bad(driver, "ann")
    _fails_at_bad(driver, "bob")
    driver.pass_time(1_000.0)
    assert _trust(driver) == "probing"
    _fails_at_bad(driver, "ann")
    assert len(_lost(driver)) == 2
    driver.pass_time(1_000.0)
    assert _end(driver, _submit(driver, "ann"), Outcome.DONE, 0) == "bad"
    assert _trust(driver) == "usable"
    assert driver.ledger.sites.sites[0].record.distrusted == ""


def test_an_operator_who_resumes_a_site_clears_it() -> None:
    driver = _grid()
    _fails_at_bad(driver, "ann")
    driver.send(SiteResumed(at=driver.now, site="bad"))
    _fails_at_bad(driver, "bob")
    assert _lost(driver) == []


@pytest.mark.parametrize(
    ("outcome", "exit_code", "fields"),
    [
        (Outcome.FAILED, None, {}),  # an end without an exit code
        (Outcome.FAILED, 3, {"never_on": (3,)}),  # the application's own word
        (Outcome.FAILED, 3, {"retry_on": (75,)}),
        (Outcome.TIMED_OUT, None, {}),
    ],
)
def test_what_blames_nobody(outcome: Outcome, exit_code: int | None, fields: dict[str, Any]) -> None:
    driver = _grid()
    _end(driver, _submit(driver, "ann", **fields), outcome, exit_code)
    assert driver.ledger.sites.sites[0].record.accusations == {}


def test_a_job_on_two_sites_accuses_only_where_its_program_is_missing() -> None:
    for exit_code, accused in ((1, 0), (127, 1)):
        driver = _grid()
        driver.run(ask(9, 9))
        driver.end("1.1", outcome=Outcome.FAILED, exit_code=exit_code)
        assert [len(site.record.accusations) for site in driver.ledger.sites] == [accused, 0]


def test_two_sites_at_which_one_job_broke_do_not_hide_each_other() -> None:
    driver = CoreDriver({"bad": 10, "worse": 9, "good": 8}, scan_interval_s=0.0, error_threshold=100)
    for number in range(4):
        job = _submit(driver, f"user-{number}")
        assert _end(driver, job, Outcome.SITE_FAILED, None) == "bad"
        assert _end(driver, job, Outcome.SITE_FAILED, None) == "worse"
        assert _end(driver, job, Outcome.DONE, 0) == "good"
    assert [command.site for command in driver.all(SiteDistrusted)] == ["bad", "worse"]


def test_what_is_held_against_a_site_survives_a_restart_of_the_scheduler() -> None:
    driver = _grid()
    _fails_at_bad(driver, "ann")
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    _fails_at_bad(driver, "bob")
    assert len(_lost(driver)) == 1


def test_what_is_held_against_a_site_has_a_bound_and_ends() -> None:
    record = SiteRecord()
    for number in range(ACCUSATIONS_KEPT_MAX + 1):
        record.accuse(f"user-{number}", Accusation(0.0, number, 2, f"witness-{number}", "exit code 127"))
    assert len(record.accusations) == ACCUSATIONS_KEPT_MAX
    assert not record.prove("witness-0", -1, 1.0)  # the oldest is forgotten
    assert record.prove("witness-1", -1, 1.0)
    assert record.proved == {"user-1": 2}
    assert not record.prove("witness-2", -1, ACCUSATION_S + 1.0)
    assert record.accusations == {}
    assert msgspec.json.decode(msgspec.json.encode(record), type=SiteRecord).accusations == {}
