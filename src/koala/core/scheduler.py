"""The scheduler: events in, commands and facts out. It has no clock, I/O or threads: a driver brings all three.

``Scheduler.handle`` is the only entry. The modules behind it follow the life of a job: ``placement`` finds places,
``preemption`` chooses the jobs that make room for others, ``claiming`` claims on every site or none, ``staging`` has
files transferred, ``running`` opens the barrier and watches the components, ``holding`` keeps jobs back that must not
be tried yet, ``ending`` frees everything; ``probing`` has links measured; ``lost`` takes jobs away from sites that
are of no use any more; ``tasks`` adds tasks to running jobs of tasks. Each uses only the modules named after it
(``lost`` and ``tasks`` those from ``claiming`` on), and the ``ledger``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from koala.core.claiming import JobClaiming
from koala.core.collecting import OutputCollecting
from koala.core.encoded import INFINITY
from koala.core.ending import JobEnding
from koala.core.failures.avoidance import SiteAvoidance
from koala.core.failures.blame import Blame
from koala.core.failures.exclusions import Exclusion, NodeExclusions
from koala.core.holding import JobHolding
from koala.core.life.component import job_of_token
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.lost import SiteLoss
from koala.core.placement import JobPlacing
from koala.core.preemption.victims import Victims
from koala.core.probing import LinkProbing
from koala.core.records.loading import load
from koala.core.records.reading import DamagedRecord, KnownJob
from koala.core.records.record import Record
from koala.core.records.writing import RecordWriter, grid_digest
from koala.core.refusals import held_back, refusal_of
from koala.core.running import JobRunning
from koala.core.staging import JobStaging
from koala.core.standing import JobExplanation, explain, explain_array, job_traffic
from koala.core.state.checkpoints import JobCheckpoints, checkpoint_status
from koala.core.state.expected_starts import ExpectedStart, ExpectedStarts
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger, RecordedLedger
from koala.core.tasks.spawning import JobSpawning, SpawnRefusal
from koala.model.api import CheckpointInfo, Refusal, TrafficInfo
from koala.model.facts import Turn
from koala.model.grid import Grid
from koala.model.messages import (
    MACHINE_CLASSES_MAX,
    AnyEvent,
    CancelAsked,
    ChangeAsked,
    CheckpointBrought,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    FileChanged,
    HoldAsked,
    JobQuarantined,
    JobSubmitted,
    LinkProbed,
    OutputsCollected,
    RequeueAsked,
    RestartAsked,
    SiteDrained,
    SiteLost,
    SiteMachines,
    SiteReported,
    SiteResumed,
    SiteSilent,
    SpawnAsked,
    Tick,
    TrafficMeasured,
    TransferEnded,
    UnholdAsked,
)
from koala.model.request import FileName, JobId, Priority, Request, SiteName
from koala.model.task_graph import SpawnedTasks
from koala.policies import Catalogue
from koala.policies.interface import Demand, FileAt, Spots, can_ever_fit, try_place

# At most this many dependents are notified in one turn that the jobs they wait for have started or ended.
TOLD_AT_ONCE_MAX = 500
# At most this many elements of arrays are cancelled in one turn.
CANCELLED_AT_ONCE_MAX = 500


class HandlingError(RuntimeError):
    """Our own code raised an error while it handled an event: the core is unusable, and continues from the record.

    ``event`` is the event handled, ``jobs`` are the jobs that the core was busy with (none if it was not with one).
    """

    def __init__(self, event: AnyEvent, jobs: Sequence[JobId], error: BaseException) -> None:
        super().__init__(f"{type(event).__name__} could not be handled: {error!r}")
        self.event = event
        self.jobs = tuple(jobs)
        self.error = error


class Scheduler:
    """The co-allocating scheduler of one grid. Its state is in ``ledger``."""

    def __init__(self, grid: Grid, catalogue: Catalogue | None = None, *, recorded: bool = False) -> None:
        self.grid = grid
        self._recorded = recorded
        self.ledger = ledger = RecordedLedger(grid) if recorded else Ledger(grid)
        exclusions = NodeExclusions(ledger)
        self._avoidance = SiteAvoidance(ledger, exclusions)
        self._ending = JobEnding(ledger, self._avoidance)
        self._holding = JobHolding(ledger, self._ending)
        checkpoints = JobCheckpoints(ledger)
        self._collecting = OutputCollecting(ledger, self._ending)
        self._running = JobRunning(ledger, self._ending, Blame(ledger), checkpoints, self._collecting)
        self._staging = JobStaging(ledger, self._ending, self._running)
        self._claiming = JobClaiming(ledger, self._ending, self._running, self._staging)
        self._loss = SiteLoss(ledger, grid, self._ending, self._running, self._claiming)
        self._placement = JobPlacing(
            ledger,
            catalogue if catalogue is not None else Catalogue.builtin(),
            self._ending,
            self._holding,
            self._running,
            self._staging,
            self._claiming,
        )
        self._spawning = JobSpawning(ledger, self._ending, self._running, self._placement)
        self._probing = LinkProbing(ledger, grid)
        self._expected_starts = ExpectedStarts(ledger)
        self.due_at = INFINITY  # when the driver must send a ``Tick``, unless it has sent another event by then
        ledger.follow_ups.on(Work.CLAIM, self._claim)
        ledger.follow_ups.on(Work.TRY_EVERYBODY, self._try_everybody)
        ledger.follow_ups.on_bounded(Work.CANCEL_ELEMENTS, CANCELLED_AT_ONCE_MAX, self._cancel_elements)
        ledger.follow_ups.on_bounded(Work.NOTIFY_DEPENDENTS, TOLD_AT_ONCE_MAX, self._holding.notify_dependents)
        self._writer = RecordWriter(ledger, grid)
        self.damaged: list[DamagedRecord] = []  # records that were set aside during the load
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            JobSubmitted: self._placement.on_submitted,
            HoldAsked: self._holding.on_hold_asked,
            RestartAsked: self._holding.on_restart_asked,
            ChangeAsked: self._holding.on_change_asked,
            SpawnAsked: self._spawning.on_spawn_asked,
            UnholdAsked: self._holding.on_unhold_asked,
            CancelAsked: self._on_cancel_asked,
            JobQuarantined: self._on_quarantined,
            RequeueAsked: self._placement.on_requeue_asked,
            ComponentAccepted: self._running.on_accepted,
            ComponentStarting: self._running.on_starting,
            ComponentReady: self._running.on_ready,
            ComponentRunning: self._running.on_running,
            ComponentEnded: self._running.on_ended,
            CheckpointBrought: checkpoints.on_brought,
            OutputsCollected: self._collecting.on_collected,
            TransferEnded: self._staging.on_transfer_ended,
            FileChanged: self._staging.on_file_changed,
            LinkProbed: self._probing.on_probed,
            TrafficMeasured: self._running.on_traffic,
            SiteReported: self._loss.on_reported,
            SiteMachines: self._on_site_machines,
            SiteSilent: self._loss.on_silent,
            SiteLost: self._loss.on_lost,
            SiteDrained: self._on_site_drained,
            SiteResumed: self._on_site_resumed,
            Tick: self._on_tick,
        }

    def _on_site_machines(self, event: SiteMachines) -> None:
        index = self.ledger.index.get(event.site)
        if index is not None:
            self.ledger.sites.report_machines(index, event.machines[:MACHINE_CLASSES_MAX])

    def handle(self, event: AnyEvent) -> Turn:
        """Apply the event and the passing of time; return the results and the commands to execute now.

        Events come in order of time. An event about an unknown job, token or transfer changes nothing: answers may
        come late and more than once. Raises ``HandlingError`` for any error in our own code; then the
        scheduler is unusable.
        """
        ledger, handler, at = self.ledger, self._handlers[type(event)], event.at
        turn = Turn()
        ledger.commands = ledger.facts = entries = turn.entries
        if self._recorded:
            ledger.story = entries
            ledger.changes.jobs |= dict.fromkeys(_jobs_of(event))
        ledger.made_now = 0
        ledger.current_jobs = ()
        try:
            if type(event) is JobQuarantined:  # and nothing that is due: that may have raised the error
                handler(event)
                ledger.follow_ups.take_up(Work.REVIEW_SITES)
            else:
                now = self._let_time_pass(event, at)  # 1. what was due by now
                ledger.current_jobs = None
                handler(event)  # 2. the event itself
                if ledger.planned or ledger.claiming.next_at <= now or ledger.kept_early:
                    ledger.follow_ups.add(Work.CLAIM)
                if ledger.follow_ups.left:
                    ledger.follow_ups.take_up()  # 3. what follows from both
                ledger.current_jobs = ()
                if ledger.forecasts.probe_at <= now or ledger.links.learned.forget_at <= now:
                    self._look_at_links()
            for queue in (ledger.high, ledger.low):  # 4. the next pass over waiting jobs
                if queue.size and ledger.scans.set_next(queue, ledger.now, at) and ledger.plans_made:
                    self._placement.plans.refresh()
            self.due_at = self._next_at()  # 5. the next turn
        except Exception as error:
            current: Sequence[Job] | None = ledger.current_jobs
            jobs = _jobs_of(event) if current is None else [job.id for job in current]
            raise HandlingError(event, jobs, error) from error
        return turn

    def _let_time_pass(self, event: AnyEvent, at: float) -> float:
        """Do everything that is due: claiming tries, then alarms, then a scan of each queue. Returns the time."""
        ledger = self.ledger
        instant_is_new = at > ledger.now
        if instant_is_new:
            ledger.now = at
            if ledger.preempted_at:
                self._placement.preemption.pass_time()
            if ledger.planned:
                self._placement.plans.look_for_late()
        now = ledger.now
        if self.due_at > now:
            return now
        ledger.scans.to_come = instant_is_new
        self._claiming.claim_due()
        while ledger.timers.fire_next(now):
            pass
        ledger.scans.to_come = False
        ledger.current_jobs = ()
        for queue in (ledger.high, ledger.low):
            if queue.size and ledger.scans.is_due(queue, now, is_new=instant_is_new, is_tick=type(event) is Tick):
                self._placement.scan(queue)
        return now

    def _claim(self, *_: None) -> None:
        self._claiming.claim_due()
        self.ledger.current_jobs = ()
        if self.ledger.kept_early or (self.ledger.planned and self._placement.early.on):
            self._placement.claim_early()

    def _try_everybody(self, *_: None) -> None:
        if self.ledger.planned:  # a plan may fail, and keep what other jobs could have
            self.ledger.try_everybody()

    def _look_at_links(self) -> None:
        ledger = self.ledger
        if ledger.forecasts.probe_at <= ledger.now:
            self._probing.look()
        if ledger.links.learned.forget_at <= ledger.now:
            ledger.links.learned.forget_old(ledger.now)

    def _next_at(self) -> float:
        """Return the next due time of all timekeepers."""
        ledger = self.ledger
        high, timers = ledger.high, ledger.timers
        alarm_at = timers.next_at() if timers.heap else INFINITY
        due_at = min(alarm_at, ledger.claiming.next_at, high.scan_due_at, ledger.low.scan_due_at)
        if ledger.follow_ups.left:  # more than fits into one turn
            due_at = min(due_at, ledger.now)
        if high.size and (next_at := self._placement.preemption.next_at) is not None:
            due_at = min(due_at, next_at)
        if ledger.planned:
            plans, early = self._placement.plans, self._placement.early
            due_at = min(due_at, plans.look_at, early.next_at if early.on else INFINITY)
        if ledger.jobs and ledger.forecasts.probe_at < due_at:  # without jobs, the next event is soon enough
            due_at = ledger.forecasts.probe_at
        return due_at

    @property
    def last_job(self) -> JobId:
        """The highest id of any job ever submitted; -1 if none was."""
        return self._placement.last_job

    def use_up(self, last_job: JobId, starts: Mapping[JobId, int]) -> None:
        """Reserve all job numbers up to this one, and this many starts of the named jobs."""
        self._placement.last_job = max(self._placement.last_job, last_job)
        for number, count in starts.items():
            job = self.ledger.jobs[number]
            job.starts = max(job.starts, count)
            job.changed()

    def keep_file(self, file: FileName, size_bytes: int, sites: Iterable[SiteName]) -> None:
        """Enter a file with replicas at these sites that no record has any more."""
        known, index = self.ledger.sites, self.ledger.index
        holders = tuple(sorted({index[site] for site in sites if site in index}))
        if holders and file not in known.view.files:
            known.view.files[file] = FileAt(size_bytes, holders)
            known.files_changed(file)

    # ---------------------------------------------------------------------------------------- its records

    def changed_records(self) -> list[Record]:
        """Return the records that have changed since the last call.

        For a driver that keeps records: together with the earlier ones they decide everything that the scheduler will
        do next. The scheduler must have been made with ``recorded``.
        """
        return self._writer.changed(self._placement.last_job)

    def records(self) -> list[Record]:
        """Return all records."""
        return self._writer.all(self._placement.last_job)

    @classmethod
    def from_records(
        cls, grid: Grid, catalogue: Catalogue | None, records: Iterable[Record], known: Mapping[JobId, KnownJob]
    ) -> Scheduler:
        """Make a scheduler that continues the one that wrote the records; send it a ``Tick`` first.

        It answers every later event as that scheduler would have done. On another grid it takes parameters and new
        sites from there. ``damaged`` has the records that were set aside, each with its job. Raises RecordsError if a
        site or a policy is missing that a job still needs, and UnknownPolicyError if the catalogue lacks the grid's
        own policy.
        """
        scheduler = cls(grid, catalogue, recorded=True)
        ledger = scheduler.ledger
        scheduler.damaged = load(records, known, ledger, scheduler._placement, grid=grid_digest(grid))
        ledger.changes.clear()
        scheduler.due_at = ledger.now  # for the tick that comes first
        return scheduler

    # ------------------------------------------------------------------------------------ explanations

    def explain(self, job_id: JobId) -> JobExplanation | None:
        """Return where the job stands and why; None if it is unknown or long gone."""
        ledger = self.ledger
        job = ledger.jobs.get(job_id) or ledger.ended.get(job_id)
        if job is None:
            return None
        told = self._explain(job)
        element = ledger.next_element(job)
        return told if element is None else explain_array(told, self._explain(element))

    def _explain(self, job: Job) -> JobExplanation:
        ledger, tries = self.ledger, job.placement_tries
        if job.state is JobState.WAITING:
            tries += ledger.tries_in_queue(job)
        planned = self._placement.plans.before(job)
        queue, preempting = ledger.queue_of(job), self._preempting(job)
        expected = self._expected_start(job)
        return explain(
            job,
            queue,
            ledger.sites,
            tries,
            planned,
            expected,
            preempting,
            elements_before=ledger.elements_before(job),
            now=ledger.now,
            closed=[ledger.names[index] for index in self._avoidance.exclusions.closed_to(job)],
        )

    def never_fits(self, job_id: JobId) -> Refusal | None:
        """Return why a job without places would have none even if all sites were idle; None if it would."""
        job, sites = self.ledger.jobs.get(job_id), self.ledger.sites
        if job is None or job.asks is None or job.placement is not None:
            return None
        if can_ever_fit(job.demand, sites.view.limit, sites.view):
            return None
        refusal = refusal_of(job.demand, sites.seen_now(), sites)
        return refusal if refusal.permanent else None

    def _preempting(self, job: Job) -> str:
        """Return why a waiting high-priority job preempts nobody for its places."""
        if not job.high or job.state is not JobState.WAITING or job.asks is None:
            return ""
        found = self._placement.preemption.look(job)
        return found if isinstance(found, str) else "it preempts jobs of low priority for its places at its next try"

    def exclusions(self, site: int) -> list[Exclusion]:
        """Return the nodes of the site that programs are kept off. Changes nothing."""
        return self._avoidance.exclusions.at(site)

    def why_not_spawned(self, job_id: JobId, tasks: SpawnedTasks) -> SpawnRefusal | None:
        """Return why a job would get no such tasks now; None if it would. Changes nothing."""
        job = self.ledger.jobs.get(job_id)
        if job is None:
            return SpawnRefusal("it has ended; submit it again")
        found = self._spawning.places_for(job, tasks)
        return found if isinstance(found, SpawnRefusal) else None

    def told(self, job_id: JobId) -> tuple[float, float | None] | None:
        """Return the expected start of a waiting job, and the latest start if known; None if it has no plan."""
        expected = self.expected_start(job_id)
        return None if expected is None else (expected.at, expected.latest_at)

    def expected_start(self, job_id: JobId) -> ExpectedStart | None:
        """Return the same, with the places, and the jobs whose ends it waits for."""
        job = self.ledger.jobs.get(job_id)
        return None if job is None else self._expected_start(job)

    def _expected_start(self, job: Job) -> ExpectedStart | None:
        if job.plan is None:
            return None
        return self._expected_starts.of(job, self._placement.plans.line())

    def expected_start_of_new(self, demand: Demand, request: Request, owner: str = "") -> ExpectedStart | None:
        """Return when and where a new job of that user would start if it found no places now; for an array,
        its first element.

        None if it would have no plan. Changes nothing.
        """
        plans = self._placement.plans
        job = plans.coming(demand, msgspec.structs.replace(request, array=None), owner)
        return None if job.plan is None else self._expected_starts.of(job, plans.line([job]))

    def place_of_new(self, demand: Demand, request: Request, owner: str = "") -> int:
        """Return the queue place of a job of that user that came now and waited, counted from 1. Changes nothing."""
        job = self._placement.plans.coming(demand, msgspec.structs.replace(request, array=None), owner)
        job.waiting.plan = None
        return self.ledger.queue_of(job).place_of_new(job)

    def traffic(self, job_id: JobId) -> TrafficInfo | None:
        """Return what the job sends between its sites; None if it is not at several."""
        job = self.ledger.jobs.get(job_id)
        return None if job is None else job_traffic(job, self.ledger.names)

    def checkpoint(self, job_id: JobId, now: float) -> CheckpointInfo | None:
        """Return what the job saved; None if it saves nothing, or is long gone."""
        job = self.ledger.jobs.get(job_id) or self.ledger.ended.get(job_id)
        return None if job is None else checkpoint_status(job, now)

    def preview(self, demand: Demand, request: Request, owner: str = "") -> Spots | Victims | Refusal:
        """Return where a new job of that user would start, whom it would preempt for that, or why it would wait.

        Changes nothing.
        """
        ledger = self.ledger
        if ledger.plans_made:
            spots, planned = self._placement.plans.preview(demand, request, owner)
        else:
            spots, planned = try_place(demand, ledger.sites.view), []
        if spots is not None:
            return spots
        preempting = ""
        if request.priority is Priority.HIGH:
            found = self._placement.preemption.preview(demand, request)
            if isinstance(found, Victims):
                return found
            preempting = found
        if planned:
            return held_back(demand, planned)
        return refusal_of(demand, ledger.sites.seen_now(), ledger.sites, preempting, submitter=owner)

    def _on_tick(self, event: Tick) -> None:
        """Do nothing: due work was done before the event."""

    # ----------------------------------------------------------------------------- users and operators

    def _on_cancel_asked(self, event: CancelAsked) -> None:
        ledger = self.ledger
        job = ledger.jobs.get(event.job)
        if job is None:
            array = ledger.array_of(event.job)
            if array is not None:
                self._ending.cancel_element(array, event.job, array.asked_by(event))
            return
        self._cancel(job, f"cancelled{job.asked_by(event)}")
        if job.spec is not None:  # the array before its elements: no more are made when these end
            ledger.follow_ups.add(Work.CANCEL_ELEMENTS, job.id)

    def _cancel_elements(self, array: JobId, _: None, most: int) -> int:
        elements = [job for job in self.ledger.jobs.values() if job.array == array]
        for job in elements[:most]:
            self._cancel(job, "cancelled with its array")
        if len(elements) <= most:
            self.ledger.follow_ups.drop(Work.CANCEL_ELEMENTS, array)
        return min(most, len(elements))

    def _cancel(self, job: Job, reason: str) -> None:
        self.ledger.current_jobs = (job,)
        self._ending.end(job, JobState.CANCELLED, reason)

    def _on_quarantined(self, event: JobQuarantined) -> None:
        job = self.ledger.jobs.get(event.job)
        if job is not None and job.state is not JobState.QUARANTINED:
            self._ending.set_aside(job, event.reason, event.at)

    def _on_site_drained(self, event: SiteDrained) -> None:
        index = self.ledger.index.get(event.site)
        if index is not None:
            self.ledger.sites.drain(index, event.by_whom)

    def _on_site_resumed(self, event: SiteResumed) -> None:
        index = self.ledger.index.get(event.site)
        if index is not None:
            self.ledger.sites.resume(index)
            self._running.wake_waiters(index)


def _jobs_of(event: AnyEvent) -> list[JobId]:
    """Return the job of an event, by its number or that of a component; none for any other event."""
    if (number := getattr(event, "job", None)) is not None:
        return [number]
    token = getattr(event, "token", "")
    return [job_of_token(token)] if token else []
