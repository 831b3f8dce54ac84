"""Looks at the data: when they come, what each may spend, when they stop, and that stopping early deceives nobody."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koala.study.frame.claims import ClaimVerdict, PaperClaim, above, below, judge, within
from koala.study.frame.experiment import Conclusion, Experiment, FinishedUnit, Parameters, Unit
from koala.study.frame.looks import Judged, judged, planned_looks, seen_at
from koala.study.frame.statistics import Interval, mean_interval
from koala.study.frame.whole_run import SeedRange, run_to_report


class Dice(Experiment[Parameters]):
    """Values around a mean with a spread of one, and the claim that the mean is above zero."""

    name = "dice"
    title = question = "Dice"
    repetitions = seeds_min = 8
    parameters_type = Parameters

    def __init__(self, mean: float, game: int = 0, wanted: tuple[float, float] = (0.0, 1e9)) -> None:
        self.mean = mean
        self.game = game
        self.wanted = wanted

    def units(self, parameters: Parameters, seed: int, repetitions: int) -> list[Unit]:
        return [Unit(label=str(each), work={"seed": each}) for each in range(seed, seed + repetitions)]

    def run(self, unit: Unit) -> dict[str, Any]:
        return {"value": random.Random(f"{self.game} {unit.work['seed']}").gauss(self.mean, 1.0)}

    def conclude(self, parameters: Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        interval = mean_interval([finished.result["value"] for finished in results])
        return Conclusion({}, [judge("D1", "It is above.", [within("value", interval, *self.wanted)])], [])

    def play(self, first: int, most: int, *, quick: bool = False) -> Judged:
        def results_of(seeds: int, _undecided: Sequence[PaperClaim]) -> list[FinishedUnit]:
            return [FinishedUnit(unit, self.run(unit)) for unit in self.units(Parameters(), 1, seeds)]

        return judged(self, Parameters(), planned_looks(first, most), results_of, quick=quick)


@pytest.mark.parametrize(
    ("first", "most", "seeds"),
    [(20, 20, [20]), (20, 80, [20, 40, 80]), (8, 20, [8, 16, 20]), (8, 7, [8])],
)
def test_looks_double_and_all_of_them_together_spend_the_whole_error(first: int, most: int, seeds: list[int]) -> None:
    looks = planned_looks(first, most)
    assert [look.seeds for look in looks] == seeds
    assert sum(look.error_share for look in looks) == pytest.approx(1.0)
    assert all(look.error_share > 0 for look in looks)


def test_a_single_look_judges_with_the_intervals_as_they_are() -> None:
    claim = judge("D1", "", [above("x", mean_interval([1.0, 2.0, 4.0]))])
    (seen,) = seen_at([claim], planned_looks(3, 3)[0])
    assert seen.comparisons[0].interval.low == pytest.approx(claim.comparisons[0].interval.low)


def test_each_of_several_looks_has_wider_intervals_and_facts_stay_facts() -> None:
    claim = judge("D1", "", [above("x", mean_interval([1.0, 2.0, 4.0])), below("y", Interval(1.0, 1.0, 1.0, 3), 2.0)])
    (seen,) = seen_at([claim], planned_looks(3, 12)[0])
    wide, fact = (each.interval for each in seen.comparisons)
    assert wide == pytest.approx(mean_interval([1.0, 2.0, 4.0], seen.confidence))
    assert wide.low < claim.comparisons[0].interval.low
    assert (fact.low, fact.high) == (1.0, 1.0)


def test_an_interval_with_a_confidence_of_its_own_keeps_its_part_of_the_error() -> None:
    claim = judge("D1", "", [above("the best of ten", mean_interval([1.0, 2.0, 4.0], 0.995))])
    look = planned_looks(3, 12)[0]
    (seen,) = seen_at([claim], look)
    assert 1 - seen.comparisons[0].interval.confidence == pytest.approx((1 - look.confidence) / 10)


def test_a_clear_case_is_decided_at_the_first_look_either_way() -> None:
    for mean, verdict in ((9.0, ClaimVerdict.HOLDS), (-9.0, ClaimVerdict.CONTRARY)):
        seen = Dice(mean).play(8, 64)
        assert seen.seeds == 8
        assert seen.stopped == "every claim is decided"
        assert seen.conclusion.claims[0].verdict is verdict


def test_a_case_that_is_near_takes_more_looks() -> None:
    seen = Dice(0.6).play(8, 64)
    assert len(seen.looks) > 1
    assert seen.conclusion.claims[0].verdict is ClaimVerdict.HOLDS


def test_a_run_stops_when_even_the_last_look_would_decide_nothing() -> None:
    # A spread of one cannot be within two hundredths with so few seeds, whatever its mean.
    seen = Dice(0.0, wanted=(-0.01, 0.01)).play(8, 16)
    claim = seen.conclusion.claims[0]
    assert seen.seeds < 16 or seen.stopped == "there were no more looks"
    assert claim.verdict is ClaimVerdict.UNDECIDED
    assert claim.more_seeds is None or claim.more_seeds > 8


def test_a_quick_look_and_one_with_few_seeds_decide_nothing() -> None:
    for seen in (Dice(-9.0).play(8, 8, quick=True), Dice(-9.0).play(4, 4)):
        assert seen.conclusion.claims[0].verdict is ClaimVerdict.UNDECIDED
        assert seen.conclusion.claims[0].leaning is ClaimVerdict.CONTRARY


def test_stopping_when_decided_is_wrong_no_more_often_than_one_look_may_be() -> None:
    """With the mean at the bound either verdict is wrong. Four looks at 95 % would be so in some 12 % of games."""
    games = 400
    wrong = sum(
        Dice(0.0, game).play(8, 64).conclusion.claims[0].verdict is not ClaimVerdict.UNDECIDED
        for game in range(games)
    )
    assert wrong / games < 0.05


class SeveralDice(Experiment[Parameters]):
    """Two dice that are wanted above zero, clearly and barely so, and one that is wanted where so few seeds cannot
    show it to be; further seeds go to those that are undecided."""

    name = "several-dice"
    title = question = "Several dice"
    repetitions = seeds_min = 8
    parameters_type = Parameters
    means = (9.0, 0.6)
    wanted = ((0.0, 1e9), (0.0, 1e9), (-0.001, 0.001))

    def units(self, parameters: Parameters, seed: int, repetitions: int) -> list[Unit]:
        return [self.unit(die, seed + number) for number in range(repetitions) for die in range(len(self.wanted))]

    def unit(self, die: int, seed: int) -> Unit:
        return Unit(label=f"{die}, seed {seed}", work={"die": die, "seed": seed})

    def more_units(
        self, parameters: Parameters, seed: int, done: Sequence[Unit], numbers: range, undecided: Sequence[PaperClaim]
    ) -> list[Unit]:
        dice = sorted(die for claim in undecided for die in claim.rests_on)
        return [*done, *(self.unit(die, seed + number) for number in numbers for die in dice)]

    def run(self, unit: Unit) -> dict[str, Any]:
        die, seed = unit.work["die"], unit.work["seed"]
        if die == 2:
            return {"value": 1.0 if seed % 2 else -1.0}
        return {"value": random.Random(f"{die} {seed}").gauss(self.means[die], 1.0)}

    def conclude(self, parameters: Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        values: dict[int, list[float]] = {}
        for unit, result in results:
            values.setdefault(unit.work["die"], []).append(result["value"])
        claims = [
            PaperClaim(
                id=f"D{die}",
                text="It is there.",
                comparisons=(within("value", mean_interval(found), *self.wanted[die]),),
                rests_on=frozenset({die}),
            )
            for die, found in values.items()
        ]
        return Conclusion({"rolls": Counter(unit.work["die"] for unit, _ in results)}, claims, [])


def test_a_run_stops_where_further_seeds_have_nothing_to_run() -> None:
    class Silent(Dice):
        def conclude(self, parameters: Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
            return Conclusion({}, [judge("D1", "Nothing shows it.", [])], [])

    def results_of(_seeds: int, _undecided: Sequence[PaperClaim]) -> list[FinishedUnit]:
        return []

    seen = judged(Silent(0.0), Parameters(), planned_looks(8, 64), results_of)
    assert (seen.seeds, seen.stopped) == (8, "there is nothing more to run")


def test_a_claim_that_no_seed_has_a_value_for_takes_no_more_seeds() -> None:
    class Empty(Dice):
        def conclude(self, parameters: Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
            nothing = Interval(0.0, -math.inf, math.inf, 0)
            return Conclusion({}, [judge("D1", "It is above.", [above("value", nothing)])], [])

    assert Empty(9.0).play(8, 64).seeds == 8


def test_of_two_claims_of_one_name_each_has_its_own_verdict() -> None:
    class Twice(Dice):
        def conclude(self, parameters: Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
            interval = mean_interval([finished.result["value"] for finished in results])
            clear = judge("D1", "It is above.", [above("value", interval)])
            return Conclusion({}, [clear, judge("D1", "It is there.", [within("value", interval, 8.99, 9.01)])], [])

    claims = Twice(9.0).play(8, 32).conclusion.claims
    assert [claim.text for claim in claims] == ["It is above.", "It is there."]
    assert claims[0].verdict is ClaimVerdict.HOLDS
    assert claims[1].verdict is not ClaimVerdict.HOLDS


def test_further_seeds_go_to_the_claims_that_they_may_decide_and_a_decided_one_stays(tmp_path: Path) -> None:
    seen = run_to_report(SeveralDice(), Parameters(), SeedRange(1, 8, 64), tmp_path, processes=1).seen
    clear, near, hopeless = seen.conclusion.claims
    assert [claim.verdict for claim in (clear, near, hopeless)] == ["holds", "holds", "undecided"]
    assert seen.conclusion.results["rolls"] == {0: 8, 1: seen.seeds, 2: 8}
    assert seen.seeds > 8
    assert (clear.confidence, near.confidence) == (seen.looks[0].confidence, seen.looks[-1].confidence)
