"""Hostile input is answered with a clear refusal, never with a failure of the daemon, and changes nothing.

Every site is drained before the first test: a description that is taken against all expectation waits and never runs.
Paths are those of the tests' own directory, or of nothing at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.api_world import Stage, World, error_of


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    async def drain(world: World) -> None:
        async with world.owner() as owner:
            for site in ("west", "east"):
                assert (await owner.post(f"/v1/sites/{site}/drain")).json()["drained"]

    with Stage(tmp_path_factory.mktemp("hostile")) as shared:
        shared.play(drain)
        yield shared


DEEP_YAML = "a: " + "[" * 5_000
DEEP_JSON_IN_YAML = "{a: " * 2_000 + "}" * 2_000
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))

OF_COMPONENT = ("processors", "site", "input_files")


def job(**fields: object) -> str:
    """A job with one component that has these fields besides."""
    component = {"processors": 1, **{name: value for name, value in fields.items() if name in OF_COMPONENT}}
    application = {
        "executable": "/bin/true",
        **{name: value for name, value in fields.items() if name not in component},
    }
    return json.dumps({"components": [{**component, "application": application}]})


DESCRIPTIONS = {
    "deep yaml": DEEP_YAML,
    "deep flow": DEEP_JSON_IN_YAML,
    "yaml bomb": BOMB,
    "yaml object": "!!python/object/apply:os.system ['true']",
    "nul": "name: a\x00b",
    "bell": "name: 'a\x07b'\n",
    "not a job": "42",
    "empty": " ",
    "huge processors": job(processors=10**30),
    "negative processors": job(processors=-1),
    "stdout climbs": job(stdout="../../outside"),
    "stderr climbs": job(stderr="a/../../outside"),
    "directory climbs": job(directory="a/../../outside"),
    "input path climbs": job(input_files=[{"name": "f", "path": "../../f"}]),
    "input path absolute": job(input_files=[{"name": "f", "path": "/no/such/place"}]),
    "environment name": job(environment={"A=B; rm -rf": "x"}),
    "unknown site": job(site="../west"),
    "many components": json.dumps(
        {"components": [{"processors": 1, "application": {"executable": "/bin/true"}}] * 2_000}
    ),
    "rsl junk": "&(" * 3_000,
    "script with too many tasks": "#!/bin/sh\n#SBATCH --ntasks=" + "9" * 400,
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_hostile_description_is_refused_with_its_problems_and_leaves_no_job(stage: Stage, name: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for path in ("/v1/jobs", "/v1/dry-runs"):
                answer = await owner.post(path, json={"description": DESCRIPTIONS[name]})
                assert answer.status_code == 422, (path, answer.text)
                assert error_of(answer)["code"] == "invalid"
            assert (await owner.get("/v1/jobs?owner=ada&limit=1")).json()["items"] == []

    stage.play(scene)


@pytest.mark.parametrize(
    "text", ["$(exit 1); `id` | & < > \" ' \\", "\N{PILE OF POO}" * 20, "é\N{COMBINING ACUTE ACCENT}"]
)
def test_names_with_metacharacters_and_any_letters_come_back_as_they_were(stage: Stage, text: str) -> None:
    async def scene(world: World) -> None:
        named = {"name": text, "components": [{"processors": 3, "application": {"executable": "/bin/true"}}]}
        description = json.dumps(named, ensure_ascii=False)
        async with world.owner() as owner:
            submitted = await owner.post("/v1/jobs", json={"description": description})
            assert submitted.status_code == 201, submitted.text
            found = (await owner.get(f"/v1/jobs/{submitted.json()['job']['id']}")).json()
        assert found["name"] == text

    stage.play(scene)


BODIES = {
    "not json": b"{",
    "array": b"[]",
    "null": b"null",
    "bare text": b'"x"',
    "nan": b'{"description": NaN}',
    "huge number": b'{"description": ' + b"9" * 10_000 + b"}",
    "nul escaped": b'{"description": "a\\u0000b"}',
    "nul raw": b'{"description": "a\x00b"}',
    "lone surrogate": b'{"description": "a", "source": "\\ud800"}',
    "not utf-8": b'{"description": "\xff\xfe"}',
    "utf-16": '{"description": "a"}'.encode("utf-16"),
    "deep": b'{"description":' * 50_000,
    "unknown field": b'{"description": "a: 1", "colour": 1}',
    "the same name twice": b'{"description": 1, "description": 2}',
    "long client token": json.dumps({"description": "a", "client_token": "x" * 1_000}).encode(),
    "surrogate client token": b'{"description": "a", "client_token": "\\udfff"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused(stage: Stage, name: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for kind in ("application/json", "application/vnd.x+json", "text/plain", ""):
                answer = await owner.post("/v1/jobs", content=BODIES[name], headers={"Content-Type": kind})
                assert answer.status_code == 422, (kind, answer.text)
                error_of(answer)

    stage.play(scene)


HUGE = 2**63
PATHS = [
    "/v1/jobs/-1",
    f"/v1/jobs/{HUGE}",
    f"/v1/jobs/{10**400}",
    "/v1/jobs/1e3",
    "/v1/jobs/%00",
    "/v1/jobs/\N{ARABIC-INDIC DIGIT ONE}",
    "/v1/jobs/1%2F..%2F..",
    f"/v1/jobs/{HUGE - 1}",
    f"/v1/jobs/{HUGE - 1}/explanation",
    f"/v1/jobs/{HUGE - 1}/wait",
    f"/v1/jobs/{HUGE - 1}/output",
    "/v1/jobs/1/output?part=-1",
    f"/v1/jobs/1/output?offset={HUGE}",
    f"/v1/jobs/1/output?offset={HUGE - 1}",
    "/v1/jobs/1/output?stream=../../etc/passwd",
    f"/v1/jobs/1/output?run={HUGE}",
    "/v1/jobs/1/output?limit=99999999999",
    "/v1/jobs/1/wait?timeout_s=inf",
    "/v1/jobs/1/wait?timeout_s=nan",
    "/v1/jobs/1/wait?timeout_s=-1",
    "/v1/jobs/1/wait?timeout_s=1e9",
    "/v1/jobs?cursor=",
    "/v1/jobs?cursor=AAAA",
    "/v1/jobs?cursor=%F0%9F%92%A9",
    "/v1/jobs?cursor=" + quote("' OR 1=1 --"),
    "/v1/jobs?cursor=" + "A" * 9_000,
    "/v1/jobs?owner=%00",
    "/v1/jobs?limit=-1",
    "/v1/jobs?limit=1001",
    "/v1/jobs?state=" + quote("'; drop table jobs"),
    "/v1/files?prefix=%00",
    "/v1/files?prefix=%ff",
    "/v1/files?cursor=zzz",
    "/v1/files/..%2F..%2Fetc%2Fpasswd",
    "/v1/files/%2Fetc%2Fpasswd",
    "/v1/files/%ff",
    "/v1/files/",
    "/v1/sites/..%2F..",
    "/v1/sites/west/history?from_at=nan&to_at=1",
    "/v1/sites/west/history?from_at=-1&to_at=1",
    "/v1/sites/west/history?from_at=0&to_at=1e300",
    "/v1/sites/%00/history?from_at=0&to_at=1",
    f"/v1/events?after={HUGE}",
    "/v1/events?after=-1",
    "/v1/events?job=0",
    f"/v1/events?job={HUGE}",
    "/v1/events/stream?after=x",
    "/v1/events/stream?job=-5",
    "/v1/..%2f..%2fetc/passwd",
    "/static/..%2f..%2frun.py",
    "/jobs/99999999999999999999999",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_hostile_address_is_refused(stage: Stage, path: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.get(path)
        assert 400 <= answer.status_code < 500, answer.text
        if path.startswith("/v1/"):
            error_of(answer)

    stage.play(scene)


def test_a_last_event_id_that_is_no_number_is_refused(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for value in ("x", "-1", str(HUGE), "1;2"):
                answer = await owner.get("/v1/events/stream", headers={"Last-Event-ID": value})
                assert answer.status_code == 422

    stage.play(scene)


@pytest.mark.parametrize("value", ["bytes=0-", "bytes=9999-1", "lines=1", "bytes=" + "0-0," * 2_000, "\xff"])
def test_a_range_is_ignored(stage: Stage, value: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.get("/healthz", headers={b"Range": value.encode("latin-1")})
        assert answer.status_code == 200

    stage.play(scene)


REGISTRATIONS: list[dict[str, object]] = [
    {"name": "a\nb", "site": "west", "path": "HERE"},
    {"name": "", "site": "west", "path": "HERE"},
    {"name": "f", "site": "north", "path": "HERE"},
    {"name": "f", "site": "../west", "path": "HERE"},
    {"name": "f", "site": "west"},
    {"name": "f", "site": "west", "path": "HERE", "url": "memory://x"},
    {"name": "f", "site": "west", "path": "relative"},
    {"name": "f", "site": "west", "path": "/no/such/file"},
    {"name": "f", "site": "west", "path": "/dev/zero"},
    {"name": "f", "site": "west", "path": "/dev"},
    {"name": "f", "site": "west", "path": "/no/\ud800"},
    {"name": "f", "site": "west", "url": "no-such-scheme://x/y"},
    {"name": "f", "site": "west", "url": "://"},
]


@pytest.mark.parametrize("wish", REGISTRATIONS, ids=str)
def test_a_hostile_registration_is_refused_and_leaves_no_file(
    stage: Stage, tmp_path: Path, wish: dict[str, object]
) -> None:
    here = tmp_path / "data"
    here.write_text("data")
    if wish.get("path") == "HERE":
        wish = {**wish, "path": str(here)}

    async def scene(world: World) -> None:
        body = json.dumps(wish).encode()
        async with world.owner() as owner:
            answer = await owner.post("/v1/files", content=body, headers={"Content-Type": "application/json"})
            assert 400 <= answer.status_code < 500, answer.text
            error_of(answer)
            assert (await owner.get("/v1/files")).json()["items"] == []

    stage.play(scene)


@pytest.mark.parametrize("name", ["../../outside", "/outside", "..", "a/../../outside", "%2e%2e/outside"])
def test_a_file_name_never_leads_out_of_the_sites_area(stage: Stage, tmp_path: Path, name: str) -> None:
    here = tmp_path / "data"
    here.write_text("climbing data")

    def outside(root: Path) -> set[Path]:
        return {path for path in root.parent.rglob("outside*") if (root / "sites") not in path.parents}

    async def scene(world: World) -> None:
        before = outside(world.root)  # those of other tests of this process
        async with world.owner() as owner:
            taken = await owner.post("/v1/files", json={"name": name, "site": "west", "path": str(here)})
            assert taken.status_code == 201 or 400 <= taken.status_code < 500, taken.text
            if taken.status_code == 201:
                forgotten = await owner.post("/v1/forgettings", json={"name": name})
                assert forgotten.status_code == 200
            assert (await owner.get("/v1/files")).json()["items"] == []
        assert outside(world.root) == before

    stage.play(scene)


@pytest.mark.parametrize("user", ["", "a b", "../x", "a\n", "x" * 65, "-a", "é"])
def test_a_token_for_a_name_that_is_none_is_refused(stage: Stage, user: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.post("/v1/tokens", json={"user": user, "scopes": ["read"]})
        assert answer.status_code == 422
        error_of(answer)

    stage.play(scene)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer  "},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer " + "A" * 20_000},
        {"Authorization": b"Bearer koala_\xff\xfe"},
        {"Cookie": "koala_session=" + "A" * 3_000},
        {"Cookie": "koala_session"},
        {"Cookie": 'koala_session="\\\xff'.encode("latin-1")},
        {"Cookie": "a=b; " * 2_000},
    ],
)
def test_hostile_credentials_are_nobodys(stage: Stage, headers: dict[str, str]) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger:
            answer = await stranger.get("/v1/jobs", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        error_of(answer)

    stage.play(scene)


def test_the_daemon_works_on_after_all_of_it(stage: Stage) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for path in PATHS:
                await owner.get(path)
            for body in BODIES.values():
                await owner.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
            assert (await owner.get("/readyz")).json()["status"] == "ok"
            assert (await owner.get("/v1/grid")).status_code == 200

    stage.play(scene)
