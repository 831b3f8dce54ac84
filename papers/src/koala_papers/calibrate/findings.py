"""The evaluation of the measured times: costs, times on the DAS-2, the form, claims and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.study import (
    NEUTRAL,
    Interval,
    PaperClaim,
    ReportFigure,
    Series,
    above,
    below,
    error_bars,
    judge,
    legend,
    lines,
    mean_interval,
    new_figure,
    paired_difference,
)
from koala_papers.calibrate.das2 import (
    CLUSTERS,
    Das2,
    Das2Problem,
    ExecutionTimeModel,
    Prediction,
    deviations,
    form_of,
    model_yaml,
)
from koala_papers.calibrate.fit import Costs, fitted, least, relative_errors, spread
from koala_papers.calibrate.runs import APPLICATIONS, SolverRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The administrators' limit on an execution, by the paper of 2006.
EXECUTION_S_MAX = 900.0
# The largest number of clusters of a job in the paper of 2006.
CLUSTERS_MAX = 5
# The runs with this number of processes differ by their clusters alone.
_COMPARED_PROCESSES = 4
# application, whether it is across clusters, and the least, fitted and median time in milliseconds
Point = tuple[str, bool, float, float, float]
# Ticks of the logarithmic axes, within their range.
_TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 150, 200, 250, 300, 500, 1_000, 2_000, 5_000, 10_000)


class Extrapolation(NamedTuple):
    """The results of one set of measured times."""

    costs: dict[str, Costs]
    problem: Das2Problem
    table: dict[str, dict[int, dict[int, float]]]
    forms: dict[str, ExecutionTimeModel]


class CalibrationFindings:
    """``by_seed`` has the time of each run in each repetition; everything else follows from it."""

    def __init__(
        self,
        by_seed: Mapping[int, Mapping[SolverRun, float]],
        cores: int,
        das2: Das2,
        shortest_s: float,
        longest_s: float,
    ) -> None:
        self._by_seed = dict(sorted(by_seed.items()))
        self._cores = cores
        self._das2 = das2
        self._ends_s = (shortest_s, longest_s)
        self._least = least(list(self._by_seed.values()))
        self._spread = spread(list(self._by_seed.values()))
        self.best = self._carried(self._least)
        self._each = {seed: self._carried(times_s) for seed, times_s in self._by_seed.items()}

    def _carried(self, times_s: Mapping[SolverRun, float]) -> Extrapolation:
        costs = fitted(times_s, self._cores)
        prediction = Prediction(costs, self._das2)
        problem = prediction.problem(*self._ends_s)
        table = prediction.table(problem)
        return Extrapolation(costs, problem, table, {name: form_of(by_size) for name, by_size in table.items()})

    # ------------------------------------------------------------------------------------------ results

    def model(self) -> str:
        """Return the file of the execution times."""
        side, iterations = self.best.problem
        source = (
            f"calibrate: the shipped solvers measured in {len(self._by_seed)} repetitions, carried over to the DAS-2 "
            f"with {side} x {side} points and {iterations} iterations"
        )
        return model_yaml(self.best.forms, source)

    def notes(self) -> list[str]:
        """Return how the run was chosen, how noisy the machine was, and where the model is."""
        side, iterations = self.best.problem
        shares = list(self._spread.values())
        return [
            (
                f"A run that takes Poisson {self._ends_s[0]:g} to {self._ends_s[1]:g} s on the DAS-2 has "
                f"{side} x {side} points and {iterations} iterations."
            ),
            (
                f"On {self._cores} cores, the median time of a run is {median(shares):.0%} above its least, and "
                f"{max(shares):.0%} in the noisiest run."
            ),
            "model.yaml, beside the report, has the execution times: koala experiment run koala2006 --set model=FILE",
        ]

    def as_json(self) -> dict[str, Any]:
        """Return every number: measured, fitted and predicted."""
        best = self.best
        errors = relative_errors(self._least, best.costs, self._cores)
        return {
            "cores": self._cores,
            "runs": [
                {
                    "application": run.application,
                    "size": run.size,
                    "iterations": run.iterations,
                    "clusters": run.clusters,
                    "latency_ms": run.latency_ms,
                    "least_s": time_s,
                    "median_above_least": self._spread[run],
                    "fit_error": error,
                }
                for (run, time_s), error in zip(self._least.items(), errors, strict=True)
            ],
            "costs": {
                name: {
                    field: {"model": getattr(costs, field), **self._over_seeds(name, field).as_json()}
                    for field in Costs._fields
                }
                for name, costs in best.costs.items()
            },
            "problem": best.problem._asdict(),
            "execution_s": {
                name: {str(size): {str(k): time_s for k, time_s in by.items()} for size, by in by_size.items()}
                for name, by_size in best.table.items()
            },
            "form": {
                name: {
                    "by_size": {str(size): time_s for size, time_s in form.by_size.items()},
                    "per_extra_cluster": form.beta,
                    "per_extra_cluster_over_seeds": self._beta(name).as_json(),
                    "deviations": deviations(form, best.table[name]),
                }
                for name, form in best.forms.items()
            },
        }

    def _over_seeds(self, application: str, field: str) -> Interval:
        return mean_interval([getattr(each.costs[application], field) for each in self._each.values()])

    def _beta(self, application: str) -> Interval:
        return mean_interval([each.forms[application].beta for each in self._each.values()])

    # ------------------------------------------------------------------------------------------ claims

    def claims(self, fit_share: float, form_share: float) -> list[PaperClaim]:
        """Return all claims, judged from the repetitions."""
        return [
            self._several_take_longer(),
            self._each_further(),
            self._fit_explains(fit_share),
            self._form_stands(form_share),
            self._within_limit(),
        ]

    def per_iteration_ms(self, application: str) -> dict[int, dict[int, float]]:
        """Return by clusters, and then by repetition, the time of an iteration of the runs that differ by clusters
        alone."""
        return {
            len(run.clusters): {seed: 1e3 * times_s[run] / run.iterations for seed, times_s in self._by_seed.items()}
            for run in self._least
            if run.application == application and sum(run.clusters) == _COMPARED_PROCESSES
        }

    def _rise_ms(self, application: str, more: int, fewer: int) -> Interval:
        times = self.per_iteration_ms(application)
        difference = paired_difference(times[more], times[fewer])
        assert difference is not None, "every repetition has every run"
        return difference

    def _several_take_longer(self) -> PaperClaim:
        comparisons = [
            above(f"{name}, an iteration on {more} - on 1 clusters", self._rise_ms(name, more, 1), unit="ms")
            for name in APPLICATIONS
            for more in CLUSTERS[1:]
        ]
        text = "Measured: an execution over several clusters takes longer than on one."
        return judge("K1", text, comparisons, note="The runs are those on four processes.")

    def _each_further(self) -> PaperClaim:
        comparisons = [
            above(
                f"{name}, an iteration on {more} - on {fewer} clusters", self._rise_ms(name, more, fewer), unit="ms"
            )
            for name in APPLICATIONS
            for fewer, more in pairwise(CLUSTERS[1:])
        ]
        note = (
            "Neighbours wait for each other at the same time, so that a second cluster brings the whole latency and "
            "a further one only what its own messages add."
        )
        return judge("K2", "Measured: it rises with each cluster beyond the second, too.", comparisons, note=note)

    def _fit_explains(self, share: float) -> PaperClaim:
        comparisons = []
        for words, is_across in (("on one cluster", False), ("across clusters", True)):
            errors = [
                mean(
                    abs(error)
                    for run, error in zip(
                        times_s,
                        relative_errors(times_s, self._each[seed].costs, self._cores),
                        strict=True,
                    )
                    if (len(run.clusters) > 1) is is_across
                )
                for seed, times_s in self._by_seed.items()
            ]
            what = f"mean error of the fit, runs {words}"
            comparisons.append(below(what, mean_interval([100.0 * each for each in errors]), 100.0 * share, unit="%"))
        text = f"The cost model explains the measured times within {share:.0%} on average."
        return judge("K3", text, comparisons, note="Each repetition has a fit of its own.")

    def _form_stands(self, share: float) -> PaperClaim:
        comparisons = []
        for name in self.best.forms:
            errors = [
                100.0 * mean(abs(share) for share in deviations(each.forms[name], each.table[name]))
                for each in self._each.values()
            ]
            comparisons.append(
                below(f"mean error of the form, {name}", mean_interval(errors), 100.0 * share, unit="%")
            )
        worst = {name: deviations(form, self.best.table[name]) for name, form in self.best.forms.items()}
        listed = "; ".join(f"{name} {min(each):+.0%} to {max(each):+.0%}" for name, each in worst.items())
        note = (
            f"It errs by {listed}. The predicted times make a step at the second cluster, where the form is too low, "
            "and rise little from there; one beta serves all sizes, and the step weighs more on more processors."
        )
        text = f"T1 * (1 + beta * (clusters - 1)) stands for the predicted times within {share:.0%} on average."
        return judge("K4", text, comparisons, note=note)

    def _within_limit(self) -> PaperClaim:
        longest = [
            max(form.seconds(size, CLUSTERS_MAX) for form in each.forms.values() for size in form.by_size)
            for each in self._each.values()
        ]
        what = f"the longest execution, on {CLUSTERS_MAX} clusters, by the form"
        text = "Every execution ends within the 15 minutes that the paper's administrators allow."
        return judge("K5", text, [below(what, mean_interval(longest), EXECUTION_S_MAX)])

    # ------------------------------------------------------------------------------------------ figures

    def figures(self) -> Sequence[ReportFigure]:
        """Return the figures: measured against fitted, measured by clusters, and the times on the DAS-2."""
        count = len(self._by_seed)
        errors = relative_errors(self._least, self.best.costs, self._cores)
        points = [
            (
                run.application,
                len(run.clusters) > 1,
                1e3 * time_s,
                1e3 * time_s * (1.0 + error),
                1e3 * time_s * (1.0 + self._spread[run]),
            )
            for (run, time_s), error in zip(self._least.items(), errors, strict=True)
        ]
        measured = {
            name: {clusters: mean_interval(list(by.values())) for clusters, by in self.per_iteration_ms(name).items()}
            for name in APPLICATIONS
        }
        table = {
            name: {
                size: {k: mean_interval([each.table[name][size][k] for each in self._each.values()]) for k in by}
                for size, by in by_size.items()
            }
            for name, by_size in self.best.table.items()
        }
        return [
            ReportFigure(
                "measured-fitted",
                "Measured and fitted times",
                f"Each run of a solver: its least time over {count} repetitions, and to the right its median. On the "
                "line the model is right.",
                partial(_fit_figure, points),
            ),
            ReportFigure(
                "iteration-by-clusters",
                "Measured time of an iteration by clusters",
                f"Four processes in 1 to 4 groups with an emulated distance between them. Means over {count} "
                "repetitions with 95 % confidence intervals. Heat's includes the time to deal out and take back.",
                partial(_measured_figure, measured),
            ),
            ReportFigure(
                "execution-by-clusters",
                "Predicted execution time on the DAS-2 by clusters combined",
                f"Means over {count} repetitions with 95 % confidence intervals; dashed, the form "
                "T1 * (1 + beta * (clusters - 1)) of the model file.",
                partial(_times_figure, table, self.best.forms),
            ),
        ]


# ------------------------------------------------------------------------------------------- figures


def _fit_figure(points: Sequence[Point]) -> Figure:
    """Return two panels, runs on one cluster and across; both axes logarithmic, with the line where both are
    equal."""
    figure, all_axes = new_figure(2)
    applications = list(dict.fromkeys(point[0] for point in points))
    for axes, title, is_across in zip(all_axes, ("On one cluster", "Across clusters"), (False, True), strict=True):
        shown = [point for point in points if point[1] is is_across]
        for application, look in zip(applications, NEUTRAL, strict=False):
            own = [point for point in shown if point[0] == application]
            axes.hlines(
                [fitted_ms for *_, fitted_ms, _ in own],
                [least_ms for *_, least_ms, _, _ in own],
                [median_ms for *_, median_ms in own],
                color=look.colour,
                linewidth=1.0,
            )
            axes.plot(
                [least_ms for *_, least_ms, _, _ in own],
                [fitted_ms for *_, fitted_ms, _ in own],
                look.marker,
                color=look.colour,
                label=application.capitalize(),
            )
        ends = [time_ms for _, _, *times_ms in shown for time_ms in times_ms]
        line = [0.8 * min(ends), 1.25 * max(ends)]
        axes.plot(line, line, "-", color="#bbbbbb", linewidth=1.0, zorder=0)
        axes.set(xscale="log", yscale="log", title=title, xlabel="measured time (ms)")
        ticks = [tick for tick in _TICKS_MS if line[0] <= tick <= line[1]]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, [str(tick) for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.set(xlim=line, ylim=line)
    all_axes[0].set_ylabel("fitted time (ms)")
    legend(figure, all_axes[0])
    return figure


def _measured_figure(measured: Mapping[str, Mapping[int, Interval]]) -> Figure:
    """Return a line for each application."""
    series = [
        Series(application.capitalize(), look, dict(by_clusters))
        for (application, by_clusters), look in zip(measured.items(), NEUTRAL, strict=False)
    ]
    return lines({"": series}, "groups of the four processes", "time of an iteration (ms)")


def _times_figure(
    table: Mapping[str, Mapping[int, Mapping[int, Interval]]], forms: Mapping[str, ExecutionTimeModel]
) -> Figure:
    """Return a panel for each application with a line for each size and the form."""
    figure, all_axes = new_figure(len(table), shared_y=True)
    sizes = sorted({size for by_size in table.values() for size in by_size})
    for axes, (application, by_size) in zip(all_axes, table.items(), strict=True):
        for size, by_clusters in by_size.items():
            look = NEUTRAL[sizes.index(size)]
            places = list(by_clusters)
            means = [by_clusters[clusters].mean for clusters in places]
            axes.plot(places, means, "-", color=look.colour, marker=look.marker, label=f"{size} processors")
            for clusters in places:
                error_bars(axes, clusters, by_clusters[clusters], ecolor=look.colour, elinewidth=1.1)
            form = [forms[application].seconds(size, clusters) for clusters in places]
            axes.plot(places, form, "--", color=look.colour, linewidth=1.0)
        axes.set(title=application.capitalize(), xlabel="clusters combined", xticks=places)
    all_axes[0].set_ylabel("execution time (s)")
    for axes in all_axes:
        axes.set_ylim(bottom=0)
    fullest = max(range(len(all_axes)), key=lambda index: len(list(table.values())[index]))
    legend(figure, all_axes[fullest])
    return figure
