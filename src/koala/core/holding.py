"""Jobs that are not tried yet: they wait for other jobs, for their start time, or for a release.

Such a job is in no queue and costs a scan nothing. Its conditions are checked when something happens: the start or
the end of another job, an alarm, a request of its user. A condition that can never be met ends the job,
with the reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from koala.core.ending import JobEnding
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.life.unfolding import Unfolding
from koala.core.life.waiting import Waiting
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.core.timers import Alarm
from koala.model.dependency import NEVER_COMES, Condition, in_words
from koala.model.facts import BeginTimeCame, DependencyCame, JobUnheld
from koala.model.messages import ChangeAsked, EndedJob, HoldAsked, JobOutcome, JobSubmitted, RestartAsked, UnholdAsked
from koala.model.request import GraphJob, JobId, Priority, Request

# The holder of a job that was submitted as held.
BY_ITS_OWNER = " by its owner"
# From these states a job goes back, and is held there; no application has used what it holds.
_NOT_STARTED = frozenset({JobState.PLACED, JobState.CLAIMING, JobState.STARTING})
# In these states a job may be changed.
_WITHOUT_PLACES = frozenset({JobState.HELD, JobState.WAITING, JobState.QUARANTINED})
# A notification checks everything that the dependent waits for: this many conditions count as one more dependent.
WAITED_FOR_AS_ONE = 50


class KeptBack(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a new job back. ``in_vain`` names what it waits for that never comes: the job would end at once."""

    in_vain: str = ""
    held: bool = False
    held_by: str = ""
    waits_for: tuple[tuple[Condition, JobId], ...] = ()
    begins_at: float | None = None

    @property
    def is_by_more_than_time(self) -> bool:
        """True if it waits for more than its own start time."""
        return bool(self.in_vain or self.held or self.waits_for)


class JobHolding:
    """Keeps jobs back, and releases them."""

    def __init__(self, ledger: Ledger, ending: JobEnding) -> None:
        self.ledger = ledger
        self.ending = ending
        ledger.timers.on(Alarm.BEGINS, self._begins)

    def note(self, job: Job, event: JobSubmitted) -> bool:
        """Note what the new job waits for; return False if that can never come, so that the job has ended."""
        ledger, request = self.ledger, job.request
        if not (request.hold or request.after or request.begin_at or request.begin_in_s):
            return True  # like nearly all jobs
        if request.hold:
            job.hold(BY_ITS_OWNER)
        begins_at = max(request.begin_at or 0.0, job.submitted_at + (request.begin_in_s or 0.0))
        if begins_at > ledger.now:
            job.begins_at = begins_at
        ended = {each.job: each for each in event.ended}
        waits_for: list[tuple[Condition, JobId]] = []
        for dependency in request.after:
            became = _became(ledger, dependency.job, ended)
            met = True if became is None else is_met(dependency.condition, became)
            if became is None or met is False:
                self._end_broken(job, dependency.condition, dependency.job, became)
                return False
            if met is None:
                waits_for.append((dependency.condition, dependency.job))
                job.waits_for = waits_for
                ledger.dependents.setdefault(dependency.job, {})[job.id] = None
        return True

    # ------------------------------------------------------------------------------ what has happened

    def notify_dependents(self, became: EndedJob, last_notified: JobId | None, most: int) -> int:
        """Notify the dependents of a job that has started or ended, by id, starting behind the last one notified.

        If that ends a dependent, its own dependents are notified in turn. ``most`` bounds the work; a dependent that
        waits for many jobs counts as more than one. Returns the work done.
        """
        ledger = self.ledger
        waiting = sorted(ledger.dependents.get(became.job, ()))
        first = place = bisect_right(waiting, last_notified or 0)
        done = 0
        while place < len(waiting) and done < most:
            done += 1 + len(ledger.jobs[waiting[place]].waits_for) // WAITED_FOR_AS_ONE
            place += 1
        if place < len(waiting):
            ledger.follow_ups.add(Work.NOTIFY_DEPENDENTS, became, waiting[place - 1])
        else:
            ledger.follow_ups.drop(Work.NOTIFY_DEPENDENTS, became)
        for job_id in waiting[first:place]:
            self._hear(ledger.jobs[job_id], became)
        return max(1, done)

    def _hear(self, job: Job, became: EndedJob) -> None:
        ledger = self.ledger
        ledger.current_jobs = (job,)
        asked = [condition for condition, other in job.waits_for if other == became.job]
        open_still = []
        for condition in asked:
            met = is_met(condition, became)
            if met is False:
                self._end_broken(job, condition, became.job, became)
                return
            if met:
                ledger.story.append(DependencyCame(job=job.id, condition=condition, other=became.job))
            else:
                open_still.append((condition, became.job))
        if len(open_still) < len(asked):
            job.waits_for = [each for each in job.waits_for if each[1] != became.job or each in open_still]
        if not open_still:
            waiting = ledger.dependents[became.job]
            del waiting[job.id]
            if not waiting:
                del ledger.dependents[became.job]
        self._review(job)

    def _end_broken(self, job: Job, condition: Condition, other: JobId, became: EndedJob | None) -> None:
        """End a job whose condition can never be met."""
        self.ending.end(job, JobState.CANCELLED, _why_broken(condition, other, became))

    def _begins(self, job_id: JobId) -> None:
        job = self.ledger.jobs[job_id]
        job.timer = None
        job.begins_at = None
        self.ledger.story.append(BeginTimeCame(job=job_id))
        self._review(job)

    def _review(self, job: Job) -> None:
        """Queue the job like a new one if nothing keeps it back any more."""
        if job.state is not JobState.HELD:
            return
        if job.is_kept_back:
            self.ending.tell_held(job)
            return
        job.stop_timer()
        job.become(Waiting())
        self.ledger.facts.append(JobUnheld(job=job.id))
        if job.spec is not None:
            self.unfold_later(job)
            return
        self.ledger.queue_of(job).note_arrival(job)
        self.ending.avoidance.enqueue(job)

    def unfold_later(self, array: Job) -> None:
        """Make elements of the array from now on. They stand in line as if all had come at this moment."""
        array.become(Unfolding())
        if array.arrival < 0:
            array.arrival = self.ledger.queue_of(array).reserve(array.elements.spec.size)
        self.ledger.follow_ups.add(Work.UNFOLD, array.id)

    def stand_in_line(self, array: Job) -> None:
        """Give an array that an operator put back a new place in line, and likewise its elements that have none."""
        array.arrival = self.ledger.queue_of(array).reserve(array.elements.spec.size)
        for job in self.ledger.jobs.values():
            if job.array == array.id and job.arrival < 0 and job.high is array.high:
                job.arrival = array.arrival + job.id - array.id - 1

    # ------------------------------------------------------------------------------- what users ask for

    def on_hold_asked(self, event: HoldAsked) -> None:
        job = self.ledger.jobs.get(event.job)
        if job is None or job.held:
            return
        if job.state is JobState.WAITING or (job.state is JobState.UNFOLDING and not job.elements.all_made):
            job.hold(job.asked_by(event))
            self.ending.keep_back(job)
        elif job.state in _NOT_STARTED:
            job.hold(job.asked_by(event))
            self.ending.back_to_queue(job, f"held{job.held_by}", lower=False)
        elif job.state in (JobState.HELD, JobState.QUARANTINED, JobState.UNWINDING):
            job.hold(job.asked_by(event))
            if job.state is JobState.HELD:
                self.ending.tell_held(job)

    def on_restart_asked(self, event: RestartAsked) -> None:
        """Take back what the job holds and queue it again. That is nobody's failure, so nothing is counted."""
        job = self.ledger.jobs.get(event.job)
        if job is None:
            return
        if job.state in _NOT_STARTED or job.state in (JobState.RUNNING, JobState.COLLECTING):
            asked_by = job.asked_by(event)
            if event.hold:
                job.hold(asked_by)
            self.ending.back_to_queue(job, f"requeued{asked_by}", lower=False, saving=True)
        elif event.hold:
            self.on_hold_asked(HoldAsked(at=event.at, job=event.job, by=event.by, reason=event.reason))

    def on_change_asked(self, event: ChangeAsked) -> None:
        """Change the job. It keeps its place in line unless the change affects the line."""
        ledger, job = self.ledger, self.ledger.jobs.get(event.job)
        if job is None or job.state not in _WITHOUT_PLACES:
            return
        waits = job.state is JobState.WAITING
        if event.walltime_s is not None and event.walltime_s != job.walltime_s:
            job.changed_walltime_s = event.walltime_s
            if waits:
                ledger.drop_plan(job)
                ledger.change_demand(job, job.demand)
        if event.priority is not None and (event.priority is Priority.HIGH) is not job.high:
            if waits:
                if job.id in ledger.queue_of(job).resting and job.timer is not None:
                    job.rest_s = job.timer.at - ledger.now  # it rests in the new line as long as in the old one
                self.ending.leave_placement_queue(job)
                job.stop_timer()
            job.arrival = -1  # its number in one line means nothing in the other
            job.changed_priority = event.priority
            job.high = event.priority is Priority.HIGH
            if job.spec is None:
                ledger.queue_of(job).note_arrival(job)
            if waits:
                self.ending.avoidance.enqueue(job)

    def on_unhold_asked(self, event: UnholdAsked) -> None:
        job = self.ledger.jobs.get(event.job)
        if job is None or not job.held:
            return
        job.held, job.held_by = False, ""
        self._review(job)


def never_to_come(ledger: Ledger, request: Request, ended: Sequence[EndedJob]) -> str:
    """Return in words what a new job would wait for in vain, so that it would end at once; empty if nothing."""
    over = {each.job: each for each in ended}
    for each in request.after:
        became = _became(ledger, each.job, over)
        if became is None or is_met(each.condition, became) is False:
            return _why_broken(each.condition, each.job, became)
    return ""


def never_to_come_in(ledger: Ledger, graph: Sequence[GraphJob], ended: Sequence[Sequence[EndedJob]]) -> list[str]:
    """Return the same for each new job of a graph; a job that waits for one that would end at once waits
    in vain too."""
    at_once = EndedJob(job=0, outcome=JobOutcome.CANCELLED, started=False)
    found: list[str] = []
    for job, over in zip(graph, ended, strict=True):
        vain = never_to_come(ledger, job.request, over)
        for each in job.within:
            if not vain and found[each.job] and is_met(each.condition, at_once) is False:
                vain = f"{graph[each.job].name}, which it waits for, is cancelled at once"
        found.append(vain)
    return found


def would_keep_back(ledger: Ledger, request: Request, ended: Sequence[EndedJob], now: float) -> KeptBack:
    """Return what would keep a new job back."""
    over = {each.job: each for each in ended}
    open_still = [
        (each.condition, each.job)
        for each in request.after
        if (became := _became(ledger, each.job, over)) is not None and is_met(each.condition, became) is None
    ]
    return KeptBack(
        in_vain=never_to_come(ledger, request, ended),
        held=request.hold,
        held_by=BY_ITS_OWNER if request.hold else "",
        waits_for=tuple(open_still),
        begins_at=would_begin_at(request, now),
    )


def would_begin_at(request: Request, now: float) -> float | None:
    """Return the time before which a new job would not be tried; None if it has no such time in the future."""
    begins_at = max(request.begin_at or 0.0, now + (request.begin_in_s or 0.0))
    return begins_at if begins_at > now else None


def _became(ledger: Ledger, job_id: JobId, ended: dict[JobId, EndedJob]) -> EndedJob | None:
    """Return what has become of a job so far; None if the job is unknown."""
    job = ledger.jobs.get(job_id)
    if job is not None:
        return EndedJob(job=job_id, outcome=None, started=job.runs > 0)
    array = ledger.array_of(job_id)
    return ended.get(job_id) if array is None else _element_became(job_id, array)


def _why_broken(condition: Condition, other: JobId, became: EndedJob | None) -> str:
    if became is None:
        what = f"job {other} is not known"
    elif condition is Condition.STARTED:
        what = f"job {other} ended before it started"
    else:
        what = f"job {other} {_BECAME[became.outcome]}"
    return f"it waits for {in_words(condition, other)}, {NEVER_COMES}: {what}"


def _element_became(job_id: JobId, array: Job) -> EndedJob:
    """Return what has become of an element that is no job of the ledger: not made yet, or ended."""
    position, elements = job_id - array.id - 1, array.elements
    if position in elements.not_done:
        # Nobody remembers if it ever started: dependents on its start have been notified by then.
        return EndedJob(job=job_id, outcome=JobOutcome(elements.not_done[position]), started=False)
    if position < elements.made:
        return EndedJob(job=job_id, outcome=JobOutcome.DONE, started=True)
    return EndedJob(job=job_id, outcome=None, started=False)


_BECAME = {
    None: "goes on",
    JobOutcome.DONE: "is done",
    JobOutcome.FAILED: "failed",
    JobOutcome.CANCELLED: "was cancelled",
}


def is_met(condition: Condition, became: EndedJob) -> bool | None:
    """Return True if the condition holds, False if it never can; None while that is open."""
    if condition is Condition.STARTED and became.started:
        return True
    if became.outcome is None:
        return None
    if condition is Condition.DONE:
        return became.outcome is JobOutcome.DONE
    if condition is Condition.FAILED:
        return became.outcome is JobOutcome.FAILED
    return condition is Condition.ENDED
