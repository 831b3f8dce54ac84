"""One file, or one piece of it, that is brought to a site for the jobs that need it there."""

from __future__ import annotations

from koala.core.state.timers import Timer
from koala.model.messages import TransferId
from koala.model.request import JobId

Key = tuple[str, tuple[int, int] | None, int]


# A transfer that is late is never believed to be there at once.
LATE_S_MIN = 1.0


class FileTransfer:
    """One file, or one piece of it, on its way to one site, or there already."""

    __slots__ = (
        "done",
        "estimate_s",
        "failed_sources",
        "id",
        "jobs",
        "key",
        "size_bytes",
        "source",
        "started_at",
        "timer",
        "tries",
    )

    def __init__(self, key: Key, size_bytes: int) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self.id: TransferId = ""
        self.source = -1
        self.started_at = 0.0
        self.estimate_s = 0.0
        self.jobs: dict[JobId, None] = {}  # in the order in which they came
        self.done = False
        self.tries = 0
        self.failed_sources: set[int] = set()
        self.timer: Timer | None = None

    def remaining_s(self, now: float) -> float:
        """How long it will still take: as estimated, or, once it is late, as long again as it is late by now."""
        if self.done:
            return 0.0
        remaining_s = self.started_at + self.estimate_s - now
        return remaining_s if remaining_s >= 0.0 else max(LATE_S_MIN, -remaining_s)
