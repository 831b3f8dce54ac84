"""Jobs of tasks in the core: every start says which tasks the component holds, also after the books were read."""

from __future__ import annotations

from koala.model.messages import JobOutcome, StartComponent
from koala.model.request import Flexibility, Request
from koala.model.task_graph import TaskGraph
from tests.support.core_driver import CoreDriver, ask, part
from tests.support.core_records import records_of, scheduler_of

GRAPH = TaskGraph.of(
    dict.fromkeys("abcdef", 1.0),
    [("a", "b", 9.0), ("b", "c", 9.0), ("d", "e", 9.0), ("e", "f", 9.0), ("c", "d", 1.0)],
    800.0,
)
SITES = {"C1": 3, "C2": 3}


def tasks(*files: str) -> Request:
    return ask(part(6, None, *files), flexible=Flexibility(), tasks=GRAPH)


def starts(driver: CoreDriver) -> list[tuple[str, int, str]]:
    return [(each.site, each.processors, "".join(each.tasks)) for each in driver.all(StartComponent)]


def test_every_start_says_which_tasks_the_component_holds() -> None:
    """waiting -> placed -> starting -> running -> done"""
    driver = CoreDriver(SITES)
    driver.submit(tasks())
    assert starts(driver) == [("C1", 3, "abc"), ("C2", 3, "def")]
    tokens = [each.token for each in driver.all(StartComponent)]
    driver.ready(*tokens)
    driver.end(*tokens)
    assert driver.ended(1).outcome is JobOutcome.DONE


def test_other_jobs_start_without_tasks() -> None:
    driver = CoreDriver(SITES)
    driver.submit(ask(2))
    assert starts(driver)[0][2] == ""


def test_the_books_keep_the_tasks_of_a_placed_job() -> None:
    """waiting -> placed, then the books, then claiming: the transfer takes its time"""
    driver = CoreDriver(SITES, files={"film": (100.0, ("C1",))})
    driver.submit(tasks("film"))
    assert starts(driver) == []
    books = records_of(driver.scheduler)
    again = scheduler_of(driver.scheduler.grid, None, books)
    (job,) = again.ledger.jobs.values()
    assert job.placed.spots.tasks == ((0, 1, 2), (3, 4, 5))
    assert job.placed.spots == driver.ledger.jobs[job.id].placed.spots
