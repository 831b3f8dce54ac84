"""GPUs and memory on a real Slurm: what it tells of its nodes, what a component gets, and when one more must wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Go
from koala.model.messages import ComponentReady, Outcome
from koala.model.nodes import NodePool, NodeSize, TaskNeeds, TaskShape
from koala.sites.batch.slurm.system import SlurmSystem
from tests.support.batch_sites import BatchWatcher, opened_batch
from tests.support.live_sites import launch
from tests.support.slurm_cluster import SlurmCluster, slurm_cluster

MIB = 2**20
GPU = TaskShape(1, 0, 1, "a100")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Two nodes of 4 processors, 4000 MB and two a100 each; a processor gets 100 MB unless it asks for more."""
    node = "RealMemory=4000 Gres=gpu:a100:2 Feature=fast"
    with slurm_cluster(
        select="CR_CPU_Memory", node=node, extra=["DefMemPerCPU=100"], gpus=["a100", "a100"]
    ) as running:
        yield running


async def free(one: BatchWatcher, shape: TaskShape, *shown: str) -> int:
    """For how many tasks the site says that it has room, once it shows these components and no others."""
    for _ in range(600):
        report = await one.site.probe()
        if report.shown == shown:
            return NodePool.free(report.nodes).places(shape)
        await asyncio.sleep(0.2)
    raise AssertionError(f"it shows {report.shown}")


def test_gpus_are_told_given_and_taken_back(cluster: SlurmCluster, tmp_path: Path) -> None:
    settings = BatchSettings(
        work_directory=str(tmp_path), environment=tuple(cluster.environment.items()), host="127.0.0.1"
    )
    show = 'echo "gpus=$SLURM_GPUS_ON_NODE"'

    async def scenario() -> None:
        async with opened_batch(settings, SlurmSystem(settings)) as one:
            report = await one.site.probe()
            (nodes,) = report.nodes
            assert (nodes.count, nodes.whole, nodes.features) == (2, nodes.free, ("fast",))
            assert nodes.whole == NodeSize(4, 4000 * MIB, (("a100", 2),))
            whole = launch("1.1", show, processors=3, needs=TaskNeeds(gpus=1, gpu="a100", memory_bytes=1000 * MIB))
            await one.start(whole)
            await one.ready("1.1")
            assert await free(one, GPU, "1.1") == 1
            assert await free(one, TaskShape(1, 2500 * MIB), "1.1") == 1
            await one.start(launch("2.1", show, processors=2, needs=TaskNeeds(gpus=1)))
            assert await free(one, GPU, "1.1") == 1
            assert not one.told(ComponentReady, "2.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            await one.ready("2.1")
            await one.site.release("2.1", Go())
            await one.ended("2.1")
            assert await free(one, GPU) == 4
            assert (await one.stdout("1.1")).startswith(("gpus=1", "gpus=2"))
            for number, needs in ((3, TaskNeeds(gpus=3)), (4, TaskNeeds(gpus=1, gpu="h100"))):
                await one.start(launch(f"{number}.1", show, needs=needs))
                assert (await one.ended(f"{number}.1")).outcome is Outcome.UNSUITABLE
            ended = await one.run(launch("5.1", show, needs=TaskNeeds(constraint="fast", memory_bytes=500 * MIB)))
            assert ended.outcome is Outcome.DONE

    asyncio.run(scenario())
