"""Checkpoints at sites: asks a component to save its state, and brings what it saved to the next run's component.

The checkpoint of an ended component becomes one archive in the file area of its site, whole and with its checksum,
and remains there until a later one is in use. It is brought to another site as any file is, resumed and verified.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import EngineInterface
from koala.daemon.perform.retry import retry_until_done
from koala.daemon.perform.transfers import TransferWorker
from koala.files import (
    ChangedFileError,
    ChecksumError,
    FileArea,
    MissingReplicaError,
    UnreachableSiteError,
)
from koala.files.area.layout import replica_path
from koala.files.area.workspace import COMPONENTS, CollectedFile
from koala.files.errors import PathError
from koala.model.checkpoint import Checkpoint, CheckpointSource
from koala.model.launch import SAVE
from koala.model.messages import AskCheckpoint, CheckpointBrought, Token
from koala.model.outputs import OUTPUT_PREFIX
from koala.model.request import FileName, SiteName
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)

# The longest wait for a silent site that has a checkpoint, while the job holds its processors; then an older
# checkpoint is used, or none.
CHECKPOINT_PATIENCE_S = 600.0
# The errors of a disk that refuses an archive; a site may recover from any other failure.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
# Errors of an archive that has changed since it was made, if its site is the one where it was made.
_FAULTS_OF_SOURCE = (MissingReplicaError, ChangedFileError, ChecksumError)
# The first bytes of an archive with nothing in it.
_NOTHING = bytes(512)


def checkpoint_file(token: Token) -> FileName:
    """Return the name of a component's checkpoint archive in the file area of its site."""
    return f"{OUTPUT_PREFIX}checkpoint of component {token}"


class SourceSilentError(OSError):
    """The site that has the checkpoint does not answer now."""

    def __init__(self, site: SiteName, reason: str) -> None:
        super().__init__(reason)
        self.site = site


class CheckpointBringer:
    """Asks components to save their state, and brings the saved checkpoints of others."""

    def __init__(
        self,
        engine: EngineInterface,
        areas: Mapping[SiteName, FileArea],
        transfers: TransferWorker,
        components: ComponentRegister,
        *,
        patience_s: float = CHECKPOINT_PATIENCE_S,
    ) -> None:
        self._engine = engine
        self._areas = areas
        self._transfers = transfers
        self._components = components
        self._patience_s = patience_s
        self._asking: set[asyncio.Task[None]] = set()
        self._collecting: dict[Token, asyncio.Lock] = {}
        self._collected: dict[Token, CollectedFile | None] = {}  # of components that have ended, by their tokens
        self._silent_since: dict[Token, float] = {}
        self._told: set[Token] = set()

    async def stop(self) -> None:
        """Give up; unsettled commands are performed again later."""
        tasks = list(self._asking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------- asking

    def ask(self, seq: int, command: AskCheckpoint) -> None:
        """Ask the component to save its state; settles the command when it has been asked, or is gone."""
        task = asyncio.create_task(self._ask(seq, command), name=f"ask {command.token} to save")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, seq: int, command: AskCheckpoint) -> None:
        area = self._areas.get(command.site)

        async def attempt() -> None:
            if area is not None:
                home = f"{await area.root()}/../{COMPONENTS}/{command.token}"
                await area.host.run(_put_save(home))

        def failed(error: Exception) -> None:
            story = None if isinstance(error, OSError) else error
            _log.warning("component %s cannot be asked to save its state: %s", command.token, error, exc_info=story)

        await retry_until_done(attempt, failed, lambda: self._components.is_wanted(command.token))
        self._engine.settle(seq)

    # ------------------------------------------------------------------------------------- bringing

    async def bring(
        self, row: ComponentRow, checkpoint: Checkpoint, sources: Sequence[CheckpointSource]
    ) -> str | None:
        """Bring the last of these checkpoints to the component's site. Returns its path there, or None.

        Raises ``SourceSilentError`` while a site does not answer, for a limited time, and a ``FilesError`` if the
        component's own site cannot take it.
        """
        reasons: list[str] = []
        for source in sources:
            try:
                had = await self._have(row, source, checkpoint.directory)
            except (OSError, PathError) as error:
                reasons.append(self._passed_over(row.token, source, error))
                continue
            if had is None:
                continue
            made, path = had
            self._tell(row.token, reasons, source, made)
            await self._forget_older(sources[sources.index(source) + 1 :])
            return path
        if sources:
            self._tell(row.token, reasons)
        return None

    async def _have(
        self, row: ComponentRow, source: CheckpointSource, directory: str, *, again: bool = False
    ) -> tuple[CollectedFile, str] | None:
        """Bring the archive of a source to the component's site. Returns it with its path in the file area there.

        An archive that is damaged where it was made is made once more from the workspace. Raises ``OSError`` or
        ``PathError`` if the source is not available.
        """
        made = await self._collect(source, directory)
        if made is None:
            return None
        file = checkpoint_file(source.token)
        if source.site == row.site:
            return made, replica_path(file)
        try:
            return made, await self._transfers.checkpoint(row.token, file, source.site, row.site, made)
        except UnreachableSiteError as error:
            raise OSError(error.message) from None
        except _FAULTS_OF_SOURCE as error:
            if error.site != source.site:
                raise
            if self._collected.get(source.token) is made:  # nobody else has made it again meanwhile
                del self._collected[source.token]
            if again:
                raise PathError(error.message) from None
        return await self._have(row, source, directory, again=True)

    async def _collect(self, source: CheckpointSource, directory: str) -> CollectedFile | None:
        """Return the checkpoint of an ended component; None if there is none. All who want it wait for one
        reading."""
        area = self._areas.get(source.site)
        if area is None:
            raise PathError(f"{source.site} is not in the grid any more")
        async with self._collecting.setdefault(source.token, asyncio.Lock()):
            if source.token not in self._collected:
                file = checkpoint_file(source.token)
                made = await area.collect(file, source.token, directory)
                if made is not None and await area.read(replica_path(file), 0, len(_NOTHING)) == _NOTHING:
                    await area.forget(file)
                    made = None
                self._collected[source.token] = made
            return self._collected[source.token]

    def _passed_over(self, token: Token, source: CheckpointSource, error: OSError | PathError) -> str:
        """Return why this source is skipped. Raises ``SourceSilentError`` while its site may still be waited for."""
        what = f"what component {source.token} saved at {source.site} cannot be had"
        if isinstance(error, PathError):
            return f"{what}: {error}"
        if error.errno in _NO_ROOM:
            return f"{what}: {error.strerror}; make room there, or let it save less"
        since = self._silent_since.setdefault(token, self._engine.now())
        if self._engine.now() < since + self._patience_s:
            raise SourceSilentError(source.site, str(error)) from None
        return f"{what}: {source.site} did not answer for {self._patience_s:.0f} s ({error})"

    def _tell(
        self,
        token: Token,
        reasons: list[str],
        source: CheckpointSource | None = None,
        made: CollectedFile | None = None,
    ) -> None:
        self._silent_since.pop(token, None)
        if token not in self._told:
            self._told.add(token)
            brought = CheckpointBrought(at=self._engine.now(), token=token, reason="; ".join(reasons))
            if source is not None and made is not None:
                brought = msgspec.structs.replace(
                    brought,
                    source=source.site,
                    size_bytes=made.size_bytes,
                    saved_by=source.token,
                    saved_at=made.changed_at,
                )
            self._engine.report(brought)

    async def _forget_older(self, sources: Sequence[CheckpointSource]) -> None:
        """Drop the archives of older checkpoints: a later one is in use."""
        for source in sources:
            if self._collected.pop(source.token, None) is not None:
                try:
                    await self._areas[source.site].forget(checkpoint_file(source.token))
                except OSError as error:
                    _log.warning("an old checkpoint at %s cannot be removed: %s", source.site, error)

    def component_ended(self, token: Token) -> None:
        """Forget an ended component: nothing more is brought for it."""
        self._told.discard(token)
        self._silent_since.pop(token, None)


def _put_save(home: str) -> str:
    """Return a script that puts the file into a component's directory, if that exists, atomically."""
    fresh, final = shlex.quote(f"{home}/.{SAVE}.new"), shlex.quote(f"{home}/{SAVE}")
    return f"if [ -d {shlex.quote(home)} ]; then echo yes >{fresh} && mv -f {fresh} {final}; fi\n"
