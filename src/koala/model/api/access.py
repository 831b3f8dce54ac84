"""The health of the daemon, its callers and their access tokens."""

from __future__ import annotations

from typing import Literal

from koala.model.api.common import Answer, Scope


class Health(Answer, frozen=True, kw_only=True):
    """The health of the daemon. ``warnings`` need an operator's attention although the daemon works."""

    status: Literal["ok", "unavailable"]
    version: str
    reason: str = ""
    warnings: list[str] = []


class Whoami(Answer, frozen=True, kw_only=True):
    """The caller as the daemon has identified it."""

    name: str
    scopes: list[Scope]
    owner: bool


class TokenOnRecord(Answer, frozen=True, kw_only=True):
    """The fields that the record of a token and its listing share."""

    id: str
    user: str
    scopes: list[Scope]
    note: str = ""
    created_at: float
    used_at: float | None = None
    revoked_at: float | None = None


class TokenInfo(TokenOnRecord, frozen=True, kw_only=True):
    """A token in a listing, without its secret: the secret is shown only once, when the token is created."""


class NewToken(Answer, frozen=True, kw_only=True):
    """A token just created, with its secret. ``notice`` explains what the jobs of its holder may do, or where they
    may not run."""

    token: TokenInfo
    secret: str
    notice: str = ""


class Login(Answer, frozen=True, kw_only=True):
    """A link that opens the dashboard once, until it expires. ``url`` is None where the daemon listens on no
    address."""

    url: str | None
    expires_at: float
