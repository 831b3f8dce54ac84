"""The findings of a study: paired differences, verdicts on its expectations, tables, figures and files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from koala.descriptions.study.form import ExpectationText, StudyMetric
from koala.study.comparison.matrix import StudyMatrix
from koala.study.comparison.runs import METRICS
from koala.study.comparison.tables import as_csv, as_parquet
from koala.study.frame.claims import Comparison, PaperClaim, above, below, judge, measured, within
from koala.study.frame.experiment import Conclusion, FinishedUnit, ReportTable
from koala.study.frame.figures import ReportFigure
from koala.study.frame.statistics import Interval, mean_interval

# A world is a grid with some jobs, by their labels.
World = tuple[str, str]
# At most this many worlds are drawn; the tables and files have all of them.
FIGURE_WORLDS_MAX = 24
# At most this many rows in a table on the page; the files beside it have all of them.
PAGE_ROWS_MAX = 200
# Equal values are near each other, even if both are zero.
ALIKE = 1e-9
# The difference when no seed has a value.
_NOTHING = Interval(0.0, -math.inf, math.inf, 0)

RUNS = "runs.csv"
DIFFERENCES = "differences.csv"
RUNS_PARQUET = "runs.parquet"


class StudyFindings:
    """The results of all runs, by policy, world and seed."""

    def __init__(self, matrix: StudyMatrix, results: Sequence[FinishedUnit]) -> None:
        self.matrix = matrix
        self.policies = [each.label for each in matrix.contenders]
        self.worlds: list[World] = [(grid.label, jobs.label) for grid, jobs in matrix.worlds]
        self.seeds = sorted({unit.work["seed"] for unit, _ in results})
        self._runs: dict[tuple[str, World], dict[int, dict[str, Any]]] = {}
        # The units are in this order, and two policies may differ only in their labels.
        cells = [(policy, world) for world in self.worlds for policy in self.policies]
        for index, (unit, result) in enumerate(results):
            self._runs.setdefault(cells[index % len(cells)], {})[unit.work["seed"]] = result

    # ------------------------------------------------------------------------------------- numbers

    @cached_property
    def void_seeds(self) -> dict[World, set[int]]:
        """The seeds that count for no policy in a world, since one policy's run was void."""
        return {
            world: {
                seed for policy in self.policies for seed, run in self._runs[policy, world].items() if run["void"]
            }
            for world in self.worlds
        }

    def values(self, policy: str, world: World, metric: StudyMetric) -> dict[int, float]:
        """Return one value for each seed that counts and has one."""
        void = self.void_seeds[world]
        found = {seed: run["metrics"][metric] for seed, run in self._runs[policy, world].items() if seed not in void}
        return {seed: value for seed, value in found.items() if value is not None}

    def interval(self, policy: str, world: World, metric: StudyMetric) -> Interval:
        """Return the mean over seeds."""
        values = self.values(policy, world, metric)
        return mean_interval(list(values.values())) if values else _NOTHING

    def difference(self, policy: str, other: str, world: World, metric: StudyMetric, times: float = 1.0) -> Interval:
        """Return the difference between ``policy`` and a multiple of ``other``, in the same seeds."""
        ours, theirs = self.values(policy, world, metric), self.values(other, world, metric)
        shared = sorted(ours.keys() & theirs.keys())
        return mean_interval([ours[seed] - times * theirs[seed] for seed in shared]) if shared else _NOTHING

    def change_percent(self, policy: str, world: World, metric: StudyMetric) -> Interval:
        """Return the difference from the baseline in percent of the baseline's mean; an empty interval if that is
        zero."""
        base = self.interval(self.matrix.baseline, world, metric)
        found = self.difference(policy, self.matrix.baseline, world, metric)
        if base.n == 0 or base.mean <= 0.0:
            return _NOTHING
        mean, low, high = (100.0 * value / base.mean for value in (found.mean, found.low, found.high))
        return Interval(mean, low, high, found.n, found.confidence)

    @property
    def others(self) -> list[str]:
        """The policies that are compared with the baseline."""
        return [policy for policy in self.policies if policy != self.matrix.baseline]

    def world_name(self, world: World) -> str:
        """Return what distinguishes a world from the others of the study."""
        several = (len(self.matrix.grids) > 1, len(self.matrix.jobs) > 1)
        return ", ".join(part for part, wanted in zip(world, several, strict=True) if wanted)

    # ------------------------------------------------------------------------------------- claims

    def claims(self) -> list[PaperClaim]:
        """Return the expectations with their measurements."""
        return [self._claim(index, each) for index, each in enumerate(self.matrix.expectations, 1)]

    def _claim(self, index: int, expected: ExpectationText) -> PaperClaim:
        worlds = [
            world
            for world in self.worlds
            if (expected.grids is None or world[0] in expected.grids)
            and (expected.workloads is None or world[1] in expected.workloads)
        ]
        comparisons = [each for world in worlds for each in self._comparisons(expected, world)]
        note = ""
        if isinstance(expected.bound, str) and len(worlds) == 1:
            ours, theirs = (
                self.interval(policy, worlds[0], expected.metric) for policy in (expected.policy, expected.bound)
            )
            unit = METRICS[expected.metric].unit
            note = f"{expected.policy} {measured(ours, unit)}, {expected.bound} {measured(theirs, unit)}."
        return judge(expected.name or f"E{index}", expected.text or _sentence(expected), comparisons, note=note)

    def _comparisons(self, expected: ExpectationText, world: World) -> list[Comparison]:
        words, unit = METRICS[expected.metric]
        name = self.world_name(world)
        where = f": {name}" if name else ""
        bound, policy = expected.bound, expected.policy
        share = (expected.percent or 0.0) / 100.0
        if not isinstance(bound, str):
            value = self.interval(policy, world, expected.metric)
            what = f"{policy}, {words}{where}"
            if expected.key == "near":
                room = abs(bound) * share
                return [within(what, value, bound - room, bound + room, unit=unit)]
            return [(below if expected.key == "below" else above)(what, value, bound, unit=unit)]

        def beside(times: float) -> tuple[str, Interval]:
            other = bound if times == 1.0 else f"{times:g} x {bound}"
            return f"{policy} - {other}, {words}{where}", self.difference(
                policy, bound, world, expected.metric, times
            )

        if expected.key == "near":
            low, high = beside(1.0 - share), beside(1.0 + share)
            return [above(*low, -ALIKE, unit=unit), below(*high, ALIKE, unit=unit)]
        if expected.key == "below":
            return [below(*beside(1.0 - share), unit=unit)]
        return [above(*beside(1.0 + share), unit=unit)]

    # ------------------------------------------------------------------------------------------ the conclusion

    def conclusion(self, figures: list[ReportFigure], *, parquet: bool) -> Conclusion:
        """Return the conclusion, with these figures, for the report."""
        runs = self._run_rows()
        files: dict[str, str | bytes] = {RUNS: as_csv(runs), DIFFERENCES: as_csv(self._difference_rows())}
        if parquet:
            files[RUNS_PARQUET] = as_parquet(runs)
        return Conclusion(self.as_json(), self.claims(), figures, self.notes(), files, self.tables())

    def as_json(self) -> dict[str, Any]:
        """Return every mean and every difference from the baseline, with their intervals."""
        worlds = []
        for world in self.worlds:
            policies = {}
            for policy in self.policies:
                policies[policy] = {
                    "outcomes": self._outcomes(policy, world),
                    "metrics": {m: self.interval(policy, world, m).as_json() for m in self.matrix.metrics},
                    "change_percent": {
                        m: self.change_percent(policy, world, m).as_json()
                        for m in self.matrix.metrics
                        if policy != self.matrix.baseline
                    },
                }
            worlds.append({"grid": world[0], "workload": world[1], "policies": policies})
        return {"baseline": self.matrix.baseline, "seeds": self.seeds, "worlds": worlds}

    def _outcomes(self, policy: str, world: World) -> dict[str, int]:
        outcomes: Counter[str] = Counter()
        for run in self._runs[policy, world].values():
            outcomes.update(run["outcomes"])
        return dict(sorted(outcomes.items()))

    def notes(self) -> list[str]:
        """Return what a reader must know about the runs."""
        notes = []
        left = {
            f"{policy} ({', '.join(world)})": sum(
                run["jobs"] - run["outcomes"].get("done", 0) for run in runs.values()
            )
            for (policy, world), runs in self._runs.items()
        }
        behind = [f"{count:,} under {who}" for who, count in left.items() if count]
        notes.append(
            f"Jobs that were not done: {_few(behind)}; the times are over those that were."
            if behind
            else "Every job of every run was done."
        )
        void = [f"{len(seeds)} with {', '.join(world)}" for world, seeds in self.void_seeds.items() if seeds]
        if void:
            notes.append(f"Seeds left out, since the sites' own users exceeded their band in a run: {_few(void)}.")
        too_large = {
            world: max(r["too_large"] for r in self._runs[self.policies[0], world].values()) for world in self.worlds
        }
        large = [f"up to {count:,} a seed with {', '.join(world)}" for world, count in too_large.items() if count]
        if large:
            notes.append(f"Jobs left out, since they are too large for the grid: {_few(large)}.")
        said = Counter(
            note for runs in self._runs.values() for run in runs.values() for note in dict.fromkeys(run["notes"])
        )
        notes += [f"In {count:,} runs: {note}." for note, count in said.most_common(3)]
        fixed = [world for world in self.worlds if self._is_fixed(world)]
        if fixed and len(self.seeds) > 1:
            names = _few([", ".join(world) for world in fixed])
            notes.append(
                f"The same under every seed, so that intervals have no width: {names}. With jobs: in its entry each "
                "seed runs a part of a trace."
            )
        return notes

    def _is_fixed(self, world: World) -> bool:
        hashes = {run["log_sha256"] for run in self._runs[self.policies[0], world].values()}
        return len(hashes) == 1 and None not in hashes

    # ------------------------------------------------------------------------------------- tables

    def tables(self) -> list[ReportTable]:
        """Return means, and differences from the baseline, for the page."""
        metrics = self.matrix.metrics
        baseline = self.matrix.baseline
        heads = ("grid", "workload", "policy", *(METRICS[metric].words for metric in metrics))
        means = [
            (*world, policy, *(measured(self.interval(policy, world, m), METRICS[m].unit) for m in metrics))
            for world in self.worlds
            for policy in self.policies
        ]
        changes = [
            (*world, policy, *(measured(self.change_percent(policy, world, m), "%") for m in metrics))
            for world in self.worlds
            for policy in self.others
        ]
        found = [
            ReportTable(
                "Means", self._caption("Means over seeds with 95 % confidence intervals", means), heads, means
            )
        ]
        if changes:
            caption = f"Paired differences from {baseline} in percent of its mean, with 95 % confidence intervals"
            found.append(ReportTable(f"Changes from {baseline}", self._caption(caption, changes), heads, changes))
        return [table._replace(rows=table.rows[:PAGE_ROWS_MAX]) for table in found]

    def _caption(self, text: str, rows: Sequence[object]) -> str:
        if len(rows) <= PAGE_ROWS_MAX:
            return f"{text}."
        return f"{text}; the first {PAGE_ROWS_MAX} of {len(rows):,} rows, all are in {DIFFERENCES} and report.json."

    def _run_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "policy": policy,
                "grid": world[0],
                "workload": world[1],
                "seed": seed,
                "jobs": run["jobs"],
                "done": run["outcomes"].get("done", 0),
                "void": run["void"],
                **run["metrics"],
                "log_sha256": run["log_sha256"],
            }
            for (policy, world), runs in self._runs.items()
            for seed, run in sorted(runs.items())
        ]

    def _difference_rows(self) -> list[dict[str, Any]]:
        rows = []
        for world in self.worlds:
            for policy in self.others:
                for metric in StudyMetric:
                    found = self.difference(policy, self.matrix.baseline, world, metric)
                    rows.append(
                        {
                            "grid": world[0],
                            "workload": world[1],
                            "policy": policy,
                            "baseline": self.matrix.baseline,
                            "metric": str(metric),
                            "unit": METRICS[metric].unit,
                            **found.as_json(),
                            "change_percent": self.change_percent(policy, world, metric).as_json()["mean"],
                        }
                    )
        return rows

    def figure_note(self) -> str:
        """Return which worlds the figures omit, if any."""
        count = len(self.worlds)
        return f" The first {FIGURE_WORLDS_MAX} of {count:,} are drawn." if count > FIGURE_WORLDS_MAX else ""


def _sentence(expected: ExpectationText) -> str:
    """Return an expectation in words."""
    words = METRICS[expected.metric].words
    unit = METRICS[expected.metric].unit
    other = f"{expected.bound}'s" if isinstance(expected.bound, str) else f"{expected.bound:g} {unit}".strip()
    if expected.key == "near":
        return f"{expected.policy}'s {words} is within {expected.percent:g} % of {other}."
    than = "lower" if expected.key == "below" else "higher"
    by = f" by at least {expected.percent:g} %" if expected.percent else ""
    return f"{expected.policy}'s {words} is {than} than {other}{by}."


def _few(parts: Sequence[str], count: int = 4) -> str:
    more = f"; and {len(parts) - count} more" if len(parts) > count else ""
    return "; ".join(parts[:count]) + more
