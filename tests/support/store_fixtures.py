"""Fixtures that run every test of the store on SQLite and on a real PostgreSQL server, by the fixture of
``databases``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.store import Store
from tests.support.postgres_server import PostgresServer
from tests.support.store_samples import OpenStore


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, which a store may have opened before."""
    if request.param == "sqlite":
        return _file(tmp_path)
    server: PostgresServer = request.getfixturevalue("server")
    return server.opened_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a database without tables."""
    if request.param == "sqlite":
        return _file(tmp_path)
    server: PostgresServer = request.getfixturevalue("server")
    return server.new_database()


def _file(directory: Path) -> str:
    return f"sqlite:///{directory / 'koala.db'}"


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Open stores that are closed at the end, even if the test fails before."""
    with contextlib.ExitStack() as stack:

        def opening(url: str | Path) -> Store:
            opened = Store.open(url)
            stack.callback(opened.close)
            return opened

        yield opening


@pytest.fixture
def store(url: str, open_store: OpenStore) -> Store:
    """Return an open, empty store."""
    return open_store(url)
