"""A site's own users, and the controller that injects and kills dummy jobs to hold their load inside a band: that of
each site, or that of the whole grid.

The world owns time: it notifies the background of due events and lets the site's scheduler start its jobs. Dummies
never take processors from a queue: they are injected only into idle ones that no job waits for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal

from koala.model.grid import Background, BandOver, Grid
from koala.model.messages import SiteReported
from koala.model.request import SiteName
from koala.policies.interface import quota_processors
from koala.simulator.workloads.draws import exponential, geometric, stream
from koala.simulator.world.delivery import Delivery
from koala.simulator.world.event_heap import SITE_REPORTS, USER_JOB_ARRIVES, USER_JOB_ENDS, EventHeap
from koala.simulator.world.overload import UsersLoad
from koala.simulator.world.site import SimulatedSite, UserJob


class SiteBackground:
    """The load of other users on one site."""

    __slots__ = (
        "_band",
        "_parameters",
        "_rng",
        "interarrival_s",
        "queued",
        "reported",
        "site",
    )

    def __init__(
        self, site: SimulatedSite, parameters: Background, rng: random.Random, band: _GridBand | None = None
    ) -> None:
        self.site = site
        self._parameters = parameters
        self._rng = rng
        self._band = _SiteBand(site, parameters) if band is None else band
        offered = parameters.user_load * site.processors
        work_s = parameters.user_size_mean * parameters.user_execution_mean_s
        self.interarrival_s: float | None = work_s / offered if offered > 0.0 else None
        self.queued = 0  # processors that waiting users want
        self.reported: tuple[int, tuple[tuple[float, int], ...]] = (0, ())  # the last report about the others

    def told(self, report: SiteReported) -> None:
        """Record a report to the scheduler."""
        self.reported = report.others, report.releases

    def next_gap_s(self) -> float:
        """Return the time until the next user comes."""
        assert self.interarrival_s is not None
        return exponential(self._rng, self.interarrival_s)

    def next_job(self) -> UserJob:
        """Return what the next user submits: at least one processor, at most the whole site."""
        processors = min(self.site.installed, geometric(self._rng, self._parameters.user_size_mean))
        return UserJob(self.site, processors, exponential(self._rng, self._parameters.user_execution_mean_s))

    def control(self, now: float) -> None:
        """Inject or kill dummies so that users and dummies together stay in the band, as far as possible.

        Waiting users count as load: dummies make room for them instead of blocking them.
        """
        self._band.control(self, now)

    @property
    def users(self) -> int:
        """Processors that users hold or wait for."""
        return self.site.users + self.queued


class _SiteBand:
    """The band of one site."""

    __slots__ = ("_high", "_low")

    def __init__(self, site: SimulatedSite, parameters: Background) -> None:
        # Computed on the fractions as they were written: 0.07 of 100 processors is 7, not 8.
        self._low = math.ceil(Decimal(repr(float(parameters.band_low))) * site.processors)
        self._high = max(self._low, quota_processors(site.processors, parameters.band_high))

    def control(self, here: SiteBackground, now: float) -> None:
        site = here.site
        if site.down:
            return
        load = here.users + site.dummies
        if load > self._high and site.dummies:
            site.set_dummies(site.dummies - min(site.dummies, load - self._high), now)
        elif load < self._low and site.idle and not site.queue:
            site.set_dummies(site.dummies + min(site.idle, self._low - load), now)


class _GridBand:
    """One band for all sites together. If users wait, dummies of their site make room; then dummies come and go
    anywhere: they leave where they are the largest share of a site, and come where other users have the smallest."""

    __slots__ = ("_members", "_serve")

    def __init__(self, serve: Callable[[SimulatedSite, float], None]) -> None:
        self._serve = serve
        self._members: list[tuple[SiteBackground, Decimal, Decimal]] = []  # with the processors of its band's ends

    def add(self, background: SiteBackground, parameters: Background) -> None:
        processors = background.site.processors
        low, high = (Decimal(repr(float(end))) * processors for end in (parameters.band_low, parameters.band_high))
        self._members.append((background, low, high))

    def control(self, here: SiteBackground, now: float) -> None:
        up = [each for each in self._members if not each[0].site.down]
        changed: dict[SiteName, SimulatedSite] = {}
        room = min(here.queued - here.site.idle, here.site.dummies)
        if room > 0:
            self._change(here.site, -room, now, changed)
        low = math.ceil(sum((each[1] for each in up), Decimal(0)))
        high = max(low, math.floor(sum((each[2] for each in up), Decimal(0))))
        sites = [background.site for background, _, _ in up]
        load = sum(background.users + background.site.dummies for background, _, _ in up)
        while load > high and any(site.dummies for site in sites):
            most = max(sites, key=lambda site: site.dummies / site.installed)
            load -= 1
            self._change(most, -1, now, changed)
        while load < low:
            open_to = [each for each, _, _ in up if each.site.idle and not each.site.queue and not each.queued]
            if not open_to:
                break
            least = min(open_to, key=lambda each: (each.users + each.site.dummies) / each.site.installed)
            load += 1
            self._change(least.site, 1, now, changed)
        changed.pop(here.site.name, None)  # the caller serves it
        for site in changed.values():
            self._serve(site, now)

    def _change(self, site: SimulatedSite, by: int, now: float, changed: dict[SiteName, SimulatedSite]) -> None:
        site.set_dummies(site.dummies + by, now)
        changed[site.name] = site


def users_stream(seed: int, site: SiteName) -> random.Random:
    """Return the random numbers for the users of a site: the gap before the first, then each one's job and the gap
    after it.

    >>> from koala.simulator import users_stream
    >>> users_stream(1, "delft").random() == users_stream(1, "leiden").random()
    False
    """
    return stream(seed, "background", site)


class BackgroundControl:
    """The users of all sites: their arrivals and ends, and the sites' reports about them.

    ``serve`` lets a site's scheduler start what it can; it is the world's, since our components wait there too.
    """

    __slots__ = ("_delivery", "_event_heap", "_report_interval_s", "_serve", "by_site", "load")

    def __init__(
        self,
        grid: Grid,
        sites: dict[str, SimulatedSite],
        seed: int,
        event_heap: EventHeap,
        delivery: Delivery,
        serve: Callable[[SimulatedSite, float], None],
    ) -> None:
        self._event_heap = event_heap
        self._delivery = delivery
        self._report_interval_s = grid.simulation.report_interval_s
        self._serve = serve
        self.load = UsersLoad(grid.sites)
        self.by_site: dict[str, SiteBackground] = {}
        shared = _GridBand(serve) if grid.simulation.background_band is BandOver.GRID else None
        for site in grid.sites:
            parameters = site.simulation.background
            if parameters is not None:
                simulated = sites[site.name]
                rng = users_stream(seed if parameters.seed is None else parameters.seed, site.name)
                background = SiteBackground(simulated, parameters, rng, shared)
                self.by_site[site.name] = background
                if shared is not None:
                    shared.add(background, parameters)

    def open(self) -> None:
        """Begin at time zero: the first dummies, the first users on their way, the first reports."""
        for background in self.by_site.values():
            if background.interarrival_s is not None:
                self._event_heap.add(background.next_gap_s(), USER_JOB_ARRIVES, background)
            background.control(0.0)
            self._event_heap.add(0.0, SITE_REPORTS, background)

    def user_arrives(self, background: SiteBackground, sequence: int, at: float) -> None:
        """Submit a user's job, unless the site is down, and schedule the next user."""
        job = background.next_job()
        site = background.site
        if not site.down:
            self.load.arrives(site.name, job.processors, job.walltime_s, at)
            background.queued += job.processors
            background.control(at)  # dummies make room first
            if site.submit(job, at):
                self.began(job, at)
            self._serve(site, at)
        self._event_heap.add(at + background.next_gap_s(), USER_JOB_ARRIVES, background)

    def began(self, job: UserJob, now: float) -> None:
        """Record that a user's job has received its processors."""
        self.by_site[job.site.name].queued -= job.processors
        job.timer = self._event_heap.add(now + job.walltime_s, USER_JOB_ENDS, job)

    def user_ends(self, job: UserJob, sequence: int, at: float) -> None:
        """End a user's job, unless an outage already took it."""
        if job.timer == sequence:
            job.timer = 0
            job.site.release(job, at)
            self._serve(job.site, at)

    def report_changes(self, background: SiteBackground, now: float) -> None:
        """Report to the scheduler at once, where sites report every change."""
        if self._report_interval_s <= 0.0:
            self._report(background, now)

    def site_reports(self, background: SiteBackground, sequence: int, at: float) -> None:
        """Send a site's periodic report, unless nothing changed."""
        self._report(background, at)
        if self._report_interval_s > 0.0:
            self._event_heap.add(at + self._report_interval_s, SITE_REPORTS, background)

    def _report(self, background: SiteBackground, now: float) -> None:
        site = background.site
        if not site.is_reachable or not (site.tells_ends or site.others != background.reported[0]):
            return
        report = site.report(now)
        if (report.others, report.releases) != background.reported:
            background.told(report)
            self._delivery.tell(report)
