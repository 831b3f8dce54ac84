"""Opens barriers: every component of the job receives the others' places and its input files, all at once.

A replica that is used in place must be the catalogue's file, byte for byte. If the files of a component are not
available, no component of the job is released: that component is ended with the reason, which sends the job back as a
whole, and nothing remains held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

from koala.daemon.launches import destination_of
from koala.daemon.perform.checkpoints import CheckpointBringer, SourceSilentError
from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import SITE_CALL_S, EngineInterface, Silences
from koala.daemon.perform.retry import DEFECT_TRIES_MAX, retry_until_done
from koala.daemon.perform.transfers import FindFile, TransferWorker
from koala.files import (
    CatalogueEntry,
    FileArea,
    FilesError,
    MissingReplicaError,
    TransferCancelledError,
    TransferInterruptedError,
)
from koala.files.area.layout import replica_path
from koala.files.errors import damaged, unreadable
from koala.model.checkpoint import CHECKPOINT_ARCHIVE, CheckpointSource
from koala.model.errors import Fault
from koala.model.facts import JobPlaced
from koala.model.launch import Go, InputLink, LaunchError, NodeShare, Peer
from koala.model.messages import InputSource, JobQuarantined, Outcome, ReleaseBarrier, Token
from koala.model.request import Component, FileName, JobId, Request, SiteName
from koala.model.travelling import ARCHIVE_NAME
from koala.runners import go_for
from koala.sites import LiveSite, SiteError, UnseenError
from koala.sites.remote_shell import ShellError, ShellTimeoutError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)
T = TypeVar("T")

_CALLER = "releases"
# Why a component cannot have its links: its files fail, or its own names for them do.
_REFUSALS = (FilesError, LaunchError)


class _Unreachable(Exception):  # noqa: N818 - it never leaves this module
    """A site did not do as it was asked; everything is tried again."""

    def __init__(self, site: SiteName, reason: str) -> None:
        super().__init__(reason)
        self.site = site
        self.reason = reason


class _TooFewError(Exception):
    """A site gave a component fewer processors than it accepted."""

    def __init__(self, row: ComponentRow, processors: int) -> None:
        self.row = row
        self.reason = f"it gave {processors} processors instead of {row.processors}"
        super().__init__(self.reason)


class BarrierOpener:
    """Performs each ``ReleaseBarrier`` in a task, repeated until the barrier is open or no longer needed."""

    def __init__(
        self,
        engine: EngineInterface,
        sites: Mapping[SiteName, LiveSite],
        areas: Mapping[SiteName, FileArea],
        transfers: TransferWorker,
        components: ComponentRegister,
        silences: Silences,
        find_file: FindFile,
        checkpoints: CheckpointBringer,
        *,
        call_s: float = SITE_CALL_S,
    ) -> None:
        self._engine = engine
        self._sites = sites
        self._areas = areas
        self._transfers = transfers
        self._components = components
        self._silences = silences
        self._find_file = find_file
        self._checkpoints = checkpoints
        self._call_s = call_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[Token, asyncio.Task[None]] = {}
        # Components of jobs that cannot run: the core may learn of it only later.
        self._unable: set[Token] = set()
        self._looks: set[asyncio.Task[None]] = set()

    def foresee(self, placed: JobPlaced, request: Request) -> None:
        """Begin to read the replicas that a placed job will use, during its transfers and claims, so that its
        processors need not wait for that."""
        wanted = set()
        for part, (site, _) in enumerate(placed.places):
            wanted |= {(site, file.name) for file in _component(request, part).input_files}
        for site, file in sorted(wanted):
            entry = self._find_file(file)
            replica = None if entry is None else entry.replica_at(site)
            if entry is not None and replica is not None and replica.url is None:
                look = asyncio.create_task(self._look(site, entry), name=f"look at {file!r} at {site}")
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)

    async def _look(self, site: SiteName, entry: CatalogueEntry) -> None:
        # An error is reported when the barrier opens, if it persists.
        with contextlib.suppress(OSError, FilesError):
            await self._areas[site].verified_checksum(entry.name, entry.size_bytes)

    def start(self, seq: int, command: ReleaseBarrier, request: Request) -> None:
        """Begin; settles the command at the end."""
        before = {self._opening[token] for token in command.tokens if token in self._opening}
        task = asyncio.create_task(self._release(seq, command, request, before), name=f"release {command.job}")
        self._tasks.add(task)
        self._opening.update(dict.fromkeys(command.tokens, task))
        task.add_done_callback(lambda done: self._ended(command, done))

    def _ended(self, command: ReleaseBarrier, done: asyncio.Task[None]) -> None:
        self._tasks.discard(done)
        for token in command.tokens:
            if self._opening.get(token) is done:
                del self._opening[token]

    async def stop(self) -> None:
        """Give up; unsettled commands are performed again later."""
        tasks = [*self._tasks, *self._looks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _release(
        self, seq: int, command: ReleaseBarrier, request: Request, before: set[asyncio.Task[None]]
    ) -> None:
        """Open the barrier, after other openings of these components.

        A component that reports again that it waits is released alone, while files of others may still be read: it
        must not go ahead of them.
        """
        if before:
            await asyncio.wait(before)
        silent: set[SiteName] = set()
        defects = 0

        async def attempt() -> None:
            wanted = self._wanted(command.tokens)
            if not await self._open(command, request, wanted):
                self._unable = {token for token in self._unable if self._components.is_held(token)}
                self._unable.update(wanted)

        def failed(error: Exception) -> None:
            nonlocal defects
            if isinstance(error, _Unreachable):
                silent.add(error.site)
                self._silences.failed(error.site, _CALLER, error.reason)
            elif isinstance(error, UnseenError):
                _log.info("the barrier of job %s could not be opened yet: %s", command.job, error)
            else:
                defects += 1
                _log.error("the barrier of job %s could not be opened yet", command.job, exc_info=error)
                if defects == DEFECT_TRIES_MAX:
                    reason = f"an error inside Koala ({error!r}) at the opening of its barrier, {defects} times"
                    self._engine.report(JobQuarantined(at=self._engine.now(), job=command.job, reason=reason))

        def still_wanted() -> bool:
            return bool(self._wanted(command.tokens)) and defects < DEFECT_TRIES_MAX

        await retry_until_done(attempt, failed, still_wanted)
        for site in silent:
            self._silences.answered(site, _CALLER)
        self._engine.settle(seq)

    def _wanted(self, tokens: Sequence[Token]) -> list[Token]:
        """Return the components that are still to run: others need not be released."""
        return [token for token in tokens if self._components.is_released(token) and token not in self._unable]

    async def _open(self, command: ReleaseBarrier, request: Request, wanted: list[Token]) -> bool:
        """Prepare everything first, so that all start as nearly at the same moment as possible.

        Returns False if nobody was released, since the job cannot run.
        """
        rows = self._components.released_with(wanted[0])
        mine = [row for row in rows if row.token in wanted]
        sources = dict(zip(command.tokens, command.inputs, strict=False))
        try:
            gos = await self._gos(command.job, request, rows, wanted)
        except _TooFewError as error:
            await self._end(error.row, Fault.SITE, error.reason)
            return False
        except LaunchError as error:
            await asyncio.gather(*(self._end(row, Fault.JOB, error.for_user()) for row in mine))
            return False
        saved = dict(zip(command.tokens, command.checkpoints, strict=False))
        links_of = (
            self._all_links(row, request, sources.get(row.token, ()), saved.get(row.token, ())) for row in mine
        )
        found = await asyncio.gather(*links_of, return_exceptions=True)
        broken = [(row, each) for row, each in zip(mine, found, strict=True) if isinstance(each, _REFUSALS)]
        missing = [(row, error) for row, error in broken if not isinstance(error, TransferCancelledError)]
        if missing:
            # Nobody is released: a component must not run if another of its job is known to be unable to.
            ends = [self._end(row, _fault_of(error), error.for_user()) for row, error in missing]
            _raise_first(await asyncio.gather(*ends, return_exceptions=True))
            return False
        _raise_first([each for each in found if not isinstance(each, _REFUSALS)])
        # Components that have ended meanwhile need not be released, nor those whose piece was cancelled.
        still = set(self._wanted([row.token for row in mine]))
        ready = [(row, links) for row, links in zip(mine, found, strict=True) if isinstance(links, tuple)]
        releases = [self._release_one(row, gos[row.part], links) for row, links in ready if row.token in still]
        # An unreachable site has not kept the other components from being released.
        _raise_first(await asyncio.gather(*releases, return_exceptions=True))
        return True

    async def _release_one(self, row: ComponentRow, go: Go, links: tuple[InputLink, ...]) -> None:
        try:
            own = Go(environment=go.environment, links=links)
            await self._call(row.site, self._sites[row.site].release(row.token, own))
        except LaunchError as error:
            await self._end(row, Fault.JOB, error.for_user())
        except SiteError as error:
            await self._end(row, error.fault, error.message)

    async def _end(self, row: ComponentRow, fault: Fault, reason: str) -> None:
        """End a component that cannot run: the site lets go of it, and keeps the reason for its end."""
        _log.warning("component %s at %s cannot be released: %s", row.token, row.site, reason)
        outcome, site = Outcome.FAILED if fault.is_own else Outcome.SITE_FAILED, self._sites[row.site]
        try:
            await self._call(row.site, site.abort(row.token, outcome=outcome, reason=reason, fault=fault))
        except SiteError as error:
            raise _Unreachable(row.site, error.message) from None

    async def _call(self, site: SiteName, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._call_s):
                return await call
        except UnseenError:
            raise
        except OSError as error:
            reason = str(error) or f"it did not answer within {self._call_s:g} s"
            raise _Unreachable(site, reason) from None

    # ----------------------------------------------------------------------------- what components receive

    async def _gos(
        self, job: JobId, request: Request, rows: list[ComponentRow], wanted: Sequence[Token]
    ) -> tuple[Go, ...]:
        asked = (self._nodes(row) if row.token in wanted else self._nodes_before(row) for row in rows)
        found = await asyncio.gather(*asked, return_exceptions=True)
        peers = []
        for row, nodes in zip(rows, found, strict=True):
            if isinstance(nodes, BaseException):
                raise nodes
            peers.append(
                Peer(
                    part=row.part,
                    host=nodes[0].name,
                    processors=row.processors,
                    nodes=nodes,
                    processors_per_task=_component(request, row.part).application.processors_per_task,
                )
            )
        return go_for(request.job_type, job, peers)

    async def _nodes_before(self, row: ComponentRow) -> tuple[NodeShare, ...]:
        """Return the nodes of a component that was released before: as kept then, otherwise as its site reports. If
        the site is unreachable and the component has ended, the site's name replaces its node: nobody needs its
        address."""
        kept = self._components.nodes_of(row.token)
        if kept is not None:
            return kept
        try:
            return await self._nodes(row)
        except (_Unreachable, UnseenError):
            if row.ended_at is None:
                raise
            return (NodeShare(name=row.site, processors=row.processors),)

    async def _nodes(self, row: ComponentRow) -> tuple[NodeShare, ...]:
        try:
            nodes = await self._call(row.site, self._sites[row.site].nodes(row.token))
        except SiteError as error:
            raise _Unreachable(row.site, error.message) from None
        if not nodes:
            raise UnseenError(f"{row.site} does not say where component {row.token} is")
        processors = sum(node.processors for node in nodes)
        if processors < row.processors:
            raise _TooFewError(row, processors)
        self._components.keep_nodes(row.token, nodes)
        return nodes

    async def _all_links(
        self,
        row: ComponentRow,
        request: Request,
        sources: Sequence[InputSource],
        saved: Sequence[CheckpointSource],
    ) -> tuple[InputLink, ...]:
        """Return its input files, the files that travel with its job, and the checkpoint that it continues from."""
        links = await self._links_with_files(row, request, sources)
        if request.checkpoint is None or not saved:
            return links
        try:
            path = await self._checkpoints.bring(row, request.checkpoint, saved)
        except SourceSilentError as error:
            raise _Unreachable(error.site, str(error)) from None
        except TransferInterruptedError as error:
            raise _Unreachable(row.site, error.message) from None
        return links if path is None else (*links, InputLink(source=path, destination=CHECKPOINT_ARCHIVE))

    async def _links_with_files(
        self, row: ComponentRow, request: Request, sources: Sequence[InputSource]
    ) -> tuple[InputLink, ...]:
        """Return the component's input files, and the archive of the files that travel with its job."""
        links = await self._links(row, _component(request, row.part), sources)
        if not request.files:
            return links
        try:
            path = await self._transfers.bundle(row.token, row.site, request.files)
        except TransferInterruptedError as error:
            raise _Unreachable(row.site, error.message) from None
        return (*links, InputLink(source=path, destination=ARCHIVE_NAME))

    async def _links(
        self, row: ComponentRow, component: Component, sources: Sequence[InputSource]
    ) -> tuple[InputLink, ...]:
        """Return where each input file is at the site, and where it appears for the component."""
        links = []
        for number, (source, file) in enumerate(zip(sources, component.input_files, strict=True)):
            if source.transfer is not None:
                path = self._transfers.path_of(source.transfer)
                if path is None or await self._size_bytes(row.site, source.file, path) is None:
                    why = "its copy has gone; it is brought again"
                    raise MissingReplicaError(source.file, row.site, why, Fault.OURS)
            elif self._find_file(source.file) is None:
                raise MissingReplicaError(source.file, row.site, "it was forgotten; register it again")
            else:
                path = await self._own(row, number, source.file, source.chunk)
            links.append(InputLink(source=path, destination=destination_of(file)))
        return tuple(links)

    async def _own(self, row: ComponentRow, number: int, file: FileName, chunk: tuple[int, int] | None) -> str:
        entry = self._find_file(file)
        replica = None if entry is None else entry.replica_at(row.site)
        if entry is not None and chunk is None and replica is not None and replica.url is None:
            await self._check_replica(row.site, entry)
            return replica_path(file)
        try:
            return await self._transfers.piece(row.token, number, file, row.site, chunk)
        except TransferInterruptedError as error:
            raise _Unreachable(row.site, error.message) from None

    async def _check_replica(self, site: SiteName, entry: CatalogueEntry) -> None:
        """Check a replica, since a site's disk may have lost or altered the catalogue's file. It is read if it has
        changed since the last reading, and all jobs that need it meanwhile wait for that one reading."""
        try:
            there = await self._areas[site].verified_checksum(entry.name, entry.size_bytes)
        except OSError as error:
            raise _unread(entry.name, site, error) from None
        if there != entry.checksum:
            raise damaged(entry.name, site, there, entry.checksum)

    async def _size_bytes(self, site: SiteName, file: FileName, path: str) -> int | None:
        """Return the size of a file in the site's area, or None if there is none."""
        try:
            return await self._areas[site].size_bytes(path)
        except OSError as error:
            raise _unread(file, site, error) from None


def _unread(file: FileName, site: SiteName, error: OSError) -> Exception:
    """Return the error of a file that was not read. An unreachable site is asked again. A site that does not finish
    reading a file cannot read it."""
    if isinstance(error, ShellError) and not isinstance(error, ShellTimeoutError):
        return _Unreachable(site, str(error))
    return unreadable(file, site, error)


def _fault_of(error: FilesError | LaunchError) -> Fault:
    return error.fault if isinstance(error, FilesError) else Fault.JOB


def _raise_first(results: Iterable[object]) -> None:
    """Raise the first error among the results."""
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _component(request: Request, part: int) -> Component:
    """Return the description of a component; all components of a flexible job share one."""
    return request.components[0 if request.flexible is not None else part]
