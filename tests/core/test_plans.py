"""Plans: the first jobs that cannot start get a time and places, and no later job puts them off."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from koala.core import JobState
from koala.core.plans import JobPlans
from koala.core.preemption.victims import Victims
from koala.core.state.availability import GRACE_S, Availability, expected_at
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.api import PlanInfo, Refusal
from koala.model.facts import JobPlaced
from koala.model.messages import AnyEvent, Outcome, SiteDrained, SiteReported, SiteSilent, Tick
from koala.model.nodes import RELEASES_MAX
from koala.model.request import Priority, Request
from koala.policies import Catalogue
from koala.policies.interface import Demand, Spots, View, compile_demand, place_on
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_ledger_balances, kind, make_grid, part
from tests.support.core_records import records_of, scheduler_of


def started(driver: CoreDriver) -> list[int]:
    """The jobs that have found places, in order."""
    return [command.job for command in driver.all(JobPlaced)]


def submit(driver: CoreDriver, request: Request) -> None:
    driver.submit(request)
    driver.settle()


def run(driver: CoreDriver, request: Request) -> list[str]:
    """Submit a job that starts at once, and let it reach its barrier."""
    tokens = driver.run(request)
    driver.settle()
    return tokens


def one_wide_job_waits() -> tuple[CoreDriver, list[str]]:
    """Ten of twenty processors are held until 100 s, and job 2 wants all twenty."""
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1)
    tokens = run(driver, ask(10, walltime_s=100.0))
    submit(driver, ask_total(20))
    return driver, tokens


def test_a_later_job_that_would_put_the_plan_off_does_not_start() -> None:
    driver, _ = one_wide_job_waits()
    assert (driver.job(2).plan_at, driver.job(2).planned.spots) == (100.0, Spots((0, 1), (10, 10)))
    submit(driver, ask(5, walltime_s=101.0))
    assert driver.state(3) is JobState.WAITING
    explanation = driver.scheduler.explain(3)
    assert explanation is not None
    assert explanation.refusal is not None
    assert "kept for the plan of a job that comes before it" in explanation.refusal.reason
    assert explanation.planned_before == [PlanInfo(job=2, expected_at=100.0, expected_sites=["a", "b"])]
    assert (explanation.expected_at, explanation.expected_sites) == (None, [])


def test_the_scheduler_is_due_when_the_time_of_a_plan_comes_whether_anything_ends_then_or_not() -> None:
    driver, _ = one_wide_job_waits()
    assert driver.job(2).plan_at == 100.0
    assert driver.scheduler.due_at == 100.0


def test_whoever_waits_is_tried_when_the_time_of_a_plan_comes_though_nothing_has_ended() -> None:
    driver, _ = one_wide_job_waits()
    job = driver.job(2)
    tries = driver.ledger.tries_in_queue(job)
    driver.wait_until(99.0)
    assert driver.ledger.tries_in_queue(job) == tries
    driver.wait_until(100.0)
    assert driver.ledger.tries_in_queue(job) == tries + 1


def test_a_preview_minds_the_plans_and_changes_nothing() -> None:
    driver, _ = one_wide_job_waits()
    before = records_of(driver.scheduler)

    def preview(request: Request) -> Spots | Victims | Refusal:
        demand = compile_demand(request, Catalogue.builtin().choose(request, "WF"), driver.ledger.sites.view.index)
        return driver.scheduler.preview(demand, request)

    held = preview(ask(5, walltime_s=101.0))
    assert isinstance(held, Refusal)
    assert "kept for the plan of a job that comes before it" in held.reason
    assert isinstance(preview(ask(5, walltime_s=100.0)), Spots)
    assert isinstance(preview(replace(ask(5, walltime_s=101.0), priority=Priority.HIGH)), Spots)
    too_wide = preview(ask(11))
    assert isinstance(too_wide, Refusal)
    assert too_wide.permanent
    assert records_of(driver.scheduler) == before


def test_a_planned_job_tells_when_and_where_it_is_expected() -> None:
    driver, tokens = one_wide_job_waits()
    explanation = driver.scheduler.explain(2)
    assert explanation is not None
    assert (explanation.expected_at, explanation.expected_sites) == (100.0, ["a", "b"])
    assert explanation.planned_before == []
    driver.end(*tokens)
    driver.settle()
    started_job = driver.scheduler.explain(2)
    assert started_job is not None
    assert (started_job.expected_at, started_job.expected_sites) == (None, [])


def test_what_is_expected_goes_by_the_users_last_two_runs_and_the_latest_by_walltimes() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=2)
    for took_s in (500.0, 20.0, 40.0):  # the first counts no more
        tokens = run(driver, ask(10, walltime_s=1_000.0))
        driver.wait_until(driver.ledger.now + took_s)
        driver.end(*tokens)
        driver.settle()
    begun = driver.ledger.now
    run(driver, ask(10, walltime_s=1_000.0))
    submit(driver, replace(ask_total(20), walltime_s=600.0))
    submit(driver, replace(ask_total(15), walltime_s=100.0))

    def told(job: int) -> tuple[float | None, float | None, tuple[int, ...]]:
        found = driver.scheduler.explain(job)
        assert found is not None
        return found.expected_at, found.latest_at, tuple(found.ends_before)

    assert told(5) == (begun + 30.0, begun + 1_000.0, (4,))
    assert told(6) == (begun + 60.0, begun + 1_600.0, (5,))  # whoever makes room for that one is not waited for
    driver.send(Tick(at=begun + 31.0))
    assert told(5) == (begun + 60.0, begun + 1_000.0, (4,))  # it takes longer than usual: twice as long is believed
    assert driver.job(5).plan_at == begun + 1_000.0


def test_a_later_job_that_ends_before_the_plan_starts() -> None:
    driver, tokens = one_wide_job_waits()
    submit(driver, ask(5, walltime_s=101.0))
    submit(driver, ask(5, walltime_s=100.0))
    assert started(driver) == [1, 4]
    driver.wait_until(60.0)
    driver.ready(*driver.tokens(4))
    driver.end(*driver.tokens(4))
    driver.end(*tokens)
    driver.settle()
    assert started(driver) == [1, 4, 2]


def test_without_plans_the_later_job_starts() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0)
    run(driver, ask(10, walltime_s=100.0))
    submit(driver, ask_total(20))
    submit(driver, ask(5, walltime_s=101.0))
    assert started(driver) == [1, 3]


def test_a_plan_may_take_other_places_for_a_later_job() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "c": 10}, scan_interval_s=0.0, plan_depth=1)
    run(driver, ask(10, walltime_s=50.0))
    run(driver, ask(10, walltime_s=50.0))
    submit(driver, ask_total(20))  # planned on two of the three
    submit(driver, ask(10, walltime_s=500.0))  # the third is the only one idle now
    assert started(driver) == [1, 2, 4]
    assert driver.job(3).plan_at == 50.0
    assert driver.job(3).planned.spots == Spots((0, 1), (10, 10))


def test_an_early_end_moves_the_plan_earlier_and_starts_it() -> None:
    driver, tokens = one_wide_job_waits()
    driver.wait_until(30.0)
    driver.end(*tokens)
    driver.settle()
    assert started(driver) == [1, 2]


def test_a_job_with_files_starts_at_the_time_of_its_plan_also_before_other_plans() -> None:
    """Nobody knows when one with files will end; the plans behind it go by its walltime."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=2, files={"f": (5.0, ("a",))})
    tokens = run(driver, ask(10, walltime_s=100.0))
    submit(driver, replace(ask(part(6, None, "f")), walltime_s=100.0))
    submit(driver, ask(6, walltime_s=100.0))
    assert [driver.job(job).plan_at for job in (2, 3)] == [100.0, 200.0]
    driver.wait_until(100.0)
    driver.end(*tokens)
    driver.settle()
    assert started(driver) == [1, 2]


def test_a_job_with_files_that_comes_first_starts_when_what_its_plan_waits_for_comes_free_early() -> None:
    """Its plan is for this moment then, and no later event would bring it another try."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=2, files={"f": (5.0, ("a",))})
    tokens = run(driver, ask(10, walltime_s=100.0))
    submit(driver, replace(ask(part(6, None, "f")), walltime_s=100.0))
    submit(driver, ask(6, walltime_s=100.0))
    driver.wait_until(60.0)
    driver.end(*tokens)
    driver.settle()
    assert started(driver) == [1, 2]
    assert driver.job(3).plan_at == 160.0


def test_a_job_with_files_puts_off_no_plan_before_it_at_the_time_of_its_own() -> None:
    driver = CoreDriver({"a": 10, "store": 1}, scan_interval_s=0.0, plan_depth=2, files={"f": (900.0, ("store",))})
    run(driver, ask(part(6, "a"), walltime_s=1000.0))
    tokens = run(driver, ask(part(1, "store"), walltime_s=1000.0))
    submit(driver, ask(part(10, "a"), walltime_s=100.0))
    submit(driver, replace(ask(part(4, "a", "f")), walltime_s=500.0))
    assert driver.job(3).plan_at == 1000.0
    driver.wait_until(10.0)
    driver.end(*tokens)
    driver.settle()
    assert driver.state(4) is JobState.WAITING
    assert driver.job(3).plan_at == 1000.0


@pytest.mark.parametrize(("hold_placed", "placed"), [(None, [1, 2]), (False, [1, 2, 3])])
def test_nobody_takes_what_a_job_waited_for_while_its_files_come(hold_placed: bool | None, placed: list[int]) -> None:
    files = {"f": (30.0, ("store",))}
    driver = CoreDriver(
        {"a": 10, "store": 1}, scan_interval_s=0.0, plan_depth=1, files=files, hold_placed=hold_placed
    )
    tokens = run(driver, ask(10, walltime_s=100.0))
    submit(driver, replace(ask(part(10, "a", "f")), walltime_s=100.0))
    submit(driver, ask(10, walltime_s=100.0))
    driver.end(*tokens)
    driver.settle()
    assert started(driver) == placed
    assert driver.state(2) is JobState.PLACED


def test_when_the_planned_job_is_cancelled_what_was_kept_is_used() -> None:
    driver, _ = one_wide_job_waits()
    submit(driver, ask(5, walltime_s=500.0))
    driver.cancel(2)
    driver.settle()
    assert started(driver) == [1, 3]


def test_what_others_let_go_of_in_part_is_counted_once() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, plan_depth=1, default_walltime_s=100.0)
    for at, others in ((0.0, 8), (10.0, 5), (20.0, 6), (30.0, 1)):
        driver.send(SiteReported(at=at, site="a", processors=10, others=others))
        assert_ledger_balances(driver.ledger)
    assert driver.ledger.sites.sites[0].releases == [(120.0, 1)]


@pytest.mark.parametrize("scan_interval_s", [0.0, 30.0])
@pytest.mark.parametrize("taken_out_by", ["drain", "errors", "others"])
def test_a_plan_that_comes_to_nothing_keeps_no_processors_from_others(
    taken_out_by: str, scan_interval_s: float
) -> None:
    driver = CoreDriver(
        {"a": 10, "b": 10}, scan_interval_s=scan_interval_s, plan_depth=1, error_threshold=1, check_interval_s=None
    )
    run(driver, ask(10, walltime_s=100.0))
    submit(driver, ask_total(20))
    submit(driver, ask(5, walltime_s=101.0))
    if scan_interval_s:
        driver.pass_time(scan_interval_s + 1.0)
    assert driver.job(2).plan_at is not None
    assert driver.state(3) is JobState.WAITING
    events: dict[str, AnyEvent] = {
        "drain": SiteDrained(at=driver.now, site="a"),
        "errors": SiteSilent(at=driver.now, site="a", reason="no route to host"),
        "others": SiteReported(at=driver.now, site="a", processors=10, others=10, releases=((5000.0, 10),)),
    }
    driver.send(events[taken_out_by])
    driver.settle()
    if scan_interval_s:
        driver.pass_time(2 * scan_interval_s)
    assert driver.job(2).plan_at == (5000.0 if taken_out_by == "others" else None)
    assert started(driver) == [1, 3]


def test_a_job_that_runs_too_long_puts_the_plan_off_and_the_story_says_so() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1, default_walltime_s=100.0)
    run(driver, ask(10))
    submit(driver, ask_total(20))
    submit(driver, ask(5, walltime_s=150.0))
    driver.wait_until(100.0 + 2 * GRACE_S)
    plan_at = driver.job(2).plan_at
    assert plan_at is not None
    assert plan_at > 100.0 + GRACE_S
    assert any("put off" in line and "a run longer than expected" in line for line in driver.story(2))


def test_a_job_that_lost_its_places_stands_where_it_stood() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1, restart_rest_s=0.0, avoid_failed_s=0.0)
    tokens = run(driver, ask(10, walltime_s=50.0))
    for _ in range(3):
        submit(driver, ask(10, walltime_s=50.0))
    driver.wait_until(5.0)
    driver.end(*tokens, outcome=Outcome.SITE_FAILED)
    driver.settle()
    assert started(driver) == [1, 1]


def test_a_high_job_puts_the_plan_of_a_low_one_off_unless_that_has_aged() -> None:
    for ageing_half_s, second in ((None, 3), (20.0, 2)):
        driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1, ageing_half_s=ageing_half_s)
        tokens = run(driver, ask(10, walltime_s=100.0))
        submit(driver, ask(10, walltime_s=50.0))
        driver.wait_until(30.0)
        submit(driver, ask(10, walltime_s=50.0, high=True))
        driver.wait_until(60.0)
        driver.end(*tokens)
        driver.settle()
        assert started(driver) == [1, second]


def test_sites_tell_when_other_users_let_go() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1, default_walltime_s=1_000.0)
    driver.send(SiteReported(at=1.0, site="a", processors=10, others=8, releases=((40.0, 3), (70.0, 4))))
    submit(driver, ask(6))
    assert driver.job(1).plan_at == 70.0
    submit(driver, ask(10))
    driver.cancel(1)
    driver.settle()
    assert driver.job(2).plan_at == 1_001.0  # of one processor nothing was said


def test_what_a_site_tells_of_some_ends_puts_off_none_of_the_rest() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1, default_walltime_s=1_000.0)
    for at, end_at in ((1.0, 40.0), (50.0, 90.0), (100.0, 140.0)):
        driver.wait_until(at)
        driver.send(SiteReported(at=at, site="a", processors=10, others=8, releases=((end_at, 3),)))
    submit(driver, ask(10))
    assert driver.job(1).plan_at == 1_001.0  # the five of which nothing was told were there from the first


def test_more_processors_than_others_hold_come_free_for_nobody() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    releases = ((40.0, 3), (70.0, 4), (90.0, 5))
    driver.send(SiteReported(at=1.0, site="a", processors=10, others=8, releases=releases))
    assert driver.ledger.sites.sites[0].releases_told == [(70.0, 3), (90.0, 5)]
    submit(driver, ask(5))
    assert driver.job(1).plan_at == 70.0


def test_more_ends_than_a_report_may_have_count_as_one() -> None:
    driver = CoreDriver({"a": 1_000}, scan_interval_s=0.0, plan_depth=1)
    releases = tuple((100.0 + number, 1) for number in range(RELEASES_MAX + 10))
    driver.send(SiteReported(at=1.0, site="a", processors=1_000, others=len(releases), releases=releases))
    kept = driver.ledger.sites.sites[0].releases_told
    assert len(kept) == RELEASES_MAX
    assert kept[-1] == (100.0 + RELEASES_MAX + 9, 11)


def test_a_stream_of_small_jobs_does_not_starve_a_wide_one() -> None:
    """Its wait is at most the longest walltime of those that run when it comes."""
    driver = CoreDriver({"a": 4, "b": 4}, scan_interval_s=0.0, plan_depth=1, policy="FCM")
    rng = random.Random(1)
    ends: list[tuple[float, int]] = []

    def small() -> None:
        before = len(started(driver))
        submit(driver, replace(ask_total(2), walltime_s=rng.choice((10.0, 25.0))))
        for job in started(driver)[before:]:
            _begin(driver, job, ends)

    for _ in range(4):
        small()
    submit(driver, ask_total(8))
    wide, came_at = 5, driver.now
    for _ in range(200):
        if wide in started(driver):
            break
        at, job = min(ends)
        ends.remove((at, job))
        driver.wait_until(at)
        before = len(started(driver))
        driver.end(*driver.tokens(job))
        driver.settle()
        for other in started(driver)[before:]:
            _begin(driver, other, ends)
        small()
    assert wide in started(driver)
    assert driver.now - came_at <= 25.0


def _begin(driver: CoreDriver, job: int, ends: list[tuple[float, int]]) -> None:
    tokens = driver.tokens(job)
    driver.ready(*tokens)
    walltime_s = driver.job(job).request.walltime_s
    ends.append((driver.now + (1.0 if walltime_s is None else walltime_s), job))


def test_plans_survive_a_restart() -> None:
    driver, _ = one_wide_job_waits()
    submit(driver, ask(5, walltime_s=101.0))
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    assert again.ledger.jobs[2].plan_at == 100.0
    assert not kind(again.handle(Tick(at=driver.now)).entries, JobPlaced)
    other = make_grid({"a": 10, "b": 10, "c": 20}, scan_interval_s=0.0, plan_depth=1)
    wider = scheduler_of(other, None, records_of(driver.scheduler))
    placed = [each.job for _ in range(2) for each in kind(wider.handle(Tick(at=driver.now)).entries, JobPlaced)]
    assert placed == [2, 3]


def test_what_is_late_is_expected_for_as_long_again() -> None:
    assert expected_at(100.0, 100.0 + GRACE_S) == 100.0
    assert expected_at(100.0, 101.0 + GRACE_S) == 100.0 + 2 * GRACE_S
    assert expected_at(100.0, 101.0 + 3 * GRACE_S) == 100.0 + 4 * GRACE_S


# ------------------------------------------------------------------------------------ the naive twin


class NaiveWorld:
    """Small drawn states in whole seconds, in which every second is looked at."""

    def __init__(self, rng: random.Random) -> None:
        sites = {f"s{index}": rng.randint(2, 8) for index in range(rng.randint(1, 4))}
        self.grid = make_grid(sites, plan_depth=1)
        self.view = View.from_grid(self.grid)
        self.availability = Availability(len(sites))
        self.holds: list[tuple[int, int, int]] = []  # site, processors, until
        for index, limit in enumerate(self.view.limit):
            free = limit
            while free and rng.random() < 0.8:
                processors, until = rng.randint(1, free), rng.randint(1, 30)
                self.availability.hold(index, len(self.holds), processors, float(until))
                self.holds.append((index, processors, until))
                free -= processors
            self.availability.set_base(index, free)
            self.view.idle[index] = free

    def idle_at(self, second: int, reserved: list[Reservation]) -> list[int]:
        idle = list(self.view.limit)
        for site, processors, until in self.holds:
            if second < until:
                idle[site] -= processors
        for each in reserved:
            if each.at <= second < each.until:
                for site, size in zip(each.spots.sites, each.spots.sizes, strict=True):
                    idle[site] -= size
        return idle

    def idle_during(self, start: int, walltime_s: int, reserved: list[Reservation]) -> list[int]:
        seconds = [self.idle_at(second, reserved) for second in range(start, start + walltime_s)]
        return [max(0, min(column)) for column in zip(*seconds, strict=True)]

    def earliest(self, demand: Demand, walltime_s: int, reserved: list[Reservation]) -> int | None:
        for second in range(200):
            if place_on(demand, self.idle_during(second, walltime_s, reserved), self.view) is not None:
                return second
        return None


def drawn_demand(rng: random.Random, view: View) -> Demand:
    request = rng.choice(
        (
            lambda: ask_total(rng.randint(1, 14)),
            lambda: ask(rng.randint(1, 8)),
            lambda: ask(*[rng.randint(1, 4) for _ in range(rng.randint(2, 3))]),
        )
    )()
    policy = Catalogue.builtin().choose(request, rng.choice(("WF", "CM", "FCM")))
    return compile_demand(request, policy, view.index)


@pytest.mark.parametrize("seed", range(60))
def test_the_earliest_time_is_that_of_the_naive_twin(seed: int) -> None:
    rng = random.Random(seed)
    world = NaiveWorld(rng)
    reserved: list[Reservation] = []
    for _ in range(4):
        demand, walltime_s = drawn_demand(rng, world.view), rng.randint(1, 20)
        finder = PlanFinder(world.availability, world.view, 0.0, reserved)
        found = finder.earliest(demand, float(walltime_s))
        assert (None if found is None else int(found[0])) == world.earliest(demand, walltime_s, reserved)
        if found is not None:
            at, spots = found
            assert finder.stands()
            reserved.append(Reservation(None, at, at + walltime_s, spots))


def test_plans_are_only_kept_where_they_are_made() -> None:
    driver = CoreDriver({"a": 10})
    assert driver.ledger.sites.availability is None
    assert JobPlans(driver.ledger).depth == 0
