"""The journal as callers read it: from the store, in order, and on from there as it grows.

Followers share one tail of the newest entries in memory, each read and rendered once for all of them. They are served
in rounds with a pause in between, so that their cost does not grow with the number of commits. Only a follower that
is behind the tail asks the store, and no two of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import cached_property
from itertools import islice

import msgspec

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import offload, query
from koala.daemon.service.answers import journal_entry
from koala.model.api import JournalEntry
from koala.model.request import JobId
from koala.store.rows import Batch, JournalRow, StoredJob

# At most this many entries are held for a follower, and the longest wait before it looks again.
FOLLOWED_AT_ONCE = 200
FOLLOW_WAIT_S = 30.0
# The pause after a round: when nothing more is there now, and when a follower that is behind catches up.
FOLLOW_PAUSE_S = 0.2
CATCH_UP_PAUSE_S = 0.05
# At most this many entries are kept in memory.
TAIL_ENTRIES_MAX = 2_000


async def read_journal(
    engine: Engine, *, after: int, limit: int, job: int | None, owner: str | None
) -> list[JournalEntry]:
    """Return entries after a number, oldest first; with an owner, entries of its jobs and of no job."""
    entries = await query(engine.store.journal, after=after, limit=limit, job=job, owner=owner)
    return await offload(_for_caller, entries, owner)


class RenderedEntry:
    """An entry as a caller reads it, and the same as JSON, which is written once for all readers."""

    def __init__(self, entry: JournalEntry) -> None:
        self.entry = entry

    @cached_property
    def json(self) -> str:
        """The entry on one line."""
        return msgspec.json.encode(self.entry).decode()


class TailEntry:
    """An entry of the tail. ``owner`` is its job's owner, None for an entry of no job."""

    def __init__(self, entry: JournalRow, owner: str | None) -> None:
        self.entry = entry
        self.owner = owner

    @cached_property
    def for_operator(self) -> RenderedEntry:
        """The entry for an operator."""
        return RenderedEntry(journal_entry(self.entry))

    @cached_property
    def for_others(self) -> RenderedEntry:
        """The entry for callers who do not see everybody's jobs."""
        return RenderedEntry(_veiled(self.entry)) if _names_strangers(self.entry) else self.for_operator

    def concerns(self, job: JobId | None, owner: str | None) -> bool:
        """Return True if the entry is of this job (None: any) and this owner (None: one who sees all) may read it."""
        if job is not None and self.entry.job != job:
            return False
        return owner is None or self.owner == owner or (job is None and self.entry.job is None)


class JournalTail:
    """The newest entries on record without a gap, at most ``entries_max``, since somebody began to follow."""

    def __init__(self, entries_max: int = TAIL_ENTRIES_MAX) -> None:
        self._kept: deque[TailEntry] = deque(maxlen=entries_max)
        self._followers = 0
        self._ownerless_seq = 0  # the newest entry of a job whose owner is not known here

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Keep entries while the block lasts."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._kept.clear()

    def grow(self, batch: Batch, live: Mapping[JobId, StoredJob]) -> None:
        """Add a recorded batch; ``live`` are the rows of the jobs that have not ended."""
        if not (self._followers and batch.entries):
            return
        if self._kept and self._kept[-1].entry.seq + 1 != batch.entries[0].seq:
            self._kept.clear()  # others were put on record in between, before a recovery
        owners = {row.id: row.owner for row in batch.jobs}
        for entry in batch.entries:
            owner = None
            if entry.job is not None:
                row = live.get(entry.job)
                owner = owners.get(entry.job) if row is None else row.owner
                if owner is None:
                    self._ownerless_seq = entry.seq
            self._kept.append(TailEntry(entry, owner))

    def after(
        self, position: int, last_seq: int, limit: int, *, job: JobId | None, owner: str | None
    ) -> tuple[list[RenderedEntry], int] | None:
        """Return at most ``limit`` entries after a number and up to ``last_seq`` that concern a reader, and the
        number up to which there are no others. None if only the store has them."""
        if not self._kept or self._kept[-1].entry.seq != last_seq:
            return None
        begins_after = self._kept[0].entry.seq - 1
        if position < begins_after or (owner is not None and position < self._ownerless_seq):
            return None
        found: list[RenderedEntry] = []
        for kept in islice(self._kept, position - begins_after, None):
            if kept.concerns(job, owner):
                found.append(kept.for_operator if owner is None else kept.for_others)
                if len(found) == limit:
                    return found, kept.entry.seq
        return found, last_seq


class JournalReader:
    """Lets callers follow the journal of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tail = JournalTail()
        engine.subscribe(self._tail.grow)
        self._catching_up = asyncio.Lock()

    async def follow(
        self, *, after: int, job: int | None, owner: str | None
    ) -> AsyncGenerator[list[RenderedEntry], None]:
        """Yield every entry after a number, in rounds, without end. Nothing is left out, however slow the reader is,
        and entries that it has not asked for yet stay in the store."""
        position = after
        with self._tail.followed():
            while True:
                found, position = await self._round(position, job, owner)
                if found:
                    yield found
                if position < self._engine.last_seq:
                    await asyncio.sleep(CATCH_UP_PAUSE_S)
                    continue
                # Before the wait, not after it: the first entry after a quiet time is sent at once.
                await asyncio.sleep(FOLLOW_PAUSE_S)
                await self._engine.wait_journal(position, FOLLOW_WAIT_S)

    async def _round(self, position: int, job: int | None, owner: str | None) -> tuple[list[RenderedEntry], int]:
        """Return the next entries for a reader, and the number up to which it has all that concern it."""
        # A durable entry is in the answer, or does not concern this reader: it need not be looked at again.
        durable = self._engine.last_seq
        if position >= durable:
            return [], position
        known = self._tail.after(position, durable, FOLLOWED_AT_ONCE, job=job, owner=owner)
        if known is not None:
            return known
        async with self._catching_up:
            entries = await read_journal(self._engine, after=position, limit=FOLLOWED_AT_ONCE, job=job, owner=owner)
        last = entries[-1].seq if entries else position
        return [RenderedEntry(entry) for entry in entries], last if len(entries) == FOLLOWED_AT_ONCE else max(
            last, durable
        )


def _for_caller(entries: list[JournalRow], owner: str | None) -> list[JournalEntry]:
    return [
        journal_entry(entry) if owner is None or not _names_strangers(entry) else _veiled(entry) for entry in entries
    ]


def _names_strangers(entry: JournalRow) -> bool:
    """Return True if an entry of no particular job still names components, which may be anybody's."""
    named = getattr(entry.body, "token", None) or getattr(entry.body, "tokens", None)
    return entry.job is None and bool(named)


def _veiled(entry: JournalRow) -> JournalEntry:
    """Return the entry without its subject."""
    return JournalEntry.of(entry, text="it concerns components that may belong to other users' jobs")


async def one_by_one(rounds: AsyncIterator[list[RenderedEntry]]) -> AsyncIterator[JournalEntry]:
    """Yield the entries of rounds one by one."""
    async for found in rounds:
        for each in found:
            yield each.entry
