"""Stopping the daemon while something is under way: it ends in time, and whoever waits is told in the API's form."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.client import Client, UnavailableError, UnreachableError
from koala.daemon.service.data import files as catalogue_calls
from koala.files.sources import UrlSource
from koala.model.api.questions import Registration, Replication
from koala.model.errors import UnavailableError as ServiceUnavailable
from koala.model.grid import Link, Links
from tests.support.api_world import World, client_of, error_of, in_world
from tests.support.daemon_world import OPERATOR, OWNER, WAIT_S, open_daemon, small_grid
from tests.support.live_daemon import Daemon, running_daemon, until
from tests.support.local_areas import local_areas

SLOW_GRID = (
    "sites:\n  a: {processors: 2, kind: local}\n  b: {processors: 2, kind: local}\n"
    "links:\n  default: {bandwidth_mbit_s: 1, latency_s: 0.001}\n"
)
# At 1 Mbit/s this takes far longer than any test waits.
LARGE_BYTES = 60_000_000


def test_a_replication_that_would_take_long_is_given_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_calls, "CHANGES_S_MAX", 0.2)
    grid = msgspec.structs.replace(small_grid(), links=Links(default=Link(bandwidth_mbit_s=1.0, latency_s=0.001)))
    file = tmp_path / "large"
    file.write_bytes(b"x" * LARGE_BYTES)

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", grid) as world, asyncio.timeout(WAIT_S):
            info = await world.service.register(OWNER, Registration(name="large", site="A", path=str(file)))
            copies = local_areas(world.engine)["B"].root / "copies"
            slow = asyncio.create_task(world.service.replicate(OPERATOR, Replication(name="large", site="B")))

            async def under_way() -> bool:
                return copies.exists() and any(copies.iterdir())

            await world.until(under_way)
            await world.service.stop()
            with pytest.raises(ServiceUnavailable, match="the daemon is stopping, and the change was not made"):
                await slow
            with pytest.raises(ServiceUnavailable, match="stopping"):
                await world.service.replicate(OPERATOR, Replication(name="large", site="C"))
            assert not any(copies.iterdir())
            assert await world.service.file(OWNER, "large") == info  # all else is still answered
        async with open_daemon(tmp_path / "d") as world:
            there = await world.service.replicate(OPERATOR, Replication(name="large", site="B"))
            assert [each.site for each in there.replicas] == ["A", "B"]

    asyncio.run(scenario())


def test_a_server_that_never_answers_does_not_hold_up_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_calls, "CHANGES_S_MAX", 0.1)
    asked, never = threading.Event(), threading.Event()

    def stamp(_source: UrlSource) -> Any:
        asked.set()
        never.wait()

    monkeypatch.setattr(UrlSource, "stamp", stamp)

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world, asyncio.timeout(WAIT_S):
            wish = Registration(name="far", site="A", url="memory://far")
            slow = asyncio.create_task(world.service.register(OPERATOR, wish))
            await asyncio.to_thread(asked.wait, WAIT_S)
            await world.service.stop()
            with pytest.raises(ServiceUnavailable, match="stopping"):
                await slow

    try:
        asyncio.run(scenario())
    finally:
        never.set()


def test_a_change_that_ends_in_time_is_made(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(b"x")

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world, asyncio.timeout(WAIT_S):
            wish = Registration(name="small", site="A", path=str(file))
            made = asyncio.create_task(world.service.register(OWNER, wish))
            await asyncio.sleep(0)
            await world.service.stop()
            assert (await made).size_bytes == 1
            assert (await world.service.file(OWNER, "small")).name == "small"

    asyncio.run(scenario())


def test_an_answer_that_the_server_gives_up_has_the_one_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        begun = asyncio.Event()

        async def hang(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(world.service.grid, "probe", hang)
        async with client_of(world.trusted) as owner:
            for stopping in (False, True):
                begun.clear()
                task = asyncio.create_task(owner.post("/v1/sites/west/probe"))
                async with asyncio.timeout(WAIT_S):
                    await begun.wait()
                if not stopping:
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    continue
                world.traffic.stop()
                task.cancel("the server has waited long enough")
                answer = await task
                assert answer.status_code == 503
                assert error_of(answer)["code"] == "unavailable"

    in_world(tmp_path, scene)


# --------------------------------------------------------------------------------------- as a process


def begin_replication(daemon: Daemon, directory: Path) -> tuple[threading.Thread, list[object]]:
    """A replication that is under way, by a caller of its own, and what that caller is told in the end."""
    file = directory / "large"
    file.write_bytes(b"x" * LARGE_BYTES)
    daemon.client.register("large", "a", path=str(file))
    told: list[object] = []

    def call() -> None:
        with Client(daemon.server, patience_s=0) as caller:
            try:
                told.append(caller.replicate("large", "b"))
            except Exception as error:
                told.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    copies = daemon.state / "sites" / "b"
    until(lambda: any(path.is_dir() and any(path.iterdir()) for path in copies.rglob("copies")), "it is under way")
    return thread, told


def test_a_signal_ends_the_daemon_though_a_replication_is_under_way(tmp_path: Path) -> None:
    with running_daemon(tmp_path, grid=SLOW_GRID) as daemon:
        thread, told = begin_replication(daemon, tmp_path)
        assert daemon.stop() == 0
        thread.join(WAIT_S)
        assert isinstance(told[0], UnavailableError), told
        assert told[0].status == 503
        assert "the daemon is stopping" in told[0].message
        daemon.start()
        assert [each.site for each in daemon.client.file("large").replicas] == ["a"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running_daemon(tmp_path, grid=SLOW_GRID) as daemon:
        thread, told = begin_replication(daemon, tmp_path)
        job = daemon.client.submit("components: [{processors: 9, application: {executable: /bin/true}}]").job.id
        daemon.send(number)
        until(lambda: _stops(daemon), "it has begun to stop")
        daemon.send(number)
        assert daemon.ended() == 128 + number
        thread.join(WAIT_S)
        assert isinstance(told[0], Exception), told
        daemon.start()
        assert daemon.client.job(job).state == "waiting"
        assert daemon.client.file("large").size_bytes == LARGE_BYTES


def _stops(daemon: Daemon) -> bool:
    """Whether the daemon takes no more calls."""
    with Client(daemon.server, patience_s=0) as caller:
        try:
            caller.whoami()
        except (UnavailableError, UnreachableError):
            return True
    return False
