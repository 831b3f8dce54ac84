"""The likely and the latest starts of planned jobs, for users who ask.

Users request far more time than their jobs take. The likely start goes by the mean of the last two runs of the same
user (Tsafrir, Etsion and Feitelson 2007), of jobs of the same name if there were any; the mean never exceeds the
walltime, and doubles as long as a job runs beyond it. The latest start goes by walltimes, as plans do unless they use
estimates too. A job whose files must be transferred starts when they are there: both starts include the estimated
time for that. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.state.availability import Availability, Hold
from koala.core.state.ledger import Ledger
from koala.core.state.nodes.future_nodes import FutureNodes
from koala.core.state.nodes.left_by_plans import tasks_by_site
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.nodes import total_of
from koala.model.request import JobId
from koala.policies.interface import Spots, staging_s
from koala.policies.view import SHARED

# At most this many of the jobs that another waits for are named.
ENDS_TOLD_MAX = 5
# At most this many elements of arrays count that precede a planned job and are no jobs yet; behind more, no latest
# start is given.
ELEMENTS_FORESEEN_MAX = 32


class ExpectedStart(NamedTuple):
    """When and where a planned job is likely to start, when it starts if every job uses its whole walltime, and the
    last jobs whose ends it waits for there, by their ends.

    Behind too many elements of arrays the latest time is unknown.
    """

    at: float
    spots: Spots
    latest_at: float | None
    ends_before: tuple[JobId, ...]


class _Forecast:
    """The starts of planned jobs, one after the other by rank, if all running jobs end by these profiles."""

    def __init__(self, availability: Availability, ahead: FutureNodes | None = None) -> None:
        self.availability = availability
        self._ahead = ahead
        self.reserved: list[Reservation] = []

    def start_of(self, ledger: Ledger, job: Job, takes_s: float, before: float) -> tuple[float, Spots]:
        """Return the start of the next job; if it has not started by ``before``, it starts by its plan."""
        finder = PlanFinder(self.availability, ledger.sites.view, ledger.now, self.reserved, self._ahead)
        at, spots = finder.earliest(job.demand, takes_s, before) or (job.planned.at, job.planned.spots)
        at = max(at, ledger.now)
        self.reserved.append(Reservation(job, at, at + takes_s, spots))
        return at, spots

    def foresee(self, ledger: Ledger, array: Job, takes_s: float, elements: int, turns: list[float] | None) -> None:
        """Foresee this many elements of the array that are no jobs yet.

        If not all may live at once, each has its turn when an earlier one has ended; ``turns`` are the first ends.
        """
        for _ in range(elements):
            after = ledger.now if turns is None else heappop(turns)
            finder = PlanFinder(self.availability, ledger.sites.view, ledger.now, self.reserved, self._ahead)
            found = finder.earliest(array.demand, takes_s, after=after)
            if found is None:
                return
            self.reserved.append(Reservation(None, found[0], found[0] + takes_s, found[1], array.demand))
            if turns is not None:
                heappush(turns, found[0] + takes_s)


class ExpectedStarts:
    """The expected starts of planned jobs, computed by rank on request, and kept until something changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._as_of: tuple[object, ...] = ()
        self._expected: dict[JobId, ExpectedStart] = {}
        self._ends_unknown: dict[JobId, int] = {}  # jobs without computed ends: the number of reservations up to each
        self._to_come: list[Job] = []  # jobs not computed yet, the next one last
        self._foreseen = 0  # elements that are no jobs yet and come before those
        self._too_many = False  # True if more such elements come
        self._put_off = False  # True if such elements, or files of jobs before those, will put their plans off
        self._bounds = False  # True if plans may be no bounds, so that the latest times are computed too
        self._likely = self._at_most = _Forecast(Availability(0))

    def of(self, job: Job, line: list[Job]) -> ExpectedStart | None:
        """Return the expected start of one job.

        ``line`` are all jobs with plans, and arrays with elements that are no jobs yet, by rank.
        """
        availability = self._ledger.sites.availability
        if job.plan is None or availability is None:
            return None
        plans = tuple([_as_known(each) for each in line])
        # A job may have been kept off a site, or planned elsewhere, without any change of what is held.
        view = self._ledger.sites.view
        links = view.bytes_per_s.changes, view.latency_s.changes  # by which files are estimated
        as_of = (availability.changes, self._ledger.sites.generation, self._ledger.now, links, plans)
        if as_of != self._as_of:
            self._as_of = as_of
            self._expected = {}
            self._ends_unknown = {}
            self._to_come = line[::-1]
            self._foreseen = 0
            self._too_many = self._put_off = False
            self._likely = self._forecast(availability, self._usual_end)
            self._bounds = self._ledger.estimates_runs or any(
                each.spec is not None or (each.asks is not None and each.demand.has_files) for each in line
            )
            if self._bounds:
                self._at_most = self._forecast(availability, self._latest_end)
        while job.id not in self._expected and self._to_come:
            following = self._to_come.pop()
            if following.spec is None:
                self._expected[following.id] = self._work_out(following)
            else:
                self._foresee(following)
        counted_on = self._ends_unknown.pop(job.id, None)
        if counted_on is not None:
            ends_before = self._ends_before(job, self._likely.reserved[:counted_on])
            self._expected[job.id] = self._expected[job.id]._replace(ends_before=ends_before)
        return self._expected.get(job.id)

    def _foresee(self, array: Job) -> None:
        """Foresee all elements of the array before the jobs behind it, no more than its limit at once."""
        ledger, limit = self._ledger, array.elements.spec.limit
        room = ELEMENTS_FORESEEN_MAX - self._foreseen
        to_come = array.elements.to_come
        self._put_off = True
        self._foreseen += min(to_come, room)
        for forecast, takes_s in ((self._likely, self._takes_s(array)), (self._at_most, ledger.walltime_s(array))):
            coming, turns = to_come, None
            if limit is not None and room > 0:
                turns = self._element_ends(array, forecast)
                coming += max(0, array.elements.live - len(turns))  # live elements without places or a plan
                turns += [ledger.now] * (limit - len(turns))
                heapify(turns)
            self._too_many |= coming > room
            forecast.foresee(ledger, array, takes_s, min(coming, room), turns)

    def _element_ends(self, array: Job, forecast: _Forecast) -> list[float]:
        """Return when the elements of the array with places or plans end."""
        ends: dict[JobId, float] = {}
        for profile in forecast.availability.profiles:
            for hold in profile.in_order():
                job = self._ender(hold[3])
                if job is not None and job.array == array.id:
                    ends[job.id] = max(hold[0], ends.get(job.id, 0.0))
        for each in forecast.reserved:
            if each.job is not None and each.job.array == array.id:
                ends[each.job.id] = each.until
        return list(ends.values())

    def _takes_s(self, job: Job) -> float:
        """Return how long the job is likely to take."""
        ledger = self._ledger
        walltime_s, usual_s = ledger.walltime_s(job), ledger.usual_s(job.submitter, job.request.name)
        return walltime_s if usual_s is None else min(walltime_s, usual_s)

    def _work_out(self, job: Job) -> ExpectedStart:
        """Compute the expected start without the ends it waits for, which take as long and are shown for
        one job only."""
        ledger = self._ledger
        plan = job.planned
        # Earlier elements of arrays will put its plan off once they are jobs; files of jobs will as they come.
        put_off = self._put_off
        before = INFINITY if put_off else plan.at
        # Its processors are kept while its files are transferred.
        files_s = self._files_s(job, plan.spots)
        at, spots = self._likely.start_of(ledger, job, files_s + self._takes_s(job), before)
        latest_at = plan.at
        if self._bounds:
            at_most, _ = self._at_most.start_of(ledger, job, files_s + ledger.walltime_s(job), INFINITY)
            if ledger.estimates_runs or put_off:  # then the plan itself is no bound
                latest_at = max(latest_at, at_most)
        self._put_off |= files_s > 0.0
        self._ends_unknown[job.id] = len(self._likely.reserved)
        start = at + self._files_s(job, spots, brought_by=at)
        return ExpectedStart(start, spots, None if self._too_many else max(start, latest_at + files_s), ())

    def _files_s(self, job: Job, spots: Spots | None, brought_by: float | None = None) -> float:
        """Return how long it takes to transfer the job's files to ``spots``.

        0 if it claims early and they are there by ``brought_by``; 0 also if a file has no replica, as the time is
        unknown then.
        """
        demand, ledger = job.asks, self._ledger
        if spots is None or demand is None or not demand.has_files:
            return 0.0
        files_s = staging_s(demand, spots, ledger.sites.view)
        if brought_by is not None and ledger.parameters.hold_budget > 0.0 and not (demand.groups or demand.licenses):
            early = files_s <= ledger.parameters.hold_ahead_s and ledger.now + files_s <= brought_by
            files_s = 0.0 if early else files_s
        return files_s if files_s < INFINITY else 0.0

    # --------------------------------------------------------------------------------------- profiles

    def _forecast(self, known: Availability, end_of: Callable[[Hold], float]) -> _Forecast:
        profiles = self._profiles(known, end_of)
        return _Forecast(profiles, self._ledger.sites.nodes_by(profiles))

    def _profiles(self, known: Availability, end_of: Callable[[Hold], float]) -> Availability:
        """Return the availability profiles, if all holds end at these times."""
        found = Availability(len(known.profiles))
        found.now = self._ledger.now
        for site, profile in enumerate(known.profiles):
            found.set_base(site, profile.base)
            for hold in profile.in_order():
                found.hold(site, hold[3], hold[2], end_of(hold))
        return found

    def _usual_end(self, hold: Hold) -> float:
        """Return when the hold ends, if the job takes as long as jobs of its name, or of its user, usually do."""
        at, _, _, key, due_at = hold
        job, now = self._job_of(key), self._ledger.now
        if job is None or due_at <= now:
            return at
        begun = job.started_at
        if begun is None:  # it has places, and starts when it is due to
            begun = max(now, job.start_estimate or now)
        takes_s = self._ledger.usual_s(job.submitter, job.request.name)
        if takes_s is None:
            return at
        while begun + takes_s < now:  # it runs longer than usual
            takes_s = max(2 * takes_s, 1.0)
        return min(at, begun + takes_s)

    def _latest_end(self, hold: Hold) -> float:
        """Return when the hold ends, if the job takes as long as it may."""
        job, ledger = self._job_of(hold[3]), self._ledger
        if job is None:
            return hold[0]
        return max(hold[0], hold[4] + ledger.walltime_s(job) - ledger.planned_s(job))

    def _job_of(self, key: Hashable) -> Job | None:
        """Return our job that holds something under this key, by a claim or by a promise."""
        ledger = self._ledger
        if isinstance(key, str):
            claim = ledger.claims.get(key)
            return None if claim is None else claim.job
        return ledger.jobs.get(key) if isinstance(key, int) else None

    def _ender(self, key: Hashable) -> Job | None:
        """Return the same, unless the job has let go and only its site has not reported that yet."""
        claim = self._ledger.claims.get(key) if isinstance(key, str) else None
        return None if claim is not None and claim.aborting else self._job_of(key)

    def _ends_before(self, job: Job, reserved: Sequence[Reservation]) -> tuple[JobId, ...]:
        """Return the jobs whose ends it waits for.

        These are, at each of its sites, the last jobs to end until then: as many as free its processors, and all
        holders of memory or GPUs if too few of these are there. Earlier planned jobs count if they end before it
        starts; jobs that made room for those do not. ``reserved`` are the reservations up to the job, the last one
        its own.
        """
        at, spots, before = reserved[-1].at, reserved[-1].spots, reserved[:-1]
        ends: dict[JobId, float] = {}
        for site in set(spots.sites):
            profile = self._likely.availability.profiles[site]
            enders = [(each[0], each[2], self._ender(each[3])) for each in profile.in_order() if each[0] <= at]
            enders += [(each.until, _processors(each.spots, site), each.job) for each in before if each.until <= at]
            there = [each for each in reserved if each.at <= at < each.until or each.job is job]
            missing = sum(_processors(each.spots, site) for each in there) - profile.base
            scarce = self._scarce(there, site) if job.asks is not None and job.demand.groups else None
            # If there is enough in all, there is too little on each node, and any job may be in the way.
            anybody = scarce is not None and missing <= 0 and not (scarce.memory or scarce.gpus)
            for end, processors, other in sorted(enders, key=_ender_order, reverse=True):
                waited_for = anybody or missing > 0 or (scarce is not None and scarce.is_held_by(other))
                missing -= processors
                if other is not None and processors and waited_for:
                    ends[other.id] = max(end, ends.get(other.id, 0.0))
        if job.request.licenses:
            ends |= {other: end for other, end in self._license_ends(job, spots, before) if end <= at}
        return tuple(sorted(ends, key=lambda other: (ends[other], other))[-ENDS_TOLD_MAX:])

    def _license_ends(self, job: Job, spots: Spots, before: Sequence[Reservation]) -> Iterator[tuple[JobId, float]]:
        """Yield the jobs, with their ends, that hold licences of a pool too small for this job.

        The pool has too few left for it at these places, or will have too few before it starts.
        """
        pools, wanted = self._ledger.sites.view.licenses, dict(job.request.licenses)
        profiles = self._likely.availability.profiles
        for short in pools.short(job.request.licenses):
            if short.pool not in (*spots.sites, SHARED):
                continue
            for holder, (_, sites) in pools.holdings(short.pool, short.name):
                keys = [(site, key) for site, there in sites.items() for key in there if self._ender(key) is not None]
                other = self._ledger.jobs.get(holder)
                # A lost site may hold some licences of a waiting job, until an unknown time.
                if keys and other is not None and other.placement is not None:
                    yield holder, max(profiles[site].last_end((key,)) for site, key in keys)
        for each in before:
            if each.job is not None and any(name in wanted for name, _ in each.job.request.licenses):
                common = [pools.sizes[pool] for pool in (*(set(each.spots.sites) & set(spots.sites)), SHARED)]
                if any(name in wanted and name in pool for name, _ in each.job.request.licenses for pool in common):
                    yield each.job.id, each.until

    def _scarce(self, there: Iterable[Reservation], site: int) -> _Scarce:
        """Return what the nodes of the site together have too little of now for the tasks of these."""
        memory_bytes, gpus = 0, dict[str, int]()
        for each in there:
            for shape, tasks in tasks_by_site(each.demand, each.spots).get(site, {}).items():
                memory_bytes += shape.memory_bytes * tasks
                if shape.gpus:
                    gpus[shape.gpu] = gpus.get(shape.gpu, 0) + shape.gpus * tasks
        idle = total_of(self._ledger.sites.pools.free(site))
        of_kind = {kind: idle.gpus.get(kind, 0) if kind else sum(idle.gpus.values()) for kind in gpus}
        return _Scarce(
            memory_bytes > (idle.memory_bytes or 0), frozenset(kind for kind in gpus if of_kind[kind] < gpus[kind])
        )


class _Scarce(NamedTuple):
    """What nodes have too little of, apart from processors: memory, and kinds of GPUs, "" for any."""

    memory: bool
    gpus: frozenset[str]

    def is_held_by(self, job: Job | None) -> bool:
        """Return True if its tasks have some of that, or may have."""
        shapes = [] if job is None else [each.shape for each in job.request.components if each.shape is not None]
        return any(
            (self.memory and each.memory_bytes > 0)
            or (each.gpus > 0 and bool(self.gpus) and ("" in (each.gpu, *self.gpus) or each.gpu in self.gpus))
            for each in shapes
        )


def _processors(spots: Spots, site: int) -> int:
    """Return the number of these processors at the site."""
    return sum(size for at, size in zip(spots.sites, spots.sizes, strict=True) if at == site)


def _ender_order(ender: tuple[float, int, Job | None]) -> tuple[float, int, int]:
    """Sort by end, then by job number, so that the order of arrival does not matter."""
    end, processors, job = ender
    return end, processors, 0 if job is None else job.id


def _as_known(job: Job) -> tuple[object, ...]:
    """Return everything of a job that affects the expected starts of others."""
    plan, elements = job.plan, job.unfolds
    return job.id, plan and plan.at, plan and plan.spots, id(job.demand), elements and elements.made
