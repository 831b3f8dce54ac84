"""Many threads: readers see whole batches only, and every question finds its rows by an index."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text

from koala.store import Batch, Store, StoreError
from koala.store.schema import metadata
from tests.support.postgres_server import PostgresServer
from tests.support.store_samples import (
    OpenStore,
    component_row,
    file_entry,
    job_row,
    numbered_batch,
    reported,
    tick,
    token_row,
)

BATCHES = 60
READERS = 4


def test_no_reader_sees_half_of_a_batch(store: Store) -> None:
    """Each batch gives two jobs, two files and a component the same number; one entry more goes to the journal."""

    def batch(number: int) -> Batch:
        state = ["waiting", "running"][number % 2]
        return Batch(
            entries=(reported(2 * number + 1, "delft", number), reported(2 * number + 2, "delft", number)),
            jobs=(job_row(1, state=state, runs=number), job_row(2, state=state, runs=number)),
            files=(file_entry("a", f"site{number}"), file_entry("b", f"site{number}")),
        )

    began = threading.Barrier(READERS + 1)

    def read_on() -> int:
        seen: set[int] = set()
        while True:
            first, second = store.jobs()
            assert first.runs == second.runs
            assert list(store.counts().values()) == [2]
            a, b = store.all_files()
            assert a.sites == b.sites
            assert len(store.journal(limit=9 * BATCHES)) % 2 == 0
            assert len(store.site_reports("delft", -1.0, 9.0 * BATCHES)) % 2 == 0
            if not seen:
                began.wait(120)
            seen.add(first.runs)
            if first.runs == BATCHES:
                return len(seen)

    store.record(batch(0))
    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read_on) for _ in range(READERS)]
        began.wait(120)
        for number in range(1, BATCHES + 1):
            store.record(batch(number))
        # Each was there before the batches came, and read until the last was there.
        assert all(reader.result(timeout=120) for reader in readers)


def test_writers_in_many_threads_take_turns(store: Store) -> None:
    with ThreadPoolExecutor(READERS) as pool:
        writes = [pool.submit(store.record, Batch(jobs=(job_row(number),))) for number in range(1, 41)]
        writes += [pool.submit(store.add_token, token_row(f"k{number}")) for number in range(20)]
        for write in writes:
            write.result(timeout=120)
    assert len(store.jobs()) == 40
    assert len(store.tokens()) == 20


def test_a_store_that_is_closed_while_somebody_reads_leaves_no_connection_behind(
    server: PostgresServer, open_store: OpenStore
) -> None:
    """What is in use when connections are closed would go back to nobody, and stay open until it is collected."""
    url = server.new_database()
    store = open_store(url)
    blocker = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'koala'"
    connections, waiting = text(ours), text(f"{ours} AND wait_event_type = 'Lock'")
    watcher = blocker.connect().execution_options(isolation_level="AUTOCOMMIT")
    with watcher, blocker.connect() as other, ThreadPoolExecutor(2) as pool:
        with other.begin():
            other.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
            reader = pool.submit(store.jobs)
            wait_until(lambda: watcher.scalar(waiting) == 1)
            closer = pool.submit(store.close)
            wait_until(lambda: is_closed(store))
        assert reader.result(timeout=120) == []
        closer.result(timeout=120)
        wait_until(lambda: watcher.scalar(connections) == 0)
    blocker.dispose()


def is_closed(store: Store) -> bool:
    try:
        store.tokens()
    except StoreError:
        return True
    return False


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


QUESTIONS: dict[str, Callable[[Store], object]] = {
    "job": lambda store: store.job(5),
    "jobs": lambda store: store.jobs(before=9),
    "jobs of an owner": lambda store: store.jobs(owner="ann"),
    "jobs in states": lambda store: store.jobs(states=["done", "waiting"]),
    "jobs of an owner in states": lambda store: store.jobs(owner="ann", states=["done", "waiting"], before=9),
    "job by client token": lambda store: store.job_by_client_token("ann", "x"),
    "components": lambda store: store.components(5),
    "component": lambda store: store.component("5.1"),
    "processors held at a site": lambda store: store.held_processors("delft", 1.0, 2.0),
    "ended lately": lambda store: store.ended_lately(1.0),
    "ended lately at a site": lambda store: store.ended_lately(1.0, site="delft", owner="ann"),
    "ended components": lambda store: store.ended_components(9.0, 9),
    "ended components, counted": lambda store: store.ended_components_count(),
    "transfers": lambda store: store.transfers(5),
    "files": lambda store: store.files(after="b", prefix="b"),
    "file": lambda store: store.file("b"),
    "journal": lambda store: store.journal(after=5),
    "journal of a job": lambda store: store.journal(job=5),
    "story of a job": lambda store: store.story(5, ["StartComponent", "JobSubmitted"]),
    "journal of an owner": lambda store: store.journal(owner="ann", after=5),
    "reports": lambda store: store.site_reports("delft", 1.0, 2.0),
    "token": lambda store: store.token_by_hash("x"),
}


def test_every_question_is_answered_by_an_index(store: Store, subtests: pytest.Subtests) -> None:
    """One database for all of them: to make and fill it takes longer than to ask."""
    for number in range(1, 6):
        store.record(numbered_batch(number))
    store.record(Batch(entries=(tick(99),), components=(component_row("e", ended_at=1.0),)))
    engine = store._database.engine
    is_sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        if not is_sqlite:
            connection.execute(text("SET enable_seqscan = off"))  # so small a table would be read as a whole
        for name, question in QUESTIONS.items():
            with subtests.test(name):
                statements = selected_by(store, question)
                assert statements
                for statement, parameters in statements:
                    explain = f"{'EXPLAIN QUERY PLAN' if is_sqlite else 'EXPLAIN'} {statement}"
                    for row in connection.exec_driver_sql(explain, parameters):
                        reads_by_an_index(str(row[-1]), statement)


def selected_by(store: Store, question: Callable[[Store], Any]) -> list[tuple[str, Any]]:
    """What a question asks the database for, and its parameters."""
    asked: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", note)
    question(store)
    event.remove(engine, "before_cursor_execute", note)
    return [(statement, parameters) for statement, parameters in asked if statement.startswith("SELECT")]


def reads_by_an_index(line: str, statement: str) -> None:
    """Fails for a line of a plan that reads a whole table."""
    words = line.split()
    whole_table = words[0] == "SCAN" and words[1] in metadata.tables and "USING" not in words
    assert not whole_table, f"{line}\n{statement}"
    assert "Seq Scan" not in line, f"{line}\n{statement}"
