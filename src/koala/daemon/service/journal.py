"""The journal as callers read it: from the store, in order, and on from there as it grows.

Followers share one tail in memory and are told in rounds with a pause in between, so that what they cost does not
grow with the number of commits. Only who is behind the tail asks the store, and no two of them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import aside, reading
from koala.daemon.service.answers import journal_entry
from koala.daemon.service.journal_tail import Told, names_strangers, veiled
from koala.model.api import JournalEntry
from koala.store.rows import Entry

# How many entries a follower holds at a time, and how long it waits before it looks again unasked.
FOLLOWED_AT_ONCE = 200
FOLLOW_WAIT_S = 30.0
# The pause after a round: when there is nothing more now, and when a follower that is behind catches up.
FOLLOW_PAUSE_S = 0.2
CATCH_UP_PAUSE_S = 0.05


async def read_journal(
    engine: Engine, *, after: int, limit: int, job: int | None, owner: str | None
) -> list[JournalEntry]:
    """Entries after a number, oldest first; with an owner, those of its jobs and those of no job."""
    entries = await reading(engine.store.journal, after=after, limit=limit, job=job, owner=owner)
    return await aside(_shown, entries, owner)


class JournalReader:
    """Lets callers follow the journal of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._catching_up = asyncio.Lock()

    async def follow(self, *, after: int, job: int | None, owner: str | None) -> AsyncGenerator[list[Told], None]:
        """Every entry after a number, in rounds, without an end. Nothing is left out, however slow the reader is, and
        what it has not asked for yet stays in the store."""
        position = after
        with self._engine.tail.followed():
            while True:
                found, position = await self._round(position, job, owner)
                if found:
                    yield found
                if position < self._engine.last_seq:
                    await asyncio.sleep(CATCH_UP_PAUSE_S)
                    continue
                # Before the wait, not after it: the first entry after a quiet time is told at once.
                await asyncio.sleep(FOLLOW_PAUSE_S)
                await self._engine.wait_journal(position, FOLLOW_WAIT_S)

    async def _round(self, position: int, job: int | None, owner: str | None) -> tuple[list[Told], int]:
        """The next entries for a reader, and the number up to which it has heard all that is for it."""
        # What is durable now is in the answer, or is not for this reader: it need not be looked at again.
        durable = self._engine.last_seq
        if position >= durable:
            return [], position
        known = self._engine.tail.after(position, durable, FOLLOWED_AT_ONCE, job=job, owner=owner)
        if known is not None:
            return known
        async with self._catching_up:
            entries = await read_journal(self._engine, after=position, limit=FOLLOWED_AT_ONCE, job=job, owner=owner)
        last = entries[-1].seq if entries else position
        return [Told(entry) for entry in entries], last if len(entries) == FOLLOWED_AT_ONCE else max(last, durable)


def _shown(entries: list[Entry], owner: str | None) -> list[JournalEntry]:
    return [
        journal_entry(entry) if owner is None or not names_strangers(entry) else veiled(entry) for entry in entries
    ]
