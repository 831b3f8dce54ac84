"""Files between sites that this machine reaches only by ssh or through a command, with a real sshd and real rsync."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.files import (
    AreaDirectory,
    ChangedFileError,
    ChecksumError,
    MissingReplicaError,
    TransferCancelledError,
    TransferInterruptedError,
    UnreachableSiteError,
)
from koala.files.area.layout import copy_name
from tests.support.file_servers import SYSTEM_PATH, FileGrid, SshServer, ssh_server, until_async
from tests.support.paths import SUPPORT
from tests.support.rsync_sites import add_sites
from tests.support.warm_koala import PipedProgram

DATA = random.Random(7).randbytes(2_200_017)
# A flow that is to be found on its way has not ended when its first bytes are told of, on the busiest machine: it
# would take 9 seconds, or 6 where the test waits for its end.
SLOW_BYTES_S = 250_000.0
FOUND_BYTES_S = 400_000.0
# In each second a stream brings a block that is written at once, and not much more.
STREAM_BYTES_S = 1_200_000.0
KILLED = SUPPORT / "killed_mover.py"


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    with ssh_server() as found:
        yield found


@pytest.fixture
def grid(tmp_path: Path, server: SshServer) -> FileGrid:
    made = FileGrid(tmp_path, server)
    add_sites(made, server)
    return made


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 300))


async def one_process_at(grid: FileGrid, program: str) -> list[int]:
    """The processes of a program that carry for these sites."""

    def found() -> list[int]:
        return [pid for pid in grid.processes() if name_of(pid) == program]

    return list(await until_async(found))


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


PAIRS = [
    ("west", "east"),
    ("west", "lone"),
    ("home", "east"),
    ("west", "home"),
    ("behind", "east"),
    ("home", "behind"),
    ("west", "west"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_a_file_and_a_chunk_of_it_come_whole_by_every_way(grid: FileGrid, source: str, target: str) -> None:
    async def scenario() -> None:
        grid.put("a/b c", DATA, source)
        seen: list[int] = []
        chunk = (1_000_003, 1_200_007)
        async with grid.mover(source, target) as mover:
            whole, piece = await asyncio.gather(
                mover.transfer(grid.order("a/b c", source, target), seen.append),
                mover.transfer(grid.order("a/b c", source, target, "t2", chunk=chunk)),
            )
            assert (grid.files(target) / whole.path).read_bytes() == DATA
            assert (grid.files(target) / piece.path).read_bytes() == DATA[chunk[0] : sum(chunk)]
            assert whole.copied_bytes == whole.size_bytes == seen[-1] == len(DATA)
            again = await mover.transfer(grid.order("a/b c", source, target, "t3"))
            assert (again.path, again.copied_bytes) == (whole.path, 0)
            for transfer in ("t1", "t2", "t3"):
                await mover.cancel(transfer)
            assert mover.transfers == frozenset()
        assert grid.left(target) == []
        await until_async(lambda: grid.processes() == [])

    run(scenario())


def test_an_empty_file_is_a_file(grid: FileGrid) -> None:
    async def scenario() -> None:
        grid.put("none", b"", "west")
        async with grid.mover("west", "east") as mover:
            result = await mover.transfer(grid.order("none", "west", "east"))
            assert (grid.files("east") / result.path).read_bytes() == b""

    run(scenario())


def test_a_flow_that_is_killed_goes_on_where_it_was(grid: FileGrid) -> None:
    async def scenario() -> None:
        grid.put("data", DATA, "west")
        seen: list[int] = []
        async with grid.mover("west", "east") as mover:
            order = grid.order("data", "west", "east", rate_bytes_s=FOUND_BYTES_S)
            running = asyncio.create_task(mover.transfer(order, seen.append))
            await until_async(lambda: seen and seen[-1] > 0)
            for pid in await one_process_at(grid, "rsync"):
                os.kill(pid, signal.SIGKILL)
            killed_at = seen[-1]
            result = await running
            assert (grid.files("east") / result.path).read_bytes() == DATA
            assert seen.count(0) == 1, "it was not begun anew"
            assert 0 < killed_at < len(DATA)

    run(scenario())


def cutting(directory: Path, program: str, size: int) -> str:
    """A PATH at whose front a program ends its output after so many bytes, the first time that it is run."""
    directory.mkdir()
    script = directory / program
    script.write_text(
        f'#!/bin/sh\nif mkdir {directory}/cut 2>/dev/null; then /usr/bin/{program} "$@" | /usr/bin/dd bs=65536 '
        f'iflag=fullblock count={size // 65536} 2>/dev/null; exit 1; fi\nexec /usr/bin/{program} "$@"\n'
    )
    script.chmod(0o755)
    return f"{directory}:{SYSTEM_PATH}"


@pytest.mark.parametrize("target", ["behind", "lone"])
def test_a_stream_that_is_cut_goes_on_at_the_next_block(grid: FileGrid, tmp_path: Path, target: str) -> None:
    async def scenario() -> None:
        path = cutting(tmp_path / "cutting", "head", 1_500_000)
        grid.remote("cut", path, ssh="west")
        grid.put("data", DATA, "cut")
        seen: list[int] = []
        async with grid.mover("cut", target) as mover:
            result = await mover.transfer(grid.order("data", "cut", target, chunk=(5, len(DATA) - 5)), seen.append)
        assert (grid.files(target) / result.path).read_bytes() == DATA[5:]
        assert (tmp_path / "cutting" / "cut").exists()
        assert seen.count(0) == 1, "it was not begun anew"

    run(scenario())


def test_a_daemon_killed_in_the_middle_finds_the_flow_again(
    grid: FileGrid, server: SshServer, tmp_path: Path
) -> None:
    """The flow stands still from the daemon's death until the next one has found it, however long that takes."""

    async def scenario() -> None:
        grid.put("data", DATA, "west")
        words = [str(tmp_path), str(server.root), str(server.port), "west", "east", str(FOUND_BYTES_S)]
        with PipedProgram(KILLED, *words) as process:
            for line in process.stdout:
                if int(line) > 0:
                    (running,) = [pid for pid in grid.processes("east") if leads(pid)]
                    os.killpg(running, signal.SIGSTOP)
                    process.kill()
                    break

        async def pause(seconds: float) -> None:
            with contextlib.suppress(ProcessLookupError):  # it has come to its end
                os.killpg(running, signal.SIGCONT)
            await asyncio.sleep(seconds)

        seen: list[int] = []
        async with grid.mover("west", "east", pause=pause) as mover:
            assert mover.transfers == {"t1"}
            result = await mover.transfer(grid.order("data", "west", "east"), seen.append)
            assert result.copied_bytes < len(DATA)
            assert seen[0] > 0
            assert (grid.files("east") / result.path).read_bytes() == DATA
            home = (grid.files("east") / result.path).parent
            assert (home / "process").read_text().split()[1] == str(running), "no other process was begun"

    run(scenario())


def leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def processes_about(path: Path) -> list[int]:
    """The living processes that have a path in their words."""
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and str(path) in (each / "cmdline").read_text(errors="replace"):
                found.append(int(each.name))
    return found


@pytest.mark.parametrize(("source", "target"), [("west", "east"), ("west", "lone"), ("home", "east")])
def test_a_transfer_that_is_cancelled_leaves_no_file_and_no_process(grid: FileGrid, source: str, target: str) -> None:
    async def scenario() -> None:
        path = grid.put("data", 3 * DATA, source)
        seen: list[int] = []
        async with grid.mover(source, target) as mover:
            order = grid.order("data", source, target, rate_bytes_s=STREAM_BYTES_S)
            running = asyncio.create_task(mover.transfer(order, seen.append))
            await until_async(lambda: seen and seen[-1] > 0)
            assert grid.processes() != []
            await mover.cancel("t1")
            with pytest.raises(TransferCancelledError):
                await running
            assert grid.left(target) == []
            assert mover.transfers == frozenset()
        await until_async(lambda: grid.processes() == [])
        # Nor at the source, where nobody can end what reads there: it ends for want of a listener.
        await until_async(lambda: processes_about(path) == [])

    run(scenario())


def test_a_transfer_of_a_killed_daemon_that_nobody_wants_is_stopped_and_removed(
    grid: FileGrid, server: SshServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        grid.put("data", DATA, "west")
        words = [str(tmp_path), str(server.root), str(server.port), "west", "east", str(SLOW_BYTES_S)]
        with PipedProgram(KILLED, *words) as process:
            for line in process.stdout:
                if int(line) > 0:
                    process.kill()
                    break
        assert grid.processes() != []
        async with grid.mover("west", "east") as mover:
            await mover.cancel("t1")
        assert grid.left("east") == []
        await until_async(lambda: grid.processes() == [])

    run(scenario())


def test_a_closed_mover_stops_what_flows_and_the_next_goes_on_there(grid: FileGrid) -> None:
    async def scenario() -> None:
        grid.put("data", DATA, "west")
        seen: list[int] = []
        async with grid.mover("west", "east") as mover:
            order = grid.order("data", "west", "east", rate_bytes_s=SLOW_BYTES_S)
            running = asyncio.create_task(mover.transfer(order, seen.append))
            await until_async(lambda: seen and seen[-1] > 0)
            await mover.close()
            with pytest.raises(TransferInterruptedError):
                await running
        await until_async(lambda: grid.processes() == [])
        async with grid.mover("west", "east") as mover:
            result = await mover.transfer(grid.order("data", "west", "east"))
            assert result.copied_bytes < len(DATA)
            assert (grid.files("east") / result.path).read_bytes() == DATA

    run(scenario())


# ------------------------------------------------------------------------------------------- what goes wrong


def spoil_replica(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(DATA[:-1] + b"?")


def shorten_replica(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(DATA[:-1])


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (spoil_replica, ChecksumError, "at west: its SHA-256 is .* forget this replica, it is damaged"),
        (shorten_replica, ChangedFileError, "at west: it has 2200016 bytes and should have 2200017"),
        (Path.unlink, MissingReplicaError, "at west: it is not there"),
    ],
)
def test_a_replica_that_is_not_what_the_catalogue_knows_is_never_used(
    grid: FileGrid, spoil: Callable[[Path], None], error: type[Exception], words: str
) -> None:
    async def scenario() -> None:
        path = grid.put("data", DATA, "west")
        order = grid.order("data", "west", "east")
        spoil(path)
        async with grid.mover("west", "east") as mover:
            with pytest.raises(error, match=words):
                await mover.transfer(order)
            assert mover.transfers == frozenset()
        assert grid.left("east") == []

    run(scenario())


def test_a_part_that_was_damaged_is_noticed_and_copied_anew(grid: FileGrid) -> None:
    async def scenario() -> None:
        grid.put("data", DATA, "west")
        seen: list[int] = []
        async with grid.mover("west", "east") as mover:
            order = grid.order("data", "west", "east", rate_bytes_s=SLOW_BYTES_S)
            running = asyncio.create_task(mover.transfer(order, seen.append))
            await until_async(lambda: seen and seen[-1] > 0)
            await mover.close()
            await asyncio.gather(running, return_exceptions=True)
        (part,) = (grid.files("east") / "copies").glob("*/part")
        with part.open("r+b") as file:
            file.write(bytes([DATA[0] ^ 1]))
        async with grid.mover("west", "east") as mover:
            again: list[int] = []
            result = await mover.transfer(grid.order("data", "west", "east"), again.append)
            assert again.count(0) == 1, "it was begun anew"
            assert again[0] > 0
            assert (grid.files("east") / result.path).read_bytes() == DATA

    run(scenario())


def test_bytes_that_never_arrive_end_a_transfer_with_what_was_said(grid: FileGrid, tmp_path: Path) -> None:
    async def scenario() -> None:
        broken = tmp_path / "broken"
        broken.mkdir()
        (broken / "rsync").write_text("#!/bin/sh\necho 'the wire was eaten' >&2\nexit 12\n")
        (broken / "rsync").chmod(0o755)
        (broken / "ssh").symlink_to(grid_ssh(grid))
        grid.remote("bad", f"{broken}:{SYSTEM_PATH}", ssh="east")
        grid.put("data", DATA, "west")

        async def soon(pause_s: float) -> None:
            await asyncio.sleep(min(pause_s, 0.01))

        async with grid.mover("west", "bad", pause=soon, tries_max=2) as mover:
            words = "'data' at bad: it does not arrive from west, tried 2 times .*the wire was eaten"
            with pytest.raises(UnreachableSiteError, match=words):
                await mover.transfer(grid.order("data", "west", "bad"))
        assert grid.left("bad") == []

    run(scenario())


def grid_ssh(grid: FileGrid) -> Path:
    (config,) = [Path(word) for word in grid.ssh if word.endswith("/config")]
    return config.parent / "bin" / "ssh"


def test_a_site_that_is_not_reached_at_first_is_found_later(grid: FileGrid, tmp_path: Path) -> None:
    async def scenario() -> None:
        grid.put("data", DATA, "west")
        copy = copy_name("data", None, None)
        AreaDirectory("late", grid.files("late")).open()
        AreaDirectory("late", grid.files("late")).copy_named(copy).hold("of before")
        gate = tmp_path / "gate"
        gate.write_text('#!/bin/sh\necho "no route to host" >&2\nexit 255\n')
        gate.chmod(0o755)
        grid.remote("late", through=(str(gate),))
        found: list[frozenset[str]] = []

        async def soon(pause_s: float) -> None:
            await asyncio.sleep(min(pause_s, 0.05))

        async with grid.mover("late", pause=soon) as mover:
            mover.when_found = found.append
            assert mover.transfers == frozenset()
            gate.write_text('#!/bin/sh\nexec "$@"\n')
            await until_async(lambda: found)
            assert found == [frozenset({"of before"})]
            assert mover.transfers == {"of before"}
            await mover.cancel("of before")
        assert grid.left("late") == []

    run(scenario())


# ------------------------------------------------------------------------------------------------ replicas


@pytest.mark.parametrize("target", ["east", "behind"])
def test_a_file_of_this_machine_is_uploaded_as_a_replica(grid: FileGrid, tmp_path: Path, target: str) -> None:
    async def scenario() -> None:
        (tmp_path / "a file").write_bytes(DATA)
        async with grid.mover(target) as mover:
            measured = await mover.upload(target, "data", tmp_path / "a file", "\0incoming.1")
            area = grid.areas[target]
            assert await area.measure("\0incoming.1") == measured
            await area.take_name("\0incoming.1", "data")
            assert AreaDirectory(target, grid.files(target)).replica("data").read_bytes() == DATA
            assert mover.transfers == frozenset()
        assert grid.left(target) == []

    run(scenario())


def test_a_url_for_a_site_that_is_not_seen_is_read_here_and_sent(grid: FileGrid) -> None:
    fsspec: Any = importlib.import_module("fsspec")

    async def scenario() -> None:
        with fsspec.open("memory://koala/sent", "wb") as file:
            file.write(DATA)
        grid.put("data", DATA, "west")
        async with grid.mover("west", "east") as mover:
            order = grid.order("data", "west", "east", url="memory://koala/sent", chunk=(10, 2_000_000))
            result = await mover.transfer(order)
            assert (grid.files("east") / result.path).read_bytes() == DATA[10:2_000_010]
            await mover.cancel("t1")
        assert grid.left("east") == []

    run(scenario())
