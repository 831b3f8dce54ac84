"""The archives of the files that travel with jobs: made when the first component of a job needs one, and dropped when
no live job has these files. A lost one is made again from the contents, byte for byte the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection

from koala.files.bundle import Bundle, bundle_key, make_bundle
from koala.files.contents import ContentStore
from koala.files.errors import NoSpaceError
from koala.model.errors import Fault
from koala.model.travelling import TravellingFile


class Bundles:
    """Archives below the directory of the contents, each made once for all jobs with the same files."""

    def __init__(self, contents: ContentStore) -> None:
        self._contents = contents
        self._making: dict[str, asyncio.Task[Bundle]] = {}
        self._made = 0

    async def open(self) -> None:
        """Begin without archives: an earlier daemon's are made again when needed."""
        await asyncio.to_thread(shutil.rmtree, self._contents.bundles, ignore_errors=True)
        await asyncio.to_thread(self._contents.open)

    async def get(self, files: tuple[TravellingFile, ...]) -> Bundle:
        """Return the archive of these files. Raises a ``FilesError`` if it cannot be made."""
        key = bundle_key(files)
        task = self._making.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._making[key] = asyncio.create_task(self._make(key, files), name=f"bundle {key[:12]}")
        return await asyncio.shield(task)

    async def _make(self, key: str, files: tuple[TravellingFile, ...]) -> Bundle:
        # Each has a unique name, so that a dropped one is never in the place of a new one.
        self._made += 1
        path = self._contents.bundles / f"{key}.{self._made}"
        try:
            return await asyncio.to_thread(make_bundle, files, self._contents.path, path)
        except OSError as error:
            why = f"its archive cannot be written: {error.strerror or error}; make room in the state directory"
            raise NoSpaceError(files[0].path, "the daemon", why, Fault.OURS) from None

    async def keep_only(self, live: Collection[str]) -> None:
        """Drop all but the archives with these keys, at once: later callers get an archive that stays."""
        dropped = [self._making.pop(key) for key, task in [*self._making.items()] if key not in live and task.done()]
        for task in dropped:
            if not task.cancelled() and task.exception() is None:
                await asyncio.to_thread(task.result().path.unlink, missing_ok=True)
