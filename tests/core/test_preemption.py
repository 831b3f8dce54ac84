"""Preemption: a high-priority job whose component cannot start takes processors from low-priority jobs.

The high-priority job is placed while the sites are idle and waits 100 s for its file; before it claims at 75 the
low-priority jobs have started on its processors. Its site is chosen by the user, so that it cannot move.
"""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.model.facts import JobRequeued
from koala.model.messages import AbortComponent, Outcome, SiteDrained, StartComponent, StartTransfer
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part


def preemption_driver(**parameters: Any) -> CoreDriver:
    return CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))}, **parameters)


def test_a_low_priority_job_preempts_nobody() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.run(ask(part(10, "a")))
    driver.wait_until(100.0)
    assert driver.state(1) is JobState.WAITING
    assert driver.state(2) is JobState.RUNNING


def test_a_high_priority_job_does_not_preempt_another_of_high_priority() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.run(ask(part(10, "a"), high=True))
    driver.wait_until(100.0)
    assert driver.state(1) is JobState.WAITING
    assert driver.state(2) is JobState.RUNNING


def test_the_preempting_job_starts_when_the_last_component_it_waits_for_has_ended() -> None:
    """high: waiting -> placed -> starting; low: running -> unwinding -> waiting"""
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(4, "a"), part(6, "a")))
    commands = driver.wait_until(75.0)
    assert [abort.token for abort in kind(commands, AbortComponent)] == tokens
    (requeued,) = kind(commands, JobRequeued)
    assert (requeued.job, requeued.reason) == (2, "preempted by high-priority job 1 on a")
    assert driver.state(2) is JobState.UNWINDING
    assert driver.state(1) is JobState.PLACED
    driver.wait_until(76.0)
    assert kind(driver.end(tokens[0], outcome=Outcome.ABORTED), StartComponent) == []
    driver.wait_until(77.0)
    (start,) = kind(driver.end(tokens[1], outcome=Outcome.ABORTED), StartComponent)
    assert (start.job, start.site, start.processors) == (1, "a", 10)
    assert driver.state(1) is JobState.STARTING
    assert driver.state(2) is JobState.WAITING
    assert_ledger_balances(driver.ledger)


def test_a_victim_keeps_its_l_and_returns_to_the_low_queue() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(75.0)
    driver.end(*tokens, outcome=Outcome.ABORTED)
    assert [job.id for job in driver.ledger.low] == [2]
    victim = driver.job(2)
    assert (victim.claim_fraction, victim.preemptions, victim.failures) == (0.75, 1, 0)


def test_a_victim_that_has_not_started_its_application_returns_at_once() -> None:
    """low: starting -> waiting"""
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.submit(ask(part(10, "a")))
    driver.wait_until(74.0)
    driver.ready()
    driver.wait_until(75.0)
    assert driver.state(2) is JobState.WAITING
    assert driver.idle("a") == 0
    assert_ledger_balances(driver.ledger)


def test_victims_are_taken_in_descending_job_start_time_and_no_more_than_needed() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(6, "a", "f"), high=True))
    for at in (1.0, 2.0, 3.0):
        driver.wait_until(at)
        driver.run(ask(part(3, "a")))
    commands = driver.wait_until(75.0)
    assert [record.job for record in kind(commands, JobRequeued)] == [4, 3]
    assert driver.state(2) is JobState.RUNNING


def test_all_components_of_a_victim_are_aborted_wherever_they_run() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a"), part(7, "b")))
    commands = driver.wait_until(75.0)
    assert {(abort.site, abort.token) for abort in kind(commands, AbortComponent)} == {
        ("a", tokens[0]),
        ("b", tokens[1]),
    }


@pytest.mark.parametrize(("others", "preempts"), [(2, True), (3, False)])
def test_nobody_is_preempted_unless_idle_and_low_priority_processors_are_enough(others: int, preempts: bool) -> None:
    """10 processors, 5 of them held by a low-priority job; the component needs 8."""
    driver = preemption_driver()
    driver.submit(ask(part(8, "a", "f"), high=True))
    driver.run(ask(part(5, "a")))
    driver.report("a", others=others)
    driver.wait_until(75.0)
    assert (driver.state(2) is JobState.UNWINDING) is preempts


def test_a_component_that_can_move_moves_rather_than_preempting() -> None:
    driver = CoreDriver({"a": 10, "far": 1, "near": 10}, files={"f": (100.0, ("far", "near"))})
    driver.report("near", others=10)
    driver.submit(ask(part(10, None, "f"), high=True))
    driver.run(ask(part(10, "a")))
    driver.report("near", others=0)
    commands = driver.wait_until(75.0)
    assert [start.site for start in kind(commands, StartComponent)] == ["near"]
    assert driver.state(2) is JobState.RUNNING


def test_freed_processors_go_to_nobody_else() -> None:
    """Jobs of both priorities wait for just these processors, and scans pass."""
    driver = preemption_driver(scan_interval_s=0.0)
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(4, "a"), part(6, "a")))
    driver.submit(ask(part(4, "a"), high=True))
    driver.submit(ask(part(4, "a")))
    driver.wait_until(75.0)
    assert kind(driver.end(tokens[0], outcome=Outcome.ABORTED) + driver.settle(), StartComponent) == []
    assert driver.idle("a") == 0
    starts = kind(driver.end(tokens[1], outcome=Outcome.ABORTED) + driver.settle(), StartComponent)
    assert [start.job for start in starts] == [1]


def test_what_a_victim_frees_at_another_site_of_the_claim_is_kept_too() -> None:
    """One victim sits on both sites of the high-priority job, and a third job waits for one of them."""
    driver = preemption_driver(scan_interval_s=0.0)
    driver.submit(ask(part(10, "a", "f"), part(10, "b", "f"), high=True))
    tokens = driver.run(ask(part(10, "a"), part(10, "b")))
    driver.submit(ask(part(10, "b")))
    driver.wait_until(75.0)
    assert driver.state(2) is JobState.UNWINDING
    driver.wait_until(76.0)
    commands = driver.end(*tokens, outcome=Outcome.ABORTED) + driver.settle()
    assert [(start.job, start.site) for start in kind(commands, StartComponent)] == [(1, "a"), (1, "b")]
    assert driver.state(3) is JobState.WAITING


def test_the_rest_of_a_victims_processors_is_free_for_others() -> None:
    driver = preemption_driver(scan_interval_s=0.0)
    driver.submit(ask(part(6, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.submit(ask(part(4, "a"), high=True))
    driver.wait_until(75.0)
    starts = kind(driver.end(*tokens, outcome=Outcome.ABORTED) + driver.settle(), StartComponent)
    assert {(start.job, start.processors) for start in starts} == {(1, 6), (3, 4)}


def test_several_components_at_one_site_share_the_victims() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(5, "a", "f"), part(5, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(75.0)
    assert_ledger_balances(driver.ledger)
    assert [start.processors for start in kind(driver.end(*tokens, outcome=Outcome.ABORTED), StartComponent)] == [
        5,
        5,
    ]
    assert driver.state(1) is JobState.STARTING


def test_the_claim_waits_past_the_job_start_time_for_processors_that_are_being_freed() -> None:
    """high: placed -> starting, at 150 instead of 100"""
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(150.0)
    assert driver.state(1) is JobState.PLACED
    assert [start.job for start in kind(driver.end(*tokens, outcome=Outcome.ABORTED), StartComponent)] == [1]


def test_the_claim_is_given_up_when_nothing_is_freed_within_the_barrier_timeout() -> None:
    """high: placed -> waiting"""
    driver = preemption_driver(barrier_timeout_s=300.0)
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.run(ask(part(10, "a")))
    driver.wait_until(399.0)
    assert driver.state(1) is JobState.PLACED
    driver.wait_until(400.0)
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)
    assert all(site.earmarked == 0 for site in driver.ledger.sites)


def test_nobody_is_preempted_on_a_drained_site() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.run(ask(part(10, "a")))
    driver.send(SiteDrained(at=1.0, site="a"))
    driver.wait_until(100.0)
    assert driver.state(2) is JobState.RUNNING


def test_nothing_starts_on_a_site_that_was_drained_while_it_was_being_freed() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(6, "a"), part(4, "a")))
    driver.wait_until(75.0)
    driver.send(SiteDrained(at=75.5, site="a"))
    assert kind(driver.end(tokens[0], outcome=Outcome.ABORTED), StartComponent) == []
    assert kind(driver.wait_until(99.0), StartComponent) == []


def test_a_victim_that_ends_by_itself_frees_its_processors_all_the_same() -> None:
    """The abort crossed the component's own end."""
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(75.0)
    assert [start.job for start in kind(driver.end(*tokens, outcome=Outcome.DONE), StartComponent)] == [1]
    assert driver.state(2) is JobState.WAITING


def test_a_preempting_job_that_is_cancelled_leaves_the_processors_to_others() -> None:
    driver = preemption_driver(scan_interval_s=0.0)
    driver.submit(ask(part(10, "a", "f"), high=True))
    tokens = driver.run(ask(part(10, "a")))
    driver.wait_until(75.0)
    driver.cancel(1)
    assert_ledger_balances(driver.ledger)
    driver.end(*tokens, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(2) is JobState.STARTING
    driver.cancel(2)
    driver.end("2.2", outcome=Outcome.ABORTED)
    assert_clean(driver.ledger)


def test_the_other_components_of_a_preempting_job_keep_their_files_coming() -> None:
    driver = preemption_driver()
    driver.submit(ask(part(10, "a", "f"), part(5, "b", "f"), high=True))
    driver.run(ask(part(10, "a")))
    commands = driver.wait_until(75.0)
    assert [start.site for start in kind(commands, StartComponent)] == ["b"]
    assert driver.state(1) is JobState.CLAIMING
    assert len(driver.all(StartTransfer)) == 2


# ------------------------------------------------------------------------ two preempting jobs at one site


def two_high_jobs(processors: int, lows: int, **parameters: Any) -> CoreDriver:
    """Both high jobs want 5 on a at 75 s, when low-priority jobs of 5 hold it all."""
    files = {"f": (100.0, ("store",)), "g": (100.0, ("store",))}
    driver = CoreDriver({"a": processors, "store": 1}, files=files, **parameters)
    driver.submit(ask(part(5, "a", "f"), high=True))
    driver.submit(ask(part(5, "a", "g"), high=True))
    for _ in range(lows):
        driver.run(ask(part(5, "a")))
    driver.wait_until(75.0)
    return driver


@pytest.mark.parametrize(("processors", "lows"), [(15, 3), (10, 2)])
def test_each_of_two_preempting_jobs_preempts_just_what_it_needs(processors: int, lows: int) -> None:
    driver = two_high_jobs(processors, lows)
    preempted = [record.job for record in driver.all(JobRequeued)]
    assert preempted == [2 + lows, 1 + lows]
    assert_ledger_balances(driver.ledger)


def test_freed_processors_go_to_the_job_that_waited_first() -> None:
    driver = two_high_jobs(15, 3)
    driver.wait_until(101.0)
    driver.end(*driver.tokens(5), outcome=Outcome.ABORTED)
    assert (driver.state(1), driver.state(2)) == (JobState.STARTING, JobState.PLACED)
    driver.end(*driver.tokens(4), outcome=Outcome.ABORTED)
    assert driver.state(2) is JobState.STARTING
    assert_ledger_balances(driver.ledger)


def test_with_placed_processors_held_a_preempting_job_starts_as_soon_as_its_victim_is_gone() -> None:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, hold_placed=True)
    driver.submit(ask(part(5, "a", "f"), high=True))
    driver.run(ask(part(5, "a")))
    driver.report("a", others=5)
    driver.wait_until(75.0)
    driver.end(*driver.tokens(2), outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.STARTING
    driver.report("a", others=0)
    assert driver.idle("a") == 5
    assert_ledger_balances(driver.ledger)
