"""One component that has not ended, as a batch site watches it."""

from __future__ import annotations

import enum

from koala.model.launch import EXIT, READY, Launch
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentReady,
    ComponentRunning,
    Token,
)
from koala.sites.batch.ends import EndEvidence
from koala.sites.batch.parse import RecordedComponent
from koala.sites.batch.scripts.directory import AwaitedFiles
from koala.sites.batch.system import BatchEnd, BatchId, BatchJob, BatchState
from koala.sites.component_directory import AbortRecord


class ComponentPhase(enum.Enum):
    """Where a component is, as far as its files tell."""

    QUEUED = "queued"  # the batch system has it, or is to get it
    READY = "ready"  # at the barrier, or past it once it was released


class BatchComponent:
    """A component that has not ended.

    ``tag`` is what the batch system knows it by, ``batch_id`` what it answered; None while that is not known.
    ``known_since`` is the moment from which on a listing must show its job. ``unknown_since`` is when the batch
    system first said that it knows nothing of the job any more, ``asked_at`` when it was last asked about it.
    ``has_begun`` is whether a listing has shown it running.
    ``abort`` says that it is being ended, and why.
    One that is ``lost`` has no directory any more that could be used.
    """

    def __init__(self, launch: Launch, sequence: int, tag: Token, known_since: float) -> None:
        self.launch = launch
        self.sequence = sequence
        self.tag = tag
        self.phase = ComponentPhase.QUEUED
        self.has_begun = False
        self.batch_id: BatchId | None = None
        self.job: BatchJob | None = None
        self.known_since = known_since
        self.unknown_since: float | None = None
        self.asked_at = 0.0
        self.cancelled_at = 0.0
        self.released_at: float | None = None
        self.reservation: str | None = None
        self.abort: AbortRecord | None = None
        self.lost = False
        self.exit_words: list[str] | None = None
        self.mailed: set[str] = set()

    @classmethod
    def of(cls, found: RecordedComponent, tag: Token, known_since: float) -> BatchComponent:
        """One that is on record at the site."""
        assert found.record is not None, "only what was accepted lives"
        component = cls(found.record.launch, found.record.sequence, tag, known_since)
        component.released_at = found.released_at
        component.abort = found.abort
        component.reservation = found.reservation
        return component

    @property
    def token(self) -> Token:
        """Its name."""
        return self.launch.token

    @property
    def is_ending(self) -> bool:
        """Whether its end is expected at any moment, and only the batch system can confirm it."""
        return self.exit_words is not None or self.abort is not None

    @property
    def awaited(self) -> AwaitedFiles:
        """What its files may show next."""
        if self.is_ending:
            return AwaitedFiles(self.token)
        signs = (READY, EXIT) if self.phase is ComponentPhase.QUEUED else (EXIT,)
        return AwaitedFiles(self.token, signs, tuple(sorted(self.mailed)))

    def newest(self, at: float) -> AnyEvent:
        """Its newest event."""
        if self.phase is ComponentPhase.READY and self.released_at is not None:
            return ComponentRunning(at=at, token=self.token)
        if self.phase is ComponentPhase.READY:
            return ComponentReady(at=at, token=self.token)
        return ComponentAccepted(at=at, token=self.token)

    def evidence(self, end: BatchEnd | None) -> EndEvidence:
        """What is known of it once it holds nothing any more."""
        return EndEvidence(launch=self.launch, abort=self.abort, exit_words=self.exit_words, end=end)

    def for_history(self) -> BatchJob:
        """Its job, for the question how it ended."""
        if self.job is not None:
            return self.job
        assert self.batch_id is not None, "it was submitted"
        return BatchJob(id=self.batch_id, token=self.tag, state=BatchState.OVER)

    def walltime_left_s(self, now: float) -> float | None:
        """How long it may go on; None where nothing limits it, or where it does not run or is being ended."""
        if self.launch.walltime_s is None or self.released_at is None or self.is_ending:
            return None
        return self.released_at + self.launch.walltime_s - now

    def begins_in_s(self, now: float) -> float | None:
        """How long until its reservation begins, negative once it has; None without one, and when nothing is to
        start in it any more."""
        if self.reservation is None or self.launch.begin_at is None:
            return None
        return self.launch.begin_at - now if self.phase is ComponentPhase.QUEUED and not self.is_ending else None
