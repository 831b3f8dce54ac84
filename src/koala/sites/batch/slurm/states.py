"""Slurm's states of jobs and nodes, and its reasons for waiting, in Koala's terms."""

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
# The reasons of jobs that wait for a person.
_HOLDS = ("JobHeldUser", "JobHeldAdmin")
# A job with one of these reasons waits for ever unless its submitter changes it. Some would apply to any other job;
# the others result from this job's request.
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
# Limits of an account or a quality of service: limits on one job are permanent, limits on all jobs of a user pass.
_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max)\w+|(Assoc|QOS|Max)\w*Limit|Max\w+PerAccount", re.ASCII)
_LIMIT_PER_JOB = re.compile(r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?|(Assoc|QOS)\w*TimeLimit|QOSMin\w+", re.ASCII)
# Reasons of jobs that start as soon as there are processors, as far as Slurm has examined them.
_ELIGIBLE = frozenset({"None", "Priority", "Resources", ""})

_SIGNALLED = 128


def state_of(word: str, reason: str) -> BatchState:
    """Return the state of a job. ``word`` is the long form of Slurm's state; sacct adds who cancelled it."""
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
    # RUNNING, CONFIGURING, SUSPENDED, STAGE_OUT, ... and any later version's name for a job that is not over.
    return BatchState.RUNNING


def base_state(word: str) -> str:
    """Return the state without its suffix: ``CANCELLED by 1000``, ``CANCELLED+``."""
    return word.split(" ", 1)[0].rstrip("+")


def end_of(word: str, reason: str, code: int | None = None) -> BatchEnd:
    """Return how a job that is over ended. The reason counts as the state if it says more."""
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
    # The exit code of a job that somebody ended is unknown; Slurm reports it as 0.
    return BatchEnd(kind=kind, exit_code=code if kind is EndKind.ITSELF else code or None, reason=story)


def accounted_end_of(word: str, code: int) -> BatchEnd | None:
    """Return how one run of a job ended by sacct; None if it did not. It may have been requeued."""
    if base_state(word) == "REQUEUED":
        return BatchEnd(kind=EndKind.SITE, reason=word.strip())
    return end_of(word, "", code) if state_of(word, "") is BatchState.OVER else None


def never_starts(state: BatchState, reason: str) -> BatchEnd | None:
    """Return why a waiting job will never start, as an end; None if it may."""
    if state is not BatchState.PENDING:
        return None
    if reason in _UNSUITABLE or _LIMIT_PER_JOB.fullmatch(reason):
        return BatchEnd(kind=EndKind.UNSUITABLE, reason=reason)
    return BatchEnd(kind=EndKind.SITE, reason=reason) if reason in _NEVER else None


def is_at_a_limit(state: BatchState, reason: str) -> bool:
    """Return True if a job waits because its user or account has reached a limit, so that no other job would start
    either."""
    if state is not BatchState.PENDING or never_starts(state, reason) is not None:
        return False
    return _LIMIT.fullmatch(reason) is not None


def is_eligible(reason: str) -> bool:
    """Return True if a waiting job would take processors that become free."""
    return reason in _ELIGIBLE


def exit_code(text: str) -> int:
    """Parse ``3:0`` as an exit code and ``0:9`` as a signal; a raw number has the signal in its lowest bits."""
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


# The suffixes of a node's state: '*' it does not answer, '-' and 'planned' it is kept for a job, '$' and 'maint' for
# its operator, '@', '^' and '!' for a restart; '~', '#' and '%' stand for power saving, which is no obstacle.
_KEPT = re.compile(r"(planned|reserved|resv|maint|reboot|blocked)")


def is_free(node_state: str) -> bool:
    """Return True if the idle processors of a node in this state are available now. Slurm does not count processors
    of nodes that are down or drained as idle."""
    return not (_KEPT.match(node_state) or node_state.endswith(("*", "-", "$", "@", "^", "!")))


def is_kept_for_a_job(node_state: str) -> bool:
    """Return True if the node's idle processors will go to a waiting job."""
    return node_state.startswith("planned") or node_state.endswith("-")
