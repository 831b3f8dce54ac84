"""Places in line: right for every job, and without a look at the whole queue for a page of a few."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.core import Scheduler
from koala.core.state.queues.placement import PlacementQueue
from koala.daemon.service.answers import places_in_line
from koala.model.messages import JobSubmitted
from koala.model.request import Priority
from koala.policies import Catalogue
from tests.support.daemon_world import ANNA, OWNER, job_text, open_daemon
from tests.support.engine_world import a_request, local_grid


@given(st.lists(st.tuples(st.integers(5, 9), st.sampled_from(Priority)), max_size=30), st.data())
def test_each_place_is_that_of_counting_from_the_head(
    wishes: list[tuple[int, Priority]], data: st.DataObject
) -> None:
    scheduler = Scheduler(local_grid((4,)), Catalogue.builtin())
    for number, (size, priority) in enumerate(wishes, 1):
        scheduler.handle(
            JobSubmitted(at=float(number), job=number, request=a_request(sizes=(size,), priority=priority))
        )
    ledger = scheduler.ledger
    counted = {job.id: place for queue in (ledger.high, ledger.low) for place, job in enumerate(queue, 1)}
    asked = data.draw(st.sets(st.integers(1, 40)))
    assert places_in_line(ledger, asked) == {job: counted[job] for job in asked if job in counted}


def test_a_page_of_one_job_does_not_look_at_the_whole_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            await world.service.grid.drain(OWNER, "A")
            jobs = [await world.start(job_text(components=("{processors: 1, site: A}",)), ANNA) for _ in range(6)]

            def whole(queue: PlacementQueue) -> None:
                raise AssertionError("somebody looks at the whole queue")

            monkeypatch.setattr(PlacementQueue, "__iter__", whole)
            monkeypatch.setattr(PlacementQueue, "in_line", whole)
            for who in (OWNER, ANNA):
                page = await world.service.jobs(who, limit=1)
                assert [(job.id, job.place_in_line) for job in page.items] == [(jobs[-1], 6)]
                overview = await world.service.grid.overview(who)
                assert [(job.id, job.place_in_line) for job in overview.waiting_low] == [
                    (job, place) for place, job in enumerate(jobs, 1)
                ]
                assert overview.counts["waiting"] == 6
            monkeypatch.undo()

    asyncio.run(scenario())
