"""``COLLECTING``: a finished job whose outputs its sites take in. It holds no processors."""

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
    """The outputs to collect, and those collected."""

    state: ClassVar[JobState] = JobState.COLLECTING
    workspaces: dict[int, Token] = NO_ENTRIES  # by component with outputs: the token of its run
    collected: dict[int, tuple[MadeOutput, ...]] = NO_ENTRIES
    tries: int = 0

    @classmethod
    def through(cls, before: Running) -> Collecting:
        """Enter after every component has returned success."""
        return cls(before.placement, before.started_at, before.workspaces)
