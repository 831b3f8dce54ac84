"""``CLAIMING``: a job with some of its components claimed."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import AwaitsClaims
from koala.core.life.placed import Placed
from koala.core.life.starting import Starting
from koala.core.life.states import JobState


@encoded
class Claiming(AwaitsClaims):
    """The job stands in the claiming queue for the rest."""

    state: ClassVar[JobState] = JobState.CLAIMING

    @classmethod
    def some(cls, before: Placed) -> Claiming:
        """Enter after some components were claimed."""
        return cls(
            before.placement,
            before.early_until,
            before.claim_at,
            before.claim_sequence,
            before.claim_resumed,
            before.earmarks,
        )

    @classmethod
    def once_more(cls, before: Starting) -> Claiming:
        """Return here when a site did not take a component, which must be claimed again."""
        return cls(before.placement, before.early_until)
