"""How heat spreads over a square plate, by alternating directions: in every step all processes talk to all others.

Each process has some rows. In a step the heat flows along the rows; then the plate is turned over its diagonal, for
which every process sends a block to every other one; the heat flows along what were the columns, and the plate is
turned back.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from koala.examples.applications.decomposition import row_blocks
from koala.examples.applications.heat import FLOW, start_values
from koala.examples.applications.options import Parser, add_steps, common_parser
from koala.examples.applications.program import Solver, SolverProgress, run
from koala.examples.applications.world import Array, MpiWorld, Parcel

SIZE_DEFAULT = 256
STEPS_DEFAULT = 200


class Alternate(Solver):
    """See the module. The plate begins warm in the middle: sin(πx) sin(πy)."""

    name = "alternate"

    @staticmethod
    def parser() -> Parser:
        """The command line."""
        words = "Follow the heat of a plate by alternating directions, where all processes talk to all."
        return add_steps(common_parser("alternate", words, SIZE_DEFAULT), STEPS_DEFAULT)

    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        self._world = world
        self._size: int = options.size
        self._steps: int = options.steps
        self._blocks = row_blocks(self._size, world.size)
        block = self._blocks[world.rank]
        self._rows = start_values(self._size)[1:-1, 1:-1][block.top : block.bottom]
        self._largest_change = 0.0

    @property
    def pattern(self) -> str:
        """How many share the rows."""
        return f"{self._world.size} by rows, all to all"

    def solve(self) -> SolverProgress:
        """Go through the steps."""
        for _ in range(self._steps):
            before = self._rows
            turned = self._turned(flowed(before))
            self._rows = self._turned(flowed(turned))
            self._world.work()
        self._largest_change = float(np.abs(self._rows - before).max())
        return SolverProgress(self._steps, converged=True)

    def _turned(self, rows: Array) -> Array:
        """This process's rows of the plate turned over its diagonal: those were columns, a block at each process."""
        world, own = self._world, self._blocks[self._world.rank]
        turned = np.empty((own.rows, self._size))
        turned[:, own.top : own.bottom] = rows[:, own.top : own.bottom].T
        others = [(rank, block) for rank, block in enumerate(self._blocks) if rank != world.rank]
        world.exchange(
            [Parcel(rank, rows[:, block.top : block.bottom].T) for rank, block in others],
            [Parcel(rank, turned[:, block.top : block.bottom]) for rank, block in others],
        )
        return turned

    def residual(self) -> float:
        """The largest change of a temperature in the last step: how far the plate is from rest."""
        return self._world.largest_of_all(self._largest_change)[0]

    def collect(self) -> Array | None:
        """The whole plate, in the first process."""
        if self._world.rank != 0:
            self._world.exchange([Parcel(0, self._rows)], [])
            return None
        whole_plate = np.empty((self._size, self._size))
        whole_plate[: self._blocks[0].bottom] = self._rows
        others = [Parcel(rank, whole_plate[block.region]) for rank, block in enumerate(self._blocks) if rank != 0]
        self._world.exchange([], others)
        return whole_plate

    def serial(self, iterations: int) -> Array:
        """The same on one array."""
        plate = start_values(self._size)[1:-1, 1:-1]
        for _ in range(iterations):
            plate = flowed(flowed(plate).T).T
        return plate


def flowed(rows: Array) -> Array:
    """The temperatures after heat has flowed along the rows, whose ends lie at a cold edge."""
    change = -2.0 * rows
    change[:, 1:] += rows[:, :-1]
    change[:, :-1] += rows[:, 1:]
    values: Array = rows + FLOW * change
    return values


if __name__ == "__main__":
    sys.exit(run(Alternate))
