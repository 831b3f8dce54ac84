"""What the core believes of each site: processors, their holders, and whether the site can be trusted; and what
placed jobs ask of the links between sites.

``Sites`` keeps the policies' view of the grid up to date. ``generation`` counts every change of what is idle or on
the links; ``gained_at`` is the last generation that freed something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from koala.core.changes import Changes
from koala.core.encoded import INFINITY
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.life.places import JobPlaces
from koala.core.life.waiting import Seen
from koala.core.state.availability import CLOSED, Availability
from koala.core.state.blame import SiteRecord
from koala.core.state.follow_ups import FollowUps, Work
from koala.core.state.nodes.future_nodes import FutureNodes
from koala.core.state.nodes.pools import BelievedPools
from koala.core.state.site_belief import SiteBelief, Trust
from koala.model.grid import Grid
from koala.model.messages import SiteReported, Token
from koala.model.nodes import NamedNode, releases_within
from koala.model.request import JobId, JobType, Request, SiteName
from koala.policies.interface import View, quota_processors

_USABLE, _PROBING = Trust.USABLE, Trust.PROBING


class OthersHold(NamedTuple):
    """The key of other users' holds in an availability profile, numbered by time for each site."""

    number: int


# What a site has for a job that must not start there: no share of the job's own could make up for it.
NOTHING = -(10**12)


class ClosedSites(NamedTuple):
    """Sites that are closed to a job from the beginning: the keyword in its story, and the reason if no others are
    left; the program or licences that they lack, if that is why."""

    word: str
    sites: tuple[int, ...]
    reason: str
    program: str = ""


class Sites:
    """All sites, by index, and the policies' view of them."""

    def __init__(self, grid: Grid, follow_ups: FollowUps, changes: Changes) -> None:
        self._follow_ups, self._changes = follow_ups, changes
        self.view = View.from_grid(grid)
        self.sites = [SiteBelief(site.name, site.processors) for site in grid.sites]
        for belief, described in zip(self.sites, grid.sites, strict=True):
            belief.bind(described)
        self._described = grid.sites
        self.pools = BelievedPools(self.sites, grid.sites, hold_placed=grid.scheduler.holds_placed)
        self.view.pools = self.pools
        closed = grid.closed_to_guests
        self.closed_to_guests = tuple(index for index, site in enumerate(grid.sites) if site.name in closed)
        # By job type, the sites where a job in a container image cannot go.
        self._without_images = {
            job_type: tuple(index for index, site in enumerate(grid.sites) if not site.runs_images(job_type))
            for job_type in JobType
        }
        self._providing: dict[str, set[SiteName]] = {}
        for site in grid.sites:
            for program in site.provides:
                self._providing.setdefault(program, set()).add(site.name)
        self.hold_placed = grid.scheduler.holds_placed
        self.error_threshold = grid.scheduler.error_threshold
        self.default_walltime_s = grid.scheduler.default_walltime_s
        # When processors come free; only kept where plans are made.
        self.availability = Availability(len(self.sites)) if grid.scheduler.plan_depth else None
        self.ahead = None if self.availability is None else self.nodes_by(self.availability)
        self.generation = 0
        self.gained_at = 0
        self.accused: dict[int, None] = {}  # sites against which there may be evidence
        self.node_accused: dict[int, None] = {}  # sites with evidence against nodes
        self.turnover = [0] * len(self.sites)  # how many of our claims have begun and ended at each, since the start
        self.files_told: dict[str, None] = {}  # files whose replicas differ, or differed, from the grid file
        self._files_of_grid = frozenset(self.view.files)
        self._link_demand_bit_s: tuple[int, ...] = ()  # empty if nothing is on any link
        self._seen: Seen = (tuple(self.view.idle), ())
        self._seen_as_of = 0
        if self.availability is not None:
            for index, idle in enumerate(self.view.idle):
                self.availability.set_base(index, idle)

    def closed_to(self, request: Request, *, guest: bool) -> list[ClosedSites]:
        """Return the sites where a job with this request must not go, by the reason."""
        closed = []
        if guest and self.closed_to_guests:
            reason = "would run it under the account of the daemon, and it is a guest's"
            closed.append(ClosedSites("closed_to_guests", self.closed_to_guests, reason))
        without = self._without_images[request.job_type]
        if without and request.has_image:
            closed.append(ClosedSites("without_images", without, "cannot run its image"))
        closed += self._lacking(request)
        closed += [
            ClosedSites("without_license", sites, f"cannot give it {lacks}", lacks)
            for sites, lacks in self.view.licenses.never(request.licenses)
        ]
        return closed

    def _lacking(self, request: Request) -> Iterator[ClosedSites]:
        """Yield the sites that lack a program that the job requires, except those that it names itself."""
        for program in request.required:
            there = self._providing.get(program, set()) | {component.site for component in request.components}
            sites = tuple(index for index, site in enumerate(self.sites) if site.name not in there)
            if sites:
                yield ClosedSites("without_program", sites, f"cannot provide {program}", program)

    def nodes_by(self, availability: Availability) -> FutureNodes:
        """Return the nodes at future times, by these profiles."""
        return FutureNodes(availability, self.sites, self.pools)

    def __iter__(self) -> Iterator[SiteBelief]:
        return iter(self.sites)

    def refresh(self, index: int) -> None:
        """Compute again what policies may use of the site."""
        site, seen = self.sites[index], self.view.idle
        self._changes.sites[index] = None
        site.pool = None
        self.pools.changes += 1
        free = site.limit - site.others - site.ours - site.earmarked
        idle = free - site.promised if self.hold_placed else free
        shut = site.is_closed if site.trust is _USABLE else site.is_shut
        if idle < 0 or shut:
            idle = 0
        before = seen[index]
        if idle != before:
            self.generation += 1
            if idle > before:
                self.gained_at = self.generation
            seen[index] = idle
        if self.availability is not None:
            self.availability.set_base(index, CLOSED if shut else free - site.promised)

    def most(self) -> list[int]:
        """Return the most that could ever be idle for us at each site: by its report, or by the grid if that is more.
        A site that has fewer processors for a while has not become smaller."""
        return [max(site.limit, site.described_limit) for site in self.sites]

    def usable(self) -> list[int]:
        """Return the same, with nothing at sites that are taken out."""
        return [
            0 if site.is_closed or site.trust is Trust.UNUSABLE else most
            for site, most in zip(self.sites, self.most(), strict=True)
        ]

    def seen_now(self) -> Seen:
        """Return what a try would see now, as a value; the same object as long as nothing changes."""
        if self._seen_as_of != self.generation:
            self._seen_as_of = self.generation
            self._seen = tuple(self.view.idle), self._link_demand_bit_s
        return self._seen

    def links_changed(self, *, helped: bool) -> None:
        """Note that jobs ask more or less of the links than before; less may help a waiting job."""
        demand_bit_s = self.view.link_demand_bit_s
        self._link_demand_bit_s = tuple(demand_bit_s) if any(demand_bit_s) else ()
        self.generation += 1
        if helped:
            self.gained_at = self.generation

    def put(self, index: int, belief: SiteBelief) -> None:
        """Restore the belief about the site from before a restart."""
        belief.bind(self._described[index])
        self.sites[index] = belief
        if belief.record.accusations:
            self.accused[index] = None
        if belief.record.nodes:
            self.node_accused[index] = None
        self.view.limit[index] = belief.limit
        if belief.machines:
            self.view.lans.measured(index, belief.machines)

    def restored(self, generation: int, *, gained_at: int) -> None:
        """Continue from these counts, with all beliefs, claims and jobs in place."""
        for index, site in enumerate(self.sites):
            for claim in [each for each in site.claims.values() if each.job.request.licenses]:
                self._take_licenses(index, claim.job, claim.placement, claim.token)
            self.refresh(index)
        for job in self.pools.placed:
            for component, index in enumerate(job.placed.spots.sites if job.request.licenses else ()):
                if job.placed.claims[component] is None:
                    self._take_licenses(index, job, job.placed.number, job.id)
        self.gained_at = gained_at
        self.generation = generation
        self._seen = tuple(self.view.idle), self._link_demand_bit_s
        self._seen_as_of = generation

    def files_changed(self, file: str) -> None:
        """Note that replicas have come or gone: a job that could not be placed may fit now."""
        self._changes.files[file] = None
        self.note_file(file)
        self.generation += 1
        self.gained_at = self.generation

    def note_file(self, file: str) -> None:
        """Note that the replicas of the file differ from the grid file, unless neither has any."""
        if file in self.view.files or file in self._files_of_grid:
            self.files_told[file] = None
        else:
            self.files_told.pop(file, None)

    # --------------------------------------------------------------------------- what the site reports

    def report(
        self, index: int, processors: int, others: int, releases: Sequence[tuple[float, int]] = (), now: float = 0.0
    ) -> None:
        """Take over the site's report. ``releases`` are the known ends of others' holds."""
        site = self.sites[index]
        for_us = site.limit - site.others
        site.reported = True
        site.processors = processors
        site.others = others
        if self.availability is not None:
            self._expect_others(index, releases, now)
        site.limit = self.view.limit[index] = quota_processors(processors, site.quota)
        if site.limit - site.others < for_us:
            self._follow_ups.add(Work.TRY_EVERYBODY)
        self.refresh(index)

    def exclusions_changed(self, index: int) -> None:
        """Note that evidence against nodes of the site has changed: waiting jobs may have gained or lost places."""
        self._opened_or_closed()
        if not self.sites[index].record.nodes:
            self.node_accused.pop(index, None)

    def report_named(self, index: int, named: tuple[NamedNode, ...]) -> None:
        """Take over the site's report of its named nodes."""
        if named != self.sites[index].named:
            self.sites[index].named = named
            self._changes.sites[index] = None
            if index in self.node_accused:
                self._opened_or_closed()

    def report_nodes(self, index: int, event: SiteReported, *, awaited: bool) -> None:
        """Take over the site's report of its nodes. ``awaited``: jobs with shaped tasks wait that a
        change may help."""
        site = self.sites[index]
        shown = dict.fromkeys(event.shown)
        if event.nodes != site.nodes or shown != site.shown:
            site.nodes, site.shown = event.nodes, shown
            self._changes.sites[index] = None
            self.pools.changed(index)
            if awaited:
                self.generation += 1
                self.gained_at = self.generation

    def report_machines(self, index: int, machines: tuple[tuple[int, float, float], ...]) -> None:
        """Take over the measurements of the site's machines: jobs of tasks may fit that did not, or no longer fit."""
        if machines != self.sites[index].machines:
            self.sites[index].machines = machines
            self._changes.sites[index] = None
            self.view.lans.measured(index, machines)
            self.generation += 1
            self.gained_at = self.generation

    def _expect_others(self, index: int, releases: Sequence[tuple[float, int]], now: float) -> None:
        """Expect the reported ends; everything else is due a default walltime after it was first seen."""
        site = self.sites[index]
        told = releases_within(releases, site.others)
        unknown = site.others - sum(processors for _, processors in told)
        kept = site.releases
        surplus = sum(processors for _, processors in kept) - unknown
        while surplus > 0:  # the oldest are the first to go
            (at, processors), kept = kept[0], kept[1:]
            gone = min(processors, surplus)
            if processors > gone:
                kept = [(at, processors - gone), *kept]
            surplus -= gone
        if surplus < 0:
            kept = sorted([*kept, (now + self.default_walltime_s, -surplus)])
        if (told, kept) != (site.releases_told, site.releases):
            site.releases_told, site.releases = told, kept
            self.hold_for_others(index)

    def hold_for_others(self, index: int) -> None:
        """Update the site's profile with what is known of others."""
        assert self.availability is not None
        site, profile = self.sites[index], self.availability.profiles[index]
        for key in [key for key in profile.keys_until(INFINITY) if isinstance(key, OthersHold)]:
            self.availability.let_go(index, key)
        for number, (due_at, processors) in enumerate(sorted([*site.releases_told, *site.releases])):
            self.availability.hold(index, OthersHold(number), processors, due_at)

    def _opened_or_closed(self, *, has_less: bool = False) -> None:
        """Note that a site or node was taken out or put back: waiting jobs may have another way now."""
        self._follow_ups.add(Work.REVIEW_SITES)
        if has_less:
            self._follow_ups.add(Work.TRY_EVERYBODY)

    def drain(self, index: int, by: str = "") -> None:
        site = self.sites[index]
        site.drained, site.drained_by = True, by
        self._opened_or_closed(has_less=True)
        self.refresh(index)

    def resume(self, index: int) -> None:
        site = self.sites[index]
        site.drained, site.drained_by = False, ""
        self._opened_or_closed()
        self._forget_errors(site)
        site.last_error = site.last_error_of = ""
        site.record = SiteRecord()
        self.accused.pop(index, None)
        self.node_accused.pop(index, None)
        site.broken_by = dict.fromkeys(site.broken_by, 0)  # that does not show if other jobs succeed there
        site.trust = Trust.USABLE
        site.probe_job = None
        site.stop_cooling()
        self.refresh(index)

    def fall_silent(self, index: int, since: float) -> None:
        """Place nothing new at the site until it answers."""
        self.sites[index].silent_since = since
        self._opened_or_closed(has_less=True)
        self.refresh(index)

    def hear(self, index: int, unfit: str = "") -> None:
        """Note that the site answers: it reports, or explains why it is unfit. If unfit, nothing new goes there."""
        site = self.sites[index]
        if site.does_not_report or unfit:
            site.silent_since, site.unfit = None, unfit
            self._opened_or_closed(has_less=unfit != "")
            self.refresh(index)

    def lose(self, index: int, reason: str) -> None:
        """Place nothing new at the site until ``end_loss``."""
        self.sites[index].lost = reason
        self._opened_or_closed(has_less=True)
        self.refresh(index)

    def end_loss(self, index: int) -> bool:
        """Use a lost site again if it answers and nothing fenced is left there; return True if so."""
        site = self.sites[index]
        if not site.lost or site.silent_since is not None or any(claim.fenced for claim in site.claims.values()):
            return False
        site.lost = ""
        self._opened_or_closed()
        self.refresh(index)
        return True

    # ---------------------------------------------------------------------------------------- trust

    def error(self, index: int, job: Job | None = None, *, ran: bool = False) -> bool:
        """Count an error, of a component of this job if there is one, which may have run; return True if it makes the
        site unusable."""
        site = self.sites[index]
        self._changes.sites[index] = None
        site.errors += 1
        if job is not None:
            site.errors_of[job.submitter] = site.errors_of.get(job.submitter, 0) + 1
            site.started_by.pop(job.submitter, None)
            if ran:
                site.broken_by[job.id] = site.broken_by.get(job.id, 0) + 1
        if site.trust is Trust.PROBING:
            if job is not None and site.others_start(job.submitter):
                return False
        elif site.counting(site.errors_of, site.errors) < self.error_threshold:
            site.spared = site.errors >= self.error_threshold
            return False
        errors = "1 error" if site.errors == 1 else f"{site.errors} errors in a row"
        return self.distrust(index, errors)

    def distrust(self, index: int, why: str) -> bool:
        """Make the site unusable for a while; return True if it was usable."""
        site = self.sites[index]
        if site.trust is Trust.UNUSABLE:
            return False
        site.trust = Trust.UNUSABLE
        site.spared = False
        site.record.distrusted = why
        self._opened_or_closed(has_less=True)
        site.probe_job = None
        self.refresh(index)
        return True

    def success(self, index: int, job_id: JobId) -> bool:
        """Forget errors after a component of the job ran to its end; return True if that makes the
        site usable again."""
        site = self.sites[index]
        self._changes.sites[index] = None
        if site.errors:
            self._forget_errors(site)
        if site.broken_by:  # that the job itself succeeded in part does not clear the rest of it
            site.broken_by = {job_id: 0} if job_id in site.broken_by else {}
        if index in self.accused:
            site.record.clear(job_id)
            if not site.record.accusations:
                del self.accused[index]
        return site.trust is not _USABLE and self._trust(index)

    def pardon(self, job: Job) -> list[int]:
        """Relieve all sites of errors that the job caused; return those that become usable again."""
        back = []
        for index, site in enumerate(self.sites):
            if job.id in site.broken_by or site.spared:
                self._changes.sites[index] = None
            errors = site.broken_by.pop(job.id, 0)
            site.errors = max(0, site.errors - errors)
            if errors and site.errors_of.get(job.submitter, 0) > errors:
                site.errors_of[job.submitter] -= errors
            elif errors:
                site.errors_of.pop(job.submitter, None)
            site.spared = site.spared and site.errors >= self.error_threshold
            if errors and site.errors < self.error_threshold and self._trust(index):
                back.append(index)
        return back

    @staticmethod
    def _forget_errors(site: SiteBelief) -> None:
        site.errors = 0
        site.errors_of = {}
        site.spared = False

    def forget(self, job_id: JobId) -> None:
        """Forget a job that is over."""
        for index, site in enumerate(self.sites):
            if site.broken_by.pop(job_id, None) is not None:
                self._changes.sites[index] = None

    def _trust(self, index: int) -> bool:
        """Make the site usable; return True if it was not."""
        site = self.sites[index]
        if site.trust is Trust.USABLE:
            return False
        site.trust = Trust.USABLE
        site.record.distrusted = ""
        self._opened_or_closed()
        site.probe_job = None
        site.stop_cooling()
        self.refresh(index)
        return True

    def probe(self, index: int) -> None:
        """End the cool-down: let one job try the site."""
        site = self.sites[index]
        site.trust = Trust.PROBING
        self._opened_or_closed()
        site.probe_job = None
        self.refresh(index)

    # ------------------------------------------------------------------- places, claims and earmarks

    def _take_licenses(self, index: int, job: Job, placement: int, key: Token | JobId) -> None:
        """A component of the job is here, under the key that it has in the availability profile."""
        self.view.licenses.take((job.id, placement), job.request.licenses, index, key)
        self.generation += 1

    def _give_licenses(self, index: int, job: Job, placement: int, key: Token | JobId) -> None:
        """It has gone, and whoever waits for its licences may have them."""
        self.view.licenses.give((job.id, placement), index, key)
        self.generation += 1
        self.gained_at = self.generation

    def promise(self, index: int, processors: int, job: Job) -> None:
        """Note that a component has been placed here; it is not claimed yet."""
        site = self.sites[index]
        site.promised += processors
        if site.trust is _PROBING:
            site.probe_job = job.id
        if self.availability is not None:
            self.availability.hold(index, job.id, processors, job.placed.hold_until)
        if job.request.licenses:
            self._take_licenses(index, job, job.placed.number, job.id)
        self.refresh(index)

    def withdraw(self, index: int, processors: int, job: Job) -> None:
        """Withdraw the promise, as the component goes elsewhere."""
        self.sites[index].promised -= processors
        if self.availability is not None:
            self.availability.let_go(index, job.id, processors)
        if job.request.licenses:
            self._give_licenses(index, job, job.placed.number, job.id)
        self.refresh(index)

    def leave(self, index: int, job: Job) -> None:
        """End all relations of the job with the site. If it was the probe, another job may be, once the site holds
        nothing more of this one."""
        site = self.sites[index]
        if site.probe_job == job.id and all(claim.job is not job for claim in site.claims.values()):
            site.probe_job = None
            self.refresh(index)

    def redeem(self, component: int, index: int, processors: int, job: Job) -> None:
        """Prepare to turn a promise or an earmark into a claim, which brings the view up to date: until then nobody
        else may believe the processors to be idle."""
        if component in job.earmarks:
            self._drop_earmark(component, processors, job)
        else:
            self.sites[index].promised -= processors
            if self.availability is not None:
                self.availability.let_go(index, job.id, processors)
            if job.request.licenses:  # for the claim, which takes them at once
                self.view.licenses.give(job.holder, index, job.id)

    def claim(self, claim: ComponentClaim) -> None:
        site = self.sites[claim.site]
        site.claims[claim.token] = claim
        site.ours += claim.processors
        self.turnover[claim.site] += 1
        if site.trust is _PROBING:
            site.probe_job = claim.job.id
        if self.availability is not None:
            claim.due_at = claim.job.placed.hold_until
            self.availability.note(claim)
        if claim.job.request.licenses:
            self._take_licenses(claim.site, claim.job, claim.placement, claim.token)
        self.refresh(claim.site)

    def expect_end(self, job: Job, placed: JobPlaces, due_at: float) -> None:
        """Set when the job, with its claims, is due to end. Usually that was expected already; what others are shown
        changes all the same, as it depends on the start of the job."""
        job.changed()
        if placed.hold_until == due_at:
            if self.availability is not None:
                self.availability.changes += 1
            return
        placed.hold_until = due_at
        for claim in placed.claims:
            if claim is not None:
                self.expect_end_of(claim, due_at)

    def expect_end_of(self, claim: ComponentClaim, due_at: float) -> None:
        if self.availability is not None:
            claim.changed()
            claim.due_at = due_at
            self.availability.note(claim)

    def free(self, claim: ComponentClaim) -> None:
        site = self.sites[claim.site]
        del site.claims[claim.token]
        site.ours -= claim.processors
        self.turnover[claim.site] += 1
        if claim.aborting:
            self.leave(claim.site, claim.job)
        if self.availability is not None:
            self.availability.end(claim)
        if claim.job.request.licenses:
            self._give_licenses(claim.site, claim.job, claim.placement, claim.token)
        if claim.fenced:
            self.end_loss(claim.site)
        self.refresh(claim.site)

    def earmark(self, index: int, component: int, processors: int, job: Job) -> None:
        """Turn the promise into a right to what a preemption is freeing; earlier earmarks are served first."""
        site = self.sites[index]
        site.promised -= processors
        job.changed()
        phase = job.awaiting_claims
        phase.earmarks = {**phase.earmarks, component: index}
        site.waiters[job.id] = site.waiters.get(job.id, 0) + processors
        site.earmarked += processors
        self.refresh(index)

    def unmark(self, component: int, processors: int, job: Job) -> None:
        """The component does not wait for preempted processors any more."""
        if job.request.licenses:
            self.generation += 1
            self.gained_at = self.generation
        self.refresh(self._drop_earmark(component, processors, job))

    def _drop_earmark(self, component: int, processors: int, job: Job) -> int:
        index = job.earmarks.pop(component)
        site = self.sites[index]
        job.changed()
        self._changes.sites[index] = None
        site.earmarked -= processors
        if self.availability is not None:
            self.availability.let_go(index, job.id, processors)
        if job.request.licenses:
            self.view.licenses.give(job.holder, index, job.id)
        site.waiters[job.id] -= processors
        if not site.waiters[job.id]:
            del site.waiters[job.id]
        return index

    # ------------------------------------------------------------------------- what a job could claim

    def startable(self, index: int, job: Job) -> int:
        """Return how many processors the job could claim here now: what is free and not kept for others.

        That includes what is kept for the job itself. What was earmarked for others after it is not kept from it.
        """
        site = self.sites[index]
        if site.trust is Trust.UNUSABLE or site.is_closed:
            return NOTHING
        if site.trust is Trust.PROBING and site.probe_job not in (None, job.id):
            return NOTHING
        kept = self._earmarked_before(index, job)
        if self.hold_placed:
            kept += site.promised - _own_promise(job, index)
        return site.free - kept

    def claimable(self, index: int, job: Job) -> int:
        """Return the same for a job that claims where it was placed: early it stands in the site's
        queue behind others."""
        here = self.startable(index, job)
        return here if not job.claims_early else here + self.sites[index].others

    def is_short(self, index: int) -> bool:
        """Return True if others hold so much of the site that some of our components cannot have their processors."""
        site = self.sites[index]
        wanted = sum(claim.processors for claim in site.claims.values() if not claim.aborting)
        return site.others + wanted > site.processors

    def coming(self, index: int, job: Job) -> int:
        """Return how many more processors aborted components will free, beyond what others wait for."""
        site = self.sites[index]
        own = site.waiters.get(job.id, 0)
        behind = site.earmarked - self._earmarked_before(index, job) - own
        return sum(claim.processors for claim in site.claims.values() if claim.aborting) - behind

    def _earmarked_before(self, index: int, job: Job) -> int:
        kept = 0
        for waiter, processors in self.sites[index].waiters.items():
            if waiter == job.id:
                break
            kept += processors
        return kept

    def earmark_is_free(self, index: int, job: Job) -> bool:
        """Return True if what was being freed here for the job is free by now, for at least one of its components."""
        smallest = min(job.placed.spots.sizes[component] for component, site in job.earmarks.items() if site == index)
        return self.claimable(index, job) >= smallest


def _own_promise(job: Job, index: int) -> int:
    """Return what the job has been promised at the site and has neither claimed nor earmarked."""
    placed = job.placed
    return sum(
        placed.spots.sizes[component]
        for component, site in enumerate(placed.spots.sites)
        if site == index and placed.claims[component] is None and component not in job.earmarks
    )
