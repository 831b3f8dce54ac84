"""``HELD``: a job that waits for other jobs, for its start time, or for a release."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import Phase
from koala.core.life.states import JobState


@encoded
class Held(Phase):
    """A job that is kept back. The reasons outlive the phase, as a job may be held while it waits for its
    sites: see ``Job``."""

    state: ClassVar[JobState] = JobState.HELD
