"""Creates the tables of a new database, in one transaction: all of them or none.

There is one schema. Its version is a digest of the statements that create it, so that no change can go unnoticed. A
database of another version is refused; nothing here converts one.
"""

from __future__ import annotations

import functools
import hashlib

from sqlalchemy import (
    Column,
    Connection,
    ExecutableDDLElement,
    MetaData,
    String,
    Table,
    create_mock_engine,
    inspect,
    select,
)
from sqlalchemy.engine.mock import MockConnection

from koala.store.errors import StoreError
from koala.store.schema import metadata

VERSION_TABLE = "koala_schema"
_VERSION_CHARACTERS = 12

_version = Table(VERSION_TABLE, MetaData(), Column("version", String(_VERSION_CHARACTERS), primary_key=True))


def create_tables(connection: Connection, database: str) -> None:
    """Create the tables if there are none, in the caller's transaction.

    Raises ``StoreError`` for a database with the tables of another version of Koala, and changes nothing there.
    """
    look = inspect(connection)
    if not look.has_table(VERSION_TABLE):
        for statement in _statements(connection.engine.url.drivername):
            connection.exec_driver_sql(statement)
        connection.execute(_version.insert().values(version=schema_version()))
        return
    columns = {column["name"] for column in look.get_columns(VERSION_TABLE)}
    found = connection.scalars(select(_version.c.version)).all() if "version" in columns else ["of an older kind"]
    if found != [schema_version()]:
        raise StoreError(
            database,
            f"its schema is {', '.join(found) or 'not named'}, and that of this Koala is {schema_version()}; "
            "start the Koala that made it, or name another database",
        )


def schema_version() -> str:
    """Return the digest of the statements that create the tables in SQLite."""
    # The statements are sorted, because SQLAlchemy keeps the indexes of a table in a set.
    return hashlib.sha256("\n".join(sorted(_statements("sqlite"))).encode()).hexdigest()[:_VERSION_CHARACTERS]


@functools.cache
def _statements(driver: str) -> tuple[str, ...]:
    """Return the statements that create the tables. Compiling them takes longer than running them, and a process may
    open many databases."""
    found: list[str] = []

    def keep(made: ExecutableDDLElement, *_: object) -> None:
        found.append(str(made.compile(dialect=engine.dialect)))

    engine: MockConnection = create_mock_engine(f"{driver}://", keep)
    _version.create(engine, checkfirst=False)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)
