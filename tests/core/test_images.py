"""Jobs that run in a container image: they go to sites that say how they run one."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState, Scheduler
from koala.model.facts import JobPlaced
from koala.model.grid import Containers, ContainerTool, Grid
from koala.model.messages import JobOutcome, JobSubmitted, Tick
from koala.model.request import Application, JobType, Request
from tests.support.core_driver import CoreDriver, ask, ask_total, make_grid, part
from tests.support.core_records import records_of, scheduler_of


def grid_of(**sites: tuple[int, ContainerTool | None]) -> Grid:
    grid = make_grid({name: size for name, (size, _) in sites.items()}, scan_interval_s=0.0)
    tools = [None if tool is None else Containers(tool=tool) for _, tool in sites.values()]
    described = zip(grid.sites, tools, strict=True)
    return msgspec.structs.replace(
        grid, sites=tuple(msgspec.structs.replace(site, containers=tool) for site, tool in described)
    )


def with_image(request: Request, job_type: JobType = JobType.PLAIN) -> Request:
    application = Application(executable="solve", image="solver.sif")
    components = tuple(msgspec.structs.replace(each, application=application) for each in request.components)
    return msgspec.structs.replace(request, components=components, job_type=job_type)


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


MIXED = {"bare": (10, None), "boxed": (4, ContainerTool.APPTAINER), "podded": (3, ContainerTool.PODMAN)}


@pytest.mark.parametrize("request_", [ask(3), ask_total(3), ask(1, 2), ask(part(3, "boxed"))])
def test_a_job_with_an_image_goes_where_images_run(request_: Request) -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=with_image(request_)))
    assert places(driver)[0] <= {"boxed", "podded"}


def test_without_an_image_it_goes_anywhere() -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=ask(3)))
    assert places(driver) == [{"bare"}]


def test_the_ranks_of_mpi_do_not_go_where_podman_runs_the_images() -> None:
    driver = driver_of(grid_of(**MIXED))
    driver.send(JobSubmitted(at=driver.now, job=1, request=with_image(ask(4, 3), job_type=JobType.MPI)))
    assert driver.state(1) is JobState.FAILED
    driver.send(JobSubmitted(at=driver.now, job=2, request=with_image(ask(4, 3))))
    assert places(driver) == [{"boxed", "podded"}]


def test_where_no_site_is_left_the_job_ends_at_once_and_says_why() -> None:
    driver = driver_of(grid_of(bare=(10, None), boxed=(4, ContainerTool.ENROOT)))
    driver.send(JobSubmitted(at=driver.now, job=1, request=with_image(ask(6))))
    assert driver.ended(1).outcome is JobOutcome.FAILED
    assert driver.ended(1).reason == "no place is left for it: bare cannot run its image"


def test_a_restart_of_the_scheduler_keeps_it_from_the_other_sites() -> None:
    grid = grid_of(bare=(10, None), boxed=(4, ContainerTool.CHARLIECLOUD))
    driver = driver_of(grid)
    driver.report("boxed", others=3)
    driver.send(JobSubmitted(at=driver.now, job=1, request=with_image(ask(3))))
    assert driver.state(1) is JobState.WAITING
    kept = records_of(driver.scheduler)
    go_on(driver, scheduler_of(grid, None, kept))
    driver.pass_time(100.0)
    assert driver.state(1) is JobState.WAITING
    driver.report("boxed", others=0)
    driver.pass_time(100.0)
    assert places(driver) == [{"boxed"}]
