"""The daemon as a process: it takes its directory and its addresses, opens the store and the engine, answers until it
is stopped, and closes everything in order. Components that run at sites go on without it."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from koala.daemon.api import RequestTraffic, make_app
from koala.daemon.clock_check import ClockCheck
from koala.daemon.database_check import check_database
from koala.daemon.engine.loop import Engine
from koala.daemon.http_server.admission import Admission
from koala.daemon.http_server.descriptors import DescriptorShares, raise_limit, share_out
from koala.daemon.http_server.server import AcceptorServer
from koala.daemon.http_server.sockets import SOCKET_NAME, ListenAddress, bind_tcp, bind_unix
from koala.daemon.logs import log_to
from koala.daemon.offload import end_threads
from koala.daemon.options import DaemonOptions, Listening
from koala.daemon.service.principal import owner
from koala.daemon.service.service import Service
from koala.daemon.service.sites.site_conditions import SiteConditionLog
from koala.daemon.service.tokens import AccessTokens
from koala.daemon.site_clocks import ask_clocks, judged, own_clock_in_words
from koala.daemon.state_directory import locked, prepare
from koala.daemon.upkeep.storage_watch import StorageWatch
from koala.model.errors import UnavailableError
from koala.policies import Catalogue
from koala.store import Store

STARTED_POLL_S = 0.01
# Threads that read large texts and answers yield to the event loop after this long instead of Python's 5 ms.
THREAD_TURN_S = 0.0005
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("koala.daemon")

Ready = Callable[[Listening], None]


def run(options: DaemonOptions, *, ready: Ready | None = None) -> None:
    """Run a daemon until SIGTERM or SIGINT, then stop cleanly; a second signal ends the process at once, which loses
    nothing either. ``ready`` is called when the daemon answers. A failed start raises an error with ``for_user``."""
    handler = log_to(level=options.log_level)
    turn_s_before = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        asyncio.run(serve(options, ready))
    finally:
        sys.setswitchinterval(turn_s_before)
        logging.getLogger().removeHandler(handler)
        handler.close()


async def serve(options: DaemonOptions, ready: Ready | None = None) -> None:
    """Run a daemon in the running event loop."""
    stop = asyncio.Event()
    shares = share_out(raise_limit())
    state = prepare(options.state)
    async with AsyncExitStack() as closing:
        closing.enter_context(locked(state))
        closing.callback(end_threads)
        address = bind_tcp(options)
        if address is not None:
            closing.callback(address.bound.close)
        unix = bind_unix(state)
        closing.callback(unix.close)
        closing.callback(_remove, state / SOCKET_NAME)
        closing.enter_context(_signals_set(stop, detached=options.detached))
        engine = await closing.enter_async_context(_opened_engine(options, state))
        tokens = await asyncio.to_thread(AccessTokens, engine.store, engine.now, owner=owner_name())
        closing.push_async_callback(tokens.close)
        await engine.freshen()  # the first caller who looks at the sites sees their current state
        service = Service(engine, StorageWatch(engine, engine.store, state))
        await service.open()
        closing.push_async_callback(service.close)
        watch = SiteConditionLog(lambda: engine.scheduler.ledger.sites)
        watch.start()
        closing.push_async_callback(watch.stop)
        listening = Listening(
            socket=state / SOCKET_NAME,
            url=None if address is None else address.url,
            silent=tuple(
                (name, f"{'cannot be used' if silence.answers else 'does not answer'}: {silence.reason}")
                for name, silence in engine.silent_sites()
            ),
            warnings=tuple(service.warnings(owner(owner_name()))),
        )
        async with _answering(service, tokens, unix, address, shares):
            log.info("ready", extra={"socket": listening.socket, "url": listening.url or "none"})
            if ready is not None:
                ready(listening)
            await _until_stopped(stop, engine)
            log.info("stopping")
    log.info("stopped")


async def _until_stopped(stop: asyncio.Event, engine: Engine) -> None:
    """Wait until the daemon is stopped. Raises ``UnavailableError`` if the engine has died: only a restart helps."""
    waits = [asyncio.create_task(event.wait()) for event in (stop, engine.died)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if engine.died.is_set():
        raise UnavailableError(engine.failure)


@asynccontextmanager
async def _opened_engine(options: DaemonOptions, state: Path) -> AsyncIterator[Engine]:
    store = await asyncio.to_thread(Store.open, options.database or f"sqlite:///{state / 'koala.db'}")
    try:
        await asyncio.to_thread(check_database, state, store, accepted="database" in options.accepts)
        clock = ClockCheck(state)
        if "clock" not in options.accepts:
            clock.check(await asyncio.to_thread(store.last_at))
            verdict = judged(options.grid.sites, await ask_clocks(options.grid))
            clock.check_sites(own_clock_in_words(verdict))
        clock.keep()
        engine = Engine(
            options.grid,
            Catalogue.of(options.grid.policy_files),
            store,
            state,
            accepts_database="database" in options.accepts,
        )
        try:
            await engine.open()
            yield engine
        finally:
            await engine.close()
    finally:
        await asyncio.to_thread(store.close)


@asynccontextmanager
async def _answering(
    service: Service,
    tokens: AccessTokens,
    unix: socket.socket,
    address: ListenAddress | None,
    shares: DescriptorShares,
) -> AsyncIterator[None]:
    """Answer at both listeners while the block lasts. On the way out streams and waits end at once, changes of files
    somewhat later, other answers within ``ANSWERS_S_MAX``."""
    traffic = RequestTraffic()
    owner = owner_name()
    url = None if address is None else address.url
    owners = make_app(service, tokens, trusted=True, owner=owner, traffic=traffic, url=url)
    servers = [AcceptorServer(owners, unix, Admission(connections_max=shares.owner_connections, trusted=True))]
    if address is not None:
        app = make_app(
            service,
            tokens,
            trusted=False,
            owner=owner,
            traffic=traffic,
            secure=address.tls is not None,
            hosts=address.hosts,
            url=url,
        )
        servers.append(AcceptorServer(app, address.bound, Admission(connections_max=shares.connections), address.tls))
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    try:
        while not all(server.started for server in servers):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(STARTED_POLL_S)
        yield
    finally:
        traffic.stop()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(service.stop(), *tasks)


@contextmanager
def _signals_set(stop: asyncio.Event, *, detached: bool) -> Iterator[None]:
    """Let the first SIGTERM or SIGINT set the event, and the second end the process, while the block lasts. SIGHUP
    does the same if the daemon has a terminal, which has closed then; a daemon without one ignores it."""
    loop = asyncio.get_running_loop()

    def told(number: int) -> None:
        name = signal.Signals(number).name
        if detached and number == signal.SIGHUP:
            log.warning("the daemon goes on: there is nothing to read again", extra={"signal": name})
            return
        log.info("told to stop", extra={"signal": name})
        if stop.is_set():
            # Whatever was acknowledged is on record, so there is nothing to wait for.
            os._exit(128 + number)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, told, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def owner_name() -> str:
    """Return the name of the user that the daemon runs as."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.geteuid()}"


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
