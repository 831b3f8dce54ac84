"""Transfers between sites whose files this machine sees: what arrives is what was asked for, or nothing is left and
the error says why."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.files import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    MissingReplicaError,
    TransferCancelledError,
    TransferInterruptedError,
    TransferResult,
    UnwritableError,
)
from koala.files.area.directory import Copy
from koala.files.area.layout import copy_name
from koala.files.checksums import of_path
from koala.files.transfer.local_piece import PIECE_BYTES
from tests.support.file_world import World, some_bytes

DATA = some_bytes(3 * PIECE_BYTES + 17)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


class Gate:
    """A pause that lasts until the test opens it; ``reached`` says that a copy has come to it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, pause_s: float) -> None:
        self.reached.set()
        await self.opened.wait()


def test_a_whole_file_arrives_under_a_path_that_a_component_can_be_given(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        source = world.put("../data", DATA)
        seen: list[int] = []
        now = iter(range(100))
        async with world.mover(clock=lambda: float(next(now))) as mover:
            result = await mover.transfer(world.order("../data"), seen.append)
        assert world.bytes_at(result.path) == DATA
        assert result.checksum == of_path(source)
        assert result.copied_bytes == result.size_bytes == len(DATA)
        assert result.bytes_per_s == len(DATA) / 4  # four pieces, each a second by this clock
        assert seen == [0, PIECE_BYTES, 2 * PIECE_BYTES, 3 * PIECE_BYTES, len(DATA)]

    run(scenario())


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200), st.data())
def test_chunks_put_together_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, draw: st.DataObject
) -> None:
    async def scenario() -> None:
        world = World(tmp_path_factory.mktemp("chunks"))
        world.put("data", data)
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=3)))
        edges = [0, *cuts, len(data)]
        async with world.mover() as mover:
            chunks = [(start, end - start) for start, end in pairwise(edges)]
            orders = [world.order("data", f"t{number}", chunk=chunk) for number, chunk in enumerate(chunks)]
            result = await asyncio.gather(*(mover.transfer(order) for order in orders))
        assert b"".join(world.bytes_at(each.path) for each in result) == data

    run(scenario())


def test_orders_for_the_same_piece_share_one_copy_until_the_last_is_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        told: list[list[int]] = [[] for _ in range(5)]
        async with world.mover() as mover:
            orders = [world.order("data", f"t{number}") for number in range(5)]
            answers = await asyncio.gather(
                *(mover.transfer(order, heard.append) for order, heard in zip(orders, told, strict=True))
            )
            assert len({answer.path for answer in answers}) == 1
            assert [answer.transfer for answer in answers] == [order.transfer for order in orders]
            assert all(heard == told[0] for heard in told)
            assert len(list((world.areas["leiden"].root / "copies").iterdir())) == 1
            late = await mover.transfer(world.order("data", "late"))
            assert (late.path, late.copied_bytes, late.bytes_per_s) == (answers[0].path, 0, None)
            for order in orders:
                await mover.cancel(order.transfer)
            assert world.bytes_at(late.path) == DATA
            await mover.cancel("late")
            assert world.left_at() == []
            await mover.cancel("late")
            await mover.cancel("never heard of")
            assert mover.transfers == frozenset()

    run(scenario())


def test_a_transfer_cancelled_on_its_way_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        gate = Gate()
        async with world.mover(pause=gate) as mover:
            order = world.order("data", rate_bytes_s=1e9)
            running = asyncio.create_task(mover.transfer(order))
            await gate.reached.wait()
            cancelling = asyncio.create_task(mover.cancel("t1"))
            # Ordered again while the old copy is still leaving: it begins anew, after it.
            again = asyncio.create_task(mover.transfer(world.order("data", "t2", rate_bytes_s=1e9)))
            await asyncio.sleep(0)
            gate.opened.set()
            await cancelling
            with pytest.raises(TransferCancelledError, match="'data' at leiden: the transfer was cancelled"):
                await running
            result = await again
            assert result.copied_bytes == len(DATA)
            assert world.bytes_at(result.path) == DATA
            await mover.cancel("t2")
        assert world.left_at() == []

    run(scenario())


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
def test_cancelling_at_any_moment_leaves_nothing(tmp_path: Path, steps: int) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            running = asyncio.create_task(mover.transfer(world.order("data")))
            await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0.001)
            await mover.cancel("t1")
            (outcome,) = await asyncio.gather(running, return_exceptions=True)
            assert isinstance(outcome, TransferCancelledError | TransferResult)
            assert world.left_at() == []

    run(scenario())


def test_one_of_two_cancelled_lets_the_other_have_the_copy(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        gate = Gate()
        async with world.mover(pause=gate) as mover:
            first = asyncio.create_task(mover.transfer(world.order("data", "t1", rate_bytes_s=1e9)))
            await gate.reached.wait()
            second = asyncio.create_task(mover.transfer(world.order("data", "t2")))
            await asyncio.sleep(0)
            await mover.cancel("t1")
            with pytest.raises(TransferCancelledError):
                await first
            gate.opened.set()
            assert world.bytes_at((await second).path) == DATA

    run(scenario())


def test_a_closed_mover_keeps_what_has_arrived_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        gate = Gate()
        async with world.mover(pause=gate) as mover:
            running = asyncio.create_task(mover.transfer(world.order("data", rate_bytes_s=1e9)))
            await gate.reached.wait()
            gate.opened.set()
            await mover.close()
            with pytest.raises(TransferInterruptedError, match="order it again"):
                await running
        async with world.mover() as mover:
            assert mover.transfers == {"t1"}
            result = await mover.transfer(world.order("data"))
            assert 0 < result.copied_bytes < len(DATA)
            assert world.bytes_at(result.path) == DATA
        async with world.mover() as mover:
            await mover.cancel("t1")  # known again from disk
        assert world.left_at() == []

    run(scenario())


def test_a_rate_makes_small_pieces_and_pauses_that_add_up_to_the_time_it_takes(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA[:10_000])
        pauses: list[float] = []
        seen: list[int] = []

        async def pause(pause_s: float) -> None:
            pauses.append(pause_s)

        async with world.mover(pause=pause) as mover:
            await mover.transfer(world.order("data", rate_bytes_s=20_000.0), seen.append)
        assert sum(pauses) == pytest.approx(0.5)
        assert [b - a for a, b in pairwise(seen)] == [2_000] * 5

    run(scenario())


def test_copies_that_flow_at_once_share_their_link_in_both_directions_and_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        seen: dict[str, list[int]] = {"first": [], "second": [], "back": [], "elsewhere": [], "inside": []}
        sources = {"back": "leiden", "elsewhere": "utrecht", "inside": "leiden"}
        for file in seen:
            world.put(file, DATA[:8_000], sources.get(file, "delft"))
        pauses: list[float] = []
        gate = Gate()

        async def pause(pause_s: float) -> None:
            pauses.append(pause_s)
            await gate(pause_s)

        async with world.mover(pause=pause) as mover:
            running = []
            for number, file in enumerate(seen, start=1):
                rate = None if file == "inside" else 20_000.0
                order = world.order(file, file, sources.get(file, "delft"), rate_bytes_s=rate)
                if file == "back":
                    order = msgspec.structs.replace(order, target="delft")
                running.append(asyncio.create_task(mover.transfer(order, seen[file].append)))
                if rate is None:
                    await running[-1]
                while rate is not None and len(pauses) < number:
                    await asyncio.sleep(0.001)  # until it has moved a piece, and flows
            gate.opened.set()
            await asyncio.gather(*running)
        first_pieces = {file: told[1] for file, told in seen.items()}
        assert first_pieces == {"first": 2_000, "second": 1_000, "back": 666, "elsewhere": 2_000, "inside": 8_000}
        assert pauses[:4] == pytest.approx([0.1] * 4, rel=0.01)
        # Only the last one to flow has the link for itself again.
        assert max(b - a for a, b in pairwise(seen["first"])) == 2_000

    run(scenario())


# ------------------------------------------------------------------------------------------- what goes wrong


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Let the next call of a method fail as a disk may."""
    method = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize("on_its_way", [False, True], ids=["when it is there", "on its way"])
def test_a_cancel_that_fails_is_repeated_and_then_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_its_way: bool
) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        gate = Gate()
        async with world.mover(pause=gate) as mover:
            running = asyncio.create_task(mover.transfer(world.order("data", rate_bytes_s=1e9)))
            await gate.reached.wait()
            if not on_its_way:
                gate.opened.set()
                await running
            fail_once(monkeypatch, world.areas["leiden"], "discard")
            cancelling = asyncio.create_task(mover.cancel("t1"))
            await asyncio.sleep(0)
            gate.opened.set()
            with pytest.raises(PermissionError):
                await cancelling
            assert mover.transfers == {"t1"}
            await mover.cancel("t1")
            assert mover.transfers == frozenset()
            assert world.left_at() == []
            await asyncio.gather(running, return_exceptions=True)

    run(scenario())


def test_a_shared_copy_that_cannot_be_let_go_is_let_go_at_the_next_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            for transfer in ("t1", "t2"):
                await mover.transfer(world.order("data", transfer))
            fail_once(monkeypatch, Copy, "let_go")
            with pytest.raises(PermissionError):
                await mover.cancel("t1")
            assert mover.transfers == {"t1", "t2"}
            await mover.cancel("t1")
        async with world.mover() as mover:
            assert mover.transfers == {"t2"}, "the disk says so too"
            await mover.cancel("t2")
        assert world.left_at() == []

    run(scenario())


def test_a_broken_copy_that_cannot_be_removed_is_removed_by_a_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        order = world.order("data")
        world.areas["delft"].forget("data")
        async with world.mover() as mover:
            fail_once(monkeypatch, world.areas["leiden"], "discard")
            with pytest.raises(MissingReplicaError):
                await mover.transfer(order)
            assert world.left_at() != []
            await mover.cancel("t1")
            assert world.left_at() == []

    run(scenario())


def refused(tmp_path: Path, spoil: Callable[[World], None], error: type[FilesError], words: str, **more: Any) -> None:
    """Order a file that is spoilt after it was registered: the order fails so, and leaves nothing."""

    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        order = world.order("data", **more)
        spoil(world)
        async with world.mover() as mover:
            with pytest.raises(error, match=words):
                await mover.transfer(order)
            assert mover.transfers == frozenset()
        assert world.left_at() == []

    run(scenario())


def untouched(world: World) -> None:
    """For what is wrong from the beginning."""


def rewritten(data: bytes) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.put("data", data)

    return spoil


def test_a_missing_replica_is_named(tmp_path: Path) -> None:
    refused(
        tmp_path, lambda world: world.areas["delft"].forget("data"), MissingReplicaError, "'data' at delft: it is not"
    )


def test_a_replica_that_is_no_file_is_named(tmp_path: Path) -> None:
    def spoil(world: World) -> None:
        world.areas["delft"].forget("data")
        os.mkfifo(world.areas["delft"].replica("data"))

    refused(tmp_path, spoil, MissingReplicaError, "at delft: it cannot be read: is not a regular file")


def test_a_replica_of_another_size_is_named(tmp_path: Path) -> None:
    refused(tmp_path, rewritten(DATA[:-1]), ChangedFileError, f"{len(DATA) - 1} bytes and should have {len(DATA)}")


def test_a_chunk_beyond_the_end_is_named(tmp_path: Path) -> None:
    more = {"chunk": (len(DATA) - 5, 6)}
    refused(tmp_path, untouched, ChangedFileError, f"at least {len(DATA) + 1}", **more)


def test_a_damaged_replica_is_told_from_a_damaged_copy(tmp_path: Path) -> None:
    refused(tmp_path, rewritten(DATA[:-1] + b"?"), ChecksumError, "at delft: .* forget this replica, it is damaged")


def test_a_site_that_the_mover_does_not_see_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        order = world.order("data")
        del world.areas["leiden"]
        async with world.mover() as mover:
            with pytest.raises(FilesError, match=r"at leiden: the mover knows no .* it knows: delft, utrecht"):
                await mover.transfer(order)

    run(scenario())


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            copies = world.areas["leiden"].root / "copies"
            copies.rmdir()
            copies.write_text("in the way")
            with pytest.raises(UnwritableError, match="'data' at leiden: it cannot be written: Not a directory"):
                await mover.transfer(world.order("data"))

    run(scenario())


def test_one_transfer_brings_one_thing(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            await mover.transfer(world.order("data"))
            with pytest.raises(FilesError, match="transfer t1 is for something else"):
                await mover.transfer(world.order("data", chunk=(0, 5)))

    run(scenario())


def meddling(tmp_path: Path, meddle: Callable[[World], None], chunk: tuple[int, int] | None = None) -> None:
    """Bring a file, and meddle after the first piece."""

    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        meddled = False

        async def pause(pause_s: float) -> None:
            nonlocal meddled
            if not meddled:
                meddle(world)
            meddled = True

        async with world.mover(pause=pause) as mover:
            try:
                await mover.transfer(world.order("data", chunk=chunk, rate_bytes_s=1e9))
            finally:
                assert meddled
                assert world.left_at() == []

    run(scenario())


@pytest.mark.parametrize("data", [DATA[:100], DATA[:-1] + b"?"], ids=["shorter", "of the same size"])
def test_a_source_that_changes_meanwhile_is_noticed(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ChangedFileError, match=r"at delft: it (ends at|changed while)"):
        meddling(tmp_path, rewritten(data))


def flip_first_byte(world: World) -> None:
    (part,) = (world.areas["leiden"].root / "copies").glob("*/part")
    with part.open("r+b") as file:
        file.write(bytes([DATA[0] ^ 1]))


@pytest.mark.parametrize("chunk", [None, (0, PIECE_BYTES + 5)], ids=["whole", "chunk"])
def test_a_byte_that_turns_at_the_target_is_noticed(tmp_path: Path, chunk: tuple[int, int] | None) -> None:
    with pytest.raises(ChecksumError, match="at leiden: the bytes written differ from the bytes read"):
        meddling(tmp_path, flip_first_byte, chunk)


@pytest.mark.parametrize("damaged", [DATA[:-1] + b"?", DATA + b"?", b""], ids=["turned", "longer", "empty"])
def test_a_finished_copy_that_was_damaged_is_copied_anew_for_the_next_order(tmp_path: Path, damaged: bytes) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        async with world.mover() as mover:
            first = await mover.transfer(world.order("data"))
            path = world.areas["leiden"].root / first.path
            path.chmod(0o644)
            path.write_bytes(damaged)
            second = await mover.transfer(world.order("data", "t2"))
            assert second.copied_bytes == len(DATA)
            assert world.bytes_at(first.path) == DATA

    run(scenario())


def test_a_whole_copy_can_become_a_replica_and_outlives_its_transfer(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        leiden = world.areas["leiden"]
        async with world.mover() as mover:
            order = world.order("data")
            await mover.transfer(order)
            leiden.promote("data", leiden.copy_named(copy_name(order.file, order.chunk, order.checksum)))
            await mover.cancel("t1")
        assert leiden.replica("data").read_bytes() == DATA
        assert world.left_at() == []

    run(scenario())


# -------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "/etc/passwd", "local:///x", "simplecache::file:///etc/passwd"]
)
def test_an_address_never_reads_this_machine(tmp_path: Path, url: str) -> None:
    refused(tmp_path, untouched, FilesError, "is not read as a URL", url=url)


def test_without_fsspec_an_address_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    refused(tmp_path, untouched, FilesError, r"install koala-scheduler\[fsspec\]", url="memory://x")


def test_what_a_scheme_needs_beside_fsspec_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    refused(
        tmp_path, untouched, FilesError, r"needs a library that fsspec uses for sftp: .*paramiko", url="sftp://host/x"
    )


def test_an_address_is_read_through_fsspec(tmp_path: Path) -> None:
    fsspec: Any = importlib.import_module("fsspec")

    async def scenario() -> None:
        world = World(tmp_path)
        world.put("data", DATA)
        with fsspec.open("memory://koala/data", "wb") as file:
            file.write(DATA)
        async with world.mover() as mover:
            whole = await mover.transfer(world.order("data", url="memory://koala/data"))
            piece = await mover.transfer(world.order("data", "t2", url="memory://koala/data", chunk=(7, 100)))
            with pytest.raises(MissingReplicaError):
                await mover.transfer(world.order("data", "t3", url="memory://koala/none", chunk=(7, 101)))
            with pytest.raises(FilesError, match="is not read as a URL"):
                await mover.transfer(world.order("data", "t4", url="nosuch://koala/none", chunk=(7, 102)))
        assert world.bytes_at(whole.path) == DATA
        assert world.bytes_at(piece.path) == DATA[7:107]

    run(scenario())
