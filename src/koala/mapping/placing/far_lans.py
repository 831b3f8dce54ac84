"""A search that goes beyond the neighbourhood: farther LANs are looked at while the near ones leave tasks too little.

Closest first stops at the first LAN that will do, so the affinity of the worst-off task does not gain from a larger
grid. Here the search goes on until a LAN takes the cluster whole and gives each of its tasks the affinity wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.mapping.placing.power_left import Placing, Spot


class WantsAffinity:
    """The judge who wants every task's machine to have so many times the power that the task needs."""

    def __init__(self, affinity: float) -> None:
        self._wanted = affinity
        self._needs: list[float] = []

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Note what the tasks need."""
        self._needs = [placing.needs[task] for task in tasks]

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Nothing is known of a MAN without a look at its LANs."""
        return lans

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """What the task that needs most would lack on the best machine."""
        lack = 1.0 - placing.left.lan_best[lan] / self._needs[0] / self._wanted
        return lack if lack > 0.0 else 0.0

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """What the worst-off task lacks, as a share of what is wanted."""
        affinity = min(power / need for (_, power), need in zip(spots, self._needs, strict=True))
        return max(0.0, 1.0 - affinity / self._wanted)

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Nothing to remember."""
