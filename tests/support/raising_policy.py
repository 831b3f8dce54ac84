"""A policy with a defect: it raises on a component of some size, while it is sick."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence

from koala.policies import Catalogue
from koala.policies.forms import Form, Policy

# The size of a component that it raises on, and its name.
POISON = 3
SICK = "SICK"


def raising_policy(*, sick: Callable[[], bool] = lambda: True) -> Catalogue:
    """Return all policies, and the one with the defect."""

    def most_idle(
        idle: Sequence[int], sizes: Sequence[int], left: MutableSequence[int], chosen: MutableSequence[int]
    ) -> int:
        if POISON in sizes and sick():
            raise ZeroDivisionError("an error of ours")
        most = max(range(len(idle)), key=lambda site: idle[site])
        if idle[most] < sum(sizes):
            return 0
        chosen[: len(sizes)] = [most] * len(sizes)
        return -1

    catalogue = Catalogue.builtin()
    catalogue.add(Policy(name=SICK, form=Form.COMPONENTS, function=most_idle, summary="raises on some jobs"))
    return catalogue
