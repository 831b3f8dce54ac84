"""``DONE``, ``FAILED``, ``CANCELLED``: a job that is over."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import BeforeBarrier, HasBegun, Phase
from koala.core.life.places import JobPlaces
from koala.core.life.states import JobState


@encoded
class Ended(Phase):
    """When and why the job ended, and where its components were then."""

    has_places: ClassVar[bool] = True
    ended_at: float
    why: str = ""
    placement: JobPlaces | None = None
    started_at: float | None = None  # of its last run
    early_until: float | None = None  # set if what sites still hold of it was claimed early


@encoded
class Done(Ended):
    """Every component has returned success."""

    state: ClassVar[JobState] = JobState.DONE


@encoded
class Failed(Ended):
    """The job cannot go on."""

    state: ClassVar[JobState] = JobState.FAILED


@encoded
class Cancelled(Ended):
    """Somebody ended the job, or what it waited for can never come."""

    state: ClassVar[JobState] = JobState.CANCELLED


def ended(before: Phase, end: type[Ended], at: float, why: str) -> Ended:
    """Return the end that follows a phase."""
    return end(
        at,
        why,
        before.placement if before.has_places else None,
        before.started_at if isinstance(before, HasBegun) else None,
        before.early_until if isinstance(before, BeforeBarrier) else None,
    )
