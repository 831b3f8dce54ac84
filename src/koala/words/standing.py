"""Sentences on where a job stands: what its state means, what keeps it back, and the states of an array's
elements."""

from __future__ import annotations

from collections.abc import Sequence

from koala.core.holding import KeptBack
from koala.core.life.states import JobState
from koala.core.standing import JobExplanation, JobStanding
from koala.model.api import ElementCountsInfo
from koala.model.dependency import Condition, in_words
from koala.model.request import JobId
from koala.words.phrases import listed

# At most this many of the jobs that a job waits for are named.
WAITED_FOR_NAMED_MAX = 5

MEANING: dict[JobState, str] = {
    JobState.HELD: "not tried yet: it waits for other jobs, for its time, or for somebody to end its hold",
    JobState.WAITING: "in its placement queue; no places have been found yet",
    JobState.PLACED: "every component has a place and files are on their way; nothing is claimed yet",
    JobState.CLAIMING: "some components hold their processors at the barrier, others are still to be claimed",
    JobState.STARTING: "every component is claimed; the barrier opens when all have reported and all files are there",
    JobState.RUNNING: "the application runs on all sites",
    JobState.COLLECTING: "every component returned success; the job's outputs are moved into the sites' file areas",
    JobState.UNWINDING: "the run has ended early; the job waits until every site has let go of its components",
    JobState.UNFOLDING: "an array: its elements become jobs of their own, a few ahead of those that have started",
    JobState.QUARANTINED: "set aside after an error inside Koala; it holds nothing until it is put back or cancelled",
    JobState.DONE: "every component returned success, and the outputs that it names, if any, are registered",
    JobState.FAILED: "given up: a limit of tries, restarts or time was reached",
    JobState.CANCELLED: "its user or an operator cancelled it, or what it waits for can never come",
}


def meaning(told: JobExplanation) -> str:
    """Return what the job's state means; why it failed, or what it still waits for before its start."""
    return _of_state(told) + _silence(told.standing.silent)


def _of_state(told: JobExplanation) -> str:
    state, now = told.state, told.standing
    if state is JobState.FAILED:
        return now.reason or MEANING[state]
    if state is JobState.UNFOLDING:
        return _array(now)
    if state is JobState.HELD:
        waits_for = [(Condition(each.condition), each.job) for each in told.waits_for]
        why = kept_back(told.held, waits_for, told.begins_at is not None, held_by=now.held_by)
        return (
            f"not tried yet: {why}"
            if now.elements is None
            else f"no more of its elements are made: {why}; {_array(now)}"
        )
    if state is JobState.QUARANTINED:
        return (
            f"{now.reason or MEANING[state]}. It holds nothing and is not tried; everything else goes on. Cancel it "
            f"(koala job cancel {told.job}), or put it back once the cause is fixed, for example after an upgrade "
            f"(koala job requeue {told.job})"
        )
    if state is JobState.COLLECTING:
        return f"{MEANING[state]}; not reported yet by: {', '.join(now.not_collected)}"
    if state is JobState.UNWINDING and now.saving_at:
        return (
            f"it was asked to save its state, and has {now.grace_s:g} s for it (grace); still saving: "
            f"{len(now.saving_at)} of {now.components} components, on {', '.join(dict.fromkeys(now.saving_at))}. "
            "What still runs then is ended, and the job goes back to its placement queue"
        )
    if state is JobState.STARTING and now.not_there:
        return _starting(now)
    return MEANING[state]


def _starting(now: JobStanding) -> str:
    where = ", ".join(f"{size} on {site}" for size, site in now.not_there)
    reported = now.components - len(now.not_there)
    told = (
        f"every component is claimed, and {reported} of {now.components} wait at the barrier; not there yet: {where}"
    )
    if all(site in now.silent for _, site in now.not_there):
        return told
    nodes = "; it avoids nodes of {} where its program failed, and may run on all nodes after that"
    return (
        f"{told}. A cluster starts them when its own queue lets it; one that waits behind other users is "
        "claimed where there is room (queue_patience_s), and if all takes too long (barrier_timeout_s), the job "
        f"goes back to its placement queue{nodes.format(listed(now.kept_off)) if now.kept_off else ''}"
    )


def _array(now: JobStanding) -> str:
    counts = now.elements
    assert counts is not None, "an array has elements"
    told = ", ".join(f"{count} {what}" for what, count in _by_state(counts) if count)
    words = f"an array of {counts.size} elements ({counts.indices}), each a job of its own: {told}"
    if now.limit is not None:
        words += f"; no more than {now.limit} are under way at a time (%{now.limit})"
    return words


def _by_state(counts: ElementCountsInfo) -> list[tuple[str, int]]:
    return [(what, getattr(counts, what)) for what in ("waiting", "running", "done", "failed", "cancelled")]


def _silence(silent: Sequence[str]) -> str:
    """Format the silence of sites that hold something of the job and do not answer."""
    if not silent:
        return ""
    they, do, hold = ("they", "do", "hold") if len(silent) > 1 else ("it", "does", "holds")
    return f"; {listed(silent)} {do} not answer: what {they} {hold} of the job is not known until {they} {do}"


def kept_back(
    held: bool,
    waits_for: Sequence[tuple[Condition, JobId]],
    has_a_time: bool,
    more: int = 0,
    held_by: str = "",
) -> str:
    """Return why a job is not tried yet."""
    shown = [in_words(condition, other) for condition, other in waits_for[:WAITED_FOR_NAMED_MAX]]
    more += max(0, len(waits_for) - WAITED_FOR_NAMED_MAX)
    if more:
        shown.append(f"{more} more")
    reasons = [f"it waits for {listed(shown)}"] if shown else []
    if has_a_time:
        reasons.append("it waits for its time (begin_at)")
    if held:
        reasons.append(f"it is held{held_by}; koala job release ends the hold")
    return "; ".join(reasons)


def would_be_kept_back(found: KeptBack) -> str:
    """Return why a new job would not be tried yet, or never; empty if nothing would keep it back."""
    if found.in_vain:
        return f"{found.in_vain}; it would be cancelled at once"
    return kept_back(found.held, found.waits_for, found.begins_at is not None, held_by=found.held_by)
