"""A process that opens a new store and kills itself before its STATEMENT-th statement; 0 is never.

Usage: creating_child.py URL STATEMENT. Writes the number of statements when it lives to see them all.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from sqlalchemy import Engine, event

from koala.store import Store


def main() -> None:
    """Open the store, as far as it gets."""
    url, last = sys.argv[1], int(sys.argv[2])
    seen = 0

    def before_statement(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", before_statement)
    Store.open(url).close()
    sys.stdout.write(f"{seen}\n")


if __name__ == "__main__":
    main()
