"""An area that is reached only by shell scripts is laid out like a local one, whatever files are called."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from koala.files import AreaDirectory, Host, PathError, RemoteArea
from koala.files.area.layout import copy_name, replica_path
from koala.files.area.local import LocalArea
from koala.files.checksums import of_path
from koala.files.remote_process import RemoteProcess
from koala.model.grid import BatchSettings
from koala.sites.remote_shell import RemoteShell
from tests.support.file_servers import until_async
from tests.support.file_world import HOSTILE

BYTES = b"some bytes\n"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 300))


def there(root: Path) -> tuple[RemoteArea, AreaDirectory]:
    """The same area as scripts see it, and as this machine does."""
    settings = BatchSettings(work_directory=str(root), through=("env",))
    return RemoteArea("delft", Host(RemoteShell(through=("env",)), settings), str(root)), AreaDirectory("delft", root)


def test_any_name_is_a_file_of_the_area_where_one_that_is_seen_would_have_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        area, seen = there(tmp_path / "it's an area")
        await area.prepare()
        (tmp_path / "out side").write_bytes(BYTES)
        for name in HOSTILE:
            measured = await area.take_in(name, str(tmp_path / "out side"))
            assert measured == await area.measure(name)
            assert (measured.size_bytes, measured.checksum) == (len(BYTES), of_path(seen.replica(name)))
            await area.doubt(name)
        assert sorted(await area.doubts(), key=repr) == sorted(HOSTILE, key=repr)
        assert seen.doubts() == await area.doubts()
        for number, name in enumerate(HOSTILE):
            await area.settle(name, keep=number % 2 == 0)
        assert await area.doubts() == []
        for number, name in enumerate(HOSTILE):
            assert (await area.size_bytes(replica_path(name)) is not None) == (number % 2 == 0)
        assert {each.name for each in tmp_path.iterdir()} == {"it's an area", "out side"}

    run(scenario())


def test_many_replicas_are_read_whole_and_those_that_are_not_right_are_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        area, seen = there(tmp_path / "area")
        await area.prepare()
        wanted = {}
        for number, name in enumerate(HOSTILE):
            data = bytes(range(256)) * number + b"\nhere\n"
            seen.replica(name).write_bytes(data)
            wanted[name] = data
        sizes = {name: len(data) for name, data in wanted.items()}
        gone, grown = HOSTILE[1], HOSTILE[2]
        seen.replica(gone).unlink()
        sizes[grown] += 1
        right = {name: data for name, data in wanted.items() if name not in (gone, grown)}
        local = LocalArea(seen, area.host)
        for each in (area, local):
            assert await each.read_whole(sizes) == right
            assert await each.read_whole({}) == {}

    run(scenario())


# The programs that a site has for checksums, in place of the usual ones: what they run, and which is used.
OPENSSL, SHA256SUM = 'exec /usr/bin/openssl "$@"', "exec /usr/bin/sha256sum"
DIGESTS = [
    ({"openssl": OPENSSL, "sha256sum": SHA256SUM, "shasum": "exit 1"}, "openssl dgst -sha256 -r"),
    ({"openssl": "exit 1", "sha256sum": SHA256SUM, "shasum": "exit 1"}, "sha256sum"),
    ({"sha256sum": SHA256SUM, "shasum": "exit 1"}, "sha256sum"),
    ({"shasum": SHA256SUM}, "shasum -a 256"),
]


def with_programs(root: Path, programs: dict[str, str]) -> RemoteArea:
    """An area at a site that has these for checksums; what each was called with is in ``log``."""
    path = root / "bin"
    path.mkdir()
    for each in Path("/usr/bin").iterdir():
        if each.name not in {"openssl", "sha256sum", "shasum"}:
            (path / each.name).symlink_to(each)
    for name, text in programs.items():
        (path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{root / "log"}\n{text}\n')
        (path / name).chmod(0o755)
    (root / "outside").write_bytes(BYTES)
    settings = BatchSettings(work_directory=str(root), through=("env",))
    commands = RemoteShell(through=("env",), environment={"PATH": str(path)})
    return RemoteArea("delft", Host(commands, settings), str(root / "area"))


@pytest.mark.parametrize(("programs", "used"), DIGESTS, ids=["openssl", "an old openssl", "sha256sum", "shasum"])
def test_checksums_come_from_whichever_program_the_site_has(
    tmp_path: Path, programs: dict[str, str], used: str
) -> None:
    async def scenario() -> None:
        area = with_programs(tmp_path, programs)
        await area.prepare()
        measured = await area.take_in("data", str(tmp_path / "outside"))
        assert measured.checksum == of_path(tmp_path / "outside")
        assert await area.measure("data") == measured
        assert (tmp_path / "log").read_text().splitlines()[-1].strip() == used

    run(scenario())


def test_a_site_without_a_program_for_checksums_is_told_which_to_install(tmp_path: Path) -> None:
    async def scenario() -> None:
        area = with_programs(tmp_path, {})
        await area.prepare()
        with pytest.raises(OSError, match="install openssl, sha256sum or shasum"):
            await area.digest(str(tmp_path / "outside"), len(BYTES))

    run(scenario())


def test_opening_removes_what_a_killed_daemon_left_half_done_and_tells_what_is_held(tmp_path: Path) -> None:
    async def scenario() -> None:
        area, seen = there(tmp_path)
        assert await area.prepare() == {}
        (tmp_path / "replicas" / ".=half").write_bytes(b"ha")
        held, loose = (copy_name(name, None, None) for name in "ab")
        for transfer in ("t1", "naïve/☃"):
            await area.hold(held, transfer)
        await area.hold(loose, "t2")
        await area.let_go(loose, "t2")
        (tmp_path / "trash" / "something").mkdir()
        assert await area.prepare() == {held: {"t1", "naïve/☃"}}
        assert [copy.home.name for copy in seen.copies()] == [held]
        assert seen.copy_named(held).holders() == {"t1", "naïve/☃"}
        assert list((tmp_path / "trash").iterdir()) == []
        assert list((tmp_path / "replicas").iterdir()) == []
        await area.remove(held)
        await area.remove(held)
        assert seen.copies() == []

    run(scenario())


def test_a_copy_becomes_a_replica_and_a_replica_gets_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        area, seen = there(tmp_path)
        await area.prepare()
        copy = copy_name("data", None, None)
        await area.hold(copy, "t1")
        seen.copy_named(copy).data.write_bytes(BYTES)
        await area.promote("first", copy)
        await area.take_name("first", "second")
        await area.remove(copy)
        assert seen.replica("second").read_bytes() == BYTES
        assert seen.replica("second").stat().st_mode & 0o222 == 0
        assert await area.size_bytes(replica_path("first")) is None
        await area.forget("second")
        await area.forget("second")
        assert list((tmp_path / "replicas").iterdir()) == []

    run(scenario())


def test_what_cannot_be_taken_in_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        area, seen = there(tmp_path / "area")
        await area.prepare()
        (tmp_path / "outside").write_bytes(BYTES)
        await area.take_in("data", str(tmp_path / "outside"))
        for path in (tmp_path / "nowhere", tmp_path):
            with pytest.raises(PathError, match="at delft"):
                await area.take_in("data", str(path))
        assert [path.name for path in seen.root.joinpath("replicas").iterdir()] == ["=data"]
        assert seen.replica("data").read_bytes() == BYTES

    run(scenario())


def test_a_process_tells_how_it_ended_and_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = RemoteProcess(Host(RemoteShell()), str(tmp_path))
        await process.start("echo so far >out; echo 'never mind' >&2; exit 3")
        while (look := await process.look("out")).running:
            await asyncio.sleep(0.02)
        assert (look.code, look.said, look.size_bytes) == (3, "never mind", 7)
        await process.start("exec sleep 1000")
        assert (await process.look()).running
        record = (tmp_path / "process").read_text()
        await process.start("echo another >out")
        assert (tmp_path / "process").read_text() == record, "one at a time"
        await process.stop()
        await process.stop()
        look = await process.look("out")
        assert (look.running, look.size_bytes) == (False, 7)

    run(scenario())


def test_a_process_whose_directory_is_removed_ends_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        home = tmp_path / "home"
        home.mkdir()
        process = RemoteProcess(Host(RemoteShell()), str(home))
        await process.start("exec sleep 1000")
        pid = int((home / "process").read_text().split()[1])
        home.rename(tmp_path / "trash")
        await until_async(lambda: not alive(pid))

    run(scenario())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
