"""A look into a store's database past the store."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine, inspect


def engine_of(url: str) -> Engine:
    """A connection of one's own to the database at a store's address."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def names_of_tables(url: str) -> list[str]:
    """The tables that are there."""
    engine = engine_of(url)
    names = inspect(engine).get_table_names()
    engine.dispose()
    return sorted(names)
