"""The experiment of the paper on WASE: graphs of communicating tasks on random wide-area grids, and a real pipeline.

Here is what is run. One graph on all grids is in ``trials``, the pipeline in ``pipeline``, the best there
can be in ``bound``; what it all amounts to in ``claims``, ``beyond`` and ``figures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from koala.experiments.frame.experiment import Conclusion, Experiment, FinishedUnit, ParameterError, Unit
from koala.experiments.wase import beyond, beyond_figures, claims, figures
from koala.experiments.wase.bound import bound_tasks, run_bound
from koala.experiments.wase.data import BOUND, PIPELINE, TRIALS, WaseData
from koala.experiments.wase.pipeline import run_pipeline, tables_text
from koala.experiments.wase.trials import WaseParameters, run_trials
from koala.mapping.clustering.catalogue import METHODS
from koala.mapping.random_grids import SHAPE

METHOD = (
    (
        "A seed has 20 connected random graphs, four each of 8, 16, 32, 64 and 128 tasks, with 1.5 edges for each "
        "task and RCR and RQoC drawn evenly from 1 to 10. Each is clustered three times, theta being scanned until "
        "clusters have 1-3, 4-6 or 7-9 tasks on average, and mapped with four minimal requirements (MCR 25, 50, 75 "
        "and 100): 240 applications. Each goes onto 15 grids, of 32, 64, 128, 256 and 512 machines in LANs of 4, 8 "
        "and 16: 3,600 trials, by every method."
    ),
    (
        "Machines have 600 to 1300 MFlop/s, of which others use 10 to 50 %. Four LANs make a MAN and four MANs a "
        f"WAN; uplinks have {SHAPE.lan_uplink_mbit_s[0]:g} to {SHAPE.lan_uplink_mbit_s[1]:g} Mbit/s from a LAN, "
        f"{SHAPE.man_uplink_mbit_s[0]:g} to {SHAPE.man_uplink_mbit_s[1]:g} from a MAN and "
        f"{SHAPE.wan_uplink_mbit_s[0]:g} to {SHAPE.wan_uplink_mbit_s[1]:g} from a WAN. The user sits in a LAN drawn "
        "at random. What the paper leaves open here is ours: edges, loads, MANs, uplinks and the user's LAN."
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
        "before they give up. The bound is a mixed-integer program."
    ),
)

# What the result of a unit does not depend on: it is kept when these change.
_NOT_OF_TRIALS = frozenset(("tasks", "graphs", "bound_seeds", "bound_s"))
_NOT_OF_BOUNDS = frozenset(("tasks", "graphs", "bound_seeds", "affinity_wanted", "mbit_s_per_rqoc", "spawned_share"))


class WaseStudy(Experiment[WaseParameters]):
    """WASE, greedy and what goes beyond them, on the paper's applications and grids."""

    name = "wase"
    title = "WASE: mapping communicating tasks onto a wide-area grid"
    question = "Does mapping clusters of tasks onto LANs keep communication local, and what does it cost?"
    method = METHOD
    repetitions = 8
    seeds_max = 16
    # A seed is the paper's whole experiment of 3,600 trials: what 20 seeds do for smaller runs, fewer do here.
    seeds_min = 8
    quick_repetitions = 2
    extras = ("mapping",)
    parameters_type = WaseParameters

    def quick(self, parameters: WaseParameters) -> WaseParameters:
        return msgspec.structs.replace(
            parameters, graphs=1, tasks=(8, 16, 32), machines=(32, 128), bound_seeds=1, bound_s=0.2
        )

    def units(self, parameters: WaseParameters, seed: int, repetitions: int) -> list[Unit]:
        _check(parameters)
        of_trials = _settings(parameters, _NOT_OF_TRIALS)
        of_bounds = _settings(parameters, _NOT_OF_BOUNDS)
        units = [Unit(label="pipeline", work={"kind": PIPELINE, "clustering": parameters.clustering})]
        for each in range(seed, seed + repetitions):
            # The largest first, so that no core is left alone with one at the end of a seed.
            for tasks in sorted(parameters.tasks, reverse=True):
                for number in range(parameters.graphs):
                    work = {"kind": TRIALS, "seed": each, "tasks": tasks, "number": number, "parameters": of_trials}
                    units.append(Unit(label=f"{tasks} tasks, graph {number + 1}, seed {each}", work=work))
        for each in range(seed, seed + min(parameters.bound_seeds, repetitions)):
            for tasks in bound_tasks(parameters):
                work = {"kind": BOUND, "seed": each, "tasks": tasks, "parameters": of_bounds}
                units.append(Unit(label=f"the best for {tasks} tasks, seed {each}", work=work))
        return units

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        if work["kind"] == PIPELINE:
            return run_pipeline(work["clustering"])
        parameters = msgspec.convert(work["parameters"], WaseParameters)
        if work["kind"] == BOUND:
            return run_bound(parameters, work["seed"], work["tasks"])
        return run_trials(parameters, work["seed"], work["tasks"], work["number"])

    def conclude(self, parameters: WaseParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        data = WaseData(parameters, results)
        return Conclusion(
            {**data.as_json(), "beyond": beyond.as_json(data)},
            [*claims.claims(data), *beyond.claims(data)],
            [*figures.figures(data), *beyond_figures.figures(data)],
            _notes(data),
            {"tables.md": tables_text(data.pipeline)},
        )


def _settings(parameters: WaseParameters, without: frozenset[str]) -> dict[str, Any]:
    """The parameters as they are after a round trip through JSON, so that a kept unit is known again."""
    settings = msgspec.json.decode(msgspec.json.encode(parameters), type=dict[str, Any])
    return {name: value for name, value in settings.items() if name not in without}


def _check(parameters: WaseParameters) -> None:
    """Raise ParameterError for what no run could be made of."""
    if parameters.clustering not in METHODS:
        known = ", ".join(METHODS)
        raise ParameterError(f"wase, parameter clustering: there is no {parameters.clustering!r}; there are {known}")
    for name in ("tasks", "mcr", "cluster_sizes", "machines", "machines_per_lan"):
        values = getattr(parameters, name)
        if not values or list(values) != sorted(set(values)):
            raise ParameterError(f"wase, parameter {name}: {list(values)} will not do; write ascending numbers")
    for low, high in parameters.cluster_sizes:
        if not 1 <= low <= high:
            raise ParameterError(f"wase, parameter cluster_sizes: {low:g} to {high:g} is no range from 1 on")
    if parameters.load[0] > parameters.load[1]:
        raise ParameterError("wase, parameter load: write the smaller number first")


def _notes(data: WaseData) -> list[str]:
    parameters = data.parameters
    trials = parameters.applications * parameters.grids
    size = f"{parameters.applications} applications on {parameters.grids} grids"
    notes = [f"{len(data.seeds)} seeds of {size}: {trials:,} trials each, {data.count:,} in all."]
    missed = sum(not row["reached"] for row in data.clusters)
    if missed:
        notes.append(
            f"In {missed} of {len(data.clusters)} clusterings no theta gave the wanted size on average; the nearest "
            "was taken."
        )
    last = len(parameters.cluster_sizes) - 1
    largest = [row["largest"] for row in data.clusters if row["cluster_size"] == last]
    notes.append(
        f"Clusters are uneven: where they have {claims.band_in_words(data, last)} tasks on average, the largest "
        f"has {sum(largest) / len(largest):.0f}, on average over all graphs, and many have one."
    )
    return notes
