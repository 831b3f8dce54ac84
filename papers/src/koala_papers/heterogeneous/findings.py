"""The findings on unequal links: paired differences, claims and figures."""

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
    Series,
    above,
    bars,
    below,
    judge,
    lines,
    mean_interval,
    measured,
    paired_difference,
    style_of,
    within,
)
from koala_papers.heterogeneous.worlds import CASES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Network-aware policy -> the policy to compare it with.
AWARE = {"NCM": "CM", "NFCM": "FCM"}
HEADLINE = "islands-4"
# Equal runs have a difference of exactly zero; this is less than any clock shows.
NO_DIFFERENCE_S = 1e-6

_NETWORK_PANELS = {HEADLINE: "two islands, 4 times worse", "random": "random links"}
_FILE_PANELS = {"input": "without communication", "input-communicating": "with communication"}


class HeterogeneousFindings:
    """The results of all runs, by case, policy and seed."""

    def __init__(self, results: Sequence[FinishedUnit]) -> None:
        self._runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for unit, result in results:
            for policy, run in result["policies"].items():
                self._runs.setdefault((unit.work["case"], policy), {})[unit.work["seed"]] = run
        self.seeds = sorted({unit.work["seed"] for unit, _ in results})

    # ------------------------------------------------------------------------------------- numbers

    def by_seed(self, case: str, policy: str, metric: str) -> dict[int, float]:
        """Return one mean for each seed in which some job was done."""
        runs = self._runs[case, policy]
        return {seed: run["means"][metric] for seed, run in runs.items() if run["means"]}

    def interval(self, case: str, policy: str, metric: str) -> Interval:
        """Return the mean over seeds."""
        return mean_interval(list(self.by_seed(case, policy, metric).values()))

    def difference(self, case: str, one: str, other: str, metric: str = "response_s") -> Interval:
        """Return ``one`` minus ``other``, in the same seeds."""
        found = paired_difference(self.by_seed(case, one, metric), self.by_seed(case, other, metric))
        assert found is not None, "all policies of a case run under the same seeds"
        return found

    def gains(self, case: str, one: str, other: str) -> dict[int, float]:
        """Return by seed the percentage by which the response time of ``one`` is shorter than that of ``other``."""
        ours, theirs = self.by_seed(case, one, "response_s"), self.by_seed(case, other, "response_s")
        return {seed: 100.0 * (1.0 - ours[seed] / theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())}

    def gain(self, case: str, one: str, other: str) -> Interval:
        """Return the mean of the gains."""
        return mean_interval(list(self.gains(case, one, other).values()))

    def change(self, case: str, one: str, other: str) -> Interval:
        """Return the same as a change in percent: below zero if ``one`` is faster."""
        return mean_interval([-gain for gain in self.gains(case, one, other).values()])

    def as_json(self) -> dict[str, Any]:
        """Return every mean with its interval, and outcomes summed over seeds."""
        cases: dict[str, Any] = {}
        for (case, policy), runs in self._runs.items():
            outcomes: dict[str, int] = {}
            for run in runs.values():
                for outcome, count in run["outcomes"].items():
                    outcomes[outcome] = outcomes.get(outcome, 0) + count
            names = sorted({name for run in runs.values() for name in run["means"]})
            cases.setdefault(case, {"title": CASES[case].title, "policies": {}})["policies"][policy] = {
                "outcomes": outcomes,
                "utilisation": mean_interval([run["utilisation"] for run in runs.values()]).as_json(),
                **{name: self.interval(case, policy, name).as_json() for name in names},
            }
        return {"seeds": self.seeds, "cases": cases}

    def notes(self) -> list[str]:
        """Return which runs left jobs behind, if any did."""
        left = {
            f"{policy} ({CASES[case].title})": sum(
                count for run in runs.values() for outcome, count in run["outcomes"].items() if outcome != "done"
            )
            for (case, policy), runs in self._runs.items()
        }
        behind = [f"{count} under {who}" for who, count in left.items() if count]
        return [f"Jobs that were not done: {'; '.join(behind)}." if behind else "Every job of every run was done."]

    # ------------------------------------------------------------------------------------- claims

    def claims(self) -> list[PaperClaim]:
        """Return all claims, with their verdicts."""
        return [
            *(self._beats(f"H{number}", one, HEADLINE) for number, one in enumerate(AWARE, 1)),
            *(self._beats(f"H{number}", one, "random") for number, one in enumerate(AWARE, 3)),
            self._no_difference(),
            self._grows(),
            self._arrives_sooner(),
            self._input("H8", "input"),
            self._input("H9", "input-communicating"),
        ]

    def _beats(self, name: str, one: str, case: str) -> PaperClaim:
        other = AWARE[one]
        change = self.change(case, one, other)
        return judge(
            name,
            f"{one}'s mean response time is lower than {other}'s: {CASES[case].title}.",
            [below(f"{one} - {other}, mean response", self.difference(case, one, other))],
            note=f"The change is {measured(change, '%')}.",
            change_percent=change.as_json(),
        )

    def _no_difference(self) -> PaperClaim:
        comparisons = [
            within(
                f"{one} - {other}, mean {metric.removesuffix('_s')}",
                self.difference("equal", one, other, metric),
                -NO_DIFFERENCE_S,
                NO_DIFFERENCE_S,
            )
            for one, other in AWARE.items()
            for metric in ("response_s", "wait_s", "execution_s")
        ]
        return judge("H5", "With equal links NCM is CM and NFCM is FCM: no difference at all.", comparisons)

    def _grows(self) -> PaperClaim:
        comparisons: list[Comparison] = []
        for one, other in AWARE.items():
            for small, large in ((2, 4), (4, 8)):
                more = paired_difference(
                    self.gains(f"islands-{large}", one, other), self.gains(f"islands-{small}", one, other)
                )
                assert more is not None, "all cases run under the same seeds"
                comparisons.append(
                    above(f"{one}'s gain, {large} times worse beside {small} times", more, unit="% points")
                )
        queues = {times: self.interval(f"islands-{times}", "CM", "queue_s") for times in (4, 8)}
        return judge(
            "H6",
            "The worse the links between the islands, the larger the gain over CM and FCM.",
            comparisons,
            note="Mean queue time under CM: "
            + ", ".join(f"{times} times worse {measured(queue, 's')}" for times, queue in queues.items())
            + ".",
        )

    def _arrives_sooner(self) -> PaperClaim:
        comparisons = [
            below(f"FCF - {other}, mean placement to start", self.difference("input", "FCF", other, "overhead_s"))
            for other in ("FCM", "CF")
        ]
        return judge(
            "H7",
            "Divided over the components that FCF makes, the input is there sooner than under FCM and CF.",
            comparisons,
            note="Start-up is part of it, and takes longer with more components.",
        )

    def _input(self, name: str, case: str) -> PaperClaim:
        comparisons = [
            below(f"FCF - {other}, mean response", self.difference(case, "FCF", other)) for other in ("FCM", "CF")
        ]
        changes = {other: self.change(case, "FCF", other) for other in ("FCM", "CF")}
        clusters = ", ".join(
            f"{policy} {self.interval(case, policy, 'clusters').mean:.2f}" for policy in CASES[case].policies
        )
        return judge(
            name,
            f"FCF's mean response time is lower than FCM's and CF's: {CASES[case].title}.",
            comparisons,
            note=" ".join(
                (
                    *(f"The change from {other} is {measured(change, '%')}." for other, change in changes.items()),
                    f"Clusters combined on average: {clusters}.",
                )
            ),
            change_percent={other: change.as_json() for other, change in changes.items()},
        )

    # ------------------------------------------------------------------------------------- figures

    def figures(self) -> list[ReportFigure]:
        """Return the figures for the claims."""
        seeds = f"Means over {len(self.seeds)} seeds with 95 % confidence intervals."
        return [
            self._bars("response", "response_s", "Mean response time", "mean response time (s)", seeds),
            self._bars("execution", "execution_s", "Mean execution time", "mean execution time (s)", seeds),
            ReportFigure(
                "gain-by-contrast",
                "Gain by how unequal the links are",
                "By how much the mean response time is shorter than under CM and FCM. At 1 all links are equal. "
                + seeds,
                partial(self._gain_figure),
            ),
            ReportFigure(
                "apart-by-contrast",
                "Jobs over both islands",
                "The share of the jobs that run on both islands, by how many times worse the links between them are. "
                + seeds,
                partial(self._apart_figure),
            ),
            self._bars(
                "input-response", "response_s", "Jobs with input: response", "mean response time (s)", seeds, True
            ),
            self._bars("input-start", "overhead_s", "Jobs with input: start", "placement to start (s)", seeds, True),
            self._bars(
                "input-clusters", "clusters", "Jobs with input: clusters", "mean clusters combined", seeds, True
            ),
        ]

    def _bars(self, name: str, metric: str, title: str, label: str, seeds: str, files: bool = False) -> ReportFigure:
        panels = {
            panel: {policy: self.interval(case, policy, metric) for policy in CASES[case].policies}
            for case, panel in (_FILE_PANELS if files else _NETWORK_PANELS).items()
        }
        return ReportFigure(name, title, seeds, partial(bars, panels, label))

    def _by_contrast(self) -> dict[float, str]:
        """Return the cases with islands and without files, by contrast."""
        return {each.contrast: case for case, each in CASES.items() if each.contrast is not None and not each.files}

    def _gain_figure(self) -> Figure:
        series = [
            Series(
                f"{one} over {other}",
                style_of(one),
                {contrast: self.gain(case, one, other) for contrast, case in self._by_contrast().items()},
            )
            for one, other in AWARE.items()
        ]
        return lines({"": series}, "links between the islands: times worse", "shorter response time (%)")

    def _apart_figure(self) -> Figure:
        series = []
        for policy in CASES[HEADLINE].policies:
            points = {}
            for contrast, case in self._by_contrast().items():
                shares = [100.0 * share for share in self.by_seed(case, policy, "apart_share").values()]
                points[contrast] = mean_interval(shares)
            series.append(Series(policy, style_of(policy), points))
        return lines({"": series}, "links between the islands: times worse", "jobs on both islands (%)")
