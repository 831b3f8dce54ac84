"""Running a trace: in the plain kernel under a discipline, or as the workload of the scheduler under the simulator.

Both give the same figures with the same names. ``koala.simulator.traces.reader`` reads traces,
``koala.simulator.kernels.plain`` is the kernel itself; the caller chooses with the help of ``obstacles``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from koala.model.grid import EASY as EASY_ORDER
from koala.model.grid import FCFS as FCFS_ORDER
from koala.model.grid import AnswerFaults, Grid, SiteFaults, Startup
from koala.model.request import Application, Component, Flexibility, Priority, Request
from koala.policies.catalogue import FCM, Policy
from koala.simulator.kernels.plain import run_plain
from koala.simulator.kernels.planned import PlannedRun, run_planned
from koala.simulator.report.page_data import PageHold, RunPicture
from koala.simulator.result import DONE, JobRow
from koala.simulator.traces.reader import FIRST_IDS, Floats, Integers, Trace
from koala.simulator.workloads.workload import Arrival, Workload

# Slowdowns of shorter jobs are bounded: they would only reflect that the job was short.
BOUND_S = 10.0
TOO_LARGE = "too_large"
# The kernel's name, beside the disciplines, for a policy with one plan for each queue.
PLANS = "plans"
# A job with a run time of zero still has a walltime.
WALLTIME_S_MIN = 1.0
# Jobs of equal size and walltime share one request; at most this many different ones are cached.
REQUESTS_REMEMBERED = 10_000
# A remark names at most this many sites, and counts the others.
FIRST_NAMES = 3


class TooLarge(NamedTuple):
    """Jobs that no site, or the whole grid if jobs are divided, can hold; they are left out of the schedule."""

    jobs: Trace
    limit: int

    def as_json(self) -> dict[str, Any]:
        """Return their number, the first ids, and the most that the grid can hold."""
        return {"jobs": self.jobs.jobs, "first": self.jobs.ids[:FIRST_IDS].tolist(), "processors_max": self.limit}


def divided_by_size(trace: Trace, grid: Grid, *, divides: bool) -> tuple[Trace, TooLarge]:
    """Return the jobs that the grid can hold, and those that are too large for it.

    >>> from koala.simulator import clusters_in_short, divided_by_size, lublin
    >>> fitting, too_large = divided_by_size(lublin(100, 1), clusters_in_short("2x8"), divides=True)
    >>> fitting.jobs + too_large.jobs.jobs
    100
    """
    processors = [site.processors for site in grid.sites]
    limit = sum(processors) if divides else max(processors)
    fits = trace.size <= limit
    if fits.all():
        return trace, TooLarge(trace.chosen(~fits), limit)
    return trace.chosen(fits), TooLarge(trace.chosen(~fits), limit)


def discipline_for(policy: Policy) -> str | None:
    """Return the discipline that equals a placement policy for jobs of one component, if there is one.

    The scheduler tries all waiting jobs, in order, which is first fit over the queue; and the kernel chooses clusters
    like a policy that puts a lone component on the site with the most idle processors.
    """
    alike = policy.most_idle_takes_whole and not policy.form.divides and not policy.checked
    return "first-fit" if alike else None


def obstacles(grid: Grid, *, plans: bool = True) -> tuple[str, ...]:
    """Return the properties of the grid, beyond the sizes of its sites, that the kernel lacks; empty for a plain
    grid.

    ``plans`` says whether plans count: a discipline of the kernel plans as its name says.
    """
    sites = grid.sites
    by_kind = {
        "users of their own": [site.name for site in sites if site.simulation.background is not None],
        "faults": [site.name for site in sites if site.simulation.faults != SiteFaults()],
        "start-up times of their own": [site.name for site in sites if site.simulation.startup is not None],
        "quotas": [site.name for site in sites if site.quota != 1.0],
    }
    found = [f"{kind} ({_few_of(names)})" for kind, names in by_kind.items() if names]
    if grid.scheduler.scan_interval_s != 0.0:
        found.append(f"a scan interval of {grid.scheduler.scan_interval_s:g} s")
    if not comes_first(grid):
        found.append(f"the order {grid.scheduler.order}")
    if plans and grid.scheduler.plan_depth:
        found.append(f"plans (plan_depth {grid.scheduler.plan_depth})")
    if grid.simulation.startup != Startup():
        found.append("times to start up")
    if grid.simulation.answers != AnswerFaults():
        found.append("lost and late answers")
    if grid.simulation.report_interval_s != 0.0:
        found.append("sites that report at intervals")
    return tuple(found)


def comes_first(grid: Grid) -> bool:
    """Return True if jobs are tried first come, first served: the kernels have no other order."""
    return grid.scheduler.order.casefold() in (FCFS_ORDER, EASY_ORDER)


def _few_of(names: list[str]) -> str:
    more = f" and {len(names) - FIRST_NAMES} more" if len(names) > FIRST_NAMES else ""
    return f"{', '.join(names[:FIRST_NAMES])}{more}"


# --------------------------------------------------------------------------------------------- the kernel


class KernelRun:
    """The kernel's result for a trace: when and where each job started."""

    def __init__(self, trace: Trace, grid: Grid, policy: str, start_s: Floats, site: Integers) -> None:
        self.trace = trace
        self.policy = policy
        self._grid = grid
        self._site = site
        self.start_s = start_s
        self.end_s: Floats = start_s + trace.run_s

    def metrics(self) -> dict[str, Any]:
        """Return the run in numbers, with the names of the scheduler's metrics."""
        trace = self.trace
        first_s = float(trace.submit_s[0]) if trace.jobs else 0.0
        makespan_s = float(self.end_s.max()) - first_s if trace.jobs else 0.0
        wait_s = self.start_s - trace.submit_s
        return {
            "policy": self.policy,
            "complete": True,
            "jobs": trace.jobs,
            "outcomes": {DONE: trace.jobs} if trace.jobs else {},
            "wait_s": summarised(wait_s),
            "execution_s": summarised(trace.run_s),
            "response_s": summarised(wait_s + trace.run_s),
            "utilisation": self._utilisation(makespan_s),
            "makespan_s": makespan_s,
        }

    def _utilisation(self, makespan_s: float) -> dict[str, Any]:
        sites = self._grid.sites
        used = self._used_processor_s()
        capacity = np.array([site.processors for site in sites]) * makespan_s
        shares = np.divide(used, capacity, out=np.zeros(len(sites)), where=capacity > 0)
        ours = float(used.sum() / capacity.sum()) if makespan_s > 0 else 0.0
        by_site = zip(sites, shares.tolist(), strict=True)
        return {
            "ours": ours,
            "others": 0.0,
            "total": ours,
            "sites": {site.name: {"ours": share, "others": 0.0} for site, share in by_site},
        }

    def _used_processor_s(self) -> Floats:
        """Return the used processor-seconds by site."""
        weights = self.trace.run_s * self.trace.size
        return np.bincount(self._site, weights=weights, minlength=len(self._grid.sites)).astype(np.float64)

    def rows(self) -> Iterator[JobRow]:
        """Yield the table of jobs, by submission, like the scheduler's; a job is placed when it starts."""
        names = [site.name for site in self._grid.sites]
        columns = (self.trace.ids, self.trace.size, self._site, self.trace.submit_s, self.start_s, self.end_s)
        for job, size, site, submit, start, end in zip(*(column.tolist() for column in columns), strict=True):
            yield _waiting_row(job, size, submit, self.policy)._replace(
                clusters=1,
                sites=names[site],
                placed=start,
                started=start,
                finished=end,
                queue_s=start - submit,
                overhead_s=0.0,
                wait_s=start - submit,
                execution_s=end - start,
                response_s=end - submit,
                placement_tries=1,
                claiming_tries=1,
                outcome=DONE,
            )

    def picture(self, **words: Any) -> RunPicture:
        """Return the data of the run's page; ``words`` are its title, subtitle, facts and notes."""
        trace = self.trace
        starts, ends = self.start_s.tolist(), self.end_s.tolist()
        sizes = trace.size.tolist()
        return RunPicture(
            sites=[(site.name, site.processors) for site in self._grid.sites],
            ids=trace.ids.tolist(),
            sizes=sizes,
            submit_s=trace.submit_s.tolist(),
            start_s=starts,
            end_s=ends,
            holds=self._holds(),
            start_unix_s=trace.start_unix_s,
            **words,
        )

    def _holds(self) -> list[PageHold]:
        columns = (self._site, self.trace.size, self.start_s, self.end_s)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [PageHold(row, *cells) for row, cells in enumerate(rows)]


def run_in_kernel(trace: Trace, grid: Grid, discipline: str, policy: str) -> KernelRun:
    """Run jobs that all fit under a discipline; ``policy`` is its name in the result.

    EASY plans with the users' estimates. A job that ran longer than its estimate is planned with its run time: the
    original system let it run, and so does this one.

    >>> from koala.simulator import clusters_in_short, lublin, run_in_kernel
    >>> run = run_in_kernel(lublin(100, 1), clusters_in_short("1x128"), "easy", "EASY")
    >>> len(run.start_s)
    100
    """
    capacity = [site.processors for site in grid.sites]
    planned_s = np.maximum(trace.requested_s, trace.run_s)
    run = run_plain(trace.submit_s, trace.run_s, trace.size, capacity, discipline, requested_s=planned_s)
    return KernelRun(trace, grid, policy, run.start_s, run.site)


class PlannedKernelRun(KernelRun):
    """The result of the kernel with plans: also how many processors each job had on each site."""

    def __init__(self, trace: Trace, grid: Grid, policy: str, run: PlannedRun) -> None:
        super().__init__(trace, grid, policy, run.start_s, np.argmax(run.parts, axis=1).astype(np.int32))
        self.parts = run.parts

    def metrics(self) -> dict[str, Any]:
        """Return the run in numbers, with how many clusters were combined."""
        clusters = (self.parts > 0).sum(axis=1)
        counts = np.bincount(clusters).tolist()
        combined = {
            "mean": float(clusters.mean()) if len(clusters) else None,
            "histogram": {str(count): jobs for count, jobs in enumerate(counts) if jobs and count},
        }
        shares = {"clusters_combined": combined, "coallocated_share": float((clusters > 1).mean())}
        return {**super().metrics(), **(shares if self.trace.jobs else {})}

    def _used_processor_s(self) -> Floats:
        used: Floats = (self.parts * self.trace.run_s[:, None]).sum(axis=0)
        return used

    def rows(self) -> Iterator[JobRow]:
        """Yield the table of jobs, with all sites of each; parts in the order of sites."""
        names = [site.name for site in self._grid.sites]
        for row, parts in zip(super().rows(), self.parts.tolist(), strict=True):
            sites = [name for name, part in zip(names, parts, strict=True) if part]
            yield row._replace(clusters=len(sites), components=len(sites), sites="+".join(sites))

    def _holds(self) -> list[PageHold]:
        starts, ends = self.start_s.tolist(), self.end_s.tolist()
        return [
            PageHold(row, site, part, starts[row], ends[row])
            for row, parts in enumerate(self.parts.tolist())
            for site, part in enumerate(parts)
            if part
        ]


def planned_alike(policy: Policy) -> bool:
    """Return True if the kernel with plans equals the policy with one plan for each queue, for jobs of one
    component."""
    return discipline_for(policy) is not None or (policy.name == FCM.name and not policy.checked)


def run_planned_in_kernel(trace: Trace, grid: Grid, policy: Policy) -> PlannedKernelRun:
    """Run jobs that all fit with one plan for each queue, as the scheduler does with ``plan_depth`` 1, first come,
    first served."""
    if not comes_first(grid):
        raise ValueError(f"the kernel does not know the order {grid.scheduler.order}; run the trace in the scheduler")
    capacity = [site.processors for site in grid.sites]
    requested_s = np.maximum(np.maximum(trace.requested_s, trace.run_s), WALLTIME_S_MIN)
    divides = policy.form.divides
    run = run_planned(trace.submit_s, trace.run_s, trace.size.reshape(-1, 1), capacity, requested_s, divides=divides)
    return PlannedKernelRun(trace, grid, policy.name, run)


def warm_up(discipline: str) -> None:
    """Load the compiled kernel, or compile it if that was never done, with one job on one cluster."""
    one = np.ones(1)
    if discipline == PLANS:
        run_planned(one, one, np.ones((1, 1), dtype=np.int64), [1], one, divides=True)
        return
    run_plain(one, one, np.ones(1, dtype=np.int32), [1], discipline, requested_s=one)


# --------------------------------------------------------------------------------------------- the scheduler


def trace_workload(trace: Trace, *, divides: bool = False, walltimes: bool | None = None) -> Workload:
    """Return the jobs of a trace as a workload for ``simulate``, each of one component.

    - ``divides``: each is a total instead, for a policy that divides totals, as FCM does;
    - ``walltimes``: each has its requested time as walltime, or its run time if that is longer; by default where the
      grid makes plans, which depend on walltimes.

    The owners of the jobs are the users of the trace, if it was read with them. Jobs that no site can hold never
    start, and are unfinished in the result.

    >>> from koala.simulator import clusters_in_short, lublin, simulate, trace_workload
    >>> trace = lublin(200, seed=1, nodes=64)  # or read_trace("KTH-SP2.swf.gz")
    >>> result = simulate(clusters_in_short("2x64"), trace_workload(trace), policy="WF")
    >>> result.metrics()["outcomes"]
    {'done': 200}
    >>> result = simulate(clusters_in_short("2x32"), trace_workload(trace, divides=True), policy="FCM")
    >>> result.metrics()["outcomes"]
    {'done': 200}
    """

    def source(grid: Grid, _seed: int) -> Iterator[Arrival]:
        told = grid.scheduler.plan_depth > 0 if walltimes is None else walltimes
        requests: dict[tuple[int, float | None], Request] = {}
        columns = (trace.submit_s, trace.size, trace.run_s, trace.requested_s)
        users = repeat("", trace.jobs) if trace.users is None else trace.users.tolist()
        rows = zip(*(column.tolist() for column in columns), users, strict=True)
        for submit_s, size, run_s, requested_s, user in rows:
            walltime_s = max(requested_s, run_s, WALLTIME_S_MIN) if told else None
            request = requests.get((size, walltime_s))
            if request is None:
                if len(requests) >= REQUESTS_REMEMBERED:
                    requests.clear()
                request = requests[size, walltime_s] = _request(size, divides, walltime_s)
            yield Arrival(submit_s, request, run_s, owner=user)

    return Workload([source], trace.jobs, name=trace.name)


def _request(size: int, divides: bool, walltime_s: float | None) -> Request:
    component = Component(processors=size, application=Application(executable="job"))
    return Request(components=(component,), flexible=Flexibility() if divides else None, walltime_s=walltime_s)


def renamed(rows: Iterable[JobRow], trace: Trace) -> list[JobRow]:
    """Return rows of the scheduler, which numbers jobs by submission, with the ids of the trace."""
    ids = trace.ids.tolist()
    return [row._replace(job=ids[row.job - 1]) for row in rows]


# --------------------------------------------------------------------------------------------- figures


def headline(wait_s: Floats, run_s: Floats) -> dict[str, Any]:
    """Return the figures by which disciplines are compared, over the jobs that were done; None if there are none."""
    turnaround_s = wait_s + run_s
    slowdown = np.maximum(1.0, turnaround_s / np.maximum(run_s, BOUND_S))
    figures: dict[str, Any] = {}
    for name, values in (("wait_s", wait_s), ("turnaround_s", turnaround_s)):
        summary = summarised(values)
        for which in ("mean", "median", "p95"):
            figures[f"{which}_{name}"] = None if summary is None else summary[which]
    figures["bounded_slowdown"] = summarised(slowdown)
    return figures


def summarised(values: Floats) -> dict[str, float] | None:
    """Return mean, median, 95th percentile and maximum; None without values."""
    if not len(values):
        return None
    median, p95 = np.percentile(values, (50, 95)).tolist()
    return {"mean": float(values.mean()), "median": median, "p95": p95, "max": float(values.max())}


def too_large_rows(too_large: TooLarge, policy: str) -> Iterator[JobRow]:
    """Yield the jobs that were left out, for the table of jobs."""
    reason = f"the grid can hold {too_large.limit} processors of one job at most"
    trace = too_large.jobs
    for job, size, submit in zip(trace.ids.tolist(), trace.size.tolist(), trace.submit_s.tolist(), strict=True):
        yield _waiting_row(job, size, submit, policy)._replace(outcome=TOO_LARGE, reason=reason)


def _waiting_row(job: int, size: int, submit_s: float, policy: str) -> JobRow:
    """Return the row of a job to which nothing has happened yet. A trace draws nothing, so its seed is 0."""
    return JobRow(
        job=job,
        name="job",
        priority=str(Priority.LOW),
        processors=size,
        components=1,
        clusters=0,
        sites="",
        submitted=submit_s,
        placed=None,
        started=None,
        finished=None,
        queue_s=None,
        overhead_s=None,
        wait_s=None,
        execution_s=None,
        response_s=None,
        placement_tries=0,
        claiming_tries=0,
        failures=0,
        preemptions=0,
        start_delay_s=None,
        gained_processor_s=0.0,
        wasted_processor_s=0.0,
        outcome="",
        reason="",
        policy=policy,
        seed=0,
    )
