"""Changes of the replica catalogue that callers request: register, replicate, forget.

A file is brought into a site's area and measured there before it enters the catalogue, and leaves the area only after
it has left the catalogue. The service checks rights; ``koala.daemon.service.data.replicas`` decides when files may be
removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from koala.core.life.states import JobState
from koala.daemon.engine.loop import Engine
from koala.daemon.grid_sites import GridLinks
from koala.daemon.offload import in_own_thread, query
from koala.daemon.service.data.replicas import ReplicaCleanup, incoming_name
from koala.descriptions.errors import CONTROL_ADVICE, NOT_TEXT, control_problem, shown
from koala.files import (
    CatalogueEntry,
    ChangedFileError,
    ChecksumError,
    FileArea,
    FilesError,
    MissingReplicaError,
    Order,
    PathError,
    Replica,
    TransferCancelledError,
    TransferInterruptedError,
    UnreachableSiteError,
    expired,
    forget,
    register,
    replicate,
)
from koala.files.area.layout import copy_name
from koala.files.checksums import READ_BYTES
from koala.files.sources import UrlSource
from koala.model.api import WaitingReader
from koala.model.api.questions import Registration, Replication
from koala.model.errors import ClientError, ConflictError, InvalidError, NotFoundError, UnavailableError
from koala.model.messages import FileChanged
from koala.model.outputs import OUTPUT_PREFIX
from koala.model.request import FileName, SiteName
from koala.policies.errors import suggest

# At most this many files are read at once for registration, each in a thread; others wait.
MEASURED_AT_ONCE_MAX = 2
# Changes under way may take this long when the daemon stops; less than answers may, so that theirs are sent.
CHANGES_S_MAX = 7.0
# At most this many jobs that wait for files are named in one message.
NAMED_MAX = 10
# Jobs that read their files now, or have read them: the replicas of a forgotten file stay until they have ended.
_STARTED = (JobState.RUNNING, JobState.COLLECTING, JobState.UNWINDING)
_FAULTS_OF_SOURCE = (MissingReplicaError, ChangedFileError, ChecksumError, UnreachableSiteError)

T = TypeVar("T")


class FileService:
    """Carries out changes of the catalogue, one at a time for each file. A change that was begun is finished even if
    its caller no longer waits for it, unless the daemon stops; then the next ``open`` clears up what is left of
    it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replicas = ReplicaCleanup(engine)
        self._links = GridLinks(engine.grid.links)
        self._measuring = asyncio.Semaphore(MEASURED_AT_ONCE_MAX)
        self._changes: set[asyncio.Task[Any]] = set()
        self._opening = asyncio.Lock()
        self._opened = False
        self._stopping = False

    async def open(self) -> None:
        """Clear up what a killed daemon has left in the file areas, once. The first change does it too."""
        async with self._opening:
            if not self._opened:
                self._engine.outputs.in_doubt = self._replicas.settle_when_over
                await self._replicas.open()
                self._opened = True

    async def stop(self) -> None:
        """Begin no more changes, and give up those that take longer than ``CHANGES_S_MAX``: their callers get
        ``UnavailableError``."""
        self._stopping = True
        if not self._changes:
            return
        _, late = await asyncio.wait(list(self._changes), timeout=CHANGES_S_MAX)
        for change in late:
            change.cancel()
        if late:
            await asyncio.wait(late)

    async def close(self) -> None:
        """Stop, and wait for nothing else. Idempotent."""
        await self.stop()
        await self._replicas.close()

    async def register(self, wish: Registration) -> CatalogueEntry:
        """Register a new file, or another replica of a file, from a path or a URL."""
        _check_name(wish.name)
        if wish.name.startswith(OUTPUT_PREFIX):
            raise InvalidError(
                f"file {wish.name!r}: names that begin with {OUTPUT_PREFIX!r} are reserved for outputs of jobs; "
                "choose another"
            )
        area = self._area(wish.site)
        if wish.path is not None and wish.url is None:
            return await self._finished(self._register_path(area, wish.name, wish.path))
        if wish.url is not None and wish.path is None:
            return await self._finished(self._register_url(wish.name, wish.site, wish.url))
        raise InvalidError(f"file {wish.name!r}: name the path or the URL where it is, one of the two")

    async def replicate(self, wish: Replication) -> CatalogueEntry:
        """Make a replica of a known file at one more site."""
        _check_name(wish.name)
        return await self._finished(self._replicate(self._area(wish.site), wish.name))

    async def forget(
        self, names: Sequence[FileName], site: SiteName | None, *, force: bool, by: str = "", reason: str = ""
    ) -> None:
        """Remove one replica of each file, or the files. Raises ``ConflictError`` if jobs wait for one of them,
        unless forced; then nothing is forgotten."""
        for name in names:
            _check_name(name)
        if site is not None:
            self._area(site)
        await self._finished(self._forget(sorted(set(names)), site, force, by, reason))

    async def expire(self, names: Sequence[FileName], reason: str) -> list[FileName]:
        """Forget expired files and return them, except those that a job still reads when the core handles it."""
        return await self._finished(self._expire(sorted(set(names)), reason))

    def waiting_for(self, names: Iterable[FileName], site: SiteName | None = None) -> list[WaitingReader]:
        """Return the jobs that have not started and would lose a file that they read. Elements of a waiting array
        count themselves."""
        ledger, found = self._engine.scheduler.ledger, []
        for name in names:
            entry = self._engine.entries.get(name)
            if entry is not None and site is not None and any(each != site for each in entry.sites):
                continue
            waiting = (job for job in ledger.readers.get(name, ()) if ledger.jobs[job].state not in _STARTED)
            found += [WaitingReader(job=job, file=name) for job in waiting]
        return sorted(found, key=lambda each: (each.job, each.file))

    # ------------------------------------------------------------------------------------------ changes

    async def _register_path(self, area: FileArea, name: FileName, path: str) -> CatalogueEntry:
        incoming = incoming_name()
        async with self._replicas.alone(name):
            try:
                async with self._measuring:
                    with _told_to_the_caller():
                        replica = await self._take_in(area, name, incoming, path)
                changed, event = self._with(await self._entry(name), name, replica)
                await self._check_place(area, changed)
                await self._doubt([area.site], name)
                with _told_to_the_caller():
                    await area.take_name(incoming, name)
            finally:
                # An unreachable site keeps it until the site is looked at the next time.
                with contextlib.suppress(OSError):
                    await area.forget(incoming)
            await self._tell(changed, event, area.site)
            return changed

    async def _register_url(self, name: FileName, site: SiteName, url: str) -> CatalogueEntry:
        async with self._replicas.alone(name):
            async with self._measuring:
                with _told_to_the_caller():
                    replica = await in_own_thread(_measure_url, name, site, url)
            entry = await self._entry(name)
            changed, event = self._with(entry, name, replica)
            # From now on it is read from the URL; the copy in the site's own area is no longer needed.
            replaced = [] if entry is None else [at for at in self._in_areas(entry) if at == site]
            await self._doubt(replaced, name)
            await self._tell(changed, event, *replaced)
            return changed

    async def _replicate(self, area: FileArea, name: FileName) -> CatalogueEntry:
        async with self._replicas.alone(name):
            entry = await self._known(name)
            if area.site in self._in_areas(entry):
                return entry
            await self._check_place(area, entry)
            transfer = f"replica.{uuid.uuid4().hex}"
            try:
                await self._transfer(entry, area.site, transfer)
                await self._doubt([area.site], name)
                with _told_to_the_caller():
                    await area.promote(name, copy_name(name, None, entry.checksum))
            finally:
                # At an unreachable site it is found and removed at the next start.
                with contextlib.suppress(OSError):
                    await self._engine.mover.cancel(transfer)
            replica = Replica(site=area.site, size_bytes=entry.size_bytes, checksum=entry.checksum)
            changed, event = self._with(entry, name, replica)
            await self._tell(changed, event, area.site)
            return changed

    async def _forget(
        self, names: Sequence[FileName], site: SiteName | None, force: bool, by: str, reason: str
    ) -> None:
        async with contextlib.AsyncExitStack() as alone:
            for name in names:  # all in one order, so that two such calls never wait for each other
                await alone.enter_async_context(self._replicas.alone(name))
            waiting = [] if force else self.waiting_for(names, site)
            if waiting:
                raise still_wanted(waiting)
            await self._forget_alone(names, site, by, reason)

    async def _expire(self, names: Sequence[FileName], reason: str) -> list[FileName]:
        async with contextlib.AsyncExitStack() as alone:
            for name in names:
                await alone.enter_async_context(self._replicas.alone(name))
            entries = [await self._known(name) for name in names]
            # The core keeps what is read; a file that it does not keep is no job's input any longer, and may go.
            await asyncio.gather(*(self._engine.tell(expired(entry, at=self._engine.now())) for entry in entries))
            kept = self._engine.scheduler.ledger.sites.view.files
            names = [name for name in names if name not in kept]
            await self._forget_alone(names, None, "", reason)
            return names

    async def _forget_alone(self, names: Sequence[FileName], site: SiteName | None, by: str, reason: str) -> None:
        changes: list[tuple[CatalogueEntry, FileChanged]] = []
        gone: dict[SiteName, list[FileName]] = {}
        for name in names:
            entry = await self._known(name)
            try:
                changed, event = forget(entry, site, at=self._engine.now(), by=by, reason=reason)
            except FilesError as error:
                raise NotFoundError(error.for_user()) from None
            changes.append((changed, event))
            kept = self._in_areas(changed)
            for at in self._in_areas(entry):
                if at not in kept:
                    gone.setdefault(at, []).append(name)
        for at, files in gone.items():
            await self._doubt([at], *files)
        await asyncio.gather(*(self._engine.tell(event, files=[changed]) for changed, event in changes))
        for at, files in gone.items():
            # The change is made; a doubt that cannot be settled now is settled at the next start.
            with contextlib.suppress(OSError, ClientError):
                await self._replicas.settle(at, *files)

    # -------------------------------------------------------------------------------------- their parts

    async def _take_in(self, area: FileArea, name: FileName, incoming: FileName, path: str) -> Replica:
        """Bring a file into the area under a name of its own, and measure it: from this machine, or, for a path such
        as SITE:/data/x, from the site itself."""
        at_site = path.startswith(f"{area.site}:/")
        path = path.removeprefix(f"{area.site}:") if at_site else path
        if not path.startswith("/") or "\0" in path:
            raise InvalidError(
                f"path: {path!r} is not absolute; write the whole path, from / on, or {area.site}:/... for a file "
                "that is at the site"
            )
        if at_site or area.host.is_local:
            measured = await area.take_in(incoming, path)
        else:
            measured = await self._engine.mover.upload(area.site, name, Path(path), incoming)
        return Replica(site=area.site, size_bytes=measured.size_bytes, checksum=measured.checksum)

    async def _tell(self, entry: CatalogueEntry, event: FileChanged, *in_doubt: SiteName) -> None:
        """Put the change on record, then settle the replicas that were in doubt meanwhile."""
        await self._engine.tell(event, files=[entry])
        for site in in_doubt:
            # The change is made; a doubt that cannot be settled now is settled at the next start.
            with contextlib.suppress(OSError, ClientError):
                await self._replicas.settle(site, entry.name)

    async def _doubt(self, sites: Iterable[SiteName], *names: FileName) -> None:
        with _told_to_the_caller():
            for site in sites:
                await self._replicas.doubt(site, *names)

    def _in_areas(self, entry: CatalogueEntry) -> list[SiteName]:
        """Return the sites of the grid that have the file in their own area."""
        return [each.site for each in entry.replicas if each.url is None and each.site in self._engine.areas]

    async def _transfer(self, entry: CatalogueEntry, site: SiteName, transfer: str) -> None:
        """Transfer the file from its nearest replica that can be read."""

        def distance_s(replica: Replica) -> float:
            return self._engine.transfer_estimate_s(replica.site, site, entry.size_bytes)

        failure: FilesError | None = None
        for replica in sorted(entry.replicas, key=distance_s):
            order = Order(
                transfer=transfer,
                file=entry.name,
                source=replica.site,
                target=site,
                size_bytes=entry.size_bytes,
                checksum=entry.checksum,
                url=replica.url,
                rate_bytes_s=self._links.rate_bytes_s(replica.site, site),
            )
            try:
                await self._engine.mover.transfer(order)
                return
            except FilesError as error:
                failure = error
                if not isinstance(error, _FAULTS_OF_SOURCE):
                    break  # another source would not help
        assert failure is not None, "an entry of the catalogue has a replica"
        raise _service_error(failure)

    async def _check_place(self, area: FileArea, entry: CatalogueEntry) -> None:
        """Raise ``ConflictError`` if jobs still read a former file of this name."""
        readers = self._replicas.former_readers(area.site, entry.name)
        if not readers:
            return
        with _told_to_the_caller():
            if (await area.measure(entry.name)).checksum == entry.checksum:
                return
        jobs = f"{'job' if len(readers) == 1 else 'jobs'} {', '.join(map(str, readers))}"
        raise ConflictError(
            f"file {entry.name!r} at {area.site}: {jobs} still read the former file of this name; wait until they "
            "have ended, or choose another name"
        )

    def _with(
        self, entry: CatalogueEntry | None, name: FileName, replica: Replica
    ) -> tuple[CatalogueEntry, FileChanged]:
        now = self._engine.now()
        try:
            return register(name, replica, at=now) if entry is None else replicate(entry, replica, at=now)
        except FilesError as error:
            raise ConflictError(error.for_user()) from None

    async def _entry(self, name: FileName) -> CatalogueEntry | None:
        return await query(self._engine.store.file, name)

    async def _known(self, name: FileName) -> CatalogueEntry:
        entry = await self._entry(name)
        if entry is None:
            raise NotFoundError(f"the catalogue has no file {name!r}; register it first")
        return entry

    def _area(self, site: SiteName) -> FileArea:
        area = self._engine.areas.get(site)
        if area is None:
            raise NotFoundError(f"there is no site {site!r} with files; {suggest(site, self._engine.areas)}")
        return area

    async def _finished(self, change: Coroutine[Any, Any, T]) -> T:
        """Return the change's result. The change goes on if the caller is cancelled, since half a change is
        useless."""
        if self._stopping:
            change.close()
            raise _stopping()
        task = asyncio.create_task(self._in_turn(change))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise _stopping() from None

    async def _in_turn(self, change: Coroutine[Any, Any, T]) -> T:
        await self.open()
        return await change


def still_wanted(waiting: Sequence[WaitingReader]) -> ConflictError:
    """Return the error of files that jobs still wait for, with the numbers and the names."""
    jobs = dict.fromkeys(each.job for each in waiting)
    files = dict.fromkeys(each.file for each in waiting)
    named = f"{'job' if len(jobs) == 1 else 'jobs'} {_named(list(map(str, jobs)))}"
    wait = "waits" if len(jobs) == 1 else "wait"
    return ConflictError(
        f"{named} {wait} for {'file' if len(files) == 1 else 'files'} {_named(list(map(repr, files)))}; nothing was "
        "forgotten: wait until they have started, cancel them, or forget it all the same (force)"
    )


def _named(each: Sequence[str]) -> str:
    more = len(each) - NAMED_MAX
    return ", ".join(each[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------------------------ reading and measuring


def _measure_url(name: FileName, site: SiteName, url: str) -> Replica:
    """Read the whole file at a URL once. It stays where it is."""
    try:
        return _read_once(UrlSource(name, site, url), site, url)
    except (ClientError, FilesError):
        raise
    except Exception as error:  # each kind of server has errors of its own
        reason = str(error) or type(error).__name__
        raise InvalidError(f"url: {url!r} cannot be read ({reason}); check the address") from None


def _read_once(source: UrlSource, site: SiteName, url: str) -> Replica:
    stamp = source.stamp()
    digest = hashlib.sha256()
    offset = 0
    while offset < stamp.size_bytes:
        piece = source.read(offset, min(READ_BYTES, stamp.size_bytes - offset))
        if not piece:
            break
        digest.update(piece)
        offset += len(piece)
    if offset != stamp.size_bytes or source.stamp() != stamp:
        raise ConflictError(f"url: {url!r} changed while it was read; leave it alone and register it again")
    return Replica(site=site, size_bytes=stamp.size_bytes, checksum=digest.hexdigest(), url=url)


def _check_name(name: FileName) -> None:
    problem = control_problem(name)
    if problem is not None:
        raise InvalidError(f"file {shown(name)}: {problem}; {CONTROL_ADVICE}")
    if NOT_TEXT.search(name) is not None:
        raise InvalidError(f"file {shown(name)}: the name is not text that UTF-8 can write; choose another")


def _stopping() -> UnavailableError:
    return UnavailableError("the daemon is stopping, and the change was not made; ask again when it is back")


def _service_error(error: FilesError) -> ClientError:
    if isinstance(error, TransferInterruptedError | TransferCancelledError):
        return UnavailableError(error.for_user())
    return ConflictError(error.for_user())


@contextlib.contextmanager
def _told_to_the_caller() -> Iterator[None]:
    """Turn errors of disks and servers into ones that the caller can read."""
    try:
        yield
    except (FilesError, PathError) as error:
        raise InvalidError(error.for_user()) from None
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        raise ConflictError(f"{about}{error.strerror or error}; check the path, and the site's disk") from None
