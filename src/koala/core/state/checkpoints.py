"""Checkpoints as the core knows them: which components of former runs may have one, and what a job would lose.

Where the bytes are, and whether they are whole, only those know who bring them.
"""

from __future__ import annotations

from koala.core.state.job import ComponentClaim, ComponentPhase, Job
from koala.core.state.ledger import Ledger
from koala.model.checkpoint import CheckpointSource
from koala.model.messages import CheckpointBrought

# So many former runs are remembered: a run that never came to its first checkpoint leaves the one before it in use.
CHECKPOINT_RUNS_MAX = 16


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


class JobCheckpoints:
    """Remembers which components ran, and names those from whose checkpoints others go on."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def note_run(self, job: Job) -> None:
        """The barrier has opened: the components of this run may leave checkpoints."""
        if job.request.checkpoint is not None:
            names = self.ledger.names
            run = tuple([(names[claim.site], claim.token) for claim in job.claims if claim is not None])
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
        """For the job's story."""
        claim = self.ledger.claims.get(event.token)
        if claim is None or claim.aborting:
            return
        self.ledger.about = (claim.job,)
        claim.job.tell(self.ledger.now, "goes_on_from", claim.component, event.source, event.size_bytes, event.reason)
