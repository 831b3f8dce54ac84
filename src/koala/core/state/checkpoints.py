"""Checkpoints as the core knows them: which components of former runs may have one, and what a job would lose.

Where the bytes are, and whether they are whole, only those know who bring them.
"""

from __future__ import annotations

from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.ledger import Ledger
from koala.model.api import CheckpointInfo, SavedCheckpointInfo
from koala.model.checkpoint import CheckpointSource
from koala.model.messages import CheckpointBrought, Token

# So many former runs are remembered: a run that never came to its first checkpoint leaves the one before it in use.
CHECKPOINT_RUNS_MAX = 16


def checkpoint_status(job: Job, now: float) -> CheckpointInfo | None:
    """From what its components last went on, and what an end would cost now; None for a job without checkpoints."""
    if job.request.checkpoint is None:
        return None
    saved = [
        SavedCheckpointInfo(component=component, site=site, run=run, size_bytes=size_bytes, saved_at=saved_at)
        for component, (site, run, size_bytes, saved_at) in sorted(job.went_on_from.items())
    ]
    runs = job.state is JobState.RUNNING
    return CheckpointInfo(saved=saved, work_lost_s=round(work_lost_s(job, now), 3) if runs else None)


def work_lost_s(job: Job, now: float) -> float:
    """For how long the job would have run in vain if it were ended now, and began again from its last checkpoint.

    A job that saves when it is asked to, and is given the time for it, loses nothing. One that saves every so often
    loses what it did since; any other all that it did in this run.
    """
    if job.started_at is None:
        return 0.0
    ran_s = max(0.0, now - job.started_at)
    checkpoint = job.request.checkpoint
    if checkpoint is None:
        return ran_s
    if checkpoint.asks:
        return 0.0
    return ran_s if checkpoint.every_s is None else ran_s % checkpoint.every_s


def grace_s(claim: ComponentClaim) -> float:
    """How long the component may still run once it is asked to save; 0 for one that is not asked."""
    checkpoint = claim.job.request.checkpoint
    if checkpoint is None or claim.phase is not ComponentPhase.RUNNING or claim.fenced:
        return 0.0
    return checkpoint.grace_s


def is_saving(claim: ComponentClaim) -> bool:
    """Whether the component was asked to save and has its time of grace: it has not ended, nor is it told to."""
    return claim.aborting and not claim.fenced and claim.abort_tries == 0 and claim.timer is not None


def still_runs(claim: ComponentClaim) -> bool:
    """Whether nobody has ended the component yet: what it uses until then counts."""
    return not claim.aborting or is_saving(claim)


class JobCheckpoints:
    """Remembers which components ran, and names those from whose checkpoints others go on."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def note_run(self, job: Job) -> None:
        """The barrier has opened: the components of this run may leave checkpoints."""
        names = self.ledger.names
        run = tuple([(names[claim.site], claim.token) for claim in job.claims])
        job.changes.places[job.id] = None
        job.checkpoint_runs = [run, *job.checkpoint_runs[: CHECKPOINT_RUNS_MAX - 1]]

    def sources(self, job: Job, part: int) -> tuple[CheckpointSource, ...]:
        """The components of former runs from whose checkpoints a component goes on, the last first.

        Only those that have ended: what a component that may still run, as at a lost site, is writing is not whole.
        """
        part = job.request.checkpoint_part(part)
        former = [run[part] for run in job.checkpoint_runs[1:] if part < len(run)]
        return tuple(
            CheckpointSource(site=site, token=token) for site, token in former if token not in self.ledger.claims
        )

    def on_brought(self, event: CheckpointBrought) -> None:
        """For those who ask from what it goes on."""
        claim = self.ledger.claims.get(event.token)
        if claim is None or claim.aborting:
            return
        job = claim.job
        job.changes.places[job.id] = None
        job.went_on_from.pop(claim.component, None)
        if event.source is not None:
            run = self._run_of(job, event.saved_by)
            source = event.source, run, event.size_bytes, event.saved_at
            job.went_on_from = {**job.went_on_from, claim.component: source}

    @staticmethod
    def _run_of(job: Job, token: Token) -> int:
        """The number of the run that a component was of; 0 for one that nobody remembers."""
        back = (back for back, run in enumerate(job.checkpoint_runs) if any(token == each for _, each in run))
        return job.runs - next(back, job.runs)
