"""What the store keeps, as frozen values: jobs, components, transfers, tokens and journal entries, each the row of a
table, and the batch that is recorded as a whole. Nothing here knows of a database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from koala.files import CatalogueEntry
from koala.model.api.access import TokenOnRecord
from koala.model.api.jobs import ComponentOnRecord, JobOnRecord, TransferOnRecord
from koala.model.api.overview import EntryOnRecord
from koala.model.facts import TurnEntry
from koala.model.messages import AnyEvent
from koala.model.request import JobId, SiteName


class StoredJob(JobOnRecord, frozen=True, kw_only=True):
    """A job as it stands, or as it ended, with what ``JobCounts`` tells; what it asks for is stored once, beside it.

    ``places`` are where it is or was last placed, ``since`` is when it came into its state. ``explanation`` is the
    core's explanation as builtins, kept once the job has ended; what happened to it is in the journal. An owner uses
    a ``client_token`` for one job only. An element of an array has the number of its ``array``, and its
    ``array_index`` there; ``elements`` is how those of an array stand. ``stderr_line`` is what the component whose
    failure ended it wrote last to its standard error.
    """

    placement_tries: int = 0
    claiming_tries: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    places: tuple[tuple[SiteName, int], ...] = ()
    client_token: str | None = None
    explanation: dict[str, Any] | None = None


class ChosenJobs(NamedTuple):
    """Which jobs are meant: of this ``name``, or all whose names begin so where it ends with ``*``; submitted from
    one time on, and before another. Without a name, or a time, all."""

    name: str = ""
    from_at: float | None = None
    to_at: float | None = None

    def has(self, job: StoredJob) -> bool:
        """Whether the job is one of them."""
        begins, head = self.name.endswith("*"), self.name[:-1]
        named = job.name.startswith(head) if begins else self.name in ("", job.name)
        after = self.from_at is None or job.submitted_at >= self.from_at
        return named and after and (self.to_at is None or job.submitted_at < self.to_at)


ALL_JOBS = ChosenJobs()


class RecentlyEnded(NamedTuple):
    """A job that is over, and the array of which it is an element."""

    id: JobId
    array: JobId | None
    ended_at: float


class ComponentRow(ComponentOnRecord, frozen=True, kw_only=True):
    """One start of one component. ``run`` counts from 1: which opening of the job's barrier it belongs to.
    ``keep_for_s`` is how long its workspace is kept after its end, where its job says so; ``stderr_line`` is what one
    that failed wrote last to its standard error, ``fault`` whose its failure is (``Fault``), where that is known;
    ``processor_s`` and ``peak_memory_bytes`` are what its application has used, None where that could not be
    measured."""

    job: JobId
    parts: int
    keep_for_s: float | None = None


class TransferRow(TransferOnRecord, frozen=True, kw_only=True):
    """A file, or a ``chunk`` (offset, size) of it, on its way to a site for some jobs, or there already."""

    chunk: tuple[int, int] | None = None
    jobs: tuple[JobId, ...] = ()


class JournalRow(EntryOnRecord, frozen=True, kw_only=True):
    """One line of the journal: an event that was handled, or a command or a fact that it led to. ``what`` is the
    type of ``body``; ``job`` and ``site`` are whom it is about."""

    body: AnyEvent | TurnEntry


class RecordRow(NamedTuple):
    """One record of the scheduler; without a body it is gone."""

    kind: str
    key: str
    body: bytes | None


class DamagedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was set aside, since when and why."""

    kind: str
    key: str
    body: str
    problem: str
    at: float


class StoryRows(NamedTuple):
    """The lines of the journal that tell the story of a job, in order: its first, how many are left out, and its last
    where some are."""

    first: list[JournalRow]
    left_out: int = 0
    last: list[JournalRow] = []  # noqa: RUF012  # never changed


class TokenRow(TokenOnRecord, frozen=True, kw_only=True):
    """A user's token for the API. ``secret_hash`` is the SHA-256 of its secret in hexadecimal digits."""

    secret_hash: str


class StateDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of a daemon, where its embedded sites are: its name for good, and where it was last used."""

    identity: str
    host: str
    path: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded together or not at all.

    ``entries`` have increasing sequence numbers, above all that were recorded before. ``outbox`` are those of
    commands, in this batch or before, that are to be performed from now on; ``settled`` those that no longer are.
    Rows replace the ones with the same key; a file without replicas is forgotten. ``before`` are rows as they are on
    record: of one that replaces such a row only what differs is written. ``records`` are those of the scheduler that
    have changed: kind, key and body, without a body where it is gone. The entry of a job's submission is in one
    batch with the job's first row: its request is taken from there.
    """

    entries: tuple[JournalRow, ...] = ()
    outbox: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()
    jobs: tuple[StoredJob, ...] = ()
    components: tuple[ComponentRow, ...] = ()
    transfers: tuple[TransferRow, ...] = ()
    before: tuple[StoredJob | ComponentRow | TransferRow, ...] = ()
    files: tuple[CatalogueEntry, ...] = ()
    records: Sequence[tuple[str, str, bytes | None]] = ()


class LiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of jobs that have not ended, as of one moment: with all starts of their components, and all transfers
    that were ever recorded for them."""

    jobs: list[StoredJob]
    components: list[ComponentRow]
    transfers: list[TransferRow]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """All that a restart begins with, as of one moment.

    ``records`` are the state of the scheduler, ``outbox`` the commands still to be performed, in order. The last
    three are the highest ever recorded, 0 where nothing was.
    """

    records: tuple[RecordRow, ...]
    outbox: tuple[JournalRow, ...]
    last_seq: int
    last_job: JobId
    last_at: float
