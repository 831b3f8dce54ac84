"""``STARTING``: a job whose components are all claimed, and are coming to the barrier."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import Time, encoded
from koala.core.life.phase import AwaitsClaims, BeforeBarrier
from koala.core.life.states import JobState


@encoded
class Starting(BeforeBarrier):
    """The time by which the claimed components must be there."""

    state: ClassVar[JobState] = JobState.STARTING
    deadline: Time = 0.0

    @classmethod
    def all_claimed(cls, before: AwaitsClaims, deadline: float) -> Starting:
        """Enter with every component claimed; components kept from early claims have less time."""
        until = before.early_until
        return cls(before.placement, until, deadline if until is None else min(deadline, until))
