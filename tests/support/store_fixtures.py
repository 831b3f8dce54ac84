"""Every test of the store runs on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.store import Store
from tests.support.postgres_server import PostgresServer, postgres_server
from tests.support.store_samples import OpenStore


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """One server for all tests of a process. A test that stops it starts it again."""
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'koala.db'}"
    server: PostgresServer = request.getfixturevalue("server")
    return server.new_database()


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens stores that are closed at the end, also when the test fails before."""
    with contextlib.ExitStack() as stack:

        def opening(url: str | Path) -> Store:
            opened = Store.open(url)
            stack.callback(opened.close)
            return opened

        yield opening


@pytest.fixture
def store(url: str, open_store: OpenStore) -> Store:
    """An open store with nothing in it."""
    return open_store(url)
