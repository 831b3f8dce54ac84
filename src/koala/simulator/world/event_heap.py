"""What will happen in a simulated world, in a defined order: a heap ordered by (time, kind, sequence).

The kinds are ranked so that happenings of one instant have one order: what frees something comes before what
asks for something; the scheduler's own clock comes when all answers of the instant are in, then come new jobs. Links
are shared out when all else of the instant has happened.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any, TypeAlias

# The kinds of happenings, in the order in which those of one instant take place.
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
    """The heap. Whatever may be called off remembers the sequence number as its timer and checks it when due."""

    __slots__ = ("heap", "sequence")

    def __init__(self) -> None:
        self.heap: list[Happening] = []
        self.sequence = 0

    def add(self, at: float, kind: int, subject: object) -> int:
        """Plan a happening and return its sequence number."""
        sequence = self.sequence + 1
        self.sequence = sequence
        heappush(self.heap, (at, kind, sequence, subject))
        return sequence
