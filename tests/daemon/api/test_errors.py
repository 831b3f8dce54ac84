"""Every error has the one form, and tells nothing of the daemon's inside."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from koala import __version__
from koala.daemon.service.service import Service
from koala.daemon.service.sites.grid import GridService
from tests.support.api_world import WAITING_JOB, Stage, World, error_of, in_world


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("errors")) as shared:
        yield shared


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("BREW", "/v1/jobs", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("GET", "/v1/jobs/999", 404, "not_found"),
        ("GET", "/v1/jobs/one", 422, "invalid"),
        ("GET", "/v1/jobs/0", 422, "invalid"),
        ("GET", "/v1/jobs?limit=0", 422, "invalid"),
        ("GET", "/v1/jobs?state=asleep", 422, "invalid"),
        ("GET", "/v1/jobs?cursor=nonsense", 422, "invalid"),
        ("GET", "/v1/sites/north", 404, "not_found"),
        ("GET", "/v1/sites/west/history", 422, "invalid"),
        ("GET", "/v1/sites/west/history?from_at=2&to_at=1", 422, "invalid"),
        ("GET", "/v1/files/none/such", 404, "not_found"),
        ("POST", "/v1/jobs", 422, "invalid"),
        ("DELETE", "/v1/tokens/none", 404, "not_found"),
    ],
)
def test_an_error_has_the_one_form(stage: Stage, method: str, path: str, status: int, code: str) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.request(method, path)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code)

    stage.play(scene)


def test_a_method_that_is_not_for_an_address_is_told_which_are(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answers = [await owner.put("/healthz"), await owner.put("/v1/jobs"), await owner.put("/v1/tokens/x")]
        assert [answer.headers["allow"] for answer in answers] == ["GET", "GET, POST", "DELETE"]

    in_world(tmp_path, scene)


def test_every_problem_of_a_request_is_named_without_repeating_what_was_sent(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.post("/v1/jobs", json={"source": 7, "secret": "hush"})
        error = error_of(answer)
        told = " ".join(problem["message"] for problem in error["problems"])
        assert "body.description" in told
        assert "body.source" in told
        assert "body.secret" in told
        assert "hush" not in answer.text

    in_world(tmp_path, scene)


def test_the_problems_of_a_description_come_with_their_lines(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            answer = await owner.post(
                "/v1/jobs", json={"description": "name: x\ncomponents:\n  - {processors: -1}\n"}
            )
        assert answer.status_code == 422
        assert [problem["line"] for problem in error_of(answer)["problems"]] == [3]

    in_world(tmp_path, scene)


def test_an_unexpected_failure_gives_a_reference_and_keeps_its_reason_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("/secret/inside")

    async def scene(world: World) -> None:
        monkeypatch.setattr(GridService, "sites", broken)
        async with world.owner() as owner:
            answer = await owner.get("/v1/sites")
        assert answer.status_code == 500
        error = error_of(answer)
        assert error["code"] == "internal"
        assert "secret" not in answer.text
        record = next(record for record in caplog.records if record.message == "internal error")
        assert record.__dict__["reference"] in error["message"]
        assert record.exc_info is not None
        assert "/secret/inside" in str(record.exc_info[1])

    with caplog.at_level(logging.ERROR):
        in_world(tmp_path, scene)


def test_a_store_that_is_gone_is_unavailable_and_says_when_to_come_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.store.close()
        async with world.owner() as owner:
            answers = [
                await owner.get("/v1/jobs"),
                await owner.post("/v1/tokens", json={"user": "bob", "scopes": ["read"]}),
                await owner.get("/v1/tokens"),
                await owner.post("/v1/jobs", json={"description": WAITING_JOB}),
            ]
        for answer in answers:
            assert answer.status_code == 503
            assert error_of(answer)["code"] == "unavailable"
            assert answer.headers["retry-after"] == "1"

    in_world(tmp_path, scene)


def test_every_answer_carries_the_version_and_is_not_kept(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            for path in ("/healthz", "/v1/jobs", "/v1/nothing", "/v1/jobs?limit=x"):
                answer = await owner.get(path)
                assert answer.headers["koala-version"] == __version__
                assert answer.headers["cache-control"] == "no-store"
                assert answer.headers["x-content-type-options"] == "nosniff"

    in_world(tmp_path, scene)


def test_readiness_tells_strangers_that_it_fails_and_callers_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        async with world.caller() as stranger, world.owner() as owner:
            assert (await stranger.get("/readyz")).json()["status"] == "ok"
            monkeypatch.setattr(Service, "failure", property(lambda _: "the disk of /home/ada is full"))
            told: list[httpx.Response] = [await stranger.get("/readyz"), await owner.get("/readyz")]
            assert (await stranger.get("/healthz")).status_code == 200
        assert [answer.status_code for answer in told] == [503, 503]
        assert "/home/ada" not in told[0].text
        assert told[1].json()["reason"] == "the disk of /home/ada is full"

    in_world(tmp_path, scene)
