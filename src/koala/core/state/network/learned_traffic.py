"""What jobs of one name were measured to send: so much is believed of the next one of that name.

Bounded in names and in jobs of a name, and forgotten by age.
"""

from __future__ import annotations

import msgspec

from koala.core.encoded import INFINITY
from koala.model.request import JobId

# So many names are known; the one of which nothing was measured for longest is forgotten first.
APPLICATIONS_LEARNED_MAX = 1_000
# So many jobs of a name count: the last ones.
LEARNED_JOBS_MAX = 8
# What was not measured again for so long is forgotten.
LEARNED_FORGOTTEN_S = 30 * 86_400.0


class LearnedApplication(msgspec.Struct, kw_only=True):
    """The bisection bandwidths of the last jobs of a name, by job, the last one last."""

    name: str
    measured_at: float
    bisections_bit_s: dict[JobId, float]
    number: int = 0  # its place among all that were measured, the last one last

    @property
    def mean_bit_s(self) -> float:
        """What is believed of the next one."""
        return sum(self.bisections_bit_s.values()) / len(self.bisections_bit_s)


class LearnedTraffic:
    """All names. ``believed`` is what the policies see of them."""

    def __init__(self, believed: dict[str, float]) -> None:
        self.applications: dict[str, LearnedApplication] = {}  # the one that was measured last comes last
        self.believed = believed
        self.changed: dict[str, None] = {}  # names of which something else is known than was written last
        self.measured = 0
        self.forget_at = INFINITY

    def learn(self, name: str, job: JobId, bisection_bit_s: float, now: float) -> None:
        """A job of that name sends so much; what was said of this job before does not count any more."""
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
        """Believe this of a name, as that of which something was measured last."""
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
