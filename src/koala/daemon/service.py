"""Everything that callers may ask of the daemon: one object behind the API and the dashboard alike.

Each call says who asks. Rights are checked here and nowhere else, so that no door is wider than another: without
``operate`` a caller sees and cancels only its own jobs, and those of others do not exist for it. Every call raises a
``ServiceError`` when it is not carried out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from koala.daemon.principal import Principal
from koala.wire import (
    DryRun,
    Explanation,
    FileInfo,
    Forgetting,
    JobDetail,
    JobSummary,
    JournalEntry,
    Output,
    Overview,
    Page,
    Registration,
    Replication,
    SiteHistory,
    SiteInfo,
    Submission,
    Submitted,
)


class Service:
    """The daemon as its callers see it."""

    # ------------------------------------------------------------------------------------------- jobs

    async def submit(self, who: Principal, wish: Submission) -> Submitted:
        """Put a job on record; when this returns it is durable. Needs ``submit``."""
        raise NotImplementedError

    async def dry_run(self, who: Principal, wish: Submission) -> DryRun:
        """Where the job would go now. Needs ``submit`` or ``read``; changes nothing."""
        raise NotImplementedError

    async def jobs(
        self,
        who: Principal,
        *,
        states: frozenset[str] = frozenset(),
        owner: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[JobSummary]:
        """The newest jobs first, those that have ended included. Needs ``read``."""
        raise NotImplementedError

    async def job(self, who: Principal, job: int) -> JobDetail:
        """One job. Needs ``read``."""
        raise NotImplementedError

    async def explain(self, who: Principal, job: int) -> Explanation:
        """Where the job stands and why, or its whole story. Needs ``read``."""
        raise NotImplementedError

    async def wait(self, who: Principal, job: int, timeout_s: float) -> JobSummary:
        """The job when it has ended, or as it is after the timeout. Needs ``read``."""
        raise NotImplementedError

    async def cancel(self, who: Principal, job: int) -> JobSummary:
        """Ask for the job's end; when this returns the wish is durable. Needs ``submit``, and ``operate`` for a job
        of somebody else. Cancelling a job that has ended changes nothing."""
        raise NotImplementedError

    async def output(
        self,
        who: Principal,
        job: int,
        *,
        part: int = 0,
        run: int | None = None,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65_536,
    ) -> Output:
        """What a component wrote: in the job's last run, or in run 1, 2, ... (a run is one opening of the barrier; the
        last run includes one whose barrier has not opened yet). Needs ``read``."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ the grid

    async def overview(self, who: Principal) -> Overview:
        """The whole grid now; jobs of others are left out for those who may not see them. Needs ``read``."""
        raise NotImplementedError

    async def sites(self, who: Principal) -> list[SiteInfo]:
        """All sites. Needs ``read``."""
        raise NotImplementedError

    async def history(self, who: Principal, site: str, from_at: float, to_at: float) -> SiteHistory:
        """Who held the site's processors over a stretch of time. Needs ``read``."""
        raise NotImplementedError

    async def drain(self, who: Principal, site: str) -> SiteInfo:
        """Send nothing new to the site. Needs ``operate``."""
        raise NotImplementedError

    async def resume(self, who: Principal, site: str) -> SiteInfo:
        """Use the site again and forget its errors. Needs ``operate``."""
        raise NotImplementedError

    async def probe(self, who: Principal, site: str) -> SiteInfo:
        """Ask the site for its state now. Needs ``operate``."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------- files

    async def files(
        self, who: Principal, *, limit: int = 100, cursor: str | None = None, prefix: str = ""
    ) -> Page[FileInfo]:
        """The replica catalogue by name. Needs ``read``."""
        raise NotImplementedError

    async def file(self, who: Principal, name: str) -> FileInfo:
        """One file. Needs ``read``."""
        raise NotImplementedError

    async def register(self, who: Principal, wish: Registration) -> FileInfo:
        """A new file with its first replica, or another replica of a known one: from a path (only the daemon's own
        user, since the daemon reads it with its own rights) or a URL. Needs ``operate``."""
        raise NotImplementedError

    async def replicate(self, who: Principal, wish: Replication) -> FileInfo:
        """Copy a replica to one more site; returns when it is there. Needs ``operate``."""
        raise NotImplementedError

    async def forget(self, who: Principal, wish: Forgetting) -> None:
        """Forget a replica or a file; what running jobs read of it stays until they end. Needs ``operate``."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ journal

    async def journal(
        self, who: Principal, *, after: int = 0, limit: int = 100, job: int | None = None
    ) -> list[JournalEntry]:
        """What happened, oldest first, from the entry after ``after`` on. Needs ``read``."""
        raise NotImplementedError

    def follow(
        self, who: Principal, *, after: int | None = None, job: int | None = None
    ) -> AsyncIterator[JournalEntry]:
        """The journal from the entry after ``after`` on (None: from now on), without an end. A reader that falls
        behind reads from the store what it missed, so nothing is left out. Needs ``read``."""
        raise NotImplementedError

    @property
    def last_seq(self) -> int:
        """The number of the newest entry in the journal."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- health

    @property
    def failure(self) -> str:
        """Why the daemon cannot work at present; empty while it can."""
        raise NotImplementedError
