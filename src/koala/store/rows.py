"""The rows of the store, as frozen values: jobs, components, transfers, tokens and journal entries, and the batch
that is recorded as a whole. Nothing here uses a database."""

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
    """A job as it stands, or as it ended, with its ``JobCounts``. Its request is stored separately, once.

    ``places`` are its places, or its last ones; ``since`` is when it entered its state. ``explanation`` is the core's
    explanation as builtins, kept once the job has ended; the journal has its story. An owner uses a ``client_token``
    for one job only. An element of an array has the number of its ``array``, and its ``array_index`` there;
    ``elements`` counts the elements of an array by state. ``stderr_line`` is the last line that the component whose
    failure ended the job wrote to standard error.
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
    """A choice of jobs: with this ``name``, or with this prefix if it ends with ``*``; submitted from one time on,
    and before another. Without a name, or a time, all jobs."""

    name: str = ""
    from_at: float | None = None
    to_at: float | None = None

    def has(self, job: StoredJob) -> bool:
        """Return True if the job is chosen."""
        begins, head = self.name.endswith("*"), self.name[:-1]
        named = job.name.startswith(head) if begins else self.name in ("", job.name)
        after = self.from_at is None or job.submitted_at >= self.from_at
        return named and after and (self.to_at is None or job.submitted_at < self.to_at)


ALL_JOBS = ChosenJobs()


class RecentlyEnded(NamedTuple):
    """An ended job, and its array if it is an element of one."""

    id: JobId
    array: JobId | None
    ended_at: float


class ComponentRow(ComponentOnRecord, frozen=True, kw_only=True):
    """One start of one component. ``run`` counts from 1: the opening of the job's barrier that it belongs to.
    ``keep_for_s`` is how long its workspace is kept after its end, if its job sets that. ``stderr_line`` is the last
    line that a failed component wrote to standard error; ``fault`` is who caused its failure (``Fault``), where that
    is known. ``processor_s`` and ``peak_memory_bytes`` are what its application used, None where that could not be
    measured."""

    job: JobId
    parts: int
    keep_for_s: float | None = None


class TransferRow(TransferOnRecord, frozen=True, kw_only=True):
    """A file, or a ``chunk`` (offset, size) of it, on its way to a site for some jobs, or there already."""

    chunk: tuple[int, int] | None = None
    jobs: tuple[JobId, ...] = ()


class JournalRow(EntryOnRecord, frozen=True, kw_only=True):
    """One line of the journal: an event, or a command or a fact that followed from it. ``what`` is the type of
    ``body``; ``job`` and ``site`` are its subjects."""

    body: AnyEvent | TurnEntry


class RecordRow(NamedTuple):
    """One record of the scheduler; without a body it is deleted."""

    kind: str
    key: str
    body: bytes | None


class DamagedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was set aside, with the time and the problem."""

    kind: str
    key: str
    body: str
    problem: str
    at: float


class StoryRows(NamedTuple):
    """The journal's lines of a job's story, in order. A long story has its first lines, the number of lines left out,
    and its last lines."""

    first: list[JournalRow]
    left_out: int = 0
    last: list[JournalRow] = []  # noqa: RUF012  # never changed


class TokenRow(TokenOnRecord, frozen=True, kw_only=True):
    """A user's token for the API. ``secret_hash`` is the SHA-256 of its secret in hexadecimal digits."""

    secret_hash: str


class StateDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of a daemon with its embedded sites: its permanent identity, and the host and path of its last
    use."""

    identity: str
    host: str
    path: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are recorded together or not at all.

    ``entries`` have increasing sequence numbers, above all recorded ones. ``outbox`` are the numbers of commands, in
    this batch or earlier, that are to be performed from now on; ``settled`` are those that no longer are. Rows
    replace the ones with the same key; a file without replicas is forgotten. ``before`` are the recorded versions of
    rows: a row that replaces one of them is written only where it differs. ``records`` are the changed records of the
    scheduler: kind, key and body, without a body if it is deleted. The entry of a job's submission is in the same
    batch as the job's first row, which takes its request from there.
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
    """The rows of jobs that have not ended, at one moment, with all starts of their components and all transfers that
    were ever recorded for them."""

    jobs: list[StoredJob]
    components: list[ComponentRow]
    transfers: list[TransferRow]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a restart begins with, at one moment.

    ``records`` are the state of the scheduler, ``outbox`` the commands still to be performed, in order. The last
    three fields are the highest values ever recorded, 0 if there are none.
    """

    records: tuple[RecordRow, ...]
    outbox: tuple[JournalRow, ...]
    last_seq: int
    last_job: JobId
    last_at: float
