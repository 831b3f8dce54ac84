"""Storms in which sites measure the traffic of jobs, which differs from their declarations; and the promise about
that."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from koala.core import JobState, Scheduler
from koala.core.life.job import Job
from koala.core.state.network.learned_traffic import APPLICATIONS_LEARNED_MAX, LEARNED_JOBS_MAX
from koala.core.state.network.link_use import CHANGE_SHARE, MEASURED
from koala.model.facts import Turn
from koala.model.grid import Grid, TrafficSimulation
from koala.model.messages import AnyEvent, Token, TrafficMeasured
from koala.model.network import ALL_TO_ALL, SILENT, crossing
from koala.model.request import JobId
from koala.simulator.workloads.workload import Arrival

COUNTED = "links count what jobs were measured to send"
_NAMES = ("solver", "heat", "flood")
# Sums of floating-point numbers added in another order are not quite equal.
_NEARLY = 1e-9


def with_traffic(rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...]) -> tuple[Grid, tuple[Arrival, ...]]:
    """In some storms let jobs send other amounts than they declare, sites measure it, and jobs have names that
    identify them."""
    if grid.network is None or rng.random() < 0.5:
        return grid, arrivals
    low = rng.choice((0.1, 0.5, 1.0))
    traffic = TrafficSimulation(
        report_after_s=rng.choice((2.0, 20.0)), factor_low=low, factor_high=low * rng.choice((1.0, 4.0))
    )
    grid = replace(grid, simulation=replace(grid.simulation, traffic=traffic))
    named = (
        arrival._replace(request=replace(arrival.request, name=rng.choice(_NAMES))) if rng.random() < 0.7 else arrival
        for arrival in arrivals
    )
    return grid, tuple(named)


class _Told(NamedTuple):
    """What a component was instructed to send."""

    part: int
    elapsed_s: float
    bit_s: float


class TrafficPromises:
    """Follows the reports of one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._run: dict[JobId, int] = {}
        self._told: dict[JobId, dict[Token, _Told]] = {}  # the latest of each component of the current run

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the counts for the job of the event."""
        if not isinstance(event, TrafficMeasured):
            return
        claim = self._ledger.claims.get(event.token)
        if claim is None or claim.job.state is not JobState.RUNNING or claim.aborting or claim.given_up:
            return
        run = claim.job.runs
        if self._run.get(claim.job_id) != run:
            self._run[claim.job_id], self._told[claim.job_id] = run, {}
        told = self._told[claim.job_id]
        before = told.get(event.token)
        if before is None or event.elapsed_s > before.elapsed_s:
            bit_s = max(event.sent_bit_s, event.received_bit_s)
            told[event.token] = _Told(claim.component, event.elapsed_s, bit_s)
        self._counts_what_was_told(claim.job)
        self._is_bounded()

    def _counts_what_was_told(self, job: Job) -> None:
        heard = [(each.part, each.bit_s) for each in self._told.get(job.id, {}).values()]
        pattern, dimensions, _, _ = job.demand.traffic
        pattern = ALL_TO_ALL if pattern == SILENT else pattern
        placed = job.placed
        sizes = placed.spots.sizes
        crossed = sum(crossing(pattern, dimensions, sizes, sum(sizes), part) for part, _ in heard)
        if crossed <= 0.0:
            return
        own_bit_s = sum(bit_s for _, bit_s in heard) / crossed
        if not math.isclose(placed.measured_bit_s or 0.0, own_bit_s, rel_tol=_NEARLY, abs_tol=_NEARLY):
            self._fail(
                COUNTED, f"job {job.id} was told to send {own_bit_s:g} bit/s, and {placed.measured_bit_s} counts"
            )
        believed_bit_s = placed.believed_bit_s
        if placed.belief != MEASURED or believed_bit_s is None:
            self._fail(COUNTED, f"job {job.id} was measured, and it counts by what is {placed.belief or 'declared'}")
        elif believed_bit_s < own_bit_s * (1.0 - CHANGE_SHARE) - _NEARLY:
            self._fail(COUNTED, f"job {job.id} sends {own_bit_s:g} bit/s a processor, and {believed_bit_s:g} count")
        else:
            self._loads_its_links(job, pattern, believed_bit_s)

    def _loads_its_links(self, job: Job, pattern: int, believed_bit_s: float) -> None:
        view = self._ledger.sites.view
        parts = [0] * len(view.names)
        placed = job.placed
        for site, size in zip(placed.spots.sites, placed.spots.sizes, strict=True):
            parts[site] += size
        expected = view.wiring.demands_bit_s(pattern, job.demand.traffic.dimensions, parts, believed_bit_s)
        if placed.link_demands != expected:
            self._fail(COUNTED, f"job {job.id} asks {placed.link_demands} of links, and sends {expected}")

    def _is_bounded(self) -> None:
        applications = self._ledger.links.learned.applications
        if len(applications) > APPLICATIONS_LEARNED_MAX:
            self._fail(COUNTED, f"{len(applications)} names are known")
        for known in applications.values():
            if not 0 < len(known.bisections_bit_s) <= LEARNED_JOBS_MAX:
                self._fail(COUNTED, f"{len(known.bisections_bit_s)} jobs of {known.name} are known")
