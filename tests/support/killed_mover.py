"""A process that transfers one file over ssh and is killed meanwhile, as a daemon may be.

Usage: killed_mover.py ROOT SSHD_DIRECTORY PORT SOURCE TARGET RATE. Prints the number of bytes so far, a line each.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.file_servers import FileGrid, SshServer
from tests.support.rsync_sites import add_sites


async def transfer(root: Path, server: SshServer, source: str, target: str, rate: float) -> None:
    grid = FileGrid(root, server)
    add_sites(grid, server)

    def say(done: int) -> None:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()

    async with grid.mover(source, target) as mover:
        await mover.transfer(grid.order("data", source, target, rate_bytes_s=rate), say)


if __name__ == "__main__":
    there = SshServer(Path(sys.argv[2]))
    there.port = int(sys.argv[3])
    asyncio.run(transfer(Path(sys.argv[1]), there, sys.argv[4], sys.argv[5], float(sys.argv[6])))
