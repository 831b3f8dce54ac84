"""The records of the scheduler: rows that the store keeps without interpreting them.

Each function works in its caller's transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, and_, delete, insert, or_, select

from koala.store import schema as tables
from koala.store.columns import escaped
from koala.store.rows import DamagedRow, RecordRow

# The key of a longer name is its digest, because databases limit the size of an index entry.
KEY_CHARACTERS_MAX = 200


# Each batch writes records, so they bypass SQLAlchemy's parameters, which would double the cost.
_MARKS = {"sqlite": "?", "postgresql": "%s"}
_WRITE = (
    "INSERT INTO records (kind, key, name, body) VALUES ({0}, {0}, {0}, {0}) "
    "ON CONFLICT (kind, key) DO UPDATE SET name = excluded.name, body = excluded.body"
)
_FORGET = "DELETE FROM records WHERE kind = {0} AND key = {0}"


def write(connection: Connection, rows: Iterable[tuple[str, str, bytes | None]]) -> None:
    """Store these records, and delete those without a body."""
    kept, gone = [], []
    for kind, name, body in rows:
        key = key_of(name)
        if body is None:
            gone.append((str(kind), key))
        else:
            kept.append((str(kind), key, None if key == name else escaped(name), body.decode()))
    mark = _MARKS[connection.dialect.name]
    if kept:
        connection.exec_driver_sql(_WRITE.format(mark), kept)
    if gone:
        connection.exec_driver_sql(_FORGET.format(mark), gone)


def read(connection: Connection) -> list[RecordRow]:
    """Return all records."""
    return [
        RecordRow(row.kind, row.key if row.name is None else row.name, row.body.encode())
        for row in connection.execute(select(tables.records))
    ]


def rewrite(
    connection: Connection,
    rows: Iterable[tuple[str, str, bytes | None]],
    damaged: Sequence[tuple[str, str, str]],
    at: float,
) -> None:
    """Store these records and delete all others. The ``damaged`` ones (kind, key, problem) are set aside."""
    table, aside = tables.records, tables.damaged_records
    for kind, name, problem in damaged:
        its = and_(table.c.kind == str(kind), table.c.key == key_of(name))
        for row in connection.execute(select(table).where(its)).all():
            values = dict(row._mapping)
            connection.execute(delete(aside).where(aside.c.kind == values["kind"], aside.c.key == values["key"]))
            connection.execute(insert(aside), values | {"problem": problem, "at": at})
    connection.execute(delete(table))
    write(connection, rows)


def damaged_rows(connection: Connection) -> list[DamagedRow]:
    """Return the records that were set aside."""
    table = tables.damaged_records
    return [
        DamagedRow(
            kind=row.kind,
            key=row.key if row.name is None else row.name,
            body=row.body,
            problem=row.problem,
            at=row.at,
        )
        for row in connection.execute(select(table).order_by(table.c.at, table.c.kind, table.c.key))
    ]


def forget(connection: Connection, kind: str, name: str) -> int:
    """Remove one record, even one that was set aside; return how many there were."""
    return sum(
        connection.execute(delete(table).where(table.c.kind == kind, table.c.key == key_of(name))).rowcount
        for table in (tables.records, tables.damaged_records)
    )


def forget_job(connection: Connection, job: int, kinds: Collection[str]) -> None:
    """Remove the records of these kinds whose key is the number of the job, or begins with it."""
    for table in (tables.records, tables.damaged_records):
        of_job = or_(table.c.key == str(job), table.c.key.like(f"{job}.%"))
        connection.execute(delete(table).where(table.c.kind.in_(kinds), of_job))


def key_of(name: str) -> str:
    """Return the key of a record: the name itself if it is short."""
    plain = escaped(name)
    if plain == name and len(name) <= KEY_CHARACTERS_MAX:
        return name
    return f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
