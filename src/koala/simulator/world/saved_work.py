"""The progress of a component of a job with checkpoints, and how much of it is saved.

Work is a fraction of the job's whole execution. Saved work at a site is available while the site is there.
"""

from __future__ import annotations

from koala.model.checkpoint import Checkpoint


class RunProgress:
    """One component from the start of its application on, with the fraction ``begun`` done before.

    ``full_s`` is the duration of the whole execution where it runs. After its end ``done`` is its progress and
    ``kept`` the saved part of it.
    """

    __slots__ = ("_checkpoint", "_since", "_started_at", "_stretched", "_work_s", "begun", "done", "full_s", "kept")

    def __init__(self, checkpoint: Checkpoint, begun: float, full_s: float, now: float) -> None:
        self._checkpoint = checkpoint
        self._started_at = self._since = now
        self._work_s = (1.0 - begun) * full_s
        self._stretched = 1.0
        self.full_s = full_s
        self.begun = self.kept = self.done = begun

    def goes_on(self, work_s: float, stretched: float, now: float) -> None:
        """Continue with this much work left, which takes this many times as long as it would alone."""
        self._work_s, self._stretched, self._since = work_s, stretched, now

    def save(self, now: float) -> None:
        """Save its state now, as requested."""
        self.kept = max(self.kept, self._done_at(now))

    def end(self, now: float) -> None:
        """End it: work since its last checkpoint is lost."""
        self.done = self._done_at(now)
        every_s = self._checkpoint.every_s
        if every_s is not None:
            since_last_s = (now - self._started_at) % every_s
            if since_last_s < now - self._started_at and self.full_s > 0.0:
                self.kept = max(self.kept, self.done - since_last_s / self._stretched / self.full_s)

    def left_s(self, now: float) -> float:
        """Return how long it still runs at this speed."""
        return max(0.0, self._work_s * self._stretched - (now - self._since))

    def _done_at(self, now: float) -> float:
        if self.full_s <= 0.0:
            return self.begun
        return max(self.begun, 1.0 - self.left_s(now) / self._stretched / self.full_s)
