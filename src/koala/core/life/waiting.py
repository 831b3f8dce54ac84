"""``WAITING``: a job in its placement queue."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from koala.core.encoded import encoded
from koala.core.life.phase import Phase
from koala.core.life.states import JobState
from koala.policies.interface import Spots

# What a try to place a job saw: idle processors by site, and bit/s by link if jobs asked for any. A plain tuple,
# since nearly every try makes one, and a named tuple takes several times as long.
Seen: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@encoded
class StartPlan:
    """When and where a waiting job is to start; ``told_at`` is the start that its story shows now."""

    at: float
    spots: Spots
    told_at: float = 0.0


@encoded
class Waiting(Phase):
    """The job's place in line, what its tries saw, and its plan."""

    state: ClassVar[JobState] = JobState.WAITING
    position: int = -1  # in the queue; -1 while it rests or is about to join
    entered_scan: int = 0
    joined_after_scan: int = 0
    exhausted_at_scan: int | None = None  # the scan at which its tries are used up
    refused: Seen | None = None  # what its first try saw
    plan: StartPlan | None = None
