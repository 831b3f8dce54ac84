"""The study of plans: how far ahead to plan over several clusters, beside EASY on one cluster of the same size.

This module defines the runs and their measures. The worlds are in ``worlds``; the claims and figures in ``findings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from koala.descriptions import RequestKind
from koala.model.grid import PLAN_DEPTH_MAX
from koala.simulator import Result, example_grid, example_workload, fingerprint, simulate, workload_from_file
from koala.study import Conclusion, FinishedUnit, ParameterError, Parameters, Unit, done_rows, number, varied
from koala_papers.experiment import PaperExperiment
from koala_papers.planning.findings import EASY, PlanningFindings
from koala_papers.planning.worlds import (
    ALL,
    CLUSTERS,
    DAS2,
    DAS2_GRID,
    DAS2_WORKLOAD,
    LUBLIN_NODES,
    TraceFile,
    clusters_of,
    depth_of,
    drawn,
    part_of,
    processors_of,
    traces_in,
    with_plans,
)

if TYPE_CHECKING:
    from koala.simulator import Trace

METHOD = (
    (
        "The jobs of a trace come when they came, and ask for the time that their users asked for; a job that ran "
        "longer asks for as long as it ran. Each seed takes another part of every trace, on a grid that is empty "
        "before. The processors of the trace's machine are divided over four equal clusters. Drawn workloads are of "
        "the model of Lublin and Feitelson for 128 processors, with gaps stretched to the load; their users ask for "
        "one to five times the run time."
    ),
    (
        "FCM divides a job over clusters, WF puts it on one, so that jobs larger than a cluster are left out for WF. "
        "plan_depth says how many jobs of a queue have plans: 0 starts whatever fits, 1 is EASY backfilling over the "
        "clusters, all comes near conservative backfilling. EASY is backfilling on one cluster of all the "
        "processors, by the compiled kernel. On the DAS-2 the jobs are those of the paper of 2006, four times as "
        "dense, beside local users who hold 15 to 20 % of it and tell nobody when they come."
    ),
    (
        "Each seed gives one value for each world and contender: the mean, the 99.9th percentile and the longest of "
        "the waits, the mean slowdown bounded at 10 s, in all and by size, the utilisation, and the processor time "
        "wasted before starts. Contenders meet the same jobs under a seed and are compared in it, as many times "
        "what the other has. Intervals are Student's t at 95 % over seeds. A claim holds only when every interval "
        "behind it lies wholly on the right side."
    ),
)

# The classes of sizes in processors, each with its smallest.
CLASSES = (("1", 1), ("2 to 8", 2), ("9 to 32", 9), ("over 32", 33))

Jobs = Annotated[int, msgspec.Meta(ge=10, le=1_000_000)]
Gap = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Load = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]


class PlanningParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``traces``: a folder with traces in SWF or GWF; without it there are only drawn jobs;
    - ``jobs``: the number of jobs in a run;
    - ``das2_jobs``: the number on the DAS-2, and ``das2_interarrival_s``: the mean time between two of these;
    - ``loads``: those of the drawn workloads;
    - ``policies``: the placement policies; ``depths``: the plan_depth of each, a number or all.
    """

    traces: str = ""
    jobs: Jobs = 1_000
    das2_jobs: Jobs = 200
    das2_interarrival_s: Gap = 20.0
    loads: tuple[Load, ...] = (0.6, 0.7, 0.8, 0.9, 0.95)
    policies: tuple[str, ...] = ("FCM", "WF")
    depths: tuple[str, ...] = ("0", "1", "8", ALL)


class Planning(PaperExperiment[PlanningParameters]):
    """FCM and WF with plans over four clusters, beside EASY on one."""

    name = "planning"
    title = "How far to plan ahead over several clusters"
    question = "Do plans over four clusters serve jobs as well as EASY backfilling on one cluster of the same size?"
    method = METHOD
    repetitions = 8
    seeds_min = 8
    parameters_type = PlanningParameters

    def quick(self, parameters: PlanningParameters) -> PlanningParameters:
        return msgspec.structs.replace(
            parameters, jobs=300, das2_jobs=40, loads=(0.7, 0.95), policies=("FCM",), depths=("0", "1", "8")
        )

    def units(self, parameters: PlanningParameters, seed: int, repetitions: int) -> list[Unit]:
        """Return a unit for each contender in each world under each seed."""
        _check(parameters)
        worlds: list[tuple[str, dict[str, Any]]] = [
            (file.name, {"trace": file.path, "identity": file.identity}) for file in traces_in(parameters.traces)
        ]
        worlds += [(f"Lublin {load:g}", {"load": load}) for load in parameters.loads]
        inputs = fingerprint(grids=(DAS2_GRID,), workloads=(DAS2_WORKLOAD,))
        worlds.append((DAS2, {"inputs": inputs, "interarrival_s": parameters.das2_interarrival_s}))
        contenders = [(policy, depth) for policy in parameters.policies for depth in parameters.depths]
        found = []
        for each in range(seed, seed + repetitions):
            for world, of_world in worlds:
                jobs = parameters.das2_jobs if world == DAS2 else parameters.jobs
                for policy, depth in contenders if world == DAS2 else [(EASY, ""), *contenders]:
                    work = {"world": world, "policy": policy, "depth": depth, "seed": each, "jobs": jobs, **of_world}
                    found.append(Unit(label=f"{world}, {policy} {depth}, seed {each}".replace(" ,", ","), work=work))
        return found

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        if work["world"] == DAS2:
            return _on_das2(work)
        if "trace" in work:
            file = TraceFile(work["world"], work["trace"], work["identity"])
            trace, processors = part_of(file, work["jobs"], work["seed"]), processors_of(file)
        else:
            trace, processors = drawn(work["load"], work["jobs"], work["seed"]), LUBLIN_NODES
        if work["policy"] == EASY:
            return _easy(trace, processors)
        from koala.simulator import divided_by_size, trace_workload

        grid = with_plans(clusters_of(processors, CLUSTERS), depth_of(work["depth"]))
        divides = work["policy"] == "FCM"
        fitting, too_large = divided_by_size(trace, grid, divides=divides)
        workload = trace_workload(fitting, divides=divides, walltimes=True)
        result = simulate(grid, workload, policy=work["policy"], seed=work["seed"])
        return {**measures(result), "too_large": too_large.jobs.jobs}

    def conclude(self, parameters: PlanningParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        findings = PlanningFindings(results)
        return Conclusion(
            findings.as_json(), findings.claims(), findings.figures(), findings.notes(), tables=findings.tables()
        )


def _check(parameters: PlanningParameters) -> None:
    for depth in parameters.depths:
        if depth != ALL and not (depth.isdecimal() and int(depth) <= PLAN_DEPTH_MAX):
            raise ParameterError(
                f"planning, parameter depths: {depth!r} will not do; write 0 to {PLAN_DEPTH_MAX}, or {ALL}"
            )
    for policy in parameters.policies:
        if policy not in ("FCM", "WF"):
            raise ParameterError(f"planning, parameter policies: {policy!r} will not do; there are FCM and WF")


def _on_das2(work: dict[str, Any]) -> dict[str, Any]:
    grid = with_plans(example_grid(DAS2_GRID), depth_of(work["depth"]))
    kind = RequestKind.FLEXIBLE if work["policy"] == "FCM" else RequestKind.NON_FIXED
    gap_s = work["interarrival_s"]
    jobs = varied(example_workload(DAS2_WORKLOAD), jobs=work["jobs"], interarrival_s=gap_s, request=kind)
    result = simulate(grid, workload_from_file(jobs), policy=work["policy"], seed=work["seed"])
    return {**measures(result), "too_large": 0}


def _easy(trace: Trace, processors: int) -> dict[str, Any]:
    """Return EASY on one cluster with all the processors."""
    from koala.simulator import run_in_kernel

    grid = clusters_of(processors, 1)
    run = run_in_kernel(trace, grid, "easy", EASY)
    numbers = _figures(trace.size.tolist(), (run.start_s - trace.submit_s).tolist(), trace.run_s.tolist())
    use = run.metrics()["utilisation"]["ours"]
    return {**numbers, "utilisation": use, "wasted_processor_s": 0.0, "not_done": 0, "too_large": 0}


def measures(result: Result) -> dict[str, Any]:
    """Return one run in numbers."""
    metrics, done = result.metrics(), done_rows(result)
    numbers = _figures(
        [row.processors for row in done],
        [number(row, "wait_s") for row in done],
        [number(row, "execution_s") for row in done],
    )
    return {
        **numbers,
        "utilisation": metrics["utilisation"]["ours"],
        "wasted_processor_s": metrics["wasted_processor_s"],
        "not_done": metrics["jobs"] - len(done),
    }


def _figures(sizes: Iterable[int], waits_s: Sequence[float], runs_s: Sequence[float]) -> dict[str, Any]:
    """Return the compared figures, over the jobs that were done; by class if it has any."""
    import numpy as np

    from koala.simulator import BOUND_S

    size, wait_s, run_s = (np.array(list(column), dtype=float) for column in (sizes, waits_s, runs_s))
    if not len(size):
        return {"jobs": 0, "figures": {}, "slowdown_by_class": {}}
    slowdown = np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, BOUND_S))
    ends = [least for _, least in CLASSES[1:]] + [np.inf]
    by_class = {}
    for (label, least), end in zip(CLASSES, ends, strict=True):
        chosen = (size >= least) & (size < end)
        if chosen.any():
            by_class[label] = float(slowdown[chosen].mean())
    return {
        "jobs": len(size),
        "figures": {
            "mean_wait_s": float(wait_s.mean()),
            "p999_wait_s": float(np.percentile(wait_s, 99.9)),
            "longest_wait_s": float(wait_s.max()),
            "bounded_slowdown": float(slowdown.mean()),
        },
        "slowdown_by_class": by_class,
    }
