"""``COLLECTING``: a job that is through, and whose outputs its sites take in. It holds no processors."""

from __future__ import annotations

from typing import ClassVar

from koala.core.encoded import NO_ENTRIES, encoded
from koala.core.life.phase import HasBegun
from koala.core.life.running import Running
from koala.core.life.states import JobState
from koala.model.messages import Token
from koala.model.outputs import MadeOutput


@encoded
class Collecting(HasBegun):
    """What is to be collected, and what was."""

    state: ClassVar[JobState] = JobState.COLLECTING
    workspaces: dict[int, Token] = NO_ENTRIES  # by component with outputs, what it ran as
    collected: dict[int, tuple[MadeOutput, ...]] = NO_ENTRIES
    tries: int = 0

    @classmethod
    def through(cls, before: Running) -> Collecting:
        """Every component has returned success."""
        return cls(before.placement, before.started_at, before.workspaces)
