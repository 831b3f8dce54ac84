"""A process's own points of a square, with a rim of one point around them, and how rims are kept up to date."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koala.examples.applications.decomposition import Block, Region, borders
from koala.examples.applications.world import Array, MpiWorld, Parcel


class Field:
    """The points of one block.

    ``values`` includes the rim: neighbours' points as they were at the last ``exchange``, and the edge of the square,
    which never changes.
    """

    def __init__(self, world: MpiWorld, blocks: Sequence[Block], values: Array) -> None:
        self._world = world
        self.blocks = blocks
        self.block = blocks[world.rank]
        self.values = values
        self._borders = borders(blocks, world.rank)

    @property
    def own(self) -> Array:
        """The points of the block without the rim; changing them changes ``values``."""
        return self.values[1:-1, 1:-1]

    def exchange(self) -> None:
        """Tell every neighbour the points along the border, and hear theirs."""
        self._world.exchange(
            [Parcel(border.neighbour, self.values[border.own]) for border in self._borders],
            [Parcel(border.neighbour, self.values[border.theirs]) for border in self._borders],
        )

    def collect(self) -> Array | None:
        """The whole square, without its edge, in the first process; nothing in the others."""
        if self._world.rank != 0:
            if self.block.points > 0:
                self._world.exchange([Parcel(0, self.own)], [])
            return None
        size = max(block.bottom for block in self.blocks)
        whole = np.empty((size, size))
        whole[self.block.region] = self.own
        others = [(rank, block) for rank, block in enumerate(self.blocks) if rank != 0 and block.points > 0]
        self._world.exchange([], [Parcel(rank, whole[block.region]) for rank, block in others])
        return whole


def neighbours_sum(values: Array, region: Region) -> Array:
    """For every point of a region the sum of the points above, below, left and right of it.

    The region, which may have steps, counts from the first point inside the rim. The order of adding is always the
    same, so that parallel and serial results are equal to the last bit.
    """
    rows, columns = region
    total = values[_moved(rows, 0), _moved(columns, 1)] + values[_moved(rows, 2), _moved(columns, 1)]
    total += values[_moved(rows, 1), _moved(columns, 0)]
    total += values[_moved(rows, 1), _moved(columns, 2)]
    return total


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by, part.step)
