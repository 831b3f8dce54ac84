"""The future events of a simulated world, in a defined order: a heap ordered by (time, kind, sequence).

The ranks of the kinds give the events of one instant one order: releases come before requests; the scheduler's own
clock comes after all answers of the instant, then come new jobs. Links are shared out after all other events of the
instant.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any, TypeAlias

# The kinds of events, in their order within one instant.
HEAL = 0
OUTAGE_BEGINS = 1
OUTAGE_ENDS = 2
NODES_CHANGE = 3
COMPONENT_ENDS = 4
USER_JOB_ENDS = 5
LINK_DELIVERS = 6
LINK_IS_JOINED = 7
ANSWER_ARRIVES = 8
COMPONENT_READY = 9
USER_JOB_ARRIVES = 10
SITE_REPORTS = 11
SITE_IS_ASKED = 12
TRAFFIC_IS_MEASURED = 13
TICK = 14  # never in the heap: the scheduler says when it is due
JOB_ARRIVES = 15  # never in the heap: arrivals come one by one from the workload
SHARES_SETTLE = 16
KINDS = 17

# (time, kind, sequence, subject): the sequence is unique, so subjects are never compared.
Happening: TypeAlias = tuple[float, int, int, Any]


class EventHeap:
    """The heap. The owner of an event that may be cancelled keeps its sequence number as a timer and checks it when
    due."""

    __slots__ = ("heap", "sequence")

    def __init__(self) -> None:
        self.heap: list[Happening] = []
        self.sequence = 0

    def add(self, at: float, kind: int, subject: object) -> int:
        """Plan an event and return its sequence number."""
        sequence = self.sequence + 1
        self.sequence = sequence
        heappush(self.heap, (at, kind, sequence, subject))
        return sequence
