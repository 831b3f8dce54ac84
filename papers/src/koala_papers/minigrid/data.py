"""The measurements of the mini-grid study by case and seed, ready to be compared and drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from koala.study import CONFIDENCE, FinishedUnit, Interval, PaperClaim, mean_interval, paired_difference
from koala_papers.minigrid.cases import MiniGridCase, MiniGridParameters

TURNAROUND = "mean_turnaround_s"
# A run has a steady state if the time of its last quarter's jobs is below this multiple of its second quarter's.
STEADY_GROWTH = 1.5

BySeed = dict[int, float]


class MiniGridData:
    """All results. ``has`` tests if a case was run."""

    def __init__(self, parameters: MiniGridParameters, results: Sequence[FinishedUnit]) -> None:
        self.parameters = parameters
        self._runs: dict[MiniGridCase, dict[int, dict[str, Any]]] = {}
        self._read: set[MiniGridCase] = set()
        for unit, result in results:
            case = msgspec.convert(unit.work["case"], MiniGridCase)
            self._runs.setdefault(case, {})[unit.work["seed"]] = result
        self.seeds = sorted({unit.work["seed"] for unit, _ in results})
        self.count = len(results)

    def cases(self) -> list[MiniGridCase]:
        """Return every case that was run, in order."""
        return sorted(self._runs, key=lambda case: (case.wiring, case.pattern, case.bsbw_low, case.policy, case.name))

    def has(self, case: MiniGridCase) -> bool:
        """Return True if the case was run at all."""
        return case in self._runs

    def seeds_of(self, case: MiniGridCase) -> list[int]:
        """Return the seeds under which it was run."""
        return sorted(self._runs[case])

    def judged(self, judge: Callable[[MiniGridData], PaperClaim]) -> PaperClaim:
        """Return the claim, with the cases that were read to judge it."""
        self._read = set()
        claim = judge(self)
        return msgspec.structs.replace(claim, rests_on=frozenset(self._read))

    def values(self, case: MiniGridCase, name: str = TURNAROUND) -> BySeed:
        """Return one number of each run of the case."""
        self._read.add(case)
        return {seed: self._runs[case][seed][name] for seed in self.seeds_of(case)}

    def interval(self, case: MiniGridCase, name: str = TURNAROUND, seeds: Sequence[int] | None = None) -> Interval:
        """Return the mean over all its seeds, or over these."""
        values = self.values(case, name)
        return mean_interval([values[seed] for seed in (values if seeds is None else seeds)])

    def shared_seeds(self, cases: Iterable[MiniGridCase]) -> list[int]:
        """Return the seeds under which all of these were run, without cases that were never run.

        Side-by-side results use these seeds: seeds differ among themselves by more than policies may.
        """
        return sorted(set.intersection(*(set(self._runs[case]) for case in cases if case in self._runs)))

    def difference(self, one: MiniGridCase, other: MiniGridCase, confidence: float = CONFIDENCE) -> Interval:
        """Return the mean turnaround of ``one`` minus that of ``other``, in the seeds of both."""
        found = paired_difference(self.values(one), self.values(other), confidence)
        assert found is not None, f"{one.in_words()} and {other.in_words()} were run under the same seeds"
        return found

    def best(self, cases: Iterable[MiniGridCase], seeds: Sequence[int]) -> MiniGridCase:
        """Return the case with the least mean turnaround over these seeds, under which all of them were run."""
        return min(cases, key=lambda case: (math.fsum(self.values(case)[seed] for seed in seeds), case.name))

    def over(self, cases: Sequence[MiniGridCase]) -> BySeed:
        """Return the mean turnaround over several cases, by seed, where all were run."""
        seeds = self.shared_seeds(cases)
        return {seed: math.fsum(self.values(case)[seed] for case in cases) / len(cases) for seed in seeds}

    def spread(self, cases: Sequence[MiniGridCase]) -> BySeed:
        """Return the largest mean turnaround of several cases less the smallest, by seed."""
        found = {seed: [self.values(case)[seed] for case in cases] for seed in self.shared_seeds(cases)}
        return {seed: max(values) - min(values) for seed, values in found.items()}

    def greatest(self, cases: Iterable[MiniGridCase], name: str) -> float:
        """Return the greatest number of this name in any run of these cases."""
        return max(value for case in cases for value in self.values(case, name).values())

    def is_steady(self, case: MiniGridCase) -> bool:
        """Return True if the queue stops growing in every run of the case."""
        for run in self._runs[case].values():
            _, second, _, last = run["quarters_turnaround_s"]
            if last > STEADY_GROWTH * second:
                return False
        return True

    def as_json(self) -> dict[str, Any]:
        """Return every number of every case, with its interval."""
        return {
            "seeds": self.seeds,
            "runs": self.count,
            "cases": [
                {
                    **case.as_work(),
                    "steady": self.is_steady(case),
                    **{name: self.interval(case, name).as_json() for name in self._names(case)},
                }
                for case in self.cases()
            ],
        }

    def _names(self, case: MiniGridCase) -> list[str]:
        run = next(iter(self._runs[case].values()))
        return [name for name, value in run.items() if isinstance(value, int | float)]
