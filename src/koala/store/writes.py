"""Writes: how a batch and tokens get into their tables. Each function works in its caller's transaction.

The statements are built once; the database driver gets all rows of a table in one call.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Table,
    Update,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from koala.files import CatalogueEntry
from koala.model.facts import TurnEntry
from koala.model.messages import AnyEvent, JobSubmitted
from koala.store import records
from koala.store import schema as tables
from koala.store.columns import ExactJson, TextColumn, escaped
from koala.store.requests import KeptRequest, keep
from koala.store.rows import Batch, ComponentRow, JournalRow, StateDirectory, StoredJob, TokenRow, TransferRow

# At most this many entries are pruned in one transaction, so that nobody waits long for its end.
PRUNED_ENTRIES_MAX = 20_000
# This many of the first and of the last entries about a job that has not ended are kept.
STORY_FIRST_KEPT = 20
STORY_LAST_KEPT = 200
# The content of a journal entry, by kind; facts have the kind of commands.
BODY: dict[str, ExactJson[Any]] = {"event": ExactJson(AnyEvent), "command": ExactJson(TurnEntry)}
# A submission without its request, which is stored separately.
SUBMISSION: ExactJson[dict[str, Any]] = ExactJson(dict[str, Any])
_SUBMISSION_FIELDS = [field for field in msgspec.structs.fields(JobSubmitted) if field.name != "request"]


def _upsert(make: Callable[[Table], Any], table: Table, *, kept: Iterable[str] = ()) -> Insert:
    """Return the statement that inserts a row, or replaces the row with the same key except for its ``kept``
    columns."""
    statement = make(table)
    key = list(table.primary_key.columns)
    named = {*(column.name for column in key), *kept}
    fresh = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in named}
    done: Insert = statement.on_conflict_do_update(index_elements=key, set_=fresh)
    return done


class _Statements:
    """The statements that differ between the databases."""

    def __init__(self, make: Callable[[Table], Any]) -> None:
        self.text: Insert = make(tables.texts).on_conflict_do_nothing()
        self.request: Insert = make(tables.requests).on_conflict_do_nothing()
        self.job = _upsert(make, tables.jobs, kept=["request_key"])
        self.component = _upsert(make, tables.components, kept=["pruned"])
        self.transfer = _upsert(make, tables.transfers)
        self.transfer_job: Insert = make(tables.transfer_jobs).on_conflict_do_nothing()
        self.file = _upsert(make, tables.files)
        self.outbox: Insert = make(tables.outbox).on_conflict_do_nothing()


_AnyRow: TypeAlias = StoredJob | ComponentRow | TransferRow
_values = msgspec.structs.asdict
_STATEMENTS = {"sqlite": _Statements(sqlite_insert), "postgresql": _Statements(postgres_insert)}

_journal = insert(tables.journal).values(
    {column.name: bindparam(f"its_{column.name}", type_=column.type) for column in tables.journal.columns}
    | {
        "owner": func.coalesce(
            select(tables.jobs.c.owner).where(tables.jobs.c.id == bindparam("its_job")).scalar_subquery(),
            bindparam("its_nobody", type_=TextColumn()),
        )
    }
)
_settle = delete(tables.outbox).where(tables.outbox.c.seq == bindparam("its_seq"))
_forget_file = delete(tables.files).where(tables.files.c.key == bindparam("its_key"))
_mark_pruned = (
    update(tables.components).where(tables.components.c.token == bindparam("its_token")).values(pruned=True)
)


def record(connection: Connection, batch: Batch) -> None:
    """Write a whole batch. Jobs come first, because a journal entry takes the owner of its job from there."""
    records.write(connection, batch.records)
    statements = _STATEMENTS[connection.dialect.name]
    kept = _record_requests(connection, statements, batch.entries)
    before = {_key(row): row for row in batch.before}
    keys = {entry.job: kept[entry.seq].key for entry in batch.entries if entry.seq in kept}
    new = _update(connection, tables.jobs, batch.jobs, before)
    keys |= _element_keys(connection, new, keys)
    _execute(connection, statements.job, [_values(row) | {"request_key": keys.get(row.id)} for row in new])
    _execute(connection, _journal, [_journal_values(entry, kept) for entry in batch.entries])
    _execute(connection, statements.outbox, [{"seq": seq} for seq in batch.outbox])
    _execute(connection, _settle, [{"its_seq": seq} for seq in batch.settled])
    claimed = _update(connection, tables.components, batch.components, before)
    _execute(connection, statements.component, [_values(row) for row in claimed])
    started = _update(connection, tables.transfers, batch.transfers, before)
    _execute(connection, statements.transfer, [_values(row) for row in started])
    shared = [{"job": job, "transfer": row.id} for row in batch.transfers for job in row.jobs]
    _execute(connection, statements.transfer_job, shared)
    # A file may be in the batch more than once; its last entry counts.
    last = {entry.name: entry for entry in batch.files}.values()
    _execute(connection, statements.file, [_file_values(entry) for entry in last if entry.replicas])
    _execute(connection, _forget_file, [{"its_key": file_key(entry.name)} for entry in last if not entry.replicas])


def _element_keys(
    connection: Connection, rows: Sequence[StoredJob], keys: dict[int | None, str]
) -> dict[int | None, str]:
    """Return the request keys of elements of arrays, which have the requests of their arrays."""
    elements = [row for row in rows if row.array is not None and row.id not in keys]
    unknown = sorted({row.array for row in elements if row.array is not None and row.array not in keys})
    found: dict[int | None, str | None] = dict(keys)
    if unknown:
        table = tables.jobs
        asked = select(table.c.id, table.c.request_key).where(table.c.id.in_(unknown))
        found |= {row[0]: row[1] for row in connection.execute(asked)}
    return {row.id: key for row in elements if (key := found.get(row.array)) is not None}


def _record_requests(
    connection: Connection, statements: _Statements, entries: Iterable[JournalRow]
) -> dict[int, KeptRequest]:
    """Write the requests of submitted jobs and their long texts, without duplicates; return them by the entry's
    number."""
    kept: dict[int, KeptRequest] = {}
    made: dict[int, KeptRequest] = {}  # by identity, so that each object is examined once
    for entry in entries:
        if isinstance(entry.body, JobSubmitted):
            request = entry.body.request
            if id(request) not in made:
                made[id(request)] = keep(request)
            kept[entry.seq] = made[id(request)]
    texts = {key: text for request in made.values() for key, text in request.texts.items()}
    _execute(connection, statements.text, [{"key": key, "body": text} for key, text in texts.items()])
    bodies = {request.key: request.body for request in made.values()}
    _execute(connection, statements.request, [{"key": key, "body": body} for key, body in bodies.items()])
    return kept


# ---------------------------------------------------------------------------------------------- changed rows


def _key(row: _AnyRow) -> tuple[type[_AnyRow], str | int]:
    return type(row), row.token if isinstance(row, ComponentRow) else row.id


def _update(connection: Connection, table: Table, rows: Iterable[_AnyRow], before: dict[Any, _AnyRow]) -> list[Any]:
    """Write the differences of recorded rows; return the rows that are not on record.

    Rows that differ in the same columns go together. The statement names only these columns, so the others are not
    written, nor any index without them.
    """
    left: list[Any] = []
    changed: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    (key,) = [column.name for column in table.primary_key.columns]
    for row in rows:
        old = before.get(_key(row))
        if old is None:
            left.append(row)
            continue
        differing = tuple([name for name in row.__struct_fields__ if getattr(row, name) != getattr(old, name)])
        if differing:
            values = {f"its_{name}": getattr(row, name) for name in (key, *differing)}
            changed[differing].append(values)
    for columns, values_of_rows in changed.items():
        found = connection.execute(_update_of(table, key, columns), values_of_rows).rowcount
        if found != len(values_of_rows):
            raise ValueError(f"{len(values_of_rows) - found} rows of the table {table.name} are missing")
    return left


@functools.lru_cache(maxsize=1_000)
def _update_of(table: Table, key: str, columns: tuple[str, ...]) -> Update:
    """Return the statement that updates these columns; each set of columns has one."""
    values = {name: bindparam(f"its_{name}", type_=table.c[name].type) for name in columns}
    return update(table).where(table.c[key] == bindparam(f"its_{key}", type_=table.c[key].type)).values(values)


# ----------------------------------------------------------------------------------------- journal and tokens


def prune_journal(connection: Connection, below: int) -> bool:
    """Remove the oldest entries that may go; return True if more may. The outbox stays, and so do the newest entry
    and the first and the last entries about each live job."""
    journal = tables.journal
    newest = connection.scalar(select(func.max(journal.c.seq))) or 0
    bound = min(below, newest)
    lives = exists().where(tables.jobs.c.id == journal.c.job, tables.jobs.c.ended_at.is_(None))
    may_go = (
        journal.c.seq < bound,
        journal.c.seq.not_in(select(tables.outbox.c.seq)),
        or_(~lives, _has_others(STORY_FIRST_KEPT, before=True) & _has_others(STORY_LAST_KEPT, before=False)),
    )
    oldest = select(journal.c.seq).where(*may_go).order_by(journal.c.seq).limit(PRUNED_ENTRIES_MAX)
    gone = connection.execute(delete(journal).where(journal.c.seq.in_(oldest))).rowcount
    return bool(gone == PRUNED_ENTRIES_MAX)


def _has_others(count: int, *, before: bool) -> ColumnElement[bool]:
    """Return the condition that this many entries about the same job come before an entry, or after it."""
    journal, other = tables.journal, tables.journal.alias()
    beyond = other.c.seq < journal.c.seq if before else other.c.seq > journal.c.seq
    nearest = other.c.seq.desc() if before else other.c.seq
    others = select(other.c.seq).where(other.c.job == journal.c.job, beyond).order_by(nearest)
    return others.limit(1).offset(count - 1).correlate(journal).scalar_subquery().is_not(None)


def mark_pruned(connection: Connection, tokens: Iterable[str]) -> None:
    """Note that the components' sites have forgotten them."""
    _execute(connection, _mark_pruned, [{"its_token": token} for token in tokens])


def add_token(connection: Connection, row: TokenRow) -> None:
    """Add a new token."""
    connection.execute(insert(tables.tokens), _values(row))


def revoke_token(connection: Connection, token: str, at: float) -> bool:
    """Revoke a token; the time of the first revocation stays. Return False if there is no such token."""
    found = connection.scalar(select(tables.tokens.c.id).where(tables.tokens.c.id == token))
    is_it = (tables.tokens.c.id == token) & tables.tokens.c.revoked_at.is_(None)
    connection.execute(update(tables.tokens).where(is_it).values(revoked_at=at))
    return found is not None


def touch_token(connection: Connection, token: str, at: float) -> None:
    """Note the use of a token."""
    connection.execute(update(tables.tokens).where(tables.tokens.c.id == token).values(used_at=at))


def file_key(name: str) -> str:
    """Return the key of a file, which is short even for a long name."""
    return hashlib.sha256(escaped(name).encode()).hexdigest()


def file_head(name: str) -> str:
    """Return the first sort key of a file."""
    return escaped(name)[: tables.NAME_HEAD_CHARACTERS]


def _execute(connection: Connection, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _journal_values(entry: JournalRow, kept: dict[int, KeptRequest]) -> dict[str, Any]:
    body = entry.body
    if isinstance(body, JobSubmitted):
        request_key = kept[entry.seq].key
        values = ((field, getattr(body, field.name)) for field in _SUBMISSION_FIELDS)
        text = SUBMISSION.encode({field.name: value for field, value in values if value != field.default})
    else:
        request_key, text = None, BODY[entry.kind].encode(body)
    return {
        "its_seq": entry.seq,
        "its_at": entry.at,
        "its_kind": entry.kind,
        "its_what": entry.what,
        "its_job": entry.job,
        "its_site": entry.site,
        "its_nobody": None if entry.job is None else "",
        "its_body": text,
        "its_request_key": request_key,
    }


def _file_values(entry: CatalogueEntry) -> dict[str, Any]:
    return _values(entry) | {"key": file_key(entry.name), "head": file_head(entry.name)}


def give_to(connection: Connection, directory: StateDirectory) -> None:
    """Make the database belong to this state directory from now on."""
    connection.execute(delete(tables.state_directory))
    connection.execute(insert(tables.state_directory), _values(directory))
