"""One live component as a batch site watches it, and the meaning of its end there.

The script knows best how its application ended, but not who sent the signal that ended it: a local user, an operator,
a time limit. Where the script and the batch system disagree about that, the batch system is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koala.model.errors import Fault
from koala.model.launch import EXIT, KILLED, READY, Launch
from koala.model.messages import Outcome, Token
from koala.sites.batch.scripts.directory import AwaitedFiles
from koala.sites.batch.system import BatchEnd, BatchId, BatchJob, BatchState, EndKind
from koala.sites.component import (
    NOT_MEASURED,
    SIGNALLED,
    Ending,
    LiveComponent,
    LivePhase,
    ending,
    recorded_exit_code,
)
from koala.sites.component_directory import AbortRecord, RecordedComponent

# The exit code of a second start of a component; it says nothing about the component.
_NOT_FIRST = 75

_FORCED = (EndKind.CANCELLED, EndKind.TIME_LIMIT, EndKind.PREEMPTED, EndKind.SITE)
_WORDS = {
    EndKind.CANCELLED: "it was cancelled in the batch system",
    EndKind.TIME_LIMIT: "the batch system's time limit ended it",
    EndKind.PREEMPTED: "the batch system preempted it for another job",
    EndKind.SITE: "the batch system or a node failed it",
}


class EndEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """All evidence about a component that holds nothing any more."""

    launch: Launch
    abort: AbortRecord | None = None  # why it was to end
    exit_words: list[str] | None = None
    end: BatchEnd | None = None  # from the batch system
    released: bool = False  # True if its application may have begun

    @property
    def may_be_unseen(self) -> bool:
        """True if its script has probably recorded its end, but the record is not visible yet.

        A script records its end and then always exits with 0. If it ran on another machine, a file server may show
        the record a minute after the batch system reports the end.
        """
        if self.abort is not None or self.exit_words is not None or self.end is None:
            return False
        return self.end.kind is EndKind.ITSELF and not self.end.exit_code

    @property
    def is_complete(self) -> bool:
        """True if there is no need to ask the batch system how its job ended."""
        if self.abort is not None:
            return True
        if self.may_be_unseen:
            return False
        if self.end is not None and (self.end.kind in _FORCED or self.end.exit_code is not None):
            return True
        # The batch system knows who sent the signal that may have caused the end.
        told = self.end is not None and self.end.kind is EndKind.ITSELF
        return self.exit_words is not None and (told or self._is_by_itself)

    @property
    def _is_by_itself(self) -> bool:
        """True if the script recorded an end that no signal caused."""
        code = recorded_exit_code(self.exit_words)
        return self.exit_words is not None and self.exit_words[:1] != [KILLED] and (code is None or code <= SIGNALLED)

    def ending(self) -> Ending:
        """Return the meaning of the end, from all evidence."""
        end = self.end
        if end is None or end.kind not in _FORCED or self.abort is not None or self._is_by_itself:
            return ending(self.launch, self.abort, self.exit_words, _why_unrecorded(end), released=self.released)
        timed_out = end.kind is EndKind.TIME_LIMIT
        outcome, fault = (Outcome.TIMED_OUT, Fault.JOB) if timed_out else (Outcome.SITE_FAILED, Fault.SITE)
        return outcome, _told(end), recorded_exit_code(self.exit_words), fault


class BatchComponent(LiveComponent):
    """A live component of a batch site.

    ``tag`` is its name in the batch system; ``batch_id`` is the batch system's answer, None while it is unknown. From
    ``known_since`` on a listing must show its job. ``unknown_since`` is the first time at which the batch system no
    longer knew the job, ``asked_at`` the last time at which it was asked. ``has_begun`` is set once a listing has
    shown the job running.
    """

    def __init__(self, launch: Launch, tag: Token, known_since: float) -> None:
        super().__init__(launch)
        self.tag = tag
        self.has_begun = False
        self.batch_id: BatchId | None = None
        self.job: BatchJob | None = None
        self.known_since = known_since
        self.unknown_since: float | None = None
        self.asked_at = 0.0
        self.cancelled_at = 0.0
        self.reservation: str | None = None
        self.exit_words: list[str] | None = None
        self.nodes: tuple[str, ...] = ()  # the nodes that it ran on, once its end is recorded
        self.stderr_line = ""  # the last line on its standard error, if it failed
        self.usage = NOT_MEASURED

    @classmethod
    def of(cls, found: RecordedComponent, tag: Token, known_since: float) -> BatchComponent:
        """Return a component that is on record at the site."""
        assert found.record is not None, "only what was accepted lives"
        component = cls(found.record.launch, tag, known_since)
        component.released_at = found.released_at
        component.abort = found.abort
        component.reservation = found.reservation
        return component

    @property
    def is_ending(self) -> bool:
        """True if it may end at any moment, and only the batch system can confirm that."""
        return self.exit_words is not None or self.abort is not None

    @property
    def awaited(self) -> AwaitedFiles:
        """The files that may appear next."""
        if self.is_ending:
            return AwaitedFiles(self.token)
        signs = (READY, EXIT) if self.phase is LivePhase.QUEUED else (EXIT,)
        return AwaitedFiles(self.token, signs, tuple(sorted(self.mailed)))

    def evidence(self, end: BatchEnd | None) -> EndEvidence:
        """Return the evidence about it once it holds nothing any more."""
        released = self.released_at is not None
        return EndEvidence(
            launch=self.launch, abort=self.abort, exit_words=self.exit_words, end=end, released=released
        )

    def for_history(self) -> BatchJob:
        """Return its job, to ask how it ended."""
        if self.job is not None:
            return self.job
        assert self.batch_id is not None, "it was submitted"
        return BatchJob(id=self.batch_id, token=self.tag, state=BatchState.OVER)

    @property
    def ends_at(self) -> float | None:
        """The latest end by its walltime; None while it waits at the barrier, and without a walltime."""
        walltime_s = self.launch.walltime_s
        return None if self.released_at is None or walltime_s is None else self.released_at + walltime_s

    def begins_in_s(self, now: float) -> float | None:
        """Return the time until its reservation begins, negative afterwards; None without a reservation, and if
        nothing is to start in it any more."""
        if self.reservation is None or self.launch.begin_at is None:
            return None
        return self.launch.begin_at - now if self.phase is LivePhase.QUEUED and not self.is_ending else None


def never_starts(end: BatchEnd) -> AbortRecord:
    """Return the abort of a component whose job waits for something that will not come."""
    why = f": {end.reason}" if end.reason else ""
    reason = f"its job can never start{why}"
    if end.kind is EndKind.UNSUITABLE:
        return AbortRecord(outcome=Outcome.UNSUITABLE, reason=reason, fault=Fault.JOB)
    return AbortRecord(outcome=Outcome.SITE_FAILED, reason=reason, fault=Fault.SITE)


def best_end(jobs: Sequence[BatchJob], known: BatchId | None = None) -> BatchEnd | None:
    """Return how a component's jobs ended: the end of the job that ran if several were submitted, or else of the job
    that its submission named."""
    over = sorted((job for job in jobs if job.state is BatchState.OVER), key=lambda job: job.id == known)
    ends = [job.end for job in over if job.end is not None]
    told = [end for end in ends if not (end.kind is EndKind.ITSELF and end.exit_code == _NOT_FIRST)]
    return told[-1] if told else ends[-1] if ends else None


def _told(end: BatchEnd) -> str:
    words = _WORDS[end.kind]
    return f"{words}: {end.reason}" if end.reason else words


def _why_unrecorded(end: BatchEnd | None) -> str:
    if end is None:
        return "its job vanished from the batch system without recording an exit code"
    code = "" if end.exit_code is None else f" with exit code {end.exit_code}"
    why = f" ({end.reason})" if end.reason else ""
    return (
        f"its script ended{code}{why} without recording how the application ended; the log in its directory says why"
    )
