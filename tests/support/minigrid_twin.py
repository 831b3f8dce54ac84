"""The naive twin of the mini-grid: everything is examined anew at every event, with lists and no cleverness at all.

It calls the policies and the network of the package, as Python; its timing is its own. The kernel and the scheduler
under the simulated world follow the same rules, so that all three agree bit by bit:

1. At an instant, all jobs that end now leave first, together, and then one pass goes over the queue: every job is
tried once, in the order of submission, and those with a place start at once.
2. Then the jobs that are submitted at this instant come one by one, in their order. Each queues up behind the others,
and a pass goes over the whole queue before the next one comes.
3. When nothing is left to happen at this instant, and not before, the links are shared out, once: only the jobs that
run then count, in whatever order others came and went. A job whose share has changed has its work brought up to
date and its end planned anew; the work and the end of every other job stay as they are, to the last bit. A job
that started at this instant gets its first end then: now + work * stretch.
4. A job whose start and end are the same instant (its work is 0, or negligible beside the time) ends after all that:
the instant begins again with it.
5. The demand of a job on a link is rounded to whole bits per second; a link with a demand of 0 does not belong to the
job. A job on one site demands nothing, and neither its work nor its end ever changes.
6. A job that starts on several sites is observed at once, within the pass, by the policies that use observations: the
mean of the bisection bandwidths (bandwidth of a processor times the bisection factor of the job's own pattern) of
all jobs that started so, if it is above 0. Their belief about a job is that mean divided by the factor of its size as
if all its processors talked to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from koala.model.network import ALL_TO_ALL, bisection_factor, fill_shares, per_processor_bit_s, stretch, work_left_s
from koala.policies.forms import ModuleChoice
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.meta_scheduling import B5, metaschedule
from koala.policies.minigrid.reserve import believed_pattern
from koala.policies.minigrid.routed_scheduling import metaschedule_routed
from koala.policies.wiring import Wiring


class TwinJob(NamedTuple):
    """A job as tests draw it; the fields are those of ``MiniGridJobs``."""

    submit_s: float
    size: int
    home: int
    work_s: float
    share: float
    per_processor_bit_s: float
    pattern: int = ALL_TO_ALL
    dimensions: int = 2


class Outcome(NamedTuple):
    """The start and the end of a job, and its processors on every site."""

    start_s: float
    end_s: float
    parts: tuple[int, ...]


class TwinRun(NamedTuple):
    """The outcome of each job, None for jobs that never found a place, and the greatest demand ever on each link."""

    outcomes: list[Outcome | None]
    demand_most_bit_s: list[int]


class _Running:
    def __init__(self, number: int, job: TwinJob, parts: tuple[int, ...], demands: list[tuple[int, int]], now: float):
        self.number = number
        self.job = job
        self.parts = parts
        self.demands = demands
        self.start_s = self.since_s = now
        self.work_s = job.work_s
        self.ratio = 0.0
        self.end_s = inf


def run_naively(jobs: Sequence[TwinJob], nodes: Sequence[int], wiring: Wiring, choice: ModuleChoice) -> TwinRun:
    """Return the outcome of each job, in order."""
    twin = _Twin(jobs, nodes, wiring, choice)
    arrivals = list(range(len(jobs)))
    while True:
        submit_s = jobs[arrivals[0]].submit_s if arrivals else inf
        now = min([submit_s, *(running.end_s for running in twin.running)])
        if now == inf:
            return TwinRun(twin.outcomes, twin.demand_most_bit_s)
        if any(running.end_s == now for running in twin.running):
            twin.end_all(now)
            twin.pass_over(now)
        while arrivals and jobs[arrivals[0]].submit_s == now:
            twin.waiting.append(arrivals.pop(0))
            twin.pass_over(now)
        twin.share_links(now)


class _Twin:
    def __init__(self, jobs: Sequence[TwinJob], nodes: Sequence[int], wiring: Wiring, choice: ModuleChoice) -> None:
        self.jobs = jobs
        self.wiring = wiring
        self.choice = choice
        self.nodes = nodes
        self.waiting: list[int] = []
        self.running: list[_Running] = []
        self.outcomes: list[Outcome | None] = [None] * len(jobs)
        self.demand_most_bit_s = [0] * len(wiring.capacity_bit_s)
        self.seen = 0
        self.seen_mean_bit_s = 0.0

    def idle(self) -> list[int]:
        return [nodes - sum(running.parts[site] for running in self.running) for site, nodes in enumerate(self.nodes)]

    def demand(self) -> list[int]:
        demand = [0] * len(self.wiring.capacity_bit_s)
        for running in self.running:
            for link, bit_s in running.demands:
                demand[link] += bit_s
        return demand

    def end_all(self, now: float) -> None:
        for running in self.running:
            if running.end_s == now:
                self.outcomes[running.number] = Outcome(running.start_s, now, running.parts)
        self.running = [running for running in self.running if running.end_s != now]

    def pass_over(self, now: float) -> None:
        idle, demand = self.idle(), self.demand()
        for number in list(self.waiting):
            parts = self.place(self.jobs[number], list(idle), list(demand))
            if parts is not None:
                self.waiting.remove(number)
                self.start(number, parts, now)
                idle, demand = self.idle(), self.demand()

    def place(self, job: TwinJob, idle: list[int], demand: list[int]) -> tuple[int, ...] | None:
        sites = len(self.nodes)
        parts = [0] * sites
        module, threshold, chunk = self.choice
        known_bit_s = job.per_processor_bit_s
        pattern = job.pattern
        if module == B5:
            known_bit_s = per_processor_bit_s(ALL_TO_ALL, 2, job.size, self.seen_mean_bit_s)
            pattern = believed_pattern(pattern)
        case = PlacementCase(
            total=job.size,
            demand=demand,
            capacity=self.wiring.capacity_bit_s,
            per_processor_bit_s=known_bit_s,
            threshold=threshold,
            spare=[0] * sites,
            home=job.home,
            chunk=chunk,
            pattern=pattern,
            dimensions=job.dimensions,
        )
        if self.wiring.is_star:
            left = metaschedule(module, case, idle, parts)
        else:
            left = metaschedule_routed(module, case, self.wiring.routes(), idle, parts)
        return None if left else tuple(parts)

    def start(self, number: int, parts: tuple[int, ...], now: float) -> None:
        job = self.jobs[number]
        demands: list[tuple[int, int]] = []
        if max(parts) < job.size:
            demands = self.wiring.demands_bit_s(job.pattern, job.dimensions, parts, job.per_processor_bit_s)
            bisection_bit_s = job.per_processor_bit_s * bisection_factor(job.pattern, job.dimensions, job.size)
            if bisection_bit_s > 0.0:
                self.seen += 1
                self.seen_mean_bit_s += (bisection_bit_s - self.seen_mean_bit_s) / self.seen
        self.running.append(_Running(number, job, parts, demands, now))
        self.demand_most_bit_s = [max(both) for both in zip(self.demand_most_bit_s, self.demand(), strict=True)]

    def share_links(self, now: float) -> None:
        ratios = self.shares()
        for running, ratio in zip(self.running, ratios, strict=True):
            if ratio == running.ratio:
                continue
            if running.ratio > 0.0:
                stretched = stretch(running.job.share, running.ratio)
                running.work_s = work_left_s(running.work_s, now - running.since_s, stretched)
            running.since_s = now
            running.ratio = ratio
            running.end_s = now + running.work_s * stretch(running.job.share, ratio)

    def shares(self) -> list[float]:
        count, links = len(self.running), len(self.wiring.capacity_bit_s)
        ratios = [0.0] * count
        fill_shares(
            count,
            range(count),
            [len(running.demands) for running in self.running],
            [[link for link, _ in running.demands] for running in self.running],
            [[bit_s for _, bit_s in running.demands] for running in self.running],
            self.wiring.capacity_bit_s,
            [0] * links,
            [0] * links,
            [0.0] * links,
            ratios,
        )
        return ratios
