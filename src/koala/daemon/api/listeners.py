"""A ``Listener`` is one socket that the daemon answers at; all listeners share ``RequestTraffic``: rates, open
streams, request counts, and whether the daemon is stopping."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from fastapi import Request

from koala.daemon.api import limits
from koala.daemon.api.limits import Buckets, RateError
from koala.daemon.api.metrics import RequestNumbers
from koala.daemon.service.principal import OWNER_KEY, Principal
from koala.daemon.service.service import Service
from koala.daemon.service.tokens import AccessTokens
from koala.model.errors import TooManyError, UnavailableError

Answered = TypeVar("Answered")

CONNECTION = "koala.connection"  # the connection's key in a request's state


class RequestTraffic:
    """The requests of all listeners together, with their limits."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        streams_max: int = limits.STREAMS_MAX,
        streams_per_principal_max: int = limits.STREAMS_PER_PRINCIPAL_MAX,
        bodies_per_caller_max: int = limits.BODIES_PER_CALLER_MAX,
        heartbeat_s: float = limits.HEARTBEAT_S,
        stream_send_s_max: float = limits.STREAM_SEND_S_MAX,
    ) -> None:
        self.clock = clock
        self.heartbeat_s = heartbeat_s
        self.stream_send_s_max = stream_send_s_max
        self._streams_max = streams_max
        self._streams_per_principal_max = streams_per_principal_max
        self.requests = RequestNumbers()
        self._stopping = asyncio.Event()
        self._streams: Counter[str] = Counter()
        self._bodies_per_caller_max = bodies_per_caller_max
        self._bodies: Counter[str] = Counter()
        self._rates = Buckets(limits.REQUESTS_PER_S, limits.REQUESTS_BURST, clock)
        self._owner_rates = Buckets(limits.OWNER_REQUESTS_PER_S, limits.OWNER_REQUESTS_BURST, clock)
        self._sign_ins = Buckets(limits.SIGN_INS_PER_S, limits.SIGN_INS_BURST, clock)
        self._failures = Buckets(limits.FAILED_SIGN_INS_PER_S, limits.FAILED_SIGN_INS_BURST, clock)

    # ---------------------------------------------------------------------------------------- stopping

    def stop(self) -> None:
        """End every stream and every wait, and answer later requests with ``unavailable``."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """True once ``stop`` was called."""
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Wait until ``stop`` is called."""
        await self._stopping.wait()

    async def unless_stopped(self, answer: Awaitable[Answered]) -> Answered:
        """Return the answer, or raise ``UnavailableError`` as soon as the daemon stops."""
        asked = asyncio.ensure_future(answer)
        stopped = asyncio.ensure_future(self.stopped())
        try:
            await asyncio.wait({asked, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise UnavailableError("the daemon is stopping; ask again when it is back")
            return asked.result()
        finally:
            for task in (asked, stopped):
                task.cancel()
            await asyncio.gather(asked, stopped, return_exceptions=True)

    # ------------------------------------------------------------------------------------------- rates

    def count_request(self, who: Principal) -> None:
        """Count a request of this caller. Raises ``RateError`` beyond its rate."""
        wait_s = (self._owner_rates if who.owner else self._rates).take(who.name)
        if wait_s > 0:
            per_s = limits.OWNER_REQUESTS_PER_S if who.owner else limits.REQUESTS_PER_S
            raise RateError(f"more than {per_s:.0f} requests each second; wait a moment", wait_s)

    def count_sign_in(self, who: Principal) -> None:
        """Count a new session of this caller. Raises ``RateError`` beyond its rate."""
        wait_s = self._sign_ins.take(who.name)
        if wait_s > 0:
            raise RateError(f"{who.name} signed in too often; wait, and stay signed in", wait_s)

    def count_failed_sign_in(self, address: str) -> None:
        """Count a wrong secret from this address. Raises ``RateError`` beyond the rate. A right secret is never
        refused for it: nobody guesses 256 bits, and others behind the same address must not be locked out."""
        wait_s = self._failures.take(address)
        if wait_s > 0:
            raise RateError("too many wrong tokens came from this address; wait, and check the token", wait_s)

    # -------------------------------------------------------------------------------- bodies and streams

    @contextmanager
    def body_of(self, caller: str) -> Iterator[None]:
        """Count a body being read from this user or address while the block lasts. Raises ``RateError`` beyond the
        limit."""
        most = self._bodies_per_caller_max
        if self._bodies[caller] >= most:
            raise RateError(f"{most} requests are being sent already (BODIES_PER_CALLER_MAX); wait for some", 1.0)
        self._bodies[caller] += 1
        try:
            yield
        finally:
            self._bodies[caller] -= 1
            if not self._bodies[caller]:
                del self._bodies[caller]

    @contextmanager
    def stream_of(self, who: Principal) -> Iterator[None]:
        """Count an open stream of this caller while the block lasts. Raises ``TooManyError`` beyond a limit. The
        streams of the daemon's own user do not count towards ``STREAMS_MAX``."""
        key = who.key
        most = self._streams_per_principal_max
        if self._streams[key] >= most:
            raise TooManyError(f"{who.name} has {most} streams open (STREAMS_PER_PRINCIPAL_MAX); close one")
        most = self._streams_max
        if not who.owner and self._streams.total() - self._streams[OWNER_KEY] >= most:
            raise TooManyError(f"{most} streams are open (STREAMS_MAX); ask GET /v1/events instead")
        self._streams[key] += 1
        try:
            yield
        finally:
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]

    @property
    def streams_open(self) -> int:
        """The number of open streams."""
        return self._streams.total()


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener's app knows. Behind a ``trusted`` one every caller is the owner. ``hosts`` are the names that
    a request may call the daemon by, None for any; ``secure``: TLS protects it; ``url`` is its address for
    browsers."""

    service: Service
    tokens: AccessTokens
    traffic: RequestTraffic
    owner: Principal
    trusted: bool
    secure: bool = False
    hosts: frozenset[str] | None = None
    url: str | None = None


def listener_of(request: Request) -> Listener:
    """Return the listener that a request came through."""
    listener: Listener = request.app.state.listener
    return listener


async def service_of(request: Request) -> Service:
    """Return the service behind the listener. A coroutine, since the framework would call a plain function in a
    thread."""
    return listener_of(request).service
