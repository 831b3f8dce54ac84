"""Estimates: plans that go by how long the last runs of a user took, while the walltime stays the limit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from koala.core import JobState
from koala.core.state.ledger import LAST_RUNS_USERS_MAX
from koala.model.grid import Estimates
from koala.model.messages import StartComponent, Tick
from koala.policies import Catalogue
from koala.policies.interface import Spots, compile_demand
from tests.support.core_driver import CoreDriver, ask, ask_total
from tests.support.core_records import records_of, scheduler_of

WALLTIME_S = 1_000.0


def after_runs(estimates: Estimates, *took_s: float) -> CoreDriver:
    """A grid of twice ten processors, on which runs of the only user took so long."""
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1, estimates=estimates)
    for each_s in took_s:
        tokens = driver.run(ask(10, walltime_s=WALLTIME_S))
        driver.wait_until(driver.ledger.now + each_s)
        driver.end(*tokens)
        driver.settle()
    return driver


def submit(driver: CoreDriver, processors: int, walltime_s: float = WALLTIME_S) -> int:
    """A total of so many processors; returns the job's number."""
    driver.submit(replace(ask_total(processors), walltime_s=walltime_s))
    driver.settle()
    return max([*driver.ledger.jobs, *driver.ledger.ended])


@pytest.mark.parametrize(("estimates", "planned_s"), [(Estimates.WALLTIME, WALLTIME_S), (Estimates.LAST_TWO, 30.0)])
def test_a_plan_goes_by_walltimes_or_by_the_users_last_two_runs(estimates: Estimates, planned_s: float) -> None:
    driver = after_runs(estimates, 500.0, 20.0, 40.0)  # the first counts no more
    begun = driver.ledger.now
    driver.run(ask(10, walltime_s=WALLTIME_S))
    wide = submit(driver, 20)
    assert driver.job(wide).plan_at == begun + planned_s
    told = driver.scheduler.explain(wide)
    assert told is not None
    assert (told.expected_at, told.latest_at) == (begun + 30.0, begun + WALLTIME_S)
    assert driver.scheduler.told(wide) == (told.expected_at, told.latest_at)


def test_the_latest_time_goes_by_walltimes_for_jobs_with_plans_too() -> None:
    driver = after_runs(Estimates.LAST_TWO, 20.0, 40.0)
    driver.scheduler.ledger.parameters = replace(driver.ledger.parameters, plan_depth=2)
    driver.scheduler._placement.plans.depth = 2
    begun = driver.ledger.now
    driver.run(ask(10, walltime_s=WALLTIME_S))
    submit(driver, 20, 600.0)
    behind = submit(driver, 15, 100.0)
    assert driver.scheduler.told(behind) == (begun + 60.0, begun + 1_600.0)


def test_the_limit_of_a_run_stays_its_walltime() -> None:
    driver = after_runs(Estimates.LAST_TWO, 20.0, 40.0)
    driver.run(ask(10, walltime_s=WALLTIME_S))
    running = driver.job(3)
    assert (driver.ledger.walltime_s(running), driver.ledger.planned_s(running)) == (WALLTIME_S, 30.0)
    assert {command.walltime_s for command in driver.all(StartComponent)} == {None}  # as the request says


def test_an_estimate_is_never_above_the_walltime_nor_made_of_nothing() -> None:
    driver = after_runs(Estimates.LAST_TWO, 500.0)
    begun = driver.ledger.now
    driver.run(ask(10, walltime_s=100.0))
    assert driver.job(submit(driver, 20)).plan_at == begun + 100.0
    unknown = after_runs(Estimates.LAST_TWO)
    unknown.run(ask(10, walltime_s=100.0))
    assert unknown.job(submit(unknown, 20)).plan_at == 100.0


def test_a_later_job_that_is_usually_short_starts_before_a_plan() -> None:
    driver = after_runs(Estimates.LAST_TWO, 20.0, 20.0)
    driver.run(ask(10, walltime_s=WALLTIME_S))
    submit(driver, 20)
    request = ask(5, walltime_s=WALLTIME_S)
    demand = compile_demand(request, Catalogue.builtin().choose(request, "WF"), driver.ledger.sites.view.index)
    assert isinstance(driver.scheduler.preview(demand, request), Spots)
    assert not isinstance(driver.scheduler.preview(demand, request, "a stranger"), Spots)  # of whom nothing is known
    assert driver.state(submit(driver, 5)) is JobState.STARTING


def test_a_run_that_goes_on_beyond_its_estimate_puts_the_plan_off_and_the_story_says_so() -> None:
    driver = after_runs(Estimates.LAST_TWO, 20.0, 20.0)
    begun = driver.ledger.now
    driver.run(ask(10, walltime_s=WALLTIME_S))
    wide = submit(driver, 20)
    assert driver.job(wide).plan_at == begun + 20.0
    driver.send(Tick(at=begun + 100.0))
    driver.send(Tick(at=begun + 100.0))
    plan_at = driver.job(wide).plan_at
    assert plan_at is not None
    assert plan_at > begun + 100.0
    assert any("run longer than expected" in line for line in driver.story(wide))


def test_estimates_survive_a_restart() -> None:
    driver = after_runs(Estimates.LAST_TWO, 20.0, 40.0)
    driver.run(ask(10, walltime_s=WALLTIME_S))
    wide = submit(driver, 20)
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    again.handle(Tick(at=driver.now))
    assert again.told(wide) == driver.scheduler.told(wide)
    assert again.ledger.jobs[wide].estimate_s == 30.0


def test_the_users_seen_longest_ago_are_forgotten() -> None:
    ledger = after_runs(Estimates.LAST_TWO).ledger
    for user in range(LAST_RUNS_USERS_MAX + 1):
        ledger.note_run(f"user{user}", 1.0)
    assert len(ledger.last_runs) == LAST_RUNS_USERS_MAX
    assert ledger.usual_s("user0") is None
    assert ledger.usual_s("user1") == 1.0
