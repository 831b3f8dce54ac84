"""Routes about access: tokens and logins for the daemon's own user, a caller's identity, and the dashboard's sign-in.

``POST /login`` turns a one-time code or a token into a cookie. It takes from a form the field ``secret`` (a code or a
token that somebody pasted) or ``code`` (from a link, which has it behind its ``#`` and so in no address that a server
sees); ``POST /logout`` ends the session. Both redirect: to ``/``, or to ``/login?problem=`` with ``wrong`` or
``many``.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

import msgspec
from fastapi import Body, FastAPI, Path, Request
from fastapi.openapi.models import Example
from fastapi.responses import RedirectResponse, Response
from starlette.routing import Route

from koala.daemon.api.callers import SESSION_COOKIE, OwnerAtSocket, Who, address_of, check_origin, session_secret
from koala.daemon.api.errors import declared
from koala.daemon.api.limits import RateError
from koala.daemon.api.listeners import Listener, listener_of
from koala.daemon.api.parameters import routes_about
from koala.daemon.service.tokens import SESSION_S
from koala.model.api import Login, NewToken, Scope, TokenInfo, Whoami
from koala.model.api.questions import TokenWish

router = routes_about("access")

FORM_FIELDS_MAX = 8
# Each example is a valid request.
TOKEN_WISHES: dict[str, Example] = {
    "user": {"value": {"user": "ada", "scopes": ["read", "submit"], "note": "laptop"}},
}


@router.get("/whoami", summary="Who the daemon takes the caller for", responses=declared())
async def whoami(who: Who) -> Whoami:
    """Return the caller's name and scopes."""
    return Whoami(name=who.name, scopes=[scope for scope in Scope if who.may(scope)], owner=who.owner)


@router.post("/tokens", status_code=201, summary="Create a token", responses=declared(409))
async def create_token(
    request: Request, _who: OwnerAtSocket, wish: Annotated[TokenWish, Body(openapi_examples=TOKEN_WISHES)]
) -> NewToken:
    """Create a token for a user. Only this answer shows its secret. Only for the daemon's own user, over its
    socket."""
    listener = listener_of(request)
    made = await listener.tokens.create(wish)
    if Scope.SUBMIT not in wish.scopes or wish.user == listener.owner.name:
        return made
    return msgspec.structs.replace(made, notice=listener.service.about_jobs_of(wish.user))


@router.get("/tokens", summary="List tokens", responses=declared())
async def list_tokens(request: Request, _who: OwnerAtSocket) -> list[TokenInfo]:
    """List valid tokens and those revoked in the last 30 days, the newest first, without the secrets. Only for the
    daemon's own user, over its socket."""
    return await listener_of(request).tokens.tokens()


@router.delete("/tokens/{token}", status_code=204, summary="Revoke a token", responses=declared())
async def revoke_token(
    request: Request,
    _who: OwnerAtSocket,
    token: Annotated[str, Path(min_length=1, max_length=64, description="The token's id, not its secret.")],
) -> None:
    """Revoke a token at once, and end every dashboard session that was opened with it. Only for the daemon's own
    user, over its socket."""
    await listener_of(request).tokens.revoke(token)


@router.post("/logins", summary="A link that opens the dashboard", responses=declared())
async def create_login(request: Request, who: OwnerAtSocket) -> Login:
    """Create a link that signs in the daemon's own user once, until it expires. Only for the daemon's own user, over
    its socket."""
    listener = listener_of(request)
    code, expires_at = listener.tokens.make_code(who)
    return Login(url=None if listener.url is None else f"{listener.url}/login#code={code}", expires_at=expires_at)


# ------------------------------------------------------------------------------------- signing in and out


async def sign_in_by_form(request: Request) -> Response:
    """Turn the code of a link, or a pasted code or token, into a session. Only from the dashboard's own page, so that
    no other site signs its visitors in as somebody else. That page sends the code of a link as ``code``, which cannot
    be a token: nobody signs others in as themselves by a link."""
    check_origin(request.headers)
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        fields = parse_qs(body, max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        fields = {}
    listener = listener_of(request)
    try:
        if "code" in fields:
            session = listener.tokens.open_session_by_code(fields["code"][0])
        else:
            secret = fields.get("secret", [""])[0].strip()
            found = listener.tokens.by_secret(secret)
            if found is not None:
                listener.traffic.count_sign_in(found.principal)
            session = listener.tokens.open_session(secret)
        if session is None:
            listener.traffic.count_failed_sign_in(address_of(request.scope))
    except RateError:
        return RedirectResponse("/login?problem=many", status_code=303)
    return _signed_in(listener, session)


async def sign_out(request: Request) -> Response:
    """End the session, here and in the browser."""
    check_origin(request.headers)
    listener = listener_of(request)
    secret = session_secret(request.headers)
    if secret is not None:
        listener.tokens.close_session(secret)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict", secure=listener.secure)
    return answer


def _signed_in(listener: Listener, session: str | None) -> Response:
    if session is None:
        return RedirectResponse("/login?problem=wrong", status_code=303)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        SESSION_COOKIE,
        session,
        max_age=int(SESSION_S),
        path="/",
        httponly=True,
        samesite="strict",
        secure=listener.secure,
    )
    return answer


def install_sign_in(app: FastAPI) -> None:
    """Add the routes of signing in and out; call it before the dashboard's routes are added."""
    app.router.routes.append(Route("/login", sign_in_by_form, methods=["POST"]))
    app.router.routes.append(Route("/logout", sign_out, methods=["POST"]))
