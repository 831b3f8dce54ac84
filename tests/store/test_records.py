"""The records of the scheduler: written with their batch or not at all, read as they were written, set aside."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from koala.store import Batch, Store, StoreError
from koala.store.records import KEY_CHARACTERS_MAX, key_of
from koala.store.rows import DamagedRow, RecordRow
from tests.support.past_the_store import engine_of
from tests.support.store_samples import OpenStore, job_row, tick

LONG = "a name " * 1_000
ODD_NAMES = [
    "",
    "a\x00b",
    "\udc80",
    "\\u0000",
    "é" * 300,
    LONG,
    LONG + "2",
    "100%_",
    "sha256:",
    "ß",
    "SS",
    " a",
    "a ",
]


def record(kind: str, key: str, body: bytes | None = b"{}") -> RecordRow:
    return RecordRow(kind, key, body)


def test_records_are_written_replaced_and_removed_with_their_batch(
    store: Store, url: str, open_store: OpenStore
) -> None:
    store.record(Batch(records=(record("job", "1", b'{"a":1}'), record("job", "2"), record("queue", "1"))))
    store.record(Batch(records=(record("job", "1", b'{"a":"\\u0000\\udc80 \xc3\xa9"}'), record("job", "2", None))))
    store.record(Batch(records=(record("job", "3", None),)))
    store.close()
    again = open_store(url)
    expected = [record("job", "1", b'{"a":"\\u0000\\udc80 \xc3\xa9"}'), record("queue", "1")]
    assert sorted(again.recover().records) == sorted(again.records()) == expected
    again.close()


def test_a_batch_that_fails_leaves_the_records_as_they_were(store: Store) -> None:
    store.record(Batch(records=(record("job", "1"),)))
    gone = Batch(
        records=(record("job", "1", None), record("job", "2")),
        jobs=(job_row(1, state="running"),),
        before=(job_row(1),),  # which is not there
    )
    with pytest.raises(StoreError, match="1 rows of the table jobs are missing"):
        store.record(gone)
    assert store.records() == [record("job", "1")]


def test_an_entry_that_is_refused_leaves_the_records_as_they_were(store: Store) -> None:
    store.record(Batch(entries=(tick(1),), records=(record("job", "1", b"1"),)))
    store.recover()
    with pytest.raises(StoreError, match="cannot record entry 1 after 1"):
        store.record(Batch(entries=(tick(1),), records=(record("job", "1", b"2"),)))
    assert store.records() == [record("job", "1", b"1")]


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name[:9]))
def test_any_name_is_a_key(store: Store, name: str) -> None:
    others = [record("file", other, b"0") for other in ODD_NAMES if other != name]
    store.write_records(others)
    for body in (b"1", b"2"):
        store.write_records([record("file", name, body), record("link", name)])
        found = {(row.kind, row.key): row.body for row in store.records()}
        assert found[("file", name)] == body
        assert len(found) == len(others) + 2
    assert store.forget_record("file", name)
    assert not store.forget_record("file", name)
    assert len(store.records()) == len(others) + 1
    store.write_records([record("link", name, None)])
    assert sorted(store.records()) == sorted(others)


@settings(max_examples=100)
@given(st.text(st.characters(codec=None), max_size=300), st.text(st.characters(codec=None), max_size=300))
def test_keys_are_short_and_tell_names_apart(one: str, other: str) -> None:
    assert (key_of(one) == key_of(other)) is (one == other)
    assert len(key_of(one)) <= KEY_CHARACTERS_MAX
    key_of(one).encode()


def test_a_rewrite_keeps_these_records_and_no_others(store: Store) -> None:
    store.write_records([record("job", "1"), record("job", "2"), record("file", LONG)])
    store.rewrite_records([record("job", "2", b"2"), record("job", "3")], batch=Batch(jobs=(job_row(3),)))
    assert sorted(store.records()) == [record("job", "2", b"2"), record("job", "3")]
    assert store.damaged_records() == []
    assert [row.id for row in store.jobs()] == [3]


def test_a_rewrite_that_fails_changes_nothing(store: Store) -> None:
    store.write_records([record("job", "1")])
    batch = Batch(jobs=(job_row(1, state="running"),), before=(job_row(1),))
    with pytest.raises(StoreError, match="1 rows of the table jobs are missing"):
        store.rewrite_records([], [("job", "1", "it is wrong")], batch, 5.0)
    assert store.records() == [record("job", "1")]
    assert store.damaged_records() == []


def test_damaged_records_are_set_aside_with_why_and_when(store: Store, url: str, open_store: OpenStore) -> None:
    store.write_records([record("job", "1", b"{"), record("file", LONG, b"2"), record("job", "2")])
    store.rewrite_records(
        [record("job", "2")], [("file", LONG, "a \x00 in it"), ("job", "1", "torn"), ("job", "9", "missing")], at=5.0
    )
    aside = [
        DamagedRow(kind="file", key=LONG, body="2", problem="a \x00 in it", at=5.0),
        DamagedRow(kind="job", key="1", body="{", problem="torn", at=5.0),
    ]
    assert store.damaged_records() == aside, "what is missing has no body to keep"
    store.close()
    again = open_store(url)
    assert again.records() == [record("job", "2")]
    again.write_records([record("job", "1", b"torn again")])
    again.rewrite_records([], [("job", "1", "once more")], at=6.0)
    newer = DamagedRow(kind="job", key="1", body="torn again", problem="once more", at=6.0)
    assert again.damaged_records() == [aside[0], newer], "the last one of a key stays"
    assert again.forget_record("job", "1")
    assert again.damaged_records() == [aside[0]]
    again.close()


def test_pruning_leaves_records_alone(store: Store) -> None:
    store.record(Batch(entries=(tick(1), tick(2)), records=(record("job", "1"),)))
    assert not store.prune_journal(100)
    assert store.records() == [record("job", "1")]


def test_a_body_that_somebody_changed_is_for_the_core_to_judge(store: Store, url: str) -> None:
    store.write_records([record("file", LONG, b"1")])
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE records SET body = :new"), {"new": "\\ud8 {"})
    engine.dispose()
    assert store.recover().records == (record("file", LONG, b"\\ud8 {"),)
