"""``STARTING``: a job whose components are all claimed, and come to the barrier."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import Time, encoded
from koala.core.life.phase import AwaitsClaims, BeforeBarrier
from koala.core.life.states import JobState


@encoded
class Starting(BeforeBarrier):
    """When those must be there that are claimed."""

    state: ClassVar[JobState] = JobState.STARTING
    deadline: Time = 0.0

    @classmethod
    def all_claimed(cls, before: AwaitsClaims, deadline: float) -> Starting:
        """Every component is claimed; what is kept from early claims has less time."""
        until = before.early_until
        return cls(before.placement, until, deadline if until is None else min(deadline, until))
