"""Checkpoints of an application: what has been computed so far, in one file that is there as a whole or not at all.

The first process saves for all, every so many iterations and when Koala asks for it; at the start every process reads
the file in the directory of its own component. So it may go on with other processes, divided in another way.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.options import ITERATIONS_MAX, Parser, whole
from koala.examples.applications.world import Array, MpiWorld

# What Koala sets: the directory that goes with the job, and the file in which the number of requests to save is.
DIRECTORY_VARIABLE = "KOALA_CHECKPOINT"
ASKED_VARIABLE = "KOALA_CHECKPOINT_ASKED"
# The second word there, when the process is to be ended soon.
LAST = "last"
FILE = "state.npz"


class SavedAndLeftError(Exception):
    """All processes have saved, as they were asked to before they are ended, and leave."""


@dataclass(frozen=True)
class SavedState:
    """A whole square after some iterations; ``grid`` are the rows and columns of processes that it was begun with."""

    iterations: int
    grid: tuple[int, int]
    values: Array


def add_saving(parser: Parser) -> None:
    """The options of an application that saves its state."""
    parser.add_argument(
        "--checkpoint",
        default=os.environ.get(DIRECTORY_VARIABLE),
        metavar="DIRECTORY",
        help=f"save there, and go on from what is there (default: {DIRECTORY_VARIABLE}, or not at all)",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=whole(1, ITERATIONS_MAX),
        metavar="N",
        help="save every N iterations (default: only when asked)",
    )


class Saving:
    """Saves and reads states. Every method is called by all processes together."""

    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        self._world = world
        self._directory = None if options.checkpoint is None else Path(options.checkpoint)
        self._every: int | None = options.checkpoint_every
        self._asked_file = os.environ.get(ASKED_VARIABLE)
        self._asked = self._asked_so_far()[0]
        self._saved_at = 0

    def read(self, size: int) -> SavedState | None:
        """What was saved last, if all processes have the same; else all begin anew."""
        if self._directory is None:
            return None
        state = _read(self._directory / FILE, size)
        iterations = -1 if state is None else state.iterations
        most, least = self._world.largest_of_all(iterations, -iterations)
        if most != -least or state is None:
            return None
        self._saved_at = state.iterations
        return state

    def save_if_wanted(self, iteration: int, grid: tuple[int, int], collect: Callable[[], Array | None]) -> None:
        """Save where it is time to or somebody asks. Raises ``SavedAndLeftError`` when all are to be ended soon."""
        if self._directory is None:
            return
        number, last = self._asked_so_far() if self._world.rank == 0 else (0, False)
        number, leaves = map(int, self._world.largest_of_all(number, last))
        is_time = self._every is not None and iteration - self._saved_at >= self._every
        if not is_time and number <= self._asked:
            return
        whole_square = collect()
        problem = 0
        if whole_square is not None:
            problem = _write(self._directory / FILE, iteration, grid, whole_square)
        (problem,) = map(int, self._world.largest_of_all(problem))
        if problem:
            why = os.strerror(problem)
            raise ApplicationError(f"--checkpoint {self._directory}: it cannot be written: {why}; make room there")
        self._saved_at, self._asked = iteration, max(number, self._asked)
        if leaves:
            raise SavedAndLeftError(f"saved after {iteration} iterations")

    def _asked_so_far(self) -> tuple[int, bool]:
        """How often it was asked to save, and whether the last time is the last of all."""
        try:
            words = Path(self._asked_file or "").read_text().split() if self._asked_file else []
            return int(words[0]) if words else 0, LAST in words
        except (OSError, ValueError):
            return 0, False


def _read(path: Path, size: int) -> SavedState | None:
    try:
        with path.open("rb") as file, np.load(file) as saved:
            values: Array = saved["values"]
            rows, columns = (int(number) for number in saved["grid"])
            state = SavedState(int(saved["iterations"]), (rows, columns), values)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return state if values.shape == (size, size) else None


def _write(path: Path, iteration: int, grid: tuple[int, int], values: Array) -> int:
    """Write aside, then rename; the number of the error, 0 for none."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, iterations=iteration, grid=np.array(grid), values=values)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        return error.errno or 1
    return 0
