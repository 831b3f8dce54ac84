"""A process that transfers one file and may be killed at any point, or has no space for it.

Usage: killed_copier.py ROOT FILE RATE [--stop=BYTES | LIMIT]. Writes the number of bytes so far, a line each, then
the answer's ``copied_bytes``. With LIMIT no file that it writes may grow beyond that size. With --stop it stands
still at that many bytes.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from pathlib import Path

from koala.files import FilesError
from tests.support.file_world import World


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def transfer(root: Path, file: str, rate: float, stop: float) -> None:
    def tell(done: int) -> None:
        say(done)
        if done >= stop:
            signal.pause()

    world = World(root)
    async with world.mover() as mover:
        try:
            result = await mover.transfer(world.order(file, rate_bytes_s=rate), tell)
        except FilesError as error:
            say(f"{type(error).__name__}: {error.for_user()}")
            say(f"left: {world.left_at()}")
            return
    say(f"copied {result.copied_bytes} {result.path}")


if __name__ == "__main__":
    stop = float("inf")
    for word in sys.argv[4:]:
        if word.startswith("--stop="):
            stop = float(word.removeprefix("--stop="))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(word), resource.RLIM_INFINITY))
    asyncio.run(transfer(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), stop))
