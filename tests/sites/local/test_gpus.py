"""GPUs and memory of an embedded site: each component has its own, they go from hand to hand, and a restart knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.model.launch import Go
from koala.model.messages import ComponentReady, Outcome
from koala.model.nodes import TASK_MEMORY_BYTES_MIN, NodeClass, NodeSize, TaskNeeds
from koala.sites.local.directory import ComponentDirectory, UnreadableError
from tests.support.live_sites import launch, opened

MIB = 2**20
MACHINE = NodeSize(4, 4096 * MIB, (("a100", 2),))
NODE = NodeClass(1, MACHINE, MACHINE)
SHOW = 'echo "gpus=$CUDA_VISIBLE_DEVICES"'


def test_components_see_their_own_gpus_and_others_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            await one.start(
                launch("1.1", SHOW, needs=TaskNeeds(gpus=1, gpu="a100")),
                launch("2.1", SHOW, needs=TaskNeeds(gpus=1)),
                launch("3.1", SHOW),
            )
            await one.ready("1.1", "2.1", "3.1")
            for token, seen in (("1.1", "0"), ("2.1", "1"), ("3.1", "")):
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE
                assert await one.stdout(token) == f"gpus={seen}\n"

    asyncio.run(scenario())


def test_who_finds_no_gpu_free_waits_for_one_and_gets_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            both = launch("1.1", SHOW, processors=2, needs=TaskNeeds(gpus=1))
            await one.start(both, launch("2.1", SHOW, needs=TaskNeeds(gpus=1)))
            await one.ready("1.1")
            assert not one.told(ComponentReady, "2.1")
            await one.site.release("1.1", Go())
            await one.ended("1.1")
            await one.ready("2.1")
            await one.site.release("2.1", Go())
            await one.ended("2.1")
            assert [await one.stdout(token) for token in ("1.1", "2.1")] == ["gpus=0,1\n", "gpus=0\n"]

    asyncio.run(scenario())


def test_a_site_that_is_opened_again_knows_who_has_which_gpu(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            await one.start(launch("1.1", SHOW, needs=TaskNeeds(gpus=1)))
            await one.ready("1.1")
        async with opened(tmp_path / "a", node=NODE) as again:
            await again.start(launch("2.1", SHOW, needs=TaskNeeds(gpus=1)))
            await again.ready("2.1")
            for token in ("1.1", "2.1"):
                await again.site.release(token, Go())
                await again.ended(token)
            assert [await again.stdout(token) for token in ("1.1", "2.1")] == ["gpus=0\n", "gpus=1\n"]

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["1" * 5000, "", "0,0", "0,1", "many"])
def test_gpus_that_are_not_on_record_end_their_component_and_hold_up_no_start(tmp_path: Path, text: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            await one.start(launch("1.1", SHOW, needs=TaskNeeds(gpus=1)), launch("2.1", SHOW))
            await one.ready("1.1", "2.1")
        for token in ("1.1", "2.1"):
            (tmp_path / "a" / "components" / token / "spawned").write_text(text)
        async with opened(tmp_path / "a", node=NODE) as again:
            ended = await again.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "spawned does not name the GPUs that it was given, 1" in ended.reason
            await again.site.release("2.1", Go())  # which has none, whatever is written there
            assert (await again.ended("2.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_gpus_that_the_machine_no_longer_has_are_not_held(tmp_path: Path) -> None:
    directory = ComponentDirectory(tmp_path, "1.1")
    directory.home.mkdir()
    directory.put_spawned((0, 3))
    assert (directory.gpus(2, 4), directory.gpus(2, 2)) == ((0, 3), (0,))
    with pytest.raises(UnreadableError):
        directory.gpus(1, 4)


def test_little_memory_is_no_failure_of_the_site(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            greedy = "ulimit -d; python3 -c 'bytearray(64 * 2**20)' 2>/dev/null"
            for number, size_bytes in enumerate((1, 5_000_000, TASK_MEMORY_BYTES_MIN), start=1):
                token = f"{number}.1"
                await one.start(launch(token, greedy, needs=TaskNeeds(memory_bytes=size_bytes)))
                await one.ready(token)
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.FAILED
                assert await one.stdout(token) == f"{TASK_MEMORY_BYTES_MIN // 1024}\n"

    asyncio.run(scenario())


def test_memory_is_shared_out_and_a_process_that_takes_more_is_refused_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            greedy = "python3 -c 'bytearray(1200 * 2**20)' 2>/dev/null || echo refused"
            big = launch("1.1", greedy, needs=TaskNeeds(memory_bytes=1024 * MIB))
            await one.start(big, launch("2.1", needs=TaskNeeds(memory_bytes=3584 * MIB)))
            await one.ready("1.1")
            assert not one.told(ComponentReady, "2.1")
            await one.site.release("1.1", Go())
            await one.ended("1.1")
            assert await one.stdout("1.1") == "refused\n"
            await one.ready("2.1")
            await one.site.abort("2.1")
            await one.ended("2.1")

    asyncio.run(scenario())


def test_what_the_machine_does_not_have_is_unsuitable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", node=NODE) as one:
            for number, needs in enumerate(
                (TaskNeeds(gpus=3), TaskNeeds(gpus=1, gpu="h100"), TaskNeeds(memory_bytes=2**40)), start=1
            ):
                await one.start(launch(f"{number}.1", needs=needs))
                assert (await one.ended(f"{number}.1")).outcome is Outcome.UNSUITABLE

    asyncio.run(scenario())
