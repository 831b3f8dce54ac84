"""What the core believes of one site: its processors, who holds them, and whether it can be trusted."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from koala.core.encoded import Time, encoded
from koala.core.life.component import ComponentClaim
from koala.core.state.blame import SiteRecord
from koala.core.timers import Timer
from koala.model.grid import Site
from koala.model.messages import Token
from koala.model.nodes import NamedNode, NodeClass, NodePool
from koala.model.request import JobId, SiteName
from koala.policies.interface import quota_processors

# How much of what was said of an error is kept.
ERROR_CHARACTERS_MAX = 500
# So many users are remembered whose components start at a site, those of the last starts.
STARTERS_KEPT_MAX = 64


class Trust(enum.StrEnum):
    """Whether the site is used: a site with too many consecutive errors is not, then it is probed with one job."""

    USABLE = "usable"
    UNUSABLE = "unusable"
    PROBING = "probing"


class _SiteLinks:
    __slots__ = (
        "claims",
        "described_limit",
        "earmarked",
        "limit",
        "ours",
        "pool",
        "promised",
        "quota",
    )
    quota: float
    described_limit: int  # what the quota allows of the processors in the grid file
    limit: int  # what it allows of those that there are
    ours: int  # held by our claims, until their end is confirmed
    earmarked: int  # being freed by preemption, for a job that waits for them
    promised: int  # placed and not yet claimed
    claims: dict[str, ComponentClaim]
    pool: NodePool | None  # its free nodes, while nothing has changed since somebody asked


@encoded
class SiteBelief(_SiteLinks):
    """One site. What is encoded is what the grid file does not say and what does not follow from claims and jobs."""

    name: SiteName
    processors: int
    reported: bool = False  # whether the number of processors is the site's own word
    others: int = 0  # held by other users, as last reported
    trust: Trust = Trust.USABLE
    drained: bool = False
    drained_by: str = ""  # by whom and why, in words, as a wish has them
    errors: int = 0
    probe_job: JobId | None = None
    waiters: dict[JobId, int] = field(default_factory=dict)  # what is earmarked here for each job, first come first
    errors_of: dict[str, int] = field(default_factory=dict)  # those of the errors that were of jobs, by user
    started_by: dict[str, None] = field(default_factory=dict)  # users whose components start here, the last one last
    spared: bool = False  # whether it has its trust only as the errors are of one user's jobs, and others' start
    broken_by: dict[JobId, int] = field(
        default_factory=dict
    )  # those of the errors that were runs of a job that broke
    # Until when others hold what they hold, where plans are made: (due at, processors). Of the first the site tells
    # nothing, so that they count by a default walltime.
    releases: list[tuple[Time, int]] = field(default_factory=list)
    releases_told: list[tuple[Time, int]] = field(default_factory=list)
    last_error_of: str = ""  # whose component the last error was of, empty where it was of none
    last_error: str = ""  # what was said of the last error, if there was any since an operator resumed it
    silent_since: float | None = None  # since when it could not be reached, if it cannot
    silent_at: float = 0.0  # when that was last seen
    unfit: str = ""  # why it cannot be used as it is set up, in its own words, until it reports
    lost: str = ""  # why it was declared lost, until it has answered and has ended all that is fenced there
    record: SiteRecord = field(default_factory=SiteRecord)  # failures of applications that are held against it
    gained_processor_s: float = 0.0  # of components before their barrier, see ``JobCounts``
    wasted_processor_s: float = 0.0
    early_gained_processor_s: float = 0.0  # of these: of jobs that claimed before the times of their plans
    early_wasted_processor_s: float = 0.0
    gpu_s: float = 0.0  # of components from the start of their runs on
    machines: tuple[tuple[int, float, float], ...] = ()  # (processors, power, load), as measured
    nodes: tuple[NodeClass, ...] = ()  # as last reported; none where it does not tell
    named: tuple[NamedNode, ...] = ()  # those of kinds of which there are few, as last reported
    shown: dict[Token, None] = field(default_factory=dict)  # components whose share is not free in ``nodes``
    cooling: Timer | None = None  # set while it is unusable, until it is probed

    def bind(self, described: Site) -> None:
        """Take from the grid file what it says; nothing is claimed or promised."""
        if not self.reported:
            self.processors = described.processors
        self.quota = described.quota
        self.described_limit = quota_processors(described.processors, described.quota)
        self.limit = quota_processors(self.processors, described.quota)
        self.ours = self.earmarked = self.promised = 0
        self.claims = {}
        self.pool = None

    def stop_cooling(self) -> None:
        if self.cooling is not None:
            self.cooling.cancel()
            self.cooling = None

    def note_start(self, user: str) -> None:
        """A component of the user has reached the barrier: the site starts what it is given."""
        self.started_by.pop(user, None)
        self.started_by[user] = None
        if len(self.started_by) > STARTERS_KEPT_MAX:
            del self.started_by[next(iter(self.started_by))]

    def others_start(self, user: str) -> bool:
        """Whether components of anybody else start here, by the last word of theirs."""
        return any(other != user for other in self.started_by)

    def counting(self, by_user: Mapping[str, int], all_of_them: int) -> int:
        """How much of what is held against the site counts. What one user's jobs say, where those of others start,
        counts no more than what all others say, so that nobody alone takes a site from others."""
        loudest = max(by_user, key=by_user.__getitem__, default=None)
        if loudest is None or not self.others_start(loudest):
            return all_of_them
        rest = all_of_them - by_user[loudest]
        return rest + min(rest, by_user[loudest])

    @property
    def is_shut(self) -> bool:
        """Whether nothing new goes to the site, whatever is idle there."""
        if self.is_closed or self.trust is Trust.UNUSABLE:
            return True
        return self.trust is Trust.PROBING and self.probe_job is not None

    @property
    def is_closed(self) -> bool:
        """Whether nothing new goes there, however well it does."""
        return self.drained or self.lost != "" or self.silent_since is not None or self.unfit != ""

    @property
    def does_not_report(self) -> bool:
        """Whether its last call failed: it is silent, or says why it cannot be used."""
        return self.silent_since is not None or self.unfit != ""

    @property
    def free(self) -> int:
        """What nobody holds, within the quota; below zero when the site's own users went beyond it."""
        return self.limit - self.others - self.ours
