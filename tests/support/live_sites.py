"""Real embedded sites for tests: what they emit is kept, waits are bounded, and no process may be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from koala.model.launch import Launch
from koala.model.messages import Token
from koala.model.request import Application
from koala.sites.local.site import LocalSite
from tests.support.watched_sites import FIRST, WAIT_S, WatchedSite


def launch(token: Token = FIRST, application: Application | str = "exit 0", **fields: Any) -> Launch:
    """Return a launch of one processor; a text stands for a script."""
    if isinstance(application, str):
        application = Application(script=application)
    return Launch(**{"token": token, "job": 1, "processors": 1, "application": application, **fields})


class Watcher(WatchedSite[LocalSite]):
    """An open site, with everything that it has reported."""

    def __init__(self, root: Path, processors: int, **options: Any) -> None:
        super().__init__()
        self.site = LocalSite(
            root.name,
            root,
            processors,
            **{"emit": self.take, "clock": time.time, "on_mail": self.take_mail, "grace_s": 1.0, **options},
        )


@contextlib.asynccontextmanager
async def opened(root: Path, processors: int = 4, **options: Any) -> AsyncIterator[Watcher]:
    """Open a site below ``root`` for the block."""
    watcher = Watcher(root, processors, **options)
    await watcher.site.open()
    try:
        yield watcher
    finally:
        await watcher.site.close()


async def file_appears(path: Path) -> None:
    """Wait until an application has made a file."""
    async with asyncio.timeout(WAIT_S):
        while not path.exists():
            await asyncio.sleep(0.02)


def processes_of(directory: Path) -> list[int]:
    """Return every living process that was started for a component below this directory."""
    mark = os.fsencode(f"\0KOALA_HOME={directory.resolve()}/")
    return [
        int(pid)
        for pid in os.listdir("/proc")  # noqa: PTH208  # after every test, so it is to be quick
        if pid.isdigit() and int(pid) != os.getpid() and mark in b"\0" + environment_of(pid)
    ]


def environment_of(pid: str) -> bytes:
    """Return the variables of a process at its start; none if it has ended or they cannot be read."""
    found = b""
    with contextlib.suppress(OSError):
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
        try:
            while piece := os.read(file, 65_536):
                found += piece
        finally:
            os.close(file)
    return found


def all_gone(directory: Path) -> bool:
    """Return True if every process started below this directory ends within a moment."""
    deadline = time.monotonic() + 120.0
    pause_s = 0.02
    while processes_of(directory):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(2.0 * pause_s, 0.5)  # each look is one at all processes of the machine
    return True


def left_no_process(directory: Path) -> None:
    """Fail if processes started below this directory run on after a test, and end them."""
    if all_gone(directory):
        return
    for pid in processes_of(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pytest.fail("the test left processes behind")
