"""A file on its way to a site."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from koala.core.encoded import Time, encoded
from koala.core.timers import Timer
from koala.model.messages import TransferId
from koala.model.request import JobId

# A transfer that is late is never believed to be there at once.
LATE_S_MIN = 1.0

# A file, the piece of it (offset and size in bytes; None for all of it), and the index of the site that needs it.
TransferKey: TypeAlias = tuple[str, tuple[int, int] | None, int]


@encoded
class FileTransfer:
    """One file, or one piece of it, on its way to one site for the jobs that need it there, or there already."""

    key: TransferKey
    size_bytes: int
    id: TransferId = ""
    source: int = -1
    started_at: float = 0.0
    estimate_s: Time = 0.0
    jobs: dict[JobId, None] = field(default_factory=dict)  # in the order in which they came
    done: bool = False
    tries: int = 0
    failed_sources: list[int] = field(default_factory=list)
    timer: Timer | None = None

    def remaining_s(self, now: float) -> float:
        """How long it will still take: as estimated, or, once it is late, as long again as it is late by now."""
        if self.done:
            return 0.0
        remaining_s = self.started_at + self.estimate_s - now
        return remaining_s if remaining_s >= 0.0 else max(LATE_S_MIN, -remaining_s)
