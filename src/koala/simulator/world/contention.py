"""Running jobs that share links: what each is granted, and when its components end, which may shift both ways.

A co-allocated job that communicates loads the links between its sites from its start until it ends. Whenever that
changes, ``koala.model.network`` shares the links out again, once for all events of an instant, and the ends of jobs
with a changed share are planned again. Only grids with a ``network`` have links to share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from koala.model.grid import Grid
from koala.model.network import crossing, fill_shares, stretch, work_left_s
from koala.model.request import JOB_NAME
from koala.policies.demand import traffic_of
from koala.policies.wiring import compile_wiring
from koala.simulator.workloads.draws import stream
from koala.simulator.world.event_heap import SHARES_SETTLE, EventHeap
from koala.simulator.world.flows import Flow, Progress
from koala.simulator.world.site import SimulatedComponent, SimulatedJob

ComponentFlow: TypeAlias = Flow[SimulatedComponent]


# Plans the end of a component: (component, started at, execution time, work left, stretch, now).
Plan: TypeAlias = Callable[[SimulatedComponent, float, float, float, float, float], None]


class Contention:
    """The links of the grid and the flows on them."""

    __slots__ = (
        "_capacity_bit_s",
        "_event_heap",
        "_index",
        "_plan",
        "_seed",
        "_settles",
        "_traffic",
        "_wiring",
        "flows",
    )

    def __init__(self, grid: Grid, seed: int, event_heap: EventHeap, plan: Plan) -> None:
        self._traffic = grid.simulation.traffic
        self._seed = seed
        self._wiring = None if grid.network is None else compile_wiring(grid)
        self._capacity_bit_s = () if self._wiring is None else self._wiring.capacity_bit_s
        self._index = {site.name: index for index, site in enumerate(grid.sites)}
        self._event_heap = event_heap
        self._plan = plan
        self._settles = False
        self.flows: dict[ComponentFlow, None] = {}

    def flow(self, job: SimulatedJob, components: Iterable[SimulatedComponent]) -> ComponentFlow | None:
        """Return the traffic of a job that is about to start with these components; None if it loads no link."""
        communication = job.request.communication
        if self._wiring is None or communication is None:
            return None
        parts = [0] * len(self._index)
        named = list(components)
        for component in named:
            parts[self._index[component.site.name]] += component.processors
        traffic = traffic_of(communication, sum(parts))
        own_bit_s = traffic.per_processor_bit_s * self._factor(job)
        demands = self._wiring.demands_bit_s(traffic.pattern, traffic.dimensions, parts, own_bit_s)
        if not demands:
            return None
        flow: ComponentFlow = Flow(demands, traffic.share)
        if self._traffic is not None:
            sizes = [component.processors for component in named]
            for part, component in enumerate(named):
                crossed = crossing(traffic.pattern, traffic.dimensions, sizes, sum(sizes), part)
                flow.sent_bit_s[component] = own_bit_s * crossed
        return flow

    def _factor(self, job: SimulatedJob) -> float:
        """Return the actual traffic of a job, as a multiple of its declared traffic."""
        if self._traffic is None:
            return 1.0
        name = job.request.name
        whose = str(job.id) if name == JOB_NAME else name
        low, high = self._traffic.factor_low, self._traffic.factor_high
        return stream(self._seed, "traffic", whose).uniform(low, high)

    def join(self, flow: ComponentFlow, component: SimulatedComponent, execution_s: float, now: float) -> None:
        """Add a component that runs from now on; its end is planned when the instant is settled."""
        flow.running[component] = Progress(now, execution_s)
        self.flows[flow] = None
        self._settle_later(now)

    def leave(self, flow: ComponentFlow, component: SimulatedComponent, *, done: bool, now: float) -> None:
        """Remove a component that has ended. Unless it was done and not the last, the job is off the links."""
        flow.running.pop(component, None)
        if done and flow.running:
            return
        flow.is_over = True
        for other, progress in flow.running.items():
            if not progress.is_planned:
                self._plan_end(other, progress, 1.0, now)
        if flow in self.flows:
            del self.flows[flow]
            self._settle_later(now)

    def _settle_later(self, now: float) -> None:
        if not self._settles:
            self._settles = True
            self._event_heap.add(now, SHARES_SETTLE, None)

    def settle(self, subject: None, sequence: int, at: float) -> None:
        """Share the links out among the jobs on them now, and plan the ends that this changes."""
        self._settles = False
        flows = list(self.flows)
        ratios = self._shares(flows)
        for flow, ratio in zip(flows, ratios, strict=True):
            slides = ratio != flow.ratio
            stretched = stretch(flow.share, ratio)
            for component, progress in flow.running.items():
                if progress.is_planned:
                    if not slides:
                        continue
                    progress.work_s = work_left_s(progress.work_s, at - progress.since, flow.stretch)
                    progress.since = at
                self._plan_end(component, progress, stretched, at)
            flow.ratio, flow.stretch = ratio, stretched

    def _plan_end(self, component: SimulatedComponent, progress: Progress, stretched: float, now: float) -> None:
        progress.is_planned = True
        self._plan(component, progress.started_at, progress.execution_s, progress.work_s, stretched, now)

    def _shares(self, flows: list[ComponentFlow]) -> list[float]:
        links, count = len(self._capacity_bit_s), len(flows)
        ratios = [0.0] * count
        fill_shares(
            count,
            range(count),
            [len(flow.links) for flow in flows],
            [flow.links for flow in flows],
            [flow.demands_bit_s for flow in flows],
            self._capacity_bit_s,
            [0] * links,
            [0] * links,
            [0.0] * links,
            ratios,
        )
        return ratios
