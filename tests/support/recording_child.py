"""A process that records numbered batches and may be killed at any point.

Usage: recording_child.py URL ENTRIES. Continues after the last batch on record, and writes each number once its batch
is acknowledged; then it writes all records anew.
"""

from __future__ import annotations

import sys

from koala.store import Store
from tests.support.store_samples import numbered_batch, numbered_records


def main() -> None:
    """Record until killed."""
    url, entries = sys.argv[1], int(sys.argv[2])
    store = Store.open(url)
    number = store.recover().last_job
    while True:
        number += 1
        store.record(numbered_batch(number, entries))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        store.rewrite_records(numbered_records(number))


if __name__ == "__main__":
    main()
