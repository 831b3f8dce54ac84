"""The transfer of a piece by a process at a site: begun or found again, watched, resumed when it breaks.

``koala.files.transfer.piece`` decides what is verified when; the method (``koala.files.transfer.methods``) decides
what the process runs. The part, its stamp and the finished copy are at the target, as everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shlex
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from koala.files.area.layout import COPIES, copy_path
from koala.files.errors import FilesError, NoSpaceError, UnreachableSiteError
from koala.files.hosts import SCRIPT_S, failure, read_limit_s
from koala.files.remote_process import ProcessState
from koala.files.sources import Stamp
from koala.files.transfer.methods import PART, PIECE_FUNCTIONS, Endpoints, Method
from koala.files.transfer.order import Order
from koala.files.transfer.piece import Clock, Origin, Pause, PieceTransfer, T, Whole, reading_error, writing_error
from koala.sites.remote_shell import ShellError

# The pauses between two looks at the process: the first, the longest, and their growth.
LOOK_FIRST_S = 0.1
LOOK_MOST_S = 2.0
LOOK_GROWTH = 1.3
# A transfer ends after this many consecutive tries that move no byte. Below: the first and the longest pause after
# one.
FRUITLESS_TRIES_MAX = 8
PAUSE_FIRST_S = 0.25
PAUSE_MOST_S = 30.0

# Chooses the method for the next try. The argument is True if the last one moved nothing, so that another may be
# better.
ChooseMethod: TypeAlias = Callable[[bool], Awaitable[Method]]
_ErrorOf: TypeAlias = Callable[[Order, OSError], FilesError]


class RemotePieceTransfer(PieceTransfer):
    """Transfers the piece of one order by a process that a method describes."""

    def __init__(
        self,
        endpoints: Endpoints,
        choose: ChooseMethod,
        *,
        whole: Whole,
        clock: Clock,
        pause: Pause,
        sharing: Callable[[], int] = lambda: 1,
        tries_max: int = FRUITLESS_TRIES_MAX,
    ) -> None:
        path = copy_path(endpoints.copy)
        super().__init__(endpoints.order, path, whole=whole, clock=clock, pause=pause, sharing=sharing)
        self._endpoints = endpoints
        self._choose = choose
        self._tries_max = tries_max
        self._method: Method | None = None

    # ---------------------------------------------------------------------------------- steps of a transfer

    async def _finished(self) -> str | None:
        size = self.order.size_bytes
        verified = (await self._writing(lambda: self._call("koala_finished", str(size)))).strip()
        if not verified:
            return None
        there = await self._writing(lambda: self._endpoints.target.checksum(self._in_home("data"), 0, size))
        return there if there == verified else None

    async def _stamp(self) -> Stamp:
        return await self._reading(lambda: self._endpoints.source.stamp(self._endpoints.path))

    async def _begin(self, origin: Origin, may_continue: bool) -> int:
        wanted = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
        method = await self._writing(lambda: self._chosen(anew=False))
        watched = await self._writing(method.watched)
        if may_continue:
            done = await self._writing(lambda: self._found(wanted, method, watched))
            if done is not None and done <= self.order.size_bytes:
                return done
        await self._writing(lambda: self._call("koala_begin", wanted, watched))
        return 0

    async def _found(self, wanted: str, method: Method, watched: str) -> int | None:
        """Return how much of the wanted piece has arrived; None if something else was in progress, or nothing."""
        sizes = [int(word) for word in (await self._call("koala_found", wanted, watched)).split()]
        if not sizes:
            return None
        # A complete part was collected already, wherever it arrived.
        return sizes[0] if sizes[0] == self.order.size_bytes else method.arrived(sizes[1])

    async def _move_bytes(self, done: int) -> None:
        self._tell(done)
        fruitless, wait_s = 0, PAUSE_FIRST_S
        try:
            while done < self.order.size_bytes:
                before, done, said = done, *(await self._try(done, anew=fruitless > 0))
                if done < self.order.size_bytes:
                    fruitless = 0 if done > before else fruitless + 1
                    wait_s = PAUSE_FIRST_S if done > before else min(2 * wait_s, PAUSE_MOST_S)
                    self._check_tries(fruitless, said)
                    await self._rest(wait_s)
            if self._method is not None:
                await self._writing(self._method.collect)
        finally:
            await self._clean()

    async def _digest_there(self) -> str:
        return await self._writing(
            lambda: self._endpoints.target.checksum(self._in_home(PART), 0, self.order.size_bytes)
        )

    async def _digest_here(self) -> str:
        return await self._reading(
            lambda: self._endpoints.source.checksum(self._endpoints.path, self.order.offset, self.order.size_bytes)
        )

    async def _digest_whole(self) -> str:
        return await self._reading(self._whole)

    async def _finish(self, checksum: str) -> None:
        limit_s = read_limit_s(self.order.size_bytes)
        await self._writing(lambda: self._call("koala_finish", checksum, timeout_s=limit_s))

    # ------------------------------------------------------------------------------------------ the flow

    async def _try(self, done: int, *, anew: bool) -> tuple[int, OSError]:
        """Let bytes flow until the process ends; return how many have arrived, and the error that ended it."""
        try:
            method = await self._chosen(anew=anew)
            process, watched = await method.process(), await method.watched()
            await process.start(await method.script(done, self._rate_bytes_s()))
        except OSError as error:
            return done, error
        wait_s, began = LOOK_FIRST_S, self._clock()
        state: ProcessState | None = None
        while state is None or state.running:
            await self._rest(wait_s, process.stop)
            wait_s = min(wait_s * LOOK_GROWTH, LOOK_MOST_S)
            try:
                state = await process.look(watched if method.at_target else None)
                size = state.size_bytes if method.at_target else int(await self._call("koala_size_or_none", watched))
            except OSError as error:
                # It is unknown whether bytes still flow; the next try finds the process, or resumes where it ended.
                return done, error
            arrived = min(method.arrived(size), self.order.size_bytes)
            if arrived > done:
                self._copied += arrived - done
                done = arrived
                self._tell(done)
            now = self._clock()
            self._flowing_s += now - began
            began = now
        return done, failure(0 if state.code is None else state.code, state.said)

    def _check_tries(self, fruitless: int, said: OSError) -> None:
        """Raise an error if another try would move nothing."""
        order = self.order
        meant = writing_error(order, said)
        if isinstance(meant, NoSpaceError):
            raise meant
        if fruitless >= self._tries_max:
            why = said.strerror or str(said)
            raise UnreachableSiteError(
                order.file,
                order.target,
                f"it does not arrive from {order.source}, tried {fruitless} times (FRUITLESS_TRIES_MAX): {why}; "
                "check the connection between the two sites",
            )

    async def _chosen(self, *, anew: bool) -> Method:
        if self._method is None or anew:
            if self._method is not None:
                await self._clean()
            self._method = await self._choose(anew)
        return self._method

    async def _clean(self) -> None:
        # Leftovers are removed at the next start, and take no space until then.
        with contextlib.suppress(OSError):
            if self._method is not None:
                await self._method.clean()

    async def _rest(self, pause_s: float, ended: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait, or until the transfer is stopped: then call ``ended`` first, if it is given."""
        pausing = asyncio.ensure_future(self._pause(pause_s))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({pausing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()
            stopping.cancel()
        if self._stopping.is_set() and ended is not None:
            with contextlib.suppress(OSError):
                await ended()
        self._check_stopped()

    # ------------------------------------------------------------------------------------- steps at the sites

    def _in_home(self, name: str) -> str:
        return f"{COPIES}/{self._endpoints.copy}/{name}"

    async def _call(self, *words: str, timeout_s: float = SCRIPT_S) -> str:
        """Run a function of ``piece.sh`` in the copy's directory."""
        script = f"cd {COPIES}/{self._endpoints.copy}\n{PIECE_FUNCTIONS}{shlex.join(words)}\n"
        return await self._endpoints.target.run(script, timeout_s=timeout_s)

    async def _reading(self, step: Callable[[], Awaitable[T]]) -> T:
        """Perform a step at the source."""
        return await self._repeatedly(step, reading_error)

    async def _writing(self, step: Callable[[], Awaitable[T]]) -> T:
        """Perform a step at the target."""
        return await self._repeatedly(step, writing_error)

    async def _repeatedly(self, step: Callable[[], Awaitable[T]], error_of: _ErrorOf) -> T:
        """Perform a step, which is abandoned when the transfer is stopped and repeated while its site does not
        answer."""
        wait_s = PAUSE_FIRST_S
        for left in reversed(range(self._tries_max)):
            try:
                return await self._unless_stopped(step)
            except ShellError as error:
                if left == 0:
                    raise error_of(self.order, error) from None
            except OSError as error:
                raise error_of(self.order, error) from None
            await self._rest(wait_s)
            wait_s = min(2 * wait_s, PAUSE_MOST_S)
        raise AssertionError("the last try returned or raised")
