"""Tokens, one-time codes and sessions, on a real store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.daemon.errors import ConflictError, NotFoundError
from koala.daemon.service import tokens as desk_module
from koala.daemon.service.principal import Principal, owner
from koala.daemon.service.tokens import CODE_S, CODES_MAX, SESSION_S, SESSIONS_MAX, TOUCH_INTERVAL_S, TokenDesk
from koala.model.api import NewToken, Scope, TokenWish
from koala.store import Store
from koala.store.errors import StoreError

OWNER = owner("ada")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'koala.db'}")
    yield opened
    opened.close()


@pytest.fixture
def desk(store: Store, clock: Clock) -> TokenDesk:
    return TokenDesk(store, clock)


def wish(user: str = "bob", *scopes: Scope) -> TokenWish:
    return TokenWish(user=user, scopes=list(scopes or (Scope.READ,)), note="laptop")


async def made(desk: TokenDesk, user: str = "bob", *scopes: Scope) -> NewToken:
    return await desk.create(wish(user, *scopes))


def holder(desk: TokenDesk, secret: str) -> Principal | None:
    found = desk.by_secret(secret)
    return None if found is None else found.principal


def test_a_secret_is_recognised_and_has_the_scopes_that_were_asked_for(desk: TokenDesk) -> None:
    async def scene() -> None:
        new = await made(desk, "bob", Scope.SUBMIT, Scope.READ, Scope.READ)
        assert re.fullmatch(r"koala_[A-Za-z0-9_-]{43}", new.secret)
        assert new.token.scopes == [Scope.READ, Scope.SUBMIT]
        assert holder(desk, new.secret) == Principal(name="bob", scopes=frozenset({Scope.READ, Scope.SUBMIT}))
        await desk.close()

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", ["", "koala_", "koala_" + "A" * 43, "x" * 10_000, "koala_" + "\ud800" * 5])
def test_a_wrong_secret_is_nobody(desk: TokenDesk, wrong: str) -> None:
    async def scene() -> None:
        new = await made(desk)
        assert holder(desk, wrong) is None
        assert holder(desk, new.secret[:-1]) is None
        assert holder(desk, new.secret + "A") is None
        assert desk.open_session(wrong) is None
        assert desk.by_session(wrong) is None

    asyncio.run(scene())


def test_no_secret_is_kept_anywhere_in_the_database(desk: TokenDesk, store: Store, tmp_path: Path) -> None:
    secret = asyncio.run(made(desk)).secret
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"laptop" in kept
    assert secret.encode() not in kept
    assert secret.removeprefix("koala_").encode() not in kept


def test_tokens_outlive_the_daemon_and_revoked_ones_stay_revoked(desk: TokenDesk, store: Store, clock: Clock) -> None:
    async def scene() -> None:
        kept, gone = await made(desk), await made(desk)
        await desk.revoke(gone.token.id)
        after = TokenDesk(store, clock)
        assert holder(after, kept.secret) is not None
        assert holder(after, gone.secret) is None
        listed = {token.id: token for token in await after.tokens()}
        assert listed[kept.token.id].revoked_at is None
        assert listed[gone.token.id].revoked_at == clock.now
        await after.close()

    asyncio.run(scene())


def test_a_list_has_the_valid_tokens_and_those_revoked_lately(
    desk: TokenDesk, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "REVOKED_LISTED_MAX", 2)

    async def scene() -> None:
        new = [await made(desk) for _ in range(5)]
        valid, revoked = new[0].token.id, [each.token.id for each in new[1:]]
        for token in revoked:
            clock.now += 1
            await desk.revoke(token)
        assert {each.id for each in await desk.tokens()} == {valid, *revoked[-2:]}
        clock.now += desk_module.REVOKED_LISTED_S
        assert {each.id for each in await desk.tokens()} == {valid, revoked[-1]}
        clock.now += 1
        assert [each.id for each in await desk.tokens()] == [valid]
        assert len(store.tokens()) == 5

    asyncio.run(scene())


def test_revoking_ends_the_token_its_sessions_and_its_open_credentials_at_once(desk: TokenDesk) -> None:
    async def scene() -> None:
        new, other = await made(desk), await made(desk)
        credential = desk.by_secret(new.secret)
        session = desk.open_session(new.secret)
        assert credential is not None
        assert session is not None
        assert desk.holds(credential)
        assert desk.by_session(session) is not None
        await desk.revoke(new.token.id)
        assert desk.by_secret(new.secret) is None
        assert desk.by_session(session) is None
        assert not desk.holds(credential)
        assert holder(desk, other.secret) is not None
        await desk.revoke(new.token.id)  # again changes nothing
        await desk.close()

    asyncio.run(scene())


def test_a_token_is_refused_even_where_the_store_could_not_note_its_end(desk: TokenDesk, store: Store) -> None:
    async def scene() -> None:
        new = await made(desk)
        store.close()
        with pytest.raises(StoreError):
            await desk.revoke(new.token.id)
        assert desk.by_secret(new.secret) is None

    asyncio.run(scene())


def test_revoking_what_does_not_exist_says_so(desk: TokenDesk) -> None:
    with pytest.raises(NotFoundError, match="no token 'nope'"):
        asyncio.run(desk.revoke("nope"))


def test_there_are_at_most_so_many_tokens(desk: TokenDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "TOKENS_MAX", 2)

    async def scene() -> None:
        first = await made(desk)
        await made(desk)
        with pytest.raises(ConflictError, match="TOKENS_MAX"):
            await made(desk)
        await desk.revoke(first.token.id)
        await made(desk)

    asyncio.run(scene())


def test_use_is_noted_at_most_once_a_minute(desk: TokenDesk, store: Store, clock: Clock) -> None:
    async def used_at(secret: str) -> float | None:
        assert desk.by_secret(secret) is not None
        await desk.close()
        return store.tokens()[0].used_at

    async def scene() -> None:
        secret = (await made(desk)).secret
        begun = clock.now
        assert await used_at(secret) == begun
        clock.now += TOUCH_INTERVAL_S - 1
        assert await used_at(secret) == begun
        clock.now += 1
        assert await used_at(secret) == clock.now

    asyncio.run(scene())


def test_a_token_works_while_the_store_is_away(desk: TokenDesk, store: Store) -> None:
    async def scene() -> None:
        secret = (await made(desk)).secret
        store.close()
        assert holder(desk, secret) is not None
        await desk.close()

    asyncio.run(scene())


def test_a_code_opens_one_session_and_only_in_time(desk: TokenDesk, clock: Clock) -> None:
    code, expires_at = desk.make_code(OWNER)
    assert expires_at == clock.now + CODE_S
    session = desk.open_session(code)
    assert session is not None
    found = desk.by_session(session)
    assert found is not None
    assert found.principal == OWNER
    assert desk.open_session(code) is None
    late, _ = desk.make_code(OWNER)
    clock.now += CODE_S
    assert desk.open_session(late) is None


def test_of_too_many_codes_the_oldest_is_forgotten(desk: TokenDesk) -> None:
    codes = [desk.make_code(OWNER)[0] for _ in range(CODES_MAX + 1)]
    assert desk.open_session(codes[0]) is None
    assert desk.open_session(codes[1]) is not None
    assert desk.open_session(codes[-1]) is not None


def test_a_session_ends_by_time_and_by_signing_out(desk: TokenDesk, clock: Clock) -> None:
    first, second = (desk.open_session(desk.make_code(OWNER)[0]) for _ in range(2))
    assert first is not None
    assert second is not None
    desk.close_session(first)
    desk.close_session(first)
    assert desk.by_session(first) is None
    credential = desk.by_session(second)
    assert credential is not None
    clock.now += SESSION_S
    assert desk.by_session(second) is None
    assert not desk.holds(credential)


def test_of_too_many_sessions_the_oldest_ends(desk: TokenDesk) -> None:
    sessions = [desk.open_session(desk.make_code(OWNER)[0]) for _ in range(SESSIONS_MAX + 1)]
    assert sessions[0] is not None
    assert sessions[-1] is not None
    assert desk.by_session(sessions[0]) is None
    assert desk.by_session(sessions[-1]) is not None
