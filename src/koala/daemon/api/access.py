"""Routes about who may come in: tokens and logins for the daemon's own user, and who a caller is for everybody."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Request

from koala.daemon.api.callers import Owner, Who
from koala.daemon.api.errors import declared
from koala.daemon.api.examples import TOKEN_WISHES
from koala.daemon.api.lobby import door_of
from koala.model.api import Login, NewToken, Scope, TokenInfo, TokenWish, Whoami

router = APIRouter(prefix="/v1", tags=["access"])


@router.get("/whoami", summary="Who the daemon takes the caller for", responses=declared())
async def whoami(who: Who) -> Whoami:
    """The caller's name and scopes."""
    return Whoami(name=who.name, scopes=[scope for scope in Scope if who.may(scope)], owner=who.owner)


@router.post("/tokens", status_code=201, summary="Create a token", responses=declared(409))
async def create_token(
    request: Request, _who: Owner, wish: Annotated[TokenWish, Body(openapi_examples=TOKEN_WISHES)]
) -> NewToken:
    """A token for a user. Its secret is in this answer and never shown again. Only for the daemon's own user."""
    return await door_of(request).tokens.create(wish)


@router.get("/tokens", summary="List tokens", responses=declared())
async def list_tokens(request: Request, _who: Owner) -> list[TokenInfo]:
    """Valid tokens and those revoked in the last 30 days, the newest first, without the secrets. Only for the
    daemon's own user."""
    return await door_of(request).tokens.tokens()


@router.delete("/tokens/{token}", status_code=204, summary="Revoke a token", responses=declared())
async def revoke_token(
    request: Request,
    _who: Owner,
    token: Annotated[str, Path(min_length=1, max_length=64, description="The token's id, not its secret.")],
) -> None:
    """End a token at once, and every dashboard session that was opened with it. Only for the daemon's own user."""
    await door_of(request).tokens.revoke(token)


@router.post("/logins", summary="A link that opens the dashboard", responses=declared())
async def create_login(request: Request, who: Owner) -> Login:
    """A link that signs in the daemon's own user once, until it expires. Only for the daemon's own user."""
    door = door_of(request)
    code, expires_at = door.tokens.make_code(who)
    return Login(url=None if door.url is None else f"{door.url}/login?code={code}", expires_at=expires_at)
