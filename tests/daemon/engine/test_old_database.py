"""An engine goes on from a database of the Koala before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.messages import CancelAsked
from tests.support.engine_world import local_grid, open_engine, root
from tests.support.old_database import REVISIONS, rows_of_the_old, write_old_file

__all__ = ["root"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_engine_goes_on_from_a_database_of_a_koala_before(root: Path, revision: str) -> None:
    write_old_file(root / "koala.db", revision)
    old = {job["id"]: job for job in rows_of_the_old(revision)["jobs"]}
    live = [number for number, job in old.items() if job["ended_at"] is None]

    async def scenario() -> None:
        async with open_engine(root, local_grid()) as world:
            assert {row.id for row in world.engine.live_rows()} == set(live)
            for number in live:
                row = world.engine.live_row(number)
                assert row is not None
                assert (row.name, row.submitted_at) == (old[number]["name"], old[number]["submitted_at"])
                await world.engine.tell(CancelAsked(at=0.0, job=number))
            assert {row.state for row in await world.ended(*live)} == {"cancelled"}
            await world.all_given_back()

    asyncio.run(scenario())
