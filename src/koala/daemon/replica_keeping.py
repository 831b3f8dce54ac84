"""Which replicas in the sites' file areas may go: those that the catalogue has not and that no running job reads.

Before a replica comes into an area or leaves the catalogue, a mark beside it says that it is in doubt. Whatever
happens then, a kill included, the mark is still there, and whoever finds it asks the catalogue. So no file that the
catalogue knows is ever removed, and none that it does not know stays for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from koala.core.lifecycle import State
from koala.daemon.engine import Engine
from koala.daemon.reading import reading
from koala.files import Area
from koala.files.area import encode, flush_directory
from koala.model import FileName, SiteName

_DOUBTS = "doubts"
# No file that a user may register has such a name, since NUL is in none.
_INCOMING = "\0incoming."
# While jobs still read a replica that must go: how long one of them is waited for, and the least pause after it.
READERS_WAIT_S = 60.0
READERS_PAUSE_S = 0.5


class ReplicaKeeper:
    """Keeps the file areas as the catalogue says, and what jobs read of them until they have ended.

    The calls for one name are not made at the same time, except ``open``, which comes before all others: callers
    hold ``alone`` meanwhile.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: dict[FileName, tuple[asyncio.Lock, int]] = {}
        self._read_by: dict[tuple[SiteName, FileName], frozenset[int]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Settle every doubt that a daemon before this one has left. One that cannot be settled now stays one."""
        for site, area in self._engine.areas.items():
            with contextlib.suppress(OSError):
                for name in await asyncio.to_thread(_left_behind, area):
                    async with self.alone(name):
                        await self.settle(site, name)

    async def close(self) -> None:
        """Wait for no reader any more; the doubts stay for the next ``open``."""
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def alone(self, name: FileName) -> AsyncIterator[None]:
        """Nobody else changes this file meanwhile."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)

    # ------------------------------------------------------------------------------------------ doubts

    async def doubt(self, site: SiteName, name: FileName) -> None:
        """From now on the replica may be one that the catalogue does not have. Raises ``OSError``."""
        await asyncio.to_thread(_put_mark, self._engine.areas[site], name)

    async def settle(self, site: SiteName, name: FileName) -> None:
        """Ask the catalogue: its replica stays, another is removed, at once or when those who read it have ended."""
        area = self._engine.areas[site]
        entry = await reading(self._engine.store.file, name)
        replica = None if entry is None else entry.replica_at(site)
        if replica is not None and replica.url is None:
            self._read_by.pop((site, name), None)
            await asyncio.to_thread(_take_mark, area, name)
            return
        if area.size_bytes(name) is not None and (readers := self._readers(name)):
            self._remove_later(site, name, readers)
            return
        self._read_by.pop((site, name), None)
        await asyncio.to_thread(_remove, area, name)

    def former_readers(self, site: SiteName, name: FileName) -> list[int]:
        """The jobs that still read a replica of this name which the catalogue has forgotten."""
        readers = self._read_by.get((site, name), frozenset())
        return sorted(job for job in readers if self._engine.live_row(job) is not None)

    def _readers(self, name: FileName) -> frozenset[int]:
        """The jobs that may read the file where it is now: those that were placed with it and have not ended."""
        return frozenset(
            row.id
            for row in self._engine.live_rows()
            if row.state != State.WAITING
            and any(file.name == name for component in row.request.components for file in component.input_files)
        )

    def _remove_later(self, site: SiteName, name: FileName, readers: frozenset[int]) -> None:
        if (site, name) in self._read_by:
            return  # those who read it were told apart when it was forgotten; jobs placed since read another replica
        self._read_by[site, name] = readers
        task = asyncio.create_task(self._remove_when_unread(site, name), name=f"remove {name} at {site}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _remove_when_unread(self, site: SiteName, name: FileName) -> None:
        while readers := self.former_readers(site, name):
            await self._engine.wait_ended(readers[0], READERS_WAIT_S)
            await asyncio.sleep(READERS_PAUSE_S)
        async with self.alone(name):
            if self._read_by.pop((site, name), None) is None:
                return  # it is in the catalogue again
            area = self._engine.areas[site]
            await asyncio.to_thread(_remove, area, name)


def incoming_name() -> FileName:
    """A name under which a file may come into an area before it is known whether it may stay."""
    return f"{_INCOMING}{uuid.uuid4().hex}"


def take_name(area: Area, incoming: FileName, name: FileName) -> None:
    """Let what came in have its name, at once and whole."""
    final = area.replica(name)
    area.replica(incoming).replace(final)
    flush_directory(final.parent)


def _mark(area: Area, name: FileName) -> Path:
    return area.root / _DOUBTS / encode(name)


def _put_mark(area: Area, name: FileName) -> None:
    mark = _mark(area, name)
    mark.parent.mkdir(parents=True, exist_ok=True)
    fresh = mark.with_name(f".{mark.name}")
    # The name itself, as a long one is cut in the name of the mark.
    fresh.write_bytes(name.encode("utf-8", "surrogatepass"))
    fresh.replace(mark)
    flush_directory(mark.parent)


def _take_mark(area: Area, name: FileName) -> None:
    _mark(area, name).unlink(missing_ok=True)


def _remove(area: Area, name: FileName) -> None:
    area.forget(name)
    # The mark goes last, so that a kill in between leaves it to be settled again.
    flush_directory(area.replica(name).parent)
    _take_mark(area, name)


def _left_behind(area: Area) -> list[FileName]:
    """Remove what never got its name; the names of all replicas in doubt."""
    for came in area.replica("").parent.glob(f"{encode(_INCOMING)}*"):
        came.unlink()
    doubts = area.root / _DOUBTS
    if not doubts.is_dir():
        return []
    marks = [mark for mark in sorted(doubts.iterdir()) if not mark.name.startswith(".")]
    return [mark.read_bytes().decode("utf-8", "surrogatepass") for mark in marks]
