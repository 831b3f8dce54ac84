"""A driver of a Slurm site that may be killed at any point: each time it runs it wants the same of its components.

Usage: batch_survivor.py WORK LOG COMPONENTS GATE SLURM_CONF. The first component lasts until the file GATE exists.
Components with an odd number are aborted as soon as they are accepted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from koala.model.grid import BatchSettings
from koala.model.launch import Go, Launch
from koala.model.messages import AnyEvent, ComponentEnded, ComponentReady
from koala.model.request import Application
from koala.runners import component_script
from koala.sites.batch.site import BatchSite
from koala.sites.batch.slurm.system import SlurmSystem


async def drive(work: str, log: Path, components: int, gate: str, conf: str) -> None:
    events: asyncio.Queue[AnyEvent] = asyncio.Queue()
    settings = BatchSettings(work_directory=work, environment=(("SLURM_CONF", conf),))
    site = BatchSite(
        "survivor", settings, SlurmSystem(settings), 8, owner="survivor", emit=events.put_nowait, clock=time.time
    )
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    await site.open()
    tokens = [f"7.{number}" for number in range(components)]
    for number, token in enumerate(tokens):
        lasts = "sleep 0.1" if number else f"until [ -e '{gate}' ]; do sleep 0.3; done"
        text = f"echo {token} begin >> '{log}'; {lasts}; echo {token} end >> '{log}'"
        launch = Launch(token=token, job=7, processors=1 + number % 3, application=Application(script=text))
        await site.start(launch, component_script(launch))
        if number % 2:
            await site.abort(token)
    await site.ask(tokens)
    ended: set[str] = set()
    while len(ended) < components:
        event = await events.get()
        if isinstance(event, ComponentReady):
            await site.release(event.token, Go())
        elif isinstance(event, ComponentEnded) and event.token not in ended:
            ended.add(event.token)
            sys.stdout.write(f"{event.token} {event.outcome}\n")
    await site.close()


if __name__ == "__main__":
    asyncio.run(drive(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]))
