"""The journal kept to its bound: the oldest entries go in short transactions, between which the engine writes.

Which entries nobody needs is for the store to know; here is only how many stay, and when the others go.
"""

from __future__ import annotations

import asyncio
import logging

from koala.store import Store, StoreError

_log = logging.getLogger(__name__)

# Beyond so many entries the oldest are dropped from the journal.
JOURNAL_ENTRIES_MAX = 1_000_000
# The pause between two transactions.
STEP_S = 0.05


class JournalPruner:
    """Removes old entries of the journal, after ``start`` and until as many as may are gone."""

    def __init__(self, store: Store, entries_max: int = JOURNAL_ENTRIES_MAX) -> None:
        self._store = store
        self._entries_max = entries_max
        self._below = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, last_seq: int) -> None:
        """The journal ends at this entry: keep ``entries_max`` of them."""
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
