"""What the daemon must not forget: jobs, components, transfers, files, tokens and the journal.

It is kept in SQLite or PostgreSQL. Deciding is the core's; here a batch is kept whole or not at all, and read back.
"""

from __future__ import annotations

from koala.store.errors import StoreError
from koala.store.queries import NUMBER_MAX
from koala.store.rows import Batch, ComponentRow, JournalRow, Recovered, StoredJob, TokenRow, TransferRow
from koala.store.store import Store

__all__ = [
    "NUMBER_MAX",
    "Batch",
    "ComponentRow",
    "JournalRow",
    "Recovered",
    "Store",
    "StoreError",
    "StoredJob",
    "TokenRow",
    "TransferRow",
]
