"""Tokens, one-time codes and sessions, on a real store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.daemon.service import tokens as tokens_module
from koala.daemon.service.principal import Principal, owner
from koala.daemon.service.tokens import CODE_S, CODES_MAX, SESSION_S, TOUCH_INTERVAL_S, AccessTokens
from koala.model.api import NewToken, Scope
from koala.model.api.questions import TokenWish
from koala.model.errors import ConflictError, NotFoundError
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
def access(store: Store, clock: Clock) -> AccessTokens:
    return AccessTokens(store, clock)


def wish(user: str = "bob", *scopes: Scope) -> TokenWish:
    return TokenWish(user=user, scopes=list(scopes or (Scope.READ,)), note="laptop")


async def made(access: AccessTokens, user: str = "bob", *scopes: Scope) -> NewToken:
    return await access.create(wish(user, *scopes))


def holder(access: AccessTokens, secret: str) -> Principal | None:
    found = access.by_secret(secret)
    return None if found is None else found.principal


def test_a_secret_is_recognised_and_has_the_scopes_that_were_asked_for(access: AccessTokens) -> None:
    async def scene() -> None:
        new = await made(access, "bob", Scope.SUBMIT, Scope.READ, Scope.READ)
        assert re.fullmatch(r"koala_[A-Za-z0-9_-]{43}", new.secret)
        assert new.token.scopes == [Scope.READ, Scope.SUBMIT]
        assert holder(access, new.secret) == Principal(
            name="bob", scopes=frozenset({Scope.READ, Scope.SUBMIT}), guest=True
        )
        await access.close()

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", ["", "koala_", "koala_" + "A" * 43, "x" * 10_000, "koala_" + "\ud800" * 5])
def test_a_wrong_secret_is_nobody(access: AccessTokens, wrong: str) -> None:
    async def scene() -> None:
        new = await made(access)
        assert holder(access, wrong) is None
        assert holder(access, new.secret[:-1]) is None
        assert holder(access, new.secret + "A") is None
        assert access.open_session(wrong) is None
        assert access.by_session(wrong) is None

    asyncio.run(scene())


def test_no_secret_is_kept_anywhere_in_the_database(access: AccessTokens, store: Store, tmp_path: Path) -> None:
    secret = asyncio.run(made(access)).secret
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"laptop" in kept
    assert secret.encode() not in kept
    assert secret.removeprefix("koala_").encode() not in kept


def test_tokens_outlive_the_daemon_and_revoked_ones_stay_revoked(
    access: AccessTokens, store: Store, clock: Clock
) -> None:
    async def scene() -> None:
        kept, gone = await made(access), await made(access)
        await access.revoke(gone.token.id)
        after = AccessTokens(store, clock)
        assert holder(after, kept.secret) is not None
        assert holder(after, gone.secret) is None
        listed = {token.id: token for token in await after.tokens()}
        assert listed[kept.token.id].revoked_at is None
        assert listed[gone.token.id].revoked_at == clock.now
        await after.close()

    asyncio.run(scene())


def test_a_list_has_the_valid_tokens_and_those_revoked_lately(store: Store, clock: Clock) -> None:
    access = AccessTokens(store, clock, revoked_listed_max=2)

    async def scene() -> None:
        new = [await made(access) for _ in range(5)]
        valid, revoked = new[0].token.id, [each.token.id for each in new[1:]]
        for token in revoked:
            clock.now += 1
            await access.revoke(token)
        assert {each.id for each in await access.tokens()} == {valid, *revoked[-2:]}
        clock.now += tokens_module.REVOKED_LISTED_S
        assert {each.id for each in await access.tokens()} == {valid, revoked[-1]}
        clock.now += 1
        assert [each.id for each in await access.tokens()] == [valid]
        assert len(store.tokens()) == 5

    asyncio.run(scene())


def test_revoking_ends_the_token_its_sessions_and_its_open_credentials_at_once(access: AccessTokens) -> None:
    async def scene() -> None:
        new, other = await made(access), await made(access)
        credential = access.by_secret(new.secret)
        session = access.open_session(new.secret)
        assert credential is not None
        assert session is not None
        assert access.holds(credential)
        assert access.by_session(session) is not None
        await access.revoke(new.token.id)
        assert access.by_secret(new.secret) is None
        assert access.by_session(session) is None
        assert not access.holds(credential)
        assert holder(access, other.secret) is not None
        await access.revoke(new.token.id)  # again changes nothing
        await access.close()

    asyncio.run(scene())


def test_a_token_is_refused_even_where_the_store_could_not_note_its_end(access: AccessTokens, store: Store) -> None:
    async def scene() -> None:
        new = await made(access)
        store.close()
        with pytest.raises(StoreError):
            await access.revoke(new.token.id)
        assert access.by_secret(new.secret) is None

    asyncio.run(scene())


def test_revoking_what_does_not_exist_says_so(access: AccessTokens) -> None:
    with pytest.raises(NotFoundError, match="no token 'nope'"):
        asyncio.run(access.revoke("nope"))


def test_there_are_at_most_so_many_tokens(store: Store, clock: Clock) -> None:
    access = AccessTokens(store, clock, tokens_max=2)

    async def scene() -> None:
        first = await made(access)
        await made(access)
        with pytest.raises(ConflictError, match="TOKENS_MAX"):
            await made(access)
        await access.revoke(first.token.id)
        await made(access)

    asyncio.run(scene())


def test_use_is_noted_at_most_once_a_minute(access: AccessTokens, store: Store, clock: Clock) -> None:
    async def used_at(secret: str) -> float | None:
        assert access.by_secret(secret) is not None
        await access.close()
        return store.tokens()[0].used_at

    async def scene() -> None:
        secret = (await made(access)).secret
        begun = clock.now
        assert await used_at(secret) == begun
        clock.now += TOUCH_INTERVAL_S - 1
        assert await used_at(secret) == begun
        clock.now += 1
        assert await used_at(secret) == clock.now

    asyncio.run(scene())


def test_a_token_works_while_the_store_is_away(access: AccessTokens, store: Store) -> None:
    async def scene() -> None:
        secret = (await made(access)).secret
        store.close()
        assert holder(access, secret) is not None
        await access.close()

    asyncio.run(scene())


def test_a_code_opens_one_session_and_only_in_time(access: AccessTokens, clock: Clock) -> None:
    code, expires_at = access.make_code(OWNER)
    assert expires_at == clock.now + CODE_S
    session = access.open_session(code)
    assert session is not None
    found = access.by_session(session)
    assert found is not None
    assert found.principal == OWNER
    assert access.open_session(code) is None
    late, _ = access.make_code(OWNER)
    clock.now += CODE_S
    assert access.open_session(late) is None


def test_of_too_many_codes_the_oldest_is_forgotten(access: AccessTokens) -> None:
    codes = [access.make_code(OWNER)[0] for _ in range(CODES_MAX + 1)]
    assert access.open_session(codes[0]) is None
    assert access.open_session(codes[1]) is not None
    assert access.open_session(codes[-1]) is not None


def test_a_session_ends_by_time_and_by_signing_out(access: AccessTokens, clock: Clock) -> None:
    first, second = (access.open_session(access.make_code(OWNER)[0]) for _ in range(2))
    assert first is not None
    assert second is not None
    access.close_session(first)
    access.close_session(first)
    assert access.by_session(first) is None
    credential = access.by_session(second)
    assert credential is not None
    clock.now += SESSION_S
    assert access.by_session(second) is None
    assert not access.holds(credential)


def signed_in(access: AccessTokens, secret: str) -> str:
    session = access.open_session(secret)
    assert session is not None
    return session


def test_of_too_many_sessions_of_one_user_their_oldest_ends_and_nobody_elses(store: Store, clock: Clock) -> None:
    access = AccessTokens(store, clock, sessions_per_user_max=2)

    async def scene() -> None:
        eve, also_eve, bob = await made(access, "eve"), await made(access, "eve"), await made(access, "bob")
        owners = [signed_in(access, access.make_code(OWNER)[0]) for _ in range(3)]
        bobs = signed_in(access, bob.secret)
        eves = [signed_in(access, each.secret) for each in (eve, also_eve, eve)]
        live = [access.by_session(each) is not None for each in (*owners, bobs, *eves)]
        assert live == [False, True, True, True, False, True, True]
        await access.close()

    asyncio.run(scene())


def test_of_too_many_sessions_in_all_one_of_the_user_with_the_most_ends_and_never_the_owners(
    store: Store, clock: Clock
) -> None:
    access = AccessTokens(store, clock, sessions_max=4, sessions_per_user_max=3)

    async def scene() -> None:
        owners = signed_in(access, access.make_code(OWNER)[0])
        eve, bob, ann = [await made(access, user) for user in ("eve", "bob", "ann")]
        bobs = signed_in(access, bob.secret)
        eves = [signed_in(access, eve.secret) for _ in range(3)]
        anns = signed_in(access, ann.secret)
        assert [access.by_session(each) is not None for each in eves] == [False, True, True]
        assert all(access.by_session(each) is not None for each in (owners, bobs, anns))
        await access.close()

    asyncio.run(scene())


def test_a_token_for_the_daemons_own_user_is_no_guests(store: Store, clock: Clock) -> None:
    access = AccessTokens(store, clock, owner="ada")

    async def scene() -> None:
        found = [holder(access, (await made(access, user)).secret) for user in ("ada", "bob")]
        assert [each.guest for each in found if each is not None] == [False, True]
        await access.close()

    asyncio.run(scene())


def test_a_token_is_no_code(access: AccessTokens) -> None:
    async def scene() -> None:
        new = await made(access)
        assert access.open_session_by_code(new.secret) is None
        assert access.open_session(new.secret) is not None
        await access.close()

    asyncio.run(scene())
