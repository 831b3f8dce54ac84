"""GPUs and memory on a real Grid Engine: what its consumables tell, what a component gets and cannot get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Go, Launch
from koala.model.messages import ComponentReady, Outcome
from koala.model.nodes import NodePool, TaskNeeds, TaskShape
from koala.model.request import Application
from koala.sites.batch.grid_engine.system import GridEngineSystem
from tests.support.batch_settings import batch_settings
from tests.support.batch_sites import BatchWatcher, opened_batch
from tests.support.grid_engine_cell import SLOTS, GridEngineCell, grid_engine_cell
from tests.support.live_sites import launch

MIB = 2**20
GPU = TaskShape(1, 0, 1, "a100")
# Memory and GPUs that each slot uses up, cards that a job does, and what the GPUs are.
COMPLEXES = """\
h_vmem h_vmem MEMORY <= YES YES 100M 0
gpu gpu INT <= YES YES 0 0
card cd INT <= YES JOB 0 0
gpu_type gt RESTRING == YES NO NONE 0
"""
HOST = "h_vmem=8100M,gpu=2,card=2,gpu_type=a100"
SHOW = "qstat -j $JOB_ID | grep '^hard resource_list'"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngineCell]:
    """A host of four slots, with 8100 MB and two a100."""
    with grid_engine_cell() as running:
        file: Path = tmp_path_factory.mktemp("complexes") / "complexes"
        kept = [line for line in running.run("qconf", "-sc").splitlines() if not line.startswith("h_vmem")]
        file.write_text("\n".join(kept) + f"\n{COMPLEXES}")
        running.run("qconf", "-Mc", file)
        running.run("qconf", "-mattr", "exechost", "complex_values", HOST, running.host)
        yield running


def settings(cell: GridEngineCell, directory: Path, **more: Any) -> BatchSettings:
    named = {"memory_complex": "h_vmem", "gpu_complex": "gpu", "gpu_kind_complex": "gpu_type"}
    return batch_settings(
        work_directory=str(directory),
        environment=tuple(cell.environment.items()),
        host="127.0.0.1",
        parallel_environment="mpi",
        **(named | more),
    )


async def free(one: BatchWatcher, shape: TaskShape, *shown: str, least: int = 0) -> int:
    """For how many tasks the site says that it has room, once it shows these components and no others, and has room
    for the ``least``: the cell gives back what a job had some time after it forgot the job."""
    for _ in range(600):
        report = await one.site.probe()
        places = NodePool.free(report.nodes).places(shape)
        if report.shown == shown and places >= least:
            return places
        await asyncio.sleep(0.2)
    raise AssertionError(f"it shows {report.shown} and has room for {places}")


def test_gpus_are_told_given_and_taken_back(cell: GridEngineCell, tmp_path: Path) -> None:
    async def scenario() -> None:
        ours = settings(cell, tmp_path)
        async with opened_batch(ours, GridEngineSystem(ours)) as one:
            (nodes,) = (await one.site.probe()).nodes
            assert nodes.whole == nodes.free
            assert (nodes.count, nodes.whole.processors, nodes.whole.gpus) == (1, SLOTS, (("a100", 2),))
            assert nodes.whole.memory_bytes // MIB == 8100
            needs = TaskNeeds(gpus=1, gpu="a100", memory_bytes=2000 * MIB)
            await one.start(launch("1.1", SHOW, needs=needs))
            await one.ready("1.1")
            assert await free(one, GPU, "1.1") == 1
            assert await free(one, TaskShape(1, 2033 * MIB), "1.1") == 3
            assert await free(one, TaskShape(1, 2035 * MIB), "1.1") == 2
            (nodes,) = (await one.site.probe()).nodes
            assert (nodes.whole.gpus, nodes.whole.memory_bytes // MIB) == ((("a100", 2),), 8100)
            await one.start(launch("2.1", SHOW, processors=2, needs=TaskNeeds(gpus=1)))
            assert await free(one, GPU, "1.1") == 1
            assert not one.told(ComponentReady, "2.1"), "there is one GPU, and it wants two"
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            await one.ready("2.1")
            await one.site.release("2.1", Go())
            await one.ended("2.1")
            assert await free(one, GPU, least=2) == 2
            assert await one.stdout("1.1") == "hard resource_list:         gpu_type=a100,h_vmem=2097152000,gpu=1\n"

    asyncio.run(scenario())


@pytest.mark.parametrize("named", [None, "mem_total"])
def test_where_memory_is_no_consumable_a_task_goes_to_a_host_that_has_as_much(
    cell: GridEngineCell, tmp_path: Path, named: str | None
) -> None:
    ours = settings(cell, tmp_path, memory_complex=named)

    async def scenario() -> None:
        async with opened_batch(ours, GridEngineSystem(ours)) as one:
            (nodes,) = (await one.site.probe()).nodes
            assert not nodes.whole.counts_memory
            there = nodes.whole.memory_bytes
            assert there > 100 * MIB
            pool = NodePool.whole([nodes])
            assert [pool.places(TaskShape(1, size)) for size in (there, there + MIB)] == [SLOTS, 0]
            ended = await one.run(wide("1.1", 2, 2, memory_bytes=100 * MIB))
            assert ended.outcome is Outcome.DONE

    asyncio.run(scenario())


def wide(token: str, tasks: int, processors: int, **needs: Any) -> Launch:
    application = Application(script="exit 0", processors_per_task=processors)
    return launch(token, application, processors=tasks * processors, needs=TaskNeeds(**needs))


def test_what_a_cell_cannot_give_or_has_no_words_for_is_unsuitable_and_says_why(
    cell: GridEngineCell, tmp_path: Path
) -> None:
    by_slot, by_job = settings(cell, tmp_path), settings(cell, tmp_path / "cards", gpu_complex="card")

    async def why(ours: BatchSettings, refused: list[tuple[Launch, str]], done: list[Launch]) -> None:
        async with opened_batch(ours, GridEngineSystem(ours)) as one:
            for each, words in refused:
                await one.start(each)
                ended = await one.ended(each.token)
                assert (ended.outcome, words in ended.reason) == (Outcome.UNSUITABLE, True), ended.reason
            for each in done:
                assert (await one.run(each)).outcome is Outcome.DONE

    asyncio.run(
        why(
            by_slot,
            [
                (wide("3.1", 1, 1, gpus=3), "no suitable queues"),
                (wide("4.1", 1, 1, gpus=1, gpu="h100"), "no suitable queues"),
                (wide("5.1", 1, 1, memory_bytes=9000 * MIB), "no suitable queues"),
                (wide("6.1", 1, 2, gpus=1), "write a multiple of 2, tasks of 1 processor, or ask the operator"),
            ],
            [wide("7.1", 1, 2, gpus=2, memory_bytes=301 * MIB)],
        )
    )
    asyncio.run(
        why(
            by_job,
            [(wide("8.1", 2, 1, gpus=1), "card of 2 tasks cannot be asked for here")],
            [wide("9.1", 1, 2, gpus=1, gpu="a100")],
        )
    )
