"""Brings a database to the schema that this Koala works with, in one transaction: all of it or nothing.

The steps are Alembic revisions in ``migrations/versions``, which are part of the package.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from koala.store.errors import StoreError

VERSION_TABLE = "koala_schema"
MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(connection: Connection, database: str) -> None:
    """Run the revisions that the database has not seen. The caller's transaction holds them all.

    Raises ``StoreError`` for a database of a newer Koala, and changes nothing there.
    """
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
        command.upgrade(config, "head")
