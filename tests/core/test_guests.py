"""Jobs of guests, users other than the daemon's own: they stay away from sites that run jobs under its account."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState, Scheduler
from koala.model.facts import JobPlaced
from koala.model.grid import BatchSettings, Grid, Site, SiteKind
from koala.model.messages import JobOutcome, JobSubmitted, Tick
from koala.model.request import Request
from tests.support.core_driver import CoreDriver, ask, ask_total, make_grid, part
from tests.support.core_records import records_of, scheduler_of

SIZES = {"closed": 10, "open": 4}


def grid_of(*, shared: bool = False, **sizes: int) -> Grid:
    grid = make_grid(sizes or SIZES, scan_interval_s=0.0)
    sites = tuple(
        msgspec.structs.replace(site, own_account=not site.name.startswith("closed")) for site in grid.sites
    )
    return msgspec.structs.replace(grid, sites=sites, shared_account=shared)


def driver_of(grid: Grid) -> CoreDriver:
    driver = CoreDriver(SIZES)
    go_on(driver, Scheduler(grid, recorded=True))
    return driver


def go_on(driver: CoreDriver, scheduler: Scheduler) -> None:
    driver.scheduler = scheduler
    driver.ledger = scheduler.ledger
    driver.send(Tick(at=driver.now))


def submit_guests(driver: CoreDriver, request: Request, job: int = 1) -> None:
    driver.send(JobSubmitted(at=driver.now, job=job, request=request, guest=True))


def places(driver: CoreDriver, job: int = 1) -> list[tuple[tuple[str, int], ...]]:
    return [command.places for command in driver.all(JobPlaced) if command.job == job]


@pytest.mark.parametrize("request_", [ask(3), ask_total(3), ask(1, 2), ask(part(3, "open"))])
def test_a_guests_job_goes_where_it_may(request_: Request) -> None:
    driver = driver_of(grid_of())
    submit_guests(driver, request_)
    assert {site for site, _ in places(driver)[0]} == {"open"}


def test_the_owners_job_and_one_on_a_grid_that_shares_its_account_go_anywhere() -> None:
    driver = driver_of(grid_of())
    driver.send(JobSubmitted(at=driver.now, job=1, request=ask(3)))
    assert places(driver) == [(("closed", 3),)]
    driver = driver_of(grid_of(shared=True))
    submit_guests(driver, ask(3))
    assert places(driver) == [(("closed", 3),)]


def test_it_waits_while_only_closed_sites_are_idle_and_its_explanation_says_so() -> None:
    driver = driver_of(grid_of())
    driver.report("open", others=3)
    submit_guests(driver, ask(3))
    driver.pass_time(100.0)
    assert driver.state(1) is JobState.WAITING
    told = driver.scheduler.explain(1)
    assert told is not None
    assert any("closed to it: closed, which would run it under the account of" in line for line in driver.story(1))
    assert told.refusal is not None
    cures = {shortage.site: shortage.cure for shortage in told.refusal.shortages}
    assert cures["closed"] == "none: closed will never run it; its story tells why"
    driver.report("open", others=0)
    driver.pass_time(100.0)
    assert places(driver) == [(("open", 3),)]


@pytest.mark.parametrize("request_", [ask(5), ask(part(3, "closed")), ask(part(1, "closed"), 1)])
def test_one_that_fits_at_closed_sites_alone_ends_at_once_with_the_reason(request_: Request) -> None:
    driver = driver_of(grid_of())
    submit_guests(driver, request_)
    ended = driver.ended(1)
    assert ended.outcome is JobOutcome.FAILED
    assert "closed would run it under the account of the daemon" in ended.reason
    assert places(driver) == []


def test_one_that_fits_nowhere_waits_as_any_other_does() -> None:
    driver = driver_of(grid_of())
    submit_guests(driver, ask(50))
    assert driver.state(1) is JobState.WAITING


def test_after_a_restart_it_is_a_guests_still_also_on_another_grid() -> None:
    driver = driver_of(grid_of())
    driver.report("open", others=4)
    submit_guests(driver, ask(3))
    for grid in (grid_of(), grid_of(closed=10, open=4, closed_too=20)):
        go_on(driver, scheduler_of(grid, None, records_of(driver.scheduler)))
        driver.pass_time(100.0)
        assert driver.state(1) is JobState.WAITING
    driver.report("open", others=0)
    driver.pass_time(100.0)
    assert places(driver) == [(("open", 3),)]


def test_who_shares_the_account_follows_from_the_kind_of_site_unless_the_grid_says() -> None:
    here = BatchSettings(work_directory="/work")
    there = BatchSettings(work_directory="/work", ssh="delft")
    assert Site(name="a", processors=1, kind=SiteKind.LOCAL).shares_account
    assert Site(name="a", processors=1, kind="slurm", batch=here).shares_account
    assert not Site(name="a", processors=1, kind="slurm", batch=there).shares_account
    assert not Site(name="a", processors=1).shares_account
    assert not Site(name="a", processors=1, kind="slurm", batch=here, own_account=True).shares_account
    assert Site(name="a", processors=1, kind="slurm", batch=there, own_account=False).shares_account
