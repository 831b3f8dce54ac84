"""The embedded site: processors of this machine as slots, with all records on disk.

Components are detached processes; this object only watches them. Kill it at any point and make another on the same
root: it finds every component again. ``koala.sites.local.worker`` uses disk and processes, in a thread of the site's
own, in the order of the calls; this module is the part in the driver's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from koala.model.errors import Fault
from koala.model.launch import Go, Launch, NodeShare
from koala.model.messages import AnyEvent, Outcome, SiteReported, SiteSilent, Token
from koala.model.nodes import NodeClass
from koala.sites import processes
from koala.sites.component_directory import FILES, AbortRecord
from koala.sites.local.removal import remove_tree
from koala.sites.local.worker import OTHERS, LocalWorker
from koala.sites.protocol import OUTPUT_BYTES_MAX, Clock, Deliver, Emit, Found, Mail, SiteError, Stream

_log = logging.getLogger(__name__)

# How often components are inspected while there are any.
POLL_S = 0.05
# How long an application may take to end after SIGTERM before it receives SIGKILL.
GRACE_S = 5.0
# How long the watch rests after a failure of this machine, for example a full disk.
REST_S = 1.0
# At most this many searches for unknown processes when the site is opened, until there are none.
STRAY_SEARCHES_MAX = 100

P = ParamSpec("P")
T = TypeVar("T")


class OrderedThread:
    """A thread that executes one call after the other for callers in the event loop in which it was made, so that
    slow files delay nobody else."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def do(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return the result of a call, after all earlier calls.

        A call may or may not happen if its caller gives up waiting; the caller's next call still comes after it.
        """
        return await asyncio.wrap_future(self._thread.submit(call, *arguments, **named), loop=self._loop)

    def tell(self, listener: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> None:
        """Call someone in the event loop from within the thread, in this order, before ``do`` returns there."""
        self._loop.call_soon_threadsafe(lambda: listener(*arguments, **named))

    async def finish(self, last: Callable[[], None]) -> None:
        """Make this last call, even if the caller gives up waiting, and accept no more."""
        done = self._thread.submit(last)
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(done, loop=self._loop))


class _Opened(NamedTuple):
    worker: LocalWorker
    thread: OrderedThread


class LocalSite:
    """A site of ``processors`` slots below the directory ``root``. Keeps the promises of
    ``koala.sites.protocol.LiveSite``.

    Its owner may keep processors for other users by writing their number into the file ``others`` of the root: new
    components start only in the rest, running ones continue.

    ``first_fit`` lets a small component pass a large one that waits for slots; without it they start in order.
    ``environment`` is what components inherit, by default the harmless part of this process's own. ``host`` is the
    address at which components of other sites reach this machine. ``clock`` is called from a thread. ``node``
    describes the machine besides its processors: its GPUs are numbered from 0 as in CUDA.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        processors: int,
        *,
        emit: Emit,
        clock: Clock,
        on_mail: Deliver | None = None,
        on_found: Found | None = None,
        first_fit: bool = True,
        grace_s: float = GRACE_S,
        rest_s: float = REST_S,
        stray_searches_max: int = STRAY_SEARCHES_MAX,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        node: NodeClass | None = None,
    ) -> None:
        self._name = name
        self._node = node
        self._root = root
        self._processors = processors
        self._emit = emit
        self._clock = clock
        self._on_mail = on_mail
        self._on_found = on_found
        self._first_fit = first_fit
        self._grace_s = grace_s
        self._rest_s = rest_s
        self._stray_searches_max = stray_searches_max
        self._host = host
        self._environment = processes.own_environment() if environment is None else dict(environment)
        self._opened: _Opened | None = None
        self._wake = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The site's name in the grid."""
        return self._name

    @property
    def clock_ahead_s(self) -> float | None:
        """None, since the site has this machine's clock."""
        return None

    @property
    def calls(self) -> Mapping[str, int]:
        """Empty, since there is no batch system. See ``LiveSite.calls``."""
        return {}

    @property
    def files(self) -> Path:
        """The site's file area: replicas live here, and input files are links into it."""
        return self._root / FILES

    @property
    def processors(self) -> int:
        """The number of slots."""
        return self._processors

    @property
    def processors_held(self) -> int:
        """The number of slots that components hold now."""
        return 0 if self._opened is None else self._opened.worker.slots.held

    @property
    def others_file(self) -> Path:
        """The file in which the site's owner writes how many processors other users have."""
        return self._root / OTHERS

    # ------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Find again what was started here, and watch it. See ``LiveSite.open``."""
        if self._opened is not None:
            return
        thread = OrderedThread(f"site {self._name}")
        # A component knows its real path, so this is the path to look for among processes.
        worker = self._make_worker(self._root.resolve(), thread)
        try:
            found = await thread.do(worker.open)
            if self._on_found is not None:
                self._on_found(self._name, found)
            await thread.do(worker.find_again)
            await self._end_strays(worker, thread)
            await thread.do(worker.slots.serve)
        except BaseException:
            await thread.finish(worker.close)
            raise
        self._opened = _Opened(worker, thread)
        self._watch = asyncio.create_task(self._keep_watching(self._opened), name=f"watch {self._name}")

    def _make_worker(self, root: Path, thread: OrderedThread) -> LocalWorker:
        on_mail = self._on_mail

        def emit(event: AnyEvent) -> None:
            thread.tell(self._emit, event)

        def hand_out(mail: Mail) -> None:
            assert on_mail is not None
            thread.tell(on_mail, mail)

        return LocalWorker(
            self._name,
            root,
            self._processors,
            emit=emit,
            on_mail=None if on_mail is None else hand_out,
            clock=self._clock,
            first_fit=self._first_fit,
            grace_s=self._grace_s,
            environment=self._environment,
            node=self._node,
        )

    async def _end_strays(self, worker: LocalWorker, thread: OrderedThread) -> None:
        """End unknown processes before anything starts: their processors are not free."""
        for _ in range(self._stray_searches_max):
            if not await thread.do(worker.end_strays):
                return
            await asyncio.sleep(POLL_S)
        _log.error("site %s: processes that are not of any component here cannot be ended", self._name)

    async def close(self) -> None:
        """Stop watching, touch nothing. See ``LiveSite.close``."""
        opened, self._opened = self._opened, None
        watch, self._watch = self._watch, None
        if opened is None or watch is None:
            return
        try:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        finally:
            await opened.thread.finish(opened.worker.close)

    # ---------------------------------------------------------------------------------------- commands

    async def start(self, launch: Launch, script: str) -> None:
        """Accept a component, once. See ``LiveSite.start``."""
        await self._do(LocalWorker.start, launch, script)

    async def abort(
        self, token: Token, *, outcome: Outcome = Outcome.ABORTED, reason: str = "", fault: Fault | None = None
    ) -> None:
        """End a component in any state. See ``LiveSite.abort``."""
        await self._do(LocalWorker.abort, token, AbortRecord(outcome=outcome, reason=reason, fault=fault))

    async def ask(self, tokens: Sequence[Token]) -> None:
        """Emit the newest event of each token. See ``LiveSite.ask``."""
        await self._do(LocalWorker.ask, tuple(tokens))

    async def release(self, token: Token, go: Go) -> None:
        """Open the barrier for one component. See ``LiveSite.release``."""
        await self._do(LocalWorker.release, token, go)

    async def deliver(self, token: Token, name: str, data: bytes) -> None:
        """Put mail into a component's inbox. See ``LiveSite.deliver``."""
        await self._do(LocalWorker.deliver, token, name, data)

    async def fetch(self, token: Token, name: str) -> bytes | None:
        """Mail of a component's outbox. See ``LiveSite.fetch``."""
        return await self._do(LocalWorker.fetch, token, name)

    async def output(self, token: Token, stream: Stream, offset: int, limit: int = OUTPUT_BYTES_MAX) -> bytes:
        """Return what the application has written. See ``LiveSite.output``."""
        return await self._do(LocalWorker.output, token, stream, offset, limit)

    async def nodes(self, token: Token) -> tuple[NodeShare, ...]:
        """Return this machine, once the component is ready. See ``LiveSite.nodes``."""
        processors = await self._do(LocalWorker.processors_ready, token)
        return () if processors is None else (NodeShare(self._host, processors),)

    async def probe(self) -> SiteReported:
        """Return its slots, and those that its owner keeps for others. See ``LiveSite.probe``."""
        return await self._do(LocalWorker.probe)

    async def held(self) -> tuple[Token, ...]:
        """Return all live components. See ``LiveSite.held``."""
        return await self._do(LocalWorker.held)

    async def forget(self, token: Token) -> None:
        """Remove an ended component's directory. See ``LiveSite.forget``."""
        gone = await self._do(LocalWorker.hide, token)
        if gone is not None:
            # Its name is hidden already, so commands need not wait for its removal.
            await asyncio.to_thread(remove_tree, gone)

    async def _do(self, call: Callable[Concatenate[LocalWorker, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Have the worker make a call, after all earlier calls."""
        if self._opened is None:
            raise SiteError(self._name, "it is not open; open it first")
        worker, thread = self._opened
        try:
            return await thread.do(call, worker, *arguments, **named)
        finally:
            self._wake.set()  # there may be something to inspect now

    # ----------------------------------------------------------------------------------------- the watch

    async def _keep_watching(self, opened: _Opened) -> None:
        """Inspect components as long as there are any, in spite of any failure."""
        while True:
            self._wake.clear()
            try:
                trouble, busy = await opened.thread.do(_inspect, opened.worker)
            except Exception as error:
                _log.exception("site %s cannot be inspected", self._name)
                trouble, busy = repr(error), True
            if trouble:
                self._emit(SiteSilent(at=self._clock(), site=self._name, reason=trouble))
                await asyncio.sleep(self._rest_s)
            if busy:
                await asyncio.sleep(POLL_S)
            else:
                await self._wake.wait()


def _inspect(worker: LocalWorker) -> tuple[str, bool]:
    """Return what is wrong with the site, and whether there is more to inspect."""
    trouble = worker.slots.inspect_all()
    return trouble, worker.slots.is_busy
