"""A piece of a file on its way by a process at a site: begun or found again, looked at, resumed when it was cut.

The frame, what is verified when, is in ``koala.files.transfer.piece``; what the process runs is its lane's concern
(``koala.files.transfer.methods``). The part, its stamp and the finished copy are at the target, as everywhere.
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
from koala.files.area.remote import APPEAR
from koala.files.errors import FilesError, NoSpaceError, UnreachableError
from koala.files.hosts import failure, reading_s
from koala.files.sources import Stamp
from koala.files.transfer.interface import Order
from koala.files.transfer.methods import PART, Ends, Lane
from koala.files.transfer.piece import Bringing, Clock, Origin, Pause, T, Whole, reading_error, writing_error
from koala.files.transfer.remote_process import STOP, Look, size_text
from koala.sites.remote_shell import ShellError

# A flow is looked at after so long, then ever more rarely.
LOOK_FIRST_S = 0.1
LOOK_MOST_S = 2.0
LOOK_GROWTH = 1.3
# So many tries in a row that bring no byte end a transfer; the pause after one that failed, and the longest of them.
FRUITLESS_TRIES_MAX = 8
PAUSE_FIRST_S = 0.25
PAUSE_MOST_S = 30.0

# Chooses the lane for the next try. True when the last one brought nothing, so that another may be better.
ChooseLane: TypeAlias = Callable[[bool], Awaitable[Lane]]
_Told: TypeAlias = Callable[[Order, OSError], FilesError]


class Carried(Bringing):
    """Brings the piece of one order by a process that a lane describes."""

    def __init__(
        self,
        ends: Ends,
        choose: ChooseLane,
        *,
        whole: Whole,
        clock: Clock,
        pause: Pause,
        sharing: Callable[[], int] = lambda: 1,
    ) -> None:
        path = copy_path(ends.copy)
        super().__init__(ends.order, path, whole=whole, clock=clock, pause=pause, sharing=sharing)
        self._ends = ends
        self._choose = choose
        self._lane: Lane | None = None

    # ---------------------------------------------------------------------------------- steps of the frame

    async def _finished(self) -> str | None:
        size = self.order.size_bytes
        text = f'if [ -f data ] && [ "$(wc -c <data)" -eq {size} ]; then cat checksum; fi\n'
        verified = (await self._writing(lambda: self._at_home(text))).strip()
        if not verified:
            return None
        there = await self._writing(lambda: self._ends.target.checksum(self._in_home("data"), 0, size))
        return there if there == verified else None

    async def _stamp(self) -> Stamp:
        return await self._reading(lambda: self._ends.source.stamp(self._ends.path))

    async def _begin(self, origin: Origin, may_continue: bool) -> int:
        wanted = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
        lane = await self._writing(lambda: self._chosen(anew=False))
        watched = await self._writing(lane.watched)
        if may_continue:
            done = await self._writing(lambda: self._found(wanted, lane, watched))
            if done is not None and done <= self.order.size_bytes:
                return done
        # The part only after its origin is written, so that no byte is ever taken for one of another file.
        text = (
            f"{STOP}koala_stop\nrm -f {PART} {shlex.quote(watched)}\n"
            f"echo {wanted} >stamp.fresh\nmv -f stamp.fresh stamp\n: >{PART}\n"
        )
        await self._writing(lambda: self._at_home(text))
        return 0

    async def _found(self, wanted: str, lane: Lane, watched: str) -> int | None:
        """How much has arrived of what is wanted; None when something else was on its way, or nothing."""
        text = (
            f'[ -e {PART} ] && [ "$(cat stamp 2>/dev/null)" = {wanted} ] || exit 0\n'
            f"{size_text(PART)}\n{size_text(watched)}\n"
        )
        sizes = [int(word) for word in (await self._at_home(text)).split()]
        if not sizes:
            return None
        # A part that is whole was collected already, from wherever it arrived.
        return sizes[0] if sizes[0] == self.order.size_bytes else lane.arrived(sizes[1])

    async def _let_flow(self, done: int) -> None:
        self._tell(done)
        fruitless, wait_s = 0, PAUSE_FIRST_S
        try:
            while done < self.order.size_bytes:
                before, done, said = done, *(await self._try(done, anew=fruitless > 0))
                if done < self.order.size_bytes:
                    fruitless = 0 if done > before else fruitless + 1
                    wait_s = PAUSE_FIRST_S if done > before else min(2 * wait_s, PAUSE_MOST_S)
                    self._check_hope(fruitless, said)
                    await self._rest(wait_s)
            if self._lane is not None:
                await self._writing(self._lane.collect)
        finally:
            await self._clean()

    async def _digest_there(self) -> str:
        return await self._writing(lambda: self._ends.target.checksum(self._in_home(PART), 0, self.order.size_bytes))

    async def _digest_here(self) -> str:
        return await self._reading(
            lambda: self._ends.source.checksum(self._ends.path, self.order.offset, self.order.size_bytes)
        )

    async def _digest_whole(self) -> str:
        return await self._reading(self._whole)

    async def _finish(self, checksum: str) -> None:
        text = f"{APPEAR}echo {checksum} >checksum\nkoala_appear {PART} data\n"
        await self._writing(lambda: self._at_home(text, reading_s(self.order.size_bytes)))

    # ------------------------------------------------------------------------------------------ the flow

    async def _try(self, done: int, *, anew: bool) -> tuple[int, OSError]:
        """Let bytes flow until it ends, however it does: how many have arrived then, and what was said."""
        try:
            lane = await self._chosen(anew=anew)
            carriage, watched = await lane.carriage(), await lane.watched()
            await carriage.start(await lane.text(done, self._rate_bytes_s()))
        except OSError as error:
            return done, error
        wait_s, began = LOOK_FIRST_S, self._clock()
        look: Look | None = None
        while look is None or look.running:
            await self._rest(wait_s, carriage.stop)
            wait_s = min(wait_s * LOOK_GROWTH, LOOK_MOST_S)
            try:
                look = await carriage.look(watched if lane.at_target else None)
                size = look.size_bytes if lane.at_target else int(await self._at_home(f"{size_text(watched)}\n"))
            except OSError as error:
                # Whether it still flows is not known; the next try finds it, or goes on where it ended.
                return done, error
            arrived = min(lane.arrived(size), self.order.size_bytes)
            if arrived > done:
                self._copied += arrived - done
                done = arrived
                self._tell(done)
            now = self._clock()
            self._flowing_s += now - began
            began = now
        return done, failure(0 if look.code is None else look.code, look.said)

    def _check_hope(self, fruitless: int, said: OSError) -> None:
        """Raise when another try would bring nothing."""
        order = self.order
        meant = writing_error(order, said)
        if isinstance(meant, NoSpaceError):
            raise meant
        if fruitless >= FRUITLESS_TRIES_MAX:
            why = said.strerror or str(said)
            raise UnreachableError(
                order.file,
                order.target,
                f"it does not arrive from {order.source}, tried {fruitless} times (FRUITLESS_TRIES_MAX): {why}; "
                "check the way between the two sites",
            )

    async def _chosen(self, *, anew: bool) -> Lane:
        if self._lane is None or anew:
            if self._lane is not None:
                await self._clean()
            self._lane = await self._choose(anew)
        return self._lane

    async def _clean(self) -> None:
        # What is left then is removed at the next start, and takes no room until then.
        with contextlib.suppress(OSError):
            if self._lane is not None:
                await self._lane.clean()

    async def _rest(self, pause_s: float, ended: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait, or until it is stopped: then, if need be, something else is ended first."""
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
        return f"{COPIES}/{self._ends.copy}/{name}"

    async def _at_home(self, text: str, timeout_s: float | None = None) -> str:
        return await self._ends.target.do(f"cd {COPIES}/{self._ends.copy}\n{text}", timeout_s=timeout_s)

    async def _reading(self, step: Callable[[], Awaitable[T]]) -> T:
        """A step at the source."""
        return await self._patiently(step, reading_error)

    async def _writing(self, step: Callable[[], Awaitable[T]]) -> T:
        """A step at the target."""
        return await self._patiently(step, writing_error)

    async def _patiently(self, step: Callable[[], Awaitable[T]], told: _Told) -> T:
        """A step that is given up when the transfer is stopped, and repeated while its site does not answer."""
        wait_s = PAUSE_FIRST_S
        for left in reversed(range(FRUITLESS_TRIES_MAX)):
            try:
                return await self._unless_stopped(step)
            except ShellError as error:
                if left == 0:
                    raise told(self.order, error) from None
            except OSError as error:
                raise told(self.order, error) from None
            await self._rest(wait_s)
            wait_s = min(2 * wait_s, PAUSE_MOST_S)
        raise AssertionError("the last try returned or raised")
