"""Text is kept as text and not as bytes, requests have a table of their own, the state RELEASING is now UNWINDING.

Every table of revision 0001 is set aside, made anew, filled row by row and dropped. Nothing here is shared with the
code of today: a revision stays what it was.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NAME_HEAD_CHARACTERS = 512
ROWS_AT_ONCE = 500

# The tables of revision 0001, those that refer to others first, and their indexes.
OLD_TABLES = {
    "owed": (),
    "transfer_jobs": (),
    "books": (),
    "components": ("ix_components_job", "ix_components_pruned_ended_at", "ix_components_site_ended_at"),
    "files": ("ix_files_head",),
    "jobs": ("ix_jobs_owner_client_token", "ix_jobs_owner_id", "ix_jobs_owner_state_id", "ix_jobs_state_id"),
    "journal": ("ix_journal_job_seq", "ix_journal_owner_seq", "ix_journal_site_at"),
    "tokens": ("ix_tokens_secret_hash",),
    "transfers": (),
}

OldRow = dict[str, Any]


def upgrade() -> None:
    """Bring all rows into the new tables."""
    connection = op.get_bind()
    for name, indexes in OLD_TABLES.items():
        for index in indexes:
            op.drop_index(index, name)
        if connection.dialect.name == "postgresql":
            op.execute(f"ALTER TABLE {name} DROP CONSTRAINT pk_{name} CASCADE")
        op.rename_table(name, f"old_{name}")
    jobs = _jobs(_requests())
    _fill_requests()
    _fill("jobs", jobs, _job)
    _fill("components", _components(), _with_text("token", "site", "reason"))
    _fill("transfers", _transfers(), _with_text("id", "file", "source", "target", "reason", json=("chunk", "jobs")))
    _fill("transfer_jobs", _transfer_jobs(), _with_text("transfer"))
    _fill("files", _files(), _file)
    _fill("journal", _journal(), _with_text("site", "owner", json=("body",)))
    _fill("owed", _outbox(), dict)
    _fill("books", _snapshot(), _snapshot_values)
    _fill("tokens", _tokens(), _with_text("id", "user", "note", "secret_hash", json=("scopes",)))
    for name in OLD_TABLES:
        op.drop_table(f"old_{name}")


# ------------------------------------------------------------------------------------------------- values


def _fill(old: str, table: sa.Table, converted: Callable[[OldRow], dict[str, Any]]) -> None:
    for rows in _old_rows(f"SELECT * FROM old_{old}"):  # noqa: S608  # a name from this file
        op.get_bind().execute(sa.insert(table), [converted(row) for row in rows])


def _fill_requests() -> None:
    """What the jobs ask for, each different request once."""
    keep = sa.text("INSERT INTO requests (key, body) VALUES (:key, :body) ON CONFLICT DO NOTHING")
    for rows in _old_rows("SELECT request FROM old_jobs"):
        bodies = {bytes(row["request"]).decode() for row in rows}
        op.get_bind().execute(keep, [{"key": _key(body), "body": body} for body in bodies])


def _old_rows(query: str) -> Iterator[list[OldRow]]:
    found = op.get_bind().execute(sa.text(query), execution_options={"yield_per": ROWS_AT_ONCE})
    for rows in found.mappings().partitions(ROWS_AT_ONCE):  # of SQLite a single row, if no number is given
        yield [dict(row) for row in rows]


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _with_text(*texts: str, json: tuple[str, ...] = ()) -> Callable[[OldRow], dict[str, Any]]:
    """A row whose ``texts`` are kept with escapes from now on, and whose ``json`` as it is."""

    def converted(row: OldRow) -> dict[str, Any]:
        new = {name: _escaped(row[name]) for name in texts}
        return dict(row) | new | {name: None if row[name] is None else bytes(row[name]).decode() for name in json}

    return converted


def _job(row: OldRow) -> dict[str, Any]:
    texts = ("owner", "name", "policy", "reason", "client_token")
    new = _with_text(*texts, json=("places", "explanation", "request"))(row)
    if new["state"] == "releasing":
        new["state"] = "unwinding"
    new["request_key"] = _key(new.pop("request"))
    return new


def _file(row: OldRow) -> dict[str, Any]:
    new = _with_text("name", "checksum", json=("replicas",))(row)
    name: str = new["name"]
    return new | {"key": _key(name), "head": name[:NAME_HEAD_CHARACTERS]}


def _snapshot_values(row: OldRow) -> dict[str, Any]:
    """The snapshot under its new name. The core brings an old format of it up to date by itself."""
    whole = json.loads(bytes(row["body"]))
    whole["core"] = whole.pop("books")
    return dict(row) | {"body": json.dumps(whole, separators=(",", ":"))}


def _escaped(old: bytes | None) -> str | None:
    """NUL and halves of surrogate pairs, which no database has in its text, as escapes; a backslash doubled."""
    if old is None:
        return None
    value = bytes(old).decode("utf-8", "surrogatepass")
    return re.sub(
        "[\\\\\0\ud800-\udfff]",
        lambda found: r"\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}",
        value,
    )


# ------------------------------------------------------------------------------------------------- tables


def _requests() -> sa.Table:
    return op.create_table(
        "requests",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_requests")),
    )


def _jobs(requests: sa.Table) -> sa.Table:
    table = op.create_table(
        "jobs",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("priority", TEXT, nullable=False),
        sa.Column("job_type", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("policy", TEXT, nullable=False),
        sa.Column("processors", WHOLE, nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("exit_code", WHOLE),
        sa.Column("places", TEXT, nullable=False),
        sa.Column("placement_tries", WHOLE, server_default="0", nullable=False),
        sa.Column("claiming_tries", WHOLE, server_default="0", nullable=False),
        sa.Column("runs", WHOLE, server_default="0", nullable=False),
        sa.Column("failures", WHOLE, server_default="0", nullable=False),
        sa.Column("preemptions", WHOLE, server_default="0", nullable=False),
        sa.Column("client_token", TEXT),
        sa.Column("explanation", TEXT),
        sa.Column("request_key", TEXT),
        sa.ForeignKeyConstraint(["request_key"], [requests.c.key], name=op.f("fk_jobs_request_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_owner_client_token"), "jobs", ["owner", "client_token"], unique=True)
    op.create_index(op.f("ix_jobs_owner_id"), "jobs", ["owner", "id"])
    op.create_index(op.f("ix_jobs_owner_state_id"), "jobs", ["owner", "state", "id"])
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"])
    return table


def _components() -> sa.Table:
    table = op.create_table(
        "components",
        sa.Column("token", TEXT, nullable=False),
        sa.Column("job", WHOLE, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("part", WHOLE, nullable=False),
        sa.Column("parts", WHOLE, nullable=False),
        sa.Column("site", TEXT, nullable=False),
        sa.Column("processors", WHOLE, nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("ready_at", sa.Double()),
        sa.Column("released_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("outcome", TEXT),
        sa.Column("exit_code", WHOLE),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("pruned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_components")),
    )
    op.create_index(op.f("ix_components_job"), "components", ["job"])
    op.create_index(op.f("ix_components_pruned_ended_at"), "components", ["pruned", "ended_at"])
    op.create_index(op.f("ix_components_site_ended_at"), "components", ["site", "ended_at"])
    return table


def _transfers() -> sa.Table:
    return op.create_table(
        "transfers",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("file", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("size_bytes", WHOLE, nullable=False),
        sa.Column("chunk", TEXT),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("ok", sa.Boolean()),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("jobs", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfers")),
    )


def _transfer_jobs() -> sa.Table:
    return op.create_table(
        "transfer_jobs",
        sa.Column("job", WHOLE, autoincrement=False, nullable=False),
        sa.Column("transfer", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["transfer"], ["transfers.id"], name=op.f("fk_transfer_jobs_transfer")),
        sa.PrimaryKeyConstraint("job", "transfer", name=op.f("pk_transfer_jobs")),
    )


def _files() -> sa.Table:
    table = op.create_table(
        "files",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("head", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("size_bytes", WHOLE, nullable=False),
        sa.Column("checksum", TEXT, nullable=False),
        sa.Column("replicas", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_head"), "files", ["head"])
    return table


def _journal() -> sa.Table:
    table = op.create_table(
        "journal",
        sa.Column("seq", WHOLE, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("job", WHOLE),
        sa.Column("site", TEXT),
        sa.Column("owner", TEXT),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_journal")),
    )
    op.create_index("ix_journal_owner_seq", "journal", ["owner", "seq"])
    known, report = sa.text("job IS NOT NULL"), sa.text("what = 'SiteReported'")
    op.create_index("ix_journal_job_seq", "journal", ["job", "seq"], sqlite_where=known, postgresql_where=known)
    op.create_index("ix_journal_site_at", "journal", ["site", "at"], sqlite_where=report, postgresql_where=report)
    return table


def _outbox() -> sa.Table:
    return op.create_table(
        "outbox",
        sa.Column("seq", WHOLE, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["journal.seq"], name=op.f("fk_outbox_seq")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
    )


def _snapshot() -> sa.Table:
    return op.create_table(
        "snapshot",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("seq", WHOLE, nullable=False),
        sa.Column("body", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot")),
    )


def _tokens() -> sa.Table:
    table = op.create_table(
        "tokens",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("scopes", TEXT, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("secret_hash", TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_secret_hash"), "tokens", ["secret_hash"], unique=True)
    return table
