"""Removal of what applications left: at any depth, and with any permissions."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path


def remove_tree(top: Path) -> None:
    """Remove a directory with everything below it, as far as possible; links are not followed.

    Nested directories are moved up first, so that neither the stack nor the length of a path sets a limit. What
    cannot be removed stays.
    """
    with contextlib.suppress(OSError):
        numbers, left = itertools.count(), [top]
        while left:
            directory = left.pop()
            left += _emptied(directory, top, numbers)
            if directory != top:
                with contextlib.suppress(OSError):
                    directory.rmdir()
        top.rmdir()


def _emptied(directory: Path, top: Path, numbers: itertools.count[int]) -> list[Path]:
    """Remove the files of a directory; return the new places of the directories in it."""
    moved = []
    with contextlib.suppress(OSError):
        directory.chmod(stat.S_IRWXU)
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        Path(entry.path).unlink()
                        continue
                    Path(entry.path).chmod(stat.S_IRWXU)  # without this it cannot be moved
                    moved.append(_moved(Path(entry.path), top, numbers))
    return moved


def _moved(directory: Path, top: Path, numbers: itertools.count[int]) -> Path:
    """Move a directory directly below the top, and return it."""
    if directory.parent == top:
        return directory
    while True:
        place = top / f".{next(numbers)}"
        if not os.path.lexists(place):
            directory.rename(place)
            return place
