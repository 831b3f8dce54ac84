"""Whether the place where everything is kept is still there, and has room: looked at from time to time.

A disk that is nearly full is told before it is full. Then no job is taken any more, so that those that run can still
write down how they ended.
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
# Below this an operator is told, below that no job is taken.
DISK_LOW_BYTES = 1_073_741_824
DISK_RESERVE_BYTES = 134_217_728
_MIB = 1_048_576


def free_bytes(path: Path) -> int:
    """What an ordinary user may still write where the path is."""
    return shutil.disk_usage(path).free


class StorageWatch:
    """Looks at the disk of the state directory and at the database. ``start`` and ``stop`` it once."""

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
        """What an operator should know of the disk; empty while there is room."""
        return self._look()[0]

    def shortage(self) -> str:
        """Why no job is taken now; empty while there is room for one."""
        warning, refuses = self._look()
        return warning if refuses else ""

    def _look(self) -> tuple[str, bool]:
        """What is to be told, and whether no job is taken for it."""
        try:
            left = self._free(self._root)
        except OSError as error:
            return f"{self._root} cannot be reached ({error.strerror}); no job is taken until it is back", True
        if left >= self._low_bytes:
            return "", False
        told = f"{left // _MIB} MiB are left on the disk of {self._root}"
        if left >= self._reserve_bytes:
            return told, False
        return f"{told}; no job is taken until there is room", True

    async def _watch(self) -> None:
        while True:
            warning = self.warning()
            if warning and not self._told:
                _log.warning("the disk is nearly full, or gone: %s", warning)
            self._told = warning
            try:
                self._store.check()
            except StoreError:
                # Whatever is put on record next finds out; so something is.
                self._engine.report(Tick(at=self._engine.now()))
            await asyncio.sleep(self._watch_s)
