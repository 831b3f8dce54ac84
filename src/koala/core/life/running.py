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
    """What is known of this run."""

    state: ClassVar[JobState] = JobState.RUNNING
    outstanding: int = 0  # components that have not ended
    joining: int = 0  # how many of its last components are on their way with tasks that were spawned
    deadline: Time = 0.0  # when these must be there
    # What each component sends to other sites, as measured until so long after its start; or why nobody knows.
    sent: dict[int, tuple[float, float]] = NO_ENTRIES
    unmeasured: dict[int, str] = NO_ENTRIES
    workspaces: dict[int, Token] = NO_ENTRIES  # by component with outputs, what it ran as, once it is done
    spawn_refused: tuple[tuple[str, ...], str] | None = None  # the tasks that it was refused last, and why

    @classmethod
    def opened(cls, before: Starting, at: float) -> Running:
        """The barrier has opened for all components."""
        return cls(before.placement, at, len(before.placement.claims))
