"""A daemon without sockets that may be killed at any point. Requests come as lines of JSON, and each is acknowledged
once it is on record. So are ``release ID`` for a held job and ``requeue ID`` for a running one; ``stop`` closes it.

Usage: engine_child.py ROOT DATABASE. Prints ``open``, then ``CLIENT_TOKEN ID NEW`` for each request, ``released ID``
and ``requeued ID``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from koala import files
from koala.daemon.engine.loop import Engine
from koala.daemon.service.data.files import FileService
from koala.daemon.service.principal import Principal
from koala.daemon.service.submissions import ended_before
from koala.files.checksums import of_path
from koala.model.api import Scope
from koala.model.errors import UnavailableError
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site, SiteKind
from koala.model.messages import AnyEvent, RestartAsked, UnholdAsked
from koala.model.request import Request
from koala.policies import Catalogue
from koala.store import Store

OWNER = "anna"
PRINCIPAL = Principal(name=OWNER, scopes=frozenset(Scope))
DATA = bytes(range(256)) * 400
FILE_SITES = {"everywhere": "abc", "at-a": "a", "at-b": "b"}


class Wish(msgspec.Struct):
    """A job to submit."""

    client_token: str
    request: Request


def grid() -> Grid:
    """Return three sites, with links slow enough for a transfer to be killed."""
    return Grid(
        sites=tuple(Site(name=name, processors=4, kind=SiteKind.LOCAL) for name in "abc"),
        links=Links(default=Link(bandwidth_mbit_s=1.0, latency_s=0.01)),
        scheduler=SchedulerParameters(
            scan_interval_s=0.0, check_interval_s=2.0, answer_timeout_s=5.0, error_threshold=1_000, cooldown_s=1.0
        ),
    )


async def register_files(engine: Engine) -> None:
    """Register each file at its sites, except what a killed child has registered already."""
    for name, sites in FILE_SITES.items():
        for site in sites:
            entry = engine.entries.get(name)
            if entry is not None and entry.replica_at(site) is not None:
                continue
            area = engine.areas[site]
            assert isinstance(area, files.LocalArea)
            incoming = area.directory.root / "incoming"
            incoming.write_bytes(DATA)
            path = area.directory.adopt(name, incoming)
            replica = files.Replica(site=site, size_bytes=len(DATA), checksum=of_path(path))
            if entry is None:
                changed, event = files.register(name, replica, at=0.0)
            else:
                changed, event = files.replicate(entry, replica, at=0.0)
            await engine.tell(event, files=[changed])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve(root: Path, database: str) -> None:
    store = Store.open(database)
    engine = Engine(grid(), Catalogue.builtin(), store, root)
    await engine.open()
    await register_files(engine)
    areas = FileService(engine)
    await areas.open()
    say("open")
    answering: set[asyncio.Task[None]] = set()

    async def answer(wish: Wish) -> None:
        try:
            ended = await ended_before(PRINCIPAL, wish.request, engine)
            row, new = await engine.submit(wish.request, owner=OWNER, client_token=wish.client_token, ended=ended)
        except UnavailableError as error:
            say(f"{wish.client_token} failed {error.message}")
        else:
            say(f"{wish.client_token} {row.id} {new}")

    async def tell(event: AnyEvent, number: int, told: str) -> None:
        try:
            await engine.tell(event)
        except UnavailableError as error:
            say(f"{number} failed {error.message}")
        else:
            say(f"{told} {number}")

    while (line := await asyncio.to_thread(sys.stdin.readline)) not in ("", "stop\n"):
        word, _, number = line.partition(" ")
        if word == "release":
            task = asyncio.create_task(tell(UnholdAsked(at=0.0, job=int(number)), int(number), "released"))
        elif word == "requeue":
            task = asyncio.create_task(tell(RestartAsked(at=0.0, job=int(number)), int(number), "requeued"))
        else:
            task = asyncio.create_task(answer(msgspec.json.decode(line, type=Wish)))
        answering.add(task)
        task.add_done_callback(answering.discard)
    await areas.close()
    await engine.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
