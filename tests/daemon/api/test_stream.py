"""The stream of events: nothing is left out, and it ends when it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from koala.daemon.api import RequestTraffic
from koala.daemon.api.journal import HEARTBEAT
from koala.model.api import Scope
from tests.support.api_world import WAITING_JOB, World, in_world

WAIT_S = 120.0


class Reader:
    """A reader of a stream, as a server sees it."""

    def __init__(self, app: FastAPI, query: str, headers: dict[str, str]) -> None:
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/v1/events/stream",
            "raw_path": b"/v1/events/stream",
            "query_string": query.encode(),
            "headers": [(b"host", b"koala.test")]
            + [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": None,
            "server": None,
            "scheme": "http",
            "root_path": "",
        }
        self._asked = False
        self._gone = asyncio.Event()
        self._arrived = asyncio.Condition()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.is_over = False

    async def run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    def leave(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        async with self._arrived:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self.text += message["body"].decode()
                self.is_over = not message.get("more_body", False)
            self._arrived.notify_all()

    async def until(self, seen: Callable[[], bool]) -> None:
        """Wait until something was seen."""
        async with asyncio.timeout(WAIT_S), self._arrived:
            await self._arrived.wait_for(seen)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The entries so far; the id of each event is the number of its entry."""
        found = []
        for block in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
            if "data" in fields:
                entry = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(entry["seq"]), "journal")
                found.append(entry)
        return found


@asynccontextmanager
async def reading(
    world: World, query: str = "", headers: dict[str, str] | None = None, app: FastAPI | None = None
) -> AsyncIterator[tuple[Reader, asyncio.Task[None]]]:
    """A stream that has begun."""
    reader = Reader(world.trusted if app is None else app, query, headers or {})
    task = asyncio.create_task(reader.run())
    try:
        await reader.until(lambda: "retry:" in reader.text or reader.is_over)
        yield reader, task
    finally:
        reader.leave()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(task, return_exceptions=True)


async def submit(world: World, count: int = 1) -> int:
    """Submit jobs that wait, and the last one's number."""
    async with world.owner() as owner:
        answers = [await owner.post("/v1/jobs", json={"description": WAITING_JOB}) for _ in range(count)]
    return int(answers[-1].json()["job"]["id"])


def submitted(reader: Reader) -> list[int]:
    return [entry["job"] for entry in reader.events if entry["what"] == "JobSubmitted"]


def test_a_stream_brings_what_is_new_with_its_number(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        before = await submit(world)
        async with reading(world) as (reader, _):
            assert reader.status == 200
            assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reader.headers["cache-control"] == "no-store"
            assert "content-length" not in reader.headers
            new = await submit(world)
            await reader.until(lambda: new in submitted(reader))
            assert before not in submitted(reader)

    in_world(tmp_path, scene)


@pytest.mark.parametrize("by", ["query", "header"])
def test_a_stream_resumes_without_a_gap_and_without_a_repeat(tmp_path: Path, by: str) -> None:
    async def scene(world: World) -> None:
        first = await submit(world)
        async with reading(world, "after=0") as (reader, _):
            await reader.until(lambda: first in submitted(reader))
        last_seen = reader.events[-1]["seq"]
        last = await submit(world, 5)
        query, headers = (
            (f"after={last_seen}", {}) if by == "query" else ("after=0", {"Last-Event-ID": str(last_seen)})
        )
        async with reading(world, query, headers) as (again, _):
            await again.until(lambda: last in submitted(again))
        assert submitted(again) == list(range(first + 1, last + 1))
        numbers = [entry["seq"] for entry in reader.events + again.events]
        assert numbers == sorted(set(numbers))
        assert [entry.seq for entry in await world.service.journal(owner_of(world), limit=1_000)][: len(numbers)] == (
            numbers
        )

    in_world(tmp_path, scene)


def owner_of(world: World) -> Any:
    return world.trusted.state.listener.owner


def test_a_stream_of_one_job_has_nothing_of_others(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        first = await submit(world)
        second = await submit(world)
        async with reading(world, f"after=0&job={second}") as (reader, _):
            await reader.until(lambda: second in submitted(reader))
            assert first not in {entry["job"] for entry in reader.events}

    in_world(tmp_path, scene)


def test_a_quiet_stream_says_that_it_is_still_there(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with reading(world) as (reader, _):
            await reader.until(lambda: reader.text.count(HEARTBEAT.decode()) >= 2)

    in_world(tmp_path, scene, traffic=RequestTraffic(heartbeat_s=0.02))


def test_streams_end_when_the_daemon_stops_and_no_new_ones_begin(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with reading(world) as (reader, task), reading(world) as (other, _):
            world.traffic.stop()
            await reader.until(lambda: reader.is_over)
            await other.until(lambda: other.is_over)
            await task
        async with world.owner() as owner:
            assert (await owner.get("/v1/events/stream")).status_code == 503
        assert world.traffic.streams_open == 0

    in_world(tmp_path, scene)


def test_a_wait_ends_when_the_daemon_stops(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await submit(world)
        async with world.owner() as owner:
            waiting = asyncio.create_task(owner.get(f"/v1/jobs/{job}/wait?timeout_s=60"))
            await asyncio.sleep(0.2)
            world.traffic.stop()
            assert (await waiting).status_code == 503

    in_world(tmp_path, scene)


def test_a_reader_that_leaves_gives_up_its_place(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with reading(world) as (reader, task):
            assert world.traffic.streams_open == 1
            reader.leave()
            async with asyncio.timeout(WAIT_S):
                await task
            assert world.traffic.streams_open == 0

    in_world(tmp_path, scene)


def test_a_revoked_reader_gets_not_one_entry_more(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        secret = await world.secret("ops", Scope.READ, Scope.OPERATE)
        credential = world.tokens.by_secret(secret)
        assert credential is not None
        assert credential.token is not None
        bearer = {"Authorization": f"Bearer {secret}"}
        async with reading(world, headers=bearer, app=world.open) as (reader, _):
            first = await submit(world)
            await reader.until(lambda: first in submitted(reader))
            await world.tokens.revoke(credential.token)
            second = await submit(world)
            await reader.until(lambda: reader.is_over)
            assert second not in submitted(reader)

    in_world(tmp_path, scene)


def test_a_reader_that_takes_nothing_is_disconnected(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        stuck = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await stuck.wait()

        reader = Reader(world.trusted, "", {})
        reader._send = send  # type: ignore[method-assign]
        async with asyncio.timeout(WAIT_S):
            await reader.run()
        assert world.traffic.streams_open == 0

    in_world(tmp_path, scene, traffic=RequestTraffic(stream_send_s_max=0.05))
