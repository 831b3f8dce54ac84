"""Where a job goes after failures: it avoids sites where a run failed or that have no nodes left for its program, as
long as there is another way.

There is another way when the job's policy would place it without the avoided sites if all usable processors were
idle. The avoided sites are barred in the job's demand while it waits, and no longer: the memory of a failure ends
after ``avoid_failed_s``, and earlier where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from koala.core.failures.exclusions import NodeExclusions
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.core.timers import Alarm
from koala.model.facts import JobRests, SitesAvoided
from koala.model.grid import RESTART_REST_S_MAX, RESTARTS_WITHOUT_REST_MAX
from koala.model.messages import ComponentEnded
from koala.model.request import JobId, Request, SiteName
from koala.policies.interface import Demand, DemandKey, can_ever_fit

# A job avoids at most this many sites: those of its last failures.
AVOIDED_MAX = 16
# The question is a demand and the sites to avoid; the answer is the sites that can be avoided, and the demand without
# them.
Question: TypeAlias = tuple[DemandKey, tuple[SiteName, ...]]
Way: TypeAlias = tuple[tuple[SiteName, ...], Demand]
# A rest is doubled at most this often: by then it has long reached its bound.
_DOUBLINGS_MAX = 30
_REST_S = 1.0  # the first rest of a job that restarted very often, where the grid sets no rests


class SiteAvoidance:
    """The sites that jobs avoid, and their rests before they are placed again."""

    def __init__(self, ledger: Ledger, exclusions: NodeExclusions) -> None:
        self.ledger = ledger
        self.exclusions = exclusions
        ledger.follow_ups.on(Work.REVIEW_SITES, self._review)
        ledger.timers.on(Alarm.RESTED, self._rested)
        ledger.timers.on(Alarm.AVOIDED, self._avoided_long)

    def failed_at(self, job: Job, site: SiteName) -> None:
        """Note that a run of the job failed at the site: its restart rests, and goes elsewhere if it can."""
        parameters = self.ledger.parameters
        if parameters.avoid_failed_s > 0:
            job.avoided.pop(site, None)
            job.avoided = {**job.avoided, site: self.ledger.now + parameters.avoid_failed_s}
            while len(job.avoided) > AVOIDED_MAX:
                del job.avoided[next(iter(job.avoided))]
            self.ledger.avoiders[job.id] = None
        self.rest(job)

    def rest(self, job: Job) -> None:
        """Have the failed job rest before it is placed again, twice as long each time."""
        least_s, doublings = self.ledger.parameters.restart_rest_s, job.restart_rests
        job.restart_rests += 1
        if least_s == 0 and doublings >= RESTARTS_WITHOUT_REST_MAX:
            least_s, doublings = _REST_S, doublings - RESTARTS_WITHOUT_REST_MAX
        longest_s = max(least_s, RESTART_REST_S_MAX)
        job.rest_s = min(least_s * 2.0 ** min(doublings, _DOUBLINGS_MAX), longest_s)

    def enqueue(self, job: Job) -> None:
        """Queue the job again, after its rest if it has one, and away from the sites where it failed if possible."""
        ledger = self.ledger
        rest_s, job.rest_s = job.rest_s, 0.0
        self.choose(job)
        ledger.enqueue(job, tried=False, rest_s=rest_s)
        if rest_s > 0:
            ledger.story.append(JobRests(job=job.id, rest_s=rest_s))
        self.watch(job)

    def _review(self, *_: None) -> None:
        """Choose again for waiting jobs: sites or nodes were taken out or put back, so ways may have
        opened or closed."""
        ledger = self.ledger
        ways: dict[Question, Way] = {}  # failing jobs are often alike
        concerned = dict.fromkeys(job.id for job in self.exclusions.concerned()) if self.exclusions.some else {}
        for job_id in sorted({**ledger.avoiders, **concerned}):
            job = ledger.jobs.get(job_id)
            if job is None or not (job.avoided or job.avoiding or job_id in concerned):
                del ledger.avoiders[job_id]
            elif job.state is JobState.WAITING:
                ledger.current_jobs = (job,)
                self.choose(job, ways)
                self.watch(job)
        ledger.current_jobs = ()

    def choose(self, job: Job, ways: dict[Question, Way] | None = None) -> None:
        """Have the job avoid as many of its sites as leave another way.

        Sites proved to be closed to it come first, then the sites of its last failures. ``ways`` caches
        the latest answers.
        """
        ledger = self.ledger
        for site in [site for site, until in job.avoided.items() if until <= ledger.now]:
            del job.avoided[site]
        closed = [ledger.names[index] for index in self.exclusions.closed_to(job)]
        if not job.avoided and not job.avoiding and not closed:
            return
        demand = job.demand.allowing(ledger.index[site] for site in job.avoiding)
        proved = [ledger.names[index] for index in self.exclusions.closed_to(job, own=False)] if closed else []
        failed = [site for site in job.avoided if site not in proved]  # its own failures on their nodes are no proof
        sites = [*failed, *(site for site in closed if site not in failed and site not in proved), *proved]
        # A permanent bar does not depend on another way, and is not lifted together with what the job avoids.
        question = demand.key, tuple([site for site in sites if ledger.index[site] not in demand.barred])
        ways = {} if ways is None else ways
        if question not in ways:
            ways[question] = self._way_without(demand, question[1])
        avoiding, demand = ways[question]
        if avoiding != job.avoiding:
            job.avoiding = avoiding
            ledger.avoiders[job.id] = None
            ledger.change_demand(job, demand)
            shut = tuple([site for site in avoiding if site in closed])
            ledger.story.append(SitesAvoided(job=job.id, sites=avoiding, closed=shut))

    def closed_since(self, job: Job) -> Collection[int]:
        """Return the sites of a placed job that have been closed to it since and that it can avoid."""
        closed = self.exclusions.closed_to(job)
        if job.placement is None or closed.keys().isdisjoint(job.placed.spots.sites):
            return ()
        self.choose(job)
        return [index for index in closed if self.ledger.names[index] in job.avoiding]

    def _way_without(self, demand: Demand, sites: tuple[SiteName, ...]) -> Way:
        """Return as many of these sites, the last ones, as the demand can do without, and the demand without them."""
        ledger = self.ledger
        usable = ledger.sites.usable()
        for first in range(len(sites)):
            barred = demand.barring(ledger.index[site] for site in sites[first:])
            if can_ever_fit(barred, usable, ledger.sites.view):
                return sites[first:], barred
        return (), demand

    def watch(self, job: Job) -> None:
        """Come back to the queued job when it has avoided a site for long enough."""
        if job.position < 0 or job.timer is not None or not (job.avoided or job.avoiding):
            return
        ends = [*job.avoided.values(), *self.exclusions.closed_to(job).values()]
        if ends:
            job.timer = self.ledger.timers.set(min(ends), Alarm.AVOIDED, job.id)

    def _avoided_long(self, job_id: JobId) -> None:
        job = self.ledger.jobs[job_id]
        job.timer = None
        self.choose(job)
        self.watch(job)

    def _rested(self, job_id: JobId) -> None:
        job = self.ledger.jobs[job_id]
        self.choose(job)
        self.ledger.rested(job)
        self.watch(job)


def last_word(request: Request, exit_code: int | None) -> str | None:
    """Return why the job is not started again after this exit code; None if it may be."""
    if exit_code is None:
        return None
    if exit_code in request.never_on:
        return "after which it is never started again (never_on)"
    if request.retry_on and exit_code not in request.retry_on:
        return "which is not among those after which it is started again (retry_on)"
    return None


def after_restarts(count: int) -> str:
    """Return how often a job that ends was started again, in words."""
    if count == 0:
        return ", and it may not be restarted"
    return f", after {count} {'restart' if count == 1 else 'restarts'}"


def said_last(event: ComponentEnded) -> str:
    """Return the last error output of a failed component, for the end of a sentence."""
    return f"; stderr: {event.stderr_line}" if event.stderr_line else ""
