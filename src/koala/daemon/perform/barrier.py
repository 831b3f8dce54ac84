"""Opening a barrier: every component of the job learns where the others are and gets its input files, all at once.

A replica that is used where it is must be the file that the catalogue knows, byte for byte. When the files of a
component cannot be had so, no component of the job is released: that one is ended with the reason, which sends the
job back as a whole, and nothing stays held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from koala.core.state.job import ComponentClaim, ComponentPhase
from koala.daemon.engine.interface import SITE_CALL_S, EngineInterface
from koala.daemon.launches import destination_of
from koala.daemon.perform.retry import retry_until_done
from koala.daemon.perform.transfers import TransferWorker
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
from koala.model.launch import Go, InputLink, LaunchError, NodeShare, Peer
from koala.model.messages import JobPlaced, Outcome, ReleaseBarrier, Token, TransferId
from koala.model.request import FileName, InputMode, SiteName
from koala.policies.demand import reads_of
from koala.policies.transfer_estimates import chunk_bytes
from koala.runners import go_for
from koala.sites import LiveSite, SiteError
from koala.sites.remote_shell import ShellError, ShellTimeoutError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)
T = TypeVar("T")


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


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One input file of a component: by which transfer it came, or what of the site's own replica is needed."""

    file: FileName
    destination: str
    transfer: TransferId | None
    known: bool
    chunk: tuple[int, int] | None


class BarrierOpener:
    """Performs ``ReleaseBarrier``, each in a task of its own, again until it has happened or is pointless."""

    def __init__(
        self,
        engine: EngineInterface,
        sites: Mapping[SiteName, LiveSite],
        areas: Mapping[SiteName, FileArea],
        transfers: TransferWorker,
    ) -> None:
        self._engine = engine
        self._sites = sites
        self._areas = areas
        self._transfers = transfers
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[Token, asyncio.Task[None]] = {}
        # Of jobs that were found unable to run: the core may hear of it only later.
        self._unable: set[Token] = set()
        self._looks: set[asyncio.Task[None]] = set()

    def foresee(self, placed: JobPlaced) -> None:
        """A job has places: begin to read the replicas that it will use there, beside its transfers and claims, so
        that its processors need not wait for that."""
        job = self._engine.scheduler.ledger.jobs.get(placed.job)
        if job is None:
            return
        wanted = set()
        for part, (site, _) in enumerate(placed.places):
            component = job.request.components[0 if job.request.flexible is not None else part]
            wanted |= {(site, file.name) for file in component.input_files}
        for site, file in sorted(wanted):
            entry = self._engine.entries.get(file)
            replica = None if entry is None else entry.replica_at(site)
            if entry is not None and replica is not None and replica.url is None:
                look = asyncio.create_task(self._look(site, entry), name=f"look at {file!r} at {site}")
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)

    async def _look(self, site: SiteName, entry: CatalogueEntry) -> None:
        # What is wrong with it is told when the barrier opens, if it is then still so.
        with contextlib.suppress(OSError, FilesError):
            await self._areas[site].verified_checksum(entry.name, entry.size_bytes)

    def start(self, seq: int, command: ReleaseBarrier) -> None:
        """Begin; settles the command when it is done."""
        before = {self._opening[token] for token in command.tokens if token in self._opening}
        task = asyncio.create_task(self._release(seq, command, before), name=f"release {command.job}")
        self._tasks.add(task)
        self._opening.update(dict.fromkeys(command.tokens, task))
        task.add_done_callback(lambda done: self._ended(command, done))

    def _ended(self, command: ReleaseBarrier, done: asyncio.Task[None]) -> None:
        self._tasks.discard(done)
        for token in command.tokens:
            if self._opening.get(token) is done:
                del self._opening[token]

    async def stop(self) -> None:
        """Give up; what is not settled is performed again later."""
        tasks = [*self._tasks, *self._looks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _release(self, seq: int, command: ReleaseBarrier, before: set[asyncio.Task[None]]) -> None:
        """Open the barrier, after all that has begun to open it.

        A component that says again that it waits is asked for alone, while files of others may still be read: it must
        not go ahead of them.
        """
        if before:
            await asyncio.wait(before)
        silent: set[SiteName] = set()

        async def attempt() -> None:
            wanted = self._wanted(command.tokens)
            if not await self._open(wanted):
                claims = self._engine.scheduler.ledger.claims
                self._unable = {token for token in self._unable if token in claims}
                self._unable.update(claim.token for claim in wanted)

        def failed(error: Exception) -> None:
            if isinstance(error, _Unreachable):
                silent.add(error.site)
                self._engine.silent(error.site, "releases", error.reason)
            else:
                _log.error("the barrier of job %s could not be opened yet", command.job, exc_info=error)

        await retry_until_done(attempt, failed, lambda: bool(self._wanted(command.tokens)))
        for site in silent:
            self._engine.answered(site, "releases")
        self._engine.settle(seq)

    def _wanted(self, tokens: Sequence[Token]) -> list[ComponentClaim]:
        """Those that are still to run: nobody else need hear of the opening."""
        claims = self._engine.scheduler.ledger.claims
        found = [claims[token] for token in tokens if token in claims and token not in self._unable]
        return [claim for claim in found if claim.phase is ComponentPhase.RUNNING and not claim.aborting]

    async def _open(self, wanted: list[ComponentClaim]) -> bool:
        """Everything is made ready first, so that all start as nearly at the same moment as can be.

        False when nobody was released, since the job cannot run.
        """
        rows = self._of_one_run(wanted[0].token)
        mine = [rows[claim.component] for claim in wanted]
        # What the core knows of the job's files is read before anything is waited for: the job may leave meanwhile.
        plans = [self._plan(claim, row) for claim, row in zip(wanted, mine, strict=True)]
        try:
            gos = await self._gos(wanted[0], rows)
        except _TooFewError as error:
            await self._end(error.row, Outcome.SITE_FAILED, error.reason)
            return False
        except LaunchError as error:
            await asyncio.gather(*(self._end(row, Outcome.FAILED, error.for_user()) for row in mine))
            return False
        found = await asyncio.gather(*map(self._links, mine, plans), return_exceptions=True)
        broken = [(row, error) for row, error in zip(mine, found, strict=True) if isinstance(error, FilesError)]
        missing = [(row, error) for row, error in broken if not isinstance(error, TransferCancelledError)]
        if missing:
            # Nobody is released: a part of the job must not run when it is known that another cannot.
            ends = [self._end(row, Outcome.SITE_FAILED, error.for_user()) for row, error in missing]
            _raise_first(await asyncio.gather(*ends, return_exceptions=True))
            return False
        _raise_first([each for each in found if not isinstance(each, FilesError)])
        # Who has ended meanwhile, as has one whose piece was cancelled, need not hear anything.
        still = {claim.token for claim in self._wanted([row.token for row in mine])}
        ready = [(row, links) for row, links in zip(mine, found, strict=True) if isinstance(links, tuple)]
        releases = [self._release_one(row, gos[row.part], links) for row, links in ready if row.token in still]
        # One that cannot be reached has not kept the others from hearing it.
        _raise_first(await asyncio.gather(*releases, return_exceptions=True))
        return True

    async def _release_one(self, row: ComponentRow, go: Go, links: tuple[InputLink, ...]) -> None:
        try:
            told = Go(environment=go.environment, links=links)
            await self._call(row.site, self._sites[row.site].release(row.token, told))
        except LaunchError as error:
            await self._end(row, Outcome.FAILED, error.for_user())
        except SiteError as error:
            await self._end(row, Outcome.SITE_FAILED, error.message)

    async def _end(self, row: ComponentRow, outcome: Outcome, reason: str) -> None:
        """The component cannot run: the site lets go of it, and keeps why for its end to say."""
        _log.warning("component %s at %s cannot be released: %s", row.token, row.site, reason)
        try:
            await self._call(row.site, self._sites[row.site].abort(row.token, outcome=outcome, reason=reason))
        except SiteError as error:
            raise _Unreachable(row.site, error.message) from None

    async def _call(self, site: SiteName, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(SITE_CALL_S):
                return await call
        except OSError as error:
            reason = str(error) or f"it did not answer within {SITE_CALL_S:g} s"
            raise _Unreachable(site, reason) from None

    # ----------------------------------------------------------------------------- what components are told

    def _of_one_run(self, token: Token) -> list[ComponentRow]:
        """All components that this barrier let go, in order of their parts, also those that have ended since."""
        own = self._engine.rows.components[token]
        rows = [row for row in self._engine.rows.components_of(own.job) if row.run == own.run]
        return sorted((row for row in rows if row.released_at is not None), key=lambda row: row.part)

    async def _gos(self, claim: ComponentClaim, rows: list[ComponentRow]) -> tuple[Go, ...]:
        request = claim.job.request
        found = await asyncio.gather(*(self._nodes(row) for row in rows), return_exceptions=True)
        peers = []
        for row, nodes in zip(rows, found, strict=True):
            if isinstance(nodes, BaseException):
                raise nodes
            application = request.components[0 if request.flexible is not None else row.part].application
            peers.append(
                Peer(
                    part=row.part,
                    host=nodes[0].name,
                    processors=row.processors,
                    nodes=nodes,
                    processors_per_task=application.processors_per_task,
                )
            )
        return go_for(request.job_type, claim.job.id, peers)

    async def _nodes(self, row: ComponentRow) -> tuple[NodeShare, ...]:
        try:
            nodes = await self._call(row.site, self._sites[row.site].nodes(row.token))
        except SiteError as error:
            raise _Unreachable(row.site, error.message) from None
        if not nodes:
            raise _Unreachable(row.site, f"it does not say where component {row.token} is")
        processors = sum(node.processors for node in nodes)
        if processors < row.processors:
            raise _TooFewError(row, processors)
        return nodes

    def _plan(self, claim: ComponentClaim, row: ComponentRow) -> list[_Wanted]:
        """The input files of a component: a copy that was brought, the site's own replica, or a piece of that."""
        job, part = claim.job, claim.component
        component = job.request.components[0 if job.request.flexible is not None else part]
        if not component.input_files:
            return []
        assert job.demand is not None
        assert job.spots is not None
        brought = {key[0]: job.transfers[key].id for key in job.needs[part]}
        reads = {read.file: read for read in reads_of(job.demand, job.spots.sizes, part)}
        view = self._engine.scheduler.ledger.sites.view
        plan = []
        for file in component.input_files:
            chunked = file.mode is InputMode.CHUNK and file.name in view.files
            plan.append(
                _Wanted(
                    file=file.name,
                    destination=destination_of(file),
                    transfer=brought.get(file.name),
                    known=file.name in view.files,
                    chunk=chunk_bytes(reads[file.name], view) if chunked else None,
                )
            )
        return plan

    async def _links(self, row: ComponentRow, plan: list[_Wanted]) -> tuple[InputLink, ...]:
        links = []
        for number, wanted in enumerate(plan):
            if wanted.transfer is not None:
                path = self._transfers.path_of(wanted.transfer)
                if path is None or await self._size_bytes(row.site, wanted.file, path) is None:
                    raise MissingReplicaError(wanted.file, row.site, "its copy has gone; it is brought again")
            elif not wanted.known:
                raise MissingReplicaError(wanted.file, row.site, "it was forgotten; register it again")
            else:
                path = await self._own(row, number, wanted.file, wanted.chunk)
            links.append(InputLink(source=path, destination=wanted.destination))
        return tuple(links)

    async def _own(self, row: ComponentRow, number: int, file: FileName, chunk: tuple[int, int] | None) -> str:
        entry = self._engine.entries.get(file)
        replica = None if entry is None else entry.replica_at(row.site)
        if entry is not None and chunk is None and replica is not None and replica.url is None:
            await self._check_replica(row.site, entry)
            return replica_path(file)
        try:
            return await self._transfers.piece(row.token, number, file, row.site, chunk)
        except TransferInterruptedError as error:
            raise _Unreachable(row.site, error.message) from None

    async def _check_replica(self, site: SiteName, entry: CatalogueEntry) -> None:
        """A site's disk may have lost or altered what the catalogue knows. It is read if it has changed since it was
        last read, and all jobs that need it meanwhile wait for that one reading."""
        try:
            there = await self._areas[site].verified_checksum(entry.name, entry.size_bytes)
        except OSError as error:
            raise _unread(entry.name, site, error) from None
        if there != entry.checksum:
            raise damaged(entry.name, site, there, entry.checksum)

    async def _size_bytes(self, site: SiteName, file: FileName, path: str) -> int | None:
        """How large a file in the site's area is, or None where there is none."""
        try:
            return await self._areas[site].size_bytes(path)
        except OSError as error:
            raise _unread(file, site, error) from None


def _unread(file: FileName, site: SiteName, error: OSError) -> Exception:
    """A site that cannot be asked now is asked again. One that does not come to an end with a file cannot read it."""
    if isinstance(error, ShellError) and not isinstance(error, ShellTimeoutError):
        return _Unreachable(site, str(error))
    return unreadable(file, site, error)


def _raise_first(results: Iterable[object]) -> None:
    """Raise the first error among what was gathered."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
