"""A database that was put back is behind the sites: nothing of theirs is ended, and no number given, before somebody
says that it is the one to go on from."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from koala.model.messages import SiteDrained, SiteResumed
from koala.sites import SiteError
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root

__all__ = ["root"]


def keep(root: Path) -> None:
    """Keep a copy of the database as it is; no engine uses it."""
    assert not list(root.glob("koala.db-*")), "SQLite has put everything into the one file"
    shutil.copy(root / "koala.db", root / "kept.db")


def put_back(root: Path) -> None:
    """The copy takes the place of the database."""
    shutil.copy(root / "kept.db", root / "koala.db")


def gated(root: Path) -> str:
    """A script that runs until the gate opens, and says that it was not ended."""
    return f"until [ -e {root}/gate ]; do sleep 0.05; done; echo whole > {root}/whole"


async def run_on(world: EngineWorld, root: Path) -> int:
    """A job that has ended and then one that runs on; the number of the latter."""
    await world.run(a_request("exit 0", sites="a"))
    job = await world.submit(a_request(gated(root), sites="a"))
    await world.in_state(job, "running")
    return job


def test_a_start_asks_before_it_ends_what_the_database_does_not_know(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.run(a_request(sites="b"))
        keep(root)
        async with open_engine(root) as world:
            job = await run_on(world, root)
        shutil.copy(root / "koala.db", root / "newest.db")
        put_back(root)
        for _ in range(2):  # however often it is started
            with pytest.raises(
                SiteError, match=r"^site a: is the database the newest one\? .*: 2\.1, 3\.1\. .*accept"
            ):
                async with open_engine(root):
                    pass
        shutil.copy(root / "newest.db", root / "koala.db")
        async with open_engine(root) as world:
            assert world.engine.live_row(job) is not None
            (root / "gate").touch()
            assert [row.state for row in await world.ended(job)] == ["done"]
            assert (root / "whole").read_text() == "whole\n"
            assert (await world.run(a_request())).id == job + 1

    asyncio.run(scenario())


def test_where_the_database_is_accepted_unknown_components_are_ended_and_no_number_is_given_again(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.run(a_request(sites="b"))
        keep(root)
        async with open_engine(root) as world:
            job = await run_on(world, root)
        put_back(root)
        async with open_engine(root, accepts_database=True) as world:
            await world.until(lambda: world.site("a").processors_held == 0)
            assert not (root / "whole").exists()
        for number in (job + 1, job + 2):  # accepted once, it is accepted for good
            async with open_engine(root) as world:
                row = await world.run(a_request("echo new", sites="a"))
                assert (row.id, row.state) == (number, "done")
                assert await world.output(number) == "new\n"

    asyncio.run(scenario())


def test_a_start_asks_about_starts_of_a_job_that_the_database_has_only_waiting(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,))) as world:
            await world.engine.tell(SiteDrained(at=0.0, site="a"))
            job = await world.submit(a_request("echo ran", sites="a"))
            await world.in_state(job, "waiting")
        keep(root)
        async with open_engine(root, local_grid((4,))) as world:
            await world.engine.tell(SiteResumed(at=0.0, site="a"))
            await world.ended(job)
        put_back(root)
        with pytest.raises(SiteError, match=rf"has not given yet: {job}\.1\. "):
            async with open_engine(root, local_grid((4,))):
                pass
        async with open_engine(root, local_grid((4,)), accepts_database=True) as world:
            await world.engine.tell(SiteResumed(at=0.0, site="a"))
            assert [row.state for row in await world.ended(job)] == ["done"]
            assert [row.token for row in world.store.components(job)] == [f"{job}.2"]

    asyncio.run(scenario())


def test_only_a_few_of_many_components_are_named(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root):
            pass
        keep(root)
        async with open_engine(root) as world:
            for _ in range(7):
                await world.run(a_request(sites="a"))
        put_back(root)
        with pytest.raises(SiteError, match=r": 1\.1, 2\.1, 3\.1, 4\.1, 5\.1 and 2 more\. "):
            async with open_engine(root):
                pass

    asyncio.run(scenario())


def test_one_question_names_all_sites_that_have_such_components(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root):
            pass
        keep(root)
        async with open_engine(root) as world:
            for site in ("a", "b", "a"):
                await world.run(a_request(sites=site))
        put_back(root)
        with pytest.raises(SiteError, match=r"^site a: .*not given yet: 1\.1, 3\.1; at b: 2\.1\. Nothing was done"):
            async with open_engine(root):
                pass

    asyncio.run(scenario())
