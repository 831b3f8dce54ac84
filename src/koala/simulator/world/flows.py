"""The traffic of a running job on shared links, and the progress of its components.

Plain values that ``koala.simulator.world.contention`` updates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

AnyComponent = TypeVar("AnyComponent")


class Progress:
    """The progress of a running component: ``work_s`` seconds at full speed were left at the time ``since``."""

    __slots__ = ("execution_s", "is_planned", "since", "started_at", "work_s")

    def __init__(self, started_at: float, execution_s: float) -> None:
        self.started_at = started_at
        self.execution_s = execution_s
        self.since = started_at
        self.work_s = execution_s
        self.is_planned = False  # True once its end is planned


class Flow(Generic[AnyComponent]):
    """The traffic of one run of a job: its demand on each link, its grant, and its components.

    It is on the links from the start of its first component until the last has ended, or until one ends early: the
    others then have no partner to talk to. ``ratio`` is the granted part of its demand, 0 before it is known.
    ``sent_bit_s`` is what each component sends at full speed, where that is measured.
    """

    __slots__ = ("demands_bit_s", "is_over", "links", "ratio", "running", "sent_bit_s", "share", "stretch")

    def __init__(self, demands: Iterable[tuple[int, int]], share: float) -> None:
        self.links, self.demands_bit_s = map(list, zip(*demands, strict=True))
        self.share = share
        self.sent_bit_s: dict[AnyComponent, float] = {}
        self.ratio = 0.0
        self.stretch = 1.0
        self.running: dict[AnyComponent, Progress] = {}
        self.is_over = False
