"""Files that are read to their end: once, for all who ask, until they change; none is taken for another."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from koala.files import (
    AreaDirectory,
    ChangedFileError,
    ChecksumError,
    FileArea,
    FileMover,
    Host,
    LocalArea,
    Order,
    RemoteArea,
)
from koala.files.area.known_checksums import KNOWN_CHECKSUMS_MAX, READINGS_AT_A_TIME_MAX, KnownChecksums, WholeFile
from koala.files.area.layout import copy_name
from koala.files.sources import Stamp
from koala.model.grid import BatchSettings, Site
from koala.sites.remote_shell import RemoteShell
from tests.support.file_world import World, some_bytes

BYTES = b"some bytes\n"
OTHERS = b"same bytes\n"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class PlayedFile:
    """A file whose reading waits at a gate, and counts how often it was read."""

    def __init__(self, key: str = "data", version: str = "1") -> None:
        self.key = key
        self.version = version
        self.data = BYTES
        self.readings = 0
        self.now_reading = 0
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def whole(self) -> WholeFile:
        return WholeFile(self.key, "delft", self.key, self._stamp, self._read)

    async def _stamp(self) -> Stamp:
        return Stamp(location=self.key, size_bytes=len(self.data), version=self.version)

    async def _read(self, size_bytes: int) -> str:
        assert size_bytes == len(self.data)
        self.readings += 1
        self.now_reading += 1
        try:
            await self.gate.wait()
        finally:
            self.now_reading -= 1
        return sha(self.data)

    async def begun(self) -> None:
        while not self.now_reading:
            await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------ what is remembered


def test_a_file_is_read_once_until_it_changes_whatever_it_is_found_to_be() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()
        assert [await known.checksum(file.whole) for _ in range(3)] == [sha(BYTES)] * 3
        assert file.readings == 1
        file.data, file.version = OTHERS, "2"
        assert [await known.checksum(file.whole) for _ in range(3)] == [sha(OTHERS)] * 3
        assert file.readings == 2

    run(scenario())


def test_all_who_ask_at_a_time_wait_for_one_reading_and_it_goes_on_when_the_first_gives_up() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()
        file.gate.clear()
        asking = [asyncio.create_task(known.checksum(file.whole)) for _ in range(5)]
        await file.begun()
        asking[0].cancel()
        await asyncio.gather(asking[0], return_exceptions=True)
        file.gate.set()
        assert await asyncio.gather(*asking[1:]) == [sha(BYTES)] * 4
        assert file.readings == 1

    run(scenario())


def test_one_of_another_size_is_refused_unread() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()
        with pytest.raises(ChangedFileError, match="'data' at delft: it has 11 bytes and should have 12; register"):
            await known.checksum(file.whole, 12)
        assert file.readings == 0
        assert await known.checksum(file.whole, 11) == sha(BYTES)

    run(scenario())


def test_one_that_changes_while_it_is_read_is_neither_believed_nor_remembered() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()
        file.gate.clear()
        asking = asyncio.create_task(known.checksum(file.whole))
        await file.begun()
        file.data, file.version = OTHERS, "2"
        file.gate.set()
        with pytest.raises(ChangedFileError, match="'data' at delft: it changed while it was read"):
            await asking
        assert await known.checksum(file.whole) == sha(OTHERS)
        assert file.readings == 2

    run(scenario())


def test_one_whose_place_does_not_tell_changes_is_read_each_time() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(version=""), KnownChecksums()
        for _ in range(3):
            assert await known.checksum(file.whole) == sha(BYTES)
        assert file.readings == 3

    run(scenario())


def test_a_reading_that_failed_is_tried_anew_by_the_next() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()

        async def broken(size_bytes: int) -> str:
            raise OSError(5, "Input/output error")

        with pytest.raises(OSError, match="Input/output error"):
            await known.checksum(file.whole._replace(read=broken))
        assert await known.checksum(file.whole) == sha(BYTES)

    run(scenario())


def test_no_more_than_two_files_of_an_area_are_read_at_a_time() -> None:
    async def scenario() -> None:
        known = KnownChecksums()
        files = [PlayedFile(str(number)) for number in range(READINGS_AT_A_TIME_MAX + 3)]
        for file in files:
            file.gate.clear()
        asking = [asyncio.create_task(known.checksum(file.whole)) for file in files]
        for first, file in enumerate(files):
            await file.begun()
            for _ in range(100):
                await asyncio.sleep(0)
            now = [each.key for each in files if each.now_reading]
            assert now == [each.key for each in files[first : first + READINGS_AT_A_TIME_MAX]]
            file.gate.set()
            await asking[first]

    run(scenario())


def test_the_one_that_was_asked_for_longest_ago_is_forgotten_first() -> None:
    assert KNOWN_CHECKSUMS_MAX >= 1_000

    async def scenario() -> None:
        known = KnownChecksums(known_max=2)
        old, older, new = (PlayedFile(key) for key in ("old", "older", "new"))
        for file in (old, older, old, new):
            await known.checksum(file.whole)
        for file in (old, new, older):
            await known.checksum(file.whole)
        assert (old.readings, older.readings, new.readings) == (1, 2, 1)

    run(scenario())


def test_closing_ends_readings_and_the_next_who_asks_has_the_file_read_anew() -> None:
    async def scenario() -> None:
        file, known = PlayedFile(), KnownChecksums()
        file.gate.clear()
        asking = asyncio.create_task(known.checksum(file.whole))
        await file.begun()
        await known.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert file.now_reading == 0
        file.gate.set()
        assert await known.checksum(file.whole) == sha(BYTES)

    run(scenario())


# ------------------------------------------------------------------------------------------------- replicas


class Readings:
    """An area, seen by this machine or not, and how often a replica was read there for its checksum alone."""

    def __init__(self, root: Path, local: bool) -> None:
        self.directory = AreaDirectory("delft", root)
        self.count = 0
        self.area: FileArea
        if local:
            self.area = LocalArea(self.directory, Host(RemoteShell()), self._offload)
            return
        settings = BatchSettings(work_directory=str(root), through=("env",))
        host = Host(RemoteShell(through=("env",)), settings)
        self._run = host.run
        host.run = self._counted  # type: ignore[method-assign]
        self.area = RemoteArea("delft", host, str(root))

    async def _offload(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        self.count += work.__name__ == "of_path"
        return await asyncio.to_thread(work, *arguments, **named)

    async def _counted(self, script: str, **named: Any) -> str:
        self.count += script.rstrip().endswith("koala_digest_of replicas/=data")
        return await self._run(script, **named)


@pytest.fixture(params=["seen", "not seen"])
def readings(request: pytest.FixtureRequest, tmp_path: Path) -> Readings:
    return Readings(tmp_path / "area", request.param == "seen")


def overwrite(path: Path, data: bytes) -> None:
    """Other bytes in the same place, and a time of change that tells."""
    before = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))


def test_a_replica_is_read_when_it_changes_and_only_then(readings: Readings, tmp_path: Path) -> None:
    async def scenario() -> None:
        area = readings.area
        await area.prepare()
        (tmp_path / "outside").write_bytes(BYTES)
        path = readings.directory.adopt("data", tmp_path / "outside")
        for _ in range(3):
            assert await area.verified_checksum("data", len(BYTES)) == sha(BYTES)
        assert readings.count == 1
        overwrite(path, OTHERS)
        for _ in range(3):
            assert await area.verified_checksum("data", len(BYTES)) == sha(OTHERS)
        assert readings.count == 2
        with pytest.raises(ChangedFileError, match="has 11 bytes and should have 10"):
            await area.verified_checksum("data", len(BYTES) - 1)
        await area.forget("data")
        with pytest.raises(FileNotFoundError):
            await area.verified_checksum("data")
        path.mkdir()
        with pytest.raises(OSError, match="is not a regular file"):
            await area.verified_checksum("data")
        assert readings.count == 2
        await area.close()

    run(scenario())


def test_a_replica_that_was_measured_when_it_came_is_not_read_again(readings: Readings, tmp_path: Path) -> None:
    async def scenario() -> None:
        area = readings.area
        await area.prepare()
        (tmp_path / "outside").write_bytes(BYTES)
        assert (await area.take_in("incoming", str(tmp_path / "outside"))).checksum == sha(BYTES)
        await area.take_name("incoming", "data")
        assert await area.verified_checksum("data") == sha(BYTES)
        assert readings.count == 0
        overwrite(readings.directory.replica("data"), OTHERS)
        assert await area.verified_checksum("data") == sha(OTHERS)
        assert readings.count == 1

    run(scenario())


@pytest.mark.parametrize("verified", [True, False])
def test_a_copy_that_was_verified_when_it_came_is_not_read_again_as_a_replica(
    readings: Readings, verified: bool
) -> None:
    async def scenario() -> None:
        area = readings.area
        await area.prepare()
        name = copy_name("data", None, sha(BYTES))
        await area.hold(name, "t1")
        copy = readings.directory.copy_named(name)
        copy.data.write_bytes(BYTES)
        copy.checksum.write_text(f"{sha(BYTES)}\n" if verified else "half of i")
        await area.promote("data", name)
        await area.remove(name)
        assert await area.verified_checksum("data") == sha(BYTES)
        assert readings.count == (0 if verified else 1)

    run(scenario())


# --------------------------------------------------------------------------------------------------- chunks


DATA = some_bytes(50_000)
CHUNKS = [(0, 20_000), (20_000, 20_000), (40_000, 10_000)]


def test_chunks_come_from_a_file_that_is_read_once_and_not_from_one_that_was_altered_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    of_path = importlib.import_module("koala.files.area.local").of_path

    def counted(path: Path) -> str:
        read.append(path)
        return str(of_path(path))

    monkeypatch.setattr("koala.files.area.local.of_path", counted)

    async def scenario() -> None:
        world = World(tmp_path)
        path = world.put("data", DATA)
        orders = [world.order("data", f"t{number}", chunk=chunk) for number, chunk in enumerate(CHUNKS)]
        again = world.order("data", "t9", chunk=(0, 10_000))
        async with world.mover() as mover:
            for order, result in zip(orders, await asyncio.gather(*map(mover.transfer, orders)), strict=True):
                assert world.bytes_at(result.path) == DATA[order.offset : order.offset + order.size_bytes]
            assert read == [path]
            overwrite(path, DATA[:-1] + bytes([DATA[-1] ^ 1]))
            for _ in range(2):
                with pytest.raises(ChecksumError, match=r"'data' at delft: .* forget this replica, it is damaged"):
                    await mover.transfer(again)
            assert read == [path, path]
            assert mover.transfers == {order.transfer for order in orders}

    run(scenario())


def test_a_chunk_for_which_a_large_file_is_still_read_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        reading, gate = asyncio.Event(), asyncio.Event()

        async def verified_checksum(self: LocalArea, file: str, size_bytes: int | None = None) -> str:
            reading.set()
            await gate.wait()
            raise AssertionError("nobody opens the gate")

        monkeypatch.setattr(LocalArea, "verified_checksum", verified_checksum)
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            running = asyncio.create_task(mover.transfer(world.order("data", chunk=(0, 10))))
            await reading.wait()
            await mover.cancel("t1")
            (outcome,) = await asyncio.gather(running, return_exceptions=True)
            assert "the transfer was cancelled" in str(outcome)
        assert world.left_at() == []

    run(scenario())


def test_a_chunk_at_an_address_comes_from_a_file_that_is_the_right_one(tmp_path: Path) -> None:
    fsspec: Any = importlib.import_module("fsspec")

    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        url = "memory://koala/proven"
        order = world.order("data", url=url, chunk=(7, 100))
        with fsspec.open(url, "wb") as file:
            file.write(DATA[:-1] + bytes([DATA[-1] ^ 1]))
        async with world.mover() as mover:
            with pytest.raises(ChecksumError, match="it is damaged"):
                await mover.transfer(order)
            with fsspec.open(url, "wb") as file:
                file.write(DATA)
            assert world.bytes_at((await mover.transfer(order)).path) == DATA[7:107]

    run(scenario())


def test_a_piece_is_not_cut_at_a_site_that_is_not_seen_from_a_replica_that_was_altered(tmp_path: Path) -> None:
    async def scenario() -> None:
        readings = Readings(tmp_path / "area", local=False)
        await readings.area.prepare()
        (tmp_path / "outside").write_bytes(DATA)
        overwrite(readings.directory.adopt("data", tmp_path / "outside"), b"?")
        settings = BatchSettings(work_directory=str(tmp_path), through=("env",))
        site = Site(name="delft", processors=1, kind="slurm", batch=settings)
        relays = tmp_path / "relays"
        mover = FileMover([site], {"delft": readings.area}, Host(RemoteShell()), relays, clock=lambda: 0.0)
        await mover.open()
        for number, chunk in enumerate([(10, 100), (200, 100)]):
            order = Order(
                transfer=f"t{number}",
                file="data",
                source="delft",
                target="delft",
                size_bytes=chunk[1],
                checksum=sha(DATA),
                chunk=chunk,
            )
            with pytest.raises(ChecksumError, match=r"'data' at delft: .* it is damaged"):
                await mover.transfer(order)
        await mover.close()
        assert readings.count == 1
        assert readings.directory.copies() == []

    run(scenario())
