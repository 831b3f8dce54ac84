"""``UNWINDING``: a job that has run, and returns to its queue once every site has let go of it."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import HasBegun
from koala.core.life.running import Running
from koala.core.life.states import JobState


@encoded
class Unwinding(HasBegun):
    """A job whose places hold where its components ran; nothing is promised there any more."""

    state: ClassVar[JobState] = JobState.UNWINDING
    outstanding: int = 0  # components that have not ended

    @classmethod
    def aborted(cls, before: Running) -> Unwinding:
        """Enter when the run is over; nobody waits for components at a lost site."""
        claims = before.placement.claims
        outstanding = sum(claim is not None and not claim.fenced for claim in claims)
        return cls(before.placement, before.started_at, outstanding)
