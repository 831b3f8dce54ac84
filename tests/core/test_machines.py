"""Machines that were measured: jobs of tasks go where the power is now, and a restart forgets nothing of that."""

from __future__ import annotations

from koala.model.messages import MACHINE_CLASSES_MAX, LinkProbed, SiteMachines
from koala.model.request import Component, Flexibility, Request
from koala.model.task_graph import TaskGraph
from tests.support.core_driver import CoreDriver
from tests.support.core_records import records_of, scheduler_of


def tasks(mcr: float = 800.0) -> Request:
    graph = TaskGraph.of({"x": 1.0, "y": 1.0}, [("x", "y", 1.0)], mcr)
    return Request(components=(Component(processors=2),), flexible=Flexibility(), tasks=graph, policy="WASE")


def measure(driver: CoreDriver, site: str, *machines: tuple[int, float, float]) -> None:
    driver.send(SiteMachines(at=driver.now, site=site, machines=machines))


def sites_of(driver: CoreDriver, job: int) -> set[str]:
    return {site for site, _ in driver.job(job).places}


def test_a_job_of_tasks_leaves_out_a_site_whose_machines_others_load() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    driver.submit(tasks())
    assert sites_of(driver, 1) == {"a"}
    measure(driver, "a", (4, 1_000.0, 0.9))
    driver.submit(tasks())
    assert sites_of(driver, 2) == {"b"}


def test_a_job_waits_for_power_and_starts_when_the_load_is_gone() -> None:
    driver = CoreDriver({"a": 4})
    measure(driver, "a", (4, 1_000.0, 0.9))
    driver.submit(tasks())
    assert sites_of(driver, 1) == set()
    driver.pass_time(1_000.0)
    assert driver.state(1) == "waiting", "load is nothing for good"
    measure(driver, "a", (4, 1_000.0, 0.0))
    driver.pass_time(10.0)
    assert sites_of(driver, 1) == {"a"}


def test_more_power_than_declared_is_believed() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    measure(driver, "b", (4, 5_000.0, 0.0))
    driver.submit(tasks(mcr=4_000.0))
    assert sites_of(driver, 1) == {"b"}


def test_a_restart_forgets_neither_machines_nor_regions() -> None:
    driver = CoreDriver({"a": 4, "b": 4, "c": 4})
    measure(driver, "b", (1, 900.0, 0.1), (3, 900.0, 0.5))
    driver.send(LinkProbed(at=1.0, source="a", target="c", latency_s=0.001, bytes_per_s=1e7, size_bytes=1_000_000))
    after = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler)).ledger.sites.view.lans
    before = driver.ledger.sites.view.lans
    assert [after.classes(index) for index in range(3)] == [before.classes(index) for index in range(3)]
    assert after.seen == before.seen
    assert after.seen.sites[2].man == "a"


def test_of_very_many_kinds_of_machines_so_many_are_kept() -> None:
    driver = CoreDriver({"a": 100})
    measure(driver, "a", *((1, 1_000.0 + number, 0.0) for number in range(MACHINE_CLASSES_MAX + 1)))
    assert len(driver.ledger.sites.sites[0].machines) == MACHINE_CLASSES_MAX
    measure(driver, "nowhere", (1, 1.0, 0.0))
