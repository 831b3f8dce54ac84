"""``koala`` that sees an empty directory in place of the one that the environment variable HIDDEN names."""

from __future__ import annotations

import ctypes
import os

from koala.cli import main

CLONE_NEWNS = 0x0002_0000
MS_REC_PRIVATE = 0x0000_4000 | 0x0004_0000


def hide(directory: str) -> None:
    """Hide it from this process and its children only."""
    library = ctypes.CDLL(None, use_errno=True)
    failed = (
        library.unshare(CLONE_NEWNS)
        or library.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
        or library.mount(b"none", os.fsencode(directory), b"tmpfs", 0, None)
    )
    if failed:
        raise OSError(ctypes.get_errno(), f"{directory} cannot be hidden")


if __name__ == "__main__":
    hide(os.environ.pop("HIDDEN"))
    main()
