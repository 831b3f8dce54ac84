"""A check that a store with numbered batches holds an unbroken sequence of whole ones."""

from __future__ import annotations

from koala.store import Store
from tests.support.store_samples import numbered_batch, numbered_records


def check_whole(store: Store, entries: int = 3) -> int:
    """Return the number of the last batch. Every batch up to it must have all its rows, and nothing else may
    exist."""
    last = max((row.id for row in store.jobs(limit=1)), default=0)
    batches = [numbered_batch(number, entries) for number in range(1, last + 1)]
    everything = last * entries + 1
    assert store.journal(limit=everything) == [entry for batch in batches for entry in batch.entries]
    assert store.jobs(limit=last + 1) == [row for batch in reversed(batches) for row in batch.jobs]
    claimed = store.components_by_token([row.token for batch in batches for row in batch.components])
    assert sorted(row.job for row in claimed) == list(range(1, last + 1))
    assert [store.transfers(batch.jobs[0].id) for batch in batches[-50:]] == [
        list(batch.transfers) for batch in batches[-50:]
    ]
    assert [file.name for file in store.all_files()] == [f"file {last}" for _ in batches[-1:]]
    assert [each.seq for each in store.recover().outbox] == [seq for batch in batches[-1:] for seq in batch.outbox]
    assert sorted(store.records()) == sorted(numbered_records(last))
    return last
