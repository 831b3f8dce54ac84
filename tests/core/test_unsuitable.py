"""A job that a site will never run as it is asked for: it goes elsewhere, never there again, and ends where nothing
else is left. The site is not to blame.
"""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.core.state.site_belief import Trust
from koala.model.facts import JobPlaced
from koala.model.messages import JobOutcome, Outcome, StartComponent, Tick
from koala.policies.interface import replace_one, try_place
from tests.support.core_driver import (
    CoreDriver,
    ask,
    ask_total,
    assert_clean,
    assert_ledger_balances,
    kind,
    make_grid,
    part,
)
from tests.support.core_records import records_of, scheduler_of

# A job that comes back rests before it is tried again.
RESTED_S = 60.0


def refuse(driver: CoreDriver, *tokens: str, reason: str = "too long") -> None:
    driver.end(*tokens, outcome=Outcome.UNSUITABLE, reason=reason)


def places(driver: CoreDriver, job: int) -> list[tuple[tuple[str, int], ...]]:
    return [command.places for command in driver.all(JobPlaced) if command.job == job]


def restart(driver: CoreDriver, **grid: int) -> None:
    books = records_of(driver.scheduler)
    driver.scheduler = scheduler_of(make_grid(grid) if grid else driver.scheduler.grid, None, books)
    driver.ledger = driver.scheduler.ledger
    driver.send(Tick(at=driver.now))


def test_the_job_goes_elsewhere_and_the_site_keeps_its_trust() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, error_threshold=1, scan_interval_s=0.0)
    driver.submit(ask(5))
    refuse(driver, "1.1")
    driver.pass_time(RESTED_S)
    assert places(driver, 1) == [(("a", 5),), (("b", 5),)]
    assert [site.trust for site in driver.ledger.sites] == [Trust.USABLE] * 2
    assert driver.idle("a") == 10
    driver.ready("1.2")
    driver.end("1.2")
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert_clean(driver.ledger)


def test_it_waits_for_another_site_rather_than_go_back_there() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.report("b", others=9)
    driver.submit(ask(5))
    refuse(driver, "1.1")
    driver.pass_time(100.0)
    assert driver.state(1) is JobState.WAITING
    explanation = driver.scheduler.explain(1)
    assert explanation is not None
    refusal = explanation.refusal
    assert refusal is not None
    cures = {shortage.site: shortage.cure for shortage in refusal.shortages}
    assert cures["a"] == "none: a will never run it; its story tells why"
    assert not refusal.permanent
    driver.report("b", others=0)
    driver.pass_time(RESTED_S)
    assert places(driver, 1)[-1] == (("b", 5),)


def test_others_that_ask_for_the_same_go_there_all_the_same() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.report("b", others=9)
    driver.submit(ask(5))
    refuse(driver, "1.1")
    driver.submit(ask(5))
    driver.pass_time(RESTED_S)
    assert (driver.state(1), places(driver, 2)) == (JobState.WAITING, [(("a", 5),)])


def test_where_no_place_is_left_it_fails_and_says_why_of_each_site() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "tiny": 1}, scan_interval_s=0.0)
    driver.submit(ask(5))
    refuse(driver, "1.1", reason="two hours at most")
    driver.pass_time(RESTED_S)
    refuse(driver, "1.2", reason="four processors at most")
    ended = driver.ended(1)
    assert ended.outcome is JobOutcome.FAILED
    assert ended.reason.startswith("no place is left for it: a will never run it: two hours at most; b will never")
    assert ended.reason.endswith("run it: four processors at most")
    assert_clean(driver.ledger)


def test_a_site_that_is_small_or_full_for_a_while_still_counts_as_a_place() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.report("b", others=0, processors=1)
    driver.submit(ask(5))
    refuse(driver, "1.1")
    assert driver.state(1) is JobState.WAITING
    driver.report("b", others=0, processors=9)
    driver.pass_time(RESTED_S)
    assert places(driver, 1)[-1] == (("b", 5),)


def test_one_who_chose_the_site_himself_is_told_at_once() -> None:
    driver = CoreDriver({"a": 10, "b": 9})
    driver.submit(ask(part(5, "a"), part(2)))
    refuse(driver, "1.1")
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert "a will never run it: too long" in driver.ended(1).reason


def test_what_the_job_had_elsewhere_is_given_back() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "c": 20}, scan_interval_s=0.0, policy="WF")
    driver.report("c", others=20)
    driver.submit(ask(6, 6))
    driver.ready("1.2")
    refuse(driver, "1.1")
    driver.end("1.2", outcome=Outcome.ABORTED)
    assert_ledger_balances(driver.ledger)
    assert (driver.idle("a"), driver.idle("b"), driver.state(1)) == (10, 10, JobState.WAITING)
    driver.report("c", others=0)
    driver.pass_time(RESTED_S)
    assert {site for site, _ in places(driver, 1)[-1]} == {"c"}


def test_a_total_is_divided_without_the_site() -> None:
    driver = CoreDriver({"a": 10, "b": 6, "c": 6}, scan_interval_s=0.0, policy="FCM")
    driver.submit(ask_total(9))
    assert places(driver, 1) == [(("a", 9),)]
    refuse(driver, "1.1")
    driver.pass_time(RESTED_S)
    assert sorted(places(driver, 1)[-1]) == [("b", 6), ("c", 3)]


def test_neither_a_placement_nor_a_move_goes_there() -> None:
    driver = CoreDriver({"a": 10, "b": 9, "c": 8})
    driver.submit(ask(5))
    demand, view = driver.job(1).demand, driver.ledger.sites.view
    assert demand is not None
    barred = demand.barring((0,))
    spots = try_place(barred, view)
    assert spots is not None
    assert spots.sites == (1,)
    left = [10, 0, 8]
    assert (replace_one(demand, spots, 0, left, 0.0, view), replace_one(barred, spots, 0, left, 0.0, view)) == (0, 2)
    assert barred.barring((1,)).barred == (0, 1)
    assert barred.barring((0,)).key == barred.key != demand.key


def test_a_restart_remembers_the_site_and_another_grid_forgets_it() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.report("b", others=9)
    driver.submit(ask(5))
    refuse(driver, "1.1")
    restart(driver)
    driver.pass_time(50.0)
    assert (driver.state(1), driver.job(1).barred) == (JobState.WAITING, {"a": "too long"})
    restart(driver, a=11, b=9)
    started = kind(driver.pass_time(50.0), StartComponent)
    assert [command.site for command in started] == ["a"]


def test_what_is_kept_of_a_job_that_ended_so_is_the_same_after_a_restart() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(5))
    refuse(driver, "1.1")
    before = records_of(driver.scheduler)
    restart(driver)
    assert records_of(driver.scheduler) == before


@pytest.mark.parametrize("late", [False, True])
def test_its_word_about_a_component_that_is_being_aborted_changes_nothing(late: bool) -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0)
    driver.submit(ask(5))
    driver.cancel(1)
    refuse(driver, "1.1")
    if late:
        refuse(driver, "1.1")
    assert driver.ended(1).outcome is JobOutcome.CANCELLED
    assert_clean(driver.ledger)
