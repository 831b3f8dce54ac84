"""A daemon in a process of its own, which prints where it listens, or why it does not start.

Usage: serving_child.py STATE [listen].
"""

from __future__ import annotations

import sys
from pathlib import Path

from koala.daemon.options import DaemonOptions, StartError
from koala.daemon.run import run
from tests.support.api_world import GRID


def main() -> None:
    """Serve until asked to stop."""
    listen = ("127.0.0.1", 0) if "listen" in sys.argv[2:] else None
    try:
        run(
            DaemonOptions(grid=GRID, state=Path(sys.argv[1]), listen=listen),
            ready=lambda found: print("READY", found.socket, found.url, flush=True),  # noqa: T201
        )
    except StartError as error:
        sys.exit("refused: " + error.for_user())


if __name__ == "__main__":
    main()
