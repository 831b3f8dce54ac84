"""``RUNNING``: a job past its barrier."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import NO_ENTRIES, Time, encoded
from koala.core.life.phase import HasBegun
from koala.core.life.starting import Starting
from koala.core.life.states import JobState
from koala.model.messages import Token


@encoded
class Running(HasBegun):
    """The data of this run."""

    state: ClassVar[JobState] = JobState.RUNNING
    outstanding: int = 0  # components that have not ended
    joining: int = 0  # how many of its last components are on their way with spawned tasks
    deadline: Time = 0.0  # when these must be there
    # By component: its measured traffic to other sites, and until how long after its start; or why that is unknown.
    sent: dict[int, tuple[float, float]] = NO_ENTRIES
    unmeasured: dict[int, str] = NO_ENTRIES
    workspaces: dict[int, Token] = NO_ENTRIES  # by component with outputs: the token of its run, once it is done
    spawn_refused: tuple[tuple[str, ...], str] | None = None  # the last tasks whose spawning was refused, and why

    @classmethod
    def opened(cls, before: Starting, at: float) -> Running:
        """Enter when the barrier has opened for all components."""
        return cls(before.placement, at, len(before.placement.claims))
