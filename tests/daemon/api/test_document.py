"""The OpenAPI document is complete, and the real app keeps what it says, whatever is sent.

Every site is drained and the token has no right to register files, so that nothing that is taken runs and no path or
URL that is made up is ever opened; what the owner could do to that is left out. ``KOALA_API_EXAMPLES`` sets how many
requests are made up for each operation over TCP, ``KOALA_API_OWNER_EXAMPLES`` how many over the unix socket, where
every caller is the owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.daemon.api import RequestTraffic, make_app
from koala.daemon.http_server.admission import Admission
from koala.daemon.http_server.server import AcceptorServer
from koala.daemon.service.service import Service
from koala.daemon.service.sites.grid import GridService
from koala.daemon.service.tokens import AccessTokens
from koala.model.api import Scope
from tests.support.api_world import OWNER, Stage, World

EXAMPLES = int(os.environ.get("KOALA_API_EXAMPLES", "2"))
OWNER_EXAMPLES = int(os.environ.get("KOALA_API_OWNER_EXAMPLES", "1"))


@pytest.fixture(scope="module")
def document() -> Any:
    """It depends on the routes alone, so that no daemon is needed to say what is to be tested."""
    service, tokens = Service.__new__(Service), AccessTokens.__new__(AccessTokens)
    service.grid = GridService.__new__(GridService)
    return make_app(service, tokens, trusted=False, owner=OWNER).openapi()


def operations(document: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]


def test_every_operation_has_an_id_a_summary_and_a_description(document: Any) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for path, operation in operations(document):
        assert operation["summary"], path
        assert operation["description"], path
        assert operation["tags"], path


def test_every_operation_declares_its_errors_in_the_one_form(document: Any) -> None:
    for path, operation in operations(document):
        for status in ("401", "403", "404", "413", "422", "429", "503"):
            answer = operation["responses"][status]["content"]["application/json"]["schema"]
            name = answer["$ref"].rpartition("/")[2]
            assert name == ("Health" if (path, status) == ("/readyz", "503") else "ErrorAnswer"), (path, status)


def test_every_success_and_every_body_has_a_schema_and_bodies_have_examples(document: Any) -> None:
    for path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status in ("200", "201"):
                (content,) = answer["content"].values()
                assert content["schema"], path
        if "application/octet-stream" in operation.get("requestBody", {}).get("content", {}):
            continue  # bytes of a file: any will do
        if "requestBody" in operation:
            body = operation["requestBody"]["content"]["application/json"]
            assert body["schema"], path
            assert body["examples"], path


def test_what_needs_a_token_says_so(document: Any) -> None:
    open_to_all = {path for path, operation in operations(document) if not operation.get("security")}
    assert open_to_all == {"/healthz", "/readyz"}


def test_nothing_is_loaded_from_elsewhere(document: Any) -> None:
    assert not any(path.startswith(("/docs", "/redoc")) for path in document["paths"])


def loosened(clock_rate: float = 10_000.0) -> RequestTraffic:
    """A traffic whose time runs fast, so that rates, which have tests of their own, hide nothing here."""
    return RequestTraffic(lambda: time.monotonic() * clock_rate)


async def serve_at_loopback(world: World) -> tuple[AcceptorServer, asyncio.Task[None], tuple[str, str]]:
    """A real server for the open listener, its URL, and a token that reads and submits."""
    async with world.owner() as owner:
        for site in ("west", "east"):
            assert (await owner.post(f"/v1/sites/{site}/drain")).json()["drained"]
    secret = await world.secret("fuzz", Scope.READ, Scope.SUBMIT)
    app = make_app(
        world.service, world.tokens, trusted=False, owner=OWNER, traffic=loosened(), hosts=frozenset({"127.0.0.1"})
    )
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    server, serving = await begun(app, bound)
    return server, serving, (f"http://127.0.0.1:{bound.getsockname()[1]}", secret)


async def begun(app: Any, bound: socket.socket) -> tuple[AcceptorServer, asyncio.Task[None]]:
    """A real server that answers there."""
    server = AcceptorServer(app, bound, Admission())
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
    return server, serving


async def serve_at_socket(world: World, path: Path) -> tuple[AcceptorServer, asyncio.Task[None], tuple[str, str]]:
    """A real server for the owner's socket, and the URL of a port from which every byte goes there."""
    app = make_app(world.service, world.tokens, trusted=True, owner=OWNER, traffic=loosened())
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    server, serving = await begun(app, bound)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))

    port = await asyncio.start_server(relay, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{port.sockets[0].getsockname()[1]}"

    async def relaying() -> None:
        try:
            await serving
        finally:
            port.close()
            await port.wait_closed()

    return server, asyncio.create_task(relaying()), (url, "")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, str]]]:
    """By listener where the API answers, and a token for it."""
    with Stage(tmp_path_factory.mktemp("fuzzed")) as stage, tempfile.TemporaryDirectory() as short:
        found: dict[str, Any] = {}

        async def begin(world: World) -> None:
            found["tcp"] = await serve_at_loopback(world)
            found["unix"] = await serve_at_socket(world, Path(short) / "s")

        async def end(_: World) -> None:
            for server, serving, _served in found.values():
                server.should_exit = True
                async with asyncio.timeout(60):
                    await serving

        stage.play(begin)
        yield {name: each for name, (_, _, each) in found.items()}
        stage.play(end)


# With these the owner would have something run or opened that was made up.
OWNER_ALONE = "/(resume|files|replications)$"
# Beside all that reads, what the token's bearer may do as the owner may. Odd values for it are sent with the token.
AS_THE_OWNER = (
    r"^/v1/((graph-)?dry-runs|graphs|missing-contents|contents/.*"
    r"|jobs(/\{job\}/(cancel|hold|release|requeue|spawn))?)$"
)


@pytest.mark.parametrize(("listener", "examples"), [("tcp", EXAMPLES), ("unix", OWNER_EXAMPLES)])
def test_the_app_keeps_what_the_document_says(
    document: Any, served: dict[str, tuple[str, str]], subtests: pytest.Subtests, listener: str, examples: int
) -> None:
    """One test for all operations: their requests take seconds to make up, and every process collects the tests."""
    from tests.support.made_up_requests import Served, every_operation

    tried = set()
    of_owner = {"without_posts": OWNER_ALONE, "asked_again": AS_THE_OWNER} if listener == "unix" else {}
    for operation in every_operation(document, Served(*served[listener]), examples, **of_owner):
        with subtests.test(operation.label):
            operation.is_answered()
        tried.add((operation.path, operation.method))
    assert tried == {
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if not path.endswith(("/stream", "/wait"))
        and not (listener == "unix" and method == "post" and re.search(OWNER_ALONE, path))
    }
