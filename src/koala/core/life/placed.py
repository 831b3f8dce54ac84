"""``PLACED``: a job with places, none of them claimed."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import AwaitsClaims
from koala.core.life.states import JobState


@encoded
class Placed(AwaitsClaims):
    """The job stands in the claiming queue, unless everything can be claimed at once."""

    state: ClassVar[JobState] = JobState.PLACED
