"""Koala's own orders of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import groupby

from koala.policies.orders.order import JobOrder, UserJobs, WaitingJob


def first_come(waiting: Sequence[WaitingJob], _users: Mapping[str, UserJobs], _now: float) -> Sequence[WaitingJob]:
    """Return the jobs first come, first served."""
    return waiting


def shortest_first(
    waiting: Sequence[WaitingJob], _users: Mapping[str, UserJobs], _now: float
) -> Sequence[WaitingJob]:
    """Return the jobs by believed run time, shortest first; among equals the first that came."""
    return sorted(waiting, key=lambda job: job.estimate_s)


def in_turns(waiting: Sequence[WaitingJob], _users: Mapping[str, UserJobs], _now: float) -> list[WaitingJob]:
    """Return the jobs with users taking turns: each round has one job of every waiting user, in order of arrival.

    Turns already taken in this round are not visible here; the core counts them.
    """
    place = {job.number: at for at, job in enumerate(waiting)}
    by_user = groupby(sorted(waiting, key=lambda job: (job.user, place[job.number])), key=lambda job: job.user)
    lines = [[(turn, place[job.number], job) for turn, job in enumerate(jobs)] for _, jobs in by_user]
    return [job for _, _, job in merge(*lines, key=lambda entry: entry[:2])]


FCFS = JobOrder(
    name="fcfs",
    function=first_come,
    summary="First come, first served.",
)
EASY = JobOrder(
    name="easy",
    function=first_come,
    summary="EASY backfilling: as fcfs, with room kept for the first job alone (plan_depth 1).",
)
SJF = JobOrder(
    name="sjf",
    function=shortest_first,
    summary="Shortest job first, by the estimate of how long it runs.",
)
ROUND_ROBIN = JobOrder(
    name="round-robin",
    function=in_turns,
    summary="Users take turns: a user's second job comes after the first of everybody else.",
)
OWN_ORDERS = (ROUND_ROBIN, FCFS, EASY, SJF)
