"""Who may call which route: the whole table, and that a user learns nothing of another's jobs by any way.

Every site is drained, so that the jobs here stay as they are and nothing runs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from koala.daemon.service.principal import owner as owner_named
from koala.model.api import Scope
from tests.support.api_world import OWNER, WAITING_JOB, Stage, World, error_of, in_world

READ, SUBMIT, OPERATE = "read", "submit", "operate"
EVERYBODY = frozenset({READ, SUBMIT, OPERATE, "owner"})
READERS = frozenset({READ, "owner"})
OPERATORS = frozenset({OPERATE, "owner"})
OWNER_ONLY = frozenset({"owner"})
# The daemon's own user comes to its socket, or in a browser to the listener for everybody.
CALLERS = ("nobody", "revoked", READ, SUBMIT, OPERATE, "owner", "owners_browser")

# Each request comes from an address of its own, so that wrong tokens do not add up.
ADDRESSES = itertools.count()

JOB = {"description": WAITING_JOB}
GRAPH = {"description": "jobs: {}", "source": "graph.yaml"}
FILE = {"name": "none", "site": "west"}
# (method, route, what to send) -> who gets beyond the question of rights. A token here has one scope alone.
TABLE: list[tuple[str, str, dict[str, Any] | None, frozenset[str]]] = [
    ("POST", "/v1/jobs", JOB, frozenset({SUBMIT, "owner"})),
    ("POST", "/v1/graphs", GRAPH, frozenset({SUBMIT, "owner"})),
    ("POST", "/v1/graph-dry-runs", GRAPH, frozenset({SUBMIT, "owner"})),
    ("POST", "/v1/dry-runs", JOB, frozenset({SUBMIT, "owner"})),
    ("GET", "/v1/jobs", None, READERS),
    ("GET", "/v1/jobs/{job}", None, READERS),
    ("GET", "/v1/jobs/{job}/explanation", None, READERS),
    ("GET", "/v1/jobs/{job}/wait?timeout_s=0", None, READERS),
    ("POST", "/v1/jobs/{job}/cancel", None, frozenset({SUBMIT, OPERATE, "owner"})),
    ("POST", "/v1/jobs/{job}/hold", None, frozenset({SUBMIT, OPERATE, "owner"})),
    ("POST", "/v1/jobs/{job}/release", None, frozenset({SUBMIT, OPERATE, "owner"})),
    ("POST", "/v1/jobs/{job}/change", {"priority": "low"}, frozenset({SUBMIT, OPERATE, "owner"})),
    ("POST", "/v1/jobs/{job}/spawn", {"description": "tasks: {e: 1}"}, frozenset({SUBMIT, OPERATE, "owner"})),
    ("POST", "/v1/jobs/{job}/requeue", None, frozenset({SUBMIT, OPERATE, "owner"})),
    ("GET", "/v1/jobs/{job}/output", None, READERS),
    ("GET", "/v1/jobs/{job}/outputs", None, READERS),
    ("GET", "/v1/grid", None, READERS),
    ("GET", "/v1/network", None, READERS),
    ("GET", "/v1/network/{source}/{target}", None, READERS),
    ("POST", "/v1/network/{source}/{target}/probe", None, OPERATORS),
    ("GET", "/v1/sites", None, READERS),
    ("GET", "/v1/sites/{site}", None, READERS),
    ("GET", "/v1/sites/{site}/history?from_at=1&to_at=2", None, READERS),
    ("POST", "/v1/sites/{site}/drain", None, OPERATORS),
    ("POST", "/v1/sites/{site}/resume", None, OPERATORS),
    ("POST", "/v1/sites/{site}/lost", None, OPERATORS),
    ("POST", "/v1/sites/{site}/probe", None, OPERATORS),
    ("GET", "/v1/files", None, READERS),
    ("GET", "/v1/files/{name}", None, READERS),
    ("GET", "/v1/file-contents/{name}", None, READERS),
    ("POST", "/v1/file-contents", {"names": ["none"]}, READERS),
    ("POST", "/v1/files", FILE, OPERATORS),
    ("POST", "/v1/replications", FILE, OPERATORS),
    ("POST", "/v1/forgettings", {"name": "none"}, OPERATORS),
    ("POST", "/v1/missing-contents", {"files": "[]"}, frozenset({SUBMIT, "owner"})),
    ("PUT", f"/v1/contents/{'0' * 64}?size_bytes=1", None, frozenset({SUBMIT, "owner"})),
    ("GET", "/v1/events", None, READERS),
    ("GET", "/v1/events/stream", None, READERS),
    ("GET", "/v1/whoami", None, EVERYBODY),
    ("POST", "/v1/tokens", {"user": "eve", "scopes": ["read"]}, OWNER_ONLY),
    ("GET", "/v1/tokens", None, OWNER_ONLY),
    ("DELETE", "/v1/tokens/{token}", None, OWNER_ONLY),
    ("POST", "/v1/logins", None, OWNER_ONLY),
    ("GET", "/metrics", None, READERS),
    ("GET", "/healthz", None, EVERYBODY | {"nobody", "revoked"}),
    ("GET", "/readyz", None, EVERYBODY | {"nobody", "revoked"}),
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    async def drain(world: World) -> None:
        async with world.owner() as owner:
            for site in ("west", "east"):
                await owner.post(f"/v1/sites/{site}/drain")

    with Stage(tmp_path_factory.mktemp("rights")) as shared:
        shared.play(drain)
        yield shared


async def secret_of(world: World, caller: str) -> str | None:
    """The secret that a caller of the table comes with."""
    if caller in ("nobody", "owner", "owners_browser"):
        return None
    if caller == "revoked":
        new = await world.secret("mallory", *Scope)
        found = world.tokens.by_secret(new)
        assert found is not None
        assert found.token is not None
        await world.tokens.revoke(found.token)
        return new
    return await world.secret(f"only-{caller}", Scope(caller))


async def status_of(world: World, caller: str, method: str, path: str, body: dict[str, Any] | None) -> int:
    """The status of the answer, of a stream as soon as it begins."""
    secret = await secret_of(world, caller)
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    headers = [(b"host", b"koala.test"), (b"content-type", b"application/json")]
    if secret is not None:
        headers.append((b"authorization", f"Bearer {secret}".encode()))
    if caller == "owners_browser":
        session = world.tokens.open_session(world.tokens.make_code(owner_named(OWNER))[0])
        headers += [(b"cookie", f"koala_session={session}".encode()), (b"sec-fetch-site", b"same-origin")]
    route, _, query = path.partition("?")
    sent = [b"" if body is None else json.dumps(body).encode()]

    async def receive() -> dict[str, Any]:
        if sent:
            return {"type": "http.request", "body": sent.pop(), "more_body": False}
        await begun
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.set_result(message["status"])

    scope = {
        "type": "http", "method": method, "path": route, "raw_path": route.encode(), "query_string": query.encode(),
        "headers": headers, "client": (str(next(ADDRESSES)), 1), "server": None, "scheme": "http", "root_path": "",
    }  # fmt: skip
    app = world.trusted if caller == "owner" else world.open
    await app(scope, receive, send)
    return begun.result()


def test_the_table_has_every_route_of_the_api(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger:
            document = (await stranger.get("/v1/openapi.json")).json()
        routes = {
            (
                method.upper(),
                route.replace("{site}", "S")
                .replace("{job}", "J")
                .replace("{token}", "T")
                .replace("{checksum}", "0" * 64),
            )
            for route, methods in document["paths"].items()
            for method in methods
        }
        tabled = {
            (method, path.partition("?")[0].replace("{site}", "S").replace("{job}", "J").replace("{token}", "T"))
            for method, path, _, _ in TABLE
        }
        assert tabled == routes

    stage.play(scene)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    TABLE,
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, frozenset) else str(value)[:60],
)
def test_a_route_lets_in_those_it_should_and_nobody_else(
    stage: Stage, method: str, path: str, body: dict[str, Any] | None, allowed: frozenset[str], caller: str
) -> None:
    async def scene(world: World) -> None:
        # Of a job that is not there a caller with the right learns just that, so that nothing is changed.
        asked = path.format_map(
            {"job": 987_654, "site": "north", "source": "north", "target": "south", "name": "none", "token": "none"}
        )
        status = await status_of(world, caller, method, asked, body)
        same_as = "owner" if caller == "owners_browser" and allowed != OWNER_ONLY else caller
        if same_as in allowed:
            assert status in (200, 201, 404, 409, 422), status
        else:
            assert status == (401 if caller in ("nobody", "revoked") else 403), status

    stage.play(scene)


def test_a_token_and_its_session_are_refused_from_the_moment_of_revocation(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            new = (await owner.post("/v1/tokens", json={"user": "bob", "scopes": ["read"]})).json()
            session = world.tokens.open_session(new["secret"])
            cookie = {"Cookie": f"koala_session={session}"}
            async with world.caller(new["secret"]) as bob, world.caller() as browser:
                assert (await bob.get("/v1/jobs")).status_code == 200
                assert (await browser.get("/v1/jobs", headers=cookie)).status_code == 200
                assert (await owner.delete(f"/v1/tokens/{new['token']['id']}")).status_code == 204
                assert (await bob.get("/v1/jobs")).status_code == 401
                assert (await browser.get("/v1/jobs", headers=cookie)).status_code == 401

    stage.play(scene)


def test_a_user_sees_and_touches_nothing_of_anothers_job_by_any_route(stage: Stage) -> None:
    async def scene(world: World) -> None:
        ann = world.caller(await world.secret("ann", Scope.READ, Scope.SUBMIT))
        bob = world.caller(await world.secret("bob", Scope.READ, Scope.SUBMIT))
        ops = world.caller(await world.secret("ops", *Scope))
        text = WAITING_JOB.replace("giant", "secret-of-ann")
        async with ann, bob, ops:
            job = (await ann.post("/v1/jobs", json={"description": text, "client_token": "t"})).json()["job"]["id"]
            many = {"description": f"{text}array: 0-9\n"}
            array = (await ann.post("/v1/jobs", json=many)).json()["job"]["id"]
            for method, path in (
                ("GET", ""),
                ("GET", "/explanation"),
                ("GET", "/wait?timeout_s=0"),
                ("GET", "/output"),
                ("POST", "/cancel"),
                ("POST", "/hold"),
                ("POST", "/release"),
                ("POST", "/requeue"),
                ("POST", "/change"),
                ("POST", "/spawn"),
            ):
                bodies: dict[str, dict[str, object]] = {
                    "/change": {"walltime_s": 60.0},
                    "/spawn": {"description": "tasks: {e: 1}"},
                }
                body = bodies.get(path)
                answer = await bob.request(method, f"/v1/jobs/{job}{path}", json=body)
                assert answer.status_code == 404, (path, answer.text)
                no_such = await bob.request(method, f"/v1/jobs/987654{path}", json=body)
                # What is said of somebody else's job is what is said of none.
                assert error_of(answer)["message"].replace(str(job), "N") == error_of(no_such)["message"].replace(
                    "987654", "N"
                )
            for path in ("/v1/jobs", "/v1/jobs?owner=ann", "/v1/grid", "/v1/sites", "/v1/events?limit=1000"):
                seen = await bob.get(path)
                assert "secret-of-ann" not in seen.text, path
                assert "ann" not in {each.get("owner") for each in listed(seen)}, path
            assert all(entry["job"] != job for entry in (await bob.get("/v1/events?limit=1000")).json())
            for other in (f"{job}", f"{array}", f"{array}_3", f"{array + 1}"):
                waits = {"description": f"{WAITING_JOB}after: {{ended: [{other}]}}\n"}
                for route in ("/v1/jobs", "/v1/dry-runs"):
                    refused = await bob.post(route, json=waits)
                    assert refused.status_code == 422, refused.text
                    assert "there is no " in error_of(refused)["message"]
            for none in (array, 987654):
                listing = await bob.get(f"/v1/jobs?array={none}")
                assert (listing.status_code, error_of(listing)["message"]) == (
                    404,
                    f"there is no job {none}; look at the list of jobs",
                )
            assert (await bob.post(f"/v1/jobs/{array + 1}/hold")).status_code == 404
            of_job = await bob.get(f"/v1/events?job={job}")
            assert of_job.status_code == 404 or of_job.json() == []
            stream = await status_of_stream(world, "bob", job)
            assert stream == 404 or stream == 200
            for page in ("/", "/jobs", f"/jobs/{job}"):
                assert "secret-of-ann" not in (await bob.get(page)).text
            # The same client token is bob's own.
            assert (await bob.post("/v1/jobs", json={"description": WAITING_JOB, "client_token": "t"})).json()["new"]
            # All this while the job is there, and an operator sees it.
            assert (await ann.get(f"/v1/jobs/{job}")).json()["state"] == "waiting"
            assert (await ops.get(f"/v1/jobs/{job}")).json()["name"] == "secret-of-ann"
            assert "secret-of-ann" in (await ops.get("/v1/grid")).text
            for mine in (job, array):
                assert (await ops.post(f"/v1/jobs/{mine}/cancel")).status_code == 200

    stage.play(scene)


def listed(answer: httpx.Response) -> list[dict[str, Any]]:
    """The jobs in a page or an overview."""
    body = answer.json()
    if isinstance(body, list):
        return [each for each in body if "owner" in each]
    lists = ("items", "waiting_high", "waiting_low", "claiming", "active")
    return [each for name in lists for each in body.get(name, [])]


async def status_of_stream(world: World, user: str, job: int) -> int:
    """How a stream of one job begins for a reader."""
    secret = await world.secret(user, Scope.READ)
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if not parts and not begun.done():
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(0.2)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.set_result(message["status"])
        else:
            parts.append(message["body"])

    scope = {
        "type": "http", "method": "GET", "path": "/v1/events/stream", "raw_path": b"/v1/events/stream",
        "query_string": f"after=0&job={job}".encode(), "client": None, "server": None, "scheme": "http",
        "headers": [(b"host", b"koala.test"), (b"authorization", f"Bearer {secret}".encode())], "root_path": "",
    }  # fmt: skip
    await world.open(scope, receive, send)
    assert b"JobSubmitted" not in b"".join(parts)
    return begun.result()


def test_high_priority_needs_a_right_of_its_own_and_tokens_of_before_keep_it(tmp_path: Path) -> None:
    high = {"description": WAITING_JOB + "priority: high\n"}

    async def scene(world: World) -> None:
        scopes = {
            "low": (Scope.READ, Scope.SUBMIT),
            "high": (Scope.SUBMIT, Scope.PRIORITY),
            "operator": (Scope.SUBMIT, Scope.OPERATE),
        }
        secrets = {name: await world.secret(name, *given) for name, given in scopes.items()}
        async with world.owner() as owner:
            told = {each["user"]: each["scopes"] for each in (await owner.get("/v1/tokens")).json()}
        assert told["low"] == ["read", "submit"]
        assert told["high"] == ["submit", "priority"]
        for name, secret in secrets.items():
            async with world.caller(secret) as caller:
                for route in ("/v1/jobs", "/v1/dry-runs"):
                    answer = await caller.post(route, json=high)
                    assert answer.is_success is (name != "low"), answer.text
        async with world.caller(secrets["low"]) as low:
            refusal = error_of(await low.post("/v1/jobs", json=high))
            assert "priority: high needs the scope priority" in refusal["message"]
            job = (await low.post("/v1/jobs", json=JOB)).json()["job"]["id"]
            assert (await low.post(f"/v1/jobs/{job}/change", json={"priority": "high"})).status_code == 403

    in_world(tmp_path, scene)
