"""Everything that decides, without clock, I/O or threads: ``Scheduler.handle(event) -> list[Command]``."""

from koala.core.lifecycle import State
from koala.core.scheduler import Scheduler
from koala.core.story import Explanation, StoryLine

__all__ = ["Explanation", "Scheduler", "State", "StoryLine"]
