"""Direct access to a store's database."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine, inspect


def engine_of(url: str) -> Engine:
    """Return a separate connection to the database at a store's address."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def names_of_tables(url: str) -> list[str]:
    """Return the names of the existing tables."""
    engine = engine_of(url)
    names = inspect(engine).get_table_names()
    engine.dispose()
    return sorted(names)
