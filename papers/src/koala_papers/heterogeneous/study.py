"""The experiment on unequal links: do the policies that look at links and at divided input beat those that do not?

This module defines the runs and their measures. The worlds are in ``worlds``; the claims and figures in ``findings``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from koala.simulator import Result, fingerprint, simulate
from koala.study import Conclusion, FinishedUnit, Parameters, Unit, done_rows, means
from koala_papers.experiment import PaperExperiment
from koala_papers.heterogeneous.findings import HeterogeneousFindings
from koala_papers.heterogeneous.worlds import (
    CASES,
    COMMUNICATING,
    GRID,
    READING,
    grid_of,
    island_of,
    workload_of,
)

METHOD = (
    (
        "Six sites of 64, 48 and 32 processors, two of each, on two islands (the example two-islands). Within an "
        "island the links are those of the DAS-2, 100 Mbit/s and 5 ms; between the islands they have 2, 4 or 8 "
        "times less bandwidth and more latency, and once all are equal. In the random family each seed has a "
        "grid of its own: bandwidth and latency of every link are drawn apart from each other, from a quarter to "
        "four times those of the DAS-2."
    ),
    (
        "The jobs are those of the paper of 2006, Laplace and Heat, one every 100 s. An "
        "execution over several clusters takes T1 * (1 + beta * slowness * (clusters - 1)), where "
        "slowness is that of the worst link between two of them. Laplace minds latency more than bandwidth and "
        "Heat the other way round; NCM and NFCM know neither and assume that both count alike."
    ),
    (
        "For FCF the jobs are those of the paper of 2005 with an input file of 1 or 2 GB that is divided over the "
        "components: once without communication between clusters, as there, and once with that of Laplace. Links "
        "between the islands are 4 times worse."
    ),
    (
        "Each seed gives one value for each policy, the mean over the jobs that were done. All policies meet the "
        "same jobs under a seed, so they are compared by their difference in each seed. Intervals are Student's t "
        "at 95 % over seeds. A claim holds only when every interval behind it lies wholly on the right side."
    ),
)

Jobs = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Gap = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]


class HeterogeneousParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``: the number of jobs in a run;
    - ``interarrival_s``: the mean time between two.
    """

    jobs: Jobs = 200
    interarrival_s: Gap = 100.0


class Heterogeneous(PaperExperiment[HeterogeneousParameters]):
    """NCM beside CM, NFCM beside FCM, and FCF beside CF and FCM, on grids of unequal links."""

    name = "heterogeneous"
    title = "Unequal links and divided input: NCM, NFCM and FCF"
    question = "By how much do policies that look at links, or divide the input, beat CM, FCM and CF?"
    method = METHOD
    seeds_max = 80
    parameters_type = HeterogeneousParameters

    def quick(self, parameters: HeterogeneousParameters) -> HeterogeneousParameters:
        return msgspec.structs.replace(parameters, jobs=40)

    def units(self, parameters: HeterogeneousParameters, seed: int, repetitions: int) -> list[Unit]:
        inputs = fingerprint(grids=(GRID,), workloads=(COMMUNICATING, READING))
        return [
            Unit(
                label=f"{CASES[case].title}, seed {each}",
                work={"case": case, "seed": each, "inputs": inputs, **msgspec.to_builtins(parameters)},
            )
            for each in range(seed, seed + repetitions)
            for case in CASES
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        """Run all policies of a case under one seed."""
        work = unit.work
        case = CASES[work["case"]]
        grid = grid_of(case, work["seed"])
        islands = {site.name: island_of(index) for index, site in enumerate(grid.sites)}
        policies = {}
        for policy, kind in case.policies.items():
            workload = workload_of(case, kind, work["jobs"], work["interarrival_s"])
            policies[policy] = measures(simulate(grid, workload, policy=policy, seed=work["seed"]), islands)
        return {"policies": policies}

    def conclude(self, parameters: HeterogeneousParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        findings = HeterogeneousFindings(results)
        return Conclusion(findings.as_json(), findings.claims(), findings.figures(), findings.notes())


def measures(result: Result, islands: dict[str, int]) -> dict[str, Any]:
    """Return one run in numbers: means over the jobs that were done, and the share of them that spans both
    islands."""
    metrics = result.metrics()
    done = done_rows(result)
    numbers = means(done)
    if done:
        apart = sum(len({islands[site] for site in row.sites.split("+")}) > 1 for row in done)
        numbers["apart_share"] = apart / len(done)
    return {
        "outcomes": metrics["outcomes"],
        "means": numbers,
        "utilisation": metrics["utilisation"]["ours"],
        "log_sha256": metrics["log_sha256"],
    }
