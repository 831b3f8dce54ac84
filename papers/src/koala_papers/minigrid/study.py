"""The experiment of the paper on mini-grids: co-allocating meta-schedulers on links that jobs share.

This module offers the whole study, and one run alone. The cases are in ``cases``, running one in ``runs``; claims and
figures in ``claims``, ``duels`` and ``figures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from koala.study import Conclusion, FinishedUnit, PaperClaim, ParameterError, SingleRun, Unit
from koala_papers.experiment import PaperExperiment
from koala_papers.minigrid import claims, duels, figures
from koala_papers.minigrid.cases import (
    CLUSTERS,
    IDEAL,
    MIGRATION_ONLY,
    MiniGridCase,
    MiniGridParameters,
    alone,
    cases_of,
    in_order,
)
from koala_papers.minigrid.data import MiniGridData
from koala_papers.minigrid.runs import asked_case, run_case, run_case_timed, threshold_of

METHOD = (
    (
        "Four clusters of 100 nodes, each with a link of 1000 Mbit/s to a central switch. To each come 400,000 jobs, "
        "with exponential gaps of 150 s on average, sizes uniform from 10 to 50 and exponential execution times of "
        "450 s on average, 30 % of which is communication: 90 % of all nodes are wanted. All processors of a job "
        "talk to all; all jobs have the same bisection bandwidth (BSBW). Jobs that share a full link get the same "
        "share of what they want, on all their links, and leave the rest to others; only communication is stretched."
    ),
    (
        "The meta-scheduler goes over one queue, in order of submission, at each arrival and end: home if the job "
        "fits there, else the tightest cluster that holds it, else the module divides it, if that can. A1 knows what "
        "a job sends and keeps every link below a threshold (LSLT); B1 to B4 do not, and leave out clusters whose "
        "link is beyond it. A2 and B5 are ours. Initial ignores links, Ideal is Initial with unlimited ones, and "
        "Migration-Only never divides."
    ),
    (
        "All policies meet the same jobs under a seed, also at different bandwidths, so they are compared by their "
        "difference in each seed. Intervals are Student's t at 95 % over seeds. Lines at a threshold of 100 % have "
        "all seeds of the first look; patterns, our own policies with their rivals, and B3 over thresholds may have "
        "fewer; other modules over thresholds, and islands at two bandwidths, have the fewest. Further seeds go to "
        "the runs that undecided claims rest on. All jobs of a run count, from the first on."
    ),
)
QUICK_BSBW = (200.0, 300.0, 500.0, 800.0)


class MiniGridSingle(SingleRun, frozen=True, kw_only=True):
    """The arguments of one run."""

    policy: Annotated[str, msgspec.Meta(description="the policy, as B1 or B3(chunk=0.8).")]
    bsbw: Annotated[
        str, msgspec.Meta(description="bisection bandwidth in Mbit/s, as 300, or 200-900 for mixed ones [300].")
    ] = "300"
    lslt: Annotated[
        float | None,
        msgspec.Meta(description="how far links may be used, of their capacity, as 1.0 [the policy's own]."),
    ] = None
    jobs_per_cluster: Annotated[
        int, msgspec.Meta(ge=1, le=10_000_000, description="how many jobs come to each cluster [400000].")
    ] = 400_000
    clusters: Annotated[
        int, msgspec.Meta(ge=2, le=64, description="how many clusters there are; the paper has 2, 4 and 8 [4].")
    ] = CLUSTERS


class MiniGridStudy(PaperExperiment[MiniGridParameters]):
    """Every module over bandwidths and thresholds, our own beside them, and extensions of the paper."""

    name = "minigrid"
    title = "Mini-grids: co-allocation on links that jobs share"
    question = "Which meta-scheduler gets the most out of co-allocation without drowning in its traffic?"
    method = METHOD
    repetitions = 4
    seeds_max = 8
    # A run has 1.6 million jobs: a few of these seeds equal 20 seeds of runs of a few hundred.
    seeds_min = 4
    quick_repetitions = 3
    single_type = MiniGridSingle
    parameters_type = MiniGridParameters

    def quick(self, parameters: MiniGridParameters) -> MiniGridParameters:
        return msgspec.structs.replace(
            parameters,
            jobs_per_cluster=20_000,
            bsbw=QUICK_BSBW,
            surface_seeds=1,
            lslt_seeds=2,
            pattern_seeds=2,
        )

    def units(self, parameters: MiniGridParameters, seed: int, repetitions: int) -> list[Unit]:
        return [
            _unit(case, parameters, seed + number)
            for number in range(repetitions)
            for case in cases_of(parameters, number)
        ]

    def more_units(
        self,
        parameters: MiniGridParameters,
        seed: int,
        done: Sequence[Unit],
        numbers: range,
        undecided: Sequence[PaperClaim],
    ) -> list[Unit]:
        """Return the cases behind the undecided claims, under all seeds so far, and the bounds for the figures."""
        rest_on = {case for claim in undecided for case in claim.rests_on}
        cases = in_order((alone(IDEAL), alone(MIGRATION_ONLY), *rest_on)) if rest_on else []
        known = {unit.label for unit in done}
        every = (_unit(case, parameters, seed + number) for number in range(numbers.stop) for case in cases)
        return [*done, *(unit for unit in every if unit.label not in known)]

    def run(self, unit: Unit) -> dict[str, Any]:
        case = msgspec.convert(unit.work["case"], MiniGridCase)
        return run_case(case, unit.work["jobs_per_cluster"], unit.work["seed"], unit.work["clusters"])

    def conclude(self, parameters: MiniGridParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        data = MiniGridData(parameters, results)
        return Conclusion(
            {**data.as_json(), "own": duels.as_json(data)},
            [*claims.claims(data), *duels.claims(data)],
            [*figures.figures(data), *duels.figures(data)],
            _notes(data),
        )

    def run_single(self, asked: MiniGridSingle, seed: int) -> dict[str, Any]:
        """Return one run in numbers, with its speed."""
        case = asked_case(asked.policy, asked.lslt, *_bandwidths(asked.bsbw))
        numbers = run_case_timed(case, asked.jobs_per_cluster, seed, asked.clusters)
        return {
            "policy": case.name,
            "bsbw": case.bsbw_low if case.bsbw_low == case.bsbw_high else asked.bsbw,
            "lslt": threshold_of(case),
            "clusters": asked.clusters,
            "seed": seed,
            **{name: value for name, value in numbers.items() if isinstance(value, int | float)},
        }


def _unit(case: MiniGridCase, parameters: MiniGridParameters, seed: int) -> Unit:
    return Unit(
        label=f"{case.in_words()}, seed {seed}",
        work={
            "case": case.as_work(),
            "seed": seed,
            "jobs_per_cluster": parameters.jobs_per_cluster,
            "clusters": parameters.clusters,
        },
    )


def _bandwidths(text: str) -> tuple[float, float]:
    """Return the least and the greatest bandwidth in the text; both are the same if it names one."""
    low, dash, high = text.partition("-")
    try:
        found = (float(low), float(high if dash else low))
    except ValueError:
        found = (0.0, 0.0)
    if not 0 < found[0] <= found[1] <= 100_000:
        raise ParameterError(
            f"minigrid, parameter bsbw: {text!r} will not do: write a bandwidth in Mbit/s above 0 and up to 100000, "
            "as 300, or two for bandwidths drawn between them, as 200-900"
        )
    return found


def _notes(data: MiniGridData) -> list[str]:
    parameters = data.parameters
    notes = [f"{data.count:,} runs of {parameters.clusters * parameters.jobs_per_cluster:,} jobs."]
    defaults = MiniGridParameters()
    if parameters.jobs_per_cluster < defaults.jobs_per_cluster:
        notes.append(
            f"Runs are shorter than the paper's {4 * defaults.jobs_per_cluster:,} jobs: the first ones, which meet "
            "an empty grid, weigh more, and means are lower. Verdicts are those of a first look."
        )
    return [*notes, *duels.notes(data)]
