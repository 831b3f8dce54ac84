"""Everything that decides, without clock, I/O or threads: ``Scheduler.handle(event) -> Turn``."""

from koala.core.lifecycle import HandlingError, JobState
from koala.core.scheduler import Scheduler
from koala.core.state.snapshots.snapshot import (
    Snapshot,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    job_numbers,
    join_snapshot,
    split_snapshot,
)
from koala.core.story import JobExplanation, StoryEntry

__all__ = [
    "HandlingError",
    "JobExplanation",
    "JobState",
    "Scheduler",
    "Snapshot",
    "SnapshotError",
    "StoryEntry",
    "decode_snapshot",
    "encode_snapshot",
    "job_numbers",
    "join_snapshot",
    "split_snapshot",
]
