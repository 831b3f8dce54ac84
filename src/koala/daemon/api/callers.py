"""Identifies the caller: the owner behind a trusted listener, elsewhere the holder of a token or a session.

This module only identifies; the service authorizes, except for tokens and logins, which are for the daemon's own
user.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.types import Scope

from koala.daemon.api.limits import network_of
from koala.daemon.api.listeners import Listener, listener_of
from koala.daemon.service.principal import Principal
from koala.daemon.service.tokens import Credential
from koala.model.errors import ClientError, ForbiddenError, NotSignedInError

SESSION_COOKIE = "koala_session"
CALLER = "koala.caller"  # the caller's key in a request's scope
HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE_CHARACTERS_MAX = 4_096

# They read nothing: the guard has checked the request before. They document the ways to sign in in OpenAPI.
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token: `koala token create`.")
_cookie = APIKeyCookie(name=SESSION_COOKIE, auto_error=False, scheme_name="session", description="The dashboard's.")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and the credential that proved it; the owner behind a trusted listener needs none."""

    principal: Principal
    credential: Credential | None = None

    def check(self, listener: Listener) -> None:
        """Raise ``NotSignedInError`` if the credential was revoked or expired since the request came."""
        if self.credential is not None and not listener.tokens.holds(self.credential):
            raise NotSignedInError("the token was revoked or the session has ended; sign in again")


def identify(listener: Listener, scope: Scope, headers: Mapping[str, str]) -> Caller | ClientError:
    """Return the sender of this request, or the error of a failed sign-in. A wrong secret counts against the sender's
    address."""
    if listener.trusted:
        return Caller(principal=listener.owner)
    try:
        authorization = headers.get("authorization")
        if authorization is not None:
            return _by_bearer(listener, authorization, address_of(scope))
        session = session_secret(headers)
        if session is not None:
            return _by_session(listener, session, scope, headers)
    except ClientError as error:
        return error
    return NotSignedInError("send a token: `Authorization: Bearer koala_...`; the daemon's owner creates one")


def address_of(scope: Scope) -> str:
    """Return the address of the sender, to count by."""
    client = scope.get("client")
    return network_of(str(client[0])) if client else "local"


def session_secret(headers: Mapping[str, str]) -> str | None:
    """Return the secret in the session cookie, None without one."""
    text = headers.get("cookie", "")
    if not text or len(text) > COOKIE_CHARACTERS_MAX:
        return None
    try:
        morsel = SimpleCookie(text).get(SESSION_COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise ``ForbiddenError`` unless the request came from a page of this very daemon. Browsers report its origin; a
    program that sends the cookie may claim any."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise ForbiddenError("this request came from a page of another site; use the dashboard itself")
    origin = headers.get("origin")
    if origin is not None:
        if _netloc(origin) != headers.get("host", "").lower():
            raise ForbiddenError("this request came from a page of another origin; use the dashboard itself")
    elif site is None:
        raise ForbiddenError("a change with a session needs the header Origin or Sec-Fetch-Site; or use a token")


async def signed_in(
    request: Request,
    _token: Annotated[object, Depends(_bearer)],
    _session: Annotated[object, Depends(_cookie)],
) -> Principal:
    """Return the caller, as a dependency of routes. Raises ``NotSignedInError`` without one."""
    return caller_of(request).principal


async def owner_at_socket(request: Request, who: Annotated[Principal, Depends(signed_in)]) -> Principal:
    """Return the caller if it is the daemon's own user at its socket; otherwise raise ``ForbiddenError``. The owner's
    browser is refused too: a stolen session must not create rights that outlive it."""
    if not listener_of(request).trusted:
        raise ForbiddenError(
            "only the daemon's own user may do this, and only over the daemon's socket: use `koala token` and "
            "`koala dashboard` on its machine"
        )
    return who


def caller_of(request: Request) -> Caller:
    """Return the caller of a request. Raises the error that ``identify`` found."""
    found: Caller | ClientError = request.scope[CALLER]
    if isinstance(found, ClientError):
        raise found
    found.check(listener_of(request))
    return found


Who = Annotated[Principal, Depends(signed_in)]
OwnerAtSocket = Annotated[Principal, Depends(owner_at_socket)]


def _by_bearer(listener: Listener, authorization: str, address: str) -> Caller:
    scheme, _, secret = authorization.partition(" ")
    credential = listener.tokens.by_secret(secret.strip()) if scheme.lower() == "bearer" else None
    if credential is None:
        listener.traffic.count_failed_sign_in(address)
        raise NotSignedInError("the token is not valid: it is wrong, or it was revoked; ask for a new one")
    return Caller(principal=credential.principal, credential=credential)


def _by_session(listener: Listener, secret: str, scope: Scope, headers: Mapping[str, str]) -> Caller:
    credential = listener.tokens.by_session(secret)
    if credential is None:
        listener.traffic.count_failed_sign_in(address_of(scope))
        raise NotSignedInError("the session has ended; sign in again")
    if scope["method"] not in HARMLESS_METHODS:
        check_origin(headers)
    return Caller(principal=credential.principal, credential=credential)


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
