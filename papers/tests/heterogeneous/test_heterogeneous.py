"""The experiment on unequal links: its worlds are as documented, pairs are fair, and verdicts follow the numbers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from koala.descriptions.workload.form import RequestKind
from koala.model.grid import Grid
from koala.simulator import simulate
from koala.simulator.examples import example_grid
from koala.simulator.world.links import LinkTable
from koala.study.frame.experiment import FinishedUnit, ParameterError, Unit, parameters_from
from koala_papers.catalogue import find
from koala_papers.heterogeneous.findings import HeterogeneousFindings
from koala_papers.heterogeneous.study import Heterogeneous, HeterogeneousParameters
from koala_papers.heterogeneous.worlds import (
    CASES,
    DRAWN_FACTOR_MAX,
    GRID,
    NEAR,
    grid_of,
    island_of,
    workload_of,
)

Links = dict[frozenset[str], tuple[float, float]]


def links_of(grid: Grid) -> Links:
    """Bandwidth and latency of every pair of sites, as the simulator has them."""
    table = LinkTable(grid)
    names = [site.name for site in grid.sites]
    found = {}
    for one, other in combinations(names, 2):
        link = table.between(one, other)
        found[frozenset((one, other))] = (link.bytes_per_s, link.latency_s)
    return found


# ------------------------------------------------------------------------------------- the worlds


def test_the_shipped_grid_is_the_case_with_links_four_times_worse() -> None:
    assert links_of(grid_of(CASES["islands-4"], 1)) == links_of(example_grid(GRID))


def test_within_an_island_links_are_near_and_between_them_worse_by_the_contrast() -> None:
    grid = grid_of(CASES["islands-8"], 1)
    fast = (NEAR.bandwidth_mbit_s * 125_000.0, NEAR.latency_s)
    for index, one in enumerate(grid.sites):
        for second in range(index + 1, len(grid.sites)):
            link = links_of(grid)[frozenset((one.name, grid.sites[second].name))]
            if island_of(index) == island_of(second):
                assert link == fast
            else:
                assert link == pytest.approx((fast[0] / 8, fast[1] * 8))


def test_the_islands_are_of_the_same_size() -> None:
    sizes: dict[int, list[int]] = {0: [], 1: []}
    for index, site in enumerate(example_grid(GRID).sites):
        sizes[island_of(index)].append(site.processors)
    assert sizes[0] == sizes[1]


def test_drawn_links_follow_from_the_seed_and_stay_within_their_bounds() -> None:
    one, again, other = (links_of(grid_of(CASES["random"], seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    for bytes_per_s, latency_s in one.values():
        assert 1 / DRAWN_FACTOR_MAX <= bytes_per_s / (NEAR.bandwidth_mbit_s * 125_000.0) <= DRAWN_FACTOR_MAX
        assert 1 / DRAWN_FACTOR_MAX <= latency_s / NEAR.latency_s <= DRAWN_FACTOR_MAX


@pytest.mark.parametrize("name", CASES)
def test_all_policies_of_a_case_meet_the_same_jobs(name: str) -> None:
    case = CASES[name]
    grid = grid_of(case, 3)
    by_kind = [
        [
            (arrival.at_s, arrival.request.processors, *arrival[2:])
            for arrival in workload_of(case, kind, 30, 100.0).arrivals(grid, 3)
        ]
        for kind in dict.fromkeys(case.policies.values())
    ]
    assert len(by_kind) == 2
    assert by_kind[0] == by_kind[1]


def test_the_communicating_jobs_with_files_differ_in_nothing_but_their_communication() -> None:
    plain, communicating = (
        list(workload_of(CASES[name], RequestKind.FLEXIBLE, 20, 100.0).arrivals(example_grid(GRID), 1))
        for name in ("input", "input-communicating")
    )
    assert [arrival[:3] for arrival in plain] == [arrival[:3] for arrival in communicating]
    assert {arrival.per_extra_cluster for arrival in plain} == {0.0}
    assert min(arrival.per_extra_cluster for arrival in communicating) > 0.0


# ------------------------------------------------------------------------------------- the runs


def test_the_experiment_is_found_by_its_name() -> None:
    assert isinstance(find("heterogeneous"), Heterogeneous)


def test_a_unit_measures_what_koala_simulate_measures() -> None:
    experiment = Heterogeneous()
    (unit,) = [
        each for each in experiment.units(HeterogeneousParameters(jobs=25), 4, 1) if each.work["case"] == "islands-4"
    ]
    policies = experiment.run(unit)["policies"]
    assert list(policies) == ["CM", "NCM", "FCM", "NFCM"]
    workload = workload_of(CASES["islands-4"], RequestKind.NON_FIXED, 25, 100.0)
    result = simulate(example_grid(GRID), workload, policy="NCM", seed=4)
    rows = result.rows()
    assert policies["NCM"]["means"]["response_s"] == pytest.approx(sum(row.response_s or 0.0 for row in rows) / 25)
    assert policies["NCM"]["outcomes"]["done"] == 25
    assert 0.0 <= policies["NCM"]["means"]["apart_share"] <= 1.0


def test_with_equal_links_the_logs_of_aware_and_plain_policies_are_the_same_decisions() -> None:
    experiment = Heterogeneous()
    unit = next(
        each for each in experiment.units(HeterogeneousParameters(jobs=60), 1, 1) if each.work["case"] == "equal"
    )
    policies = experiment.run(unit)["policies"]
    for aware, plain in (("NCM", "CM"), ("NFCM", "FCM")):
        assert policies[aware]["means"] == policies[plain]["means"]


def test_a_parameter_out_of_range_is_refused() -> None:
    with pytest.raises(ParameterError, match="jobs"):
        parameters_from(Heterogeneous(), {"jobs": "0"})


# ------------------------------------------------------------------------------------- the verdicts


def results_of(response_s: dict[str, dict[str, float]], seeds: int = 20) -> list[FinishedUnit]:
    """Runs with these mean response times, a little different from seed to seed, the same for all policies."""
    finished = []
    for seed in range(seeds):
        for case, by_policy in response_s.items():
            policies: dict[str, Any] = {}
            for policy, value in by_policy.items():
                names = ("response_s", "execution_s", "wait_s", "queue_s", "overhead_s", "clusters", "apart_share")
                policies[policy] = {
                    "outcomes": {"done": 10},
                    "means": dict.fromkeys(names, value * (1 + 0.01 * seed)),
                    "utilisation": 0.5,
                }
            finished.append(FinishedUnit(Unit(label="x", work={"case": case, "seed": seed}), {"policies": policies}))
    return finished


NETWORK = {"CM": 200.0, "NCM": 200.0, "FCM": 150.0, "NFCM": 150.0}
FILES = {"CF": 300.0, "FCM": 250.0, "FCF": 200.0}


def numbers(**changes: dict[str, float]) -> dict[str, dict[str, float]]:
    """Response times with which every claim holds, but for these changes."""
    gains = {"equal": 0.0, "islands-2": 0.1, "islands-4": 0.2, "islands-8": 0.3, "random": 0.1}
    by_case = {
        case: {name: value * (1 - gain * name.startswith("N")) for name, value in NETWORK.items()}
        for case, gain in gains.items()
    }
    return {**by_case, "input": FILES, "input-communicating": FILES, **changes}


def verdicts(response_s: dict[str, dict[str, float]]) -> dict[str, bool]:
    return {claim.id: (claim.verdict == "holds") for claim in HeterogeneousFindings(results_of(response_s)).claims()}


def test_every_claim_can_hold() -> None:
    assert verdicts(numbers()) == {f"H{number}": True for number in range(1, 10)}


@pytest.mark.parametrize(
    ("case", "values", "failing"),
    [
        ("islands-4", {**NETWORK, "NFCM": 100.0}, {"H1", "H6"}),
        ("islands-4", {**NETWORK, "NCM": 150.0, "NFCM": 151.0}, {"H2", "H6"}),
        ("random", {**NETWORK, "NCM": 201.0, "NFCM": 100.0}, {"H3"}),
        ("equal", {**NETWORK, "NCM": 199.999}, {"H5"}),
        ("input", {**FILES, "FCF": 260.0}, {"H7", "H8"}),
        ("input-communicating", {**FILES, "FCF": 299.0}, {"H9"}),
    ],
)
def test_a_claim_fails_where_the_numbers_say_otherwise(
    case: str, values: dict[str, float], failing: set[str]
) -> None:
    assert {name for name, holds in verdicts(numbers(**{case: values})).items() if not holds} == failing


def test_the_change_is_told_with_its_sign() -> None:
    claims = {claim.id: claim for claim in HeterogeneousFindings(results_of(numbers())).claims()}
    assert "-20 %" in claims["H1"].why.replace("-20.0", "-20")
    assert claims["H1"].evidence["change_percent"]["mean"] == pytest.approx(-20.0)


def test_jobs_that_were_left_behind_are_told() -> None:
    results = results_of(numbers(), seeds=2)
    assert HeterogeneousFindings(results).notes() == ["Every job of every run was done."]
    results[0].result["policies"]["CM"]["outcomes"]["unfinished"] = 3
    assert "3 under CM (equal links)" in HeterogeneousFindings(results).notes()[0]


def test_every_figure_can_be_drawn() -> None:
    figures = HeterogeneousFindings(results_of(numbers(), seeds=3)).figures()
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.draw().axes
