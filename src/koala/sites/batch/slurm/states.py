"""What Slurm calls the states of jobs and nodes, and the reasons for which a job waits, in Koala's words."""

from __future__ import annotations

import re

from koala.sites.batch.system import BatchEnd, BatchOutputError, BatchState, EndKind

_PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED"})
_HELD = frozenset({"REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_ENDING = frozenset({"COMPLETING"})
_ENDS = {
    "BOOT_FAIL": EndKind.SITE,
    "CANCELLED": EndKind.CANCELLED,
    "COMPLETED": EndKind.ITSELF,
    "DEADLINE": EndKind.TIME_LIMIT,
    "FAILED": EndKind.ITSELF,
    "LAUNCH_FAILED": EndKind.SITE,
    "NODE_FAIL": EndKind.SITE,
    "OUT_OF_MEMORY": EndKind.ITSELF,
    "PREEMPTED": EndKind.PREEMPTED,
    "RECONFIG_FAIL": EndKind.SITE,
    "REVOKED": EndKind.CANCELLED,
    "TIMEOUT": EndKind.TIME_LIMIT,
}
# These stand among the reasons of jobs that wait for a person.
_HOLDS = ("JobHeldUser", "JobHeldAdmin")
# A job that waits for one of these waits for ever: who submitted it must change it. Of some no other job would do
# better; the others are for what this one asks for.
_NEVER = frozenset(
    {
        "AccountNotAllowed",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "QOSNotAllowed",
        "ReservationDeleted",
    }
)
_UNSUITABLE = frozenset({"BadConstraints", "PartitionTimeLimit"})
# Limits of an account or a quality of service: on one job, which lasts, and on all that one has, which passes.
_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max)\w+|(Assoc|QOS|Max)\w*Limit|Max\w+PerAccount", re.ASCII)
_LIMIT_PER_JOB = re.compile(r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?|(Assoc|QOS)\w*TimeLimit|QOSMin\w+", re.ASCII)
# Reasons of jobs that start as soon as there are processors, as far as Slurm has looked at them.
_ELIGIBLE = frozenset({"None", "Priority", "Resources", ""})

_SIGNALLED = 128


def state_of(word: str, reason: str) -> BatchState:
    """Where a job is. ``word`` is the long form of its state; sacct adds who cancelled it."""
    state = base_state(word)
    if state in _ENDS:
        return BatchState.OVER
    if state in _HELD or (state in _PENDING and reason.startswith(_HOLDS)):
        return BatchState.HELD
    if state in _PENDING:
        return BatchState.PENDING
    if state in _ENDING:
        return BatchState.ENDING
    if re.fullmatch(r"[A-Z_]{2,40}", state) is None:
        raise BatchOutputError(f"{word[:100]!r} is not a state of a job")
    # RUNNING, CONFIGURING, SUSPENDED, STAGE_OUT, ... and whatever a later version calls one that is not over.
    return BatchState.RUNNING


def base_state(word: str) -> str:
    """The state without what stands behind it: ``CANCELLED by 1000``, ``CANCELLED+``."""
    return word.split(" ", 1)[0].rstrip("+")


def end_of(word: str, reason: str, code: int | None = None) -> BatchEnd:
    """How a job that is over ended. The reason tells the state too, where that says more."""
    state = base_state(word)
    kind = _ENDS.get(state)
    if kind is None:
        raise BatchOutputError(f"{word!r} is not the state of a job that is over")
    story = word.strip()
    told = "" if reason in ("", "None") or state in ("COMPLETED", "CANCELLED") else reason
    if kind is EndKind.ITSELF and state not in ("OUT_OF_MEMORY",):
        story = told
    elif told:
        story = f"{story} ({told})"
    # Of a job that somebody ended nobody knows what it would have returned; it is told as 0.
    return BatchEnd(kind=kind, exit_code=code if kind is EndKind.ITSELF else code or None, reason=story)


def accounted_end_of(word: str, code: int) -> BatchEnd | None:
    """How one run of a job ended, as sacct tells it; None if it did not. It may have been put back for another."""
    if base_state(word) == "REQUEUED":
        return BatchEnd(kind=EndKind.SITE, reason=word.strip())
    return end_of(word, "", code) if state_of(word, "") is BatchState.OVER else None


def never_starts(state: BatchState, reason: str) -> BatchEnd | None:
    """Why a job that waits will wait for ever, in the words of an end; None if it need not."""
    if state is not BatchState.PENDING:
        return None
    if reason in _UNSUITABLE or _LIMIT_PER_JOB.fullmatch(reason):
        return BatchEnd(kind=EndKind.UNSUITABLE, reason=reason)
    return BatchEnd(kind=EndKind.SITE, reason=reason) if reason in _NEVER else None


def is_at_a_limit(state: BatchState, reason: str) -> bool:
    """Whether a job waits since its user or account has all that it may have, so that no other would start either."""
    if state is not BatchState.PENDING or never_starts(state, reason) is not None:
        return False
    return _LIMIT.fullmatch(reason) is not None


def is_eligible(reason: str) -> bool:
    """Whether a job that waits would take processors that come free."""
    return reason in _ELIGIBLE


def exit_code(text: str) -> int:
    """``3:0`` is an exit code and ``0:9`` a signal; in a raw number the signal stands in the lowest bits."""
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,5}))?", text, re.ASCII)
    if match is None:
        raise BatchOutputError(f"{text!r} is not an exit code")
    if match[2] is not None:
        code, signal = int(match[1]), int(match[2])
    else:
        raw = int(match[1])
        code, signal = raw >> 8, raw & 0x7F
    if signal:
        return _SIGNALLED + signal
    return code & 0xFF


# What stands behind a node's state: '*' it does not answer, '-' and 'planned' it is kept for a job, '$' and
# 'maint' for its operator, '@', '^' and '!' for a restart; '~', '#' and '%' tell of power saving: no obstacle.
_KEPT = re.compile(r"(planned|reserved|resv|maint|reboot|blocked)")


def is_free(node_state: str) -> bool:
    """Whether the idle processors of a node in this state can be had now. Those of nodes that are down or drained
    are not told as idle at all."""
    return not (_KEPT.match(node_state) or node_state.endswith(("*", "-", "$", "@", "^", "!")))


def is_kept_for_a_job(node_state: str) -> bool:
    """Whether the node's idle processors will go to a job that waits."""
    return node_state.startswith("planned") or node_state.endswith("-")
