"""Jobs that require programs: they go to sites that provide them, or that they name."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState, Scheduler
from koala.model.facts import JobPlaced
from koala.model.grid import Grid
from koala.model.messages import JobOutcome, JobSubmitted, Tick
from koala.model.request import Application, Request
from tests.support.core_driver import CoreDriver, ask, ask_total, make_grid, part
from tests.support.core_records import records_of, scheduler_of


def grid_of(**sites: tuple[int, tuple[str, ...]]) -> Grid:
    grid = make_grid({name: size for name, (size, _) in sites.items()}, scan_interval_s=0.0)
    described = zip(grid.sites, sites.values(), strict=True)
    return msgspec.structs.replace(
        grid, sites=tuple(msgspec.structs.replace(site, provides=programs) for site, (_, programs) in described)
    )


def requiring(request: Request, *programs: str) -> Request:
    application = Application(script="srun ./solver", requires=programs or ("srun",))
    components = tuple(msgspec.structs.replace(each, application=application) for each in request.components)
    return msgspec.structs.replace(request, components=components)


def driver_of(grid: Grid) -> CoreDriver:
    driver = CoreDriver({site.name: site.processors for site in grid.sites})
    go_on(driver, Scheduler(grid, recorded=True))
    return driver


def go_on(driver: CoreDriver, scheduler: Scheduler) -> None:
    driver.scheduler = scheduler
    driver.ledger = scheduler.ledger
    driver.send(Tick(at=driver.now))


def places(driver: CoreDriver) -> list[set[str]]:
    return [{site for site, _ in command.places} for command in driver.all(JobPlaced)]


MIXED = {"bare": (10, ()), "alpha": (4, ("srun",)), "beta": (3, ("srun", "matlab"))}


@pytest.mark.parametrize("request_", [ask(3), ask_total(3), ask(1, 2), ask(part(3, "alpha"))])
def test_a_job_goes_where_what_it_requires_is_provided(request_: Request) -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=requiring(request_)))
    assert places(driver)[0] <= {"alpha", "beta"}
    driver.send(JobSubmitted(at=driver.now, job=2, request=ask(3)))
    assert places(driver)[1] == {"bare"}


def test_all_that_is_required_must_be_there() -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=requiring(ask(3), "srun", "matlab")))
    assert places(driver) == [{"beta"}]


def test_a_site_that_the_job_names_is_its_own_choice() -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=requiring(ask(part(3, "bare")))))
    assert places(driver) == [{"bare"}]


def test_where_no_site_is_left_the_job_ends_at_once_and_says_why() -> None:
    driver = driver_of(grid_of(bare=(10, ()), alpha=(4, ("srun",))))
    driver.send(JobSubmitted(at=driver.now, job=1, request=requiring(ask(6))))
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason == "no place is left for it: bare cannot provide srun"


def test_a_restart_of_the_scheduler_keeps_it_from_the_other_sites() -> None:
    grid = grid_of(bare=(10, ()), alpha=(4, ("srun",)))
    driver = driver_of(grid)
    driver.report("alpha", others=3)
    driver.send(JobSubmitted(at=driver.now, job=1, request=requiring(ask(3))))
    assert driver.state(1) is JobState.WAITING
    kept = records_of(driver.scheduler)
    go_on(driver, scheduler_of(grid, None, kept))
    driver.pass_time(100.0)
    assert driver.state(1) is JobState.WAITING
    driver.report("alpha", others=0)
    driver.pass_time(100.0)
    assert places(driver) == [{"alpha"}]
