"""Replicas that are used where they are: no job runs on bytes that the catalogue does not know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.daemon.service.data.files import FileService
from koala.files import AreaDirectory
from koala.files.checksums import of_path
from koala.model.api.questions import Registration
from koala.model.messages import CancelAsked
from koala.model.request import InputFile, InputMode
from tests.daemon.perform.test_unseen_areas import FAR, WORDS, embedded, far_grid, given_back
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root
from tests.support.local_areas import local_areas
from tests.support.troubled_site import TroubledSite, trouble, troubled

__all__ = ["root"]

NOTE = 'echo "$KOALA_COMPONENT" >>{root}/log'
DATA = b"what the catalogue knows"


class Readings:
    """Which replicas were read for their checksum; each waits at the gate of its site."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.paths: list[Path] = []
        self.gates: dict[str, threading.Event] = {}
        self._root = root
        monkeypatch.setattr("koala.files.area.local.of_path", self._counted(of_path))

    def _counted(self, read: Callable[[Path], str]) -> Callable[[Path], str]:
        @wraps(read)
        def counted(path: Path) -> str:
            self.paths.append(path)
            site = path.relative_to(self._root / "sites").parts[0]
            if site in self.gates:
                assert self.gates[site].wait(120.0)
            return read(path)

        return counted

    def hold(self, site: str) -> threading.Event:
        """Let readings at a site wait until the gate is opened."""
        return self.gates.setdefault(site, threading.Event())


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch, root: Path) -> Readings:
    return Readings(monkeypatch, root)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The components that troubled sites are told to release, in order."""
    tokens: list[str] = []
    release = TroubledSite.release

    async def noted(self: TroubledSite, token: str, go: Any) -> None:
        tokens.append(token)
        await release(self, token, go)

    monkeypatch.setattr(TroubledSite, "release", noted)
    return tokens


def alter(area: AreaDirectory) -> None:
    """Turn one byte of the replica."""
    path = area.replica("data")
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(bytes([DATA[0] ^ 1]))


async def failed_twice(world: EngineWorld, job: int) -> list[Any]:
    """The components that have ended by the time that the job has gone back for the second time."""
    await world.until(lambda: (row := world.engine.live_row(job)) is not None and row.failures >= 2)
    return [row for row in world.store.components(job) if row.ended_at is not None]


async def cancelled(world: EngineWorld, job: int) -> None:
    await world.engine.tell(CancelAsked(at=0.0, job=job))
    await world.ended(job)


def test_an_unaltered_replica_is_read_once_for_all_jobs_and_an_altered_one_is_never_run_on(
    root: Path, readings: Readings
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100)) as world:
            await world.register("data", DATA, "a", "b")
            request = a_request(NOTE.format(root=root), (1,), "a", ["data"])
            jobs = [await world.submit(request) for _ in range(3)]
            assert [row.state for row in await world.ended(*jobs)] == ["done"] * 3
            assert (await world.run(request)).state == "done"
            replica = local_areas(world.engine)["a"].replica("data")
            assert readings.paths == [replica]
            assert len((root / "log").read_text().split()) == 4

            alter(local_areas(world.engine)["a"])
            bad = await world.submit(request)
            ended = await failed_twice(world, bad)
            assert {(row.outcome, row.fault) for row in ended} == {("failed", "user")}
            assert all("file 'data' at a: its SHA-256 is" in row.reason for row in ended)
            assert all("it is damaged" in row.reason for row in ended)
            assert readings.paths == [replica] * 2, "what it is now is remembered as well"
            await cancelled(world, bad)
            assert len((root / "log").read_text().split()) == 4, "it never ran"
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_file_that_is_gone_is_its_jobs_failure_and_no_error_of_the_site(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=1, restart_rest_s=0.0, restarts_max=1)) as world:
            await world.register("data", DATA, "a")
            local_areas(world.engine)["a"].replica("data").unlink()
            row = await world.run(a_request("cat data", (1,), "a", ["data"]))
            assert (row.state, row.failures) == ("failed", 2)
            assert row.reason.endswith("forget this replica or bring it back, after 1 restart")
            assert {(each.outcome, each.fault) for each in world.store.components(row.id)} == {("failed", "user")}
            assert world.engine.scheduler.ledger.sites.sites[0].errors == 0
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_path_that_nothing_checked_before_is_its_jobs_failure_where_it_is_used(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=1, restart_rest_s=0.0, restarts_max=1)) as world:
            await world.register("data", DATA, "a")
            row = await world.run(a_request("cat data", (1,), "a", [InputFile(name="data", path="é" * 128)]))
            assert (row.state, row.failures) == ("failed", 2)
            assert "NAME_BYTES_MAX" in row.reason
            assert {(each.outcome, each.fault) for each in world.store.components(row.id)} == {("failed", "job")}
            assert world.engine.scheduler.ledger.sites.sites[0].errors == 0
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_replica_that_is_damaged_at_one_site_is_used_at_another(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=1, cooldown_s=1_000.0)) as world:
            await world.register("data", DATA, "a", "b")
            alter(local_areas(world.engine)["a"])
            jobs = [await world.submit(a_request("cat data", (1,), site, ["data"], name=site)) for site in ("b", "a")]
            (fine,) = await world.ended(jobs[0])
            assert fine.state == "done"
            assert await world.output(jobs[0]) == DATA.decode()
            row = await world.run(a_request("cat data", (1,), (), ["data"], policy="CF"))
            assert row.state == "done"
            assert [each.site for each in world.store.components(row.id) if each.outcome == "done"] == ["b"]
            assert await world.output(row.id) == DATA.decode()
            await cancelled(world, jobs[1])
            await world.all_given_back()

    asyncio.run(scenario())


def test_while_a_large_replica_is_read_other_jobs_run_and_its_own_starts_when_it_was(
    root: Path, readings: Readings
) -> None:
    async def scenario() -> None:
        gate = readings.hold("a")
        async with open_engine(root, local_grid((4, 4))) as world:
            await world.register("data", DATA, "a")
            slow = await world.submit(a_request(NOTE.format(root=root), (2,), "a", ["data"]))
            await world.until(lambda: readings.paths)
            assert [row.state for row in await world.ended(await world.submit(a_request(sites="a")))] == ["done"]
            assert not (root / "log").exists()
            gate.set()
            assert [row.state for row in await world.ended(slow)] == ["done"]
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_replica_is_read_while_the_claims_of_its_job_are_still_under_way(root: Path, readings: Readings) -> None:
    async def scenario() -> None:
        async with open_engine(root, site_maker=troubled) as world:
            await world.register("data", DATA, "b")
            slow = trouble(world, "a")
            slow.gate.clear()
            parts = [
                a_request(NOTE.format(root=root), (1,), site, reads) for site, reads in (("a", ()), ("b", ["data"]))
            ]
            request = msgspec.structs.replace(parts[0], components=tuple(each.components[0] for each in parts))
            job = await world.submit(request)
            await world.until(lambda: readings.paths)
            assert (await world.in_state(job, "starting")).started_at is None
            slow.gate.set()
            assert [row.state for row in await world.ended(job)] == ["done"]
            assert len(readings.paths) == 1
            await world.all_given_back()

    asyncio.run(scenario())


def test_no_part_goes_ahead_of_the_others_while_their_replica_is_read_though_its_site_says_that_it_waits(
    root: Path, readings: Readings
) -> None:
    async def scenario() -> None:
        gate = readings.hold("b")
        async with open_engine(root, local_grid(check_interval_s=0.1), site_maker=troubled) as world:
            await world.register("data", DATA, "a", "b")
            job = await world.submit(a_request(NOTE.format(root=root), (1, 1), "ab", ["data"]))
            await world.until(lambda: len(readings.paths) == 2)
            waiting = trouble(world, "a")
            await world.until(lambda: len(waiting.asked) >= 5)
            assert not (root / "log").exists()
            gate.set()
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)
            assert sorted((root / "log").read_text().split()) == ["0", "1"]
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_part_that_says_that_it_waits_is_not_let_go_when_the_replica_of_another_proves_to_be_damaged(
    root: Path, readings: Readings, released: list[str]
) -> None:
    """Also not while the core has not heard of the end of that other part."""

    async def scenario() -> None:
        gate = readings.hold("b")
        grid = local_grid(check_interval_s=0.1, error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled) as world:
            await world.register("data", DATA, "a", "b")
            alter(local_areas(world.engine)["b"])
            job = await world.submit(a_request(NOTE.format(root=root), (1, 1), "ab", ["data"]))
            waiting, ended = trouble(world, "a"), trouble(world, "b")
            ended.mute = True
            await world.until(lambda: len(waiting.asked) >= 5)
            gate.set()
            await world.until(lambda: ended.aborted)
            asked = len(waiting.asked)
            await world.until(lambda: len(waiting.asked) >= asked + 5)
            assert released == []
            ended.mute = False
            assert {row.outcome for row in await failed_twice(world, job) if row.site == "b"} == {"failed"}
            await cancelled(world, job)
            assert released == []
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_job_that_is_cancelled_while_its_replica_is_read_never_runs_and_the_reading_serves_the_next(
    root: Path, readings: Readings, released: list[str]
) -> None:
    async def scenario() -> None:
        gate = readings.hold("a")
        async with open_engine(root, site_maker=troubled) as world:
            await world.register("data", DATA, "a")
            request = a_request(NOTE.format(root=root), (1,), "a", ["data"])
            first = await world.submit(request)
            await world.until(lambda: readings.paths)
            await cancelled(world, first)
            second = await world.submit(request)
            await world.in_state(second, "running")
            gate.set()
            assert [row.state for row in await world.ended(second)] == ["done"]
            assert (root / "log").read_text().split() == ["0"]
            assert len(readings.paths) == 1
            await world.all_given_back()
            assert released == [row.token for row in world.store.components(second)]

    asyncio.run(scenario())


def test_a_daemon_that_stops_while_a_replica_is_read_starts_the_job_after_its_next_start(
    root: Path, readings: Readings
) -> None:
    async def scenario() -> None:
        gate = readings.hold("a")
        async with open_engine(root) as world:
            await world.register("data", DATA, "a")
            job = await world.submit(a_request(NOTE.format(root=root), (1,), "a", ["data"]))
            await world.until(lambda: readings.paths)
        gate.set()
        async with open_engine(root) as world:
            assert [row.state for row in await world.ended(job)] == ["done"]
            assert (root / "log").read_text().split() == ["0"]
            await world.all_given_back()

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [InputMode.WHOLE, InputMode.CHUNK])
def test_at_a_site_that_is_not_seen_no_job_runs_on_an_altered_replica_either(root: Path, mode: InputMode) -> None:
    async def scenario() -> None:
        far = root / "far away"
        (root / "words").write_bytes(WORDS)
        async with open_engine(root, far_grid(far), site_maker=embedded) as world:
            files = FileService(world.engine)
            await files.register(Registration(name="data", site=FAR, path=str(root / "words")))
            request = a_request(NOTE.format(root=root), (1,), FAR, [InputFile(name="data", mode=mode)])
            assert (await world.run(request)).state == "done"
            assert (root / "log").read_text().split() == ["0"]
            await given_back(world, far)
            alter(AreaDirectory(FAR, far / "files"))
            job = await world.submit(request)

            def reasons() -> list[str]:
                return [row.reason for row in world.store.components(job) if row.ended_at is not None]

            (reason, *_) = await world.until(reasons)
            assert f"'data' at {FAR}: its SHA-256 is" in reason
            await cancelled(world, job)
            await world.until(
                lambda: not world.engine.scheduler.ledger.claims and not world.site(FAR).processors_held
            )
            assert (root / "log").read_text().split() == ["0"]
            await files.close()

    asyncio.run(scenario())
