"""The schema: the sum of its migrations, never half of it, and never one of a newer Koala."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

import koala
from koala.store import Store, StoreError
from koala.store.migrate import MIGRATIONS, REVISION, VERSION_TABLE, upgrade
from tests.support.old_database import rows_of_the_old, write_old_database, write_old_file
from tests.support.paths import SUPPORT
from tests.support.postgres_server import PostgresServer
from tests.support.schema_check import difference_from_tables, engine_of, whole_schema
from tests.support.store_samples import OpenStore, numbered_batch
from tests.support.warm_koala import start_koala
from tests.support.whole_batches import check_whole


@pytest.fixture
def url(empty_url: str) -> str:
    """These tests begin without tables."""
    return empty_url


def test_the_migrations_add_up_to_the_tables(url: str) -> None:
    migrate_from_nothing(url)
    assert difference_from_tables(url) == []


def test_a_new_database_is_as_the_migrations_would_have_made_it(tmp_path: Path, server: PostgresServer) -> None:
    for new, migrated in (
        (f"sqlite:///{tmp_path / 'new.db'}", f"sqlite:///{tmp_path / 'migrated.db'}"),
        (server.new_database(), server.new_database()),
    ):
        Store.open(new).close()
        migrate_from_nothing(migrated)
        assert whole_schema(new) == whole_schema(migrated)
        assert difference_from_tables(new) == []


def migrate_from_nothing(url: str) -> None:
    """Run every revision on an empty database."""
    engine = engine_of(url)
    with engine.begin() as connection:
        upgrade(connection, url)
    engine.dispose()


def test_partial_indexes_are_partial(url: str) -> None:
    """Alembic does not compare this."""
    migrate_from_nothing(url)
    engine = engine_of(url)
    found = {str(index["name"]): index.get("dialect_options", {}) for index in inspect(engine).get_indexes("journal")}
    engine.dispose()
    partial = {name for name, options in found.items() if any(key.endswith("_where") for key in options)}
    assert partial == {"ix_journal_job_seq", "ix_journal_site_at"}


def test_there_is_one_line_of_revisions() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert script.get_heads() == [script.get_current_head()] == [REVISION]
    assert script.get_bases() == ["0001"]


def test_opening_again_changes_nothing(store: Store, url: str, open_store: OpenStore) -> None:
    store.record(numbered_batch(1))
    store.close()
    again = open_store(url)
    assert check_whole(again) == 1


def test_a_database_of_a_newer_koala_is_refused_and_left_alone(store: Store, url: str) -> None:
    store.record(numbered_batch(1))
    store.close()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))  # noqa: S608
    with pytest.raises(
        StoreError, match=f"its schema is 9999 and this Koala knows those up to {REVISION}; a newer Koala has"
    ):
        Store.open(url)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == "9999"  # noqa: S608
        assert connection.scalar(text("SELECT count(*) FROM jobs")) == 1
    engine.dispose()


def migrate_in_child(url: str, statement: int) -> subprocess.CompletedProcess[str]:
    """A child that is killed before this statement of its migration."""
    words = [url, str(statement)]
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors, Path(os.devnull).open("rb") as nothing:
        child = start_koala(
            words,
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=errors.fileno(),
            env=os.environ,
            program=SUPPORT / "migrating_child.py",
        )
        code = child.wait(120)
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def test_a_new_schema_that_is_killed_leaves_all_or_nothing(url: str, open_store: OpenStore) -> None:
    """The same database is killed further and further on; at last it is opened."""
    for statement in (1, 8, 24):
        done = migrate_in_child(url, statement)
        assert done.returncode == -signal.SIGKILL, done.stderr
        engine = engine_of(url)
        assert inspect(engine).get_table_names() == []
        engine.dispose()
    store = open_store(url)
    store.record(numbered_batch(1))
    assert check_whole(store) == 1
    store.close()
    assert difference_from_tables(url) == []


def test_a_migration_that_is_killed_leaves_all_or_nothing(url: str, open_store: OpenStore) -> None:
    """So is a database of the Koala before, which stays what it was until it is what it shall be."""
    write_old_database(url)
    before = whole_schema(url)
    for statement in (1, 14, 26, 50, 80):
        done = migrate_in_child(url, statement)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert whole_schema(url) == before
    store = open_store(url)
    assert len(store.jobs()) == len(rows_of_the_old()["jobs"])
    store.close()
    assert difference_from_tables(url) == []


def test_opening_says_nothing(url: str) -> None:
    done = migrate_in_child(url, 0)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 24


def test_migrating_says_how_much_there_is_to_do_and_nothing_else(url: str) -> None:
    write_old_database(url)
    done = migrate_in_child(url, 0)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("bringing 82 rows of ")
    assert int(done.stdout) >= 80


def test_the_migrations_come_with_the_package(tmp_path: Path) -> None:
    """Installed elsewhere, under an awkward path and with no source tree around, it opens an old store."""
    home = tmp_path / "100% site packages"
    shutil.copytree(Path(koala.__file__).parent, home / "koala", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys, pathlib, koala; from koala.store import Store; "
        "assert pathlib.Path(koala.__file__).is_relative_to(sys.argv[1]); "
        "Store.open(pathlib.Path(sys.argv[2])).close()"
    )
    write_old_file(tmp_path / "koala.db")
    command = [sys.executable, "-c", code, str(home), str(tmp_path / "koala.db")]
    done = subprocess.run(
        command, cwd=home, env={"PYTHONPATH": str(home)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert difference_from_tables(f"sqlite:///{tmp_path / 'koala.db'}") == []
