"""Jobs of tasks in the core: every start says which tasks the component holds, also after the books were read."""

from __future__ import annotations

from koala.core import Scheduler, decode_snapshot, encode_snapshot
from koala.model.messages import JobOutcome, StartComponent
from koala.model.request import Flexibility, Request
from koala.model.task_graph import TaskGraph
from tests.support.core_driver import Desk, ask, part

GRAPH = TaskGraph.of(
    dict.fromkeys("abcdef", 1.0),
    [("a", "b", 9.0), ("b", "c", 9.0), ("d", "e", 9.0), ("e", "f", 9.0), ("c", "d", 1.0)],
    800.0,
)
SITES = {"C1": 3, "C2": 3}


def tasks(*files: str) -> Request:
    return ask(part(6, None, *files), flexible=Flexibility(), tasks=GRAPH)


def starts(desk: Desk) -> list[tuple[str, int, str]]:
    return [(each.site, each.processors, "".join(each.tasks)) for each in desk.all(StartComponent)]


def test_every_start_says_which_tasks_the_component_holds() -> None:
    """waiting -> placed -> starting -> running -> done"""
    desk = Desk(SITES)
    desk.submit(tasks())
    assert starts(desk) == [("C1", 3, "abc"), ("C2", 3, "def")]
    tokens = [each.token for each in desk.all(StartComponent)]
    desk.ready(*tokens)
    desk.end(*tokens)
    assert desk.ended(1).outcome is JobOutcome.DONE


def test_other_jobs_start_without_tasks() -> None:
    desk = Desk(SITES)
    desk.submit(ask(2))
    assert starts(desk)[0][2] == ""


def test_the_books_keep_the_tasks_of_a_placed_job() -> None:
    """waiting -> placed, then the books, then claiming: the transfer takes its time"""
    desk = Desk(SITES, files={"film": (100.0, ("C1",))})
    desk.submit(tasks("film"))
    assert starts(desk) == []
    books = decode_snapshot(encode_snapshot(desk.scheduler.snapshot()))
    again = Scheduler.from_snapshot(desk.scheduler.grid, None, books)
    (job,) = again.ledger.jobs.values()
    assert job.spots is not None
    assert job.spots.tasks == ((0, 1, 2), (3, 4, 5))
    assert job.spots == desk.ledger.jobs[job.id].spots
