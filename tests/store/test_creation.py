"""The tables: created whole or not at all, and never those of another version of Koala."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from sqlalchemy import inspect, text

from koala.store import Store, StoreError
from koala.store.creation import VERSION_TABLE, schema_version
from tests.support.past_the_store import engine_of, names_of_tables
from tests.support.paths import SUPPORT
from tests.support.store_samples import OpenStore, numbered_batch
from tests.support.warm_koala import start_koala
from tests.support.whole_batches import check_whole


@pytest.fixture
def url(empty_url: str) -> str:
    """These tests begin without tables."""
    return empty_url


def test_partial_indexes_are_partial(store: Store, url: str) -> None:
    engine = engine_of(url)
    found = {str(index["name"]): index.get("dialect_options", {}) for index in inspect(engine).get_indexes("journal")}
    engine.dispose()
    partial = {name for name, options in found.items() if any(key.endswith("_where") for key in options)}
    assert partial == {"ix_journal_job_seq", "ix_journal_site_at"}


def test_opening_again_changes_nothing(store: Store, url: str, open_store: OpenStore) -> None:
    store.record(numbered_batch(1))
    store.close()
    again = open_store(url)
    assert check_whole(again) == 1


def test_a_database_of_another_version_is_refused_and_left_alone(store: Store, url: str) -> None:
    store.record(numbered_batch(1))
    store.close()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version = 'another'"))  # noqa: S608
    words = f"its schema is another, and that of this Koala is {schema_version()}; start the Koala that made it"
    with pytest.raises(StoreError, match=words):
        Store.open(url)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version FROM {VERSION_TABLE}")) == "another"  # noqa: S608
        assert connection.scalar(text("SELECT count(*) FROM jobs")) == 1
    engine.dispose()


def test_a_database_with_numbered_revisions_is_refused(url: str) -> None:
    """As a migration tool kept them, in a table of the same name."""
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY)"))
    with pytest.raises(StoreError, match="its schema is of an older kind, and that of this Koala is"):
        Store.open(url)
    assert names_of_tables(url) == [VERSION_TABLE]
    engine.dispose()


def create_in_child(url: str, statement: int) -> subprocess.CompletedProcess[str]:
    """A child that is killed before this statement of the creation."""
    words = [url, str(statement)]
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors, Path(os.devnull).open("rb") as nothing:
        child = start_koala(
            words,
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=errors.fileno(),
            env=os.environ,
            program=SUPPORT / "creating_child.py",
        )
        code = child.wait(120)
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def test_a_new_schema_that_is_killed_leaves_all_or_nothing(url: str, open_store: OpenStore) -> None:
    """The same database is killed further and further on; at last it is opened."""
    for statement in (1, 8, 24):
        done = create_in_child(url, statement)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert names_of_tables(url) == []
    store = open_store(url)
    store.record(numbered_batch(1))
    assert check_whole(store) == 1
    store.close()


def test_opening_says_nothing(url: str) -> None:
    done = create_in_child(url, 0)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 24
