"""Keeps the journal within its limit: the oldest entries go in short transactions, between which the engine writes.

The store decides which entries may go; this module decides how many remain, and when the others go.
"""

from __future__ import annotations

import asyncio
import logging

from koala.store import Store, StoreError

_log = logging.getLogger(__name__)

# The journal keeps at most this many entries; the oldest are dropped.
JOURNAL_ENTRIES_MAX = 1_000_000
# The pause between two transactions.
STEP_S = 0.05


class JournalPruner:
    """Removes old entries of the journal, from ``start`` until all that may go are gone."""

    def __init__(self, store: Store, entries_max: int = JOURNAL_ENTRIES_MAX) -> None:
        self._store = store
        self._entries_max = entries_max
        self._below = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, last_seq: int) -> None:
        """Begin to prune a journal that ends at this entry to ``entries_max`` entries."""
        self._below = last_seq + 1 - self._entries_max
        if self._below > 0 and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._prune(), name="prune the journal")

    async def stop(self) -> None:
        """Leave the rest for the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _prune(self) -> None:
        try:
            while await asyncio.to_thread(self._store.prune_journal, self._below):
                await asyncio.sleep(STEP_S)
        except StoreError as error:
            _log.warning("old entries stay in the journal until the next time: %s", error.for_user())
