"""The checks that every request passes before any route: host name, address, caller, rate and body. Every answer
leaves with the headers that keep a browser safe. The guard also counts requests and catches what no route caught."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koala.daemon.api.bodies import GoneError, check_head, check_json, read_body
from koala.daemon.api.callers import CALLER, Caller, address_of, identify
from koala.daemon.api.errors import answer_to, answer_to_unexpected
from koala.daemon.api.limits import BODY_BYTES_MAX, BODY_S_MAX, STRANGER_BODY_BYTES_MAX
from koala.daemon.api.listeners import CONNECTION, Listener
from koala.descriptions.errors import printable
from koala.model.errors import ClientError, UnavailableError
from koala.version import __version__

CONTENT_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    "script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
)
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class WrongHostError(ClientError):
    """The request calls the daemon by a foreign name, as a page with a rebound name does."""

    default_code = "wrong_host"
    http_status = 421


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, listener: Listener, *, body_s_max: float = BODY_S_MAX) -> None:
        self._app = app
        self._listener = listener
        self._body_s_max = body_s_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send, secure=self._listener.secure)
        clock = self._listener.traffic.clock
        begun_at = clock()
        try:
            await self._app(scope, await self._checked(scope, receive), answer.send)
        except ClientError as error:
            await answer_to(error, scope)(scope, receive, answer.send)
        except GoneError:
            return
        except asyncio.CancelledError:
            if answer.is_begun or not self._listener.traffic.is_stopping:
                raise
            # The server stopped waiting, which is not the request's fault.
            late = UnavailableError(
                "the daemon stopped before this was answered; look what became of it when it is back"
            )
            await answer_to(late, scope)(scope, receive, answer.send)
        except Exception as error:
            what = f"{printable(scope['method'])} {route_of(scope)}"
            response = answer_to_unexpected(error, what, scope)
            if answer.is_begun:
                raise ConnectionAbortedError("the answer had begun when it failed") from None
            await response(scope, receive, answer.send)
        finally:
            method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
            self._listener.traffic.requests.count(method, route_of(scope), answer.status, clock() - begun_at)

    async def _checked(self, scope: Scope, receive: Receive) -> Receive:
        """Check all that does not depend on the route. Returns the body in one piece."""
        headers = Headers(scope=scope)
        check_host(self._listener, headers)
        check_head(scope)
        if self._listener.traffic.is_stopping:
            raise UnavailableError("the daemon is stopping; ask again when it is back")
        # Known callers may send more; a route decides whether it needs a caller.
        caller = scope[CALLER] = identify(self._listener, scope, headers)
        known = isinstance(caller, Caller)
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is not None:
            connection.identify(caller.principal.key if isinstance(caller, Caller) else None)
        if isinstance(caller, Caller):
            self._listener.traffic.count_request(caller.principal)
        bytes_max = BODY_BYTES_MAX if known else STRANGER_BODY_BYTES_MAX
        with self._counted_body(scope, headers, caller):
            body = await read_body(receive, headers, bytes_max, self._body_s_max)
        # A body of no declared type is read as JSON, too.
        if body and "json" in headers.get("content-type", "json").lower():
            check_json(body)
        # No answer here is large enough for ranges, and a server may always send the whole.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        return _replay(body, receive)

    def _counted_body(
        self, scope: Scope, headers: Mapping[str, str], caller: Caller | ClientError
    ) -> AbstractContextManager[None]:
        """Count the body against its sender; the daemon's own user is trusted to overload nobody but itself."""
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return nullcontext()
        if not isinstance(caller, Caller):
            return self._listener.traffic.body_of(f"address {address_of(scope)}")
        return nullcontext() if caller.principal.owner else self._listener.traffic.body_of(caller.principal.key)


def check_host(listener: Listener, headers: Mapping[str, str]) -> None:
    """Raise ``WrongHostError`` if a request calls the daemon by a name that is not its own."""
    if listener.hosts is None:
        return
    host = headers.get("host", "").lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name not in listener.hosts:
        raise WrongHostError(
            f"the daemon is not called {printable(name)!r}; use one of: {', '.join(sorted(listener.hosts))}"
        )


def route_of(scope: Scope) -> str:
    """Return the route's template, such as ``/v1/jobs/{job}``: there are few, whatever callers ask for."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) and path else "unmatched"


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Answer:
    """Sends an answer with the headers of every answer, and records its status."""

    def __init__(self, scope: Scope, send: Send, *, secure: bool) -> None:
        self._path: str = scope["path"]
        self._send = send
        self._secure = secure
        self.status = 0  # no answer was begun

    @property
    def is_begun(self) -> bool:
        return self.status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["Koala-Version"] = __version__
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "same-origin"  # without it a browser hides the Origin of forms
            headers["Content-Security-Policy"] = CONTENT_POLICY
            headers["X-Frame-Options"] = "DENY"
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            headers["Cross-Origin-Opener-Policy"] = "same-origin"
            if self._secure:
                headers["Strict-Transport-Security"] = "max-age=31536000"
            if not self._path.startswith("/static/"):
                headers["Cache-Control"] = "no-store"
        await self._send(message)


def install(app: FastAPI, listener: Listener) -> None:
    """Put the guard before everything else in the app."""
    app.add_middleware(Guard, listener=listener)
