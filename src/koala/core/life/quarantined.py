"""``QUARANTINED``: a job that was set aside after an error of our own, for an operator to inspect."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import encoded
from koala.core.life.phase import Phase
from koala.core.life.states import JobState


@encoded
class Quarantined(Phase):
    """Why the job was set aside."""

    state: ClassVar[JobState] = JobState.QUARANTINED
    why: str = ""
