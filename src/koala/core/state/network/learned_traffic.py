"""The measured traffic of jobs of one name, which is believed of the next job of that name.

Names and jobs of a name are limited, and old measurements are forgotten.
"""

from __future__ import annotations

import msgspec

from koala.core.encoded import INFINITY
from koala.model.request import JobId

# At most this many names are kept; the name with the oldest last measurement is forgotten first.
APPLICATIONS_LEARNED_MAX = 1_000
# This many jobs of a name count: the last ones.
LEARNED_JOBS_MAX = 8
# A measurement that is not renewed within this time is forgotten.
LEARNED_FORGOTTEN_S = 30 * 86_400.0


class LearnedApplication(msgspec.Struct, kw_only=True):
    """The bisection bandwidths of the last jobs of a name, by job, the latest last."""

    name: str
    measured_at: float
    bisections_bit_s: dict[JobId, float]
    number: int = 0  # its place among all measured names, the latest last

    @property
    def mean_bit_s(self) -> float:
        """The belief about the next job of the name."""
        return sum(self.bisections_bit_s.values()) / len(self.bisections_bit_s)


class LearnedTraffic:
    """All names. ``believed`` is what the policies see of them."""

    def __init__(self, believed: dict[str, float]) -> None:
        self.applications: dict[str, LearnedApplication] = {}  # the name with the latest measurement comes last
        self.believed = believed
        self.changed: dict[str, None] = {}  # names whose data has changed since the last write
        self.measured = 0
        self.forget_at = INFINITY

    def learn(self, name: str, job: JobId, bisection_bit_s: float, now: float) -> None:
        """Learn the traffic of a job of that name; it replaces earlier measurements of this job."""
        known = self.applications.pop(name, None)
        if known is None:
            known = LearnedApplication(name=name, measured_at=now, bisections_bit_s={})
        known.measured_at = now
        known.bisections_bit_s.pop(job, None)
        known.bisections_bit_s[job] = bisection_bit_s
        if len(known.bisections_bit_s) > LEARNED_JOBS_MAX:
            del known.bisections_bit_s[next(iter(known.bisections_bit_s))]
        self.measured += 1
        known.number = self.measured
        self.changed[name] = None
        self.put(known)

    def put(self, known: LearnedApplication) -> None:
        """Restore a name, as the latest measured."""
        self.applications[known.name] = known
        self.believed[known.name] = known.mean_bit_s
        if len(self.applications) > APPLICATIONS_LEARNED_MAX:
            self._forget_first()
        self._look_later()

    def forget_old(self, now: float) -> None:
        """Forget what is too old to be believed."""
        while self.applications and next(iter(self.applications.values())).measured_at + LEARNED_FORGOTTEN_S <= now:
            self._forget_first()
        self._look_later()

    def _forget_first(self) -> None:
        name = next(iter(self.applications))
        del self.applications[name], self.believed[name]
        self.changed[name] = None

    def _look_later(self) -> None:
        first = next(iter(self.applications.values()), None)
        self.forget_at = INFINITY if first is None else first.measured_at + LEARNED_FORGOTTEN_S
