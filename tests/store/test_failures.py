"""When the database fails: nothing of a batch is kept, the error says what to do, and the store works again after."""

from __future__ import annotations

import re
import resource
import shutil
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from koala.files import CatalogueEntry
from koala.store import Batch, Store, StoreError
from koala.store import database as databases
from tests.support.postgres_server import PostgresServer
from tests.support.store_samples import (
    OpenStore,
    component_row,
    file_entry,
    job_row,
    numbered_batch,
    submitted,
    tick,
    token_row,
)
from tests.support.whole_batches import check_whole

WAIT_S = 120.0
ONCE = "submitted once"


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second daemon gives up soon."""
    monkeypatch.setattr(databases, "LOCK_TIMEOUT_S", 1)


def has_batches(store: Store, last: int) -> None:
    assert check_whole(store) == last


# ------------------------------------------------------------------------------------------ failed batches


def test_a_batch_that_fails_at_its_last_row_leaves_nothing(store: Store) -> None:
    store.record(numbered_batch(1))
    whole = numbered_batch(2)
    too_large = CatalogueEntry(
        name="large", size_bytes=2**63, checksum="0" * 64, replicas=file_entry("x", "delft").replicas
    )
    with pytest.raises(StoreError, match="cannot record a batch"):
        store.record(
            Batch(
                entries=whole.entries,
                outbox=whole.outbox,
                settled=whole.settled,
                jobs=whole.jobs,
                components=whole.components,
                transfers=whole.transfers,
                files=(*whole.files, too_large),
            )
        )
    has_batches(store, 1)
    store.record(whole)
    has_batches(store, 2)


def test_a_client_token_is_not_given_to_a_second_job(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot record a batch"):
        store.record(Batch(jobs=(job_row(1, client_token=ONCE), job_row(2, client_token=ONCE))))
    assert store.jobs() == []


def test_an_entry_is_not_recorded_twice(store: Store) -> None:
    store.record(Batch(entries=(tick(1),)))
    with pytest.raises(StoreError, match="cannot record a batch"):
        store.record(Batch(entries=(tick(1),), jobs=(job_row(1),)))
    assert store.jobs() == []


def test_a_command_that_is_not_on_record_cannot_be_in_the_outbox(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot record a batch"):
        store.record(Batch(entries=(tick(1),), outbox=(2,)))
    assert store.journal() == []


def test_a_token_is_not_added_twice(store: Store) -> None:
    store.add_token(token_row("k1"))
    with pytest.raises(StoreError, match="cannot add a token"):
        store.add_token(token_row("k1", secret_hash=ONCE))
    with pytest.raises(StoreError, match="cannot add a token"):
        store.add_token(token_row("k2", secret_hash=token_row("k1").secret_hash))
    assert store.tokens() == [token_row("k1")]


def test_a_full_disk_loses_the_batch_and_nothing_else(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "koala.db")
    store.record(numbered_batch(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size_bytes = (tmp_path / "koala.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 100, hard))
    try:
        with pytest.raises(
            StoreError, match=r"cannot record a batch: .*; (its disk fails, or is full|free some space)"
        ):
            store.record(numbered_batch(2))
        has_batches(store, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.record(numbered_batch(2))
    has_batches(store, 2)
    store.close()


def test_a_file_that_was_removed_or_replaced_takes_nothing_more(tmp_path: Path, open_store: OpenStore) -> None:
    file = tmp_path / "koala.db"
    store = open_store(file)
    store.record(numbered_batch(1))
    away = file.rename(tmp_path / "away.db")
    with pytest.raises(StoreError, match="No such file"):
        store.record(numbered_batch(2))
    file.write_bytes(b"")
    with pytest.raises(StoreError, match="another file was put in its place"):
        store.record(numbered_batch(2))
    with pytest.raises(StoreError, match="another file was put in its place"):
        store.check()
    away.replace(file)
    store.check()
    store.record(numbered_batch(2))
    has_batches(store, 2)


def test_a_damaged_row_is_an_error_that_says_so(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "koala.db")
    store.record(Batch(jobs=(job_row(1),), entries=(submitted(1, 1),), outbox=(1,)))
    store.close()
    with sqlite3.connect(tmp_path / "koala.db") as connection:
        connection.execute("UPDATE jobs SET places = '{}'")
        connection.execute("UPDATE requests SET body = '{}'")
        connection.execute("UPDATE journal SET body = x'ff'")
    connection.close()
    store = open_store(tmp_path / "koala.db")
    for reading in (lambda: store.job(1), lambda: store.request(1), store.journal, store.recover):
        with pytest.raises(
            StoreError, match=r"a row is not as Koala wrote it .*; restore the database from a backup"
        ):
            reading()
    store.close()


# ------------------------------------------------------------------------------------------------- closing


def test_a_closed_store_says_that_it_is_closed(store: Store) -> None:
    store.close()
    store.close()
    for call in (store.counts, store.recover, lambda: store.record(Batch(entries=(tick(1),)))):
        with pytest.raises(StoreError, match="the store is closed; open it again"):
            call()


@pytest.mark.usefixtures("short_waits")
def test_a_second_daemon_is_refused_until_the_first_has_gone(store: Store, url: str, open_store: OpenStore) -> None:
    with pytest.raises(StoreError, match="another Koala daemon uses it; stop that one first") as refused:
        Store.open(url)
    assert refused.value.for_user().startswith("database ")
    store.record(numbered_batch(1))
    store.close()
    second = open_store(url)
    has_batches(second, 1)
    second.close()


def test_two_ways_to_one_file_meet_at_one_lock(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "koala.db")
    (tmp_path / "link.db").symlink_to("koala.db")
    with pytest.raises(StoreError, match="another Koala daemon uses it"):
        Store.open(tmp_path / "link.db")
    store.close()


def test_the_files_are_readable_by_their_owner_only(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "koala.db")
    store.record(numbered_batch(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["koala.db", "koala.db-shm", "koala.db-wal", "koala.db.lock"], 0o600)
    store.close()


# ------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize("name", ["with space", "100%", "quest?ion", "ünï", "a#b"])
def test_a_path_may_have_any_characters(tmp_path: Path, name: str, open_store: OpenStore) -> None:
    folder = tmp_path / name
    folder.mkdir()
    store = open_store(folder / "koala.db")
    store.record(numbered_batch(1))
    store.close()
    assert (folder / "koala.db").is_file()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "this is not the address of a database; write sqlite:///PATH or postgresql://"),
        ("mysql://root@host/koala", "'mysql' is not a kind of database that Koala knows; write sqlite:///PATH or"),
        ("sqlite://", "SQLite keeps the store in a file; write sqlite:///PATH"),
        ("sqlite:///:memory:", "SQLite keeps the store in a file; write sqlite:///PATH"),
        ("postgresql://u@host:port/x", "this is not the address of a database"),
        ("sqlite:////nonexistent/folder/koala.db", "cannot open it: .*; check the file and its disk"),
        ("postgresql://u:geheim@/x?host=/nonexistent", "check that the server runs and can be reached"),
    ],
)
def test_an_address_that_cannot_be_used_gets_advice(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as refused:
        Store.open(url)
    assert "geheim" not in refused.value.for_user()
    assert "\n" not in refused.value.for_user()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader, " * 1_000)
    with pytest.raises(StoreError, match="it is another kind of file; name a new one"):
        Store.open(path)
    assert path.read_text() == "dear reader, " * 1_000


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Is a directory"):
        Store.open(tmp_path)


def test_without_its_library_postgresql_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=re.escape("install koala-scheduler[postgres]")):
        Store.open("postgresql://koala@localhost/koala")


@pytest.mark.parametrize("change", [{"database": "missing"}, {"username": "stranger"}])
def test_a_missing_database_or_user_is_named(server: PostgresServer, change: dict[str, str]) -> None:
    url: URL = make_url(server.new_database()).set(**change)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="does not exist; create it, or correct its name in the URL"):
        Store.open(url.render_as_string(hide_password=False))


def test_a_database_with_tables_of_another_program_is_left_alone(server: PostgresServer) -> None:
    url = server.new_database()
    name = str(make_url(url).database)
    server.execute("CREATE TABLE jobs (theirs int)", name)
    with pytest.raises(StoreError, match="it holds tables of another program; name an empty database"):
        Store.open(url)
    assert server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", name) == "1"


# ------------------------------------------------------------------------------------------- server failures


@pytest.fixture
def stopping(server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    yield server
    if not server.running:
        server.start()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_store_works_again_when_the_server_is_back(
    stopping: PostgresServer, mode: str, open_store: OpenStore
) -> None:
    store = open_store(stopping.new_database())
    store.recover()
    store.record(numbered_batch(1))
    has_batches(store, 1)
    stopping.stop(mode)
    calls: tuple[Callable[[], object], ...] = (lambda: store.record(numbered_batch(2)), store.counts, store.recover)
    for call in calls:
        with pytest.raises(StoreError, match=r"cannot .*; check that the server runs and can be reached"):
            call()
    stopping.start()
    has_batches(store, 1)
    assert store.recover().last_seq == 3
    store.record(numbered_batch(2))
    has_batches(store, 2)
    store.close()


@pytest.mark.usefixtures("short_waits")
def test_who_lost_its_connection_must_recover_before_it_writes_after_another(
    stopping: PostgresServer, open_store: OpenStore
) -> None:
    url = stopping.new_database()
    first = open_store(url)
    first.recover()
    first.record(numbered_batch(1))
    stopping.stop()
    stopping.start()
    second = open_store(url)
    second.record(numbered_batch(2))
    with pytest.raises(StoreError, match=r"server|connection|terminat"):
        first.record(numbered_batch(2))
    with pytest.raises(StoreError, match="another Koala daemon uses it"):
        first.record(numbered_batch(2))
    second.close()
    with pytest.raises(StoreError, match="its journal ends at 6 and not at 3; recover first"):
        first.record(Batch(components=(component_row("stale"),)))
    assert first.recover().last_seq == 6
    first.record(numbered_batch(3))
    has_batches(first, 3)
    first.close()


def test_acknowledged_batches_survive_the_killing_of_a_servers_process(
    stopping: PostgresServer, open_store: OpenStore
) -> None:
    url = stopping.new_database()
    store = open_store(url)
    store.recover()
    acknowledged: list[int] = []
    failures: list[StoreError] = []
    stop = threading.Event()

    def record_on() -> None:
        number = 0
        while not stop.is_set():
            try:
                store.record(numbered_batch(number + 1))
                number += 1
                acknowledged.append(number)
            except StoreError as error:
                failures.append(error)
                number = recovered_job(store)

    recorder = threading.Thread(target=record_on)
    recorder.start()
    try:
        until(lambda: len(acknowledged) > 20)
        killed_after = acknowledged[-1]
        stopping.kill_backends(str(make_url(url).database))
        until(lambda: bool(failures) and acknowledged[-1] > killed_after + 20)
    finally:
        stop.set()
        recorder.join(WAIT_S)
    assert sorted(set(acknowledged)) == acknowledged
    assert check_whole(store) >= acknowledged[-1]
    store.close()


def recovered_job(store: Store) -> int:
    """The last job on record, once the server answers again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return store.recover().last_job
        except StoreError:
            assert time.monotonic() < deadline, "the server did not come back"
            time.sleep(0.05)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_copy_of_the_files_of_a_running_store_can_be_opened(tmp_path: Path, open_store: OpenStore) -> None:
    """As after a loss of power: what was acknowledged is in the files, though nobody has closed them."""
    store = open_store(tmp_path / "koala.db")
    for number in range(1, 6):
        store.record(numbered_batch(number))
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("koala.db*"):
        shutil.copy(path, tmp_path / "copy")
    copy = open_store(tmp_path / "copy" / "koala.db")
    has_batches(copy, 5)
    copy.close()
    store.close()


def test_a_database_whose_encoding_cannot_hold_every_text_is_refused(server: PostgresServer) -> None:
    server.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    with pytest.raises(StoreError, match="its encoding LATIN1 cannot hold every text; create it again with ENCODING"):
        Store.open(server.url("latin"))
