"""Signing in and out of the dashboard. The pages are the dashboard's; here a code or a token becomes a cookie.

``POST /login`` takes the field ``secret`` (a one-time code or a token) of a form, ``GET /login?code=`` the code of a
link, ``POST /logout`` ends the session. All answer with a redirect: to ``/``, or to ``/login?problem=`` with
``wrong`` or ``many``.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from koala.daemon.api.callers import SESSION_COOKIE, address_of, check_origin, session_secret
from koala.daemon.api.limits import RateError
from koala.daemon.api.lobby import door_of
from koala.daemon.service.tokens import SESSION_S

FIELDS_MAX = 8


async def sign_in_by_link(request: Request) -> Response:
    """The one-time code of a link becomes a session."""
    return _signed_in(request, request.query_params["code"])


async def sign_in_by_form(request: Request) -> Response:
    """The code or token that somebody pasted becomes a session. Only from the dashboard's own page, so that no other
    site signs its visitors in as somebody else."""
    check_origin(request.headers)
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        fields = parse_qs(body, max_num_fields=FIELDS_MAX)
    except ValueError:
        fields = {}
    return _signed_in(request, fields.get("secret", [""])[0].strip())


async def sign_out(request: Request) -> Response:
    """End the session, here and in the browser."""
    check_origin(request.headers)
    secret = session_secret(request.headers)
    if secret is not None:
        door_of(request).tokens.close_session(secret)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict", secure=door_of(request).secure)
    return answer


def _signed_in(request: Request, secret: str) -> Response:
    door = door_of(request)
    session = door.tokens.open_session(secret)
    if session is None:
        try:
            door.lobby.count_failed_sign_in(address_of(request.scope))
        except RateError:
            return RedirectResponse("/login?problem=many", status_code=303)
        return RedirectResponse("/login?problem=wrong", status_code=303)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        SESSION_COOKIE,
        session,
        max_age=int(SESSION_S),
        path="/",
        httponly=True,
        samesite="strict",
        secure=door.secure,
    )
    return answer


class _LinkRoute(Route):
    """``GET /login`` with a code; without one the dashboard shows its page."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["query_string"].startswith(b"code="):
            return Match.NONE, {}
        return super().matches(scope)


def install(app: FastAPI) -> None:
    """Add the routes; to be called before those of the dashboard are added."""
    app.router.routes.append(_LinkRoute("/login", sign_in_by_link, methods=["GET"]))
    app.router.routes.append(Route("/login", sign_in_by_form, methods=["POST"]))
    app.router.routes.append(Route("/logout", sign_out, methods=["POST"]))
