"""The checksums of files that were read completely, so that a large file is not read again for every job.

A checksum is valid while the file has the same size, the same place on its disk and the same time of change. This
module does not know what a file should be: callers compare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from koala.files.checksums import of_pieces
from koala.files.errors import ChangedFileError, of_another_size
from koala.files.sources import Stamp, UrlSource
from koala.model.request import FileName, SiteName

# The number of files whose checksums are remembered; beyond it, the least recently requested one is forgotten.
KNOWN_CHECKSUMS_MAX = 10_000
# At most this many files of one area are read at a time, because others use its disk and its login host too.
READINGS_AT_A_TIME_MAX = 2


class WholeFile(NamedTuple):
    """A file at a site: the functions that take its stamp, and that read all of its bytes for their SHA-256.

    ``key`` identifies it among the files of its area. Both functions raise ``OSError``.
    """

    file: FileName
    site: SiteName
    key: str
    stamp: Callable[[], Awaitable[Stamp]]
    read: Callable[[int], Awaitable[str]]


class _Found(NamedTuple):
    """The result of a reading, with the version of the file at that time."""

    size_bytes: int
    version: str
    checksum: str


class KnownChecksums:
    """Checksums of the files of one area, each read once while it does not change."""

    def __init__(self, known_max: int = KNOWN_CHECKSUMS_MAX) -> None:
        self._known_max = known_max
        self._found: dict[str, _Found] = {}
        self._readings: dict[str, asyncio.Task[str]] = {}
        self._turns = asyncio.Semaphore(READINGS_AT_A_TIME_MAX)

    async def checksum(self, whole: WholeFile, size_bytes: int | None = None) -> str:
        """Return the SHA-256 of a file as it is now. Simultaneous callers share one reading, which continues without
        them.

        Raises ``OSError`` if the file cannot be read, and ``ChangedFileError`` if it changes meanwhile, or, at once,
        if it does not have the given size.
        """
        stamp = await whole.stamp()
        if size_bytes is not None and stamp.size_bytes != size_bytes:
            raise of_another_size(whole.file, whole.site, stamp.size_bytes, f"{size_bytes}")
        found = self._found.get(whole.key)
        if found is not None and (found.size_bytes, found.version) == (stamp.size_bytes, stamp.version):
            self.note(whole.key, stamp, found.checksum)
            return found.checksum
        reading = self._readings.get(whole.key)
        if reading is None:
            reading = asyncio.create_task(self._read(whole), name=f"read {whole.file!r} at {whole.site}")
            self._readings[whole.key] = reading
            reading.add_done_callback(_heard)
        return await asyncio.shield(reading)

    def note(self, key: str, stamp: Stamp, checksum: str) -> None:
        """Remember the checksum of a file that a caller has read, unless its stamp cannot show a change."""
        self._found.pop(key, None)
        if not stamp.version:
            return
        self._found[key] = _Found(stamp.size_bytes, stamp.version, checksum)
        if len(self._found) > self._known_max:
            del self._found[next(iter(self._found))]

    def rename(self, before: str, after: str) -> None:
        """Note that a file has taken the place of another."""
        self._found.pop(after, None)
        if (found := self._found.pop(before, None)) is not None:
            self._found[after] = found

    async def close(self) -> None:
        """Stop reading. The known checksums stay."""
        readings = list(self._readings.values())
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)
        self._readings.clear()  # a task that was cancelled before it began has not done this itself

    async def _read(self, whole: WholeFile) -> str:
        try:
            async with self._turns:
                stamp = await whole.stamp()
                checksum = await whole.read(stamp.size_bytes)
                if await whole.stamp() != stamp:
                    why = "it changed while it was read; leave it alone and register it again"
                    raise ChangedFileError(whole.file, whole.site, why)
        finally:
            # At once, and not when the task is done, because a later caller must not join this reading.
            self._readings.pop(whole.key, None)
        self.note(whole.key, stamp, checksum)
        return checksum


def _heard(reading: asyncio.Task[str]) -> None:
    """Retrieve the error of a reading that everybody may have stopped waiting for, so that asyncio does not log
    it."""
    if not reading.cancelled():
        reading.exception()


def whole_at_url(file: FileName, site: SiteName, url: str) -> WholeFile:
    """Return a file at a URL, read by this machine. Blocks while the library for such URLs is loaded; see
    ``UrlSource``."""
    source = UrlSource(file, site, url)

    async def read(offset: int, size_bytes: int) -> bytes:
        return await asyncio.to_thread(source.read, offset, size_bytes)

    return WholeFile(file, site, url, partial(asyncio.to_thread, source.stamp), partial(of_pieces, read, 0))
