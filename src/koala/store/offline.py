"""An operator's work on the database of a stopped daemon: list the sizes of its jobs, remove a job, export
everything. Each function works in its caller's transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, delete, func, select, update

from koala.model.messages import StartTransfer
from koala.model.request import JobId
from koala.store import queries
from koala.store import schema as tables
from koala.store.requests import decode_body
from koala.store.writes import BODY

# Reading a whole table fetches this many rows at once.
ROWS_AT_ONCE = 500


class JobSize(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a job in the database, in characters. ``request`` includes what other jobs share with it."""

    job: JobId
    owner: str
    name: str
    state: str
    submitted_at: float
    request: int
    components: int
    entries: int
    journal: int


def job_sizes(connection: Connection) -> list[JobSize]:
    """Return the sizes of all jobs, the newest first."""
    jobs, journal, components = tables.jobs, tables.journal, tables.components
    texts = {row.key: row.size for row in connection.execute(_lengths(tables.texts))}
    requests = {
        row.key: len(row.body) + sum(texts.get(key, 0) for key in _texts_of(row.body))
        for row in connection.execute(select(tables.requests), execution_options={"yield_per": ROWS_AT_ONCE})
    }
    starts: Counter[JobId] = Counter()
    for job, count in connection.execute(select(components.c.job, func.count()).group_by(components.c.job)):
        starts[job] = count
    entries = {
        row[0]: (row[1], row[2])
        for row in connection.execute(
            select(journal.c.job, func.count(), func.sum(func.length(journal.c.body))).group_by(journal.c.job)
        )
    }
    columns = (jobs.c.id, jobs.c.owner, jobs.c.name, jobs.c.state, jobs.c.submitted_at, jobs.c.request_key)
    return [
        JobSize(
            job=row.id,
            owner=row.owner,
            name=row.name,
            state=row.state,
            submitted_at=row.submitted_at,
            request=requests.get(row.request_key, 0),
            components=starts[row.id],
            entries=entries.get(row.id, (0, 0))[0],
            journal=int(entries.get(row.id, (0, 0))[1]),
        )
        for row in connection.execute(select(*columns).order_by(jobs.c.id.desc()))
    ]


def _texts_of(body: str) -> list[str]:
    """Return the keys of a request's texts; none for a damaged request, which must be visible and removable."""
    try:
        return decode_body(body).texts
    except ValueError:
        return []


def _lengths(table: Table) -> Any:
    return select(table.c.key, func.length(table.c.body).label("size"))


# ---------------------------------------------------------------------------------------------------- removal


def remove_job(connection: Connection, job: JobId) -> None:
    """Delete all rows of a job, its commands that are still to be performed, and the requests that only it made.

    Journal entries about files stay, without a job, because other jobs may share the transfer.
    """
    journal, outbox, jobs = tables.journal, tables.outbox, tables.jobs
    of_files = journal.c.what.in_(("StartTransfer", "CancelTransfer", "TransferEnded"))
    of_job = select(journal.c.seq).where(journal.c.job == job)
    asked = connection.execute(select(jobs.c.request_key).where(jobs.c.id == job)).scalars().all()
    told = connection.execute(select(journal.c.request_key).where(journal.c.job == job)).scalars().all()
    connection.execute(delete(outbox).where(outbox.c.seq.in_(of_job.where(~of_files))))
    _forget_transfers_to_start(connection, job)
    connection.execute(delete(journal).where(journal.c.job == job, ~of_files))
    connection.execute(update(journal).where(journal.c.job == job).values(job=None, owner=None))
    connection.execute(delete(tables.components).where(tables.components.c.job == job))
    _remove_from_transfers(connection, job)
    connection.execute(delete(jobs).where(jobs.c.id == job))
    for key in {key for key in (*asked, *told) if key is not None}:
        _remove_request(connection, key)


def _forget_transfers_to_start(connection: Connection, job: JobId) -> None:
    """Delete the commands to start transfers that are for this job alone."""
    shared = tables.transfer_jobs
    its = {row.id: row for row in queries.transfers(connection, job)}
    others = select(shared.c.transfer).where(shared.c.transfer.in_(its), shared.c.job != job)
    transfers = its.keys() - set(connection.scalars(others))
    journal, outbox = tables.journal, tables.outbox
    found = connection.execute(
        select(journal.c.seq, journal.c.body)
        .join(outbox, outbox.c.seq == journal.c.seq)
        .where(journal.c.job == job, journal.c.what == "StartTransfer")
    ).all()
    for seq, body in found:
        command: StartTransfer = BODY["command"].decode(body)
        if command.transfer in transfers:
            connection.execute(delete(outbox).where(outbox.c.seq == seq))


def _remove_from_transfers(connection: Connection, job: JobId) -> None:
    table, shared = tables.transfers, tables.transfer_jobs
    rows = queries.transfers(connection, job)
    connection.execute(delete(shared).where(shared.c.job == job))
    for row in rows:
        others = tuple(each for each in row.jobs if each != job)
        left = connection.scalar(select(func.count()).where(shared.c.transfer == row.id))
        if left:
            connection.execute(update(table).where(table.c.id == row.id).values(jobs=others))
        else:
            connection.execute(delete(table).where(table.c.id == row.id))


def _remove_request(connection: Connection, key: str) -> None:
    """Delete a request that no other job made, and each of its texts that no other request contains."""
    requests, texts = tables.requests, tables.texts
    for table in (tables.jobs, tables.journal):
        if connection.execute(select(table.c.request_key).where(table.c.request_key == key).limit(1)).first():
            return
    body: str | None = connection.scalar(select(requests.c.body).where(requests.c.key == key))
    if body is None:
        return
    connection.execute(delete(requests).where(requests.c.key == key))
    for text in _texts_of(body):
        others = select(requests.c.key).where(requests.c.body.like(f"%{text}%")).limit(1)
        if connection.execute(others).first() is None:
            connection.execute(delete(texts).where(texts.c.key == text))


# ----------------------------------------------------------------------------------------------------- export


def exported(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield everything but access tokens, one value for each row, under the name of its kind. Rows that others refer
    to come first."""
    yield from _plain(connection, "text", tables.texts)
    yield from _plain(connection, "request", tables.requests, parsed="body")
    for kind, table in (
        ("job", tables.jobs),
        ("component", tables.components),
        ("transfer", tables.transfers),
        ("file", tables.files),
    ):
        yield from _plain(connection, kind, table)
    yield from _plain(connection, "entry", tables.journal, parsed="body")
    yield from _plain(connection, "record", tables.records, parsed="body")
    yield from _plain(connection, "damaged_record", tables.damaged_records)


def _plain(connection: Connection, kind: str, table: Table, *, parsed: str = "") -> Iterator[dict[str, Any]]:
    order = list(table.primary_key.columns)
    statement = select(table).order_by(*order)
    for row in connection.execute(statement, execution_options={"yield_per": ROWS_AT_ONCE}):
        values = msgspec.to_builtins(dict(row._mapping))
        if parsed:
            values[parsed] = json.loads(values[parsed])
        yield {kind: values}
