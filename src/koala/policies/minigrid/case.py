"""The input of the modules: one job and the links as they are, in one tuple that Python and numba both accept."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

from koala.model.network import ALL_TO_ALL

# Any number of parts.
COMPONENTS_UNBOUNDED = 2**31 - 1


class PlacementCase(NamedTuple):
    """A job of ``total`` processors to be placed, and the links that it would use.

    ``demand`` and ``capacity`` are those of the links, in bits per second, the sites' own links first. ``threshold``
    limits the use of links. ``per_processor_bit_s`` is the job's own for the modules of class A, and for B5 the
    believed value as if all its processors talked to all; the others ignore it. ``spare`` is scratch space by site.
    ``home`` is below 0 if there is none. Initial, B1, B2 and B3 keep the bounds on parts; ``chunk`` is for B3 only.
    """

    total: int
    demand: Sequence[int]
    capacity: Sequence[int]
    per_processor_bit_s: float
    threshold: float
    spare: MutableSequence[int]
    home: int = -1
    chunk: float = 0.85
    pattern: int = ALL_TO_ALL
    dimensions: int = 2
    component_min: int = 1
    components_max: int = COMPONENTS_UNBOUNDED


class SharedRoutes(NamedTuple):
    """The links that sites share, as in ``koala.model.network.add_shared_crossings``, and scratch space.

    ``crossed`` and ``closed`` are by link, ``group`` and ``masked`` by site.
    """

    first: Sequence[int]
    links: Sequence[int]
    crossed: MutableSequence[float]
    closed: MutableSequence[int]
    group: MutableSequence[int]
    masked: MutableSequence[int]
