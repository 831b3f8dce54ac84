"""A store that cannot be read: every question is answered with ``unavailable``, and works again afterwards."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import exc

from tests.support.api_world import QUICK_JOB, World, error_of, in_world

ASKED = (
    "/v1/jobs",
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/explanation",
    "/v1/jobs/{job}/output",
    "/v1/jobs/{job}/wait?timeout_s=0",
    "/v1/grid",
    "/v1/sites/west/history?from_at=0&to_at=100",
    "/v1/files",
    "/v1/files/none",
    "/v1/events",
    "/v1/events/stream?after=0",
    "/v1/tokens",
    "/metrics",
)


def test_a_question_that_the_store_cannot_answer_is_unavailable_and_not_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        async with world.owner() as owner:
            job = (await owner.post("/v1/jobs", json={"description": QUICK_JOB})).json()["job"]["id"]
            ended = (await owner.get(f"/v1/jobs/{job}/wait?timeout_s=60")).json()
            assert ended["state"] == "done"

            def lost() -> AbstractContextManager[Any]:
                raise exc.OperationalError("SELECT", None, OSError("disk I/O error"))

            with monkeypatch.context() as broken:
                broken.setattr(world.store._database.engine, "connect", lost)
                for path in ASKED:
                    answer = await owner.get(path.format(job=job))
                    assert answer.status_code == 503, (path, answer.text)
                    assert error_of(answer)["code"] == "unavailable"
                    assert answer.headers["retry-after"] == "1"
                page = await owner.get(f"/jobs/{job}", headers={"Accept": "text/html"})
                assert page.status_code == 503
                assert "Not now" in page.text
                assert (await owner.get("/healthz")).status_code == 200
            for path in ASKED:
                if "stream" not in path and "none" not in path:
                    assert (await owner.get(path.format(job=job))).status_code == 200, path

    in_world(tmp_path, scene)
