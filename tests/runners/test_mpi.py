"""One MPI_COMM_WORLD over two embedded sites, with unmodified MPI programs and the real mpiexec."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Peer
from koala.model.messages import Outcome
from koala.model.request import JobType
from koala.runners import go_for
from tests.support.live_sites import file_appears, launch, opened, processes_of
from tests.support.mpi_world import SIZES, TOKENS, World, in_world

SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.rank, w.size, w.allreduce(w.rank + 1), flush=True)"
# A rank that leaves without MPI_Finalize, which mpiexec alone would wait for.
DESERT = (
    "from mpi4py import MPI; import os, time; r = MPI.COMM_WORLD.rank; os._exit(9) if r == {} else time.sleep(60)"
)
FAIL = "from mpi4py import MPI; import sys; sys.exit(5 if MPI.COMM_WORLD.rank == {} else 0)"
STOP = "from mpi4py import MPI; import time; MPI.COMM_WORLD.Abort(6) if MPI.COMM_WORLD.rank == {} else time.sleep(60)"
HANG = (
    "from mpi4py import MPI; import time, pathlib; pathlib.Path(f'on{MPI.COMM_WORLD.rank}').touch(); time.sleep(60)"
)


def test_ranks_of_two_sites_are_one_world(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(SUM)
        await world.release()
        assert [(end.outcome, end.exit_code) for end in await world.ends()] == [(Outcome.DONE, 0)] * 2
        lines = (await world.sites[0].stdout("1.1")).split("\n")
        assert sorted(lines) == ["", *(f"{rank} 4 10" for rank in range(4))]

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("rank", [0, 3], ids=["at the first component", "at the second"])
@pytest.mark.parametrize(("program", "code"), [(FAIL, 5), (STOP, 6)], ids=["fails", "aborts the world"])
def test_the_exit_code_of_the_world_is_that_of_the_first_component(
    tmp_path: Path, program: str, code: int, rank: int
) -> None:
    async def scenario(world: World) -> None:
        await world.start(program.format(rank))
        await world.release()
        first = await world.sites[0].ended("1.1")
        # What the scheduler does when a component has failed.
        await world.sites[1].site.abort("1.2")
        await world.ends()
        assert (first.outcome, first.exit_code) == (Outcome.FAILED, code)

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("part", [0, 1])
def test_a_rank_that_leaves_without_finalizing_fails_its_component(tmp_path: Path, part: int) -> None:
    async def scenario(world: World) -> None:
        await world.start(DESERT.format(0 if part == 0 else 3))
        await world.release()
        ended = await world.sites[part].ended(TOKENS[part])
        assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 9)
        # What the scheduler does when a component has failed.
        await world.sites[1 - part].site.abort(TOKENS[1 - part])
        await world.ends()
        assert not processes_of(tmp_path)

    in_world(tmp_path, scenario)


def test_an_abort_leaves_no_process_behind(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(HANG)
        await world.release()
        await file_appears(tmp_path / "a/components/1.1/workspace/on0")
        await file_appears(tmp_path / "b/components/1.2/workspace/on3")
        for watcher, token in zip(world.sites, TOKENS, strict=True):
            await watcher.site.abort(token)
        first, second = await world.ends()
        assert first.outcome is Outcome.ABORTED
        # Without the first component the ranks of the second end by themselves, perhaps before its abort comes.
        assert second.outcome in (Outcome.ABORTED, Outcome.DONE)
        assert not processes_of(tmp_path)

    in_world(tmp_path, scenario)


def test_an_abort_before_the_proxies_are_delivered_ends_mpiexec(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = world.sites[0]
        await world.start(SUM)
        await one.ready("1.1")
        peers = [Peer(part=part, host="127.0.0.1", processors=size) for part, size in enumerate(SIZES)]
        await one.site.release("1.1", go_for(JobType.MPI, 1, peers)[0])
        await one.until(lambda: bool(one.mail))
        for watcher, token in zip(world.sites, TOKENS, strict=True):
            await watcher.site.abort(token)
        assert [end.outcome for end in await world.ends()] == [Outcome.ABORTED] * 2
        assert not processes_of(tmp_path)

    in_world(tmp_path, scenario)


def test_what_the_launcher_says_of_a_name_that_no_node_resolves_is_in_the_standard_error(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(SUM)
        await world.release(host="nowhere.invalid")
        ended = await world.ends()
        assert all(each.outcome is Outcome.FAILED for each in ended)
        told = [(tmp_path / site / "components" / token / "stderr") for site, token in zip("ab", TOKENS, strict=True)]
        for path in told:
            assert "nowhere.invalid" in path.read_text(), path
        assert any("does not know the name nowhere.invalid" in each.stderr_line for each in ended)

    in_world(tmp_path, scenario)


def test_a_site_without_mpiexec_fails_the_component(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", environment={"PATH": "/usr/bin:/bin"}) as one:
            await one.start(launch(job_type=JobType.MPI))
            await one.ready("1.1")
            (go,) = go_for(JobType.MPI, 1, [Peer(part=0, host="127.0.0.1", processors=1)])
            await one.site.release("1.1", go)
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 127)

    asyncio.run(scenario())
