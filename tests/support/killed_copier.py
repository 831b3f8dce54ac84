"""A process that transfers one file and may be killed at any point, or has no room for it.

Usage: killed_copier.py ROOT FILE RATE [LIMIT]. Writes the bytes that are there, a line each, then the answer's
``copied_bytes``; with LIMIT no file that it writes may grow beyond that size.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from koala.files import FilesError
from tests.support.file_world import World


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def transfer(root: Path, file: str, rate: float) -> None:
    world = World(root)
    async with world.mover() as mover:
        try:
            result = await mover.transfer(world.order(file, rate_bytes_s=rate), say)
        except FilesError as error:
            say(f"{type(error).__name__}: {error.for_user()}")
            say(f"left: {world.left_at()}")
            return
    say(f"copied {result.copied_bytes} {result.path}")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
    asyncio.run(transfer(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
