"""Databases that the last Koala with a former revision of the schema wrote, and what that Koala read from them.

That of revision 0001 has jobs that are done, failed, cancelled, running, starting, waiting, and one in the state that
was then called releasing; a snapshot with entries after it, commands to perform, files, a transfer and a token. That
of revision 0002 has jobs with long scripts, some of them the same, and a job that came after the snapshot.
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

REVISIONS = ("0001", "0002")


def _of(revision: str) -> Path:
    return ROOT / "tests" / "store" / f"revision_{revision}"


def rows_of_the_old(revision: str = "0001") -> dict[str, Any]:
    """What was on record, table by table, with states and tables by their names of today."""
    found: dict[str, Any] = json.loads((_of(revision) / "rows.json").read_text())
    if "owed" in found:
        found["outbox"] = found.pop("owed")
    for job in found["jobs"]:
        if job["state"] == "releasing":
            job["state"] = "unwinding"
        job |= {"array": None, "array_index": None, "elements": None}
        job |= {"gained_processor_s": 0.0, "wasted_processor_s": 0.0, "gpu_s": 0.0}
    for components in found["components"].values():
        for component in components:
            component["keep_for_s"] = None
    return found


def write_old_database(url: str, revision: str = "0001") -> None:
    """Put one into an empty database of either kind."""
    if url.startswith("sqlite:///"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.executescript((_of(revision) / "koala.sql").read_text())
        file.close()
        return
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        _copy_rows(connection, revision)
    engine.dispose()


def write_old_file(path: Path, revision: str = "0001") -> None:
    """The same as a file of SQLite."""
    write_old_database(f"sqlite:///{path}", revision)


def _copy_rows(target: sa.Connection, revision: str) -> None:
    tables = sa.MetaData()
    tables.reflect(target)
    source = sqlite3.connect(":memory:")
    source.executescript((_of(revision) / "koala.sql").read_text())
    source.row_factory = sqlite3.Row
    for table in tables.sorted_tables:
        if table.name != "koala_schema":
            rows = [dict(row) for row in source.execute(f'SELECT * FROM "{table.name}"')]  # noqa: S608
            if rows:
                target.execute(sa.insert(table), rows)
    source.close()
