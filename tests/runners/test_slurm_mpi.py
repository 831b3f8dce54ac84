"""One MPI_COMM_WORLD over components that span several nodes of a real Slurm cluster, and nothing left of it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Launch, Peer
from koala.model.messages import Outcome
from koala.model.request import Application, JobType
from koala.runners import PROXY, go_for, proxy_mail
from koala.sites.batch.slurm.system import SlurmSystem
from tests.support.batch_sites import BatchWatcher, opened_batch, until_true
from tests.support.live_sites import file_appears, launch, processes_of
from tests.support.slurm_cluster import SlurmCluster, slurm_cluster

TOKENS = ("1.1", "1.2")
# Ranks of a component, on two nodes of two processors.
SIZE = 3

WHERE = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
where = os.environ["KOALA_COMPONENT"], os.environ["SLURMD_NODENAME"]
print(world.rank, world.allreduce(world.rank), *where, flush=True)
"""
FAIL = "from mpi4py import MPI; import sys; sys.exit(5 if MPI.COMM_WORLD.rank == 5 else 0)"
HANG = (
    "from mpi4py import MPI; import time, pathlib; pathlib.Path(f'on{MPI.COMM_WORLD.rank}').touch(); time.sleep(60)"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=4, cpus=2) as running:
        yield running


@contextlib.asynccontextmanager
async def running(cluster: SlurmCluster, root: Path, program: str) -> AsyncIterator[BatchWatcher]:
    """A site on the cluster, where two components of one MPI job have passed the barrier."""
    settings = BatchSettings(
        work_directory=str(root / "work"),
        environment=tuple(cluster.environment.items()),
        host="127.0.0.1",
        # Each component has its own nodes, as those of different sites have.
        submit_options=("--exclusive", "--nodes=2"),
    )
    async with opened_batch(settings, SlurmSystem(settings)) as one:
        await one.start(*(component(part, program) for part in range(2)))
        await one.ready(*TOKENS)
        nodes = [await one.site.nodes(token) for token in TOKENS]
        assert [len(each) for each in nodes] == [2, 2]
        peers = [Peer(part=part, host=each[0].name, processors=SIZE, nodes=each) for part, each in enumerate(nodes)]
        for token, go in zip(TOKENS, go_for(JobType.MPI, 1, peers), strict=True):
            await one.site.release(token, go)
        await one.until(lambda: bool(one.mail))
        for token, letter in zip(TOKENS, proxy_mail(one.mail[0].data, components=2), strict=True):
            await one.site.deliver(token, PROXY, letter)
        yield one
    cluster.clear()


def component(part: int, program: str) -> Launch:
    return launch(
        TOKENS[part],
        Application(executable=sys.executable, arguments=("-c", program)),
        processors=SIZE,
        part=part,
        parts=2,
        job_type=JobType.MPI,
        search_path=(str(Path(sys.executable).parent),),
    )


def test_ranks_on_four_nodes_of_two_components_are_one_world(cluster: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(cluster, tmp_path, WHERE) as one:
            ends = [await one.ended(token) for token in TOKENS]
            assert [(end.outcome, end.exit_code) for end in ends] == [(Outcome.DONE, 0)] * 2
            lines = [line.split() for line in (await one.stdout("1.1")).splitlines()]
            assert sorted(line[:3] for line in lines) == [[str(rank), "15", str(rank // SIZE)] for rank in range(6)]
            shares = [(one.home(token) / "nodes").read_text().splitlines() for token in TOKENS]
            dealt = [name for share in shares for name in dealt_out(share)]
            assert [line[3] for line in sorted(lines)] == dealt

    asyncio.run(scenario())


def dealt_out(share: list[str]) -> list[str]:
    """The node of each rank of a component, in order."""
    (first, has), (second, _) = (line.split() for line in share)
    return [first] * int(has) + [second] * (SIZE - int(has))


def test_a_rank_that_fails_on_a_second_node_fails_the_job(cluster: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(cluster, tmp_path, FAIL) as one:
            ended = await one.ended("1.2")
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 5)

    asyncio.run(scenario())


def test_an_abort_leaves_no_process_on_any_node(cluster: SlurmCluster, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(cluster, tmp_path, HANG) as one:
            for rank in range(2 * SIZE):
                await file_appears(one.home(TOKENS[rank // SIZE]) / f"workspace/on{rank}")
            for token in TOKENS:
                await one.site.abort(token)
            for token in TOKENS:
                await one.ended(token)
            await until_true(lambda: not processes_of(tmp_path))

    asyncio.run(scenario())
