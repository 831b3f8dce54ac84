"""The experiment of the paper on WASE: graphs of communicating tasks on random wide-area grids, and a real pipeline.

This module defines the units. One graph on all grids is in ``trials``, the grids in ``worlds``, the pipeline in
``pipeline``, the optimum in ``bound``; ``claims``, ``beyond`` and ``figures`` evaluate the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

import msgspec

from koala.mapping import CLUSTERING_METHODS
from koala.study import Conclusion, FinishedUnit, PaperClaim, ParameterError, ReportTable, Unit, measured
from koala_papers.experiment import PaperExperiment
from koala_papers.wase import beyond, beyond_figures, claims, figures, world_figures
from koala_papers.wase.affinity import affinity_tasks, run_affinity
from koala_papers.wase.bound import bound_tasks, run_bound
from koala_papers.wase.data import AFFINITY, BOUND, PIPELINE, TRIALS, WaseData
from koala_papers.wase.parameters import BANDS, TOPOLOGIES, WaseParameters
from koala_papers.wase.pipeline import run_pipeline, tables_text
from koala_papers.wase.trials import GREEDY, WASE, run_trials

if TYPE_CHECKING:
    from koala_papers.wase.data import Column

METHOD = (
    (
        "A seed has 20 connected random graphs, four each of 8, 16, 32, 64 and 128 tasks, with 1.5 edges for each "
        "task and RCR and RQoC drawn evenly from 1 to 10. Each is clustered three times, for clusters of 1-3, 4-6 "
        "and 7-9 tasks, and mapped with four minimal requirements (MCR 25, 50, 75 and 100): 240 applications. Each "
        "goes onto 15 grids, of 32, 64, 128, 256 and 512 machines in LANs of 4, 8 and 16: 3,600 trials by a method."
    ),
    (
        "What is judged: the ranges are limits of each cluster, since the paper speaks of tasks per cluster. "
        "Correlation clustering is asked for such clusters on average, by scanning theta; what is too large is then "
        "divided, what is too small joined, and tasks move while that keeps more of the weight inside. The other "
        "reading, limits of the mean size alone, is judged beside it, under names that end in -mean."
    ),
    (
        "Grids are those of Tiers: one WAN of 10 nodes, MANs of 10 nodes around it, each linked with two of them, "
        "and LANs that are stars at a node of their MAN. How many LANs a MAN has is drawn for each grid from 2, 4 "
        "and 8. Links have 100 to 1000 Mbit/s inside a MAN and to its LANs, 10 to 155 from a MAN and 34 to 622 "
        "inside the WAN. The uplink of a LAN or MAN is the widest way up. The user sits in a LAN drawn at random."
    ),
    (
        "Machines have 600 to 1300 MFlop/s. What others use of a machine or a link changes over the day around a "
        "mean of its own, 10 to 50 %, by 10 points, autocorrelated as the series of the Network Weather Service are "
        "(Hurst exponent 0.7). Each graph is mapped at another time. What the paper leaves open here is ours: edges, "
        "loads, MANs, bandwidths and the user's LAN."
    ),
    (
        "Every method meets the same graphs, clusters and grids under a seed, and is compared trial by trial. A "
        "number is a mean over the trials of a seed, its interval Student's t at 95 % over seeds: trials of one seed "
        "share graphs and grids. Measures other than failures are of the mappings found, as in the paper; "
        "differences are of trials that both methods mapped."
    ),
    (
        "Of the methods, wase and greedy are the paper's. wase-whole takes the closest LAN into which a cluster can "
        "be packed, wase-far goes on for one that gives every task the affinity wanted, wase-soft for one whose "
        "links carry what the cluster exchanges, and wase-all for both; where they find no place, they pack tightly "
        "before they give up. The bound is a mixed-integer program. The change of the minimum affinity with the grid "
        "is looked at under 40 seeds for graphs of 8 and 16 tasks, since there it spreads most."
    ),
)

# Parameters without effect on a unit's result, which stays stored when they change.
_NOT_OF_TRIALS = frozenset(("tasks", "graphs", "bound_seeds", "bound_s", "affinity_seeds"))
_NOT_OF_AFFINITY = frozenset((*_NOT_OF_TRIALS - {"graphs"}, "beyond", "affinity_wanted", "mbit_s_per_rqoc"))
_NOT_OF_BOUNDS = frozenset(
    (*_NOT_OF_TRIALS - {"bound_s"}, "beyond", "affinity_wanted", "mbit_s_per_rqoc", "spawned_share")
)


class WaseStudy(PaperExperiment[WaseParameters]):
    """WASE, greedy and extensions, on the paper's applications and grids."""

    name = "wase"
    title = "WASE: mapping communicating tasks onto a wide-area grid"
    question = "Does mapping clusters of tasks onto LANs keep communication local, and what does it cost?"
    method = METHOD
    repetitions = 8
    seeds_max = 16
    # A seed is the paper's whole experiment of 3,600 trials: a few of these equal 20 seeds of smaller runs.
    seeds_min = 8
    quick_repetitions = 2
    parameters_type = WaseParameters

    def quick(self, parameters: WaseParameters) -> WaseParameters:
        return msgspec.structs.replace(
            parameters, graphs=1, tasks=(8, 16, 32), machines=(32, 128), bound_seeds=1, bound_s=0.2, affinity_seeds=2
        )

    def units(self, parameters: WaseParameters, seed: int, repetitions: int) -> list[Unit]:
        _check(parameters)
        of_trials = _settings(parameters, _NOT_OF_TRIALS)
        of_bounds = _settings(parameters, _NOT_OF_BOUNDS)
        of_affinity = _settings(parameters, _NOT_OF_AFFINITY)
        units = [Unit(label="pipeline", work={"kind": PIPELINE, "clustering": parameters.clustering})]
        for each in range(seed, seed + repetitions):
            # The largest first, so that no core is left alone with one at the end of a seed.
            for tasks in sorted(parameters.tasks, reverse=True):
                for number in range(parameters.graphs):
                    work = {"kind": TRIALS, "seed": each, "tasks": tasks, "number": number, "parameters": of_trials}
                    units.append(Unit(label=f"{tasks} tasks, graph {number + 1}, seed {each}", work=work))
        bound_seeds = min(parameters.bound_seeds, repetitions) if parameters.beyond else 0
        for each in range(seed, seed + bound_seeds):
            for tasks in bound_tasks(parameters):
                work = {"kind": BOUND, "seed": each, "tasks": tasks, "parameters": of_bounds}
                units.append(Unit(label=f"the best for {tasks} tasks, seed {each}", work=work))
        for each in range(seed, seed + parameters.affinity_seeds):
            for tasks in affinity_tasks(parameters):
                work = {"kind": AFFINITY, "seed": each, "tasks": tasks, "parameters": of_affinity}
                units.append(Unit(label=f"the affinity of {tasks} tasks, seed {each}", work=work))
        return units

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        if work["kind"] == PIPELINE:
            return run_pipeline(work["clustering"])
        parameters = msgspec.convert(work["parameters"], WaseParameters)
        if work["kind"] == BOUND:
            return run_bound(parameters, work["seed"], work["tasks"])
        if work["kind"] == AFFINITY:
            return run_affinity(parameters, work["seed"], work["tasks"])
        return run_trials(parameters, work["seed"], work["tasks"], work["number"])

    def conclude(self, parameters: WaseParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        data, *others = (WaseData(parameters, results, bands) for bands in parameters.bands)
        numbers = {
            **data.as_json(),
            "other_bands": {other.bands: other.as_json() for other in others},
            "beyond": beyond.as_json(data) if parameters.beyond else {},
            "pipeline": data.pipeline,
            "bounds": data.bounds,
        }
        return Conclusion(
            numbers,
            claims_on(data, others),
            [
                *figures.figures(data, others),
                *(beyond_figures.figures(data) if parameters.beyond else ()),
                *world_figures.figures(data),
            ],
            _notes(data, others),
            {"tables.md": tables_text(data.pipeline)},
            [_readings([data, *others])],
        )


def claims_on(data: WaseData, others: Sequence[WaseData]) -> list[PaperClaim]:
    """Return the paper's claims, also with the other readings of its ranges, and our own."""
    return [
        *claims.claims(data),
        *(claim for other in others for claim in claims.claims_read_otherwise(other)),
        *(beyond.claims(data) if data.parameters.beyond else ()),
    ]


def _settings(parameters: WaseParameters, without: frozenset[str]) -> dict[str, Any]:
    """Return the parameters after a round trip through JSON, so that a stored unit is found again."""
    settings = msgspec.json.decode(msgspec.json.encode(parameters), type=dict[str, Any])
    return {name: value for name, value in settings.items() if name not in without}


def _check(parameters: WaseParameters) -> None:
    """Raise ParameterError for parameters that allow no run."""
    if parameters.clustering not in CLUSTERING_METHODS:
        known = ", ".join(CLUSTERING_METHODS)
        raise ParameterError(f"wase, parameter clustering: there is no {parameters.clustering!r}; there are {known}")
    if parameters.topology not in TOPOLOGIES:
        known = ", ".join(TOPOLOGIES)
        raise ParameterError(f"wase, parameter topology: there is no {parameters.topology!r}; there are {known}")
    if parameters.bands not in (*permutations(BANDS), *permutations(BANDS, 1)):
        named = list(parameters.bands)
        raise ParameterError(f"wase, parameter bands: {named} will not do; write {', '.join(BANDS)} or both")
    for name in ("tasks", "mcr", "cluster_sizes", "machines", "machines_per_lan", "lans_per_man"):
        values = getattr(parameters, name)
        if not values or list(values) != sorted(set(values)):
            raise ParameterError(f"wase, parameter {name}: {list(values)} will not do; write ascending numbers")
    for low, high in parameters.cluster_sizes:
        if not 1 <= low <= high:
            raise ParameterError(f"wase, parameter cluster_sizes: {low:g} to {high:g} is no range from 1 on")
    if parameters.load[0] > parameters.load[1]:
        raise ParameterError("wase, parameter load: write the smaller number first")


def _notes(data: WaseData, others: Sequence[WaseData]) -> list[str]:
    parameters = data.parameters
    trials = parameters.applications * parameters.grids
    size = f"{parameters.applications} applications on {parameters.grids} grids"
    notes = [f"{len(data.seeds)} seeds of {size}: {trials:,} trials each, {data.count:,} in all."]
    if others:
        read = claims.BANDS_IN_WORDS[data.bands]
        notes.append(f"Figures that do not show both have ranges of cluster sizes as {read}.")
    last = len(parameters.cluster_sizes) - 1
    for each in (data, *others):
        missed = sum(not row["reached"] for row in each.clusters)
        if missed:
            notes.append(
                f"In {missed} of {len(each.clusters)} clusterings the wanted size, as "
                f"{claims.BANDS_IN_WORDS[each.bands]}, was not to be had; the nearest was taken."
            )
        largest = [row["largest"] for row in each.clusters if row["cluster_size"] == last]
        notes.append(
            f"With {claims.band_in_words(each, last)} tasks as {claims.BANDS_IN_WORDS[each.bands]}, the largest "
            f"cluster has {sum(largest) / len(largest):.0f}, on average over all graphs."
        )
    return notes


def _readings(readings: Sequence[WaseData]) -> ReportTable:
    """Return the paper's two methods by the reading of the ranges of cluster sizes."""
    columns = [(data, method) for data in readings for method in (WASE, GREEDY)]

    def row(name: str, unit: str, values: Callable[[WaseData, str], Column]) -> tuple[str, ...]:
        found = [data.interval(values(data, method)) for data, method in columns]
        return (name, *("" if interval is None else measured(interval, unit) for interval in found))

    def share(measure: str) -> Callable[[WaseData, str], Column]:
        return lambda data, method: 100.0 * data.column(method, measure)

    return ReportTable(
        "Ranges of cluster sizes read in two ways",
        "Means over seeds with 95 % confidence intervals; all but failures are of the mappings found.",
        ("", *(f"{method}, {claims.BANDS_IN_WORDS[data.bands]}" for data, method in columns)),
        [
            row("failures", "%", lambda data, method: 100.0 * data.failed(method)),
            row("LAN hit ratio over clusters", "%", share("lan_hit")),
            row("the same over tasks", "%", share("tasks_at_home")),
            row("tasks in that LAN or its MAN", "%", claims.near_home),
            row("minimum affinity", "", lambda data, method: data.column(method, "affinity_min")),
            row("communication between LANs", "%", share("inter_lan")),
            row("communication that links carry", "%", share("carried")),
        ],
    )
