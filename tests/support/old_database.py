"""A database that the last Koala with revision 0001 of the schema wrote, and what that Koala read from it.

It has jobs that are done, failed, cancelled, running, starting, waiting, and one in the state that was then called
releasing; a snapshot with entries after it, commands to perform, files, a transfer and a token.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from koala.store.migrate import MIGRATIONS
from tests.support.paths import ROOT

HERE = ROOT / "tests" / "store" / "revision_0001"


def rows_of_the_old() -> dict[str, Any]:
    """What was on record, table by table, with the state by its name of today."""
    found: dict[str, Any] = json.loads((HERE / "rows.json").read_text())
    for job in found["jobs"]:
        if job["state"] == "releasing":
            job["state"] = "unwinding"
    return found


def write_old_database(url: str) -> None:
    """Put it into an empty database of either kind."""
    if url.startswith("sqlite:///"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.executescript((HERE / "koala.sql").read_text())
        file.close()
        return
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        _copy_rows(connection)
    engine.dispose()


def write_old_file(path: Path) -> None:
    """The same as a file of SQLite."""
    write_old_database(f"sqlite:///{path}")


def _copy_rows(target: sa.Connection) -> None:
    tables = sa.MetaData()
    tables.reflect(target)
    source = sqlite3.connect(":memory:")
    source.executescript((HERE / "koala.sql").read_text())
    source.row_factory = sqlite3.Row
    for table in tables.sorted_tables:
        if table.name != "koala_schema":
            rows = [dict(row) for row in source.execute(f'SELECT * FROM "{table.name}"')]  # noqa: S608
            if rows:
                target.execute(sa.insert(table), rows)
    source.close()
