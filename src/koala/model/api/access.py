"""The daemon's health, and who may call it."""

from __future__ import annotations

from typing import Literal

from koala.model.api.common import Answer, Scope


class Health(Answer, frozen=True, kw_only=True):
    """Whether the daemon works; ``warnings`` are what an operator should see to while it does."""

    status: Literal["ok", "unavailable"]
    version: str
    reason: str = ""
    warnings: list[str] = []


class Whoami(Answer, frozen=True, kw_only=True):
    """Who the daemon takes the caller for."""

    name: str
    scopes: list[Scope]
    owner: bool


class TokenOnRecord(Answer, frozen=True, kw_only=True):
    """What is on record of a token, and shown of it."""

    id: str
    user: str
    scopes: list[Scope]
    note: str = ""
    created_at: float
    used_at: float | None = None
    revoked_at: float | None = None


class TokenInfo(TokenOnRecord, frozen=True, kw_only=True):
    """A token as it is listed; the secret is never shown again."""


class NewToken(Answer, frozen=True, kw_only=True):
    """A token just created, with its secret. ``notice`` says what its holder's jobs may do, or where they may not run
    at all."""

    token: TokenInfo
    secret: str
    notice: str = ""


class Login(Answer, frozen=True, kw_only=True):
    """A link that opens the dashboard once, until it expires; None where the daemon listens on no address."""

    url: str | None
    expires_at: float
