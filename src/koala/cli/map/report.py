"""The output of ``koala map``: a mapping as a table and as JSON, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from koala.cli.terminal.output import console, counted, print_json

if TYPE_CHECKING:
    from koala.mapping.clustering.catalogue import Clustering
    from koala.mapping.placing.optimal import Optimised
    from koala.mapping.result import MappingMeasures, NoPlace, TaskMapping
    from koala.model.dendrogram import Dendrogram
    from koala.model.task_graph import TaskGraph

# The distance of a task from the home of its cluster: in it, in the same MAN, in the same WAN, or beyond.
DISTANCES = ("lan", "man", "wan", "beyond")
_FAR = ("at home", "in the MAN", "in the WAN", "beyond")


def print_failure(
    answer: NoPlace,
    graph: TaskGraph,
    clusters: Sequence[Sequence[int]],
    optimum: Optimised | None,
    *,
    as_json: bool,
) -> None:
    """Print which cluster or task found no place, and what was missing."""
    if as_json:
        print_json(
            {
                "failed": True,
                "reason": answer.for_user(),
                "clusters": _by_name(graph, clusters),
                **msgspec.to_builtins(answer),
                "missing": answer.missing,
                "optimum": _optimum(optimum),
            }
        )
        return
    from rich.text import Text

    certain = " It is certain that no mapping exists." if optimum is not None and optimum.bound is None else ""
    console().print(Text(f"Not mapped by {answer.method}: {answer.for_user()}.{certain}"))


def _optimum(optimum: Optimised | None) -> dict[str, Any] | None:
    if optimum is None:
        return None
    return {"status": optimum.status, "value": optimum.value, "bound": optimum.bound}


def print_mapping(
    mapping: TaskMapping,
    graph: TaskGraph,
    dendrogram: Dendrogram,
    clustering: Clustering | None,
    optimum: Optimised | None,
    *,
    as_json: bool,
) -> None:
    """Print every task with its machine, and the quality of the mapping."""
    from koala.mapping.result import measured

    measures = measured(mapping, graph, dendrogram)
    if as_json:
        print_json({**_document(mapping, graph, dendrogram, measures, clustering), "optimum": _optimum(optimum)})
        return
    _print_table(mapping, graph, dendrogram)
    _print_summary(mapping, graph, dendrogram, measures, clustering)
    if optimum is not None:
        console().print(_about_optimum(optimum), soft_wrap=True)


def _about_optimum(optimum: Optimised) -> str:
    if optimum.gap == 0:
        return "Optimisation has ended: no mapping is better."
    return f"Time was up: this one reaches {optimum.value:.4g}, and no mapping exceeds {optimum.bound:.4g}."


def _document(
    mapping: TaskMapping,
    graph: TaskGraph,
    dendrogram: Dendrogram,
    measures: MappingMeasures,
    clustering: Clustering | None,
) -> dict[str, Any]:
    flat = dendrogram.flat
    lan_names = flat.levels[0].names
    found = None
    if clustering is not None:
        found = {key: getattr(clustering, key) for key in ("method", "theta", "cost", "lp_bound")}
    return {
        "failed": False,
        "clusters": _by_name(graph, mapping.clusters),
        "mapping": mapping.by_name(graph, dendrogram),
        "lan_hit_ratio": measures.lan_hit_ratio,
        "mean_affinity": measures.affinity_mean,
        "min_affinity": measures.affinity_min,
        "inter_lan_share": measures.inter_lan_share,
        "distances": dict(zip(DISTANCES, measures.distances, strict=True)),
        "whole_share": measures.whole_share,
        "homes": [lan_names[home] for home in mapping.homes],
        "lans": {
            name: lan_names[flat.machine_lan[machine]]
            for name, machine in zip(graph.names, mapping.machines, strict=True)
        },
        "affinities": dict(zip(graph.names, mapping.affinities, strict=True)),
        "method": mapping.method,
        "scarce": mapping.scarce,
        "clustering": found,
    }


def _by_name(graph: TaskGraph, clusters: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[graph.names[task] for task in cluster] for cluster in clusters]


def _print_table(mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram) -> None:
    from rich.table import Table
    from rich.text import Text

    flat = dendrogram.flat
    table = Table(box=None, pad_edge=False)
    for column, justify in (("cluster", "right"), ("task", "left"), ("needs", "right"), ("machine", "left")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("LAN")
    table.add_column("affinity", justify="right")
    table.add_column("distance")
    for number, (cluster, home) in enumerate(zip(mapping.clusters, mapping.homes, strict=True), start=1):
        for task in cluster:
            lan = flat.machine_lan[mapping.machines[task]]
            cells = (
                str(number),
                graph.names[task],
                f"{graph.mcr * graph.rcr[task]:g}",
                flat.machine_names[mapping.machines[task]],
                flat.levels[0].names[lan],
                f"{mapping.affinities[task]:.2f}",
                _FAR[flat.distance(home, lan)],
            )
            table.add_row(*map(Text, cells))
    console().print(table)


def _print_summary(
    mapping: TaskMapping,
    graph: TaskGraph,
    dendrogram: Dendrogram,
    measures: MappingMeasures,
    clustering: Clustering | None,
) -> None:
    from rich.text import Text

    tasks, clusters = counted(len(graph.names), "task"), counted(len(mapping.clusters), "cluster")
    machines = counted(len(set(mapping.machines)), "machine")
    lans = counted(len({dendrogram.flat.machine_lan[machine] for machine in mapping.machines}), "LAN")
    lines = [
        f"{mapping.method}: {tasks} in {clusters} on {machines} of {lans}",
        (
            f"LAN hit ratio {measures.lan_hit_ratio:.3f}, communication between LANs {measures.inter_lan_share:.1%}, "
            f"affinity {measures.affinity_mean:.2f} (at least {measures.affinity_min:.2f})"
        ),
    ]
    if mapping.scarce:
        lines.append("Machines were scarce: the tasks are packed tightly, so that all found a place.")
    if clustering is not None:
        bound = "" if clustering.lp_bound is None else f", and none can cost less than {clustering.lp_bound:.4g}"
        lines.append(
            f"Clusters by {clustering.method} at theta {clustering.theta:.4g}: they cost {clustering.cost:.4g}{bound}"
        )
    console().print(Text("\n".join(lines)), soft_wrap=True)
