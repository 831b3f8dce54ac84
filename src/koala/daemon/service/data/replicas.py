"""Decides which replicas in the sites' file areas may go: those that are not in the catalogue and that no job reads.

Before a replica comes into an area or leaves the catalogue, a mark beside it records that it is in doubt. Whatever
happens then, even a kill, the mark remains, and the daemon that finds it asks the catalogue. So no file of the
catalogue is ever removed, and no other file stays for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

from koala.core.life.states import JobState
from koala.daemon.engine.loop import Engine
from koala.daemon.offload import query
from koala.files.area.layout import INCOMING, replica_path
from koala.model.errors import UnavailableError
from koala.model.outputs import job_of_output
from koala.model.request import FileName, SiteName

# While jobs still read a replica that must go: the longest wait for one of them, and the least pause after it.
READERS_WAIT_S = 60.0
READERS_PAUSE_S = 0.5
# Jobs in these states have no places, and read nothing.
_WITHOUT_PLACES = (JobState.WAITING, JobState.HELD, JobState.UNFOLDING)


class ReplicaCleanup:
    """Keeps the file areas in line with the catalogue, and files that jobs read until the jobs have ended.

    The calls for one name are not made at the same time, except ``open``, which comes before all others: callers hold
    ``alone`` meanwhile.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: dict[FileName, tuple[asyncio.Lock, int]] = {}
        self._read_by: dict[tuple[SiteName, FileName], frozenset[int]] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._made: set[tuple[SiteName, FileName]] = set()  # outputs of live jobs, in doubt until these are over

    async def open(self) -> None:
        """Settle every doubt that an earlier daemon has left. A doubt that cannot be settled now remains."""
        for site, area in self._engine.areas.items():
            with contextlib.suppress(OSError):
                for name in await area.doubts():
                    async with self.alone(name):
                        await self.settle(site, name)

    async def close(self) -> None:
        """Stop waiting for readers; the doubts remain for the next ``open``."""
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def alone(self, name: FileName) -> AsyncIterator[None]:
        """Keep all others from changing this file while the block lasts."""
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

    async def doubt(self, site: SiteName, *names: FileName) -> None:
        """Mark replicas that may not be in the catalogue. Raises ``OSError``."""
        await self._engine.areas[site].doubt(*names)

    async def settle(self, site: SiteName, *names: FileName) -> None:
        """Settle doubts by the catalogue: its replicas stay, others are removed, at once or when their readers have
        ended. An output of a live job may still enter the catalogue."""
        area, stay, go = self._engine.areas[site], list[FileName](), list[FileName]()
        for name in names:
            job = job_of_output(name)
            if job is not None and self._engine.live_row(job) is not None:
                self.settle_when_over(site, name)
                continue
            entry = await query(self._engine.store.file, name)
            replica = None if entry is None else entry.replica_at(site)
            if replica is not None and replica.url is None:
                stay.append(name)
            elif (readers := self._readers(name)) and await area.size_bytes(replica_path(name)) is not None:
                self._remove_later(site, name, readers)
            else:
                go.append(name)
        for chosen, keep in ((stay, True), (go, False)):
            for name in chosen:
                self._read_by.pop((site, name), None)
            if chosen:
                await area.settle(*chosen, keep=keep)

    def settle_when_over(self, site: SiteName, name: FileName) -> None:
        """Settle the output of a live job when the job is over: only then is it known whether it stays."""
        if (site, name) in self._made:
            return
        self._made.add((site, name))
        task = asyncio.create_task(self._settle_when_over(site, name), name=f"settle {name} at {site}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _settle_when_over(self, site: SiteName, name: FileName) -> None:
        job = job_of_output(name)
        assert job is not None, "only outputs of jobs are waited for"
        while self._engine.live_row(job) is not None:
            await self._engine.wait_ended(job, READERS_WAIT_S)
        self._made.discard((site, name))
        async with self.alone(name):
            # A doubt that cannot be settled now remains for the next ``open``.
            with contextlib.suppress(OSError, UnavailableError):
                await self.settle(site, name)

    def former_readers(self, site: SiteName, name: FileName) -> list[int]:
        """Return the jobs that still read a replica of this name that the catalogue has forgotten."""
        readers = self._read_by.get((site, name), frozenset())
        return sorted(job for job in readers if self._engine.live_row(job) is not None)

    def _readers(self, name: FileName) -> frozenset[int]:
        """Return the jobs that may read the file where it is now: those that were placed with it and have not
        ended."""
        ledger = self._engine.scheduler.ledger
        readers = ledger.readers.get(name, ())
        return frozenset(job for job in readers if ledger.jobs[job].state not in _WITHOUT_PLACES)

    def _remove_later(self, site: SiteName, name: FileName, readers: frozenset[int]) -> None:
        if (site, name) in self._read_by:
            return  # the readers were determined when it was forgotten; jobs placed since read another replica
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
            # A replica that cannot be removed now stays in doubt, for the next ``open``.
            with contextlib.suppress(OSError):
                await self._engine.areas[site].settle(name, keep=False)


def incoming_name() -> FileName:
    """Return a name for a file that comes into an area before it is known whether it may stay."""
    return f"{INCOMING}{uuid.uuid4().hex}"
