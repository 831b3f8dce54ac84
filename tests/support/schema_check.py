"""A look into a store's database past the store: with SQL, and at its schema."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine

from koala.store.migrate import VERSION_TABLE
from koala.store.schema import metadata


def engine_of(url: str) -> Engine:
    """A connection of one's own to the database at a store's address."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def difference_from_tables(url: str) -> list[object]:
    """What Alembic would change so that the database has the tables of the code."""
    engine = engine_of(url)
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        found: list[object] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return found
