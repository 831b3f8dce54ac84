"""The contents that users send for their jobs: received in pieces, referred to by submissions, removed when unused.

The service checks rights. ``koala.files.contents`` stores the contents.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import offload
from koala.daemon.service.principal import Principal
from koala.files.bundle import bundle_key
from koala.files.checksums import is_checksum
from koala.files.contents import (
    CONTENT_GRACE_S,
    GUEST_CONTENT_BYTES_MAX,
    USER_CONTENT_BYTES_MAX,
    USER_CONTENTS_MAX,
    WrongContentError,
    WrongOffsetError,
)
from koala.model.api import ContentState, JobFile, MissingContents
from koala.model.errors import ConflictError, InvalidError, TooLargeError, UnavailableError
from koala.model.request import JobId, Request
from koala.model.travelling import (
    PIECE_BYTES_MAX,
    TRAVELLING_BYTES_MAX,
    TravellingError,
    TravellingFile,
    read_manifest,
)

_log = logging.getLogger(__name__)

# The interval between searches for unused contents.
SWEEP_S = 60.0


class ContentService:
    """Receives contents and removes unused ones. ``open`` it when the engine is open."""

    def __init__(
        self,
        engine: Engine,
        *,
        grace_s: float = CONTENT_GRACE_S,
        user_bytes_max: int = USER_CONTENT_BYTES_MAX,
        guest_bytes_max: int = GUEST_CONTENT_BYTES_MAX,
        contents_max: int = USER_CONTENTS_MAX,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._grace_s = grace_s
        self._user_bytes_max = user_bytes_max
        self._guest_bytes_max = guest_bytes_max
        self._contents_max = contents_max
        self._sleep = sleep
        self._turns: dict[str, asyncio.Lock] = {}
        self._bundle_keys: dict[JobId, str] = {}  # of live jobs with files, as of the last sweep
        self._used: dict[str, tuple[int, int]] = {}  # bytes and number by user, as counted since the last sweep
        self._sweeping: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to remove unused contents."""
        self._sweeping = asyncio.create_task(self._keep_sweeping(), name="sweep contents")

    async def close(self) -> None:
        """Stop removing. Idempotent."""
        task, self._sweeping = self._sweeping, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # ---------------------------------------------------------------------------------------- sending

    async def missing(self, who: Principal, manifest: str) -> MissingContents:
        """Return which contents of a list the caller has yet to send, and how much of each is here."""
        return await offload(self._missing, who.name, manifest)

    def _missing(self, user: str, manifest: str) -> MissingContents:
        found: dict[str, ContentState] = {}
        for file in _read(manifest):
            if file.is_content and file.checksum not in found:
                received = self._engine.contents.received_bytes(user, file.checksum, file.size_bytes)
                if received is not None:
                    found[file.checksum] = ContentState(
                        checksum=file.checksum, size_bytes=file.size_bytes, received_bytes=received, complete=False
                    )
        return MissingContents(missing=list(found.values()))

    async def receive(self, who: Principal, checksum: str, size_bytes: int, offset: int, data: bytes) -> ContentState:
        """Receive one piece of a content; it is on disk when this returns."""
        if not is_checksum(checksum):
            raise InvalidError(f"checksum: {checksum[:80]!r} is not a SHA-256; write 64 digits of 0-9 and a-f")
        if not 0 <= size_bytes <= TRAVELLING_BYTES_MAX:
            raise TooLargeError(
                f"content {checksum}: {size_bytes} bytes are more than {TRAVELLING_BYTES_MAX} "
                "(TRAVELLING_BYTES_MAX); register large data as an input file"
            )
        if len(data) > PIECE_BYTES_MAX:
            raise TooLargeError(f"a piece has at most {PIECE_BYTES_MAX} bytes (PIECE_BYTES_MAX); send smaller ones")
        async with self._turns.setdefault(who.name, asyncio.Lock()):
            contents = self._engine.contents
            try:
                if offset == 0 and await offload(contents.received_bytes, who.name, checksum, size_bytes) == 0:
                    await self._count(who, size_bytes)
                now = self._engine.now()
                received = await offload(contents.append, who.name, checksum, size_bytes, offset, data, now)
            except WrongOffsetError as error:
                raise ConflictError(
                    f"content {checksum}: {error.received_bytes} of {size_bytes} bytes are here, so no piece "
                    f"from byte {offset} on fits; continue at byte {error.received_bytes}"
                ) from None
            except WrongContentError:
                self._used.pop(who.name, None)
                raise ConflictError(
                    f"content {checksum}: the bytes sent have another SHA-256, and were discarded; the file changed "
                    "while it was sent: leave it alone and submit again"
                ) from None
            except OSError as error:
                raise UnavailableError(
                    f"content {checksum} cannot be kept: {error.strerror or error}; make room in the daemon's state "
                    "directory, and send it again"
                ) from None
        complete = received is None
        return ContentState(
            checksum=checksum,
            size_bytes=size_bytes,
            received_bytes=size_bytes if received is None else received,
            complete=complete,
        )

    async def _count(self, who: Principal, size_bytes: int) -> None:
        """Count a new content of this user. Raises ``TooLargeError`` if there is no room for it."""
        if who.name not in self._used:
            self._used[who.name] = await offload(self._engine.contents.used, who.name)
        used_bytes, count = self._used[who.name]
        limit, name = (
            (self._guest_bytes_max, "GUEST_CONTENT_BYTES_MAX")
            if who.guest
            else (self._user_bytes_max, "USER_CONTENT_BYTES_MAX")
        )
        cure = (
            f"unused files are removed after {self._grace_s:g} s (CONTENT_GRACE_S): wait for that, or for jobs to end"
        )
        if used_bytes + size_bytes > limit:
            raise TooLargeError(
                f"files of {who.name} have {used_bytes} bytes here, and with {size_bytes} more there would be more "
                f"than {limit} ({name}); {cure}"
            )
        if count >= self._contents_max:
            raise TooLargeError(
                f"{who.name} has {count} files here, and may have {self._contents_max} (USER_CONTENTS_MAX); {cure}"
            )
        self._used[who.name] = used_bytes + size_bytes, count + 1

    # ------------------------------------------------------------------------------------- referring

    async def refer(self, who: Principal, request: Request) -> None:
        """Let a new job of the caller refer to its files. Raises ``InvalidError`` for files that the caller has not
        sent, even if they are here."""
        sizes = {file.checksum: file.size_bytes for file in request.files if file.is_content}
        if not sizes:
            return
        missing = set(await offload(self._engine.contents.refer, who.name, sizes, self._engine.now()))
        for file in request.files:
            if file.checksum in missing:
                raise InvalidError(
                    f"file {file.path!r}: you have not sent its content ({file.size_bytes} bytes, SHA-256 "
                    f"{file.checksum}); send it first, as koala submit does"
                )

    # ---------------------------------------------------------------------------------------- sweeping

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self.sweep()
            except OSError as error:
                _log.warning("files that nobody needs could not be removed: %s", error)
            except Exception:
                _log.exception("files that nobody needs could not be removed")
            await self._sleep(SWEEP_S)

    async def _know_bundles(self) -> None:
        """Compute the keys of new bundles, in a thread: a long list takes a while, and after a start there may be
        many."""
        known, jobs = self._bundle_keys, self._engine.scheduler.ledger.jobs
        unknown = {
            number: job.request.files for number, job in jobs.items() if job.request.files and number not in known
        }
        if unknown:
            known |= await offload(lambda: {number: bundle_key(files) for number, files in unknown.items()})

    async def sweep(self) -> list[str]:
        """Remove contents that neither a live job nor the grace time keeps. Returns them."""
        await self._know_bundles()
        jobs = self._engine.scheduler.ledger.jobs
        live: dict[str, set[str]] = {}
        keys: dict[JobId, str] = {}
        counted: set[tuple[str, str]] = set()
        for row in self._engine.live_rows():
            job = jobs.get(row.id)
            if job is None:
                return []  # the core is ahead of the record, where the job is still live
            if not job.request.files:
                continue
            # A long list takes a while, and many jobs share one: each is looked at once.
            key = keys[row.id] = self._bundle_keys.get(row.id) or bundle_key(job.request.files)
            if (row.owner, key) not in counted:
                counted.add((row.owner, key))
                own = live.setdefault(row.owner, set())
                own.update(file.checksum for file in job.request.files if file.is_content)
        self._bundle_keys = keys
        await self._engine.bundles.keep_only(set(keys.values()))
        gone = await offload(self._engine.contents.sweep, live, self._engine.now(), grace_s=self._grace_s)
        self._used.clear()
        return gone


def job_files(request: Request) -> list[JobFile]:
    """Return the files that travel with a job, in the API's form."""
    return [JobFile.of(file, kind=_kind(file), mode=f"{file.mode:04o}") for file in request.files]


def _kind(file: TravellingFile) -> str:
    return "directory" if file.directory else "link" if file.link else "file"


def _read(manifest: str) -> tuple[TravellingFile, ...]:
    try:
        return read_manifest(manifest)
    except TravellingError as error:
        raise InvalidError(error.for_user()) from None
