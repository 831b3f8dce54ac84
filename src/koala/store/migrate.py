"""Brings a database to the schema that this Koala works with, in one transaction: all of it or nothing.

A new database gets the tables of today at once. One of an earlier Koala goes through the Alembic revisions in
``migrations/versions``, which are part of the package; Alembic is imported only then.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    ExecutableDDLElement,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_mock_engine,
    func,
    inspect,
    select,
    table,
)
from sqlalchemy.engine.mock import MockConnection

from koala.store.errors import StoreError
from koala.store.schema import metadata

_log = logging.getLogger(__name__)

VERSION_TABLE = "koala_schema"
MIGRATIONS = Path(__file__).parent / "migrations"
# The newest revision: their files are named for them.
REVISION = max(path.name[1:5] for path in (MIGRATIONS / "versions").glob("r*.py"))

# As Alembic makes it.
_version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def migrate(connection: Connection, database: str) -> None:
    """Create the tables, or run the revisions that the database has not seen. The caller's transaction holds them
    all.

    Raises ``StoreError`` for a database of a newer Koala, and changes nothing there.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        for statement in _statements_of_today(connection.engine.url.drivername):
            connection.exec_driver_sql(statement)
        connection.execute(_version.insert().values(version_num=REVISION))
    elif connection.scalars(select(_version.c.version_num)).all() != [REVISION]:
        upgrade(connection, database)


@functools.cache
def _statements_of_today(driver: str) -> tuple[str, ...]:
    """What makes the tables in an empty database. To compile them takes longer than to run them, so that a process
    which opens many databases does it once."""
    found: list[str] = []

    def keep(made: ExecutableDDLElement, *_: object) -> None:
        found.append(str(made.compile(dialect=engine.dialect)))

    engine: MockConnection = create_mock_engine(f"{driver}://", keep)
    _version.create(engine, checkfirst=False)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)


def upgrade(connection: Connection, database: str) -> None:
    """Run the revisions that the database has not seen, from the first one on where it is empty."""
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    script = ScriptDirectory.from_config(config)
    known = {revision.revision for revision in script.walk_revisions()}
    found = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads()
    if not known.issuperset(found):
        raise StoreError(
            database,
            f"its schema is {', '.join(found)} and this Koala knows those up to {script.get_current_head()}; "
            "a newer Koala has used it, so install that one again, or name another database",
        )
    if found != (script.get_current_head(),):
        if found:
            _log.warning(
                "bringing %d rows of %s up to date, from revision %s of its schema to %s; this may take a while",
                _rows(connection),
                database,
                ", ".join(found),
                script.get_current_head(),
            )
        command.upgrade(config, "head")


def _rows(connection: Connection) -> int:
    names = inspect(connection).get_table_names()
    return sum(connection.scalar(select(func.count()).select_from(table(name))) or 0 for name in names)
