"""Databases for tests that must pass on each kind: files of SQLite, and a real PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer, shared_server


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PostgresServer:
    """Return one server for all tests of a process. A test that stops it starts it again."""
    return shared_server(request, tmp_path_factory)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'koala.db'}"
    running: PostgresServer = request.getfixturevalue("server")
    return running.opened_database()
