"""Files from file server to file server with real GridFTP: the data goes straight between the sites."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.files import ChecksumError, NoSpaceError, TransferCancelledError
from tests.support.file_servers import SYSTEM_PATH, FileGrid, GridFtpServer, needed, until_async

DATA = random.Random(8).randbytes(3_000_017)
LARGE_BYTES = 200_000_000
SITES = ("alpha", "beta")


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that everybody may enter, as the server may be another user."""
    for program, package in (
        ("globus-gridftp-server", "globus-gridftp-server-progs"),
        ("globus-url-copy", "globus-gass-copy-progs"),
    ):
        needed(program, package)
    with tempfile.TemporaryDirectory(prefix="koala-gridftp-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def servers(root: Path) -> Iterator[dict[str, GridFtpServer]]:
    """The file servers of two sites."""
    made = {site: GridFtpServer(root / site / "served") for site in SITES}
    try:
        for server in made.values():
            server.start()
        yield made
    finally:
        for server in made.values():
            server.stop()


@pytest.fixture(params=["local", "behind"])
def grid(request: pytest.FixtureRequest, root: Path, servers: dict[str, GridFtpServer]) -> FileGrid:
    """Two sites with file servers, with local files, or with remote ones."""
    return made_grid(root, servers, request.param == "local")


@pytest.fixture
def remote(root: Path, servers: dict[str, GridFtpServer]) -> FileGrid:
    return made_grid(root, servers, False)


def made_grid(root: Path, servers: dict[str, GridFtpServer], local: bool) -> FileGrid:
    grid = FileGrid(root)
    for site, server in servers.items():
        if local:
            grid.local(site, server.url)
        else:
            grid.remote(site, through=("env",), file_server=server.url)
    return grid


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 300))


def test_a_file_and_a_chunk_of_it_come_straight_from_server_to_server(grid: FileGrid) -> None:
    async def scenario() -> None:
        grid.put("a/b c", DATA, "alpha")
        seen: list[int] = []
        chunk = (1_000_003, 1_500_007)
        async with grid.mover() as mover:
            whole, piece = await asyncio.gather(
                mover.transfer(grid.order("a/b c", "alpha", "beta"), seen.append),
                mover.transfer(grid.order("a/b c", "alpha", "beta", "t2", chunk=chunk)),
            )
            assert (grid.files("beta") / whole.path).read_bytes() == DATA
            assert (grid.files("beta") / piece.path).read_bytes() == DATA[chunk[0] : sum(chunk)]
            assert whole.copied_bytes == seen[-1] == len(DATA)
            assert "globus-url-copy" in ((grid.files("beta") / whole.path).parent / "script").read_text()
            for transfer in ("t1", "t2"):
                await mover.cancel(transfer)
        assert grid.left("beta") == []
        assert not list((grid.root / "alpha" / "served").iterdir())
        await until_async(lambda: grid.processes() == [])

    run(scenario())


def test_two_hundred_megabytes_go_from_server_to_server(remote: FileGrid) -> None:
    async def scenario() -> None:
        area = remote.files("alpha")
        remote.put("large", b"", "alpha")
        path = area / "replicas" / "=large"
        path.chmod(0o644)
        with path.open("wb") as file:
            block = random.Random(9).randbytes(1_000_000)
            for number in range(LARGE_BYTES // len(block)):
                file.write(number.to_bytes(8, "big") + block[8:])
        async with remote.mover() as mover:
            result = await mover.transfer(remote.order("large", "alpha", "beta"))
            assert result.size_bytes == result.copied_bytes == LARGE_BYTES
            assert result.checksum == remote.order("large", "alpha", "beta").checksum

    run(scenario())


def interrupted(root: Path, then: str) -> str:
    """A PATH at whose front the client begins a copy of the first half only, and is then cut."""
    directory = root / "cutting"
    directory.mkdir()
    client = directory / "globus-url-copy"
    real = shutil.which("globus-url-copy", path=SYSTEM_PATH)
    client.write_text(
        f'#!/bin/sh\nif ! mkdir {directory}/cut 2>/dev/null; then exec {real} "$@"; fi\n'
        f'while [ $# -gt 2 ]; do shift; done\n{real} -off 0 -len 1500000 "$1" "$2"\n{then}\n'
    )
    client.chmod(0o755)
    return f"{directory}:{SYSTEM_PATH}"


def test_a_client_that_is_killed_goes_on_where_it_was(root: Path, servers: dict[str, GridFtpServer]) -> None:
    async def scenario() -> None:
        grid = FileGrid(root)
        grid.remote("alpha", through=("env",), file_server=servers["alpha"].url)
        path = interrupted(root, "kill -9 $$")
        grid.remote("beta", path, through=("env",), file_server=servers["beta"].url)
        grid.put("data", DATA, "alpha")
        seen: list[int] = []
        async with grid.mover() as mover:
            result = await mover.transfer(grid.order("data", "alpha", "beta"), seen.append)
            assert (grid.files("beta") / result.path).read_bytes() == DATA
            assert seen.count(0) == 1, "it was not begun anew"
            assert "-off 1500000" in ((grid.files("beta") / result.path).parent / "script").read_text()

    run(scenario())


def test_a_server_that_is_stopped_for_a_while_is_waited_for(
    remote: FileGrid, servers: dict[str, GridFtpServer]
) -> None:
    async def scenario() -> None:
        remote.put("data", DATA, "alpha")
        servers["alpha"].stop()
        pauses: list[float] = []

        async def pause(pause_s: float) -> None:
            pauses.append(pause_s)
            await asyncio.sleep(min(pause_s, 0.1))

        async with remote.mover(pause=pause) as mover:
            running = asyncio.create_task(mover.transfer(remote.order("data", "alpha", "beta")))
            await until_async(lambda: any(each >= 0.5 for each in pauses))
            servers["alpha"].start()
            result = await running
            assert (remote.files("beta") / result.path).read_bytes() == DATA

    run(scenario())


def test_a_transfer_that_is_cancelled_leaves_nothing_at_either_server(
    root: Path, servers: dict[str, GridFtpServer]
) -> None:
    async def scenario() -> None:
        grid = FileGrid(root)
        grid.remote("alpha", through=("env",), file_server=servers["alpha"].url)
        path = interrupted(root, "sleep 1000")
        grid.remote("beta", path, through=("env",), file_server=servers["beta"].url)
        grid.put("data", DATA, "alpha")
        seen: list[int] = []
        async with grid.mover() as mover:
            running = asyncio.create_task(mover.transfer(grid.order("data", "alpha", "beta"), seen.append))
            await until_async(lambda: seen and seen[-1] == 1_500_000)
            await mover.cancel("t1")
            with pytest.raises(TransferCancelledError):
                await running
            assert grid.left("beta") == []
            assert not list((root / "alpha" / "served").iterdir())
        await until_async(lambda: grid.processes() == [])

    run(scenario())


def test_a_damaged_replica_is_never_used(grid: FileGrid) -> None:
    async def scenario() -> None:
        path = grid.put("data", DATA, "alpha")
        order = grid.order("data", "alpha", "beta")
        path.chmod(0o644)
        path.write_bytes(DATA[:-1] + b"?")
        async with grid.mover() as mover:
            with pytest.raises(ChecksumError, match=r"at alpha: its SHA-256 is .* forget this replica"):
                await mover.transfer(order)
        assert grid.left("beta") == []

    run(scenario())


def test_bytes_that_turn_at_the_target_are_never_used(remote: FileGrid) -> None:
    async def scenario() -> None:
        remote.put("data", DATA, "alpha")
        spoilt: list[Path] = []

        def spoil(done: int) -> None:
            for arrived in (remote.root / "beta" / "served").glob("*.to"):
                if done == len(DATA):
                    with arrived.open("r+b") as file:
                        file.write(bytes([DATA[0] ^ 1]))
                    spoilt.append(arrived)

        async with remote.mover() as mover:
            with pytest.raises(ChecksumError, match="at beta: the bytes written differ from the bytes read"):
                await mover.transfer(remote.order("data", "alpha", "beta"), spoil)
        assert spoilt != []
        assert remote.left("beta") == []

    run(scenario())


def test_a_site_without_room_is_told_from_one_that_cannot_be_reached(
    remote: FileGrid, root: Path, servers: dict[str, GridFtpServer]
) -> None:
    async def scenario() -> None:
        full = root / "full"
        full.mkdir()
        client = full / "globus-url-copy"
        client.write_text(
            "#!/bin/sh\necho '500-globus_xio: System error in write: No space left on device' >&2\nexit 1\n"
        )
        client.chmod(0o755)
        remote.remote("beta", f"{full}:{SYSTEM_PATH}", through=("env",), file_server=servers["beta"].url)
        remote.put("data", DATA, "alpha")
        async with remote.mover() as mover:
            with pytest.raises(NoSpaceError, match="'data' at beta: no room for its 3000017 bytes"):
                await mover.transfer(remote.order("data", "alpha", "beta"))

    run(scenario())


def without(root: Path, program: str) -> str:
    """A PATH that has all programs of this machine but one."""
    directory = root / "lacking"
    directory.mkdir()
    for folder in SYSTEM_PATH.split(":"):
        for each in Path(folder).glob("*"):
            with contextlib.suppress(FileExistsError):
                if each.name != program:
                    (directory / each.name).symlink_to(each)
    return str(directory)


def test_the_daemons_machine_runs_the_client_for_a_site_that_has_none(
    root: Path, servers: dict[str, GridFtpServer]
) -> None:
    async def scenario() -> None:
        grid = FileGrid(root)
        grid.remote("alpha", through=("env",), file_server=servers["alpha"].url)
        path = without(root, "globus-url-copy")
        grid.remote("beta", path, through=("env",), file_server=servers["beta"].url)
        grid.put("data", DATA, "alpha")
        async with grid.mover() as mover:
            result = await mover.transfer(grid.order("data", "alpha", "beta", chunk=(17, 1_000_000)))
            assert (grid.files("beta") / result.path).read_bytes() == DATA[17:1_000_017]
            assert not ((grid.files("beta") / result.path).parent / "script").exists()
            await mover.cancel("t1")
        assert grid.left("beta") == []
        assert list((root / "relays").iterdir()) == []

    run(scenario())
