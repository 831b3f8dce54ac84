"""Signing in to the dashboard, and what keeps other sites' pages from using somebody's session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from koala.daemon.api import RequestTraffic, make_app
from koala.daemon.api.limits import SIGN_INS_BURST
from koala.daemon.service.principal import owner as owner_named
from koala.model.api import Scope
from tests.support.api_world import OWNER, WAITING_JOB, Stage, World, client_of, error_of, in_world

SAME = {"Origin": "http://koala.test", "Sec-Fetch-Site": "same-origin"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("sessions")) as shared:
        yield shared


async def login_code(world: World) -> str:
    async with world.owner() as owner:
        login = (await owner.post("/v1/logins")).json()
    assert login["url"].startswith("http://127.0.0.1:1/login#code=")
    return str(login["url"].partition("code=")[2])


def test_the_link_of_a_login_opens_one_session_as_the_owner(stage: Stage) -> None:
    async def scene(world: World) -> None:
        code = await login_code(world)
        async with world.caller() as browser:
            answer = await browser.post("/login", data={"code": code}, headers=SAME)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            cookie = answer.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "secure" not in cookie
            assert (await browser.get("/v1/whoami")).json() == {
                "name": OWNER,
                "scopes": ["read", "submit", "priority", "operate"],
                "owner": True,
            }
        async with world.caller() as other:
            again = await other.post("/login", data={"code": code}, headers=SAME)
            assert again.headers["location"] == "/login?problem=wrong"
            assert "set-cookie" not in again.headers

    stage.play(scene)


def test_a_token_can_be_pasted_and_gives_its_own_rights(stage: Stage) -> None:
    async def scene(world: World) -> None:
        secret = await world.secret("bob", Scope.READ)
        async with world.caller() as browser:
            answer = await browser.post("/login", data={"secret": f" {secret} "}, headers=SAME)
            assert answer.headers["location"] == "/"
            assert (await browser.get("/v1/whoami")).json()["name"] == "bob"
            assert (await browser.post("/v1/jobs", json={"description": "x"}, headers=SAME)).status_code == 403

    stage.play(scene)


@pytest.mark.parametrize("body", [b"", b"secret=", b"secret=wrong", b"&" * 1_000, b"\xff\xfe=%00", b"secret=%ff"])
def test_a_wrong_secret_signs_nobody_in(stage: Stage, body: bytes) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as browser:
            answer = await browser.post("/login", content=body, headers=SAME | FORM)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login?problem=wrong")
            assert "set-cookie" not in answer.headers

    stage.play(scene)


def test_with_tls_the_cookie_is_only_for_tls(stage: Stage) -> None:
    async def scene(world: World) -> None:
        app = make_app(world.service, world.tokens, trusted=False, owner=OWNER, secure=True)
        async with client_of(app) as browser:
            code = world.tokens.make_code(owner_named(OWNER))[0]
            answer = await browser.post("/login", data={"code": code}, headers=SAME)
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "strict-transport-security" in answer.headers

    stage.play(scene)


def test_signing_out_ends_the_session_everywhere(stage: Stage) -> None:
    async def scene(world: World) -> None:
        browser = await world.session()
        async with browser:
            assert (await browser.get("/v1/whoami")).status_code == 200
            assert (await browser.post("/logout")).status_code == 403
            assert (await browser.get("/v1/whoami")).status_code == 200
            answer = await browser.post("/logout", headers=SAME)
            assert answer.headers["location"] == "/login"
            assert (await browser.get("/v1/whoami")).status_code == 401

    stage.play(scene)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "http://koala.test.evil.test"}, 403),
        ({"Origin": "http://koala.test:81"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://koala.test"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.test"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://koala.test"}, 200),
        (SAME, 200),
    ],
)
def test_a_change_with_a_session_must_come_from_our_own_page(
    stage: Stage, headers: dict[str, str], status: int
) -> None:
    async def scene(world: World) -> None:
        browser = await world.session()
        async with browser:
            answer = await browser.post("/v1/dry-runs", json={"description": WAITING_JOB}, headers=headers)
            assert answer.status_code == status
            assert (await browser.get("/v1/whoami", headers=headers)).status_code == 200

    stage.play(scene)


def test_signing_in_must_come_from_our_own_page_too(stage: Stage) -> None:
    async def scene(world: World) -> None:
        secret = await world.secret("eve", Scope.READ)
        async with world.caller() as browser:
            answer = await browser.post("/login", data={"secret": secret}, headers={"Origin": "http://evil.test"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers

    stage.play(scene)


def test_no_address_signs_anybody_in(stage: Stage) -> None:
    async def scene(world: World) -> None:
        code = await login_code(world)
        secret = await world.secret("eve", Scope.READ)
        async with world.caller() as browser:
            for sent in (code, secret):
                answer = await browser.get(f"/login?code={sent}", headers={"Accept": "text/html"})
                assert "set-cookie" not in answer.headers
            assert (await browser.post("/login", data={"code": code}, headers=SAME)).headers["location"] == "/"

    stage.play(scene)


def test_what_a_link_brings_is_a_code_and_never_a_token(stage: Stage) -> None:
    """Or anybody with a token could sign others in as themselves, by a link."""

    async def scene(world: World) -> None:
        secret = await world.secret("eve", Scope.READ)
        async with world.caller() as browser:
            answer = await browser.post("/login", data={"code": secret}, headers=SAME)
        assert answer.headers["location"] == "/login?problem=wrong"
        assert "set-cookie" not in answer.headers

    stage.play(scene)


@pytest.mark.parametrize(
    "address", ["/v1/jobs?owner={}", "/login?secret={}", "/v1/files/{}", "/{}?", "/v1/jobs?a=%6boala{}"]
)
def test_a_token_in_an_address_is_refused_with_the_advice_to_revoke_it(stage: Stage, address: str) -> None:
    async def scene(world: World) -> None:
        secret = await world.secret("bob", Scope.READ)
        quoted = secret.removeprefix("koala") if "%6b" in address else secret
        async with world.caller(secret) as bob:
            answer = await bob.get(address.format(quoted))
        assert answer.status_code == 422
        assert "revoked" in error_of(answer)["message"]
        assert secret not in answer.text

    stage.play(scene)


def test_the_owners_browser_makes_lists_and_revokes_no_tokens(stage: Stage) -> None:
    async def scene(world: World) -> None:
        browser = await world.session()
        async with browser, world.owner() as owner:
            wish = {"user": "eve", "scopes": ["operate"]}
            token = (await owner.post("/v1/tokens", json=wish)).json()["token"]["id"]
            asked = (("POST", "/v1/tokens"), ("GET", "/v1/tokens"), ("DELETE", f"/v1/tokens/{token}"))
            for method, path in (*asked, ("POST", "/v1/logins")):
                answer = await browser.request(method, path, json=wish, headers=SAME)
                assert answer.status_code == 403, path
                assert "socket" in error_of(answer)["message"]
            assert (await owner.delete(f"/v1/tokens/{token}")).status_code == 204

    stage.play(scene)


def test_signing_in_again_and_again_is_held_to_a_rate(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        secret = await world.secret("bob", Scope.READ)
        async with world.caller() as browser, await world.session() as owners:
            for _ in range(int(SIGN_INS_BURST)):
                answer = await browser.post("/login", data={"secret": secret}, headers=SAME)
                assert answer.headers["location"] == "/"
            answer = await browser.post("/login", data={"secret": secret}, headers=SAME)
            assert answer.headers["location"] == "/login?problem=many"
            assert (await owners.get("/v1/whoami")).status_code == 200

    in_world(tmp_path, scene, traffic=RequestTraffic(lambda: 0.0))


def test_a_token_needs_no_origin(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.caller(await world.secret("bob", Scope.SUBMIT)) as bob:
            assert (await bob.post("/v1/dry-runs", json={"description": WAITING_JOB})).status_code == 200

    stage.play(scene)


@pytest.mark.parametrize(
    "host", ["evil.test", "koala.test.evil.test", "", "[::1]", "koala.test@evil.test", "127.0.0.1"]
)
def test_a_name_that_is_not_ours_is_not_answered_to(stage: Stage, host: str) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger:
            answer = await stranger.get("/healthz", headers={"Host": host})
        assert answer.status_code == 421
        assert error_of(answer)["code"] == "wrong_host"

    stage.play(scene)


@pytest.mark.parametrize("host", ["koala.test", "KOALA.test:8080"])
def test_our_own_name_is_answered_to_at_any_port(stage: Stage, host: str) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger:
            assert (await stranger.get("/healthz", headers={"Host": host})).status_code == 200

    stage.play(scene)


def test_a_stranger_who_wants_a_page_is_sent_to_sign_in_and_pages_are_safe(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger:
            for page in ("/", "/jobs", "/jobs/1", "/sites/west"):
                answer = await stranger.get(page, headers={"Accept": "text/html"})
                assert (answer.status_code, answer.headers["location"]) == (303, "/login"), page
            login = await stranger.get("/login", headers={"Accept": "text/html"})
        assert login.status_code == 200
        check_safe(login)

    stage.play(scene)


def check_safe(answer: httpx.Response) -> None:
    """The headers that a page has."""
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "<script>" not in answer.text


def test_pages_of_the_owner_are_safe(stage: Stage) -> None:
    async def scene(world: World) -> None:
        browser = await world.session()
        async with browser:
            answer = await browser.get("/")
        assert answer.status_code == 200
        check_safe(answer)

    stage.play(scene)
