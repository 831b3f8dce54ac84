"""The Poisson equation on the unit square, zero on its edge; each cluster has a vertical strip of it.

A strip is as wide as its cluster's share of the processes, and divided among them into rectangles of equal size, so
that only the points along a strip's sides go from one cluster to another. Points are coloured as on a chess board: in
each iteration the black ones are renewed and then the red ones, with an exchange before either. It ends when the
largest change of a point in an iteration is below the tolerance.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from koala.examples.applications.decomposition import Block, Region, strip_blocks, strip_grid
from koala.examples.applications.field import Field, neighbours_sum
from koala.examples.applications.options import Parser, add_convergence, common_parser
from koala.examples.applications.program import Solver, SolverProgress, run
from koala.examples.applications.world import Array, MpiWorld

SIZE_DEFAULT = 256
TOLERANCE_DEFAULT = 1e-5
ITERATIONS_MAX_DEFAULT = 100_000
# Whether it has converged is asked only so often: the answer takes messages between all clusters.
ASKED_ITERATIONS = 20
BLACK, RED = 0, 1


class Poisson(Solver):
    """See the module. The right-hand side is such that the solution comes near to sin(πx) sin(πy)."""

    name = "poisson"

    @staticmethod
    def parser() -> Parser:
        """The command line."""
        parser = common_parser(
            "poisson", "Solve the Poisson equation on a square, with a vertical strip for each cluster.", SIZE_DEFAULT
        )
        add_convergence(
            parser, TOLERANCE_DEFAULT, ITERATIONS_MAX_DEFAULT, "the largest change of a point in an iteration"
        )
        return parser

    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        self._world = world
        self._size: int = options.size
        self._tolerance: float = options.tolerance
        self._iterations_max: int = options.iterations_max
        blocks = strip_blocks(self._size, world.clusters.sizes)
        block = blocks[world.rank]
        self._field = Field(world, blocks, np.zeros((block.rows + 2, block.columns + 2)))
        self._sources = sources(self._size, block)

    @property
    def pattern(self) -> str:
        """Rows and columns of processes in each strip."""
        strips = [self._strip(cluster) for cluster in range(len(self._world.clusters.sizes))]
        return f"a strip of {strips[0]}" if len(strips) == 1 else f"strips of {' and '.join(strips)}"

    def _strip(self, cluster: int) -> str:
        members = [self._field.blocks[rank] for rank in self._world.clusters.members(cluster)]
        rows, columns = strip_grid(self._size, members[-1].right - members[0].left, len(members))
        return f"{rows} x {columns}"

    def solve(self) -> SolverProgress:
        """Iterate until no point changes much."""
        field = self._field
        colours = [chess_board(field.block, colour) for colour in (BLACK, RED)]
        for iteration in range(1, self._iterations_max + 1):
            is_asked = self._tolerance > 0 and iteration % ASKED_ITERATIONS == 0
            before = field.own.copy() if is_asked else None
            for parts in colours:
                field.exchange()
                for part in parts:
                    field.own[part] = 0.25 * (neighbours_sum(field.values, part) + self._sources[part])
            self._world.work()
            if before is not None:
                (change,) = self._world.largest_of_all(float(np.abs(field.own - before).max()))
                if change < self._tolerance:
                    return SolverProgress(iteration, converged=True)
        return SolverProgress(self._iterations_max, converged=self._tolerance == 0)

    def residual(self) -> float:
        """The largest change that one more renewal of all points would bring."""
        field = self._field
        field.exchange()
        everything = (slice(0, field.block.rows), slice(0, field.block.columns))
        wanted = 0.25 * (neighbours_sum(field.values, everything) + self._sources)
        return self._world.largest_of_all(float(np.abs(wanted - field.own).max()))[0]

    def collect(self) -> Array | None:
        """The whole solution, in the first process."""
        return self._field.collect()

    def serial(self, iterations: int) -> Array:
        """The same on one array, where a mask says which points are black."""
        values = np.zeros((self._size + 2, self._size + 2))
        own = values[1:-1, 1:-1]
        right_side = sources(self._size, Block(0, self._size, 0, self._size))
        rows, columns = np.indices(own.shape)
        is_black = (rows + columns) % 2 == BLACK
        for _ in range(iterations):
            for mask in (is_black, ~is_black):
                around = values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:]
                own[mask] = (0.25 * (around + right_side))[mask]
        return own


def sources(size: int, block: Block) -> Array:
    """The right-hand side at the points of a block, times the square of the distance between points."""
    step = 1.0 / (size + 1)
    rows = np.sin(np.pi * step * np.arange(block.top + 1, block.bottom + 1))
    columns = np.sin(np.pi * step * np.arange(block.left + 1, block.right + 1))
    values: Array = 2.0 * np.pi**2 * step**2 * np.outer(rows, columns)
    return values


def chess_board(block: Block, colour: int) -> tuple[Region, Region]:
    """The points of one colour in a block: in its even rows and in its odd rows. The whole square is one board."""
    parts = []
    for first_row in (0, 1):
        first_column = (block.top + first_row + block.left + colour) % 2
        parts.append((slice(first_row, block.rows, 2), slice(first_column, block.columns, 2)))
    return parts[0], parts[1]


if __name__ == "__main__":
    sys.exit(run(Poisson))
