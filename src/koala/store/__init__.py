"""The daemon's durable data: jobs, components, transfers, files, tokens and the journal.

SQLite or PostgreSQL stores it. A batch is stored as a whole or not at all. The core decides; nothing here does.
"""

from __future__ import annotations

from koala.store.errors import StoreError
from koala.store.queries import NUMBER_MAX
from koala.store.rows import (
    ALL_JOBS,
    Batch,
    ChosenJobs,
    ComponentRow,
    JournalRow,
    Recovered,
    StateDirectory,
    StoredJob,
    TokenRow,
    TransferRow,
)
from koala.store.store import Store

__all__ = [
    "ALL_JOBS",
    "NUMBER_MAX",
    "Batch",
    "ChosenJobs",
    "ComponentRow",
    "JournalRow",
    "Recovered",
    "StateDirectory",
    "Store",
    "StoreError",
    "StoredJob",
    "TokenRow",
    "TransferRow",
]
