"""What is kept grows with what was sent: texts once, and changed columns alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, text

from koala.model.request import Application, Component, InputFile, Request
from koala.store import Batch, Store, StoreError
from koala.store.requests import decode_body, is_utf8, keep, restored
from tests.support.past_the_store import engine_of
from tests.support.store_samples import OpenStore, component_row, job_row, submitted, tick, transfer_row

SCRIPT = "#!/bin/sh\n" + "echo a line of a long script\n" * 2_000  # 58 KB


def of_thousand(script: str = SCRIPT, name: str = "job") -> Request:
    """A script in a thousand components, each of which has its own copy of the application, as a reader makes it."""
    return Request(
        components=tuple(Component(processors=1, application=Application(script=script)) for _ in range(1_000)),
        name=name,
    )


def characters_kept(url: str) -> dict[str, int]:
    """How much is in each table that holds requests."""
    engine = engine_of(url)
    with engine.connect() as connection:
        found = {
            table: connection.scalar(text(f"SELECT coalesce(sum(length(body)), 0) FROM {table}"))  # noqa: S608
            for table in ("texts", "requests", "journal", "records")
        }
    engine.dispose()
    return found


def test_a_script_of_a_thousand_components_is_kept_once(store: Store, url: str) -> None:
    store.record(Batch(entries=(submitted(1, 1, of_thousand()),), jobs=(job_row(1),)))
    kept = characters_kept(url)
    assert kept["texts"] == len(SCRIPT)
    assert kept["requests"] < 60_000, "a component is a few dozen characters"
    assert kept["journal"] < 100, "the journal refers to the request"
    assert store.request(1) == of_thousand()
    assert [entry.body for entry in store.journal()] == [submitted(1, 1, of_thousand()).body]


def test_a_thousand_jobs_with_the_same_script_keep_it_once(store: Store, url: str) -> None:
    (component, *_) = of_thousand().components
    requests = [Request(components=(component,), name=f"job {number}") for number in range(1_000)]
    store.record(
        Batch(
            entries=tuple(submitted(number + 1, number + 1, request) for number, request in enumerate(requests)),
            jobs=tuple(job_row(number + 1) for number in range(1_000)),
        )
    )
    kept = characters_kept(url)
    assert kept["texts"] == len(SCRIPT)
    assert kept["requests"] < 1_000 * 300
    assert kept["journal"] < 1_000 * 100
    assert store.requests_of(range(1, 1_001)) == {number + 1: request for number, request in enumerate(requests)}
    assert [entry.body for entry in store.journal(after=998)] == [
        submitted(number, number, requests[number - 1]).body for number in (999, 1_000)
    ]


def test_a_list_of_arguments_that_all_components_share_is_kept_once() -> None:
    arguments = ("x" * 65_000,) * 5_000 + ("short",)
    inputs = tuple(InputFile(name=f"file {number} " + "y" * 400) for number in range(100))
    application = Application(executable="/bin/true", arguments=arguments)
    request = Request(
        components=tuple(Component(processors=1, application=application, input_files=inputs) for _ in range(500))
    )
    kept = keep(request)
    assert len(kept.body) < 100_000
    assert sum(map(len, kept.texts.values())) < 110_000
    again = restored(decode_body(kept.body), kept.texts)
    assert again == request
    assert again.components[0].application is again.components[499].application, "memory is shared as well"


any_text = st.text(st.characters(), max_size=6) | st.sampled_from(["z" * 256, "é" * 300, "\ud800" * 256, "\0" * 300])
any_application = st.builds(
    Application,
    executable=any_text,
    arguments=st.lists(any_text, max_size=3).map(tuple),
    environment=st.dictionaries(any_text, any_text, max_size=2).map(lambda found: tuple(found.items())),
    stdin=st.none() | any_text,
)
any_component = st.builds(
    Component,
    processors=st.integers(1, 9),
    application=any_application | st.builds(Application, script=any_text),
    input_files=st.lists(st.builds(InputFile, name=any_text), max_size=2, unique_by=lambda file: file.name).map(
        tuple
    ),
    site=st.none() | any_text,
)


@given(st.lists(any_component, min_size=1, max_size=4), any_text)
def test_any_request_comes_back_the_same(components: list[Component], name: str) -> None:
    request = Request(components=(*components, components[0]), name=name)
    kept = keep(request)
    assert restored(decode_body(kept.body), kept.texts) == request
    assert keep(request) == kept
    assert is_utf8(request) is not any("\ud800" <= character <= "\udfff" for character in repr_of(request))


def repr_of(request: Request) -> str:
    """All its texts behind each other."""
    found = [request.name]
    for each in request.components:
        application = each.application
        found += [each.site or "", application.executable or "", application.script or "", application.stdin or ""]
        found += [*application.arguments, *(word for pair in application.environment for word in pair)]
        found += [file.name for file in each.input_files]
    return "".join(found)


def test_a_missing_text_or_request_is_an_error_that_names_the_job(store: Store, url: str) -> None:
    store.record(Batch(entries=(submitted(1, 1, of_thousand()),), jobs=(job_row(1),)))
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM texts"))
    with pytest.raises(StoreError, match=r"a request refers to a missing part.*restore the database"):
        store.request(1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET request_key = NULL"))
        connection.execute(text("DELETE FROM requests"))
    engine.dispose()
    with pytest.raises(StoreError, match=r"the request .* of job 1 is missing"):
        store.journal()
    assert store.request(1) is None


@pytest.mark.parametrize(
    ("table", "column"), [("jobs", "owner"), ("jobs", "places"), ("texts", "body"), ("requests", "body")]
)
def test_bytes_in_a_column_of_text_are_an_error_that_says_so(
    tmp_path: Path, open_store: OpenStore, table: str, column: str
) -> None:
    store = open_store(tmp_path / "koala.db")
    store.record(Batch(entries=(submitted(1, 1, of_thousand()),), jobs=(job_row(1),)))
    with sqlite3.connect(tmp_path / "koala.db") as connection:
        connection.execute(f"UPDATE {table} SET {column} = x'ff00'")  # noqa: S608
    connection.close()
    with pytest.raises(StoreError, match="a row is not as Koala wrote it"):
        (store.job if table == "jobs" else store.request)(1)


# -------------------------------------------------------------------------------------------- changed columns


def statements_of(store: Store, batch: Batch) -> list[str]:
    """The statements that change something when a batch is recorded."""
    seen: list[str] = []

    def look(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(store._database.engine, "before_cursor_execute", look)
    store.record(batch)
    event.remove(store._database.engine, "before_cursor_execute", look)
    return [each for each in seen if each.startswith(("INSERT", "UPDATE", "DELETE"))]


def test_of_a_row_that_is_on_record_only_the_changed_columns_are_written(store: Store) -> None:
    job, transfer = job_row(1, places=(("delft", 4),)), transfer_row()
    components = [component_row(f"1.{number}") for number in range(1, 5)]
    first = Batch(entries=(tick(1),), jobs=(job,), components=tuple(components), transfers=(transfer,))
    store.record(first)
    after_job = job_row(1, places=(("delft", 4),), state="running", since=30.0)
    ready = [component_row(f"1.{number}", ready_at=30.0) for number in range(1, 4)]
    ended = component_row("1.4", ended_at=31.0, outcome="done", exit_code=0)
    done = transfer_row(ended_at=30.0, ok=True)
    written = statements_of(
        store,
        Batch(
            entries=(tick(2),),
            jobs=(after_job,),
            components=(*ready, ended),
            transfers=(done,),
            before=(job, *components, transfer),
        ),
    )
    updates = [statement for statement in written if statement.startswith("UPDATE")]
    assert len(updates) == 4, "rows that differ in the same columns are written together"
    assert not any("places" in statement or "claimed_at" in statement for statement in written)
    assert store.job(1) == after_job
    assert store.components(1) == [*ready, ended]
    assert store.transfers(1) == [done]
    same = Batch(entries=(tick(3),), jobs=(after_job,), before=(after_job,))
    assert [statement.split()[2] for statement in statements_of(store, same)] == ["journal"]


def test_a_row_that_should_be_on_record_and_is_not_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="1 rows of the table jobs are missing"):
        store.record(Batch(entries=(tick(1),), jobs=(job_row(1, state="running"),), before=(job_row(1),)))
    assert store.journal() == []
