"""A silent site gets nothing new, from the first call that failed until it answers; and what is said says silence."""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.model.facts import JobPlaced, TurnEntry
from koala.model.messages import Outcome, SiteSilent, StartComponent
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of


def silence(driver: CoreDriver, site: str, *, answers: bool = False) -> list[TurnEntry]:
    return driver.send(SiteSilent(at=driver.now, site=site, reason="no route to host", answers=answers))


def sites_of(commands: list[TurnEntry]) -> list[str]:
    return [start.site for start in kind(commands, StartComponent)]


@pytest.mark.parametrize("parameters", [{}, {"plan_depth": 2}, {"scan_interval_s": 0.0}])
def test_a_job_goes_to_a_site_that_answers_though_a_silent_one_has_more(parameters: dict[str, Any]) -> None:
    driver = CoreDriver({"a": 10, "b": 6}, **parameters)
    silence(driver, "a")
    assert sites_of(driver.submit(ask(4))) == ["b"]
    assert driver.idle("a") == 0
    assert_ledger_balances(driver.ledger)


@pytest.mark.parametrize("parameters", [{}, {"plan_depth": 2}, {"scan_interval_s": 0.0}])
def test_where_all_are_silent_a_job_waits_until_one_answers(parameters: dict[str, Any]) -> None:
    driver = CoreDriver({"a": 10, "b": 6}, **parameters)
    silence(driver, "a")
    silence(driver, "b")
    assert driver.submit(ask(4)) == []
    driver.pass_time(3_600.0)
    assert not driver.all(JobPlaced)
    assert sites_of(driver.report("b", others=0) + driver.pass_time(120.0)) == ["b"]
    assert_ledger_balances(driver.ledger)


def test_a_site_that_says_why_it_cannot_be_used_gets_nothing_and_is_named_with_its_words() -> None:
    driver = CoreDriver({"a": 10})
    silence(driver, "a")
    silence(driver, "a", answers=True)
    driver.submit(ask(4))
    assert not driver.all(JobPlaced)
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert explained.refusal is not None
    assert explained.refusal.shortages[0].cure == "a cannot be used: no route to host"
    assert explained.refusal.cure == "mending a, which cannot be used"
    assert sites_of(driver.report("a", others=0) + driver.pass_time(120.0)) == ["a"]


def test_a_component_that_is_not_claimed_yet_goes_elsewhere_when_its_site_falls_silent() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, files={"f": (30.0, ("c",))}, policy="WF")
    driver.submit(ask(part(6, None, "f")))
    assert driver.job(1).places == (("a", 6),)
    driver.pass_time(1.0)
    silence(driver, "a")
    assert sites_of(driver.pass_time(60.0)) == ["c"]
    assert_ledger_balances(driver.ledger)


def test_a_component_of_which_the_site_has_not_heard_leaves_it_and_one_in_its_queue_stays() -> None:
    driver = CoreDriver({"a": 10, "b": 9})
    driver.submit(ask(6))
    assert sites_of(silence(driver, "a")) == ["b"]
    driver.report("a", others=0)
    driver.submit(ask(4))
    (token,) = driver.tokens(2)
    driver.accept(token)
    assert sites_of(silence(driver, "a")) == []
    assert_ledger_balances(driver.ledger)


def test_a_refusal_names_the_silence_of_each_site() -> None:
    driver = CoreDriver({"a": 10, "b": 6})
    silence(driver, "a")
    silence(driver, "b")
    driver.submit(ask(4))
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert explained.refusal is not None
    told = "{} does not answer; nothing is placed there until it does"
    assert [short.cure for short in explained.refusal.shortages] == [told.format("a"), told.format("b")]
    assert explained.refusal.cure.startswith("an answer of a, which is silent")


def test_a_job_that_waits_for_a_component_at_a_silent_site_says_so_and_speaks_of_no_queue() -> None:
    driver = CoreDriver({"a": 10, "b": 6})
    driver.submit(ask(10))
    silence(driver, "a")
    assert driver.state(1) is JobState.STARTING
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert "a does not answer" in meaning(explained)
    assert "queue lets it" not in meaning(explained)


def test_a_job_that_runs_at_a_silent_site_says_that_nothing_is_known_of_it() -> None:
    driver = CoreDriver({"a": 10, "b": 6})
    driver.run(ask(10))
    silence(driver, "a")
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert meaning(explained).endswith("a does not answer: what it holds of the job is not known until it does")
    driver.report("a", others=0)
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert "answer" not in meaning(explained)


def test_a_silent_site_that_has_let_go_of_a_job_is_not_said_to_hold_something_of_it() -> None:
    driver = CoreDriver({"a": 8, "b": 8, "c": 8}, restarts_max=1)
    driver.run(ask(6, 6, 6))
    driver.end("1.1", outcome=Outcome.FAILED, exit_code=1)
    driver.end("1.2", outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.UNWINDING, "c is waited for"
    silence(driver, "b")
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert "does not answer" not in meaning(explained)
    restarted = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    assert restarted.explain(1) == explained
    silence(driver, "c")
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert "; c does not answer: what it holds of the job is not known until it does" in meaning(explained)
