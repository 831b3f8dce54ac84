"""What the store keeps, as frozen values: rows of jobs, components, transfers and tokens, entries of the journal, and
the batch that is recorded as a whole. Nothing here knows of a database.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from koala.files import CatalogueEntry
from koala.model.messages import AnyCommand, AnyEvent, Token, TransferId
from koala.model.request import FileName, JobId, Request, SiteName


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands, or as it ended.

    ``places`` are where it is or was last placed, ``since`` is when it came into its state. ``explanation`` is the
    core's explanation as builtins, kept once the job has ended. An owner uses a ``client_token`` for one job only.
    """

    id: JobId
    owner: str
    name: str
    state: str
    priority: str
    job_type: str
    kind: str
    policy: str
    processors: int
    submitted_at: float
    since: float
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    exit_code: int | None = None
    places: tuple[tuple[SiteName, int], ...] = ()
    runs: int = 0
    failures: int = 0
    preemptions: int = 0
    placement_tries: int = 0
    claiming_tries: int = 0
    request: Request
    client_token: str | None = None
    explanation: dict[str, Any] | None = None


class ComponentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one component. ``run`` counts from 1: which opening of the job's barrier it belongs to."""

    token: Token
    job: JobId
    run: int
    part: int
    parts: int
    site: SiteName
    processors: int
    claimed_at: float
    ready_at: float | None = None
    released_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    exit_code: int | None = None
    reason: str = ""


class TransferRow(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a ``chunk`` (offset, size) of it, on its way to a site for some jobs, or there already."""

    id: TransferId
    file: FileName
    source: SiteName
    target: SiteName
    size_bytes: int
    chunk: tuple[int, int] | None = None
    started_at: float
    ended_at: float | None = None
    ok: bool | None = None
    reason: str = ""
    jobs: tuple[JobId, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the journal: an event that was handled, or a command that it led to. ``what`` is the type of
    ``body``; ``job`` and ``site`` are whom it is about."""

    seq: int
    at: float
    kind: Literal["event", "command"]
    what: str
    job: JobId | None = None
    site: SiteName | None = None
    body: AnyEvent | AnyCommand


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A user's token for the API. ``secret_hash`` is the SHA-256 of its secret in hexadecimal digits."""

    id: str
    user: str
    scopes: tuple[str, ...]
    note: str = ""
    secret_hash: str
    created_at: float
    used_at: float | None = None
    revoked_at: float | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded together or not at all.

    ``entries`` have increasing sequence numbers, above all that were recorded before. ``owed`` are those of commands,
    in this batch or before, that are to be performed from now on; ``settled`` those that no longer are. Rows replace
    the ones with the same key; a file without replicas is forgotten.
    """

    entries: tuple[Entry, ...] = ()
    owed: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    components: tuple[ComponentRow, ...] = ()
    transfers: tuple[TransferRow, ...] = ()
    files: tuple[CatalogueEntry, ...] = ()


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """All that a restart begins with, as of one moment.

    ``entries`` are the events after ``books_seq``, ``owed`` the commands still to be performed, both in order. The
    last three are the highest ever recorded, 0 where nothing was.
    """

    books: bytes | None
    books_seq: int
    entries: tuple[Entry, ...]
    owed: tuple[Entry, ...]
    last_seq: int
    last_job: JobId
    last_at: float
