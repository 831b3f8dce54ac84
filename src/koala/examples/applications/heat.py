"""How heat spreads over a square plate with a cold edge: a master, and workers that each have some rows.

The first process divides the plate by rows among the others and sends them their parts. In every time step neighbours
exchange the rows along their borders; then a point's temperature follows from its own and those around it. At the end
the workers return their rows. A process that is alone is master and worker in one.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from koala.examples.applications.decomposition import Block, row_blocks
from koala.examples.applications.field import Field, neighbours_sum
from koala.examples.applications.options import Parser, add_steps, common_parser
from koala.examples.applications.program import Solver, SolverProgress, run
from koala.examples.applications.world import Array, MpiWorld, Parcel

SIZE_DEFAULT = 256
STEPS_DEFAULT = 1_000
# The share of a temperature difference that flows in one step; above a quarter the values would swing out of bounds.
FLOW = 0.2
_NOTHING = Block(0, 0, 0, 0)


class Heat(Solver):
    """See the module. The plate begins warm in the middle: sin(πx) sin(πy)."""

    name = "heat"

    @staticmethod
    def parser() -> Parser:
        """The command line."""
        words = "Follow the heat of a plate, with a master and workers by rows."
        return add_steps(common_parser("heat", words, SIZE_DEFAULT), STEPS_DEFAULT)

    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        self._world = world
        self._size: int = options.size
        self._steps: int = options.steps
        self._workers = max(1, world.size - 1)
        parts = row_blocks(self._size, self._workers)
        self._blocks = parts if world.size == 1 else [_NOTHING, *parts]
        self._largest_change = 0.0
        self._result: Array | None = None

    @property
    def pattern(self) -> str:
        """How many share the rows."""
        if self._world.size == 1:
            return "master and worker in one"
        return f"a master and {self._workers} by rows"

    def solve(self) -> SolverProgress:
        """Send the parts out, go through the steps, take the parts back."""
        field = Field(self._world, self._blocks, self._dealt())
        if field.block.points > 0:
            for _ in range(self._steps):
                change = self._step(field)
                self._world.work()
            self._largest_change = float(np.abs(change).max())
        self._result = field.collect()
        return SolverProgress(self._steps, converged=True)

    def _dealt(self) -> Array:
        """This process's part with its rim, as the master hands it out."""
        block = self._blocks[self._world.rank]
        if self._world.rank != 0:
            values = np.empty((block.rows + 2, block.columns + 2))
            self._world.exchange([], [Parcel(0, values)])
            return values
        plate = start_values(self._size)
        parts = [Parcel(rank, plate[part.rimmed]) for rank, part in enumerate(self._blocks) if rank != 0]
        self._world.exchange(parts, [])
        return plate[block.rimmed]

    def _step(self, field: Field) -> Array:
        """One time step; returns by how much each point has changed."""
        field.exchange()
        everything = (slice(0, field.block.rows), slice(0, field.block.columns))
        change = FLOW * (neighbours_sum(field.values, everything) - 4.0 * field.own)
        field.own[...] += change
        return change

    def residual(self) -> float:
        """The largest change of a temperature in the last step: how far the plate is from rest."""
        return self._world.largest_of_all(self._largest_change)[0]

    def collect(self) -> Array | None:
        """What the workers have returned, in the master."""
        return self._result

    def serial(self, iterations: int) -> Array:
        """The same on one array."""
        plate = start_values(self._size)
        for _ in range(iterations):
            around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
            plate[1:-1, 1:-1] = plate[1:-1, 1:-1] + FLOW * (around - 4.0 * plate[1:-1, 1:-1])
        return plate[1:-1, 1:-1]


def start_values(size: int) -> Array:
    """The whole plate with its edge at the start."""
    wave = np.sin(np.pi * np.arange(size + 2) / (size + 1))
    values: Array = np.outer(wave, wave)
    values[0], values[-1], values[:, 0], values[:, -1] = 0.0, 0.0, 0.0, 0.0
    return values


if __name__ == "__main__":
    sys.exit(run(Heat))
