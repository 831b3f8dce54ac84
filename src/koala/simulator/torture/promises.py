"""The scheduler's promises, which hold after every event, in spite of any fault in the world.

A ``PromiseChecker`` compares the scheduler's beliefs with the truth in the simulated world. It only reads;
``koala.simulator.torture.storms`` draws storms, and ``koala.simulator.torture.torture`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import TypeVar

from koala.core import JobState, Scheduler
from koala.core.life.component import ComponentPhase
from koala.core.life.job import Job
from koala.core.life.states import GIVEN_BACK, IN_CLAIMING_QUEUE
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.facts import ClaimsEarly, ElementMade, JobEnded, JobPlaced, JobRequeued, Preempts, Turn
from koala.model.grid import SchedulerParameters
from koala.model.messages import (
    AnyEvent,
    ComponentEnded,
    JobOutcome,
    JobSubmitted,
    Outcome,
    ReleaseBarrier,
    SiteLost,
    SiteSilent,
    StartComponent,
    Token,
)
from koala.model.request import JobId, JobType, Licenses, SiteName
from koala.policies.interface import try_place
from koala.simulator.world.site import SimulatedComponent, SimulatedState
from koala.simulator.world.world import World

# Times are sums of floating-point numbers; closer ones are the same moment.
MOMENT_S = 1e-6


class PromiseBrokenError(Exception):
    """A promise was broken: which, when, and what was seen instead."""

    def __init__(self, name: str, at: float, detail: str) -> None:
        super().__init__(f"{name}: {detail} (at {at:.3f} s)")
        self.name = name
        self.at = at
        self.detail = detail


FactT = TypeVar("FactT", ClaimsEarly, Preempts)


def told_as_placed(turn: Turn, placed: JobPlaced, wanted: type[FactT]) -> FactT | None:
    """Return the turn's fact of this kind about a job that precedes the fact that the job is placed."""
    place = next(place for place, entry in enumerate(turn.entries) if entry is placed)
    for entry in reversed(turn.entries[:place]):
        if isinstance(entry, JobPlaced | wanted) and entry.job == placed.job:
            return entry if isinstance(entry, wanted) else None
    return None


class PromiseChecker:
    """Follows one run; call ``after`` when an event has been handled and its commands performed."""

    def __init__(self, scheduler: Scheduler, world: World) -> None:
        self.scheduler = scheduler
        self.ledger = scheduler.ledger
        self.world = world
        self.parameters: SchedulerParameters = scheduler.ledger.parameters
        self.submitted: set[JobId] = set()
        self.arrived = 0  # the number of submissions: an array is one, and its elements are submitted jobs too
        self.arrays: set[JobId] = set()
        self.guests: set[JobId] = set()
        self.closed_to_guests = frozenset(scheduler.grid.closed_to_guests)
        self.without_images = {
            job_type: {site.name for site in scheduler.grid.sites if not site.runs_images(job_type)}
            for job_type in JobType
        }
        self.ended: dict[JobId, JobEnded] = {}
        self.ended_gained_processor_s = 0.0
        self.ended_wasted_processor_s = 0.0
        self.ended_gpu_s = 0.0
        self.part_of: dict[Token, tuple[JobId, int]] = {}
        self.site_of: dict[Token, SiteName] = {}
        self.errors_before: dict[SiteName, int] = {}
        self.cost: dict[JobId, SiteName] = {}  # the site whose error the job's broken run counted as
        self.released: dict[JobId, frozenset[Token]] = {}  # jobs whose current run has begun, with its components
        self.done: set[Token] = set()  # components that were reported as successful
        self.fenced: dict[Token, None] = {}  # components at sites that were declared lost meanwhile
        self.claimed_at: dict[JobId, float] = {}  # when the last component of each starting job was claimed
        self.others_before: dict[SiteName, int] = {}
        self.waiting_before: dict[JobId, bool] = {}  # job -> high, as of the end of the last event
        self.queued: dict[str, list[JobId]] = {}  # who is in which queue
        self.licenses: dict[JobId, Licenses] = {}  # what each job is to hold
        self.placements: dict[JobId, int] = {}  # how often each of these has had places
        self.placement_of: dict[Token, int] = {}
        # By job and placement the components that have not ended, by site.
        self.licensed: dict[tuple[JobId, int], dict[SiteName, set[Token]]] = {}
        self.alive: dict[Token, SimulatedComponent] = {}  # what sites hold; nothing comes there but by a command

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check every promise; raise PromiseBrokenError with the first broken one."""
        if type(event) is JobSubmitted:
            self.submitted.add(event.job)
            self.arrived += 1
            if event.request.array is not None:
                self.arrays.add(event.job)
            if event.guest:
                self.guests.add(event.job)
            if event.request.licenses:
                self.licenses[event.job] = event.request.licenses
        elif type(event) is ComponentEnded:
            self._costs_one_site(event, turn)
            self._gives_licenses_back(event.token)
            if event.outcome is Outcome.DONE:
                self.done.add(event.token)
        elif type(event) in (SiteLost, SiteSilent):
            self.fenced |= {token: None for token, claim in self.ledger.claims.items() if claim.fenced}
        for entry in turn.entries:
            if type(entry) is ElementMade:
                self.submitted.add(entry.job)
                if entry.array in self.guests:
                    self.guests.add(entry.job)
                if entry.array in self.licenses:
                    self.licenses[entry.job] = self.licenses[entry.array]
            elif type(entry) is StartComponent:
                self.part_of[entry.token] = entry.job, entry.part
                self.site_of[entry.token] = entry.site
                self.claimed_at[entry.job] = event.at
                if entry.job in self.licenses:
                    self.placement_of[entry.token] = placement = self.placements[entry.job]
                    self.licensed.setdefault((entry.job, placement), {}).setdefault(entry.site, set()).add(
                        entry.token
                    )
                self._fits_the_quota(entry)
                self._nothing_new_at_lost_sites(entry)
                self._guests_kept_out(entry)
                self._images_where_they_run(entry)
                self._programs_where_they_are(entry)
                component = self.world.components.components.get(entry.token)
                if component is not None:
                    self.alive[entry.token] = component
            elif type(entry) is JobPlaced:
                if entry.job in self.licenses:
                    self.placements[entry.job] = self.placements.get(entry.job, 0) + 1
            elif type(entry) is JobEnded:
                self._ended_once(entry)
                self._one_run_counts(entry)
                self.released.pop(entry.job, None)
            elif type(entry) is JobRequeued:
                self.released.pop(entry.job, None)
            elif type(entry) is ReleaseBarrier:
                self._released_whole(entry)
        self._turns(turn)
        self._look()
        for check in SAFETY:
            check(self)
        self.errors_before = {site.name: site.errors for site in self.ledger.sites}
        self.others_before = {site.name: site.others for site in self.ledger.sites}
        self.waiting_before = dict.fromkeys(self.queued["high"], True) | dict.fromkeys(self.queued["low"], False)

    def _look(self) -> None:
        """Collect the data that several promises need, once for each event."""
        ledger = self.ledger
        queues = (("high", ledger.high), ("low", ledger.low), ("claiming", ledger.claiming))
        self.queued = {name: [job.id for job in queue] for name, queue in queues}
        for token in [token for token, each in self.alive.items() if each.state is SimulatedState.ENDED]:
            del self.alive[token]

    def fail(self, name: str, detail: str) -> None:
        raise PromiseBrokenError(name, self.ledger.now, detail)

    # ------------------------------------------------------------------- promises on single commands

    def _ended_once(self, fact: JobEnded) -> None:
        if fact.job in self.ended:
            self.fail("no job lost", f"job {fact.job} ended twice")
        if fact.job not in self.submitted:
            self.fail("no job lost", f"job {fact.job} ended and never came")
        self.ended[fact.job] = fact
        self.ended_gained_processor_s += fact.gained_processor_s
        self.ended_wasted_processor_s += fact.wasted_processor_s
        self.ended_gpu_s += fact.gpu_s

    def _released_whole(self, command: ReleaseBarrier) -> None:
        """The first release of a run names every component; repeated ones may name those that did not receive it."""
        job = self.ledger.jobs.get(command.job)
        if job is None or job.state is not JobState.RUNNING:
            self.fail("all or nothing", f"job {command.job} is released while it is not running")
            return
        placed = job.placed
        held = {claim.token for claim in placed.claims if claim is not None}
        if not set(command.tokens) <= held:
            self.fail("all or nothing", f"job {command.job} is released with components that it does not hold")
        if job.id not in self.released and len(command.tokens) != len(placed.claims) - job.joining:
            self.fail("all or nothing", f"job {job.id} starts {len(command.tokens)} of {len(placed.claims)}")
        self.released[job.id] = self.released.get(job.id, frozenset()) | frozenset(command.tokens)

    def _one_run_counts(self, fact: JobEnded) -> None:
        """A job succeeds by its last run alone: every component of that run returned success, and none of them was
        given up with its site."""
        if fact.outcome is not JobOutcome.DONE or fact.job in self.arrays:
            return
        run = self.released.get(fact.job, frozenset())
        missing = [token for token in sorted(run) if token not in self.done]
        fenced = [token for token in sorted(run) if token in self.fenced]
        if not run or missing or fenced:
            detail = f"job {fact.job} is done by {sorted(run)}, of which {missing} are not done, {fenced} fenced"
            self.fail("one run counts", detail)

    def _nothing_new_at_lost_sites(self, command: StartComponent) -> None:
        """Nothing starts at a lost site, nor before all fenced components there have ended."""
        site = self.ledger.sites.sites[self.ledger.index[command.site]]
        left = [token for token in self.fenced if token in self.alive and self.site_of[token] == command.site]
        if site.lost or any(self.alive[token].state is not SimulatedState.ENDED for token in left):
            self.fail("fence before use", f"{command.token} starts at {command.site}, where {left} are fenced")

    def _costs_one_site(self, event: ComponentEnded, turn: Turn) -> None:
        """A job's broken run counts as an error of at most one site, wherever it breaks next, unless a site reports
        that the fault was its own."""
        job_id, site = self.part_of[event.token][0], self.site_of[event.token]
        alone = all(entry.job == job_id for entry in turn.entries if isinstance(entry, JobRequeued))
        errors = self.ledger.sites.sites[self.ledger.index[site]].errors
        ran = event.token in self.released.get(job_id, ())
        if event.fault is not None or not alone or not ran or errors <= self.errors_before.get(site, 0):
            return  # the run did not break, or due work of this moment may have been the error
        if self.cost.setdefault(job_id, site) != site:
            self.fail(
                "one bad job, one site", f"job {job_id} broke on {self.cost[job_id]}, and counts against {site}"
            )

    def _gives_licenses_back(self, token: Token) -> None:
        site, holder = self.site_of[token], (self.part_of[token][0], self.placement_of.get(token, 0))
        sites = self.licensed.get(holder, {})
        sites.get(site, set()).discard(token)
        if not sites.get(site):
            sites.pop(site, None)
        if not sites:
            self.licensed.pop(holder, None)

    def _fits_the_quota(self, command: StartComponent) -> None:
        """Every start fits beside what our other components and the site's own users hold, within the quota.

        Due work of a moment is done before the event of that moment, so a start may rely on the previous report.
        """
        site = self.ledger.sites.sites[self.ledger.index[command.site]]
        others = min(site.others, self.others_before.get(site.name, 0))
        job = self.ledger.jobs.get(command.job)
        if job is not None and job.claims_early:
            others = 0  # it is behind them in the site's queue
        early = sum(claim.processors for claim in site.claims.values() if claim.job.claims_early)
        ours = site.ours - (early if others else 0)  # what came early in the same moment is behind it, too
        if ours + others > site.limit:
            self.fail("no site over-claimed", f"{ours}+{others} of {site.limit} on {site.name}")

    def _guests_kept_out(self, command: StartComponent) -> None:
        if command.job in self.guests and command.site in self.closed_to_guests:
            self.fail("guests kept out", f"job {command.job}, a guest's, is started at {command.site}")

    def _images_where_they_run(self, command: StartComponent) -> None:
        job = self.ledger.jobs.get(command.job)
        if job is None:
            return  # it ended in the same moment, and reversed this
        request = job.request
        if request.has_image and command.site in self.without_images[request.job_type]:
            self.fail("images run where they can", f"job {command.job} has one, and is started at {command.site}")

    def _programs_where_they_are(self, command: StartComponent) -> None:
        job = self.ledger.jobs.get(command.job)
        if job is None or not job.request.required:
            return
        site = self.scheduler.grid.sites[self.ledger.index[command.site]]
        named = {component.site for component in job.request.components}
        if site.name not in named and not set(job.request.required).issubset(site.provides):
            said = f"job {command.job} requires {', '.join(job.request.required)}, and is started at {command.site}"
            self.fail("programs where they are provided", said)

    def _would_fit(self, job: Job, placed: list[JobId]) -> bool:
        """Return True if a waiting high-priority job finds places now that delay no plan of another one. While all
        plans hold, none is delayed, not even by a job that ranks before it, nor is a plan by which a job was placed
        just now, even if the job does not hold its places yet."""
        ledger = self.ledger
        view, demand, availability = ledger.sites.view, job.demand, ledger.sites.availability
        assert demand is not None
        others = [other for other in ledger.planned.values() if other.high and other is not job]
        unclaimed = any(each in ledger.jobs and ledger.jobs[each].state is JobState.PLACED for each in placed)
        if not (others or unclaimed) or availability is None:
            return try_place(demand, view) is not None
        if not demand.steady or demand.has_files:
            return False  # with less idle it may find more
        kept = [
            Reservation(other, at, at + ledger.planned_s(other), other.plan.spots)
            for other in others
            if other.plan is not None
            for at in (max(other.plan.at, ledger.now),)
        ]
        finder, end = (
            PlanFinder(availability, view, ledger.now, kept, ledger.sites.ahead),
            ledger.now + ledger.planned_s(job),
        )
        if not unclaimed or demand.groups:
            return not unclaimed and finder.place_now(demand, end) is not None
        unpromised = list(map(min, finder.spare(end), availability.raw_at(ledger.now)))
        return finder.place(demand, finder.open_during(demand, unpromised, None, end)) is not None

    def _turns(self, turn: Turn) -> None:
        """The queues alternate: S scans of the high one, then one of the low one; together with an interval of 0."""
        parameters, now = self.parameters, self.ledger.now
        placed = [
            entry.job
            for entry in turn.entries  # no scan decides what is placed before the time of its plan
            if type(entry) is JobPlaced and told_as_placed(turn, entry, ClaimsEarly) is None
        ]
        scanned = [self.waiting_before[job] for job in placed if job in self.waiting_before]
        if not scanned:
            return
        if parameters.scan_interval_s == 0:
            high = self.ledger.high
            tried = [job for job in high if job.asks is not None and job.id not in high.resting]
            if parameters.plan_depth:  # places that fit may be kept for a plan, except for the first of all
                tried = tried[:1] if parameters.ageing_half_s is None else []
            if False in scanned and any(self._would_fit(job, placed) for job in tried):
                self.fail("high before low", "a low-priority job was placed while a high-priority one would fit")
            return
        number = round(now / parameters.scan_interval_s)
        if abs(number * parameters.scan_interval_s - now) > MOMENT_S:
            self.fail("high before low", "a waiting job was placed between two scans")
        low_turn = number % (parameters.high_scans_per_low_scan + 1) == 0
        if any(high is low_turn for high in scanned):
            whose = "low" if low_turn else "high"
            self.fail("high before low", f"scan {number} belongs to the {whose}-priority queue")


# --------------------------------------------------------------------------------- promises on the state


def no_site_overclaimed(watch: PromiseChecker) -> None:
    """Our components never hold more of a site than its quota, and all holders together never more than it has."""
    for belief in watch.ledger.sites:
        site = watch.world.sites[belief.name]
        if belief.ours > belief.limit:
            watch.fail("no site over-claimed", f"{belief.ours} claimed of {belief.limit} on {belief.name}")
        if site.idle < 0 or site.ours + site.others + site.idle != site.processors:
            watch.fail("no site over-claimed", f"{site.ours}+{site.others} held of {site.processors} on {site.name}")


def no_partial_coallocation(watch: PromiseChecker) -> None:
    """A job that holds some of its components either gets the rest by its deadline or releases them."""
    now = watch.ledger.now
    for job in watch.ledger.jobs.values():
        if job.state is JobState.STARTING:
            late = any(claim is not None and claim.phase < ComponentPhase.READY for claim in job.placed.claims)
            assert job.start_estimate is not None
            deadline = max(job.start_estimate, watch.claimed_at[job.id]) + watch.parameters.barrier_timeout_s
            if late and now > deadline + MOMENT_S:
                watch.fail("no partial co-allocation beyond its deadline", f"job {job.id} waits for its barrier")
        elif job.state is JobState.CLAIMING:
            assert job.start_estimate is not None
            last = job.start_estimate + (watch.parameters.barrier_timeout_s if job.earmarks else 0.0)
            if now > last + MOMENT_S:
                watch.fail("no partial co-allocation beyond its deadline", f"job {job.id} is half claimed")


def no_processor_leaked(watch: PromiseChecker) -> None:
    """The scheduler knows everything a site holds for us, and its counts add up."""
    ledger = watch.ledger
    for token, component in watch.alive.items():
        if token not in ledger.claims:
            watch.fail("no processor leaked", f"{component.site.name} holds {token}, which the scheduler forgot")
    ours, promised, earmarked = ([0] * len(ledger.sites.sites) for _ in range(3))
    for claim in ledger.claims.values():
        ours[claim.site] += claim.processors
    for job in ledger.jobs.values():
        if job.state in IN_CLAIMING_QUEUE:
            placed = job.placed
            for part, held in enumerate(placed.claims):
                where, size = placed.at(part)
                if held is None and part not in job.earmarks:
                    promised[where] += size
            for part, index in job.earmarks.items():
                earmarked[index] += placed.spots.sizes[part]
        elif job.earmarks:
            watch.fail("no processor leaked", f"job {job.id} is {job.state} and keeps an earmark")
    for site, counted in zip(ledger.sites, zip(ours, promised, earmarked, strict=True), strict=True):
        counts = (site.ours, site.promised, site.earmarked)
        if counts != counted:
            watch.fail("no processor leaked", f"{site.name} is believed to hold {counts}")


def links_add_up(watch: PromiseChecker) -> None:
    """The load of every link is the sum of the demands of placed jobs."""
    view = watch.ledger.sites.view
    asked = [0] * len(view.link_demand_bit_s)
    for job in watch.ledger.jobs.values():
        if job.placement is None or not job.placement.link_demands:
            continue
        for link, bit_s in job.placement.link_demands:
            asked[link] += bit_s
        if job.state in GIVEN_BACK:
            watch.fail("links add up", f"job {job.id} is {job.state} and keeps its bandwidth")
    for link, bit_s in enumerate(view.link_demand_bit_s):
        if bit_s != asked[link]:
            watch.fail("links add up", f"{bit_s} bit/s on {view.wiring.names[link]}, and jobs ask {asked[link]}")


def one_state_and_queue(watch: PromiseChecker) -> None:
    """A waiting job is in its own placement queue, a placed one in the claiming queue, any other in none."""
    found: dict[JobId, str] = {}
    for name, ids in watch.queued.items():
        for job_id in ids:
            if job_id in found:
                watch.fail("one state, one queue", f"job {job_id} is in the {name} queue and should not be")
            found[job_id] = name
    for job in watch.ledger.jobs.values():
        expected, name_found = _queue_name(job), found.pop(job.id, None)
        if name_found == expected:
            continue
        if expected is not None:
            watch.fail("one state, one queue", f"job {job.id} is {job.state} and not once in the {expected} queue")
        watch.fail("one state, one queue", f"job {job.id} is in the {name_found} queue and should not be")
    for job_id, name in found.items():
        watch.fail("one state, one queue", f"job {job_id} is in the {name} queue and should not be")


def _queue_name(job: Job) -> str | None:
    if job.state is JobState.WAITING:
        return "high" if job.high else "low"
    return "claiming" if job.state in IN_CLAIMING_QUEUE else None


def no_job_lost(watch: PromiseChecker) -> None:
    """Every submitted job is either alive or has ended."""
    alive = watch.ledger.jobs.keys()
    # Each ended job is known to have come, and to have ended once.
    adds_up = len(alive) + len(watch.ended) == len(watch.submitted)
    if not adds_up or not all(job_id in watch.submitted and job_id not in watch.ended for job_id in alive):
        lost = watch.submitted - alive - watch.ended.keys()
        watch.fail(
            "no job lost", f"jobs {sorted(lost or alive & watch.ended.keys())} are lost or live on after their end"
        )


def none_runs_twice(watch: PromiseChecker) -> None:
    """No application runs twice at the same time, not even in part, except where a site was declared lost."""
    running: set[tuple[JobId, int]] = set()
    for token, component in watch.alive.items():
        if component.state is SimulatedState.RUNNING:
            which = watch.part_of[token]
            if token in watch.fenced:
                continue  # its site was given up with it: it may continue there, and counts for nothing
            if which in running:
                watch.fail("none runs twice at once", f"component {which[1]} of job {which[0]} runs twice")
            running.add(which)
            job = watch.ledger.jobs.get(which[0])
            if job is not None and job.state in (
                JobState.WAITING,
                JobState.PLACED,
                JobState.CLAIMING,
                JobState.STARTING,
            ):
                watch.fail("none runs twice at once", f"job {job.id} is {job.state} while {token} runs")


def fence_is_lifted(watch: PromiseChecker) -> None:
    """A site is lost until it has answered and has ended its fenced components, and no longer; then its processors
    are free again."""
    for site in watch.ledger.sites:
        fenced = [claim.token for claim in site.claims.values() if claim.fenced]
        if site.lost and site.silent_since is None and not fenced:
            watch.fail("fence before use", f"{site.name} is lost, answers, and has nothing that is fenced")
        if fenced and not site.lost:
            watch.fail("fence before use", f"{site.name} is used again and still holds {', '.join(fenced)}")


def quarantined_hold_nothing(watch: PromiseChecker) -> None:
    """A quarantined job, on which our own code raised, has no places, files or bandwidth, and its components are
    being ended."""
    quarantined = [job for job in watch.ledger.jobs.values() if job.state is JobState.QUARANTINED]
    for job in quarantined:
        if job.placement is not None or job.timer is not None:
            watch.fail("a quarantined job holds nothing", f"job {job.id} keeps places or a timer")
        kept = [claim.token for claim in watch.ledger.claims.values() if claim.job is job and not claim.aborting]
        if kept:
            watch.fail("a quarantined job holds nothing", f"job {job.id} keeps {', '.join(kept)}")


def processor_time_adds_up(watch: PromiseChecker) -> None:
    """The gained and the wasted processor time before runs, and the used GPU time, have equal sums by site and by
    job."""
    sites = [(site.gained_processor_s, site.wasted_processor_s, site.gpu_s) for site in watch.ledger.sites.sites]
    jobs = [(job.gained_processor_s, job.wasted_processor_s, job.gpu_s) for job in watch.ledger.jobs.values()]
    jobs.append((watch.ended_gained_processor_s, watch.ended_wasted_processor_s, watch.ended_gpu_s))
    names = ("gained_processor_s", "wasted_processor_s", "gpu_s")
    for name, by_site, by_job in zip(names, zip(*sites, strict=True), zip(*jobs, strict=True), strict=True):
        if min(0.0, *by_site, *by_job) < 0.0 or not isclose(
            sum(by_site), sum(by_job), rel_tol=1e-9, abs_tol=MOMENT_S
        ):
            watch.fail("processor time adds up", f"{name} is {sum(by_site)} by site and {sum(by_job)} by job")


def transfers_are_needed(watch: PromiseChecker) -> None:
    """Every moving transfer belongs to a job that waits for it."""
    ledger = watch.ledger
    for name in watch.world.transfers.active:
        if name not in ledger.transfers.by_id:
            watch.fail("no transfer without a job", f"{name} goes on and no job needs it")
    for transfer in ledger.transfers.by_id.values():
        if not transfer.jobs or any(job_id not in ledger.jobs for job_id in transfer.jobs):
            watch.fail("no transfer without a job", f"{transfer.id} is kept for jobs that are gone")


def no_node_overfull(watch: PromiseChecker) -> None:
    """No node is assigned more than it has: processors, memory, GPUs."""
    for site in watch.world.sites.values():
        if site.tells_nodes:
            assert site.nodes is not None
            for problem in site.nodes.problems():
                watch.fail("no node is given more than it has", f"{problem} at {site.name}")


def no_license_overdrawn(watch: PromiseChecker) -> None:
    """Jobs with components at a site hold no more of its licences than exist; all jobs together, of the shared
    ones."""
    held: dict[tuple[SiteName | None, str], int] = {}
    for (job, _), sites in watch.licensed.items():
        for site in (*sites, None):
            for name, count in watch.licenses[job]:
                held[site, name] = held.get((site, name), 0) + count
    if not held:
        return
    grid = watch.scheduler.grid
    for site, pools in (*((site.name, site.licenses) for site in grid.sites), (None, grid.licenses)):
        for name, count in pools:
            if held.get((site, name), 0) > count:
                where = site or "all sites together"
                watch.fail("no more licences than there are", f"{held[site, name]} of {count} {name} at {where}")


def licenses_add_up(watch: PromiseChecker) -> None:
    """Exactly the jobs with components at those sites, or with places, are believed to hold licences."""
    ledger = watch.ledger
    found: dict[tuple[JobId, int], dict[int, int]] = {}

    def count(job: Job, placement: int, site: int) -> None:
        if job.request.licenses:
            sites = found.setdefault((job.id, placement), {})
            sites[site] = sites.get(site, 0) + 1

    for claim in ledger.claims.values():
        count(claim.job, claim.placement, claim.site)
    for job in ledger.jobs.values():
        if job.state in IN_CLAIMING_QUEUE:
            for part, held in enumerate(job.placed.claims):
                if held is None:
                    count(job, job.placed.number, job.placed.spots.sites[part])
    holdings = ledger.sites.view.licenses.held
    believed = {
        holder: {site: sum(keys.values()) for site, keys in each.sites.items()} for holder, each in holdings.items()
    }
    if found != believed:
        watch.fail("no more licences than there are", f"{believed} are believed to hold some, and {found} do")


SAFETY: tuple[Callable[[PromiseChecker], None], ...] = (
    no_site_overclaimed,
    no_partial_coallocation,
    no_processor_leaked,
    links_add_up,
    one_state_and_queue,
    no_job_lost,
    none_runs_twice,
    fence_is_lifted,
    quarantined_hold_nothing,
    transfers_are_needed,
    processor_time_adds_up,
    no_node_overfull,
    no_license_overdrawn,
    licenses_add_up,
)


def nothing_left_behind(watch: PromiseChecker) -> None:
    """When all jobs have ended and all aborts are answered, everything is free again."""
    ledger, world = watch.ledger, watch.world
    left = {
        "claims": len(ledger.claims),
        "components": world.components.alive,
        "transfers": len(ledger.transfers.by_key) + len(world.transfers.active),
        "queued": len(ledger.high) + len(ledger.low) + len(ledger.claiming),
        "flows": len(world.components.contention.flows),
    }
    if any(left.values()):
        watch.fail("nothing left behind", ", ".join(f"{count} {what}" for what, count in left.items() if count))
