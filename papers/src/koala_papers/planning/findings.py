"""The findings of the planning study: paired comparisons with EASY, claims, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from koala.study import (
    Comparison,
    FinishedUnit,
    Interval,
    PaperClaim,
    ReportFigure,
    ReportTable,
    Series,
    below,
    grouped_bars,
    judge,
    mean_interval,
    style_of,
)
from koala_papers.planning.worlds import ALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EASY = "EASY"
HEADLINE = "FCM"
OTHER = "WF"
# FCM with plans over four clusters has at most this multiple of EASY's value on one.
LONGEST_WAIT_TIMES = 1.2
SLOWDOWN_TIMES = 1.1
NO_LONGER_TIMES = 1.001
# Added to both of two compared waits, so that two zeros are alike.
ALIKE_S = 1.0
_LOOKS = {EASY: "Ideal", "0": "WF", "1": "FCM", "8": "CM", ALL: "CF"}
_SHOWN = ("mean_wait_s", "p999_wait_s", "longest_wait_s", "bounded_slowdown")


class PlanningFindings:
    """The results of all runs, by world, contender and seed. A contender is a policy and its plan_depth."""

    def __init__(self, results: Sequence[FinishedUnit]) -> None:
        self._runs: dict[str, dict[tuple[str, str], dict[int, dict[str, Any]]]] = {}
        for unit, result in results:
            work = unit.work
            by_contender = self._runs.setdefault(work["world"], {})
            by_contender.setdefault((work["policy"], work["depth"]), {})[work["seed"]] = result
        self.seeds = sorted({unit.work["seed"] for unit, _ in results})
        self.worlds = list(self._runs)

    # ------------------------------------------------------------------------------------- numbers

    def by_seed(self, world: str, contender: tuple[str, str], figure: str) -> dict[int, float]:
        """Return one value for each seed in which some job was done."""
        runs = self._runs[world].get(contender, {})
        return {seed: run["figures"][figure] for seed, run in runs.items() if run["figures"]}

    def interval(self, world: str, contender: tuple[str, str], figure: str) -> Interval:
        """Return the mean over seeds."""
        return mean_interval(list(self.by_seed(world, contender, figure).values()))

    def times(self, world: str, one: tuple[str, str], other: tuple[str, str], figure: str) -> Interval:
        """Return the ratio of ``one`` to ``other``, in the same seeds; 1 if nobody waits."""
        ours, theirs = self.by_seed(world, one, figure), self.by_seed(world, other, figure)
        more = ALIKE_S if figure.endswith("_s") else 0.0
        return mean_interval(
            [(ours[seed] + more) / (theirs[seed] + more) for seed in sorted(ours.keys() & theirs.keys())]
        )

    def as_json(self) -> dict[str, Any]:
        """Return every figure with its interval."""
        worlds: dict[str, Any] = {}
        for world, by_contender in self._runs.items():
            worlds[world] = {
                _label(*contender): {
                    **{figure: self.interval(world, contender, figure).as_json() for figure in _SHOWN},
                    "utilisation": mean_interval([run["utilisation"] for run in runs.values()]).as_json(),
                    "wasted_processor_s": mean_interval(
                        [run["wasted_processor_s"] for run in runs.values()]
                    ).as_json(),
                    "slowdown_by_class": {
                        label: interval.as_json() for label, interval in self._by_class(world, contender).items()
                    },
                    "jobs": sum(run["jobs"] for run in runs.values()),
                    "not_done": sum(run["not_done"] for run in runs.values()),
                    "too_large": sum(run["too_large"] for run in runs.values()),
                }
                for contender, runs in by_contender.items()
            }
        return {"seeds": self.seeds, "worlds": worlds}

    def _by_class(self, world: str, contender: tuple[str, str]) -> dict[str, Interval]:
        found: dict[str, list[float]] = {}
        for run in self._runs[world][contender].values():
            for label, value in run["slowdown_by_class"].items():
                found.setdefault(label, []).append(value)
        return {label: mean_interval(values) for label, values in found.items()}

    def notes(self) -> list[str]:
        """Return how many jobs were left behind or out."""
        runs = [run for by in self._runs.values() for by_seed in by.values() for run in by_seed.values()]
        behind, large = sum(run["not_done"] for run in runs), sum(run["too_large"] for run in runs)
        done = f"{behind} jobs were not done." if behind else "Every job of every run was done."
        return [
            done,
            *([f"{large} jobs of runs under WF were larger than any cluster and left out."] if large else []),
        ]

    # ------------------------------------------------------------------------------------- claims

    def claims(self) -> list[PaperClaim]:
        """Return all claims that the runs can decide, with their verdicts."""
        found = []
        number = 1
        for depth in ("1", "8", ALL):
            for figure, times, what in (
                ("longest_wait_s", LONGEST_WAIT_TIMES, "longest wait"),
                ("bounded_slowdown", SLOWDOWN_TIMES, "mean bounded slowdown"),
            ):
                comparisons = self._beside_easy((HEADLINE, depth), figure, times, what)
                if comparisons:
                    found.append(
                        judge(
                            f"P{number}",
                            f"{HEADLINE} with plan_depth {depth} over four clusters has at most {times:g} times the "
                            f"{what} of EASY on one cluster of the same size.",
                            comparisons,
                        )
                    )
                number += 1
        shorter = self._shorter_with_plans()
        if shorter:
            found.append(
                judge(
                    f"P{number}",
                    "The longest wait under FCM is no longer with one plan a queue than without.",
                    shorter,
                )
            )
        return found

    def _beside_easy(self, contender: tuple[str, str], figure: str, times: float, what: str) -> list[Comparison]:
        return [
            below(f"{world}: {what}", self.times(world, contender, (EASY, ""), figure), times, unit="times EASY's")
            for world in self.worlds
            if (EASY, "") in self._runs[world] and contender in self._runs[world]
        ]

    def _shorter_with_plans(self) -> list[Comparison]:
        return [
            below(
                f"{world}: longest wait",
                self.times(world, (HEADLINE, "1"), (HEADLINE, "0"), "longest_wait_s"),
                NO_LONGER_TIMES,
                unit="times that without",
            )
            for world in self.worlds
            if {(HEADLINE, "0"), (HEADLINE, "1")} <= self._runs[world].keys()
        ]

    # ------------------------------------------------------------------------------------- tables

    def tables(self) -> list[ReportTable]:
        """Return one row for each world and contender, and the slowdown by size."""
        heads = ("world", "contender", "mean wait (s)", "99.9 % (s)", "longest (s)", "slowdown", "use", "wasted (h)")
        rows, classes = [], []
        for world, by_contender in self._runs.items():
            for contender, runs in by_contender.items():
                values = [self.interval(world, contender, figure).mean for figure in _SHOWN]
                use = sum(run["utilisation"] for run in runs.values()) / len(runs)
                wasted_h = sum(run["wasted_processor_s"] for run in runs.values()) / len(runs) / 3_600.0
                texts = (*(f"{value:,.0f}" for value in values[:3]), f"{values[3]:,.2f}")
                rows.append((world, _label(*contender), *texts, f"{use:.1%}", f"{wasted_h:,.1f}"))
                by_class = self._by_class(world, contender)
                sizes = (f"{by_class[each].mean:,.2f}" if each in by_class else "" for each in self._classes())
                classes.append((world, _label(*contender), *sizes))
        seeds = f"Means over {len(self.seeds)} seeds."
        return [
            ReportTable(
                "All contenders", f"{seeds} Wasted is held by components before their job starts.", heads, rows
            ),
            ReportTable(
                "Bounded slowdown by size",
                f"{seeds} Processors of a job.",
                ("world", "contender", *self._classes()),
                classes,
            ),
        ]

    def _classes(self) -> list[str]:
        runs = [run for by in self._runs.values() for by_seed in by.values() for run in by_seed.values()]
        return list(dict.fromkeys(label for run in runs for label in run["slowdown_by_class"]))

    # ------------------------------------------------------------------------------------- figures

    def figures(self) -> list[ReportFigure]:
        """Return the figures for the claims, as multiples of EASY's values; and of WF's, for which EASY is no fair
        comparison."""
        seeds = f"Means over {len(self.seeds)} seeds, each compared in itself, with 95 % intervals."
        shown = (
            ("longest-wait", "longest_wait_s", "longest wait", LONGEST_WAIT_TIMES),
            ("slowdown", "bounded_slowdown", "mean bounded slowdown", SLOWDOWN_TIMES),
        )
        found = [
            ReportFigure(
                name,
                f"The {what} under {HEADLINE}",
                f"{seeds} As many times that of EASY on one cluster of the same size; the dashed lines are EASY's, "
                f"and the {times:g} times that are claimed at most. Where nobody waits it is once.",
                partial(self._drawn, HEADLINE, (EASY, ""), figure, "times EASY's", (1.0, times)),
            )
            for name, figure, what, times in shown
        ]
        if not self._drawn_depths(OTHER, (OTHER, "0")):
            return found
        return found + [
            ReportFigure(
                f"{name}-{OTHER.casefold()}",
                f"The {what} under {OTHER}",
                f"{seeds} As many times that under {OTHER} without plans, which is the dashed line. Jobs larger than "
                "a cluster are left out, so that EASY is no match.",
                partial(self._drawn, OTHER, (OTHER, "0"), figure, "times that without plans", (1.0,)),
            )
            for name, figure, what, _ in shown
        ]

    def _drawn_depths(self, policy: str, beside: tuple[str, str]) -> list[str]:
        """Return the depths of a policy that were run, except the reference depth."""
        contenders = dict.fromkeys(contender for by_contender in self._runs.values() for contender in by_contender)
        if beside not in contenders:
            return []
        return [depth for name, depth in contenders if name == policy and (name, depth) != beside]

    def _drawn(
        self, policy: str, beside: tuple[str, str], figure: str, label: str, marks: tuple[float, ...]
    ) -> Figure:
        worlds = [world for world in self.worlds if beside in self._runs[world]]
        series = []
        for depth in self._drawn_depths(policy, beside):
            points = {
                place: self.times(world, (policy, depth), beside, figure)
                for place, world in enumerate(worlds)
                if (policy, depth) in self._runs[world]
            }
            series.append(Series(f"plan_depth {depth}", style_of(_LOOKS.get(depth, depth)), points))
        texts = [world.replace("Lublin ", "Lublin\n") for world in worlds]
        return grouped_bars({"": series}, "", label, places=range(len(worlds)), texts=texts, marks=marks)


def _label(policy: str, depth: str) -> str:
    return f"{policy} {depth}".strip()
