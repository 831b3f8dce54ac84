"""A look into a store's database past the store: with SQL, and at its schema."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, text

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


def whole_schema(url: str) -> dict[str, object]:
    """Every table with its columns, keys and indexes, and the revision that the database says it has."""
    engine = engine_of(url)
    found: dict[str, object] = {}
    look = inspect(engine)
    for table in look.get_table_names():
        columns = [
            {**column, "type": repr(column["type"])}
            for column in sorted(look.get_columns(table), key=lambda column: column["name"])
        ]
        indexes = sorted(
            str({**index, "dialect_options": {name: str(value) for name, value in options.items()}})
            for index in look.get_indexes(table)
            for options in [index.get("dialect_options", {})]
        )
        keys = (look.get_pk_constraint(table), sorted(map(str, look.get_foreign_keys(table))))
        found[table] = (columns, indexes, keys, sorted(map(str, look.get_unique_constraints(table))))
    with engine.connect() as connection:
        found["revision"] = list(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars())  # noqa: S608
    engine.dispose()
    return found
