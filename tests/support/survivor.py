"""A driver that may be killed at any point: it starts, releases and awaits the same components each time it runs.

Usage: survivor.py ROOT LOG COMPONENTS GATE. The first component lasts until the file GATE is there. Those with an odd
number are aborted before they are released.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from koala.model.launch import Go, Launch
from koala.model.messages import AnyEvent, ComponentEnded, ComponentReady, ComponentRunning
from koala.model.request import Application
from koala.runners import component_script
from koala.sites.local.site import LocalSite

SLOTS = 4


async def drive(root: Path, log: Path, components: int, gate: str) -> None:
    events: asyncio.Queue[AnyEvent] = asyncio.Queue()
    site = LocalSite("survivor", root, SLOTS, emit=events.put_nowait, clock=time.time)
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    await site.open()
    tokens = [f"7.{number}" for number in range(components)]
    for number, token in enumerate(tokens):
        size = 1 + number % 3
        lasts = "sleep 0.1" if number else f"until [ -e '{gate}' ]; do sleep 0.3; done"
        text = f"echo {token} begin {size} >> '{log}'; {lasts}; echo {token} end {size} >> '{log}'"
        launch = Launch(token=token, job=7, processors=size, application=Application(script=text))
        await site.start(launch, component_script(launch))
        if number % 2:
            await site.abort(token)
    await site.ask(tokens)
    ended: set[str] = set()
    while len(ended) < components:
        event = await events.get()
        if isinstance(event, ComponentReady):
            await site.release(event.token, Go())
        elif isinstance(event, ComponentEnded):
            ended.add(event.token)
            sys.stdout.write(f"{event.token} {event.outcome}\n")
        else:
            assert not isinstance(event, ComponentRunning) or event.token in tokens
    await site.close()


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
