"""A site with a full disk, or that can start no process: nothing is held for ever, and no slot is given twice."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koala.model.launch import Go
from koala.model.messages import ComponentAccepted, ComponentReady, Outcome, SiteSilent
from koala.runners import component_script
from koala.sites import processes
from koala.sites.local.directory import ComponentDirectory
from tests.support.live_sites import launch, opened, processes_of

FULL = OSError(errno.ENOSPC, "No space left on device")


def fails(error: OSError) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


def test_a_component_that_a_full_disk_keeps_from_starting_holds_no_slot_and_starts_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", rest_s=0.1) as one:
            with monkeypatch.context() as full:
                full.setattr(ComponentDirectory, "_put", fails(FULL))
                await one.start(launch())
                assert isinstance(one.events[0], ComponentAccepted)
                await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
                assert one.site.processors_held == 0
                assert not one.told(ComponentReady, "1.1")
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_process_that_cannot_be_started_on_a_full_disk_ends_as_soon_as_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", rest_s=0.1) as one:
            with monkeypatch.context() as full:
                full.setattr(
                    processes, "spawn", fails(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
                )
                full.setattr(ComponentDirectory, "settle", fails(FULL))
                await one.start(launch())
                with pytest.raises(OSError, match="No space"):
                    await one.site.abort("1.1")
                assert one.site.processors_held == 1
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "could not start a process" in ended.reason
            assert one.site.processors_held == 0

    asyncio.run(scenario())


def test_an_abort_ends_the_processes_also_where_there_is_no_room_to_record_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", rest_s=0.1) as one:
            await one.start(launch(application="sleep 600"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            with monkeypatch.context() as full:
                full.setattr(ComponentDirectory, "_put", fails(FULL))
                with pytest.raises(OSError, match="No space"):
                    await one.site.abort("1.1")
                await one.until(lambda: not processes_of(tmp_path / "a"))
                assert one.site.processors_held == 1, "its end is not on record yet"
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            assert one.site.processors_held == 0

    asyncio.run(scenario())


def test_a_start_of_which_only_the_last_step_failed_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            mine = launch()
            with monkeypatch.context() as failing:
                # The directory has its name when its parent is synced.
                real = ComponentDirectory._appear

                def appear(directory: ComponentDirectory, fresh: Path) -> None:
                    real(directory, fresh)
                    raise OSError(errno.EIO, "Input/output error")

                failing.setattr(ComponentDirectory, "_appear", appear)
                with pytest.raises(OSError, match="Input/output"):
                    await one.site.start(mine, component_script(mine))
            assert one.events == []
            assert (await one.run(mine)).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_process_that_cannot_be_started_gives_its_slots_to_others_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=10) as one:
            one.site.others_file.write_text("10")
            tokens = [f"{number}.1" for number in range(1, 6)]
            await one.start(*(launch(token, processors=5) for token in tokens))
            real, calls = processes.spawn, []

            def spawn(*arguments: Any) -> processes.Child:
                calls.append(arguments)
                if len(calls) == 1:
                    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
                return real(*arguments)

            monkeypatch.setattr(processes, "spawn", spawn)
            one.site.others_file.unlink()
            await one.site.probe()
            assert one.site.processors_held == 10
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            await one.ready("2.1", "3.1")
            assert not one.told(ComponentReady, "4.1")
            for token in tokens[1:]:
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE

    asyncio.run(scenario())
