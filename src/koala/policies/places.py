"""Places for tasks of more than one processor: how many of a shape a site has, and what is left besides.

Policies are functions over integers. For plain tasks these are idle processors; for tasks with a shape they are
places, computed here from the idle processors and the nodes of each site.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.nodes import TaskShape
from koala.policies.transfer_estimates import Spots
from koala.policies.view import TaskPool, View

_PLAIN = TaskShape()


def needs_nodes(shape: TaskShape) -> bool:
    """Return True if only a site that reports its nodes can have room for such a task."""
    return bool(shape.memory_bytes or shape.gpus or shape.constraint)


def places_at(shape: TaskShape, idle: int, pool: TaskPool | None) -> int:
    """Return how many tasks of the shape fit into these idle processors on these nodes.

    If a site does not report its nodes only processors count, and it has no place for a task that needs more.
    """
    places = idle // shape.processors
    if places <= 0:
        return 0
    if pool is None:
        return 0 if needs_nodes(shape) else places
    return places if shape == _PLAIN else min(places, pool.places(shape))


class Room:
    """What is left at the sites while the groups of one job are placed one after the other."""

    def __init__(self, idle: Sequence[int], view: View) -> None:
        self.idle = list(idle)
        self._view = view
        self._own: dict[int, TaskPool] = {}

    def places(self, shape: TaskShape) -> list[int]:
        """Return the places by site for tasks of the shape; not to be changed."""
        if self._own:
            return self._places(shape)
        known = self._view.places_known(shape, self.idle)
        if known is None:
            known = self._places(shape)
            self._view.know_places(shape, list(self.idle), known)
        return known

    def _places(self, shape: TaskShape) -> list[int]:
        least = shape.processors
        return [
            places_at(shape, idle, self.pool(site)) if idle >= least else 0 for site, idle in enumerate(self.idle)
        ]

    def pool(self, site: int) -> TaskPool | None:
        """Return the nodes that are left at the site."""
        return self._own.get(site) or self._view.pool(site)

    def take(self, shape: TaskShape, spots: Spots) -> None:
        """Take the room of the tasks that go to each site."""
        for site, tasks in zip(spots.sites, spots.sizes, strict=True):
            self.idle[site] -= tasks * shape.processors
            pool = self.pool(site)
            if pool is not None:
                own = self._own.get(site) or pool.copy()
                own.take(shape, tasks)
                self._own[site] = own
