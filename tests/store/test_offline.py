"""What an operator does with the database of a stopped daemon: sizes, removal, export; on both databases."""

from __future__ import annotations

import json

from koala.model.messages import CancelTransfer, StartTransfer
from koala.model.request import Application, Component, Request
from koala.store import Batch, Store
from koala.store.rows import RecordRow
from tests.support.store_samples import (
    component_row,
    entry,
    file_entry,
    job_row,
    started,
    submitted,
    tick,
    token_row,
    transfer_row,
)

OF_JOBS = ("job", "places")
SHARED, OWN = "a script that both have " * 20, "a script of one job " * 20


def request(*scripts: str) -> Request:
    return Request(
        components=tuple(Component(processors=1, application=Application(script=each)) for each in scripts)
    )


def transfer(name: str) -> StartTransfer:
    return StartTransfer(transfer=name, file="data", source="leiden", target="delft", size_bytes=7)


def fill(store: Store) -> None:
    """Two jobs that share a script, a transfer, and have one of each of their own."""
    store.record(
        Batch(
            entries=(
                submitted(1, 1, request(SHARED)),
                submitted(2, 2, request(SHARED, OWN)),
                started(3, 1),
                started(4, 2),
                entry(5, transfer("t1"), job=2, site="delft"),
                entry(6, transfer("t2"), job=2, site="delft"),
                entry(7, CancelTransfer(transfer="t0"), job=2),
                tick(8),
            ),
            outbox=(3, 4, 5, 6, 7),
            jobs=(job_row(1), job_row(2, name="two")),
            components=(component_row("1.1"), component_row("2.1", job=2)),
            transfers=(transfer_row("t1", jobs=(2, 1)), transfer_row("t2", jobs=(2,))),
            files=(file_entry("data", "leiden"),),
        )
    )
    store.add_token(token_row())
    store.write_records(
        [
            *[RecordRow(kind, str(job), b"{}") for kind in OF_JOBS for job in (1, 2, 21)],
            *[RecordRow("claim", token, b"{}") for token in ("1.1", "2.1", "2.2", "21.1")],
            RecordRow("site", "2", b"{}"),
        ]
    )


def test_a_removed_job_leaves_what_others_share_with_it(store: Store) -> None:
    fill(store)
    store.remove_job(2, [RecordRow("job", "1", b'{"without":2}')], (*OF_JOBS, "claim"))
    assert [row.id for row in store.jobs()] == [1]
    assert store.components(2) == []
    assert store.request(1) == request(SHARED)
    assert store.transfers(1) == [transfer_row("t1", jobs=(1,))]
    assert [(row.seq, row.what, row.job) for row in store.journal()] == [
        (1, "JobSubmitted", 1),
        (3, "StartComponent", 1),
        (5, "StartTransfer", None),
        (6, "StartTransfer", None),
        (7, "CancelTransfer", None),
        (8, "Tick", None),
    ]
    found = store.recover()
    assert [row.seq for row in found.outbox] == [3, 5, 7], "what is to be transferred for the other job stays"
    assert sorted(found.records) == [
        RecordRow("claim", "1.1", b"{}"),
        RecordRow("claim", "21.1", b"{}"),
        RecordRow("job", "1", b'{"without":2}'),
        RecordRow("job", "21", b"{}"),
        RecordRow("places", "1", b"{}"),
        RecordRow("places", "21", b"{}"),
        RecordRow("site", "2", b"{}"),
    ]
    texts = [line["text"]["body"] for line in store.exported() if "text" in line]
    assert texts == [SHARED]
    store.record(Batch(entries=(tick(9),)))
    store.remove_job(1, [], (*OF_JOBS, "claim"))
    assert [line for line in store.exported() if "text" in line or "request" in line] == []


def test_sizes_count_texts_and_what_the_journal_holds(store: Store) -> None:
    fill(store)
    two, one = store.job_sizes()
    assert (two.job, two.name, two.components, two.entries) == (2, "two", 1, 5)
    assert (one.job, one.components, one.entries) == (1, 1, 2)
    assert len(SHARED) < one.request < len(SHARED) + 400
    assert len(SHARED) + len(OWN) < two.request < len(SHARED) + len(OWN) + 400
    assert two.journal > one.journal > 0


def test_all_rows_are_exported_but_access_tokens(store: Store) -> None:
    fill(store)
    store.rewrite_records(store.records(), [("site", "2", "it cannot be read")], at=5.0)
    lines = [json.loads(json.dumps(line)) for line in store.exported()]
    kinds = [kind for line in lines for kind in line]
    assert list(dict.fromkeys(kinds)) == [
        *("text", "request", "job", "component", "transfer", "file", "entry", "record", "damaged_record")
    ]
    assert (kinds.count("text"), kinds.count("request"), kinds.count("entry")) == (2, 2, 8)
    assert "secret" not in json.dumps(lines)
