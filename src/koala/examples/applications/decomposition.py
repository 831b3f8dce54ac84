"""Who owns which points of a square: rectangles in a grid, in rows, or in vertical strips; and their common borders.

Only counting lives here. A point is owned by exactly one process; borders are between points that are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isqrt

from koala.examples.applications.errors import ApplicationError

Region = tuple[slice, slice]


@dataclass(frozen=True)
class Block:
    """A rectangle of points: rows ``top`` to ``bottom`` and columns ``left`` to ``right``, the ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.bottom - self.top

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return self.right - self.left

    @property
    def points(self) -> int:
        """How many points it has; a process that only directs owns none."""
        return self.rows * self.columns

    @property
    def region(self) -> Region:
        """Its points in an array of the whole square without a rim."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    @property
    def rimmed(self) -> Region:
        """Its points and those around it in an array of the whole square with a rim of one point."""
        return slice(self.top, self.bottom + 2), slice(self.left, self.right + 2)


@dataclass(frozen=True)
class Border:
    """Where a block touches a neighbour's, in the block's own array, which has a rim of one point.

    ``own`` is what the neighbour needs to know, ``theirs`` is the part of the rim where its answer goes.
    """

    neighbour: int
    own: Region
    theirs: Region


def cuts(length: int, weights: Sequence[int]) -> list[tuple[int, int]]:
    """A length divided by weights, each piece as (start, end); pieces of equal weight differ by one at most."""
    total = sum(weights)
    return list(pairwise([0] + [length * sum_ // total for sum_ in accumulate(weights)]))


def most_square(processes: int) -> tuple[int, int]:
    """The rows and columns of processes that come nearest to a square, columns at least as many as rows."""
    rows = next(rows for rows in range(isqrt(processes), 0, -1) if processes % rows == 0)
    return rows, processes // rows


def grid_blocks(size: int, rows: int, columns: int) -> list[Block]:
    """The square in a grid of rectangles, numbered row by row."""
    blocks = [
        Block(top, bottom, left, right)
        for top, bottom in cuts(size, [1] * rows)
        for left, right in cuts(size, [1] * columns)
    ]
    return _all_with_points(size, blocks)


def row_blocks(size: int, workers: int) -> list[Block]:
    """The square in bands of whole rows."""
    return grid_blocks(size, workers, 1)


def strip_blocks(size: int, clusters: Sequence[int]) -> list[Block]:
    """A vertical strip for each cluster, as wide as its share of the processes; in it a grid of rectangles."""
    blocks = []
    for (left, right), processes in zip(cuts(size, clusters), clusters, strict=True):
        rows, columns = strip_grid(size, right - left, processes)
        blocks += [
            Block(top, bottom, left + start, left + end)
            for top, bottom in cuts(size, [1] * rows)
            for start, end in cuts(right - left, [1] * columns)
        ]
    return _all_with_points(size, blocks)


def strip_grid(height: int, width: int, processes: int) -> tuple[int, int]:
    """The rows and columns of processes in a strip whose rectangles come nearest to squares."""
    shapes = [(rows, processes // rows) for rows in range(1, processes + 1) if processes % rows == 0]
    return min(shapes, key=lambda shape: (abs(height * shape[1] - width * shape[0]), shape))


def _all_with_points(size: int, blocks: list[Block]) -> list[Block]:
    if any(block.points == 0 for block in blocks):
        raise ApplicationError(
            f"--size {size}: too few points for {len(blocks)} processes; use a larger size, or fewer processes"
        )
    return blocks


def borders(blocks: Sequence[Block], index: int) -> list[Border]:
    """The borders of one block, by the number of the neighbour. Two blocks have at most one border in common."""
    block = blocks[index]
    found = []
    for neighbour, other in enumerate(blocks):
        rows = _overlap(block.top, block.bottom, other.top, other.bottom)
        columns = _overlap(block.left, block.right, other.left, other.right)
        if rows is not None and other.right == block.left:
            found.append(Border(neighbour, (rows, slice(1, 2)), (rows, slice(0, 1))))
        elif rows is not None and other.left == block.right:
            last = block.columns
            found.append(Border(neighbour, (rows, slice(last, last + 1)), (rows, slice(last + 1, last + 2))))
        elif columns is not None and other.bottom == block.top:
            found.append(Border(neighbour, (slice(1, 2), columns), (slice(0, 1), columns)))
        elif columns is not None and other.top == block.bottom:
            last = block.rows
            found.append(Border(neighbour, (slice(last, last + 1), columns), (slice(last + 1, last + 2), columns)))
    return found


def _overlap(start: int, end: int, other_start: int, other_end: int) -> slice | None:
    """What two ranges have in common, counted from the first one's rim; nothing if that is empty."""
    first, last = max(start, other_start), min(end, other_end)
    return slice(first - start + 1, last - start + 1) if first < last else None
