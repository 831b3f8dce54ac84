"""Mapping applications of communicating tasks onto a wide-area grid: the WASE heuristics and extensions of them.

First ``cluster`` puts the tasks together that communicate most, then ``map_tasks`` maps the clusters onto machines.
Plain types and algorithms without I/O; text is read in ``koala.descriptions``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koala.mapping.clustering.catalogue import CLUSTERING_METHODS, Clustering, ClusterSizeError, cluster
    from koala.mapping.clustering.limits import feasible_limits, within_limits
    from koala.mapping.placing.catalogue import MappingOptions, map_tasks
    from koala.mapping.placing.optimal import Instance, Optimised, no_mapping_exists, optimised, value_of
    from koala.mapping.placing.soft_bandwidth import bandwidth_measured
    from koala.mapping.placing.spawning import left_by, map_spawned
    from koala.mapping.random_graphs import random_task_graph
    from koala.mapping.random_grids import GridShape, random_grid
    from koala.mapping.result import NoPlace, TaskMapping, measured, plurality_lan
    from koala.mapping.tiers.grids import TiersGrid, TiersShape
    from koala.mapping.tiers.loads import LoadModel, LoadSeries
    from koala.mapping.tiers.topology import MAN_SIDE_KM, NodePosition, TiersParameters, Topology

__all__ = [
    "CLUSTERING_METHODS",
    "MAN_SIDE_KM",
    "ClusterSizeError",
    "Clustering",
    "GridShape",
    "Instance",
    "LoadModel",
    "LoadSeries",
    "MappingOptions",
    "NoPlace",
    "NodePosition",
    "Optimised",
    "TaskMapping",
    "TiersGrid",
    "TiersParameters",
    "TiersShape",
    "Topology",
    "bandwidth_measured",
    "cluster",
    "feasible_limits",
    "left_by",
    "map_spawned",
    "map_tasks",
    "measured",
    "no_mapping_exists",
    "optimised",
    "plurality_lan",
    "random_grid",
    "random_task_graph",
    "value_of",
    "within_limits",
]

# What is named here is imported when it is first used.
_HOME = {
    "CLUSTERING_METHODS": "mapping.clustering.catalogue",
    "ClusterSizeError": "mapping.clustering.catalogue",
    "Clustering": "mapping.clustering.catalogue",
    "GridShape": "mapping.random_grids",
    "Instance": "mapping.placing.optimal",
    "LoadModel": "mapping.tiers.loads",
    "LoadSeries": "mapping.tiers.loads",
    "MAN_SIDE_KM": "mapping.tiers.topology",
    "MappingOptions": "mapping.placing.catalogue",
    "NoPlace": "mapping.result",
    "NodePosition": "mapping.tiers.topology",
    "Optimised": "mapping.placing.optimal",
    "TaskMapping": "mapping.result",
    "TiersGrid": "mapping.tiers.grids",
    "TiersParameters": "mapping.tiers.topology",
    "TiersShape": "mapping.tiers.grids",
    "Topology": "mapping.tiers.topology",
    "bandwidth_measured": "mapping.placing.soft_bandwidth",
    "cluster": "mapping.clustering.catalogue",
    "feasible_limits": "mapping.clustering.limits",
    "left_by": "mapping.placing.spawning",
    "map_spawned": "mapping.placing.spawning",
    "map_tasks": "mapping.placing.catalogue",
    "measured": "mapping.result",
    "no_mapping_exists": "mapping.placing.optimal",
    "optimised": "mapping.placing.optimal",
    "plurality_lan": "mapping.result",
    "random_grid": "mapping.random_grids",
    "random_task_graph": "mapping.random_graphs",
    "value_of": "mapping.placing.optimal",
    "within_limits": "mapping.clustering.limits",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and should complain of others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"koala.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
