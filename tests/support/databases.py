"""Databases for tests that must hold on each kind: files of SQLite, and a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """One server for all tests of a process. A test that stops it starts it again."""
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'koala.db'}"
    running: PostgresServer = request.getfixturevalue("server")
    return running.new_database()
