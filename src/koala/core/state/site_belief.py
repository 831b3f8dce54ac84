"""What the core believes of one site: its processors, their holders, and whether the site can be trusted."""

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

# An error text is cut to this many characters.
ERROR_CHARACTERS_MAX = 500
# At most this many users with components that start at a site are remembered, those of the last starts.
STARTERS_KEPT_MAX = 64


class Trust(enum.StrEnum):
    """The use of a site: too many consecutive errors make it unusable, then it is probed with one job."""

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
    described_limit: int  # the quota applied to the processors in the grid file
    limit: int  # the quota applied to the existing processors
    ours: int  # held by our claims, until their end is confirmed
    earmarked: int  # being freed by preemption, for a job that waits for them
    promised: int  # placed and not yet claimed
    claims: dict[str, ComponentClaim]
    pool: NodePool | None  # its free nodes, cached until something changes


@encoded
class SiteBelief(_SiteLinks):
    """One site. Its fields hold what does not follow from the grid file, claims and jobs."""

    name: SiteName
    processors: int
    reported: bool = False  # True if the site itself reported the number of processors
    others: int = 0  # held by other users, as last reported
    trust: Trust = Trust.USABLE
    drained: bool = False
    drained_by: str = ""  # by whom and why, in words, as a wish has them
    errors: int = 0
    probe_job: JobId | None = None
    waiters: dict[JobId, int] = field(default_factory=dict)  # what is earmarked here for each job, first come first
    errors_of: dict[str, int] = field(default_factory=dict)  # the errors that jobs had, by user
    started_by: dict[str, None] = field(default_factory=dict)  # users whose components start here, the last one last
    spared: bool = False  # True if it is trusted only because its errors are one user's, and others' jobs start
    broken_by: dict[JobId, int] = field(default_factory=dict)  # the errors that were runs of a job that broke
    # Until when others hold processors, where plans are made: (due at, processors). The site reports no end of the
    # first ones, so that they count by a default walltime.
    releases: list[tuple[Time, int]] = field(default_factory=list)
    releases_told: list[tuple[Time, int]] = field(default_factory=list)
    last_error_of: str = ""  # whose component had the last error, empty if none had
    last_error: str = ""  # the text of the last error, if there was any since an operator resumed it
    silent_since: float | None = None  # since when it could not be reached, if it cannot
    silent_at: float = 0.0  # when that was last observed
    unfit: str = ""  # why it cannot be used as it is set up, in its own words, until it reports
    lost: str = ""  # why it was declared lost, until it has answered and has ended all that is fenced there
    record: SiteRecord = field(default_factory=SiteRecord)  # evidence of failed applications against it
    gained_processor_s: float = 0.0  # of components before their barrier, see ``JobCounts``
    wasted_processor_s: float = 0.0
    early_gained_processor_s: float = 0.0  # the part from jobs that claimed before their planned starts
    early_wasted_processor_s: float = 0.0
    gpu_s: float = 0.0  # of components from the start of their runs on
    machines: tuple[tuple[int, float, float], ...] = ()  # (processors, power, load), as measured
    nodes: tuple[NodeClass, ...] = ()  # as last reported; empty if it does not report them
    named: tuple[NamedNode, ...] = ()  # nodes of rare kinds, as last reported
    shown: dict[Token, None] = field(default_factory=dict)  # components whose share is not free in ``nodes``
    cooling: Timer | None = None  # set while it is unusable, until it is probed

    def bind(self, described: Site) -> None:
        """Take the values from the grid file; nothing is claimed or promised."""
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
        """Note that a component of the user has reached the barrier: the site starts its components."""
        self.started_by.pop(user, None)
        self.started_by[user] = None
        if len(self.started_by) > STARTERS_KEPT_MAX:
            del self.started_by[next(iter(self.started_by))]

    def others_start(self, user: str) -> bool:
        """Return True if, as last observed, components of other users start here."""
        return any(other != user for other in self.started_by)

    def counting(self, by_user: Mapping[str, int], all_of_them: int) -> int:
        """Return how much of the evidence against the site counts.

        If other users' components start there, evidence of one user counts no more than that of all others together,
        so that nobody alone takes a site from others.
        """
        loudest = max(by_user, key=by_user.__getitem__, default=None)
        if loudest is None or not self.others_start(loudest):
            return all_of_them
        rest = all_of_them - by_user[loudest]
        return rest + min(rest, by_user[loudest])

    @property
    def is_shut(self) -> bool:
        """True if nothing new goes to the site, whatever is idle there."""
        if self.is_closed or self.trust is Trust.UNUSABLE:
            return True
        return self.trust is Trust.PROBING and self.probe_job is not None

    @property
    def is_closed(self) -> bool:
        """True if nothing new goes there, however well it works."""
        return self.drained or self.lost != "" or self.silent_since is not None or self.unfit != ""

    @property
    def does_not_report(self) -> bool:
        """True if its last call failed: it is silent, or reports why it cannot be used."""
        return self.silent_since is not None or self.unfit != ""

    @property
    def free(self) -> int:
        """The processors that nobody holds, within the quota; below zero if the site's own users exceed it."""
        return self.limit - self.others - self.ours
