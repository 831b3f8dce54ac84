"""What an overview, the counts and a look of the poller cost does not grow with how many jobs live."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from koala.daemon.engine.batch import activity_at
from koala.daemon.engine.loop import Engine
from koala.daemon.live_rows import Draft, LiveRows
from koala.daemon.service.sites.overview import OVERVIEW_JOBS_MAX, JobLists, OverviewBoard
from koala.model.api import ElementCountsInfo
from koala.store.rows import StoredJob
from tests.support.core_driver import CoreDriver, ask


class CountedDict(dict[Any, Any]):
    """Counts how often something is looked up or passed on the way through it."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.looks += 1
            yield key

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


def a_row(number: int, state: str, owner: str = "anna") -> StoredJob:
    return StoredJob(
        id=number,
        owner=owner,
        name="job",
        state=state,
        priority="low",
        job_type="serial",
        kind="fixed",
        policy="WF",
        processors=8,
        submitted_at=float(number),
        since=float(number),
    )


class Waiting:
    """One job holds the grid, and so many wait behind it; ``kinds`` of them ask for something of their own."""

    def __init__(self, jobs: int, kinds: int = 1) -> None:
        self.driver = CoreDriver({"a": 10_000, "b": 10_000}, scan_interval_s=0.0)
        self.driver.submit(ask(10_000, 10_000))
        for number in range(jobs):
            self.driver.submit(ask(10_000 - number % kinds))
        states = ["starting", *["waiting"] * jobs]
        self.rows = LiveRows(a_row(number, state) for number, state in enumerate(states, start=1))
        self.ledger = self.driver.ledger
        self.rows.jobs = CountedDict(self.rows.jobs)
        self.ledger.jobs = CountedDict(self.ledger.jobs)
        self.seq = 1

    def board(self) -> OverviewBoard:
        engine = SimpleNamespace(rows=self.rows, scheduler=self.driver.scheduler, last_seq=self.seq)
        return OverviewBoard(cast(Engine, engine))

    @property
    def looks(self) -> int:
        jobs, known = cast(CountedDict, self.rows.jobs), cast(CountedDict, self.ledger.jobs)
        return jobs.looks + known.looks


def shown(lists: JobLists) -> list[tuple[int, int | None]]:
    return [(job.id, job.place_in_line) for job in lists.waiting_low]


def test_an_overview_looks_at_no_more_jobs_than_it_shows() -> None:
    looks = []
    for jobs in (OVERVIEW_JOBS_MAX, 4 * OVERVIEW_JOBS_MAX):
        world = Waiting(jobs)
        lists = world.board().lists(None)
        assert shown(lists) == [(number + 1, number) for number in range(1, OVERVIEW_JOBS_MAX + 1)]
        assert [job.id for job in lists.active] == [1]
        looks.append(world.looks)
    assert looks[1] == looks[0]


def test_viewers_of_the_same_jobs_share_their_lists_until_something_changes() -> None:
    world = Waiting(20)
    board = world.board()
    first = board.lists(None)
    assert shown(board.lists("anna")) == shown(first)
    looks = world.looks
    for _ in range(100):
        assert board.lists(None) is first
        board.lists("anna")
    assert world.looks == looks
    cast(Any, board)._engine.last_seq = 2
    assert board.lists(None) is not first


def test_the_head_of_a_queue_of_many_kinds_is_its_head() -> None:
    world = Waiting(60, kinds=17)
    in_line = world.ledger.low.in_line()
    for most in (1, 5, 60, 100):
        assert world.ledger.low.first(most) == in_line[:most]


def test_a_look_of_the_poller_looks_at_no_job() -> None:
    world = Waiting(200)
    before = world.looks
    assert activity_at("a", world.ledger).waits
    assert world.looks == before


def test_counts_follow_what_changes_and_ask_for_no_row() -> None:
    rows = LiveRows(a_row(number, "waiting", owner) for number, owner in ((1, "anna"), (2, "bert"), (3, "anna")))
    rows.count_ended(None, {"done": 5, "waiting": 3})
    rows.count_ended("anna", {"done": 2})
    assert rows.counts(None) == {"waiting": 3, "done": 5}
    for row in (a_row(1, "running"), a_row(3, "done"), a_row(4, "failed", "bert")):
        draft = Draft(rows)
        draft.jobs[row.id] = row
        rows.take(draft)
    assert rows.counts(None) == {"waiting": 1, "running": 1, "done": 6, "failed": 1}
    assert rows.counts("anna") == {"running": 1, "done": 3}
    assert not rows.counts_ended("bert")
    assert [row.id for row in rows.in_state("running", "waiting")] == [1, 2]
    for state in ("unfolding", "done"):
        draft = Draft(rows)
        draft.jobs[5] = replace(a_row(5, state), elements=ElementCountsInfo(indices="0-1", size=2))
        rows.take(draft)
        assert rows.counts("anna") == {"running": 1, "done": 3}, "an array counts by its elements"
    assert [row.id for row in rows.in_state("running", "waiting", owner="bert")] == [2]


def test_elements_that_are_no_jobs_yet_count_where_their_array_keeps_them() -> None:
    rows = LiveRows()
    rows.count_ended(None, {})

    def take(row: StoredJob) -> dict[str, int]:
        draft = Draft(rows)
        draft.jobs[row.id] = row
        rows.take(draft)
        return rows.counts(None)

    elements = ElementCountsInfo(indices="0-99", size=100, waiting=100)
    assert take(replace(a_row(1, "held"), elements=elements)) == {"held": 100}
    assert take(replace(a_row(1, "unfolding"), elements=elements)) == {"waiting": 100}
    assert take(replace(a_row(2, "placed"), array=1, array_index=0)) == {"waiting": 99, "placed": 1}
    assert take(replace(a_row(3, "waiting"), array=1, array_index=1)) == {"waiting": 99, "placed": 1}
    assert take(replace(a_row(1, "held"), elements=elements)) == {"held": 98, "waiting": 1, "placed": 1}
    later = replace(elements, waiting=98, running=0, done=1, cancelled=1)
    take(replace(a_row(2, "done"), array=1, array_index=0))
    assert take(replace(a_row(1, "unfolding"), elements=later)) == {"waiting": 98, "done": 1}


@pytest.mark.parametrize("owner", [None, "anna"])
def test_jobs_that_wait_are_shown_in_the_order_of_their_queue(owner: str | None) -> None:
    world = Waiting(30, kinds=4)
    assert shown(world.board().lists(owner)) == [(number + 1, number) for number in range(1, 31)]
