"""Shares SQLAlchemy's compiled statements among all SQLite databases of a process.

SQLAlchemy keeps compiled statements for each engine, which is enough for a daemon. Tests open hundreds of databases,
one after the other, and would have the same statements compiled for each. The import of this module turns it on.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite


class _SharedStatements(dict[Any, Any]):
    """Compiled statements by key, where only the kind of the key's first part, the engine's dialect, counts."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)


_STATEMENTS = _SharedStatements()


@event.listens_for(Engine, "engine_connect")
def _share(connection: Connection) -> None:
    if type(connection.dialect) is SQLiteDialect_pysqlite:
        connection.execution_options(compiled_cache=_STATEMENTS)
