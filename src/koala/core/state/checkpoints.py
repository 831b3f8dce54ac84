"""Checkpoints in the core: which components of former runs may have one, and what a job would lose.

Only the services that transfer the bytes know where they are, and if they are whole.
"""

from __future__ import annotations

from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.state.ledger import Ledger
from koala.model.api import CheckpointInfo, SavedCheckpointInfo
from koala.model.checkpoint import CheckpointSource
from koala.model.messages import CheckpointBrought, Token

# At most this many former runs are remembered: a run without a checkpoint leaves the run before it in use.
CHECKPOINT_RUNS_MAX = 16


def checkpoint_status(job: Job, now: float) -> CheckpointInfo | None:
    """Return from what its components last resumed, and what an end would cost now; None for a
    job without checkpoints."""
    if job.request.checkpoint is None:
        return None
    saved = [
        SavedCheckpointInfo(component=component, site=site, run=run, size_bytes=size_bytes, saved_at=saved_at)
        for component, (site, run, size_bytes, saved_at) in sorted(job.went_on_from.items())
    ]
    runs = job.state is JobState.RUNNING
    return CheckpointInfo(saved=saved, work_lost_s=round(work_lost_s(job, now), 3) if runs else None)


def work_lost_s(job: Job, now: float) -> float:
    """Return the run time that would be lost if the job were ended now and resumed from its last checkpoint.

    A job that saves on request, and is given the time for it, loses nothing. A job that saves at intervals loses its
    work since the last one; any other job loses all its work in this run.
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
    """Return how long the component may still run after a request to save; 0 if it gets no request."""
    checkpoint = claim.job.request.checkpoint
    if checkpoint is None or claim.phase is not ComponentPhase.RUNNING or claim.fenced:
        return 0.0
    return checkpoint.grace_s


def is_saving(claim: ComponentClaim) -> bool:
    """Return True if the component is in its time of grace to save: it has not ended, nor been told to."""
    return claim.aborting and not claim.fenced and claim.abort_tries == 0 and claim.timer is not None


def still_runs(claim: ComponentClaim) -> bool:
    """Return True if nobody has ended the component yet: what it uses until then counts."""
    return not claim.aborting or is_saving(claim)


class JobCheckpoints:
    """The components that ran, and those from whose checkpoints others resume."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def note_run(self, job: Job) -> None:
        """Note that the components of this run may leave checkpoints: the barrier has opened."""
        names = self.ledger.names
        run = tuple([(names[claim.site], claim.token) for claim in job.claims])
        job.changes.places[job.id] = None
        job.checkpoint_runs = [run, *job.checkpoint_runs[: CHECKPOINT_RUNS_MAX - 1]]

    def sources(self, job: Job, part: int) -> tuple[CheckpointSource, ...]:
        """Return the components of former runs from whose checkpoints a component resumes, the last first.

        Only ended components count: a component that may still run, as at a lost site, may be writing a checkpoint.
        """
        part = job.request.checkpoint_part(part)
        former = [run[part] for run in job.checkpoint_runs[1:] if part < len(run)]
        return tuple(
            CheckpointSource(site=site, token=token) for site, token in former if token not in self.ledger.claims
        )

    def on_brought(self, event: CheckpointBrought) -> None:
        """Note from which checkpoint a component resumes, for later queries."""
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
        """Return the number of the run of a component; 0 if nobody remembers it."""
        back = (back for back, run in enumerate(job.checkpoint_runs) if any(token == each for _, each in run))
        return job.runs - next(back, job.runs)
