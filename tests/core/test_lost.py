"""Sites that are of no use any more: components leave unusable ones, and a site that is lost gives up its jobs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState, RecordsError, Scheduler
from koala.core.lost import SILENCE_GAP_S
from koala.model.facts import JobRequeued, TurnEntry
from koala.model.messages import (
    AbortComponent,
    Outcome,
    ReleaseBarrier,
    SiteLost,
    SiteResumed,
    SiteSilent,
    StartComponent,
    Tick,
)
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, make_grid, part
from tests.support.core_records import records_of, scheduler_of


def silence(driver: CoreDriver, site: str, *, answers: bool = False) -> list[TurnEntry]:
    return driver.send(SiteSilent(at=driver.now, site=site, reason="no route to host", answers=answers))


def lose(driver: CoreDriver, site: str) -> list[TurnEntry]:
    return driver.send(SiteLost(at=driver.now, site=site))


def lost(driver: CoreDriver, site: str) -> str:
    return driver.ledger.sites.sites[driver.ledger.index[site]].lost


def starts(commands: list[TurnEntry]) -> list[tuple[str, str]]:
    return [(start.token, start.site) for start in kind(commands, StartComponent)]


@pytest.fixture
def running() -> CoreDriver:
    """A job of two components that runs on a and b, with c idle; a does not answer any more."""
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, scan_interval_s=0.0, restarts_max=0, site_restarts_max=0)
    driver.run(ask(6, 6))
    assert starts(list(driver.all(StartComponent))) == [("1.1", "a"), ("1.2", "b")]
    driver.pass_time(10.0)
    silence(driver, "a")
    return driver


# ------------------------------------------------------------------------------------------ unusable sites


def test_a_component_before_the_barrier_leaves_a_site_that_became_unusable() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, error_threshold=2)
    driver.submit(ask(6, 6))
    driver.accept("1.1")
    driver.ready("1.2")
    silence(driver, "a")
    assert starts(silence(driver, "a")) == [("1.3", "c")]
    assert [abort.token for abort in driver.all(AbortComponent)] == ["1.1"]
    assert driver.state(1) is JobState.STARTING
    assert not driver.all(JobRequeued)
    (release,) = kind(driver.ready("1.3"), ReleaseBarrier)
    assert sorted(release.tokens) == ["1.2", "1.3"]
    assert_ledger_balances(driver.ledger)


def test_one_at_the_barrier_of_a_silent_site_leaves_and_one_at_a_site_that_answers_stays() -> None:
    for answers in (False, True):
        driver = CoreDriver({"a": 10, "b": 9, "c": 8}, error_threshold=1)
        driver.submit(ask(6, 6))
        driver.ready("1.1")
        assert starts(silence(driver, "a", answers=answers)) == ([] if answers else [("1.3", "c")])
        assert driver.job(1).placed.ready == (1 if answers else 0)
        assert_ledger_balances(driver.ledger)


def test_where_nothing_else_has_room_it_waits_and_moves_when_there_is_some() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, error_threshold=1, answer_timeout_s=10.0, barrier_timeout_s=100.0)
    driver.run(ask(part(9, "b")))
    driver.submit(ask(6))
    assert starts(silence(driver, "a")) == []
    assert driver.state(2) is JobState.STARTING
    driver.end("1.1")
    assert starts(driver.pass_time(10.0)) == [("2.2", "b")]


# ------------------------------------------------------------------------------------------ lost sites


def test_silence_alone_changes_nothing(running: CoreDriver) -> None:
    for _ in range(20):
        running.pass_time(600.0)
        silence(running, "a")
    assert running.state(1) is JobState.RUNNING


def test_a_job_restarts_elsewhere_when_its_site_is_lost_and_that_is_no_failure_of_it(running: CoreDriver) -> None:
    lose(running, "a")
    assert running.state(1) is JobState.UNWINDING, "b is there, and is waited for"
    started = running.end("1.2", outcome=Outcome.ABORTED) + running.settle()
    assert starts(started) == [("1.3", "b"), ("1.4", "c")]
    running.ready("1.3", "1.4")
    job = running.job(1)
    assert (job.state, job.runs, job.failures) == (JobState.RUNNING, 2, 0)
    assert "a is lost" in " ".join(running.story(1))
    running.end("1.3", "1.4")
    assert running.ended(1).runs == 2
    assert running.idle("a") == 0, "a still holds what it had"
    assert_ledger_balances(running.ledger)


# What the sites that are left may say, and when, around the loss of the third.
OTHERS = st.sampled_from(["b", "c"])
ENDS = (Outcome.DONE, Outcome.ABORTED, Outcome.SITE_FAILED, Outcome.FAILED, Outcome.ABSENT, Outcome.REFUSED)
# By then a job that could run elsewhere does, with what its failures make it rest.
ELSEWHERE_S = 60.0


@dataclass(frozen=True)
class Said:
    """One thing that happens; of the components at the sites that are left it is about the one with this number."""

    what: str
    site: str = "b"
    number: int = 0
    outcome: Outcome = Outcome.DONE

    def happen(self, driver: CoreDriver) -> None:
        tokens = [token for token, claim in driver.ledger.claims.items() if driver.ledger.names[claim.site] != "a"]
        match self.what:
            case "silence":
                silence(driver, self.site, answers=self.number % 2 == 1)
            case "report":
                driver.report(self.site, self.number)
            case "resume":
                driver.send(SiteResumed(at=driver.now, site=self.site))
            case "time":
                driver.pass_time(10.0 * self.number)
            case _ if tokens:
                token = tokens[self.number % len(tokens)]
                if self.what == "accepted":
                    driver.accept(token)
                elif self.what == "ready":
                    driver.ready(token)
                else:
                    failed = {"exit_code": 127, "nodes": ("n",)} if self.outcome is Outcome.FAILED else {}
                    driver.end(token, outcome=self.outcome, **failed)
        driver.settle()


SAID = st.lists(
    st.one_of(
        st.builds(Said, st.sampled_from(["silence", "report"]), OTHERS, st.integers(0, 8)),
        st.builds(Said, st.sampled_from(["resume"]), OTHERS),
        st.builds(Said, st.sampled_from(["time", "accepted", "ready"]), number=st.integers(0, 3)),
        st.builds(Said, st.just("end"), number=st.integers(0, 3), outcome=st.sampled_from(ENDS)),
    ),
    max_size=8,
)


def answer(driver: CoreDriver) -> None:
    """The sites that are left do all that they are told."""
    for site in ("b", "c"):
        driver.report(site, 0)
    driver.settle()
    for token, claim in list(driver.ledger.claims.items()):
        if driver.ledger.names[claim.site] != "a":
            if claim.aborting:
                driver.end(token, outcome=Outcome.ABORTED)
            else:
                driver.ready(token)
    driver.settle()


@settings(max_examples=300)
@given(before=SAID, after=SAID, plan_depth=st.sampled_from([0, 1, 4]))
def test_whatever_the_other_sites_say_meanwhile_nothing_holds_a_restart_back_until_a_lost_site_answers(
    before: list[Said], after: list[Said], plan_depth: int
) -> None:
    driver = CoreDriver(
        {"a": 8, "b": 8, "c": 8},
        scan_interval_s=0.0,
        barrier_timeout_s=20.0,
        answer_timeout_s=20.0,
        cooldown_s=5.0,
        restart_rest_s=2.0,
        restarts_max=100,
        site_restarts_max=100,
        plan_depth=plan_depth,
    )
    driver.run(ask(6, 6))
    silence(driver, "a")
    for each in before:
        each.happen(driver)
    lose(driver, "a")
    for each in after:
        each.happen(driver)

    def runs_elsewhere() -> bool:
        sites = {driver.ledger.names[claim.site] for claim in driver.job(1).claims}
        return driver.state(1) is JobState.DONE or (driver.state(1) is JobState.RUNNING and "a" not in sites)

    until = driver.now + ELSEWHERE_S
    while not runs_elsewhere():
        assert driver.now < until, driver.story(1)
        answer(driver)
        driver.pass_time(1.0)
    assert_ledger_balances(driver.ledger)


def test_a_job_that_unwinds_waits_for_a_lost_site_no_more() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0)
    driver.run(ask(6, 6))
    driver.end("1.2", outcome=Outcome.SITE_FAILED)
    assert driver.state(1) is JobState.UNWINDING
    silence(driver, "a")
    lose(driver, "a")
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.ABORTED])
def test_what_comes_back_is_ended_first_and_counts_for_nothing(running: CoreDriver, outcome: Outcome) -> None:
    lose(running, "a")
    running.end("1.2", outcome=Outcome.ABORTED)
    running.settle()
    running.ready("1.3", "1.4")
    back = running.report("a", others=0)
    assert [abort.token for abort in kind(back, AbortComponent)] == ["1.1"]
    assert (lost(running, "a") != "", running.idle("a")) == (True, 0), "not before the fence is through"
    running.say_running("1.1")
    running.end("1.1", outcome=outcome)
    assert (lost(running, "a"), running.idle("a")) == ("", 10)
    assert running.state(1) is JobState.RUNNING
    running.end("1.3", "1.4")
    assert running.ended(1).outcome == "done"
    assert_clean(running.ledger)


def test_a_lost_site_is_told_once_while_it_is_silent_and_again_when_it_answers(running: CoreDriver) -> None:
    lose(running, "a")
    for _ in range(50):
        running.pass_time(600.0)
    assert [abort.token for abort in running.all(AbortComponent)].count("1.1") == 1
    running.report("a", others=0)
    assert [abort.token for abort in running.all(AbortComponent)].count("1.1") == 2
    running.pass_time(60.0)
    assert [abort.token for abort in running.all(AbortComponent)].count("1.1") == 3, "it has not answered to that"


def test_the_fence_outlives_a_restart(running: CoreDriver) -> None:
    lose(running, "a")
    running.scheduler = scheduler_of(running.scheduler.grid, None, records_of(running.scheduler))
    running.ledger = running.scheduler.ledger
    running.send(Tick(at=running.now))
    assert (lost(running, "a") != "", running.idle("a")) == (True, 0)
    back = running.report("a", others=0)
    assert [abort.token for abort in kind(back, AbortComponent)] == ["1.1"]
    running.end("1.1", outcome=Outcome.ABORTED)
    assert running.idle("a") == 10


def test_a_lost_site_may_leave_the_grid_and_what_is_fenced_there_leaves_with_it(running: CoreDriver) -> None:
    lose(running, "a")
    running.end("1.2", outcome=Outcome.ABORTED)
    running.settle()
    kept = records_of(running.scheduler)
    left = make_grid({"b": 9, "c": 8}, scan_interval_s=0.0, restarts_max=0, site_restarts_max=0)
    running.scheduler = scheduler_of(left, None, kept)
    running.ledger = running.scheduler.ledger
    assert list(running.ledger.claims) == ["1.3", "1.4"]
    running.end("1.1")  # whatever it says
    running.ready("1.3", "1.4")
    running.pass_time(10_000.0)
    running.end("1.3", "1.4")
    assert running.state(1) is JobState.DONE
    assert_clean(running.ledger)


def test_a_site_that_is_silent_and_not_lost_may_not_leave_the_grid(running: CoreDriver) -> None:
    with pytest.raises(RecordsError) as refused:
        scheduler_of(make_grid({"b": 9, "c": 8}), None, records_of(running.scheduler))
    assert "there are still components (1.1)" in refused.value.for_user()
    assert refused.value.for_user().endswith("put it back and declare it lost (koala site lost a)")


def test_before_the_barrier_the_component_moves_and_the_others_keep_their_places() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8})
    driver.submit(ask(6, 6))
    driver.ready("1.1")
    silence(driver, "a")
    assert starts(lose(driver, "a")) == [("1.3", "c")]
    (release,) = kind(driver.ready("1.2", "1.3"), ReleaseBarrier)
    assert sorted(release.tokens) == ["1.2", "1.3"]
    assert not driver.all(JobRequeued)


def test_before_the_barrier_without_room_elsewhere_the_job_goes_back_at_once() -> None:
    driver = CoreDriver({"a": 10, "b": 9})
    driver.submit(ask(6, 6))
    silence(driver, "a")
    lose(driver, "a")
    assert driver.state(1) is JobState.WAITING
    assert "a is lost" in driver.story(1)[-1]
    assert_ledger_balances(driver.ledger)


def test_a_waiting_job_is_told_that_a_lost_site_stands_in_its_way(running: CoreDriver) -> None:
    lose(running, "a")
    running.submit(ask(part(10, "a")))
    running.settle()
    explanation = running.scheduler.explain(2)
    assert explanation is not None
    assert explanation.refusal is not None
    assert "an answer of a, which is lost" in explanation.refusal.cure
    assert any("a is lost; it is used again by itself" in each.cure for each in explanation.refusal.shortages)


def test_a_site_that_answers_and_has_nothing_is_not_lost_for_long() -> None:
    driver = CoreDriver({"a": 10})
    lose(driver, "a")
    assert (lost(driver, "a"), driver.idle("a")) == ("", 10)


def test_a_site_that_answers_is_used_again_when_all_that_it_had_is_ended() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0)
    driver.run(ask(6))
    driver.pass_time(10.0)
    started = lose(driver, "a") + driver.settle()
    assert [abort.token for abort in kind(started, AbortComponent)] == ["1.1"]
    assert starts(started) == [("1.2", "b")], "nobody waits for what a lost site has"
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert (lost(driver, "a"), driver.idle("a")) == ("", 10)


def test_what_was_being_preempted_at_a_lost_site_is_looked_for_elsewhere() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(10))
    driver.submit(ask(4, high=True))
    silence(driver, "a")
    lose(driver, "a")
    assert_ledger_balances(driver.ledger)
    assert driver.state(2) is JobState.WAITING


# ---------------------------------------------------------------------------------------- lost_after_s


def silent_for(driver: CoreDriver, site: str, seconds: int, every_s: float = 60.0) -> None:
    for _ in range(int(seconds / every_s)):
        driver.pass_time(every_s)
        silence(driver, site)


@pytest.mark.parametrize("of_site", [False, True])
def test_a_site_that_stays_silent_for_long_is_lost_where_the_grid_says_so(of_site: bool) -> None:
    driver = CoreDriver({"a": 10, "b": 10}, lost_after_s=100_000.0 if of_site else 300.0)
    if of_site:
        grid = driver.scheduler.grid
        sites = (msgspec.structs.replace(grid.sites[0], lost_after_s=300.0), grid.sites[1])
        driver.scheduler = Scheduler(msgspec.structs.replace(grid, sites=sites), recorded=True)
        driver.ledger = driver.scheduler.ledger
    driver.run(ask(6))
    silence(driver, "a")
    silent_for(driver, "a", 240)
    assert lost(driver, "a") == ""
    silent_for(driver, "a", 60)
    assert lost(driver, "a") == "it has been silent for 300 s (lost_after_s)"
    assert driver.state(1) is not JobState.RUNNING


def test_an_answer_in_between_begins_the_silence_anew() -> None:
    driver = CoreDriver({"a": 10}, lost_after_s=300.0)
    silence(driver, "a")
    silent_for(driver, "a", 240)
    driver.report("a", others=0)
    silent_for(driver, "a", 300)
    assert lost(driver, "a") == ""


def test_a_site_that_says_why_it_cannot_be_used_is_not_silent() -> None:
    driver = CoreDriver({"a": 10}, lost_after_s=300.0)
    for _ in range(10):
        driver.pass_time(60.0)
        silence(driver, "a", answers=True)
    assert lost(driver, "a") == ""


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    """As while no daemon ran."""
    driver = CoreDriver({"a": 10}, lost_after_s=300.0)
    silence(driver, "a")
    driver.pass_time(SILENCE_GAP_S + 1.0)
    silence(driver, "a")
    assert lost(driver, "a") == ""
    silent_for(driver, "a", 300)
    assert lost(driver, "a") != ""
