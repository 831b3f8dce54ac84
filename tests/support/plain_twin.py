"""The naive twin of the plain kernel: everything is examined anew at every event, with no cleverness at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """A job as tests draw it."""

    submit_s: float
    run_s: float
    size: int
    requested_s: float


class Started(NamedTuple):
    """The start of a job, and its cluster."""

    at_s: float
    cluster: int


def run_naively(jobs: Sequence[Job], capacity: Sequence[int], discipline: str) -> list[Started]:
    """Return the outcome of each job, in order."""
    twin = _Twin(jobs, capacity)
    pass_over = {"fcfs": twin.start_heads, "first-fit": twin.start_whoever_fits, "easy": twin.start_and_backfill}
    arrivals = list(range(len(jobs)))
    while arrivals or twin.waiting:
        first_end_s = min((twin.end_s(job) for job in twin.running), default=float("inf"))
        if arrivals and jobs[arrivals[0]].submit_s < first_end_s:
            now_s = jobs[arrivals[0]].submit_s
            twin.waiting.append(arrivals.pop(0))
        else:
            now_s = first_end_s
            twin.end_all(now_s)
        pass_over[discipline](now_s)
    return [twin.started[job] for job in range(len(jobs))]


class _Twin:
    def __init__(self, jobs: Sequence[Job], capacity: Sequence[int]) -> None:
        self.jobs = jobs
        self.idle = list(capacity)
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.started: dict[int, Started] = {}

    def end_s(self, job: int) -> float:
        return self.started[job].at_s + self.jobs[job].run_s

    def end_all(self, now_s: float) -> None:
        for job in [job for job in self.running if self.end_s(job) == now_s]:
            self.running.remove(job)
            self.idle[self.started[job].cluster] += self.jobs[job].size

    def try_to_start(self, job: int, now_s: float, offers: Sequence[int]) -> bool:
        """Start the job on the cluster that offers most, the first of several; return True if that was enough."""
        if max(offers) < self.jobs[job].size:
            return False
        cluster = offers.index(max(offers))
        self.idle[cluster] -= self.jobs[job].size
        self.started[job] = Started(now_s, cluster)
        self.running.append(job)
        self.waiting.remove(job)
        return True

    def start_heads(self, now_s: float) -> None:
        while self.waiting and self.try_to_start(self.waiting[0], now_s, self.idle):
            pass

    def start_whoever_fits(self, now_s: float) -> None:
        for job in list(self.waiting):
            self.try_to_start(job, now_s, self.idle)

    def start_and_backfill(self, now_s: float) -> None:
        self.start_heads(now_s)
        if not self.waiting:
            return
        reserved, start_s, spare = self.reservation(self.jobs[self.waiting[0]].size, now_s)
        for job in self.waiting[1:]:
            outlasts = now_s + self.jobs[job].requested_s > start_s
            offers = list(self.idle)
            if outlasts:
                offers[reserved] = min(offers[reserved], spare)
            if self.try_to_start(job, now_s, offers) and outlasts and self.started[job].cluster == reserved:
                spare -= self.jobs[job].size

    def reservation(self, size: int, now_s: float) -> tuple[int, float, int]:
        """Return where and when a job of this size can start first, and how much is idle there beside it then."""
        planned_s = {job: max(now_s, self.started[job].at_s + self.jobs[job].requested_s) for job in self.running}
        for at_s in sorted(planned_s.values()):
            idle = list(self.idle)
            for job in self.running:
                if planned_s[job] <= at_s:
                    idle[self.started[job].cluster] += self.jobs[job].size
            for cluster, then_idle in enumerate(idle):
                if then_idle >= size:
                    return cluster, at_s, then_idle - size
        raise AssertionError("a job that fits on an idle cluster can be planned")
