"""Many orders and cancellations at once: who is not cancelled has the right bytes, and in the end nothing is left."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from koala.files import FileMover, Order, TransferCancelledError, TransferResult
from tests.support.file_world import World, some_bytes

FILES = {"a": some_bytes(5_000, 1), "b/../b": some_bytes(3_000, 2)}
CHUNKS: list[tuple[int, int] | None] = [None, (0, 1_000), (1_000, 2_000)]
ORDERS = 60


def wanted(order: Order) -> bytes:
    return FILES[order.file][order.offset : order.offset + order.size_bytes]


async def order_and_cancel(world: World, mover: FileMover, rng: random.Random, transfer: str) -> bool:
    """Order something, perhaps cancel it, early or late; without that it is there, and stays. True if it does."""
    order = world.order(rng.choice(list(FILES)), transfer, chunk=rng.choice(CHUNKS), rate_bytes_s=2e6)
    await asyncio.sleep(rng.random() * 0.05)
    running = asyncio.create_task(mover.transfer(order))
    cancelled = rng.random() < 0.5
    if cancelled:
        await asyncio.sleep(rng.random() * 0.02)
        await mover.cancel(transfer)
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    if isinstance(outcome, TransferResult):
        assert outcome.transfer == transfer
        if not cancelled:
            assert world.bytes_at(outcome.path) == wanted(order)
    else:
        assert cancelled, outcome
        assert isinstance(outcome, TransferCancelledError)
    return not cancelled


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_orders_and_cancellations_in_any_order_leave_what_is_held_and_nothing_else(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        world = World(tmp_path)
        for file, data in FILES.items():
            world.put(file, data)
        async with world.mover() as mover:
            transfers = [f"t{number}" for number in range(ORDERS)]
            stay = await asyncio.gather(*(order_and_cancel(world, mover, rng, transfer) for transfer in transfers))
            held = {transfer for transfer, stays in zip(transfers, stay, strict=True) if stays}
            assert mover.transfers == held
        async with world.mover() as mover:
            assert mover.transfers == held
            await asyncio.gather(*(mover.cancel(transfer) for transfer in held))
            assert world.left_at() == []

    asyncio.run(asyncio.wait_for(scenario(), 300))


def test_an_order_cancelled_while_it_waits_for_another_copy_to_leave_never_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.put("a", FILES["a"])
        reached, opened = asyncio.Event(), asyncio.Event()

        async def pause(pause_s: float) -> None:
            reached.set()
            await opened.wait()

        async with world.mover(pause=pause) as mover:
            first = asyncio.create_task(mover.transfer(world.order("a", "t1", rate_bytes_s=1_000.0)))
            await reached.wait()
            leaving = asyncio.create_task(mover.cancel("t1"))
            await asyncio.sleep(0)
            second = asyncio.create_task(mover.transfer(world.order("a", "t2")))
            await asyncio.sleep(0)
            await mover.cancel("t2")
            opened.set()
            await leaving
            for running in (first, second):
                with pytest.raises(TransferCancelledError, match="order it again if needed"):
                    await running
            assert mover.transfers == frozenset()
            assert world.left_at() == []

    asyncio.run(asyncio.wait_for(scenario(), 300))
