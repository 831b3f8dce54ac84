"""A relay in front of a daemon's socket that cuts every connection after a random number of bytes, either way.

So a request may arrive in half, arrive and never be answered, or be answered in half. A seed decides which.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

PIECE_BYTES = 4_096
START_S = 60.0


class CuttingRelay:
    """Carries bytes between clients and ``target`` until a connection's allowance in one direction is used up."""

    def __init__(self, target: Path, seed: int, *, upward_bytes: int, downward_bytes: int) -> None:
        self.asks_cut = 0
        self.answers_cut = 0
        self._target = target
        self._random = random.Random(seed)
        self._upward_bytes = upward_bytes
        self._downward_bytes = downward_bytes

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, from its first byte to its cut or its end."""
        upward = self._random.randrange(self._upward_bytes)
        downward = self._random.randrange(self._downward_bytes)
        try:
            onward_reader, onward_writer = await asyncio.open_unix_connection(self._target)
        except OSError:  # the daemon is away: the client sees its connection closed
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(_pump(reader, onward_writer, upward)),
            asyncio.create_task(_pump(onward_reader, writer, downward)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for side in (writer, onward_writer):
            side.transport.abort()
        asks_cut, answers_cut = await asyncio.gather(*pumps)
        self.asks_cut += asks_cut
        self.answers_cut += answers_cut


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowance_bytes: int) -> bool:
    """Carry bytes one way; return True if the allowance was used up before the stream ended."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece[:allowance_bytes])
            await writer.drain()
            allowance_bytes -= len(piece)
            if allowance_bytes < 0:
                return True
    return False


@contextlib.contextmanager
def cutting_relay(
    socket: Path, target: Path, *, seed: int, upward_bytes: int, downward_bytes: int
) -> Iterator[CuttingRelay]:
    """Run a relay that listens at ``socket`` during the block, in a thread of its own."""
    relay = CuttingRelay(target, seed, upward_bytes=upward_bytes, downward_bytes=downward_bytes)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    listens = threading.Event()

    async def serve() -> None:
        carrying: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = loop.create_task(relay.carry(reader, writer))
            carrying.add(task)
            task.add_done_callback(carrying.discard)

        server = await asyncio.start_unix_server(accept, socket)
        listens.set()
        await stop.wait()
        server.close()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()], name="relay")
    thread.start()
    try:
        assert listens.wait(START_S), "the relay did not come up"
        yield relay
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
