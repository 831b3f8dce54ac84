"""Each limit of the API is reached, and what lies beyond it is refused with the limit's name or with the way out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koala.daemon.api import RequestTraffic, limits
from koala.daemon.api.bodies import check_json
from koala.daemon.api.guard import Guard
from koala.daemon.api.limits import Buckets
from koala.daemon.service.principal import Principal, owner
from koala.model.api import DESCRIPTION_BYTES_MAX, Scope
from koala.model.errors import InvalidError, TooManyError
from tests.support.api_world import OWNER, WAITING_JOB, World, error_of, in_world

JSON = {"Content-Type": "application/json"}


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def pieces(size_bytes: int) -> AsyncIterator[bytes]:
    """A body that does not say how long it is."""
    piece = b" " * 65_536
    for _ in range(size_bytes // len(piece) + 1):
        yield piece


def test_a_body_that_says_it_is_too_large_is_refused(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.post("/v1/jobs", content=b" " * (limits.BODY_BYTES_MAX + 1), headers=JSON)
        assert answer.status_code == 413
        assert str(limits.BODY_BYTES_MAX) in error_of(answer)["message"]

    in_world(tmp_path, scene)


def test_a_body_that_hides_its_length_is_refused_all_the_same(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.post("/v1/jobs", content=pieces(limits.BODY_BYTES_MAX), headers=JSON)
        assert answer.status_code == 413
        assert error_of(answer)["code"] == "too_large"

    in_world(tmp_path, scene)


def test_a_stranger_may_send_only_little(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        body = b" " * (limits.STRANGER_BODY_BYTES_MAX + 1)
        async with world.caller() as stranger, world.caller(await world.secret("bob", Scope.READ)) as bob:
            assert (await stranger.post("/v1/jobs", content=body, headers=JSON)).status_code == 413
            assert (await stranger.post("/v1/jobs", content=body[:-1], headers=JSON)).status_code == 422
            assert (await bob.post("/v1/jobs", content=body, headers=JSON)).status_code == 422

    in_world(tmp_path, scene)


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    sent: list[dict[str, object]] = []

    async def scene(world: World) -> None:
        async def receive() -> dict[str, object]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: object) -> None:
            assert isinstance(message, dict)
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/jobs",
            "raw_path": b"/v1/jobs",
            "query_string": b"",
            "headers": [(b"content-length", b"10")],
        }
        await Guard(world.trusted, world.trusted.state.listener, body_s_max=0.01)(scope, receive, send)

    in_world(tmp_path, scene)
    assert sent[0]["status"] == 408


def test_a_description_up_to_the_limit_is_read_and_one_beyond_it_refused(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        padding = "#" * (DESCRIPTION_BYTES_MAX - len(WAITING_JOB))
        async with world.owner() as owner:
            taken = await owner.post("/v1/dry-runs", json={"description": WAITING_JOB + padding})
            beyond = await owner.post("/v1/dry-runs", json={"description": WAITING_JOB + padding + "#"})
        assert taken.status_code == 200, taken.text
        assert beyond.status_code == 422

    in_world(tmp_path, scene)


def test_json_is_nested_no_deeper_than_the_limit() -> None:
    depth = limits.JSON_DEPTH_MAX
    check_json(b"[" * depth + b"]" * depth)
    check_json(json.dumps({"text": "[" * 1_000 + '"\\' + "{" * 1_000}).encode())
    for deep in (
        b"[" * (depth + 1) + b"]" * (depth + 1),
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b"[" * 60_000,
    ):
        with pytest.raises(InvalidError, match="JSON_DEPTH_MAX"):
            check_json(deep)


def test_json_has_only_so_many_strings_and_so_much_beside_them() -> None:
    strings = limits.JSON_STRINGS_MAX
    check_json(b"[" + b'"",' * (strings - 1) + b'""]')
    with pytest.raises(InvalidError, match="JSON_STRINGS_MAX"):
        check_json(b"[" + b'"",' * strings + b'""]')
    most = limits.JSON_STRUCTURE_CHARACTERS_MAX
    check_json(b"1" * most)
    for much in (b"1" * (most + 1), b'"a"' + b" " * (most + 1), b"[" * 1_000_000):
        with pytest.raises(InvalidError, match="JSON_STRUCTURE_CHARACTERS_MAX"):
            check_json(much)


@pytest.mark.parametrize("text", [r'"\u0000"', r'{"a": "x\\\u0000"}', "[\0[\0]\0]\0"])
def test_json_with_a_nul_character_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="NUL"):
        check_json(text.encode())


def test_json_with_a_backslash_before_the_letters_of_a_nul_is_not() -> None:
    check_json(rb'{"a": "C:\\u0000"}')


def test_json_that_is_not_utf_8_is_refused_at_its_byte() -> None:
    with pytest.raises(InvalidError, match="byte 2"):
        check_json(b'"a\xff"')


@pytest.mark.parametrize(
    "text",
    [b'"' + b'\\"' * 2_000_000, b'"\\' + b"\\" * 4_000_000, b'["' + b'\\"' * 2_000_000 + b'"]'],
    ids=["quotes without an end", "backslashes", "quotes"],
)
def test_json_full_of_quotes_is_read_once(text: bytes) -> None:
    """Were the text read again from each quote on, this would take hours."""
    check_json(text)


def test_brackets_count_outside_of_strings_only() -> None:
    deep = b"[" * (limits.JSON_DEPTH_MAX + 1)
    check_json(b'"\\\\\\"' + deep)
    with pytest.raises(InvalidError, match="JSON_DEPTH_MAX"):
        check_json(b'"\\\\"' + deep)


def test_a_parameter_is_given_once_but_for_states_and_a_cursor_is_checked_for_everybody(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.get("/v1/jobs?owner=anna&owner=bert")
            assert answer.status_code == 422
            assert error_of(answer)["message"] == "owner: the parameter is given more than once; give it once"
            assert (await owner.get("/v1/jobs?state=waiting&state=running")).status_code == 200
        async with world.caller(await world.secret("anna", Scope.READ)) as guest:
            answer = await guest.get("/v1/jobs?owner=bert&cursor=none-of-ours")
            assert answer.status_code == 422
            assert "not a cursor" in error_of(answer)["message"]

    in_world(tmp_path, scene)


def test_an_address_has_a_limited_length(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.get("/v1/files", params={"prefix": "x" * limits.URL_BYTES_MAX})
        assert answer.status_code == 413
        assert "URL_BYTES_MAX" in error_of(answer)["message"]

    in_world(tmp_path, scene)


def test_headers_have_a_limited_size(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.get("/healthz", headers={"X": "x" * limits.HEADER_BYTES_MAX})
        assert answer.status_code == 413
        assert "HEADER_BYTES_MAX" in error_of(answer)["message"]

    in_world(tmp_path, scene)


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(2.0, 3.0, clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    clock.now += 1_000
    assert [buckets.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_buckets_are_limited_in_number() -> None:
    buckets = Buckets(1.0, 1.0, Clock(), keys_max=2)
    for key in "abc":
        assert buckets.take(key) == 0
    assert buckets.take("c") > 0
    assert buckets.take("a") == 0


def test_requests_beyond_the_rate_of_a_user_are_refused_and_no_one_elses(tmp_path: Path) -> None:
    clock = Clock()

    async def scene(world: World) -> None:
        secrets = [await world.secret(user, Scope.READ) for user in ("bob", "bob", "eve")]
        bob, also_bob, eve = (world.caller(secret) for secret in secrets)
        async with bob, also_bob, eve:
            statuses = [(await bob.get("/v1/whoami")).status_code for _ in range(int(limits.REQUESTS_BURST))]
            refused = await also_bob.get("/v1/whoami")
            assert (await eve.get("/v1/whoami")).status_code == 200
            clock.now += 1
            assert (await bob.get("/v1/whoami")).status_code == 200
        assert set(statuses) == {200}
        assert refused.status_code == 429
        assert error_of(refused)["code"] == "too_many"
        assert refused.headers["retry-after"] == "1"

    in_world(tmp_path, scene, traffic=RequestTraffic(clock))


def test_the_owner_has_a_rate_as_well_but_a_large_one() -> None:
    traffic = RequestTraffic(Clock())
    for _ in range(int(limits.OWNER_REQUESTS_BURST)):
        traffic.count_request(owner(OWNER))
    with pytest.raises(TooManyError):
        traffic.count_request(owner(OWNER))


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a pipe", "a pipe"),
    ],
)
def test_an_address_of_ipv6_counts_as_its_network(address: str, counted: str) -> None:
    assert limits.network_of(address) == counted


def test_wrong_tokens_are_refused_faster_after_a_while_and_right_ones_never(tmp_path: Path) -> None:
    clock = Clock()

    async def scene(world: World) -> None:
        wrong = {"Authorization": "Bearer koala_" + "A" * 43}
        async with world.caller() as stranger, world.caller(await world.secret("bob", Scope.READ)) as bob:
            answers = [
                await stranger.get("/v1/jobs", headers=wrong) for _ in range(int(limits.FAILED_SIGN_INS_BURST) + 1)
            ]
            assert [answer.status_code for answer in answers[:-1]] == [401] * int(limits.FAILED_SIGN_INS_BURST)
            assert answers[-1].status_code == 429
            assert (await bob.get("/v1/whoami")).status_code == 200

    in_world(tmp_path, scene, traffic=RequestTraffic(clock))


def test_so_many_bodies_of_one_caller_are_read_at_a_time_and_others_are_theirs() -> None:
    traffic = RequestTraffic(bodies_per_caller_max=2)
    with traffic.body_of("user bob"), traffic.body_of("user bob"):
        with pytest.raises(TooManyError, match="BODIES_PER_CALLER_MAX"), traffic.body_of("user bob"):
            pass
        with traffic.body_of("address 192.0.2.7"):
            pass
    with traffic.body_of("user bob"):
        pass


def test_streams_are_limited_for_each_caller_and_in_all() -> None:
    traffic = RequestTraffic(streams_max=3, streams_per_principal_max=2)
    bob, eve = (Principal(name=name, scopes=frozenset({Scope.READ})) for name in ("bob", "eve"))
    with traffic.stream_of(bob), traffic.stream_of(bob):
        with pytest.raises(TooManyError, match="STREAMS_PER_PRINCIPAL_MAX"), traffic.stream_of(bob):
            pass
        with traffic.stream_of(eve):
            with pytest.raises(TooManyError, match="STREAMS_MAX"), traffic.stream_of(eve):
                pass
            with traffic.stream_of(owner(OWNER)):  # the daemon's own user has streams apart from those
                assert traffic.streams_open == 4
    assert traffic.streams_open == 0
    with traffic.stream_of(bob):
        assert traffic.streams_open == 1
