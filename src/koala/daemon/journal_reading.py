"""The journal as callers read it: from the store, in order, and on from there as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from koala.daemon.answers import journal_entry
from koala.daemon.engine import Engine
from koala.daemon.reading import reading
from koala.store.rows import Entry
from koala.wire import JournalEntry

# How many entries a follower holds at a time, and how long it waits before it looks again unasked.
FOLLOWED_AT_ONCE = 200
FOLLOW_WAIT_S = 30.0
FOLLOW_PAUSE_S = 0.1


async def read_journal(
    engine: Engine, *, after: int, limit: int, job: int | None, owner: str | None
) -> list[JournalEntry]:
    """Entries after a number, oldest first; with an owner, those of its jobs and those of no job."""
    entries = await reading(engine.store.journal, after=after, limit=limit, job=job, owner=owner)
    return [
        journal_entry(entry) if owner is None or not _names_strangers(entry) else _veiled(entry) for entry in entries
    ]


async def follow_journal(
    engine: Engine, *, after: int, job: int | None, owner: str | None
) -> AsyncIterator[JournalEntry]:
    """Every entry after a number, without an end. Nothing is left out, however slow the reader is, and what it has
    not asked for yet stays in the store."""
    position = after
    while True:
        # What is durable now is in the answer, or is not for this reader: it need not be looked at again.
        durable = engine.last_seq
        entries = await read_journal(engine, after=position, limit=FOLLOWED_AT_ONCE, job=job, owner=owner)
        for entry in entries:
            position = entry.seq
            yield entry
        if len(entries) < FOLLOWED_AT_ONCE:
            position = max(position, durable)
            await engine.wait_journal(position, FOLLOW_WAIT_S)
            if engine.last_seq <= position:
                await asyncio.sleep(FOLLOW_PAUSE_S)  # an engine that is about to close lets nobody wait


def _names_strangers(entry: Entry) -> bool:
    """Whether an entry that is of no one job still names components, which may be anybody's."""
    named = getattr(entry.body, "token", None) or getattr(entry.body, "tokens", None)
    return entry.job is None and bool(named)


def _veiled(entry: Entry) -> JournalEntry:
    """The entry without whom it is about."""
    return JournalEntry(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        what=entry.what,
        site=entry.site,
        text="it is about components that may be of other users' jobs",
    )
