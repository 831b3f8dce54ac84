"""The whole state of the core at one moment, and the commands that the present event has caused so far.

Placement, staging, running, claiming and ending share one ledger; it keeps the state and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from koala.core import timers
from koala.core.changes import Changes
from koala.core.encoded import INFINITY
from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.states import ENDED, JobState, StateCounts
from koala.core.state import follow_ups
from koala.core.state.follow_ups import FollowUps, Work
from koala.core.state.network.forecasts import LinkForecasts
from koala.core.state.network.link_use import LinkUse
from koala.core.state.network.transfers import Transfers
from koala.core.state.queues.claiming import ClaimingQueue
from koala.core.state.queues.due import ScanTimes
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.sites import Sites
from koala.core.timers import Alarm, Timers
from koala.model.facts import Adds, AnyFact, AnyStoryFact, SiteDistrusted
from koala.model.grid import Estimates, Grid
from koala.model.messages import AnyCommand, EndedJob, JobOutcome, Token
from koala.model.outputs import job_of_output
from koala.model.request import JOB_NAME, FileName, JobId, Request, SiteName
from koala.policies.interface import Demand, Spots

# The first rest of a job that loses its places in the very instant in which it got them, and the longest: with a scan
# interval of 0 it would be placed again at once, for ever. The rest doubles each time, until the job has run.
REST_S = 1.0
REST_S_MAX = 64.0
# Run times are remembered for this many last runs, this many users, and this many names of their jobs, those seen
# last.
LAST_RUNS_KEPT = 2
LAST_RUNS_USERS_MAX = 10_000
LAST_RUNS_NAMES_MAX = 2_000
# Without records, changes are forgotten when they concern this many jobs.
CHANGES_UNRECORDED_MAX = 1_000
# This many jobs are kept after their end, for late queries.
ENDED_KEPT = 1_000


class _Untold:
    """A list that keeps nothing."""

    def append(self, entry: AnyStoryFact, /) -> None:
        """Discard the entry, as nobody records it."""


UNTOLD: Adds[AnyStoryFact] = _Untold()


class Ledger:
    """The state of one scheduler."""

    changes_max: float = CHANGES_UNRECORDED_MAX  # beyond this many jobs, ``changes`` is forgotten

    def __init__(self, grid: Grid) -> None:
        self.parameters = grid.scheduler
        self.now = 0.0
        self.changes = Changes()  # what must be written again
        self.jobs_known = self.claims_made = 0
        # What the present event has caused so far, in one order.
        self.commands: Adds[AnyCommand] = []
        self.facts: Adds[AnyFact] = []
        self.story: Adds[AnyStoryFact] = UNTOLD  # the same list if the stories of jobs are recorded
        self.jobs: dict[JobId, Job] = {}
        self.states = StateCounts()  # how many jobs are in each state
        self.avoiders: dict[JobId, None] = {}  # jobs that avoid, or avoided, sites where they failed
        # The jobs that the core is busy with at this point: an error raised now concerns them. None: the event's own
        # jobs. An alarm or a follow-up about one job sets it here; code that takes up several jobs sets it for each.
        self.current_jobs: Sequence[Job] | None = ()
        # Where plans are made: how long the last runs took, in seconds, by user and name of the jobs; by user alone
        # under an empty name. The number of the last noted run stands before them.
        self.last_runs: dict[tuple[str, str], tuple[int, tuple[float, ...]]] = {}
        self.last_named_runs: dict[tuple[str, str], tuple[int, tuple[float, ...]]] = {}
        self.runs_noted = 0
        self.preempted_at: list[float] = []  # when jobs were preempted for places of others, within the last hour
        # What jobs keep, or kept lately, before their planned starts: job, processors, since when, until when.
        self.kept_early: list[tuple[JobId, int, float, float]] = []
        self.ended: OrderedDict[JobId, Job] = OrderedDict()
        self.follow_ups = FollowUps(self._work_concerns)
        self.high = PlacementQueue(high=True)
        self.low = PlacementQueue(high=False)
        self.high.every_event = self.low.every_event = self.parameters.scan_interval_s == 0
        # Puts an empty queue in the order of the grid; and what is wrong with that order, if anything.
        self.order_for: Callable[[PlacementQueue], None] = lambda _: None
        self.order_problem = ""
        self.plans_made = self.parameters.plan_depth > 0
        self.high.by_arrival = self.low.by_arrival = self.plans_made
        self.estimates_runs = self.plans_made and self.parameters.estimates is Estimates.LAST_TWO
        self.first_planned: list[JobId] | None = None  # jobs with their first plan, if the driver wants to know
        self.planned: dict[JobId, Job] = {}  # waiting jobs that have plans
        self.dependents: dict[JobId, dict[JobId, None]] = {}  # by job, its dependents
        self.readers: dict[FileName, dict[JobId, None]] = {}  # by input file the jobs that have not ended
        self.arrays: dict[JobId, Job] = {}  # arrays that have not ended
        self._array_numbers: list[JobId] = []  # their numbers, in order
        self.made_now = 0  # components of the elements that the present event has made, see ``JobPlacing``
        self.claiming = ClaimingQueue()
        self.claims: dict[Token, ComponentClaim] = {}
        self.claims_of: dict[JobId, dict[Token, ComponentClaim]] = {}  # the same by job; no job without any
        self.sites = Sites(grid, self.follow_ups, self.changes)
        self.changes.sites.update(dict.fromkeys(range(len(grid.sites))))
        self.sites.pools.placed, self.sites.pools.jobs = self.claiming, self.jobs
        self.links = LinkUse(self.sites)
        self.links.learned.changed = self.changes.applications
        self.forecasts = LinkForecasts(self.sites.view, self.changes)
        self.transfers = Transfers(self.sites.view, self.forecasts, self.changes)
        self.timers = Timers(self._alarm_concerns)
        self.timers.on(Alarm.COOLED_DOWN, self._cooled_down)
        self.scans = ScanTimes(self.parameters, self.sites)
        self.names = self.sites.view.names
        self.index = self.sites.view.index

    def claim(self, claim: ComponentClaim) -> None:
        """Enter a claim."""
        self.claims_made += 1
        claim.number = self.claims_made
        self.claims[claim.token] = claim
        self.claims_of.setdefault(claim.job_id, {})[claim.token] = claim
        claim.changed()
        self.sites.claim(claim)

    def let_go(self, token: Token) -> ComponentClaim | None:
        """Remove the claim, as the site holds nothing of it any more, and return it; None if it is unknown."""
        claim = self.claims.pop(token, None)
        if claim is not None:
            claim.changed()
            left = self.claims_of[claim.job_id]
            del left[token]
            if not left:
                del self.claims_of[claim.job_id]
                if claim.job.state in ENDED:
                    claim.job.changed_all()
        return claim

    def add(self, job: Job) -> None:
        """Enter a new job."""
        if len(self.changes.jobs) > self.changes_max:
            self.changes.clear()
        self.jobs[job.id] = job
        if not job.number:
            self.jobs_known += 1
            job.number = self.jobs_known
        job.changed()
        self.states.began[job.state] += 1
        if job.request.array is not None and not job.array:
            self.arrays[job.id] = job
            insort(self._array_numbers, job.id)
        for file in _files_read(job.request):
            self.readers.setdefault(file, {})[job.id] = None

    def remove(self, job: Job) -> None:
        """Remove a job that has ended."""
        del self.jobs[job.id]
        for file in _files_read(job.request):
            readers = self.readers[file]
            del readers[job.id]
            if not readers:
                del self.readers[file]

    def lost_input(self, job: Job) -> FileName | None:
        """Return an input file that is missing for good: the job that made it, or was to make it, is over."""
        for file in _files_read(job.request):
            maker = job_of_output(file)
            if maker is None or maker >= job.id or file in self.sites.view.files:
                continue
            if maker not in self.jobs and self.array_of(maker) is None:
                return file
        return None

    def forget_array(self, array: Job) -> None:
        """Remove an array that has ended."""
        del self.arrays[array.id]
        del self._array_numbers[bisect_left(self._array_numbers, array.id)]

    def array_of(self, job_id: JobId) -> Job | None:
        """Return the live array that has this number for an element, made or not."""
        job = self.jobs.get(job_id)
        if job is not None:
            return self.arrays.get(job.array)
        place = bisect_left(self._array_numbers, job_id) - 1  # the last array before it
        if place < 0:
            return None
        array = self.arrays[self._array_numbers[place]]
        return array if job_id <= array.id + array.elements.spec.size else None

    def next_element(self, array: Job) -> Job | None:
        """Return the element of an array that waits first in its queue; None if none waits, and for any other job."""
        if array.state is not JobState.UNFOLDING:
            return None
        left, first = array.elements.states[JobState.WAITING], None
        number = array.id + array.elements.made
        while left > 0 and number > array.id:  # usually the last ones made
            job, number = self.jobs.get(number), number - 1
            if job is not None and job.state is JobState.WAITING:
                left -= 1
                if first is None or _stands_before(job, first):
                    first = job
        return first

    def elements_before(self, job: Job) -> int:
        """Return how many elements that are no jobs yet stand in its queue before a waiting job."""
        standing = self.queue_of(job).standing
        return sum(
            standing.elements_before(array, array.elements.to_come, job)
            for array in self.arrays.values()
            if array.state is JobState.UNFOLDING
            and array.high is job.high
            and array.id != job.array
            and job.position >= 0
        )

    @property
    def dependencies_open(self) -> int:
        """The number of conditions that all jobs together wait for."""
        return sum(map(len, self.dependents.values()))

    def note_turn(self, job: Job, outcome: JobOutcome | None) -> None:
        """Note that the job has started, or ended with this outcome; dependents are notified once the
        event is handled."""
        if job.id in self.dependents:
            self.note_dependency(EndedJob(job=job.id, outcome=outcome, started=job.runs > 0))

    def note_dependency(self, became: EndedJob) -> None:
        """Do the same for a job known only by its number."""
        self.follow_ups.add(Work.NOTIFY_DEPENDENTS, became)

    @property
    def dependency_events(self) -> list[EndedJob]:
        """Jobs that have started or ended, as long as not all their dependents are notified."""
        return list(self.follow_ups.of(Work.NOTIFY_DEPENDENTS))

    @property
    def last_notified(self) -> JobId:
        """The last notified dependent of the first of these jobs; 0 for none."""
        return next(iter(self.follow_ups.of(Work.NOTIFY_DEPENDENTS).values()), None) or 0

    def queue_of(self, job: Job) -> PlacementQueue:
        return self.high if job.high else self.low

    def tries_in_queue(self, job: Job) -> int:
        """Return how often the waiting job has been tried since it entered its queue; a resting job is not tried."""
        queue = self.high if job.high else self.low
        if job.id in queue.resting:
            return 0
        return self.scans.so_far(queue, self.now) - job.waiting.entered_scan

    def enqueue(self, job: Job, *, tried: bool, rest_s: float = 0.0) -> None:
        """Put the job at the tail of its placement queue, after a rest of ``rest_s``.

        ``tried`` is True if it has just been tried in vain.
        """
        queue = self.queue_of(job)
        job.waiting_since = self.now
        if self.estimates_runs:
            self.estimate(job)
        job.changed()
        if self.scans.every_event and job.placed_at == self.now:
            rest_s = max(rest_s, min(REST_S * 2**job.rests, REST_S_MAX))
            job.rests += 1
        if rest_s > 0:
            queue.resting[job.id] = job
            job.timer = self.timers.set(self.now + rest_s, Alarm.RESTED, job.id)
        else:
            self._join(queue, job, tried=tried)

    def walltime_s(self, job: Job) -> float:
        """Return how long the job may run; without a walltime, what plans believe."""
        walltime_s = job.walltime_s
        return self.parameters.default_walltime_s if walltime_s is None else walltime_s

    def planned_s(self, job: Job) -> float:
        """Return how long the job runs, as plans believe."""
        walltime_s, estimate_s = job.walltime_s, job.estimate_s
        if walltime_s is None:
            walltime_s = self.parameters.default_walltime_s
        return walltime_s if estimate_s is None or estimate_s > walltime_s else estimate_s

    def usual_s(self, user: str, name: str = JOB_NAME) -> float | None:
        """Return the mean of the user's last runs, of jobs of that name if there were any, otherwise of all.

        None if no run is known.
        """
        last = self.last_named_runs.get((user, name)) if name != JOB_NAME else None
        last = self.last_runs.get((user, "")) if last is None else last
        return None if last is None else sum(last[1]) / len(last[1])

    def estimate(self, job: Job) -> None:
        """Fix the run time that plans assume for the job, which is about to be tried, until it has ended."""
        job.estimate_s = self.usual_s(job.submitter, job.request.name)

    def note_run(self, user: str, took_s: float, name: str = JOB_NAME) -> None:
        """Note a successful run of the user: expected times go by the last ones."""
        self._note_run(self.last_runs, (user, ""), took_s, LAST_RUNS_USERS_MAX)
        if name != JOB_NAME:
            self._note_run(self.last_named_runs, (user, name), took_s, LAST_RUNS_NAMES_MAX)

    def _note_run(
        self,
        last_runs: dict[tuple[str, str], tuple[int, tuple[float, ...]]],
        key: tuple[str, str],
        took_s: float,
        most: int,
    ) -> None:
        self.runs_noted += 1
        _, before = last_runs.pop(key, (0, ()))
        last_runs[key] = self.runs_noted, (*before, took_s)[-LAST_RUNS_KEPT:]
        self.changes.usual_runs[key] = None
        if len(last_runs) > most:
            first = next(iter(last_runs))
            del last_runs[first]
            self.changes.usual_runs[first] = None

    def drop_plan(self, job: Job) -> None:
        """Drop the job's plan, as it waits no more or its start is unknown: others may use what was kept for it."""
        if self.planned.pop(job.id, None) is not None:
            job.waiting.plan = None
            job.changed()
            self.queue_of(job).move(job)
            self.try_everybody()

    def try_everybody(self) -> None:
        """Have all jobs in line tried at the next scan: what was kept for plans may be of use to them."""
        for queue in (self.high, self.low):
            queue.untried |= queue.size > 0

    def placement_tries_max(self, job: Job) -> int | None:
        """Return how many failed tries in a row make the job's submission fail."""
        own = job.request.placement_tries_max
        return self.parameters.placement_tries_max if own is None else own

    def change_demand(self, job: Job, demand: Demand) -> None:
        """Change the demand of a waiting job, for example when it begins or ceases to avoid sites."""
        self.queue_of(job).change_demand(job, demand)

    def rested(self, job: Job) -> None:
        """End the rest of the job: it stands in line again."""
        queue = self.queue_of(job)
        job.timer = None
        del queue.resting[job.id]
        self._join(queue, job, tried=False)

    def _join(self, queue: PlacementQueue, job: Job, *, tried: bool) -> None:
        waiting = job.waiting
        waiting.entered_scan = self.scans.so_far(queue, self.now)
        limit = self.placement_tries_max(job)
        exhausted = None if limit is None else waiting.entered_scan + max(1, limit - tried)
        queue.push(job, exhausted_at_scan=exhausted, untried=not tried)

    def places(self, spots: Spots) -> tuple[tuple[SiteName, int], ...]:
        """Return the spots by site name."""
        names, sites, sizes = self.names, spots.sites, spots.sizes
        if len(sites) == 1:
            return ((names[sites[0]], sizes[0]),)
        return tuple([(names[site], size) for site, size in zip(sites, sizes, strict=True)])

    def count_held(self, claim: ComponentClaim) -> None:
        """Count the wait of a component that holds its processors, once: the barrier opens, or the component
        is given up.

        The time gained because it was not claimed at its placement, and the time wasted since its claim, both count.
        """
        held_at, now = claim.held_at, self.now
        claim.held_at = INFINITY
        if held_at == INFINITY or (held_at == now and claim.placed_at >= now):
            return
        gained = claim.processors * max(0.0, held_at - claim.placed_at)
        wasted = claim.processors * (now - held_at)
        job, site = claim.job, self.sites.sites[claim.site]
        self.changes.jobs[job.id] = self.changes.sites[claim.site] = None
        claim.changed()
        for counted in (job, site):
            counted.gained_processor_s += gained
            counted.wasted_processor_s += wasted
        if job.claims_early:
            site.early_gained_processor_s += gained
            site.early_wasted_processor_s += wasted

    def count_run(self, claim: ComponentClaim) -> None:
        """Count the GPU time of a component that ran, once: it ends, or is ended now."""
        job = claim.job
        demand = job.asks
        if demand is not None and not demand.groups:
            return  # its tasks are plain, like nearly all
        if claim.phase is not ComponentPhase.RUNNING or job.started_at is None:
            return
        shape = job.request.shape_of(claim.component)
        if shape is not None and shape.gpus:
            gpu_s = claim.processors // shape.processors * shape.gpus * (self.now - job.started_at)
            job.gpu_s += gpu_s
            self.changes.jobs[job.id] = self.changes.sites[claim.site] = None
            self.sites.sites[claim.site].gpu_s += gpu_s

    def site_error(self, index: int, job: Job | None = None, *, ran: bool = False) -> bool:
        """Count an error of the site; one too many makes it unusable until it has cooled down.

        ``job`` had a component that failed there, and may have run. Returns True if the site keeps its trust only
        because others' components start there: then this user's jobs had better go elsewhere.
        """
        if self.sites.error(index, job, ran=ran):
            self._cool_down(index)
        site = self.sites.sites[index]
        return site.spared and job is not None and site.errors_of[job.submitter] > site.errors // 2

    def distrust(self, index: int, why: str) -> None:
        """Make a site that is to blame for failures of applications unusable until it has cooled down."""
        if self.sites.distrust(index, why):
            self._cool_down(index)

    def _cool_down(self, index: int) -> None:
        site = self.sites.sites[index]
        self.follow_ups.add(Work.LEAVE_SITE, index)
        self.changes.sites[index] = None
        site.cooling = self.timers.set(self.now + self.parameters.cooldown_s, Alarm.COOLED_DOWN, index)
        self.facts.append(SiteDistrusted(site=site.name, reason=site.record.distrusted))

    def _alarm_concerns(self, what: Alarm, whom: Any) -> None:
        if what in timers.OF_JOBS:
            self.current_jobs = (self.jobs[whom],)
        elif what in timers.OF_CLAIMS:
            self.current_jobs = (self.claims[whom].job,)
        elif what is Alarm.TRANSFER_OVERDUE:
            self.current_jobs = [self.jobs[job_id] for job_id in self.transfers.by_id[whom].jobs]
        else:
            self.current_jobs = ()

    def _work_concerns(self, kind: Work, subject: Any) -> None:
        job = self.jobs.get(subject) if kind in follow_ups.OF_JOBS else None
        self.current_jobs = () if job is None else (job,)

    def _cooled_down(self, index: int) -> None:
        self.changes.sites[index] = None
        self.sites.sites[index].cooling = None
        self.sites.probe(index)


class RecordedLedger(Ledger):
    """The ledger of a scheduler whose driver keeps records: whenever the core is busy with a job, the
    job may change."""

    changes_max = INFINITY

    @property
    def current_jobs(self) -> Sequence[Job] | None:
        """See ``Ledger``."""
        return self._current_jobs

    @current_jobs.setter
    def current_jobs(self, jobs: Sequence[Job] | None) -> None:
        self._current_jobs = jobs
        for job in jobs or ():
            self.changes.jobs[job.id] = None


def _stands_before(job: Job, other: Job) -> bool:
    """Return True if one waiting job comes before another of its queue; resting jobs come last."""
    if (job.position < 0) is not (other.position < 0):
        return other.position < 0
    return (job.position, job.id) < (other.position, other.id)


def _files_read(request: Request) -> tuple[FileName, ...]:
    """Return the input files of all components, each once."""
    if len(request.components) == 1 and not request.components[0].input_files:
        return ()
    # Components of one job often share one list.
    lists = {id(each.input_files): each.input_files for each in request.components if each.input_files}
    return tuple(dict.fromkeys([file.name for files in lists.values() for file in files])) if lists else ()


def tries_in_words(tries: int | None) -> str:
    return "1 try" if tries == 1 else f"{tries} tries"


def first_given(own: int | None, default: int | None) -> int | None:
    """Return the job's own limit, or else the grid's."""
    return default if own is None else own
