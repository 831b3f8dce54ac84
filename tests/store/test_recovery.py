"""What a restart finds: the records of the scheduler and the outbox; and what pruning may take away."""

from __future__ import annotations

import pytest

from koala.store import Batch, Recovered, Store, StoreError
from koala.store import writes as recording
from tests.support.store_samples import (
    OpenStore,
    job_row,
    numbered_batch,
    started,
    submitted,
    tick,
)


def test_a_new_store_has_nothing_to_recover(store: Store) -> None:
    assert store.recover() == Recovered(records=(), outbox=(), last_seq=0, last_job=0, last_at=0.0)


def test_a_restart_finds_the_outbox_in_order(store: Store, url: str, open_store: OpenStore) -> None:
    store.record(Batch(entries=(submitted(1, 1), started(2, 1), started(3, 1)), outbox=(3, 2), jobs=(job_row(1),)))
    store.record(
        Batch(entries=(tick(4), submitted(5, 2), started(6, 2)), outbox=(6,), settled=(2,), jobs=(job_row(2),))
    )
    store.close()
    again = open_store(url)
    found = again.recover()
    again.close()
    assert found.outbox == (started(3, 1), started(6, 2))
    assert (found.last_seq, found.last_job, found.last_at) == (6, 2, 6.0)


def test_a_command_that_is_settled_at_once_is_not_in_the_outbox(store: Store) -> None:
    store.record(Batch(entries=(started(1),), outbox=(1,), settled=(1, 99)))
    assert store.recover().outbox == ()


def test_pruning_leaves_the_outbox_and_the_newest_entry(store: Store) -> None:
    store.record(Batch(entries=tuple(started(seq) for seq in range(1, 11)), outbox=(3,)))
    assert not store.prune_journal(7)
    assert [each.seq for each in store.journal()] == [3, 7, 8, 9, 10]
    assert not store.prune_journal(9)
    assert [each.seq for each in store.journal()] == [3, 9, 10]
    assert not store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [3, 10]
    found = store.recover()
    assert (found.last_seq, found.last_at) == (10, 10.0)
    assert found.outbox == (started(3),)


def test_pruning_leaves_the_first_and_the_last_entries_about_a_job_that_lives(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "STORY_FIRST_KEPT", 2)
    monkeypatch.setattr(recording, "STORY_LAST_KEPT", 3)
    jobs = (job_row(1), job_row(2, state="done", ended_at=9.0))
    entries = tuple(started(seq, 1 + seq % 2) for seq in range(1, 21))
    store.record(Batch(entries=(*entries, started(21, 3), tick(22), tick(23)), jobs=jobs))
    assert not store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [2, 4, 16, 18, 20, 23]
    store.record(Batch(jobs=(job_row(1, state="done", ended_at=24.0),)))
    assert not store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [23]


def test_one_call_prunes_no_more_than_its_limit_and_says_whether_there_is_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "PRUNED_ENTRIES_MAX", 4)
    store.record(Batch(entries=tuple(tick(seq) for seq in range(1, 11))))
    assert store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [5, 6, 7, 8, 9, 10]
    assert store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [9, 10]
    assert not store.prune_journal(100)
    assert [each.seq for each in store.journal()] == [10]


def test_more_commands_in_the_outbox_than_one_call_prunes_keep_none_behind_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "PRUNED_ENTRIES_MAX", 2)
    store.record(Batch(entries=tuple(started(seq) for seq in range(1, 11)), outbox=(1, 2, 3)))
    assert [store.prune_journal(100) for _ in range(4)] == [True, True, True, False]
    assert [each.seq for each in store.journal()] == [1, 2, 3, 10]


@pytest.mark.parametrize("seqs", [(3, 3), (4, 3), (2, 3), (1,)])
def test_entries_that_are_not_in_order_are_refused(store: Store, seqs: tuple[int, ...]) -> None:
    store.record(Batch(entries=(tick(1), tick(2))))
    store.recover()
    with pytest.raises(StoreError, match=r"cannot record entry \d after \d; recover first"):
        store.record(Batch(entries=tuple(tick(seq, at=9.0) for seq in seqs)))
    assert store.recover().last_seq == 2


def test_everything_of_many_batches_is_there_after_a_restart(store: Store, url: str, open_store: OpenStore) -> None:
    for number in range(1, 21):
        store.record(numbered_batch(number))
    store.close()
    again = open_store(url)
    assert tuple(again.journal(limit=99)) == tuple(
        each for number in range(1, 21) for each in numbered_batch(number).entries
    )
    assert [job.id for job in again.jobs()] == list(range(20, 0, -1))
    assert [each.seq for each in again.recover().outbox] == [60]
    assert [file.name for file in again.all_files()] == ["file 20"]
    again.close()
