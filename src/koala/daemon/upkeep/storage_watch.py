"""Watches the disk of the state directory: whether it is still there, and has room.

Operators are warned before a disk is full. When it is nearly full no new job is accepted, so that running jobs can
still record their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from koala.daemon.perform.interface import EngineInterface
from koala.model.messages import Tick
from koala.store import Store, StoreError

_log = logging.getLogger(__name__)

WATCH_S = 5.0
# Below the first an operator is warned, below the second no job is accepted.
DISK_LOW_BYTES = 1_073_741_824
DISK_RESERVE_BYTES = 134_217_728
_MIB = 1_048_576


def free_bytes(path: Path) -> int:
    """Return how much an ordinary user may still write at the path."""
    return shutil.disk_usage(path).free


class StorageWatch:
    """Watches the disk of the state directory and the database. ``start`` and ``stop`` it once."""

    def __init__(
        self,
        engine: EngineInterface,
        store: Store,
        root: Path,
        *,
        low_bytes: int = DISK_LOW_BYTES,
        reserve_bytes: int = DISK_RESERVE_BYTES,
        watch_s: float = WATCH_S,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._engine = engine
        self._store = store
        self._root = root
        self._low_bytes = low_bytes
        self._reserve_bytes = reserve_bytes
        self._watch_s = watch_s
        self._free = free
        self._task: asyncio.Task[None] | None = None
        self._told = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="watch the storage")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def warning(self) -> str:
        """Return the operator's warning about the disk; empty while there is room."""
        return self._look()[0]

    def shortage(self) -> str:
        """Return why no job is accepted now; empty while there is room for one."""
        warning, refuses = self._look()
        return warning if refuses else ""

    def _look(self) -> tuple[str, bool]:
        """Return the warning, and True if no job is accepted."""
        try:
            left = self._free(self._root)
        except OSError as error:
            return f"{self._root} cannot be reached ({error.strerror}); no job is accepted until it is back", True
        if left >= self._low_bytes:
            return "", False
        words = f"{left // _MIB} MiB are left on the disk of {self._root}"
        if left >= self._reserve_bytes:
            return words, False
        return f"{words}; no job is accepted until there is room", True

    async def _watch(self) -> None:
        while True:
            warning = self.warning()
            if warning and not self._told:
                _log.warning("the disk is nearly full, or gone: %s", warning)
            self._told = warning
            try:
                self._store.check()
            except StoreError:
                # The next write to the record finds out; so write something.
                self._engine.report(Tick(at=self._engine.now()))
            await asyncio.sleep(self._watch_s)
