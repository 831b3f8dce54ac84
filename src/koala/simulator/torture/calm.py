"""A calm grid: nobody else uses its sites and nothing fails, so plans must hold to the second.

Its jobs have one priority, arrive faster than they can run, and end within their walltimes. Two promises are checked
here that a storm could break: only a job with tasks of several shapes may have its plan delayed, and no job starves.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from koala.core import Scheduler
from koala.model.facts import JobPlaced, Turn
from koala.model.grid import EASY, FCFS, Grid, SchedulerParameters, Site
from koala.model.messages import AnyEvent, JobSubmitted
from koala.model.request import Component, JobId, Priority, Request
from koala.policies import Catalogue
from koala.policies.interface import View, compile_demand, try_place
from koala.simulator.torture.order import with_queue_order
from koala.simulator.torture.shapes import with_shapes
from koala.simulator.torture.spawning import with_spawning
from koala.simulator.torture.storms import DRAWS_MAX, Storm, any_request, with_early_claims, with_licenses
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import Arrival

# Times are sums of floating-point numbers; closer ones are the same moment.
MOMENT_S = 1e-6
# A walltime is up to this many times the job's execution time.
WALLTIME_FACTOR_MAX = 4.0


def draw_calm(seed: int) -> Storm:
    """Return the calm grid of this seed, always the same."""
    rng = stream(seed, "calm")
    sites = tuple(
        Site(name=f"s{index + 1}", processors=rng.randint(2, 24), quota=rng.choice((1.0, 1.0, 0.75)))
        for index in range(rng.randint(1, 5))
    )
    parameters = SchedulerParameters(
        policy=rng.choice(("WF", "CM", "FCM", "CF")),
        scan_interval_s=0.0,
        check_interval_s=None,
        plan_depth=rng.choice((1, 1, 2, 3, 8, 100)),
        default_walltime_s=rng.choice((300.0, 1_000.0)),
    )
    grid = Grid(name=f"calm-{seed}", sites=sites, scheduler=parameters)
    grid = with_early_claims(stream(seed, "calm", "early"), grid)
    grid = with_queue_order(stream(seed, "calm", "queue order"), grid)
    view, catalogue = View.from_grid(grid), Catalogue.builtin()
    gap_s = rng.choice((5.0, 20.0, 60.0))
    at_s, arrivals = 0.0, []
    for _ in range(rng.randint(6, 24)):
        at_s += rng.expovariate(1.0 / gap_s) if rng.random() < 0.8 else 0.0
        request = Request(components=(Component(processors=1),))
        for _ in range(DRAWS_MAX):
            drawn = any_request(rng, grid)
            policy = catalogue.choose(drawn, parameters.policy)
            if try_place(compile_demand(drawn, policy, view.index), view) is not None:
                request = drawn
                break
        execution_s = float(rng.randint(1, 300))
        exact = rng.random() < 0.3
        walltime_s = execution_s if exact else execution_s * rng.uniform(1.0, WALLTIME_FACTOR_MAX)
        request = msgspec.structs.replace(
            request,
            priority=Priority.LOW,
            placement_tries_max=None,
            walltime_s=None if execution_s < parameters.default_walltime_s and rng.random() < 0.2 else walltime_s,
        )
        arrivals.append(Arrival(at_s, request, execution_s, 0.0))
    cancels = tuple((rng.uniform(0.0, 2 * at_s), index) for index in range(len(arrivals)) if rng.random() < 0.05)
    grid, shaped = with_shapes(stream(seed, "calm", "shapes"), grid, tuple(arrivals), share=1.0)
    shaped = with_spawning(stream(seed, "calm", "spawning"), grid, shaped, 1.0)
    grid, shaped = with_licenses(stream(seed, "calm", "licenses"), grid, shaped, 1.0)
    return Storm(seed=seed, grid=grid, arrivals=shaped, cancels=cancels, calm=True)


class PlanPromises:
    """Follows the plans of one run on a calm grid; calls ``fail`` with the name of a broken promise."""

    def __init__(self, scheduler: Scheduler, storm: Storm, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._calm = storm.calm
        default_s = storm.grid.scheduler.default_walltime_s
        self._longest_s = max(
            (arrival.request.walltime_s or default_s for arrival in storm.arrivals), default=default_s
        )
        self._planned: dict[JobId, float] = {}
        self._latest: dict[JobId, float] = {}  # the deadline by which each job must have places

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if not self._calm:
            return
        ledger = self._ledger
        if type(event) is JobSubmitted:
            before = sum(job.id != event.job for job in ledger.low)
            self._latest[event.job] = event.at + (before + 1) * self._longest_s
        for entry in turn.entries:
            if type(entry) is JobPlaced:
                latest, planned = self._latest[entry.job], self._planned.pop(entry.job, ledger.now)
                if ledger.parameters.order in (FCFS, EASY) and ledger.now > latest + MOMENT_S:
                    self._fail("no job starves", f"job {entry.job} has places {ledger.now - latest:.3f} s too late")
                if ledger.now > planned + MOMENT_S:
                    self._fail(
                        "no plan put off", f"job {entry.job} was planned for {planned:.3f}, and has places now"
                    )
        for job_id, job in ledger.planned.items():
            planned_at = job.planned.at
            before_s = self._planned.get(job_id, planned_at)
            if len(job.demand.groups) > 1:
                # Packing one shape after the other is a heuristic: more free space may have fewer places.
                before_s = planned_at
            if planned_at > before_s + MOMENT_S:
                self._fail(
                    "no plan put off", f"job {job_id} was planned for {before_s:.3f}, and is for {planned_at:.3f}"
                )
            self._planned[job_id] = min(before_s, planned_at)
