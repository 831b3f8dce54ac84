"""The claims on WASE on made-up results: each holds where the pattern is there, and not where it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.study.frame.claims import PaperClaim
from koala.study.frame.experiment import Conclusion, FinishedUnit
from koala_papers.wase.data import AFFINITY as MORE_SEEDS
from koala_papers.wase.data import BOUND, WaseData
from koala_papers.wase.spawning import NEAR
from koala_papers.wase.study import WaseStudy, claims_on
from koala_papers.wase.trials import ALL, FAR, GREEDY, GREEDY_SCAN, SOFT, WASE, WHOLE, Trial
from wase.samples import PARAMETERS, PATTERN, SEEDS, Fails, paper_fails, results


def concluded(finished: list[FinishedUnit]) -> Conclusion:
    return WaseStudy().conclude(PARAMETERS, finished)


def claims(finished: list[FinishedUnit]) -> dict[str, PaperClaim]:
    """Without the numbers and figures of a whole conclusion, which take longer."""
    data, *others = (WaseData(PARAMETERS, finished, bands) for bands in PARAMETERS.bands)
    return {claim.id: claim for claim in claims_on(data, others)}


def changed(method: str, place: int, value: float) -> dict[str, list[float]]:
    """The pattern with one number of one method changed."""
    pattern = {name: list(values) for name, values in PATTERN.items()}
    pattern[method][place] = value
    return pattern


def test_all_claims_hold_where_everything_is_as_they_say() -> None:
    found = {claim.id: claim for claim in concluded(results()).claims}
    assert {name: claim.why for name, claim in found.items() if claim.verdict != "holds"} == {}
    on_trials = ["C22", "C23", "C24", "F8", "C25", "C25-tasks", "C26"]
    assert list(found) == [
        *on_trials,
        "C27",
        *(f"{name}-mean" for name in on_trials),
        *(f"T{number}" for number in range(1, 7)),
    ]
    assert found["C22-mean"].text.startswith("With ranges as limits of the mean size: Failures grow")
    assert found["C22"].evidence["seeds"] == SEEDS


HIT, AFFINITY, BETWEEN, CARRIED, TIME = range(5)


@pytest.mark.parametrize(
    ("name", "method", "place", "value"),
    [
        ("C24", GREEDY_SCAN, TIME, 0.0009),
        ("C25", WASE, HIT, 0.97),
        ("C25", GREEDY, HIT, 0.7),
        ("C25-tasks", GREEDY, HIT, 0.7),
        ("F8", WASE, HIT, 0.5),
        ("T1", WHOLE, HIT, 0.89),
        ("T2", FAR, AFFINITY, 1.3),
        ("T3", SOFT, CARRIED, 0.7),
        ("T4", ALL, CARRIED, 0.6),
        ("T5", NEAR, BETWEEN, 0.6),
    ],
)
def test_a_claim_does_not_hold_where_a_method_does_otherwise(
    name: str, method: str, place: int, value: float
) -> None:
    found = claims(results(changed(method, place, value)))
    assert found[name].verdict != "holds"


def never(_method: str, _tasks: int, _trial: Trial, _number: float) -> bool:
    return False


def all_alike(_method: str, _tasks: int, _trial: Trial, number: float) -> bool:
    return number < 0.2


def whole_too(method: str, tasks: int, trial: Trial, number: float) -> bool:
    return paper_fails(method, tasks, trial, number) or (method == WHOLE and number < 0.02)


@pytest.mark.parametrize(
    ("fails", "names"),
    [
        (never, {"C22", "C23", "C22-mean", "C23-mean"}),
        (all_alike, {"C22", "C23", "C22-mean", "C23-mean"}),
        (whole_too, {"T1"}),
    ],
)
def test_claims_on_failures_follow_the_failures(fails: Fails, names: set[str]) -> None:
    found = claims(results(fails=fails))
    assert {name for name, claim in found.items() if claim.verdict != "holds"} == names


def test_the_minimum_affinity_may_change_a_little_with_the_grid_but_not_much() -> None:
    slightly = claims(results(affinity_factor=lambda trial: 1.05 if trial.machines == 64 else 1.0))
    assert slightly["C26"].verdict == "holds"
    much = claims(results(affinity_factor=lambda trial: 1.5 if trial.machines == 64 else 1.0))
    assert much["C26"].verdict != "holds"
    assert all(comparison.interval.mean == pytest.approx(50, abs=2) for comparison in much["C26"].comparisons)
    # The graphs of few tasks have seeds of their own.
    assert all(comparison.interval.n == PARAMETERS.affinity_seeds for comparison in much["C26"].comparisons)


def test_without_more_seeds_the_affinity_is_judged_from_the_trials() -> None:
    finished = [each for each in results() if each.unit.work["kind"] != MORE_SEEDS]
    found = claims(finished)["C26"]
    assert found.verdict == "holds"
    assert all(comparison.interval.n == SEEDS for comparison in found.comparisons)


def test_affinities_are_compared_between_grids_only_for_applications_that_both_grids_took() -> None:
    def fails(method: str, _tasks: int, trial: Trial, _number: float) -> bool:
        return method == WASE and trial.machines == 32 and trial.mcr == 50.0

    def factor(trial: Trial) -> float:
        return 0.5 if trial.mcr == 50.0 else 1.0

    finished = [each for each in results(fails=fails, affinity_factor=factor) if each.unit.work["kind"] != MORE_SEEDS]
    assert claims(finished)["C26"].verdict == "holds"


def test_a_gap_to_the_bound_that_is_too_large_is_said() -> None:
    finished: list[FinishedUnit] = []
    for unit, result in results():
        if unit.work["kind"] == BOUND:
            rows = [{**row, "lan_hit": {**row["lan_hit"], "bound": 0.99}} for row in result["rows"]]
            finished.append(FinishedUnit(unit, {"rows": rows}))
        else:
            finished.append(FinishedUnit(unit, result))
    assert claims(finished)["T6"].verdict != "holds"


def test_without_what_goes_beyond_the_paper_only_its_own_claims_and_figures_are_left() -> None:
    parameters = msgspec.structs.replace(PARAMETERS, beyond=False)
    assert not [unit for unit in WaseStudy().units(parameters, 1, 1) if unit.work["kind"] == BOUND]
    finished = [each for each in results() if each.unit.work["kind"] != BOUND]
    for _, result in finished:
        for table in result.get("bands", {}).values():
            table["methods"] = {name: table["methods"][name] for name in (WASE, GREEDY, GREEDY_SCAN)}
    conclusion = WaseStudy().conclude(parameters, finished)
    assert not [claim.id for claim in conclusion.claims if claim.id.startswith("T")]
    names = [picture.name for picture in conclusion.figures]
    assert not [name for name in names if name.startswith("beyond")]
    assert "figure-11" in names
    (affinity,) = (picture for picture in conclusion.figures if picture.name == "figure-11")
    assert len(affinity.draw().axes) == 1


def test_without_seeds_for_the_bound_nothing_is_claimed_about_it() -> None:
    finished = [each for each in results() if each.unit.work["kind"] != BOUND]
    conclusion = concluded(finished)
    assert "T6" not in {claim.id for claim in conclusion.claims}
    assert "beyond-bound" not in {picture.name for picture in conclusion.figures}


def test_a_mean_is_over_the_trials_of_a_seed_and_its_interval_over_seeds() -> None:
    finished = results()
    data = WaseData(PARAMETERS, finished)
    of_seed: dict[int, list[float]] = {}
    for unit, result in finished:
        if unit.work["kind"] == "trials":
            hits = result["bands"]["each"]["methods"][WASE]["lan_hit"]
            of_seed.setdefault(unit.work["seed"], []).extend(hit for hit in hits if hit is not None)
    by_seed = data.by_seed(data.column(WASE, "lan_hit"))
    assert by_seed == {seed: pytest.approx(sum(hits) / len(hits)) for seed, hits in of_seed.items()}
    interval = data.interval(data.column(WASE, "lan_hit"))
    assert interval is not None
    assert interval.n == SEEDS


def test_a_difference_counts_only_trials_that_both_mapped() -> None:
    """WASE fails where the clusters are large, and there wase-whole has a lower ratio than anywhere else."""

    def fails(method: str, _tasks: int, trial: Trial, _number: float) -> bool:
        return method == WASE and trial.cluster_size == 1

    data = WaseData(PARAMETERS, results(fails=fails, spread=0.0))
    data.column(WHOLE, "lan_hit")[data.where(cluster_size=1)] = 0.1
    difference = data.difference(WHOLE, WASE, "lan_hit")
    assert difference is not None
    assert difference.mean == pytest.approx(0.02)


def test_every_figure_of_the_paper_is_drawn_and_the_numbers_are_json() -> None:
    conclusion = concluded(results())
    names = [picture.name for picture in conclusion.figures]
    assert names[:9] == [f"figure-{number:02}" for number in range(3, 12)]
    for picture in conclusion.figures:
        assert picture.draw().axes
    methods: dict[str, Any] = conclusion.results["methods"]
    assert methods[WASE]["lan_hit"]["all"]["mean"] == pytest.approx(0.9, abs=0.01)
    assert conclusion.results["trials"] == SEEDS * 2 * 3 * 2 * 2 * 4
    assert conclusion.results["other_bands"]["mean"]["trials"] == conclusion.results["trials"]
    (table,) = conclusion.tables
    assert table.heads[1:] == (
        "wase, limits of each cluster",
        "greedy, limits of each cluster",
        "wase, limits of the mean size",
        "greedy, limits of the mean size",
    )
    assert [row[0] for row in table.rows][:3] == ["failures", "LAN hit ratio over clusters", "the same over tasks"]
    assert all(len(row) == len(table.heads) for row in table.rows)
    assert "| 10 | 150 | 9, 1, 4 | 9, 1, 4 |" in conclusion.files["tables.md"]
