"""Collects outputs: takes the files of components into their site's file area, and sends them on if the job says so.

Each order is a task that goes on until it has an answer: whatever a site cannot do now is tried again. Before a
replica comes into an area a mark records that it is in doubt, so that a replica that never gets into the catalogue
does not stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeAlias

import msgspec

from koala.daemon.grid_sites import GridLinks
from koala.daemon.offload import in_own_thread
from koala.daemon.perform.interface import EngineInterface
from koala.daemon.perform.retry import RETRY_FIRST_S, RETRY_MOST_S
from koala.files import (
    FileArea,
    FileMover,
    FilesError,
    LargeOutputError,
    Order,
    PathError,
    TransferCancelledError,
    TransferInterruptedError,
)
from koala.files.area.layout import copy_name, replica_path
from koala.files.area.local import LocalArea
from koala.files.area.workspace import CollectedFile
from koala.files.checksums import READ_BYTES
from koala.files.sources import UrlTarget
from koala.model.facts import JobEnded, JobRequeued
from koala.model.messages import CollectOutputs, JobQuarantined, OutputsCollected, Token, TransferId
from koala.model.outputs import JobOutput, MadeOutput, output_name
from koala.model.request import FileName, JobId, SiteName

_log = logging.getLogger(__name__)

# A larger output is collected in a turn of its own.
AT_ONCE_BYTES_MAX = 67_108_864
# At one place, this machine or a site, at most this many small outputs are packed and read at a time, and this many
# large ones; each also has a limit per user.
SMALL_AT_ONCE_MAX, SMALL_PER_USER_MAX = 16, 8
LARGE_AT_ONCE_MAX, LARGE_PER_USER_MAX = 4, 1
# A refusal by a disk, a target or a URL is retried this long before the job gets it.
COLLECT_PATIENCE_S = 600.0
# The system's errors of a silent site; one without a number comes from the shell of a remote site.
_SILENCE = (
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
)

# Called with each replica that is in doubt until its job is over.
InDoubt: TypeAlias = Callable[[SiteName, FileName], None]


class CollectTurns:
    """The turns to pack and read outputs at each place: limited in number, and per user."""

    def __init__(self, at_once_max: int, per_user_max: int) -> None:
        self._at_once_max = at_once_max
        self._per_user_max = per_user_max
        # and the number of tasks that use each
        self._turns: dict[tuple[str, ...], tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def take(self, place: str, user: str) -> AsyncIterator[None]:
        """Wait for a turn; first behind the user's own, so that nobody waits behind many tasks of another user."""
        async with self._one_of((place, user), self._per_user_max), self._one_of((place,), self._at_once_max):
            yield

    @contextlib.asynccontextmanager
    async def _one_of(self, key: tuple[str, ...], most: int) -> AsyncIterator[None]:
        turns, count = self._turns.get(key, (asyncio.Semaphore(most), 0))
        self._turns[key] = turns, count + 1
        try:
            async with turns:
                yield
        finally:
            turns, count = self._turns.pop(key)
            if count > 1:
                self._turns[key] = turns, count - 1


class OutputCollector:
    """Performs ``CollectOutputs``, each token once at a time."""

    def __init__(
        self,
        engine: EngineInterface,
        areas: Mapping[SiteName, FileArea],
        mover: FileMover,
        links: GridLinks,
        owner_of: Callable[[JobId], str],
        *,
        patience_s: float = COLLECT_PATIENCE_S,
        first_s: float = RETRY_FIRST_S,
        at_once_bytes_max: int = AT_ONCE_BYTES_MAX,
    ) -> None:
        self._engine = engine
        self._areas = areas
        self._mover = mover
        self._links = links
        self._owner_of = owner_of
        self._at_once_bytes_max = at_once_bytes_max
        self._small = CollectTurns(SMALL_AT_ONCE_MAX, SMALL_PER_USER_MAX)
        self._large = CollectTurns(LARGE_AT_ONCE_MAX, LARGE_PER_USER_MAX)
        self._ending: set[asyncio.Task[None]] = set()
        self._patience_s = patience_s
        self._first_s = first_s
        self._tasks: dict[Token, asyncio.Task[None]] = {}
        self._troubles: dict[Token, str] = {}  # why a collection under way makes no progress
        self._answered: dict[JobId, dict[Token, OutputsCollected]] = {}
        self.in_doubt: InDoubt = lambda _site, _file: None

    def start(self, command: CollectOutputs) -> None:
        """Begin, unless it is under way; ends in ``OutputsCollected``. A repeated order gets the same answer
        again."""
        answer = self._answered.get(command.job, {}).get(command.token)
        if answer is not None:
            self._engine.report(answer)
        elif command.token not in self._tasks:
            task = asyncio.create_task(self._perform(command), name=f"outputs of {command.token}")
            self._tasks[command.token] = task
            task.add_done_callback(lambda _: self._over(command.token))

    def _over(self, token: Token) -> None:
        self._tasks.pop(token, None)
        self._troubles.pop(token, None)

    def troubles(self, job: JobId) -> list[str]:
        """Return what delays the collection of a job's outputs; it is tried again."""
        return [why for token, why in sorted(self._troubles.items()) if token.partition(".")[0] == str(job)]

    def ended(self, fact: JobEnded | JobRequeued) -> None:
        """Forget a run that is over: nobody asks again for its outputs."""
        self._answered.pop(fact.job, None)
        for token in [token for token in self._tasks if token.partition(".")[0] == str(fact.job)]:
            self._tasks[token].cancel()
            self._cancel_transfers(token)

    def _cancel_transfers(self, token: Token) -> None:
        """Cancel the transfers of its outputs; any that cannot be cancelled now is cancelled at the next start."""
        prefix = _transfer_of(token, "")
        for transfer in [each for each in self._mover.transfers if each.startswith(prefix)]:
            task = asyncio.create_task(self._cancel_transfer(transfer), name=f"cancel {transfer}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _cancel_transfer(self, transfer: TransferId) -> None:
        try:
            await self._mover.cancel(transfer)
        except OSError as error:
            _log.warning("transfer %s cannot be cancelled yet: %s", transfer, error)

    async def stop(self) -> None:
        """Give up what is under way; the same orders come again."""
        tasks = [*self._tasks.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answered.clear()

    async def _perform(self, command: CollectOutputs) -> None:
        try:
            answer = await self._collect(command)
        except (TransferCancelledError, TransferInterruptedError):
            return
        except Exception as error:
            _log.exception("outputs of component %s could not be collected", command.token)
            reason = f"an error inside Koala ({error!r}) at CollectOutputs"
            self._engine.report(JobQuarantined(at=self._engine.now(), job=command.job, reason=reason))
            return
        self._answered.setdefault(command.job, {})[command.token] = answer
        self._engine.report(answer)

    async def _collect(self, command: CollectOutputs) -> OutputsCollected:
        made: list[MadeOutput] = []
        problem = ""
        for number, output in enumerate(command.outputs):
            wait_s, trouble_s = self._first_s, 0.0
            while True:
                try:
                    found = await self._one(command, number, output)
                except (TransferCancelledError, TransferInterruptedError):
                    raise
                except PathError as error:
                    problem = f"output {error.for_user()}"
                    break
                except (FilesError, OSError) as error:
                    # Silence is no answer, and costs no patience; every answer does.
                    refused = isinstance(error, FilesError) or self._is_answer(command.site, error)
                    _log.warning("output %s of component %s: %s", output.path, command.token, error)
                    self._troubles[command.token] = _trouble(output, command.site, error)
                    if refused and trouble_s >= self._patience_s:
                        problem = (
                            f"{self._troubles[command.token]}, for {self._patience_s:.0f} s (COLLECT_PATIENCE_S); "
                            "what the job made is still in its workspace"
                        )
                        break
                    await asyncio.sleep(wait_s)
                    trouble_s += wait_s if refused else 0.0
                    wait_s = min(2 * wait_s, RETRY_MOST_S)
                else:
                    self._troubles.pop(command.token, None)
                    made += [] if found is None else [found]
                    break
            if problem:
                break
        return OutputsCollected(
            at=self._engine.now(), job=command.job, token=command.token, outputs=tuple(made), problem=problem
        )

    async def _one(self, command: CollectOutputs, number: int, output: JobOutput) -> MadeOutput | None:
        """Take in one output, and send it on to its target; None if the component did not make it."""
        area = self._areas.get(command.site)
        if area is None:
            raise PathError(f"{output.path!r}: there is no site {command.site} any more")
        # The inspection decides which of the two names it gets.
        names = {
            directory: output_name(
                command.job,
                command.part,
                MadeOutput(path=output.path, size_bytes=0, checksum="", directory=directory).file,
            )
            for directory in (False, True)
        }
        await self._doubt(command.site, names[False])
        found = await self._collect_in_turn(command, area, names[False], output.path)
        if found is None:
            return None
        if found.directory:
            await self._doubt(command.site, names[True])
            await area.take_name(names[False], names[True])
        made = MadeOutput(
            path=output.path, size_bytes=found.size_bytes, checksum=found.checksum, directory=found.directory
        )
        name = names[found.directory]
        if output.to is None or output.to == command.site:
            return made
        if output.to_url:
            await self._to_url(area, name, made, output.to)
            return made
        await self._to_site(command, number, name, made, output.to)
        return msgspec.structs.replace(made, also_at=(output.to,))

    async def _collect_in_turn(
        self, command: CollectOutputs, area: FileArea, name: FileName, path: str
    ) -> CollectedFile | None:
        """Pack and read an output when its user has a turn; a large one waits for another turn."""
        # This machine reads for all sites whose files it sees.
        place, user = "" if area.host.is_local else command.site, self._owner_of(command.job)
        try:
            async with self._small.take(place, user):
                return await area.collect(name, command.token, path, at_once_bytes=self._at_once_bytes_max)
        except LargeOutputError:
            async with self._large.take(place, user):
                return await area.collect(name, command.token, path)

    def _is_answer(self, site: SiteName, error: OSError) -> bool:
        """Return True if the site, or its disk, has refused; an error without a number is a refusal only from a local
        disk."""
        if error.errno is None:
            return isinstance(self._areas.get(site), LocalArea)
        return error.errno not in _SILENCE

    async def _doubt(self, site: SiteName, name: FileName) -> None:
        await self._areas[site].doubt(name)
        self.in_doubt(site, name)

    async def _to_site(
        self, command: CollectOutputs, number: int, name: FileName, made: MadeOutput, target: SiteName
    ) -> None:
        area = self._areas.get(target)
        if area is None:
            raise PathError(f"{made.path!r}: there is no site {target} to bring it to; take it from the catalogue")
        order = Order(
            transfer=_transfer_of(command.token, str(number)),
            file=name,
            source=command.site,
            target=target,
            size_bytes=made.size_bytes,
            checksum=made.checksum,
            rate_bytes_s=self._links.rate_bytes_s(command.site, target),
        )
        await self._mover.transfer(order)
        await self._doubt(target, name)
        await area.promote(name, copy_name(name, None, made.checksum))
        await self._mover.cancel(order.transfer)

    async def _to_url(self, area: FileArea, name: FileName, made: MadeOutput, url: str) -> None:
        """Write it to a URL, a piece at a time, and check that all of it is there."""
        whole = f"{url}{made.file}" if url.endswith("/") else url
        target = await in_own_thread(UrlTarget, name, area.site, whole, threading.Lock())
        try:
            offset = 0
            while offset < made.size_bytes:
                piece = await area.read(replica_path(name), offset, min(READ_BYTES, made.size_bytes - offset))
                if not piece:
                    raise FilesError(name, area.site, "it has become shorter meanwhile")
                await in_own_thread(target.write, piece)
                offset += len(piece)
            await in_own_thread(target.finish, made.size_bytes)
        except BaseException:
            await asyncio.shield(in_own_thread(target.give_up))
            raise


def _transfer_of(token: Token, number: str) -> TransferId:
    """Return the transfer of a component's output to another site."""
    return f"output.{token}.{number}"


def _trouble(output: JobOutput, site: SiteName, error: Exception) -> str:
    """Describe an output, where it is or was to go, and why that fails."""
    why = error.for_user() if isinstance(error, FilesError) else getattr(error, "strerror", None) or str(error)
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
        why = f"it cannot be read ({why})"
    target = f" to {output.to}" if output.to_url else ""
    return f"output {output.path!r} at {site}{target}: {why}"
