"""Floating licences: who takes them and until when, whom they keep waiting, and what such a job is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.core import JobState, Scheduler
from koala.core.state.reservations import PlanFinder
from koala.model.facts import JobPlaced
from koala.model.grid import Grid, Preemption
from koala.model.job_array import read_array
from koala.model.messages import JobOutcome, Outcome, RestartAsked, SiteLost, SiteSilent, StartComponent, Tick
from koala.model.request import Licenses, Request
from koala.policies.interface import Spots
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_ledger_balances, kind, make_grid, part
from tests.support.core_records import records_of, scheduler_of

ANSYS = (("ansys", 2),)


def grid_of(sites: dict[str, int], pools: dict[str, Licenses], shared: Licenses = (), **parameters: Any) -> Grid:
    grid = make_grid(sites, **{"scan_interval_s": 0.0} | parameters)
    described = tuple(msgspec.structs.replace(site, licenses=pools.get(site.name, ())) for site in grid.sites)
    return msgspec.structs.replace(grid, sites=described, licenses=shared)


def driver_of(grid: Grid) -> CoreDriver:
    driver = CoreDriver({site.name: site.processors for site in grid.sites})
    go_on(driver, Scheduler(grid, recorded=True))
    return driver


def go_on(driver: CoreDriver, scheduler: Scheduler) -> None:
    driver.scheduler = scheduler
    driver.ledger = scheduler.ledger
    driver.send(Tick(at=driver.now))


def wanting(request: Request, licenses: Licenses = ANSYS) -> Request:
    return msgspec.structs.replace(request, licenses=licenses)


def at_delft(**parameters: Any) -> CoreDriver:
    """A site with three licences and one without a pool."""
    return driver_of(grid_of({"delft": 20, "vu": 40}, {"delft": (("ansys", 3),)}, **parameters))


def submit(driver: CoreDriver, request: Request) -> None:
    driver.submit(request)
    driver.settle()


def sites_of(driver: CoreDriver, job: int) -> set[str]:
    return {site for each in driver.all(JobPlaced) if each.job == job for site, _ in each.places}


def left(driver: CoreDriver, site: str | None = None, name: str = "ansys") -> int:
    view = driver.ledger.sites.view
    return view.licenses.left[-1 if site is None else view.index[site]][name]


def refused(driver: CoreDriver, job: int) -> Any:
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    assert explanation.refusal is not None
    return explanation.refusal


# ---------------------------------------------------------------------------------- taken and given back


def test_a_job_goes_where_its_licences_are_and_holds_them_until_it_has_ended() -> None:
    driver = at_delft()
    tokens = driver.run(wanting(ask(4)))
    assert sites_of(driver, 1) == {"delft"}
    assert left(driver, "delft") == 1
    driver.end(*tokens)
    assert left(driver, "delft") == 3
    assert_ledger_balances(driver.ledger)


def test_one_that_finds_too_few_waits_and_starts_as_soon_as_they_come_back() -> None:
    driver = at_delft()
    tokens = driver.run(wanting(ask(4)))
    submit(driver, wanting(ask(4)))
    assert driver.state(2) is JobState.WAITING
    submit(driver, wanting(ask(4), (("ansys", 1),)))
    assert driver.state(3) is JobState.STARTING
    driver.end(*tokens)
    driver.settle()
    assert driver.state(2) is JobState.STARTING
    assert left(driver, "delft") == 0


def test_one_without_licences_does_not_wait_for_any() -> None:
    driver = at_delft()
    driver.run(wanting(ask(4), (("ansys", 3),)))
    submit(driver, ask(part(16, "delft")))
    assert driver.state(2) is JobState.STARTING


def test_components_at_one_site_hold_its_licences_once_until_the_last_has_gone() -> None:
    driver = at_delft()
    first, second = driver.run(wanting(ask(4, 3)))
    assert left(driver, "delft") == 1
    driver.end(first)
    assert left(driver, "delft") == 1
    driver.end(second)
    assert left(driver, "delft") == 3


def test_a_shared_pool_is_taken_from_once_wherever_the_components_are() -> None:
    driver = driver_of(grid_of({"delft": 4, "vu": 4}, {}, shared=(("ansys", 3),)))
    one, other = driver.run(wanting(ask(4, 4)))
    assert left(driver) == 1
    driver.end(one)
    submit(driver, wanting(ask(1)))
    assert driver.state(2) is JobState.WAITING
    driver.end(other)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_where_a_site_and_all_together_have_a_pool_both_must_have_enough() -> None:
    pools: dict[str, Licenses] = {"delft": (("ansys", 2),), "vu": (("ansys", 4),)}
    driver = driver_of(grid_of({"delft": 10, "vu": 10}, pools, shared=(("ansys", 5),)))
    for job, site in ((1, "delft"), (2, "vu")):
        driver.run(wanting(ask(part(1, site))))
        assert driver.state(job) is JobState.RUNNING
    assert (left(driver, "delft"), left(driver, "vu"), left(driver)) == (0, 2, 1)
    submit(driver, wanting(ask(1)))
    assert driver.state(3) is JobState.WAITING
    submit(driver, wanting(ask(part(1, "delft")), (("ansys", 1),)))
    assert driver.state(4) is JobState.WAITING
    submit(driver, wanting(ask(1), (("ansys", 1),)))
    assert sites_of(driver, 5) == {"vu"}


def test_a_job_of_several_licences_needs_all_of_them() -> None:
    driver = driver_of(grid_of({"a": 9, "b": 9}, {"a": (("ansys", 1), ("matlab", 1)), "b": (("ansys", 1),)}))
    both = (("ansys", 1), ("matlab", 1))
    tokens = driver.run(wanting(ask(1), both))
    assert sites_of(driver, 1) == {"a"}
    submit(driver, wanting(ask(1), both))
    assert driver.state(2) is JobState.WAITING
    driver.end(*tokens)
    driver.settle()
    assert sites_of(driver, 2) == {"a"}


def test_jobs_that_want_other_licences_are_not_taken_for_the_same() -> None:
    driver = at_delft()
    driver.run(wanting(ask(4)))
    for licenses in (ANSYS, (("ansys", 1),)):
        driver.submit(wanting(ask(part(17, "delft")), licenses))
    driver.settle()
    assert driver.job(2).demand.key != driver.job(3).demand.key


def test_a_job_that_waits_for_files_holds_them_from_its_placement_on() -> None:
    grid = make_grid({"a": 8, "b": 8}, files={"data": (30.0, ("b",))}, policy="WF", scan_interval_s=0.0)
    described = tuple(msgspec.structs.replace(site, licenses=(("ansys", 2),)) for site in grid.sites)
    driver = driver_of(msgspec.structs.replace(grid, sites=described))
    submit(driver, wanting(ask(part(8, "a", "data"))))
    assert driver.state(1) is JobState.PLACED
    assert left(driver, "a") == 0
    driver.cancel(1)
    assert left(driver, "a") == 2


def test_aborted_components_hold_them_until_they_are_gone() -> None:
    driver = driver_of(grid_of({"a": 8, "b": 8}, {"a": ANSYS, "b": ANSYS}, restarts_max=None))
    one, other = driver.run(wanting(ask(8, 8)))
    driver.end(one, outcome=Outcome.FAILED, exit_code=1)
    assert driver.state(1) is JobState.UNWINDING
    assert {site: left(driver, site) for site in ("a", "b")} in ({"a": 2, "b": 0}, {"a": 0, "b": 2})
    submit(driver, wanting(ask(1, 1)))
    assert len(sites_of(driver, 2)) == 1
    driver.end(other, outcome=Outcome.ABORTED)
    driver.settle()
    assert left(driver, "a") + left(driver, "b") == 2


def test_the_elements_of_an_array_each_hold_their_own() -> None:
    driver = at_delft()
    submit(driver, wanting(msgspec.structs.replace(ask(1), array=read_array("0-4")), (("ansys", 1),)))
    assert left(driver, "delft") == 0
    running = driver.all(StartComponent)
    assert len(running) == 3
    driver.ready(running[0].token)
    driver.end(running[0].token)
    driver.settle()
    assert len(driver.all(StartComponent)) == 4


def test_a_component_moves_only_where_licences_are_left() -> None:
    pools: dict[str, Licenses] = {"a": ANSYS, "b": ANSYS, "c": (("ansys", 1),)}
    driver = driver_of(grid_of({"a": 4, "b": 4, "c": 20}, pools, queue_patience_s=5.0))
    submit(driver, wanting(ask(4)))
    (start,) = driver.all(StartComponent)
    assert start.site == "a"
    submit(driver, wanting(ask(part(1, "b"))))
    driver.accept(start.token)
    driver.report("a", others=4)
    driver.pass_time(10.0)
    assert len(driver.all(StartComponent)) == 2, "c has too few and b none left"
    driver.ready("2.1")
    driver.end(*driver.tokens(2))
    driver.pass_time(10.0)
    moved = driver.all(StartComponent)[-1]
    assert (moved.site, moved.licenses) == ("b", ANSYS)
    assert (left(driver, "a"), left(driver, "b")) == (0, 0), "what is aborted at a holds on"
    driver.end(start.token, outcome=Outcome.ABORTED)
    assert (left(driver, "a"), left(driver, "b")) == (2, 0)


# ----------------------------------------------------------------------------------- what the sites are asked


def test_the_first_component_at_each_site_asks_its_batch_system_for_what_that_counts() -> None:
    pools: dict[str, Licenses] = {"a": (("ansys", 4),), "b": (("ansys", 4),)}
    driver = driver_of(grid_of({"a": 8, "b": 8}, pools, shared=(("matlab", 1),)))
    starts = kind(
        driver.submit(wanting(ask(part(4, "a"), part(3, "a"), part(2, "b")), (*ANSYS, ("matlab", 1)))), StartComponent
    )
    assert [start.licenses for start in starts] == [ANSYS, (), ANSYS]


# ------------------------------------------------------------------------------------------------- refusals


def test_a_refusal_names_the_licence_what_is_missing_and_who_holds_it() -> None:
    driver = at_delft()
    for _ in range(2):
        driver.run(wanting(ask(1), (("ansys", 1),)))
    submit(driver, wanting(ask(4)))
    found = refused(driver, 3)
    assert found.reason == "ansys: 2 wanted, 1 of 3 left at delft; jobs 1 and 2 hold it"
    assert found.cure == "1 licence of ansys given back at delft"
    assert not found.permanent
    (short,) = found.shortages
    assert (short.site, short.wanted, short.idle, short.missing) == ("delft", 2, 1, 1)
    assert short.resource == "licences of ansys"


def test_of_a_shared_pool_it_says_so() -> None:
    driver = driver_of(grid_of({"a": 8}, {}, shared=(("ansys", 2),)))
    driver.run(wanting(ask(1)))
    submit(driver, wanting(ask(1)))
    found = refused(driver, 2)
    assert found.reason == "ansys: 2 wanted, 0 of 2 left for all sites together; job 1 holds it"
    assert found.cure == "2 licences of ansys given back for all sites together"
    (shortage,) = found.shortages  # waiting helps
    assert (shortage.site, shortage.missing) == ("all sites together", 2)


def test_with_too_few_processors_besides_it_names_both() -> None:
    driver = at_delft()
    driver.run(wanting(ask(4)))
    driver.run(ask(part(14, "delft")))
    submit(driver, wanting(ask(4)))
    found = refused(driver, 3)
    assert found.reason == (
        "a component of 4 processors found no site with 4 idle processors left; the most is 2, on delft; "
        "ansys: 2 wanted, 1 of 3 left at delft; job 1 holds it"
    )
    assert found.cure.endswith(
        "2 more idle processors on delft, or a request with smaller components, "
        "and 1 licence of ansys given back at delft"
    )


def test_with_licences_enough_it_names_none() -> None:
    driver = at_delft()
    driver.run(ask(part(18, "delft")))
    submit(driver, wanting(ask(4)))
    assert "ansys" not in refused(driver, 2).reason


@pytest.mark.parametrize(
    ("licenses", "why"),
    [
        (
            (("ansys", 4),),
            (
                "delft cannot give it 4 licences of ansys: there are 3; "
                "vu cannot give it 4 licences of ansys: there is no such pool"
            ),
        ),
        (
            (("abaqus", 1),),
            "delft, vu cannot give it 1 licence of abaqus: there is no such pool, and the grid file knows ansys",
        ),
    ],
)
def test_what_no_pool_ever_has_ends_the_job_at_once(licenses: Licenses, why: str) -> None:
    driver = at_delft()
    driver.submit(wanting(ask(1), licenses))
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason == f"no place is left for it: {why}"


# ---------------------------------------------------------------------------------------------------- plans


def test_a_plan_counts_on_the_licences_of_jobs_that_are_due_to_end_and_keeps_them() -> None:
    driver = at_delft(plan_depth=1)
    tokens = driver.run(wanting(ask(4, walltime_s=100.0)))
    submit(driver, wanting(ask(4, walltime_s=50.0)))
    assert (driver.job(2).plan_at, driver.job(2).planned.spots) == (100.0, Spots((0,), (4,)))
    submit(driver, wanting(ask(1, walltime_s=101.0), (("ansys", 1),)))
    assert driver.state(3) is JobState.STARTING, "three licences are enough for both"
    submit(driver, wanting(ask(4, walltime_s=100.0), (("ansys", 1),)))
    assert driver.state(4) is JobState.WAITING
    driver.end(*tokens)
    driver.settle()
    assert driver.state(2) is JobState.STARTING
    assert driver.state(4) is JobState.WAITING


def test_no_later_job_takes_licences_that_a_plan_needs() -> None:
    driver = at_delft(plan_depth=1)
    driver.run(wanting(ask(1, walltime_s=100.0)))
    submit(driver, wanting(ask(1, walltime_s=50.0), (("ansys", 3),)))
    assert driver.job(2).plan_at == 100.0
    submit(driver, wanting(ask(1, walltime_s=101.0), (("ansys", 1),)))
    assert driver.state(3) is JobState.WAITING
    assert "kept for the plan" in refused(driver, 3).reason
    submit(driver, wanting(ask(1, walltime_s=99.0), (("ansys", 1),)))
    assert driver.state(4) is JobState.STARTING
    submit(driver, ask(part(16, "delft"), walltime_s=1_000.0))
    assert driver.state(5) is JobState.STARTING, "it holds none"


def test_a_plan_for_licences_of_all_sites_goes_by_whoever_holds_some_anywhere() -> None:
    driver = driver_of(grid_of({"a": 8, "b": 8}, {}, shared=(("ansys", 2),), plan_depth=2))
    driver.run(wanting(ask(part(1, "a"), part(1, "b"), walltime_s=100.0)))
    submit(driver, wanting(ask(1, walltime_s=10.0)))
    submit(driver, wanting(ask(1, walltime_s=10.0)))
    assert (driver.job(2).plan_at, driver.job(3).plan_at) == (100.0, 110.0)
    told = [explained.ends_before for job in (2, 3) if (explained := driver.scheduler.explain(job))]
    assert told == [[1], [1, 2]]
    driver.wait_until(101.0)
    assert driver.job(3).planned.at == driver.job(2).planned.at + 10.0, "they are late, and expected at any moment"


def test_a_finder_forgets_what_it_knew_of_licences_when_something_changes() -> None:
    driver = at_delft(plan_depth=1)
    tokens = driver.run(wanting(ask(1, walltime_s=100.0)))
    sites = driver.ledger.sites
    assert sites.availability is not None
    finder = PlanFinder(sites.availability, sites.view, driver.now)
    demand = driver.job(1).demand
    assert finder.open_during(demand, [5, 5], None, 50.0) == [0, 5]
    driver.end(*tokens)
    assert finder.open_during(demand, [5, 5], None, 50.0) == [5, 5]


# --------------------------------------------------------------------------------------------- preemption


def test_preemption_takes_no_licences_that_are_not_there() -> None:
    driver = at_delft(preemption=Preemption.PLACES)
    driver.run(wanting(ask(part(10, "delft"))))
    driver.run(ask(part(10, "delft")))
    submit(driver, wanting(ask(part(10, "delft"), high=True)))
    assert driver.state(3) is JobState.WAITING
    submit(driver, wanting(ask(part(10, "delft"), high=True), (("ansys", 1),)))
    assert sites_of(driver, 4) == {"delft"}


# ---------------------------------------------------------------------------------------------- a restart


def test_a_restart_works_out_the_same_numbers() -> None:
    pools: dict[str, Licenses] = {"a": (("ansys", 9),), "b": (("ansys", 9),)}
    grid = grid_of({"a": 8, "b": 8}, pools, shared=(("ansys", 8),), plan_depth=1)
    driver = driver_of(grid)
    driver.run(wanting(ask(4, 3)))
    driver.submit(wanting(ask(8, 1)))
    broken = driver.run(wanting(ask(1, 1)))
    driver.end(broken[0], outcome=Outcome.FAILED, exit_code=1)
    before = driver.ledger.sites.view.licenses
    go_on(driver, scheduler_of(grid, None, records_of(driver.scheduler)))
    after = driver.ledger.sites.view.licenses
    assert after is not before
    assert (after.left, after.held) == (before.left, before.held)


def test_total_and_flexible_jobs_avoid_sites_without_licences() -> None:
    driver = at_delft()
    submit(driver, wanting(ask_total(20)))
    assert sites_of(driver, 1) == {"delft"}


def test_a_job_is_not_told_to_wait_for_whoever_is_being_aborted() -> None:
    driver = at_delft(plan_depth=1, restarts_max=None)
    one, other = driver.run(wanting(ask(4, 3, walltime_s=100.0)))
    driver.end(one, outcome=Outcome.FAILED, exit_code=1)
    submit(driver, wanting(ask(1, walltime_s=10.0)))
    explained = driver.scheduler.explain(2)
    assert explained is not None
    assert (driver.state(1), explained.ends_before) == (JobState.UNWINDING, [])
    driver.end(other, outcome=Outcome.ABORTED)


# ---------------------------------------------------------------------------- a job that runs again


def test_a_run_at_a_lost_site_and_the_next_one_each_hold_their_licences() -> None:
    driver = driver_of(grid_of({"a": 4, "b": 4}, {}, shared=(("ansys", 4),)))
    driver.run(wanting(ask(part(4))))
    (first,) = sites_of(driver, 1)
    driver.send(SiteSilent(at=driver.now, site=first, reason="no route"))
    driver.send(SiteLost(at=driver.now, site=first, by="anna"))
    driver.pass_time(200.0)
    assert driver.state(1) is JobState.STARTING
    assert left(driver) == 0
    submit(driver, wanting(ask(1)))
    assert driver.state(2) is JobState.WAITING
    again = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    assert again.ledger.sites.view.licenses.held == driver.ledger.sites.view.licenses.held


def test_a_job_placed_again_while_its_last_claim_is_aborted_holds_licences_for_both() -> None:
    driver = driver_of(grid_of({"a": 20}, {"a": (("ansys", 4),)}))
    submit(driver, wanting(ask(4)))
    driver.send(RestartAsked(at=driver.now, job=1))
    driver.settle()
    driver.pass_time(3.0)
    assert [claim.aborting for claim in driver.ledger.claims.values()] == [True, False]
    assert left(driver, "a") == 0
    submit(driver, wanting(ask(4)))
    assert driver.state(2) is JobState.WAITING
    driver.end("1.1", outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


# ------------------------------------------------------------------------ which component asks for them


def two_components() -> CoreDriver:
    grid = make_grid({"a": 8, "b": 8}, files={"data": (30.0, ("b",))}, scan_interval_s=0.0)
    described = tuple(msgspec.structs.replace(site, licenses=ANSYS) for site in grid.sites)
    driver = driver_of(msgspec.structs.replace(grid, sites=described))
    submit(driver, wanting(ask(part(4, "a", "data"), part(3, "a", "data"))))
    driver.pass_time(29.0)
    return driver


def test_a_component_claimed_again_asks_for_the_licences_that_it_asked_for_before() -> None:
    driver = two_components()
    assert [start.licenses for start in driver.all(StartComponent)] == [ANSYS, ()]
    driver.end("1.1", outcome=Outcome.REFUSED, reason="no")
    driver.pass_time(20.0)
    assert [start.licenses for start in driver.all(StartComponent)] == [ANSYS, (), ANSYS]


def test_a_claim_of_what_was_promised_is_no_reason_for_a_scan() -> None:
    """A job with a limit of tries keeps them while others claim what they were placed on."""
    driver = two_components()
    gained_at = driver.ledger.sites.gained_at
    driver.end("1.1", outcome=Outcome.REFUSED, reason="no")
    before = driver.ledger.sites.gained_at
    assert before > gained_at, "what was refused is idle again"
    driver.pass_time(20.0)
    assert driver.ledger.sites.gained_at == before
