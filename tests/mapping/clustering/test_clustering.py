"""The interface: methods by name, theta or a wanted size, and what comes out."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from koala.mapping.clustering.catalogue import CLUSTERING_METHODS, ClusterSizeError, UnknownMethodError, cluster
from koala.mapping.clustering.correlation import signed_graph
from koala.mapping.clustering.local_search import lp_search
from koala.mapping.clustering.lp import relaxed
from koala.mapping.libraries import MissingLibraryError, library
from koala.model.task_graph import TaskGraph
from tests.support.naive_clustering import random_graph

SPARSE = random_graph(tasks=32, edges=48, seed=1)
methods = pytest.mark.parametrize("method", CLUSTERING_METHODS)


@methods
@pytest.mark.parametrize("theta", [-0.5, 0.4])
def test_every_task_is_in_one_cluster_at_the_cost_given(method: str, theta: float) -> None:
    found = cluster(SPARSE, method, theta=theta)
    assert sorted(task for tasks in found.clusters for task in tasks) == list(range(32))
    assert found.clusters == tuple(sorted(tuple(sorted(tasks)) for tasks in found.clusters))
    label_of = {task: label for label, tasks in enumerate(found.clusters) for task in tasks}
    labels = [label_of[task] for task in range(32)]
    assert found.cost == pytest.approx(signed_graph(SPARSE, theta).cost(labels))
    assert (found.theta, found.method) == (theta, method)


@pytest.mark.parametrize("theta", [-0.5, 0.0, 0.4])
def test_the_bound_is_below_the_exact_cost_and_that_below_the_others(theta: float) -> None:
    by_method = {method: cluster(SPARSE, method, theta=theta) for method in CLUSTERING_METHODS}
    best = by_method["exact"]
    assert best.lp_bound is not None
    assert best.lp_bound == pytest.approx(by_method["region-growing"].lp_bound, abs=1e-5)
    assert best.lp_bound <= best.cost + 1e-6
    assert best.cost <= min(found.cost for found in by_method.values()) + 1e-6
    assert by_method["lp-search"].cost <= by_method["local-search"].cost + 1e-9
    assert by_method["lp-search"].lp_bound == pytest.approx(best.lp_bound, abs=1e-5)
    assert by_method["local-search"].lp_bound is None


def test_where_all_lengths_of_the_lp_are_0_or_1_lp_search_finds_the_best() -> None:
    tight = 0
    for seed in range(6):
        signed = signed_graph(random_graph(tasks=36, edges=50, seed=seed))
        relaxation = relaxed(signed)
        lengths = [relaxation.distances[one, other] for one, other, _ in signed.positive]
        if all(min(length, 1 - length) < 1e-6 for length in lengths):
            tight += 1
            found = signed.cost(lp_search(signed, relaxation, Random(seed)))
            assert found == pytest.approx(relaxation.bound, abs=1e-5)
    assert tight > 0


@methods
def test_the_same_arguments_give_the_same_clusters(method: str) -> None:
    assert cluster(SPARSE, method, seed=3) == cluster(SPARSE, method, seed=3)


def test_theta_is_0_where_nothing_is_wanted() -> None:
    assert cluster(SPARSE).theta == 0.0


@pytest.mark.parametrize("method", ["region-growing", "local-search"])
@pytest.mark.parametrize("wanted", [(1, 3), (4, 6), (7, 9)])
@pytest.mark.parametrize("tasks", [8, 32])
def test_theta_is_found_for_a_wanted_mean_size(method: str, wanted: tuple[float, float], tasks: int) -> None:
    graph = random_graph(tasks, edges=3 * tasks, seed=2)
    found = cluster(graph, method, cluster_size=wanted)
    assert wanted[0] <= tasks / len(found.clusters) == found.mean_size <= wanted[1]
    assert cluster(graph, method, theta=found.theta).clusters == found.clusters


def test_a_size_that_cannot_be_is_an_error_with_the_nearest() -> None:
    pair = TaskGraph.of(dict.fromkeys("abcd", 1.0), [("a", "b", 2.0)], mcr=1.0)
    with pytest.raises(ClusterSizeError) as caught:
        cluster(pair, "local-search", cluster_size=(3, 4))
    assert caught.value.nearest.clusters == ((0, 1), (2,), (3,))
    assert "comes nearest, with 1.33" in caught.value.for_user()


def test_a_graph_without_edges_has_clusters_of_one() -> None:
    alone = TaskGraph.of(dict.fromkeys("abc", 1.0), [], mcr=1.0)
    assert cluster(alone, "local-search", cluster_size=(1, 1)).clusters == ((0,), (1,), (2,))


def test_an_unknown_method_is_told_which_there_are() -> None:
    with pytest.raises(UnknownMethodError) as caught:
        cluster(SPARSE, "magic")
    assert all(method in caught.value.for_user() for method in CLUSTERING_METHODS)


def test_theta_and_a_size_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        cluster(SPARSE, theta=0.0, cluster_size=(1, 3))


@pytest.mark.parametrize("wanted", [(0, 3), (5, 4)])
def test_a_size_range_that_is_none_is_refused(wanted: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="cluster_size"):
        cluster(SPARSE, cluster_size=wanted)


def test_local_search_needs_no_library_of_the_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['numpy', 'scipy', 'highspy', 'networkx']))\n"
        "from koala.mapping.clustering.catalogue import cluster\n"
        "from koala.mapping.libraries import MissingLibraryError\n"
        "from koala.model.task_graph import TaskGraph\n"
        "graph = TaskGraph.of({'a': 1.0, 'b': 1.0}, [('a', 'b', 2.0)], mcr=1.0)\n"
        "assert cluster(graph, 'local-search').clusters == ((0, 1),)\n"
        "for method in ('region-growing', 'exact', 'lp-search'):\n"
        "    try:\n"
        "        cluster(graph, method)\n"
        "    except MissingLibraryError as error:\n"
        "        print(error.for_user())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("extra `mapping`") == 3


def test_without_its_library_a_method_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingLibraryError) as caught:
        library("networkx")
    assert "networkx" in caught.value.for_user()
    assert "mapping" in caught.value.for_user()
