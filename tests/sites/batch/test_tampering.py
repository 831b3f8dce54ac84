"""Whatever an application does to its own directory, another component of the site runs to its end, the site stays
in touch, and no fault of the site comes of it. What is done is drawn; ``KOALA_TAMPERINGS=700`` draws as many."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from koala.model.errors import Fault
from koala.model.launch import Go
from koala.model.messages import ComponentEnded, Outcome, SiteSilent
from tests.support.paper_batch import PaperSite

TAMPERINGS = int(os.environ.get("KOALA_TAMPERINGS", "25"))

_RECORDS = (
    "record.json",
    "ended.json",
    "abort",
    "released",
    "go",
    "ready",
    "batch",
    "reservation",
    "exit",
    "usage",
    "pid",
)
_OTHERS = (
    "nodes",
    "addresses",
    "last-line",
    "script",
    "site",
    "inbox",
    "outbox",
    "outbox/proxies",
    "outbox/a b",
    ".",
)
_WORDS = (
    b"",
    b"\xff" * 50,
    b"9" * 40,
    b"1e300",
    b"killed",
    b"exited 3",
    b"no-nodes",
    b"a b c\n" * 20_000,
    b"'; exit 1; '",
    b"$(exit 3)",
    b"j.koala-1.2",
    b'{"x": ' + b"[" * 60_000,
    b"x" * 300_000,
)


def _forged(rng: random.Random) -> bytes:
    fault = rng.choice((None, "site", "job", "ours"))
    how = {"outcome": rng.choice(("done", "failed", "site_failed", "refused", "absent")), "fault": fault}
    end = {
        "type": "ComponentEnded",
        "at": 1.0,
        "token": rng.choice(("1.1", "1.2")),
        "exit_code": rng.choice((0, -5)),
        **how,
    }
    record = {
        "sequence": 10**25,
        "launch": {"token": "1.1", "job": 1, "processors": 10**9, "application": {"script": "x"}},
    }
    return msgspec.json.encode(rng.choice((how, end, record)))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _tamper(rng: random.Random, home: Path) -> None:
    """Put something else in the place of a few files."""
    data = rng.choice((*_WORDS, _forged(rng), _forged(rng), _forged(rng)))
    ways: dict[str, Callable[[Path], object]] = {
        "write": lambda path: path.write_bytes(data),
        "remove": lambda _: None,
        "directory": lambda path: (path / "x").mkdir(parents=True),
        "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to(
            rng.choice(("/dev/zero", "../1.2/record.json", "nowhere", path.name, "/"))
        ),
        "holes": _sparse,
    }
    for _ in range(rng.randint(1, 3)):
        how, name = rng.choice((*ways, "write", "write")), rng.choice((*_RECORDS, *_OTHERS))
        path = home if name == "." else home / name
        if path.parent.is_dir():
            _remove(path)
            ways[how](path)


@pytest.mark.parametrize("seed", range(TAMPERINGS))
def test_what_an_application_does_to_its_directory_costs_no_other_its_site(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        ends: list[ComponentEnded] = []
        async with PaperSite(tmp_path) as one:
            for token in ("1.1", "1.2"):
                await one.begin(token)
                await one.site.release(token, Go())
            _tamper(rng, one.home("1.1"))
            match rng.choice(("ask", "abort", "release", "nothing")):
                case "ask":
                    await one.site.ask(["1.1"])
                case "abort":
                    await one.site.abort("1.1")
                case "release":
                    await one.site.release("1.1", Go())
            await one.site.probe()
            assert not [event for event in one.events if isinstance(event, SiteSilent)]
            ends += [event for event in one.events if isinstance(event, ComponentEnded)]
        async with one.again() as other:
            await other.site.ask(["1.1", "1.2"])
            await other.site.probe()
            other.play_end("1.2")
            assert (await other.ended("1.2")).outcome is Outcome.DONE
            if not ends:
                await other.site.abort("1.1")
                await other.ended("1.1")
            assert not [event for event in other.events if isinstance(event, SiteSilent)]
            ends += [event for event in other.events if isinstance(event, ComponentEnded)]
            assert {end.outcome for end in ends if end.token == "1.2"} == {Outcome.DONE}  # noqa: S105 - a component's
            assert Fault.SITE not in {end.fault for end in ends}
            await other.site.forget("1.1")
            assert not other.home("1.1").exists()

    asyncio.run(asyncio.wait_for(scenario(), 240))
