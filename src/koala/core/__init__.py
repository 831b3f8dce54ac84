"""Everything that decides, without clock, I/O or threads: ``Scheduler.handle(event) -> list[Command]``."""

from koala.core.lifecycle import JobState
from koala.core.scheduler import Scheduler
from koala.core.state.snapshot import Books, SnapshotError, decode_books, encode_books
from koala.core.story import JobExplanation, StoryEntry

__all__ = [
    "Books",
    "JobExplanation",
    "JobState",
    "Scheduler",
    "SnapshotError",
    "StoryEntry",
    "decode_books",
    "encode_books",
]
