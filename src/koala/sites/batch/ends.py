"""What the end of a component at a batch site means, from what its script recorded and what the batch system tells.

Pure. The script knows best how its application ended, but not who sent the signal that ended it: a local user, an
operator, a time limit. Where the two differ in this, the batch system is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from koala.model.launch import KILLED, Launch
from koala.model.messages import Outcome
from koala.sites.batch.system import BatchEnd, BatchId, BatchJob, BatchState, EndKind
from koala.sites.component_directory import AbortRecord
from koala.sites.local.component import SIGNALLED, recorded_ending, recorded_exit_code

# Outcome, reason and the application's exit code.
Ending: TypeAlias = tuple[Outcome, str, int | None]

# The exit code of a start of a component that came second; it says nothing about the component.
_NOT_FIRST = 75

_FORCED = (EndKind.CANCELLED, EndKind.TIME_LIMIT, EndKind.PREEMPTED, EndKind.SITE)
_WORDS = {
    EndKind.CANCELLED: "it was cancelled in the batch system",
    EndKind.TIME_LIMIT: "the batch system's time limit ended it",
    EndKind.PREEMPTED: "the batch system preempted it for another job",
    EndKind.SITE: "the batch system or a node failed it",
}


class EndEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a component that holds nothing any more."""

    launch: Launch
    abort: AbortRecord | None = None  # why it was to end
    exit_words: list[str] | None = None
    end: BatchEnd | None = None  # as the batch system tells it


def may_be_unseen(evidence: EndEvidence) -> bool:
    """Whether its script has probably recorded how it ended, and the record cannot be seen yet.

    A script records its end and then exits with 0, whatever happened. Where it ran on another machine, a file server
    may show the record a minute later than the batch system tells the end.
    """
    if evidence.abort is not None or evidence.exit_words is not None or evidence.end is None:
        return False
    return evidence.end.kind is EndKind.ITSELF and not evidence.end.exit_code


def is_complete(evidence: EndEvidence) -> bool:
    """Whether the batch system need not be asked how its job ended."""
    if evidence.abort is not None:
        return True
    if may_be_unseen(evidence):
        return False
    if evidence.end is not None and (evidence.end.kind in _FORCED or evidence.end.exit_code is not None):
        return True
    if evidence.exit_words is None:
        return False
    # An end that a signal may have brought about is told apart by who sent it.
    code = recorded_exit_code(evidence.exit_words)
    killed = evidence.exit_words[:1] == [KILLED] or (code is not None and code > SIGNALLED)
    return not killed or (evidence.end is not None and evidence.end.kind is EndKind.ITSELF)


def ending(evidence: EndEvidence) -> Ending:
    """What the end means, with what is known of it."""
    code = recorded_exit_code(evidence.exit_words)
    if evidence.abort is not None:
        return evidence.abort.outcome, evidence.abort.reason or "aborted", code
    forced = evidence.end is not None and evidence.end.kind in _FORCED
    if evidence.exit_words is not None:
        by_itself = evidence.exit_words[:1] != [KILLED] and (code is None or code <= SIGNALLED)
        if by_itself or not forced:
            return recorded_ending(evidence.exit_words, evidence.launch)
    if forced:
        assert evidence.end is not None
        outcome = Outcome.TIMED_OUT if evidence.end.kind is EndKind.TIME_LIMIT else Outcome.SITE_FAILED
        return outcome, _told(evidence.end), code
    return Outcome.SITE_FAILED, _unrecorded(evidence.end), None


def never_starts(end: BatchEnd) -> AbortRecord:
    """What is said of a component whose job waits for something that will not come."""
    why = f": {end.reason}" if end.reason else ""
    outcome = Outcome.UNSUITABLE if end.kind is EndKind.UNSUITABLE else Outcome.SITE_FAILED
    return AbortRecord(outcome=outcome, reason=f"its job can never start{why}")


def best_end(jobs: Sequence[BatchJob], known: BatchId | None = None) -> BatchEnd | None:
    """How a component's jobs ended: that of the one that ran, where several were submitted, or else of the one that
    its submission named."""
    over = sorted((job for job in jobs if job.state is BatchState.OVER), key=lambda job: job.id == known)
    ends = [job.end for job in over if job.end is not None]
    told = [end for end in ends if not (end.kind is EndKind.ITSELF and end.exit_code == _NOT_FIRST)]
    return told[-1] if told else ends[-1] if ends else None


def _told(end: BatchEnd) -> str:
    words = _WORDS[end.kind]
    return f"{words}: {end.reason}" if end.reason else words


def _unrecorded(end: BatchEnd | None) -> str:
    if end is None:
        return "its job vanished from the batch system without recording an exit code"
    code = "" if end.exit_code is None else f" with exit code {end.exit_code}"
    why = f" ({end.reason})" if end.reason else ""
    return (
        f"its script ended{code}{why} without recording how the application ended; the log in its directory says why"
    )
