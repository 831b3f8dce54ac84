"""The claims C1 to C8 on made-up results: each holds where the paper's pattern is there, and not where it is not."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from koala.study.frame.claims import PaperClaim
from koala.study.frame.experiment import Conclusion, FinishedUnit, Unit
from koala_papers.koala2006.study import Koala2006, Koala2006Parameters

# What the paper's figures would show: workload -> policy -> (queue, overhead, execution, clusters).
PATTERN: dict[str, dict[str, list[float]]] = {
    "W1": {"WF": [6, 60, 240, 2.6], "CM": [5, 50, 200, 1.5], "FCM": [4, 30, 190, 1.4]},
    "W2": {"WF": [900, 70, 260, 2.9], "CM": [700, 60, 220, 1.8], "FCM": [200, 40, 210, 2.0]},
}
SEEDS = 20
TIMES = ("queue_s", "overhead_s", "execution_s", "clusters")

Change = Callable[[dict[str, dict[str, list[float]]]], None]


def results(pattern: dict[str, dict[str, list[float]]], spread: float = 0.01) -> list[FinishedUnit]:
    """Results of 20 seeds around the pattern."""
    rng = Random(2006)
    finished = []
    for seed in range(1, SEEDS + 1):
        for workload, by_policy in pattern.items():
            policies = {}
            load = 1.0 if workload == "W1" else 1.2
            for policy, numbers in by_policy.items():
                means = {
                    name: value * rng.uniform(1 - spread, 1 + spread)
                    for name, value in zip(TIMES, numbers, strict=True)
                }
                means["wait_s"] = means["queue_s"] + means["overhead_s"]
                means["response_s"] = means["wait_s"] + means["execution_s"]
                policies[policy] = {
                    "means": means,
                    "outcomes": {"done": 10},
                    "clusters": {"1": 4, "2": 6},
                    "overhead_by_components": {
                        str(count): [20.0 * count * load * rng.uniform(0.98, 1.02), 2] for count in (1, 2, 3)
                    },
                    "execution_by_clusters": {"heat/36/1": [440.0, 2], "heat/36/2": [308.0, 1]},
                    "utilisation": {"ours": 0.4, "others": 0.17},
                    "makespan_s": 1000.0,
                    "log_sha256": "",
                }
            work = {"workload": workload, "seed": seed, "jobs": 10, "applications": {}}
            finished.append(
                FinishedUnit(
                    Unit(label=f"{workload}, seed {seed}", work=work),
                    {"seed_used": seed, "void_runs": int(seed == 3), "policies": policies},
                )
            )
    return finished


def concluded(change: Change | None = None, **how: Any) -> Conclusion:
    pattern = {
        workload: {policy: list(numbers) for policy, numbers in by.items()} for workload, by in PATTERN.items()
    }
    if change is not None:
        change(pattern)
    return Koala2006().conclude(Koala2006Parameters(), results(pattern, **how))


def by_id(conclusion: Conclusion) -> dict[str, PaperClaim]:
    return {claim.id: claim for claim in conclusion.claims}


def test_every_claim_holds_where_the_results_are_as_the_paper_says() -> None:
    conclusion = concluded()
    assert [(claim.id, claim.verdict) for claim in conclusion.claims] == [(f"C{n}", "holds") for n in range(1, 9)], [
        claim.why for claim in conclusion.claims
    ]


def swapped(workload: str, first: str, second: str, column: int) -> Change:
    def change(pattern: dict[str, dict[str, list[float]]]) -> None:
        one, other = pattern[workload][first], pattern[workload][second]
        one[column], other[column] = other[column], one[column]

    return change


def put(workload: str, policy: str, column: int, value: float) -> Change:
    def change(pattern: dict[str, dict[str, list[float]]]) -> None:
        pattern[workload][policy][column] = value

    return change


@pytest.mark.parametrize(
    ("claim", "change", "words"),
    [
        ("C1", put("W1", "FCM", 0, 300), "W1 mean response, FCM - CM"),
        ("C1", swapped("W2", "CM", "WF", 0), "W2 mean wait, CM - WF"),
        ("C2", put("W2", "CM", 2, 190), "CM mean execution, W2 - W1"),
        ("C3", put("W1", "FCM", 3, 2.8), "W1 clusters combined, FCM - WF"),
        ("C4", swapped("W2", "FCM", "CM", 3), "W2 clusters combined, FCM - CM"),
        ("C5", put("W1", "WF", 0, 90), "W1 queue - 0.1 * response, WF"),
        ("C5", put("W1", "WF", 0, 90), "W1 queue, CM - WF"),
        ("C5", put("W2", "FCM", 0, 500), "W2 queue, FCM - 0.5 * CM"),
        ("C6", put("W1", "CM", 0, 80), "W1 overhead - queue, CM"),
        ("C6", put("W2", "FCM", 0, 10), "W2 queue - overhead, FCM"),
    ],
)
def test_a_claim_falls_with_the_number_that_contradicts_it(claim: str, change: Change, words: str) -> None:
    fallen = by_id(concluded(change))[claim]
    assert fallen.verdict != "holds"
    assert "The contrary is shown" in fallen.why
    assert words in fallen.why


def test_noise_that_hides_a_difference_leaves_the_claim_undecided() -> None:
    claim = by_id(concluded(spread=0.6))["C4"]
    assert claim.verdict != "holds"
    assert claim.why.startswith("Undecided by W2 clusters combined, FCM - CM")


def test_the_results_have_what_the_figures_show_and_how_many_runs_were_void() -> None:
    conclusion = concluded()
    assert conclusion.results["void_runs_repeated"] == {"W1": 1, "W2": 1}
    assert "1 of W1 and 1 of W2" in conclusion.notes[0]
    assert conclusion.results["workloads"]["W2"]["FCM"]["queue_s"]["n"] == SEEDS
    assert conclusion.results["workloads"]["W1"]["CM"]["clusters_distribution_percent"]["2"]["mean"] == 60.0
    assert conclusion.results["execution_by_clusters_s"]["heat 36"]["2"]["mean"] == 308.0


def test_there_is_a_figure_for_every_one_of_the_paper() -> None:
    assert [picture.name for picture in concluded().figures] == [
        "response",
        "wait",
        "execution",
        "clusters-mean",
        "clusters-distribution",
        "queue",
        "overhead-by-components",
        "execution-by-clusters",
    ]
