"""What a component left in its workspace becomes a replica of its site, whether this machine sees it or not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from koala.daemon.offload import in_own_thread
from koala.files import AreaDirectory, FileArea, Host, LargeOutputError, LocalArea, PathError, RemoteArea
from koala.files.area.layout import fresh_name, replica_path
from koala.files.area.workspace import _below
from koala.model.grid import BatchSettings
from koala.model.outputs import COLLECTED_BYTES_MAX, CollectLimits, job_of_output, output_name, output_problem
from koala.sites.remote_shell import RemoteShell

COMPONENT = "17.3"
NAME = output_name(17, 0, "result.h5")
BYTES = bytes(range(256)) * 40
LIMIT_S = 4_321.0


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


def seen(site: Path, **limits: Any) -> FileArea:
    return LocalArea(
        AreaDirectory("delft", site / "files"), Host(RemoteShell()), in_own_thread, limits=CollectLimits(**limits)
    )


def told(site: Path, through: tuple[str, ...] = ("env",), **limits: Any) -> FileArea:
    settings = BatchSettings(work_directory=str(site), through=through)
    host = Host(RemoteShell(through=through), settings)
    return RemoteArea("delft", host, str(site / "files"), limits=CollectLimits(**limits))


def far(site: Path, **limits: Any) -> FileArea:
    """Where a script goes on when whoever has called it is gone, as behind ssh."""
    return told(site, ("setsid", "--wait"), **limits)


AREAS = pytest.mark.parametrize("make", [seen, told])


def workspace(site: Path) -> Path:
    path = site / "components" / COMPONENT / "workspace"
    path.mkdir(parents=True)
    return path


@AREAS
def test_a_file_is_collected_and_read_in_pieces(tmp_path: Path, make: Any) -> None:
    async def scenario() -> None:
        area = make(tmp_path)
        await area.prepare()
        (workspace(tmp_path) / "sub dir").mkdir()
        (tmp_path / f"components/{COMPONENT}/workspace/sub dir/result").write_bytes(BYTES)
        made = await area.collect(NAME, COMPONENT, "sub dir/result")
        assert made is not None
        assert (made.size_bytes, made.checksum, made.directory) == (
            len(BYTES),
            hashlib.sha256(BYTES).hexdigest(),
            False,
        )
        pieces = [await area.read(replica_path(NAME), offset, 1_000) for offset in range(0, len(BYTES), 1_000)]
        assert b"".join(pieces) == BYTES
        assert await area.read(replica_path(NAME), len(BYTES), 10) == b""
        assert await area.collect(NAME, COMPONENT, "sub dir/result") == made

    run(scenario())


@AREAS
def test_a_directory_is_collected_as_one_archive(tmp_path: Path, make: Any) -> None:
    async def scenario() -> None:
        area = make(tmp_path)
        await area.prepare()
        logs = workspace(tmp_path) / "logs"
        (logs / "deep").mkdir(parents=True)
        (logs / "deep" / "one line\nor two").write_bytes(BYTES)
        (logs / "secret").symlink_to("/etc/passwd")
        os.link(logs / "deep" / "one line\nor two", logs / "same")
        made = await area.collect("jobs/17/logs", COMPONENT, "logs")
        assert made is not None
        assert made.directory
        data = await area.read(replica_path("jobs/17/logs"), 0, made.size_bytes)
        assert hashlib.sha256(data).hexdigest() == made.checksum
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            found = {os.path.normpath(each.name): each for each in tar.getmembers()}
            assert set(found) - {"."} == {"deep", "deep/one line\nor two", "same", "secret"}
            assert found["secret"].issym()
            for name in ("deep/one line\nor two", "same"):
                member = tar.extractfile(found[name])
                assert member is not None
                assert member.read() == BYTES

    run(scenario())


@AREAS
def test_what_is_not_there_is_no_output(tmp_path: Path, make: Any) -> None:
    async def scenario() -> None:
        area = make(tmp_path)
        await area.prepare()
        (workspace(tmp_path) / "dangling").symlink_to(tmp_path / "nowhere")
        assert await area.collect(NAME, COMPONENT, "missing") is None
        assert await area.collect(NAME, COMPONENT, "dangling") is None
        assert await area.size_bytes(replica_path(NAME)) is None

    run(scenario())


@AREAS
@pytest.mark.parametrize("case", ["link", "parent", "itself", "pipe", "large", "many", "gone", "moved"])
def test_what_cannot_be_an_output_is_refused_and_leaves_nothing(tmp_path: Path, make: Any, case: str) -> None:
    async def scenario() -> None:
        area = make(tmp_path, bytes_max=5_000, entries_max=4)
        await area.prepare()
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "file").write_bytes(BYTES)
        if case not in ("gone", "moved"):
            home = workspace(tmp_path)
            (home / "link").symlink_to(tmp_path / "outside" / "file")
            (home / "parent").symlink_to(tmp_path / "outside")
            (home / "itself").symlink_to(".")
            os.mkfifo(home / "pipe")
            (home / "large").write_bytes(BYTES)
            (home / "many").mkdir()
            for number in range(5):
                (home / "many" / str(number)).touch()
        elif case == "moved":
            (tmp_path / "components" / COMPONENT).mkdir(parents=True)
            (tmp_path / "components" / COMPONENT / "workspace").symlink_to(tmp_path / "outside")
        path = {"parent": "parent/file", "gone": "file", "moved": "file"}.get(case, case)
        with pytest.raises(PathError) as refused:
            await area.collect(NAME, COMPONENT, path)
        words = {"large": "output_bytes_max", "many": "COLLECTED_ENTRIES_MAX", "pipe": "neither a file"}
        assert words.get(case, "workspace") in refused.value.for_user()
        assert await area.size_bytes(replica_path(NAME)) is None
        assert not [each for each in (tmp_path / "files" / "replicas").iterdir() if each.name.startswith(".")]

    run(scenario())


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "../x", "a/../../x", ".", "a\nb", "x" * 256])
def test_a_path_that_leads_away_is_no_output(path: str) -> None:
    assert output_problem(path) is not None


def test_names_are_measured_in_bytes() -> None:
    assert output_problem("é" * 127) is None
    assert "OUTPUT_STEP_BYTES_MAX" in str(output_problem("a/" + "é" * 128))


def test_a_directory_may_be_deeper_than_calls_may_be(tmp_path: Path) -> None:
    deep = "/".join("d" * (sys.getrecursionlimit() + 20))
    subprocess.run(["mkdir", "-p", deep], cwd=tmp_path, check=True)
    try:
        assert sum(1 for _ in _below(tmp_path)) == sys.getrecursionlimit() + 20
    finally:
        subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True)


def test_what_cannot_be_read_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        area = seen(tmp_path)
        await area.prepare()
        (workspace(tmp_path) / "logs").mkdir()
        with pytest.raises(PathError, match="cannot be read"):
            await area.collect(NAME, COMPONENT, "x" * 300)

        def closed(self: Path) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

        monkeypatch.setattr(Path, "iterdir", closed)
        with pytest.raises(PathError, match="cannot be read"):
            await area.collect(NAME, COMPONENT, "logs")

    run(scenario())


def test_a_disk_without_room_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = tmp_path / "site"
        settings = BatchSettings(work_directory=str(site), through=("env",))
        small = ("env", "--ignore-signal=XFSZ", "prlimit", "--fsize=4096")
        area = RemoteArea("delft", Host(RemoteShell(through=small), settings), str(site / "files"))
        await area.prepare()
        logs = workspace(site) / "logs"
        logs.mkdir()
        (logs / "line").write_bytes(BYTES)
        with pytest.raises(OSError, match="no room") as full:
            await area.collect(NAME, COMPONENT, "logs")
        assert full.value.errno == errno.ENOSPC
        assert list((site / "files" / "replicas").iterdir()) == []

    run(scenario())


@AREAS
def test_holes_count_as_bytes(tmp_path: Path, make: Any) -> None:
    async def scenario() -> None:
        area = make(tmp_path)
        await area.prepare()
        logs = workspace(tmp_path) / "logs"
        logs.mkdir()
        sparse(logs / "file")
        for path in ("logs", "logs/file"):
            with pytest.raises(PathError, match="output_bytes_max"):
                await area.collect(NAME, COMPONENT, path)

    run(scenario())


@AREAS
def test_holes_that_are_far_more_than_data_are_refused_unread(tmp_path: Path, make: Any) -> None:
    """``truncate`` makes as many as one likes at no cost."""

    async def scenario() -> None:
        area = make(tmp_path)
        await area.prepare()
        logs = workspace(tmp_path) / "logs"
        logs.mkdir()
        sparse(logs / "file", 80 << 30)
        for path in ("logs", "logs/file"):
            with pytest.raises(PathError, match="OUTPUT_HOLES_BYTES_MAX"):
                await area.collect(NAME, COMPONENT, path)
        assert not list((tmp_path / "files" / "replicas").iterdir())

    run(scenario())


@AREAS
def test_data_between_holes_pays_for_as_many_of_them(tmp_path: Path, make: Any) -> None:
    async def scenario() -> None:
        area = make(tmp_path, holes_bytes_max=1 << 20)
        await area.prepare()
        path = workspace(tmp_path) / "result"
        for data_bytes, is_taken in ((3 << 20, True), (1 << 20, False)):
            with path.open("wb") as file:
                file.seek(1 << 20)
                file.write(b"x" * data_bytes)
                file.truncate(5 << 20)
            if is_taken:
                made = await area.collect(NAME, COMPONENT, "result")
                assert made is not None
                assert made.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                with pytest.raises(PathError, match="OUTPUT_HOLES_BYTES_MAX"):
                    await area.collect(NAME, COMPONENT, "result")

    run(scenario())


def sparse(path: Path, size_bytes: int = 1_000 << 30) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


def at_work(site: Path) -> list[Path]:
    """What processes of this machine have open of the area's replicas."""
    found = []
    for process in [each for each in Path("/proc").iterdir() if each.name.isdigit()]:
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found.append(link.readlink())
    return [path for path in found if path.is_relative_to(site / "files" / "replicas")]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("make", [seen, told, far])
@pytest.mark.parametrize("how", ["given up", "too slow"])
@pytest.mark.parametrize("path", ["result", "logs"])
def test_what_is_given_up_or_takes_too_long_is_read_no_further(
    tmp_path: Path, make: Any, how: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[asyncio.Timeout] = []
    begin = asyncio.timeout

    def noted(time_s: float | None) -> asyncio.Timeout:
        limit = begin(time_s)
        if time_s == LIMIT_S:
            limits.append(limit)
        return limit

    async def scenario() -> None:
        most = COLLECTED_BYTES_MAX
        area = make(tmp_path, bytes_max=most, holes_bytes_max=most, time_s=LIMIT_S)
        await area.prepare()
        (workspace(tmp_path) / "logs").mkdir()
        sparse(tmp_path / f"components/{COMPONENT}/workspace/result")
        sparse(tmp_path / f"components/{COMPONENT}/workspace/logs/file", 4 << 30)
        with pytest.raises(LargeOutputError):
            await area.collect(NAME, COMPONENT, path, at_once_bytes=1 << 20)
        task = asyncio.create_task(area.collect(NAME, COMPONENT, path))
        await until(lambda: bool(at_work(tmp_path)))
        if how == "given up":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            limits[-1].reschedule(asyncio.get_running_loop().time())
            with pytest.raises(PathError, match="collect_s_max"):
                await task
        await until(lambda: not at_work(tmp_path))
        await until(lambda: not list((tmp_path / "files" / "replicas").iterdir()))
        await area.close()

    monkeypatch.setattr(asyncio, "timeout", noted)
    run(scenario())


def test_what_is_given_up_takes_no_name_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        threads: list[threading.Thread] = []
        begins, goes_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def late(work: Any, /, *arguments: Any, **named: Any) -> Any:
            def later() -> None:
                goes_on.wait(120)
                with contextlib.suppress(OSError):
                    work(*arguments, **named)

            threads.append(threading.Thread(target=later))
            threads[0].start()
            begins.set()
            await loop.create_future()

        area = LocalArea(
            AreaDirectory("delft", tmp_path / "files"), Host(RemoteShell()), late, limits=CollectLimits()
        )
        await area.prepare()
        (workspace(tmp_path) / "result").write_bytes(BYTES)
        task = asyncio.create_task(area.collect(NAME, COMPONENT, "result"))
        await begins.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        goes_on.set()
        await asyncio.to_thread(threads[0].join)
        assert list((tmp_path / "files" / "replicas").iterdir()) == []

    run(scenario())


def test_a_script_that_was_given_up_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        area = told(tmp_path)
        await area.prepare()
        others = tmp_path / replica_path("x").replace("replicas/", "files/replicas/.")
        others.with_name(f"{others.name}@1").touch()
        mine = tmp_path / "files" / "replicas" / fresh_name(NAME)
        mine.touch()
        await area.doubt(NAME)
        await area.settle(NAME, keep=False)
        assert [each.name for each in mine.parent.iterdir()] == [f"{others.name}@1"]
        assert fresh_name(NAME) != fresh_name(NAME)

    run(scenario())


def test_names_of_outputs_tell_their_job() -> None:
    assert (output_name(17, 0, "a/b"), output_name(17, 2, "a/b")) == ("jobs/17/a/b", "jobs/17.2/a/b")
    assert job_of_output("jobs/17/a") == job_of_output("jobs/17.2/a") == 17
    assert job_of_output("data/17/a") is None
    assert job_of_output("jobs/x/a") is None


def test_a_directory_with_too_many_entries_is_refused_without_a_list_of_them(tmp_path: Path) -> None:
    many = workspace(tmp_path) / "many"
    many.mkdir()
    for number in range(20_000):
        (many / f"{number}").touch()

    async def scenario() -> None:
        area = seen(tmp_path, entries_max=10)
        await area.prepare()
        tracemalloc.start()
        with pytest.raises(PathError, match="COLLECTED_ENTRIES_MAX"):
            await area.collect(NAME, COMPONENT, "many")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()

    run(scenario())
