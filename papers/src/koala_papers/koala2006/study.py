"""The experiment of 2006: WF, CM and FCM on the DAS-2, with jobs that come rarely (W1) and often (W2).

This module defines the runs: workloads, void runs and measures. ``data`` evaluates the measurements; the claims are
in ``claims`` and the figures in ``figures``. A file of execution times, such as ``calibrate`` writes, can replace
those of the workloads.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import Field

from koala.descriptions import (
    ApplicationModelText,
    Description,
    Label,
    RequestKind,
    WorkloadText,
    decoded,
    read_document,
)
from koala.model.grid import BandOver, Grid
from koala.simulator import JobRow, Result, WorkloadFile, example_grid, example_workload, fingerprint, simulate
from koala.study import Conclusion, FinishedUnit, Parameters, Unit, done_rows, means, number, varied
from koala_papers.experiment import PaperExperiment
from koala_papers.koala2006.claims import claims
from koala_papers.koala2006.data import Koala2006Data
from koala_papers.koala2006.figures import figures

GRID = "das2"
PROCESSORS_PER_NODE = 2
# The paper's name of a workload -> the example with it.
WORKLOADS = {"W1": "koala2006-w1", "W2": "koala2006-w2"}
# Policy -> the requests of its jobs; FCM divides totals, and the others place components of given sizes.
POLICIES = {"WF": RequestKind.NON_FIXED, "CM": RequestKind.NON_FIXED, "FCM": RequestKind.FLEXIBLE}
# The paper repeats a void run until it is not void. A grid with this many void runs in a row never gives a valid one.
ATTEMPTS_MAX = 50
# A repeated run has the seed of the first plus a multiple of this, far from the seeds of other repetitions.
SUB_SEED_STRIDE = 1_000_000


METHOD = (
    (
        "By default 200 jobs of two communication-intensive applications, Laplace (36 or 64 processors) and Heat "
        "(36, 64 or 72), come as a Poisson process, one every 80 s (W1) or 40 s (W2). WF and CM get 2, 3 or 4 equal "
        "components of at most 24 processors; FCM gets the same jobs with their totals only. The grid is the "
        "DAS-2 of 2006 with 320 processors in five clusters. The scheduler is the one that runs live; sites, "
        "links and users are simulated."
    ),
    (
        "The paper says that nodes are used 'in an exclusive fashion', and counts in processors. So there are two "
        "readings, judged one beside the other: two processors in each node, 320 in all (scheduled=processors), or "
        "whole nodes, 160 in all (scheduled=nodes)."
    ),
    (
        "The load of other users is held at 15-20 % by dummy jobs: of the whole testbed, as in the paper "
        "(band=grid), or of each site (band=site). Where the users alone exceed 20 % for over a minute the run is "
        "void: it is repeated with another seed, for all three policies, so that they stay comparable."
    ),
    (
        "Each seed gives one value for each policy and workload, the mean over the jobs that were done. All "
        "policies meet the same jobs, users and start-up times under a seed, so policies are compared by "
        "their difference in each seed. Intervals are Student's t at 95 % over seeds. A claim holds only when "
        "every interval behind it lies wholly on the right side."
    ),
    (
        "An application takes T1(size) * (1 + beta * (clusters - 1)). Start-up takes longer with more "
        "components and on a loaded site. Both are inputs of the simulation: C7 and C8 show that they come "
        "through the scheduling, and not that nature has them. The other claims are not put in."
    ),
    (
        "The paper says 'low', 'similar' and 'significantly better' of queue times without numbers. Here, by "
        "default, low is below 10 % of the response time, similar is a difference of less than 10 % of it, and much "
        "lower is less than half."
    ),
)

Positive = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Share = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]


class Scheduled(enum.StrEnum):
    """The units that a site allocates to jobs."""

    PROCESSORS = "processors"
    NODES = "nodes"


class Koala2006Parameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``: the number of jobs of a workload;
    - ``model``: a file with the applications' execution times, as the experiment ``calibrate`` writes it; by
      default those of the shipped workloads;
    - ``scheduled``: the units that a site schedules, its processors or its whole nodes of two processors each;
    - ``band``: where the load of other users is held at 15-20 %, on the whole grid or on each site;
    - ``startup``: the factor on the shipped start-up times;
    - ``low_share``: a queue time counts as low below this share of the response time;
    - ``similar_share``: queue times count as similar if they differ by less than this share of the response time;
    - ``much_lower_share``: a time counts as much lower than another below this share of it.
    """

    jobs: Positive = 200
    model: str = ""
    scheduled: Scheduled = Scheduled.PROCESSORS
    band: BandOver = BandOver.GRID
    startup: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0
    low_share: Share = 0.1
    similar_share: Share = 0.1
    much_lower_share: Share = 0.5


class ExecutionModelText(Description):
    """Execution times on one cluster by application and size, T1, and beta: T1 * (1 + beta * (clusters - 1))."""

    source: str = Field(default="", description="where the numbers come from, for reports")
    applications: dict[Label, ApplicationModelText] = Field(
        min_length=1, description="how long each application runs, as in a workload file"
    )


class MissingApplicationError(ValueError):
    """An execution model lacks an application of a workload."""

    def for_user(self) -> str:
        """Return which application and size, and what to add."""
        return str(self)


class AlwaysVoidError(ValueError):
    """Every repetition of a run was void: the users alone exceed the band all the time."""

    def for_user(self) -> str:
        """Return which run, how often, and what to change."""
        return str(self)


class Koala2006(PaperExperiment[Koala2006Parameters]):
    """WF, CM and FCM under W1 and W2, all three under the same seeds."""

    name = "koala2006"
    title = "Communication-aware placement: WF, CM and FCM on the DAS-2"
    question = "Does combining fewer clusters (CM, FCM) give shorter response times than worst fit (WF)?"
    method = METHOD
    seeds_max = 80
    parameters_type = Koala2006Parameters

    def quick(self, parameters: Koala2006Parameters) -> Koala2006Parameters:
        return msgspec.structs.replace(parameters, jobs=40)

    def units(self, parameters: Koala2006Parameters, seed: int, repetitions: int) -> list[Unit]:
        inputs = fingerprint(grids=(GRID,), workloads=tuple(WORKLOADS.values()))
        applications = {name: self._applications(parameters, example) for name, example in WORKLOADS.items()}
        return [
            Unit(
                label=f"{workload}, seed {each}",
                work={
                    "workload": workload,
                    "seed": each,
                    "jobs": parameters.jobs,
                    "scheduled": str(parameters.scheduled),
                    "band": str(parameters.band),
                    "startup": parameters.startup,
                    "applications": applications[workload],
                    "inputs": inputs,
                },
            )
            for each in range(seed, seed + repetitions)
            for workload in WORKLOADS
        ]

    def _applications(self, parameters: Koala2006Parameters, example: str) -> dict[str, Any]:
        text = example_workload(example).text
        if not parameters.model:
            return applications_as_json(text.applications)
        applications = applications_as_json(read_execution_model(Path(parameters.model)).applications)
        with_applications(text, applications, parameters.model)  # says what is missing before anything runs
        return applications

    def run(self, unit: Unit) -> dict[str, Any]:
        """Run all policies on one workload under one seed, and under another while a run is void."""
        work = unit.work
        text = example_workload(WORKLOADS[work["workload"]]).text
        text = with_applications(text, work["applications"], unit.label)
        grid = das2_as_read(Scheduled(work["scheduled"]), BandOver(work["band"]), work["startup"])
        return run_until_it_counts(grid, text, work["jobs"], work["seed"])

    def conclude(self, parameters: Koala2006Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        data = Koala2006Data(results, list(WORKLOADS), list(POLICIES))
        model = {finished.unit.work["workload"]: finished.unit.work["applications"] for finished in results}
        shares = {
            "low": parameters.low_share,
            "similar": parameters.similar_share,
            "much_lower": parameters.much_lower_share,
        }
        return Conclusion({**data.as_json(), "model": model}, claims(data, shares), figures(data), [_void_note(data)])


def _void_note(data: Koala2006Data) -> str:
    """Return how many runs were void, in words."""
    void = data.void_runs()
    runs = len(data.seeds) * len(data.policies)
    if not any(void.values()):
        return f"No run was void: {runs} runs of each workload count."
    listed = " and ".join(f"{count} of {workload}" for workload, count in void.items())
    return f"Void and repeated for all policies under another seed: {listed}. {runs} runs of each workload count."


def run_until_it_counts(grid: Grid, text: WorkloadText, jobs: int, first_seed: int) -> dict[str, Any]:
    """Run all policies under one seed, and under another while a run is void."""
    for attempt in range(ATTEMPTS_MAX):
        seed = first_seed + attempt * SUB_SEED_STRIDE
        policies = _run_policies(grid, text, jobs, seed)
        if policies is not None:
            return {"seed_used": seed, "void_runs": attempt, "policies": policies}
    raise AlwaysVoidError(
        f"{ATTEMPTS_MAX} runs in a row were void, since the sites' own users exceed their band; "
        f"lower user_load in the grid {GRID}"
    )


def das2_as_read(scheduled: Scheduled, band: BandOver, startup: float) -> Grid:
    """Return the DAS-2 of 2006 in one of its readings, with its start-up times multiplied."""
    grid = example_grid(GRID)
    sites = grid.sites
    if scheduled is Scheduled.NODES:
        sites = tuple(
            msgspec.structs.replace(site, processors=site.processors // PROCESSORS_PER_NODE) for site in sites
        )
    times = grid.simulation.startup
    times = msgspec.structs.replace(
        times, base_s=startup * times.base_s, per_component_s=startup * times.per_component_s
    )
    simulation = msgspec.structs.replace(grid.simulation, background_band=band, startup=times)
    return msgspec.structs.replace(grid, sites=sites, simulation=simulation)


def _run_policies(grid: Grid, text: WorkloadText, jobs: int, seed: int) -> dict[str, Any] | None:
    """Return the result of each policy, or None if any run is void."""
    measured = {}
    for policy, kind in POLICIES.items():
        asked = varied(WorkloadFile(text, ()), jobs=jobs, request=kind)
        result = simulate(grid, asked, policy=policy, seed=seed)
        if result.voids:
            return None
        measured[policy] = measures(result)
    return measured


def measures(result: Result) -> dict[str, Any]:
    """Return one run in numbers: means over the jobs that were done, and sums for the means of groups."""
    metrics = result.metrics()
    done = done_rows(result)
    return {
        "outcomes": metrics["outcomes"],
        "means": means(done),
        "clusters": metrics["clusters_combined"]["histogram"],
        "overhead_by_components": _sums(done, lambda row: str(row.components), "overhead_s"),
        "execution_by_clusters": _sums(
            done, lambda row: f"{row.name}/{row.processors}/{row.clusters}", "execution_s"
        ),
        "utilisation": {key: metrics["utilisation"][key] for key in ("ours", "others")},
        "makespan_s": metrics["makespan_s"],
        "log_sha256": result.log_sha256,
    }


def _sums(rows: Iterable[JobRow], key: Callable[[JobRow], str], name: str) -> dict[str, list[float]]:
    """Return for each group its sum and its number of jobs."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for row in rows:
        group = sums[key(row)]
        group[0] += number(row, name)
        group[1] += 1
    return dict(sorted(sums.items()))


# ---------------------------------------------------------- execution models: how long the applications run


def read_execution_model(path: Path) -> ExecutionModelText:
    """Return the model in a file. DescriptionError names every problem with its place, OSError the file."""
    return read_document(decoded(path.read_bytes(), str(path)), str(path), ExecutionModelText).model


def applications_as_json(applications: dict[str, ApplicationModelText]) -> dict[str, Any]:
    """Return the model as JSON for a unit of work; ``with_applications`` reads it."""
    return {
        name: model.model_dump(mode="json", exclude_defaults=True) for name, model in sorted(applications.items())
    }


def with_applications(text: WorkloadText, applications: dict[str, Any], source: str) -> WorkloadText:
    """Return the workload with these execution times instead of its own; raise MissingApplicationError if one is
    missing."""
    models = {name: ApplicationModelText.model_validate(model) for name, model in applications.items()}
    for generator in text.generate:
        for mix in generator.mix:
            if mix.application not in models:
                raise MissingApplicationError(
                    f"{source}: there is no {mix.application} under applications, and {text.name} runs it; add it"
                )
            for size in mix.sizes:
                for processors in size.processors.bounds:
                    if not models[mix.application].execution_s.covers(processors):
                        raise MissingApplicationError(
                            f"{source}: {mix.application} has no execution time for {processors} processors, "
                            f"and {text.name} runs it with so many; add it under by_size"
                        )
    return text.model_copy(update={"applications": models})
