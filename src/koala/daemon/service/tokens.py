"""Tokens and their holders, dashboard sessions, and the one-time codes for signing in.

Secrets are shown once and only their SHA-256 is kept. Tokens live in the store and are all in memory as well, so that
a caller is recognised without asking the store and a revoked token is refused from that moment on. Codes and sessions
live only in memory: after a restart one signs in again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from koala.daemon.offload import query
from koala.daemon.service.principal import OWNER_KEY, Principal
from koala.descriptions.errors import shown
from koala.model.api import NewToken, Scope, TokenInfo
from koala.model.api.questions import TokenWish
from koala.model.errors import ConflictError, NotFoundError
from koala.store.errors import StoreError
from koala.store.rows import TokenRow

if TYPE_CHECKING:
    from koala.store import Store

SECRET_PREFIX = "koala_"  # noqa: S105 - the prefix of a secret, which makes a leaked one recognisable
SECRET_BYTES = 32
SECRET_CHARACTERS_MAX = 128
TOKENS_MAX = 10_000
# A revoked token is listed for this long, and at most this many are; the store keeps them all.
REVOKED_LISTED_S = 30 * 86_400.0
REVOKED_LISTED_MAX = 1_000
TOUCH_INTERVAL_S = 60.0
CODE_S = 300.0
CODES_MAX = 64
SESSION_S = 12 * 3600.0
SESSIONS_MAX = 1_024
SESSIONS_PER_USER_MAX = 32

log = logging.getLogger("koala.daemon.service.tokens")


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The proof of a caller's identity: a token, or a session that was opened with a token or by the daemon's own
    user."""

    principal: Principal
    token: str | None = None
    session: str | None = None


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody signed in: by a token, whose rights the session has while that lasts, or the daemon's own user.
    ``holder`` is the key that it counts for, see ``Principal.key``."""

    expires_at: float
    holder: str
    token: str | None = None
    principal: Principal | None = None


class _Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code that has not been used yet."""

    expires_at: float
    principal: Principal


class AccessTokens:
    """Issues tokens, codes and sessions, and recognises them. Lives in one event loop; ``now`` is in seconds.
    ``owner`` is the name of the daemon's own user: tokens of all others are guests'."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        *,
        owner: str | None = None,
        tokens_max: int = TOKENS_MAX,
        sessions_max: int = SESSIONS_MAX,
        sessions_per_user_max: int = SESSIONS_PER_USER_MAX,
        revoked_listed_max: int = REVOKED_LISTED_MAX,
    ) -> None:
        self._store = store
        self._now = now
        self._owner = owner
        self._tokens_max = tokens_max
        self._sessions_max = sessions_max
        self._sessions_per_user_max = sessions_per_user_max
        self._revoked_listed_max = revoked_listed_max
        self._rows = {row.secret_hash: row for row in store.tokens(revoked_since=float("inf"))}
        self._hashes = {row.id: hashed for hashed, row in self._rows.items()}
        self._touched_at: dict[str, float] = {}
        self._touches: set[asyncio.Task[None]] = set()
        self._codes: dict[str, _Code] = {}
        self._sessions: dict[str, _Session] = {}

    async def close(self) -> None:
        """Wait for the writes under way."""
        if self._touches:
            await asyncio.wait(self._touches)

    # ------------------------------------------------------------------------------------------- tokens

    async def create(self, wish: TokenWish) -> NewToken:
        """Create a token; when this returns it is durable, and only the caller has its secret."""
        if len(self._rows) >= self._tokens_max:
            raise ConflictError(
                f"there are {self._tokens_max} tokens already (TOKENS_MAX); revoke some with `koala token revoke`"
            )
        secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        row = TokenRow(
            id=secrets.token_hex(8),
            user=wish.user,
            scopes=[scope for scope in Scope if scope in wish.scopes],
            note=wish.note,
            secret_hash=hash_of(secret),
            created_at=self._now(),
        )
        await asyncio.to_thread(self._store.add_token, row)
        self._rows[row.secret_hash] = row
        self._hashes[row.id] = row.secret_hash
        log.info("token created", extra={"token": row.id, "user": row.user, "scopes": " ".join(row.scopes)})
        return NewToken(token=TokenInfo.of(row), secret=secret)

    async def tokens(self) -> list[TokenInfo]:
        """Return every valid token and the recently revoked ones (``REVOKED_LISTED_S``, at most
        ``REVOKED_LISTED_MAX``), the newest first."""
        rows = await query(self._store.tokens, revoked_since=self._now() - REVOKED_LISTED_S)
        revoked = sorted(((row.revoked_at, row.id) for row in rows if row.revoked_at is not None), reverse=True)
        left_out = {token for _, token in revoked[self._revoked_listed_max :]}
        listed = (row for row in rows if row.id not in left_out)
        return [TokenInfo.of(row) for row in sorted(listed, key=lambda row: (-row.created_at, row.id))]

    async def revoke(self, token: str) -> None:
        """End a token, and every session that was opened with it. The token is refused from the moment of the call
        on, even if the store cannot record it: the call then fails and must be repeated. Revoking a revoked token
        changes nothing."""
        hashed = self._hashes.pop(token, None)
        if hashed is not None:
            self._rows.pop(hashed, None)
        if not await asyncio.to_thread(self._store.revoke_token, token, self._now()):
            raise NotFoundError(f"there is no token {shown(token)}; `koala token list` lists the tokens")
        log.info("token revoked", extra={"token": token})

    def by_secret(self, secret: str) -> Credential | None:
        """Return the credential of a secret; None if its token is unknown or revoked."""
        if len(secret) > SECRET_CHARACTERS_MAX or not secret.startswith(SECRET_PREFIX):
            return None
        hashed = hash_of(secret)
        row = self._rows.get(hashed)
        if row is None or not hmac.compare_digest(row.secret_hash, hashed):
            return None
        self._touch(row.id)
        return Credential(principal=self._principal_of(row), token=row.id)

    def holds(self, credential: Credential) -> bool:
        """Return True if the credential is still valid: its token not revoked, its session not ended."""
        if credential.session is not None and self._session(credential.session) is None:
            return False
        return credential.token is None or credential.token in self._hashes

    def _principal_of(self, row: TokenRow) -> Principal:
        scopes = frozenset(row.scopes)
        return Principal(name=row.user, scopes=scopes, guest=row.user != self._owner)

    def _touch(self, token: str) -> None:
        """Record that the token was used, at most once in ``TOUCH_INTERVAL_S``, without keeping the caller
        waiting."""
        now = self._now()
        if now - self._touched_at.get(token, float("-inf")) < TOUCH_INTERVAL_S:
            return
        self._touched_at[token] = now
        task = asyncio.get_running_loop().create_task(self._write_touch(token, now))
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)

    async def _write_touch(self, token: str, now: float) -> None:
        try:
            await asyncio.to_thread(self._store.touch_token, token, now)
        except StoreError as error:
            # The time of last use is worth a line in a list, not a failed call.
            log.debug("use of a token not noted", extra={"token": token, "reason": str(error)})

    # ------------------------------------------------------------------------------------------ sessions

    def make_code(self, principal: Principal) -> tuple[str, float]:
        """Return a code that opens one session for this caller, and when it expires. Beyond ``CODES_MAX`` unused
        codes the oldest is forgotten."""
        now = self._now()
        self._codes = {hashed: code for hashed, code in self._codes.items() if code.expires_at > now}
        while len(self._codes) >= CODES_MAX:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._codes[hash_of(code)] = _Code(expires_at=now + CODE_S, principal=principal)
        return code, now + CODE_S

    def open_session(self, code_or_secret: str) -> str | None:
        """Sign in with a one-time code or the secret of a token. Returns the new session's secret, or None."""
        by_code = self.open_session_by_code(code_or_secret)
        if by_code is not None:
            return by_code
        credential = self.by_secret(code_or_secret)
        if credential is None:
            return None
        expires_at = self._now() + SESSION_S
        return self._add(_Session(expires_at=expires_at, holder=credential.principal.key, token=credential.token))

    def open_session_by_code(self, code: str) -> str | None:
        """Sign in with a one-time code only."""
        if len(code) > SECRET_CHARACTERS_MAX:
            return None
        now = self._now()
        found = self._codes.pop(hash_of(code), None)
        if found is None or found.expires_at <= now:
            return None
        who = found.principal
        return self._add(_Session(expires_at=now + SESSION_S, holder=who.key, principal=who))

    def by_session(self, secret: str) -> Credential | None:
        """Return the credential of this session; None if it has ended."""
        if len(secret) > SECRET_CHARACTERS_MAX:
            return None
        hashed = hash_of(secret)
        session = self._session(hashed)
        if session is None:
            return None
        if session.principal is not None:
            return Credential(principal=session.principal, session=hashed)
        assert session.token is not None
        self._touch(session.token)
        row = self._rows[self._hashes[session.token]]
        return Credential(principal=self._principal_of(row), token=row.id, session=hashed)

    def close_session(self, secret: str) -> None:
        """Sign out. Ending a session that has ended changes nothing."""
        self._sessions.pop(hash_of(secret), None)

    def _add(self, session: _Session) -> str:
        """Add a session. It ends an older one of its own user if that user has too many; if there are too many in
        all, one of the user with the most. Those of the daemon's own user have their own limit."""
        held = Counter(each.holder for each in self._sessions.values())
        if held[session.holder] >= self._sessions_per_user_max:
            self._end_oldest_of(session.holder)
        elif held.total() - held[OWNER_KEY] >= self._sessions_max and session.holder != OWNER_KEY:
            del held[OWNER_KEY]
            self._end_oldest_of(held.most_common(1)[0][0])
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._sessions[hash_of(secret)] = session
        return secret

    def _end_oldest_of(self, holder: str) -> None:
        del self._sessions[next(hashed for hashed, each in self._sessions.items() if each.holder == holder)]

    def _session(self, hashed: str) -> _Session | None:
        session = self._sessions.get(hashed)
        if session is None:
            return None
        if session.expires_at <= self._now() or (session.token is not None and session.token not in self._hashes):
            del self._sessions[hashed]
            return None
        return session


def hash_of(secret: str) -> str:
    """Return the stored hash of a secret. A plain hash is enough, since a secret is 256 random bits and nobody's
    password."""
    return hashlib.sha256(secret.encode("utf-8", errors="surrogatepass")).hexdigest()
