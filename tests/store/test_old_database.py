"""A database of the Koala before opens with everything that is in it, and can be read without Koala."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from sqlalchemy import event, text

from koala.store import NUMBER_MAX
from koala.store.migrate import migrate
from tests.support.old_database import REVISIONS, rows_of_the_old, write_old_database
from tests.support.schema_check import difference_from_tables, engine_of
from tests.support.store_samples import OpenStore


@pytest.fixture
def url(empty_url: str) -> str:
    """These tests begin without tables."""
    return empty_url


def plain(rows: Any) -> Any:
    """Rows as they would be in a file."""
    return json.loads(json.dumps(msgspec.to_builtins(rows)))


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_a_koala_before_opens_with_all_that_is_in_it(
    url: str, open_store: OpenStore, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_old_database(url, revision)
    caplog.set_level("WARNING")
    store = open_store(url)
    assert [record.getMessage() for record in caplog.records if "rows of" in record.getMessage()]
    old = rows_of_the_old(revision)
    numbers = [job["id"] for job in old["jobs"]]
    jobs = [row | {"request": plain(store.request(row["id"]))} for row in plain(store.jobs())]
    assert jobs == old["jobs"]
    assert {str(number): plain(store.components(number)) for number in numbers} == old["components"]
    assert {str(number): plain(store.transfers(number)) for number in numbers} == old["transfers"]
    assert plain(store.all_files()) == old["files"]
    assert [plain(store.file(file["name"])) for file in old["files"]] == old["files"]
    assert plain(store.journal(limit=NUMBER_MAX)) == old["journal"]
    assert plain(store.journal(limit=NUMBER_MAX, owner="anna", job=1)) == [
        entry for entry in old["journal"] if entry["job"] == 1
    ]
    assert plain(store.tokens()) == old["tokens"]
    token = old["tokens"][0]
    assert plain(store.token_by_hash(token["secret_hash"])) == token
    found = store.job_by_client_token("anna", "once")
    assert found is not None
    (once,) = [job["id"] for job in old["jobs"] if job["client_token"] == "once"]  # noqa: S105
    assert found.id == once
    recovered = store.recover()
    assert [entry.seq for entry in recovered.outbox] == old["outbox"]
    assert recovered.snapshot is not None
    assert recovered.snapshot.whole
    assert set(json.loads(recovered.snapshot.header)) == {"grid", "core"}
    store.close()
    assert difference_from_tables(url) == []


def test_an_operator_reads_the_text_in_the_tables(url: str, open_store: OpenStore) -> None:
    write_old_database(url)
    open_store(url).close()
    engine = engine_of(url)
    with engine.connect() as connection:
        job = connection.execute(
            text("SELECT owner, name, state, places, body FROM jobs JOIN requests ON key = request_key WHERE id = 1")
        ).one()
        note = connection.scalar(text("SELECT note FROM tokens"))
        file = connection.scalar(text("SELECT name FROM files WHERE name LIKE 'donn%'"))
        snapshot = connection.scalar(text("SELECT body FROM snapshot"))
    engine.dispose()
    assert tuple(job)[:4] == ("anna", "done é漢😀 back\\\\slash", "done", '[["a",1],["b",1]]')
    assert '"components":[{"processors":1,' in job.body
    assert note == r"laptop é \udc80\u0000\\"
    assert file == r"données/\u0000"
    assert isinstance(snapshot, str)


def test_many_rows_are_brought_over_in_few_statements(url: str) -> None:
    write_old_database(url)
    engine = engine_of(url)
    with engine.begin() as connection:
        copied = "SELECT seq - :shift, at, kind, what, job, site, owner, body FROM journal WHERE seq = 1"
        copy = f"INSERT INTO journal (seq, at, kind, what, job, site, owner, body) {copied}"
        connection.execute(text(copy), [{"shift": number} for number in range(1, 2_001)])
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *found: statements.append(found[2]))
    with engine.begin() as connection:
        migrate(connection, url)
        assert connection.scalar(text("SELECT count(*) FROM journal")) == len(rows_of_the_old()["journal"]) + 2_000
    engine.dispose()
    assert len(statements) < 200
