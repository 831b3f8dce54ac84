"""Why FCM combines more clusters than CM only where CM has no place: the reason given with C4, as a property."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koala.policies.koala.cluster_minimization import cluster_minimization
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.study.frame.experiment import FinishedUnit, Unit
from koala_papers.koala2006.claims import claims
from koala_papers.koala2006.data import Koala2006Data


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.lists(st.integers(1, 24), min_size=1, max_size=4))
def test_with_the_same_idle_processors_fcm_never_combines_more_clusters_than_cm(
    idle: list[int], sizes: list[int]
) -> None:
    sizes = sorted(sizes, reverse=True)
    chosen, parts = [0] * len(sizes), [0] * len(idle)
    if cluster_minimization(idle, sizes, list(idle), chosen) >= 0:
        return
    assert flexible_cluster_minimization(idle, sum(sizes), 1, len(idle), parts) == 0
    assert sum(part > 0 for part in parts) <= len(set(chosen))


def test_the_clusters_of_each_size_are_means_over_jobs_and_are_told_with_the_claim() -> None:
    def run(by_clusters: dict[str, list[float]]) -> dict[str, object]:
        means = dict.fromkeys(("queue_s", "overhead_s", "wait_s", "execution_s", "response_s", "clusters"), 1.0)
        return {
            "means": means,
            "clusters": {"1": 1},
            "overhead_by_components": {"1": [1.0, 1]},
            "execution_by_clusters": by_clusters,
            "utilisation": {"ours": 0.5, "others": 0.2},
        }

    fixed = {"heat/36/1": [5.0, 1], "laplace/36/3": [9.0, 1], "heat/64/2": [5.0, 2]}
    flexible = {
        1: {"heat/36/1": [5.0, 2], "heat/64/2": [5.0, 1], "heat/64/4": [5.0, 1]},
        2: {"heat/36/1": [5.0, 2], "heat/64/4": [5.0, 2]},
    }
    results = [
        FinishedUnit(
            Unit(label="", work={"workload": workload, "seed": seed}),
            {"policies": {"WF": run(fixed), "CM": run(fixed), "FCM": run(flexible[seed])}, "void_runs": 0},
        )
        for seed in (1, 2)
        for workload in ("W1", "W2")
    ]
    data = Koala2006Data(results, ["W1", "W2"], ["WF", "CM", "FCM"])
    assert data.clusters_by_size("W2", "CM") == {36: {1: 2.0, 2: 2.0}, 64: {1: 2.0, 2: 2.0}}
    assert data.clusters_by_size("W2", "FCM") == {36: {1: 1.0, 2: 1.0}, 64: {1: 3.0, 2: 4.0}}
    reason = next(
        claim.why for claim in claims(data, {"low": 0.1, "similar": 0.1, "much_lower": 0.5}) if claim.id == "C4"
    )
    assert "-1.00 (-1.00 to -1.00) for 36 processors" in reason
    # The mean of 1 and 2, and its interval of 95%: a standard error of 0.5 times Student's 12.706.
    assert " 1.5 (-4.9 to 7.9) for 64 processors" in reason
