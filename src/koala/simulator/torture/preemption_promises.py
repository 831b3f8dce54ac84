"""Promises about preemption for places: who is preempted, how many, and that the victims run again."""

from __future__ import annotations

from collections.abc import Callable

from koala.core import Scheduler
from koala.core.life.job import Job
from koala.core.preemption.places import PREEMPTED_WITHIN_S
from koala.core.state.nodes.left_by_plans import tasks_by_site
from koala.model.facts import JobEnded, JobPlaced, Preempts, Turn
from koala.model.messages import AnyEvent, JobOutcome, ReleaseBarrier
from koala.model.request import JobId
from koala.simulator.torture.promises import told_as_placed

BOUNDED = "preemption keeps its bounds"
NONE_TOO_MANY = "no victim too many"
AGAIN = "a preempted job runs again"


class PreemptionPromises:
    """Follows the preemptions of one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._times: list[float] = []  # when jobs were preempted for places
        self._taken: dict[JobId, int] = {}  # how many jobs each job has preempted
        self._lost: dict[JobId, int] = {}  # how often each job was preempted for places
        self._to_run: set[JobId] = set()  # preempted and not started again
        self._left = self._left_by_others()  # at the end of the last event

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        found: list[tuple[Job, tuple[JobId, ...]]] = []
        for entry in turn.entries:
            if type(entry) is JobPlaced:
                job = self._ledger.jobs.get(entry.job)
                told = told_as_placed(turn, entry, Preempts)
                if job is not None and told is not None:
                    self._preempts(job, told.victims)
                    found.append((job, told.victims))
            elif type(entry) is ReleaseBarrier:
                self._to_run.discard(entry.job)
            elif type(entry) is JobEnded:
                if entry.outcome is JobOutcome.DONE and entry.job in self._to_run:
                    self._fail(AGAIN, f"job {entry.job} was preempted, and is done without another run")
                self._to_run.discard(entry.job)
        left = self._left_by_others()
        # Due work of a moment is done before the event of that moment: only what existed both before and after the
        # event counts.
        steady, self._left = list(map(min, self._left, left)), left
        for number, (job, victims) in enumerate(found, 1):
            self._needs_all(job, victims, {later.id: theirs for later, theirs in found[number:]}, steady)

    def _left_by_others(self) -> list[int]:
        """Return what each site's own users leave us within its quota."""
        return [site.limit - site.others for site in self._ledger.sites]

    def _preempts(self, job: Job, victims: tuple[JobId, ...]) -> None:
        ledger, parameters = self._ledger, self._ledger.parameters
        self._times = [at for at in self._times if at + PREEMPTED_WITHIN_S > ledger.now] + [ledger.now] * len(victims)
        self._taken[job.id] = self._taken.get(job.id, 0) + len(victims)
        if not victims or not job.high or self._taken[job.id] > parameters.preempts_per_job_max:
            self._fail(BOUNDED, f"job {job.id} preempts {self._taken[job.id]} jobs in all")
        if len(self._times) > parameters.preempts_per_hour_max:
            self._fail(BOUNDED, f"{len(self._times)} jobs are preempted within an hour")
        for number in victims:
            self._lost[number] = self._lost.get(number, 0) + 1
            victim = ledger.jobs[number]
            if victim.high or self._lost[number] > parameters.preempted_per_job_max:
                self._fail(BOUNDED, f"job {number} is preempted for the {self._lost[number]}. time")
            if victim.runs:
                self._to_run.add(number)

    def _needs_all(
        self, job: Job, victims: tuple[JobId, ...], later: dict[JobId, tuple[JobId, ...]], left: list[int]
    ) -> None:
        """Return True if without any one of the victims some site would have too little for the job. If plans precede
        it, a victim may be needed for what is left at their times. ``later`` are the jobs that preempted after it in
        the same moment, with their victims, whose places were not free yet. ``left`` is what each site's own users
        left us."""
        ledger = self._ledger
        not_yet = {number for theirs in later.values() for number in theirs}
        if job.placement is None or ledger.plans_made:
            return
        needed, there = [0] * len(ledger.names), []
        for site, size in zip(job.placed.spots.sites, job.placed.spots.sizes, strict=True):
            needed[site] += size
        for belief, here in zip(ledger.sites, left, strict=True):
            others = belief.earmarked - sum(belief.waiters.get(each, 0) for each in (job.id, *later))
            kept = others + (belief.promised if ledger.sites.hold_placed else 0)
            own = sum(claim.processors for claim in belief.claims.values() if claim.job is job and not claim.aborting)
            there.append(here - belief.ours - kept + own)
        freed: dict[JobId, list[tuple[int, int]]] = {}
        for claim in ledger.claims.values():
            if claim.aborting and not claim.fenced and claim.abort_tries <= 1:
                if claim.job_id in victims:
                    freed.setdefault(claim.job_id, []).append((claim.site, claim.processors))
                elif claim.job_id not in not_yet:
                    there[claim.site] += claim.processors
        for spared in victims:
            have = list(there)
            for victim, holds in freed.items():
                for at, processors in holds if victim != spared else ():
                    have[at] += processors
            enough = all(size <= here for size, here in zip(needed, have, strict=True))
            if enough and (not job.request.is_shaped or self._has_nodes(job, {spared, *not_yet})):
                self._fail(NONE_TOO_MANY, f"job {job.id} preempts job {spared}, and has enough without it")

    def _has_nodes(self, job: Job, spared: set[JobId]) -> bool:
        """Return True if the freed nodes, without these victims, have room for the tasks of the job."""
        ledger = self._ledger
        gone = [
            claim.token
            for claim in ledger.claims.values()
            if claim.job is job
            or (claim.aborting and not claim.fenced and claim.abort_tries <= 1 and claim.job_id not in spared)
        ]
        for site, tasks in tasks_by_site(job.demand, job.placed.spots).items():
            pool = ledger.sites.pools.without(site, gone, job)
            for shape, count in tasks.items() if pool is not None else ():
                if pool is not None and pool.take(shape, count):
                    return False
        return True
