"""The newest entries of the journal in memory, read and written out once for all who follow it.

Only what is on record is here, and only while somebody follows. Who is further behind asks the store; see
``koala.daemon.service.journal``.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice

from koala.daemon.service.answers import journal_entry
from koala.model.api import JournalEntry
from koala.model.request import JobId
from koala.store.rows import Batch, Entry, JobRow

TAIL_ENTRIES_MAX = 2_000


class Told:
    """An entry as a caller is told of it, and the same as JSON, which is written once however many hear it."""

    def __init__(self, entry: JournalEntry) -> None:
        self.entry = entry

    @cached_property
    def json(self) -> str:
        """On one line."""
        return self.entry.model_dump_json()


class Kept:
    """An entry of the tail. ``owner`` is that of its job, None for an entry of no job."""

    def __init__(self, entry: Entry, owner: str | None) -> None:
        self.entry = entry
        self.owner = owner

    @cached_property
    def told(self) -> Told:
        """As an operator is told."""
        return Told(journal_entry(self.entry))

    @cached_property
    def told_to_others(self) -> Told:
        """As those are told who do not see everybody's jobs."""
        return Told(veiled(self.entry)) if names_strangers(self.entry) else self.told

    def concerns(self, job: JobId | None, owner: str | None) -> bool:
        """Whether it is of this job (None: of any) and this owner may read it (None: may read all)."""
        if job is not None and self.entry.job != job:
            return False
        return owner is None or self.owner == owner or (job is None and self.entry.job is None)


class JournalTail:
    """The newest ``TAIL_ENTRIES_MAX`` entries without a gap, from the moment on that somebody follows."""

    def __init__(self) -> None:
        self._kept: deque[Kept] = deque(maxlen=TAIL_ENTRIES_MAX)
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

    def grow(self, batch: Batch, live: Mapping[JobId, JobRow]) -> None:
        """A batch is on record; ``live`` are the rows of the jobs that have not ended."""
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
            self._kept.append(Kept(entry, owner))

    def after(
        self, position: int, last_seq: int, limit: int, *, job: JobId | None, owner: str | None
    ) -> tuple[list[Told], int] | None:
        """At most ``limit`` entries after a number and up to ``last_seq`` that concern a reader, and the number up to
        which there are no others. None when only the store can tell."""
        if not self._kept or self._kept[-1].entry.seq != last_seq:
            return None
        begins_after = self._kept[0].entry.seq - 1
        if position < begins_after or (owner is not None and position < self._ownerless_seq):
            return None
        found: list[Told] = []
        for kept in islice(self._kept, position - begins_after, None):
            if kept.concerns(job, owner):
                found.append(kept.told if owner is None else kept.told_to_others)
                if len(found) == limit:
                    return found, kept.entry.seq
        return found, last_seq


def names_strangers(entry: Entry) -> bool:
    """Whether an entry that is of no one job still names components, which may be anybody's."""
    named = getattr(entry.body, "token", None) or getattr(entry.body, "tokens", None)
    return entry.job is None and bool(named)


def veiled(entry: Entry) -> JournalEntry:
    """The entry without whom it is about."""
    return JournalEntry(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,
        what=entry.what,
        site=entry.site,
        text="it is about components that may be of other users' jobs",
    )
