"""The Laplace equation on a square, with the values on its edge given; processes form a grid, squarely if they can.

Each iteration has two phases. All processes exchange the points along their borders and renew the upper left and
lower right quarters of their blocks; they exchange again and renew the other two. So a quarter and its neighbours, in
the same block or the next, are never renewed together. It ends when the values, compared to those 20 iterations
before, have changed by less than the tolerance on average. What was saved goes on in the division in which it was
begun, whoever computes it: the answer is the same to the last bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from koala.examples.applications.decomposition import Block, Region, grid_blocks, most_square
from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.field import Field, neighbours_sum
from koala.examples.applications.options import Parser, add_convergence, common_parser
from koala.examples.applications.program import Solver, SolverProgress, run
from koala.examples.applications.saving import Saving, add_saving
from koala.examples.applications.world import Array, MpiWorld

SIZE_DEFAULT = 256
TOLERANCE_DEFAULT = 1e-4
ITERATIONS_MAX_DEFAULT = 100_000
# The values are compared with those of so many iterations before.
COMPARED_ITERATIONS = 20


class Laplace(Solver):
    """See the module. The edge holds x² - y², which is also the exact solution inside."""

    name = "laplace"

    @staticmethod
    def parser() -> Parser:
        """The command line."""
        parser = common_parser(
            "laplace", "Solve the Laplace equation on a square, with processes in a grid.", SIZE_DEFAULT
        )
        what = f"the average change of a point in {COMPARED_ITERATIONS} iterations"
        add_convergence(parser, TOLERANCE_DEFAULT, ITERATIONS_MAX_DEFAULT, what)
        parser.add_argument(
            "--grid", metavar="PxQ", help="P rows of Q processes (default: as near to a square as can be)"
        )
        add_saving(parser)
        return parser

    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        self._world = world
        self._size: int = options.size
        self._tolerance: float = options.tolerance
        self._iterations_max: int = options.iterations_max
        self._grid = _grid(options.grid, world.size)
        self._blocks = grid_blocks(self._size, *self._grid)
        block = self._blocks[world.rank]
        values = start_values(self._size, block)
        self._saving = Saving(world, options)
        state = self._saving.read(self._size)
        # The quarters are those of the division in which it was begun.
        self._begun_grid = self._grid if state is None else state.grid
        self._begun_blocks = grid_blocks(self._size, *self._begun_grid)
        self._iterations = 0 if state is None else state.iterations
        if state is not None:
            values[1:-1, 1:-1] = state.values[block.region]
        self._field = Field(world, self._blocks, values)

    @property
    def pattern(self) -> str:
        """Rows and columns of processes."""
        return f"{self._grid[0]} x {self._grid[1]}"

    def solve(self) -> SolverProgress:
        """Iterate until the values hardly change."""
        field = self._field
        phases = phases_in(field.block, self._begun_blocks)
        before = field.own.copy()
        for iteration in range(self._iterations + 1, self._iterations_max + 1):
            for phase in phases:
                field.exchange()
                for quarter in phase:
                    field.own[quarter] = 0.25 * neighbours_sum(field.values, quarter)
            self._world.work()
            if iteration % COMPARED_ITERATIONS == 0 and self._tolerance > 0:
                (change,) = self._world.sum_all(float(np.abs(field.own - before).sum()))
                if change / self._size**2 < self._tolerance:
                    return SolverProgress(iteration, converged=True)
                before = field.own.copy()
            if iteration % COMPARED_ITERATIONS == 0:
                self._saving.save_if_wanted(iteration, self._begun_grid, self.collect)
        return SolverProgress(self._iterations_max, converged=self._tolerance == 0)

    def residual(self) -> float:
        """The largest difference between a point and the mean of its four neighbours."""
        field = self._field
        field.exchange()
        everything = (slice(0, field.block.rows), slice(0, field.block.columns))
        distance = np.abs(0.25 * neighbours_sum(field.values, everything) - field.own)
        return self._world.largest_of_all(float(distance.max()))[0]

    def collect(self) -> Array | None:
        """The whole solution, in the first process."""
        return self._field.collect()

    def serial(self, iterations: int) -> Array:
        """The same on one array, where a mask says which points are renewed in the first phase."""
        values = start_values(self._size, Block(0, self._size, 0, self._size))
        own = values[1:-1, 1:-1]
        first = self._first_phase()
        for _ in range(iterations):
            for mask in (first, ~first):
                means = 0.25 * (values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:])
                own[mask] = means[mask]
        return own

    def _first_phase(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros((self._size, self._size), dtype=bool)
        for block in self._begun_blocks:
            for quarter in quarters(block)[0]:
                mask[block.region][quarter] = True
        return mask


def quarters(block: Block) -> tuple[tuple[Region, Region], tuple[Region, Region]]:
    """The quarters of a block that are renewed in the first phase, and those of the second."""
    middle_row, middle_column = (block.rows + 1) // 2, (block.columns + 1) // 2
    upper, lower = slice(0, middle_row), slice(middle_row, block.rows)
    left, right = slice(0, middle_column), slice(middle_column, block.columns)
    return ((upper, left), (lower, right)), ((upper, right), (lower, left))


def phases_in(block: Block, begun: Sequence[Block]) -> list[list[Region]]:
    """What of a block is renewed in each of the two phases, where the quarters are those of other blocks."""
    phases: list[list[Region]] = [[], []]
    for other in begun:
        for phase, pair in zip(phases, quarters(other), strict=True):
            for rows, columns in pair:
                common = (
                    _common(rows, other.top, block.top, block.rows),
                    _common(columns, other.left, block.left, block.columns),
                )
                if all(part.start < part.stop for part in common):
                    phase.append(common)
    return phases


def _common(part: slice, from_there: int, from_here: int, length: int) -> slice:
    """What a part of another block and this one have in common, counted from the begin of this one."""
    first, last = part.start + from_there - from_here, part.stop + from_there - from_here
    return slice(max(0, first), min(length, last))


def exact_values(size: int, block: Block) -> Array:
    """x² - y² at the points of a block and its rim. Differences of four neighbours solve it without an error."""
    y = np.arange(block.top, block.bottom + 2) / (size + 1)
    x = np.arange(block.left, block.right + 2) / (size + 1)
    values: Array = x[np.newaxis, :] ** 2 - y[:, np.newaxis] ** 2
    return values


def start_values(size: int, block: Block) -> Array:
    """The exact values on the edge of the square, and zero inside."""
    values = exact_values(size, block)
    rows = slice(1 if block.top == 0 else 0, -1 if block.bottom == size else None)
    columns = slice(1 if block.left == 0 else 0, -1 if block.right == size else None)
    values[rows, columns] = 0.0
    return values


def _grid(text: str | None, processes: int) -> tuple[int, int]:
    if text is None:
        return most_square(processes)
    words = text.split("x")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) < 8 for word in words):
        raise ApplicationError(f"--grid {text!r}: give rows and columns of processes, such as 2x4")
    rows, columns = map(int, words)
    if rows * columns != processes:
        raise ApplicationError(f"--grid {text}: that is {rows * columns} processes, and {processes} run; change one")
    return rows, columns


if __name__ == "__main__":
    sys.exit(run(Laplace))
