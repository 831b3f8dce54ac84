"""The tables. Their columns are the fields of their rows, and a few more that only queries need.

All text is readable in ``psql`` and ``sqlite3``: plain, or JSON. ``koala.store.columns`` describes the escapes.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, MetaData, Table, false, text

from koala.files import CatalogueEntry
from koala.store.columns import PlainText, TextColumn, Whole, columns_of
from koala.store.rows import ComponentRow, StateDirectory, StoredJob, TokenRow, TransferRow

# PostgreSQL indexes keys of up to 2,700 bytes. File names may be longer, so an index has only the head of a name.
NAME_HEAD_CHARACTERS = 512

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

# Long texts of requests, without duplicates. ``key`` is the SHA-256 of the text.
texts = Table(
    "texts",
    metadata,
    Column("key", PlainText, primary_key=True),
    Column("body", TextColumn, nullable=False),
)

# Requests of users in JSON, without duplicates; see ``koala.store.requests``. ``key`` is the SHA-256 of ``body``.
requests = Table(
    "requests",
    metadata,
    Column("key", PlainText, primary_key=True),
    Column("body", PlainText, nullable=False),
)

# ``request_key`` is not part of the row: it is written once, with the job's submission.
jobs = Table(
    "jobs",
    metadata,
    *columns_of(StoredJob, key="id"),
    Column("request_key", PlainText, ForeignKey("requests.key")),
    Index(None, "owner", "id"),
    Index(None, "state", "id"),
    Index(None, "owner", "state", "id"),
    Index(None, "array", "id"),
    Index(None, "owner", "client_token", unique=True),
)

components = Table(
    "components",
    metadata,
    *columns_of(ComponentRow, key="token"),
    # True once its site has forgotten it; not part of the row.
    Column("pruned", Boolean, nullable=False, server_default=false()),
    Index(None, "job"),
    Index(None, "site", "ended_at"),
    Index(None, "pruned", "ended_at"),
)

transfers = Table("transfers", metadata, *columns_of(TransferRow, key="id"))

# Every job that a transfer was ever recorded for.
transfer_jobs = Table(
    "transfer_jobs",
    metadata,
    Column("job", Whole, primary_key=True, autoincrement=False),
    Column("transfer", TextColumn, ForeignKey("transfers.id"), primary_key=True),
)

# ``key`` is the SHA-256 of the name, ``head`` the first NAME_HEAD_CHARACTERS of the stored name: ordering by (head,
# name) orders by name.
files = Table(
    "files",
    metadata,
    Column("key", PlainText, primary_key=True),
    Column("head", PlainText, nullable=False, index=True),
    *columns_of(CatalogueEntry, key="key"),
)

# ``owner`` is the owner of the job at the time, empty for an unknown job, and NULL for an entry of no job. ``body``
# is the message in JSON; a submission lacks its request, which ``request_key`` names.
journal = Table(
    "journal",
    metadata,
    Column("seq", Whole, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", TextColumn, nullable=False),
    Column("what", TextColumn, nullable=False),
    Column("job", Whole),
    Column("site", TextColumn),
    Column("owner", TextColumn),
    Column("body", PlainText, nullable=False),
    Column("request_key", PlainText),
    Index("ix_journal_owner_seq", "owner", "seq"),
)
JOB_IS_KNOWN = text("job IS NOT NULL")
IS_SITE_REPORT = text("what = 'SiteReported'")
Index("ix_journal_job_seq", journal.c.job, journal.c.seq, sqlite_where=JOB_IS_KNOWN, postgresql_where=JOB_IS_KNOWN)
Index(
    "ix_journal_site_at", journal.c.site, journal.c.at, sqlite_where=IS_SITE_REPORT, postgresql_where=IS_SITE_REPORT
)

# The recorded commands that are still to be performed.
outbox = Table(
    "outbox",
    metadata,
    Column("seq", Whole, ForeignKey("journal.seq"), primary_key=True, autoincrement=False),
)

# The state of the scheduler: one row for each live job, each claim, site, queue and so on, and one for the grid.
# ``key`` identifies a row among those of its kind, and is short; ``name`` is the whole key where that is longer.
# ``body`` is JSON.
records = Table(
    "records",
    metadata,
    Column("kind", PlainText, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("name", TextColumn),
    Column("body", PlainText, nullable=False),
    sqlite_with_rowid=False,
)

# Records that could not be read, or that contradicted others: set aside at a start for an operator.
damaged_records = Table(
    "damaged_records",
    metadata,
    Column("kind", PlainText, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("name", TextColumn),
    Column("body", PlainText, nullable=False),
    Column("problem", TextColumn, nullable=False),
    Column("at", Double, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    *columns_of(TokenRow, key="id"),
    Index(None, "secret_hash", unique=True),
)

# One row: the state directory that the database belongs to.
state_directory = Table("state_directory", metadata, *columns_of(StateDirectory, key="identity"))
