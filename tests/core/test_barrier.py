"""The barrier: all components and all files, or nobody; and what happens when a site is quiet."""

from __future__ import annotations

from itertools import pairwise

from koala.core import JobState
from koala.core.ending import ABORT_WAIT_FACTOR_MAX
from koala.model.facts import JobRequeued
from koala.model.launch import BARRIER_TIMEOUT_S_MAX
from koala.model.messages import (
    AbortComponent,
    AskSite,
    ComponentEnded,
    InputSource,
    Outcome,
    ReleaseBarrier,
    StartComponent,
)
from koala.model.request import InputMode
from tests.support.core_driver import (
    CoreDriver,
    ask,
    assert_clean,
    assert_ledger_balances,
    kind,
    part,
    seconds,
)


def test_the_barrier_opens_once_with_all_tokens_when_the_last_component_reports() -> None:
    """starting -> running"""
    driver = CoreDriver({"a": 10, "b": 10, "c": 10})
    driver.submit(ask(9, 9, 9))
    assert kind(driver.ready("1.2", "1.3"), ReleaseBarrier) == []
    driver.wait_until(5.0)
    assert driver.ready("1.1") == [ReleaseBarrier(job=1, tokens=("1.1", "1.2", "1.3"))]
    assert driver.job(1).started_at == 5.0


def test_the_barrier_waits_for_the_files_too() -> None:
    """placed -> starting -> running"""
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",)), "g": (10.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(5, "b", "g")))
    driver.wait_until(76.0)
    assert kind(driver.ready("1.1", "1.2"), ReleaseBarrier) == []
    assert kind(driver.end_transfer("t2"), ReleaseBarrier) == []
    driver.wait_until(120.0)
    (release,) = kind(driver.end_transfer("t1"), ReleaseBarrier)
    assert release.tokens == ("1.1", "1.2")
    assert driver.job(1).started_at == 120.0


def test_files_that_arrive_before_the_claim_open_nothing() -> None:
    """placed -> starting -> running"""
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(50.0)
    assert driver.end_transfer("t1") == []
    driver.wait_until(75.0)
    assert kind(driver.ready("1.1"), ReleaseBarrier) != []


def test_components_that_report_while_others_are_unclaimed_open_nothing() -> None:
    """placed -> claiming -> starting -> running"""
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    driver.wait_until(75.0)
    for transfer in driver.transfers():
        driver.end_transfer(transfer)
    assert kind(driver.ready("1.1"), ReleaseBarrier) == []
    driver.report("b", others=0)
    driver.wait_until(94.0)
    (release,) = kind(driver.ready("1.2"), ReleaseBarrier)
    assert release.tokens == ("1.1", "1.2")


def test_answers_that_come_twice_or_late_change_nothing() -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    driver.submit(ask(9, 9))
    assert driver.ready("1.1", "1.1", "1.1") == []
    assert driver.state(1) is JobState.STARTING
    driver.ready("1.2")
    assert driver.accept("1.1") == []
    assert driver.say_running("1.1") == []
    driver.end("1.1")
    assert driver.end("1.1", "1.1", outcome=Outcome.FAILED) == []
    assert driver.ready("1.1") == []
    driver.end("1.2")
    assert driver.state(1) is JobState.DONE
    assert (driver.ready("1.2") + driver.accept("1.2")) == []
    assert (driver.end("1.2", outcome=Outcome.SITE_FAILED) + driver.end("9.9", outcome=Outcome.ABSENT)) == []
    assert_clean(driver.ledger)


def test_an_event_from_before_does_not_turn_time_back() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(9))
    driver.wait_until(50.0)
    driver.ready("1.1")
    (token,) = driver.tokens(1)
    driver.send(ComponentEnded(at=20.0, token=token, outcome=Outcome.DONE))
    assert driver.ended(1).ended_at == 50.0


def test_a_component_that_has_not_heard_of_the_opening_is_told_again_alone() -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    driver.run(ask(9, 9))
    driver.wait_until(10.0)
    assert driver.ready("1.2") == [ReleaseBarrier(job=1, tokens=("1.2",))]
    assert driver.job(1).started_at == 0.0


def test_a_component_that_is_being_aborted_opens_no_barrier() -> None:
    """starting -> waiting: the late report of the aborted component is not answered"""
    driver = CoreDriver({"a": 10, "b": 10})
    driver.submit(ask(part(9, "a"), part(9, "b")))
    driver.end("1.2", outcome=Outcome.SITE_FAILED)
    assert driver.ready("1.1") == []


# ---------------------------------------------------------------------------------------- quiet sites


def test_quiet_sites_are_asked_about_the_components_that_have_not_reported() -> None:
    driver = CoreDriver({"a": 10, "b": 20}, answer_timeout_s=60.0)
    driver.submit(ask(part(9, "a"), part(9, "b"), part(9, "b")))
    driver.ready("1.2")
    assert kind(driver.wait_until(59.9), AskSite) == []
    assert kind(driver.wait_until(60.0), AskSite) == [
        AskSite(site="a", tokens=("1.1",)),
        AskSite(site="b", tokens=("1.3",)),
    ]
    driver.ready("1.1")
    assert kind(driver.wait_until(120.0), AskSite) == [AskSite(site="b", tokens=("1.3",))]


def test_started_components_of_a_half_claimed_job_are_asked_about_too() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (1000.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1)
    driver.wait_until(750.0)
    assert driver.state(1) is JobState.CLAIMING
    assert kind(driver.wait_until(810.0), AskSite) == [AskSite(site="a", tokens=("1.1",))]


def test_a_component_that_the_site_has_never_heard_of_returns_the_job() -> None:
    """starting -> waiting"""
    driver = CoreDriver({"a": 10, "b": 10})
    driver.submit(ask(part(9, "a"), part(9, "b")))
    driver.ready("1.1")
    driver.wait_until(60.0)
    commands = driver.end("1.2", outcome=Outcome.ABSENT)
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1"]
    assert len(kind(commands, JobRequeued)) == 1
    assert_ledger_balances(driver.ledger)


def test_a_running_job_is_asked_about_at_every_check_interval_and_never_if_there_is_none() -> None:
    driver = CoreDriver({"a": 10}, check_interval_s=600.0)
    driver.run(ask(9))
    assert kind(driver.wait_until(1300.0), AskSite) == [AskSite(site="a", tokens=("1.1",))] * 2
    assert driver.times(AskSite) == [600.0, 1200.0]
    quiet = CoreDriver({"a": 10}, check_interval_s=None)
    quiet.run(ask(9))
    assert quiet.wait_until(1e6) == []


def test_only_components_that_still_run_are_asked_about() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, check_interval_s=600.0)
    driver.run(ask(part(9, "a"), part(9, "b")))
    driver.end("1.1")
    assert kind(driver.wait_until(600.0), AskSite) == [AskSite(site="b", tokens=("1.2",))]


def test_when_the_deadline_passes_everything_is_aborted_and_the_job_returns() -> None:
    """starting -> waiting"""
    driver = CoreDriver({"a": 10, "b": 10}, barrier_timeout_s=300.0)
    driver.submit(ask(part(9, "a"), part(9, "b")))
    driver.ready("1.1")
    driver.accept("1.2")
    assert kind(driver.wait_until(299.9), AbortComponent) == []
    commands = driver.wait_until(300.0)
    assert {abort.token for abort in kind(commands, AbortComponent)} == {"1.1", "1.2"}
    (requeued,) = kind(commands, JobRequeued)
    assert requeued.reason == "1 of 2 components did not reach the barrier in time (b)"
    assert driver.job(1).claim_fraction == 0.625
    assert [site.errors for site in driver.ledger.sites] == [0, 0]
    assert_ledger_balances(driver.ledger)


def test_a_site_that_never_said_a_word_about_a_component_has_made_an_error() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, barrier_timeout_s=300.0)
    driver.submit(ask(part(9, "a"), part(9, "b")))
    driver.ready("1.1")
    driver.wait_until(300.0)
    assert [site.errors for site in driver.ledger.sites] == [0, 1]


def test_the_deadline_counts_from_the_job_start_time_when_that_is_later_than_the_claim() -> None:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (1000.0, ("store",))}, barrier_timeout_s=300.0)
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(1299.0)
    assert driver.state(1) is JobState.STARTING
    driver.wait_until(1300.0)
    assert driver.state(1) is JobState.WAITING


# -------------------------------------------------------------------------------- aborts that go unheard


def test_an_unanswered_abort_is_repeated_ever_more_rarely() -> None:
    driver = CoreDriver({"a": 10}, answer_timeout_s=60.0, check_interval_s=None)
    driver.run(ask(9))
    driver.cancel(1)
    driver.wait_until(60.0 * (1 + 2 + 4 + 8 + 16 + 16 + 16))
    gaps = [after - before for before, after in pairwise(driver.times(AbortComponent))]
    assert gaps == [60.0 * factor for factor in (1, 2, 4, 8, 16, 16, 16)]
    assert max(gaps) == 60.0 * ABORT_WAIT_FACTOR_MAX
    assert {(abort.site, abort.token) for abort in driver.all(AbortComponent)} == {("a", "1.1")}


def test_an_answered_abort_is_not_repeated() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(9))
    driver.cancel(1)
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert driver.wait_until(1e6) == []
    assert len(driver.all(AbortComponent)) == 1
    assert_clean(driver.ledger)


def test_a_release_says_where_the_input_files_of_each_component_are() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (90.0, ("store", "b")), "g": (10.0, ("a",))})
    chunk = InputMode.CHUNK
    driver.submit(ask(part(3, "a", "f", "g"), part(3, "b", "f", mode=chunk), part(6, "b", "f", mode=chunk)))
    driver.wait_until(80.0)
    for transfer in driver.transfers():
        driver.end_transfer(transfer)
    (release,) = kind(driver.ready(*driver.tokens(1)), ReleaseBarrier)
    third = seconds(30.0)
    sources = (
        (InputSource(file="f", transfer="t1"), InputSource(file="g")),
        (InputSource(file="f", chunk=(0, third)),),
        (InputSource(file="f", chunk=(third, 2 * third)),),
    )
    assert release.inputs == sources
    last = release.tokens[2]
    (again,) = kind(driver.ready(last), ReleaseBarrier)
    assert (again.tokens, again.inputs) == ((last,), sources[2:])


def test_a_component_waits_at_the_barrier_longer_than_the_core_ever_does() -> None:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, barrier_timeout_s=300.0)
    driver.submit(ask(part(5, "a", "f")))
    driver.submit(ask(part(5, "a")))
    driver.wait_until(75.0)
    with_file, plain = sorted(driver.all(StartComponent), key=lambda command: command.job)
    parameters = driver.ledger.parameters
    assert plain.barrier_timeout_s is not None
    assert plain.barrier_timeout_s >= 2 * 300.0
    # The last claim may come a barrier timeout after the job start time, and the others then have another one.
    tries_s = parameters.transfer_tries_max * parameters.transfer_patience * 100.0
    assert with_file.barrier_timeout_s is not None
    assert with_file.barrier_timeout_s >= 25.0 + 2 * 300.0 + tries_s
    assert with_file.begin_at == 100.0


def test_the_wait_at_the_barrier_has_a_limit_that_a_launch_can_have() -> None:
    driver = CoreDriver({"a": 10}, barrier_timeout_s=1e9)
    (start,) = kind(driver.submit(ask(5)), StartComponent)
    assert start.barrier_timeout_s == BARRIER_TIMEOUT_S_MAX
