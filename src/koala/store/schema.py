"""The tables, and how values become columns.

Text that comes from outside is kept as its bytes: neither database then has a say in which characters it may hold or
how it is ordered. Words that Koala itself chooses are plain text. Columns are named like the fields of their rows.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    false,
    text,
)

from koala.files import Replica
from koala.model.request import JobId, Request, SiteName
from koala.store.exact_json import ExactJson

# PostgreSQL indexes keys of up to 2,700 bytes and file names may be longer, so an index has only the head of a name.
NAME_HEAD_BYTES = 512

# 64 bits in both; SQLite makes a key of this type the row's own number.
Whole = BigInteger().with_variant(Integer(), "sqlite")


class Text(TypeDecorator[str]):
    """Any Python text, also with NUL and halves of surrogate pairs. Ordered by its UTF-8 bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else text_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else value.decode("utf-8", "surrogatepass")


class Word(TypeDecorator[str]):
    """A word of Koala's own, such as a state; members of enumerations are kept as their values."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)


class Json(TypeDecorator[Any]):
    """A value of one type, in its exact JSON form."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form
        self._json: ExactJson[Any] = ExactJson(form)

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        return None if value is None else self._json.encode(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        return None if value is None else self._json.decode(value)


def text_bytes(value: str) -> bytes:
    """How ``Text`` keeps it."""
    return value.encode("utf-8", "surrogatepass")


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Word, nullable=False),
    Column("priority", Word, nullable=False),
    Column("job_type", Word, nullable=False),
    Column("kind", Word, nullable=False),
    Column("policy", Text, nullable=False),
    Column("processors", Whole, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("since", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("reason", Text, nullable=False),
    Column("exit_code", Whole),
    Column("places", Json(tuple[tuple[SiteName, int], ...]), nullable=False),
    Column("runs", Whole, nullable=False),
    Column("failures", Whole, nullable=False),
    Column("preemptions", Whole, nullable=False),
    Column("placement_tries", Whole, nullable=False),
    Column("claiming_tries", Whole, nullable=False),
    Column("request", Json(Request), nullable=False),
    Column("client_token", Text),
    Column("explanation", Json(dict[str, Any])),
    Index(None, "owner", "id"),
    Index(None, "state", "id"),
    Index(None, "owner", "state", "id"),
    Index(None, "owner", "client_token", unique=True),
)

components = Table(
    "components",
    metadata,
    Column("token", Text, primary_key=True),
    Column("job", Whole, nullable=False),
    Column("run", Whole, nullable=False),
    Column("part", Whole, nullable=False),
    Column("parts", Whole, nullable=False),
    Column("site", Text, nullable=False),
    Column("processors", Whole, nullable=False),
    Column("claimed_at", Double, nullable=False),
    Column("ready_at", Double),
    Column("released_at", Double),
    Column("ended_at", Double),
    Column("outcome", Word),
    Column("exit_code", Whole),
    Column("reason", Text, nullable=False),
    # Its site has forgotten it; not part of the row.
    Column("pruned", Boolean, nullable=False, server_default=false()),
    Index(None, "job"),
    Index(None, "site", "ended_at"),
    Index(None, "pruned", "ended_at"),
)

transfers = Table(
    "transfers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("file", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("size_bytes", Whole, nullable=False),
    Column("chunk", Json(tuple[int, int])),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("ok", Boolean),
    Column("reason", Text, nullable=False),
    Column("jobs", Json(tuple[JobId, ...]), nullable=False),
)

# Every job that a transfer was ever recorded for.
transfer_jobs = Table(
    "transfer_jobs",
    metadata,
    Column("job", Whole, primary_key=True, autoincrement=False),
    Column("transfer", Text, ForeignKey("transfers.id"), primary_key=True),
)

# ``key`` is the SHA-256 of the name and ``head`` its first NAME_HEAD_BYTES: ordering by (head, name) orders by name.
files = Table(
    "files",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("head", LargeBinary, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("size_bytes", Whole, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("replicas", Json(tuple[Replica, ...]), nullable=False),
)

# ``owner`` is that of the job at the time, empty when the job is not known; NULL for an entry of no job.
journal = Table(
    "journal",
    metadata,
    Column("seq", Whole, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", Word, nullable=False),
    Column("what", Word, nullable=False),
    Column("job", Whole),
    Column("site", Text),
    Column("owner", Text),
    Column("body", LargeBinary, nullable=False),
    Index("ix_journal_owner_seq", "owner", "seq"),
)
JOB_IS_KNOWN = text("job IS NOT NULL")
IS_SITE_REPORT = text("what = 'SiteReported'")
Index("ix_journal_job_seq", journal.c.job, journal.c.seq, sqlite_where=JOB_IS_KNOWN, postgresql_where=JOB_IS_KNOWN)
Index(
    "ix_journal_site_at", journal.c.site, journal.c.at, sqlite_where=IS_SITE_REPORT, postgresql_where=IS_SITE_REPORT
)

# Commands that are on record and still to be performed.
owed = Table(
    "owed",
    metadata,
    Column("seq", Whole, ForeignKey("journal.seq"), primary_key=True, autoincrement=False),
)

# One row: the newest snapshot of the core's books, and the last entry of the journal that it knows of.
books = Table(
    "books",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    Column("seq", Whole, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("scopes", Json(tuple[str, ...]), nullable=False),
    Column("note", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double),
    Column("revoked_at", Double),
    Index(None, "secret_hash", unique=True),
)
