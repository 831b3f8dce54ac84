"""The findings of the live experiment: the accuracy of the simulation, claims and figures.

Every interval has one value for each seed, as everywhere; see ``statistics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.study import (
    NEUTRAL,
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
    paired_difference,
    within,
)
from koala_papers.live2006.model import SimulationModel, executions, longest_startup_s, overheads, starts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METRICS = ("queue_s", "overhead_s", "wait_s", "execution_s", "response_s", "clusters")


class LiveRun(NamedTuple):
    """One policy under one seed: measured live, and predicted by several simulations."""

    policy: str
    seed: int
    live: Mapping[str, Any]
    simulated: Sequence[Mapping[str, Any]]

    def predicted(self, name: str) -> float:
        """Return the mean of the simulations."""
        return fmean(each["means"][name] for each in self.simulated)

    def error_percent(self, name: str) -> float:
        """Return the difference of the simulation from the measurement."""
        measured: float = self.live["means"][name]
        return 100.0 * (self.predicted(name) - measured) / measured


class Live2006Findings:
    """The results of all runs, by policy and seed."""

    def __init__(
        self,
        runs: Sequence[LiveRun],
        calibrations: Sequence[Mapping[str, Any]],
        model: SimulationModel,
        *,
        agree_percent: float,
        stolen_percent_max: float,
    ) -> None:
        self._runs = runs
        self._calibrations = calibrations
        self._model = model
        self._agree_percent = agree_percent
        self._stolen_percent_max = stolen_percent_max
        self.policies = list(dict.fromkeys(run.policy for run in runs))
        self.seeds = sorted({run.seed for run in runs})

    def live(self, policy: str, name: str) -> dict[int, float]:
        """Return the measurements by seed."""
        return {run.seed: run.live["means"][name] for run in self._runs if run.policy == policy}

    def predicted(self, policy: str, name: str) -> dict[int, float]:
        """Return the predictions by seed."""
        return {run.seed: run.predicted(name) for run in self._runs if run.policy == policy}

    def of_means(self, policy: str, name: str) -> float:
        """Return the difference of the predicted mean over all seeds from the measured one, in per cent."""
        measured = fmean(self.live(policy, name).values())
        return 100.0 * (fmean(self.predicted(policy, name).values()) - measured) / measured

    def as_json(self) -> dict[str, Any]:
        """Return all numbers."""
        return {
            "model": self._model.as_json(),
            "policies": {
                policy: {
                    name: {
                        "live": mean_interval(list(self.live(policy, name).values())).as_json(),
                        "simulated": mean_interval(list(self.predicted(policy, name).values())).as_json(),
                        "difference_percent": self.of_means(policy, name) if self._is_there(policy, name) else None,
                    }
                    for name in _METRICS
                }
                for policy in self.policies
            },
            "sites": {
                policy: {
                    "live": _shares(run.live["sites"] for run in self._runs if run.policy == policy),
                    "simulated": _shares(
                        each["sites"] for run in self._runs if run.policy == policy for each in run.simulated
                    ),
                }
                for policy in self.policies
            },
            "execution_by_clusters": {
                key: {str(clusters): mean_interval(seconds).as_json() for clusters, seconds in by_clusters.items()}
                for key, by_clusters in executions(self._calibrations).items()
            },
            "overhead_by_components": {
                str(components): mean_interval(seconds).as_json()
                for components, seconds in overheads(self._calibrations).items()
            },
            "runs": [
                {
                    "policy": run.policy,
                    "seed": run.seed,
                    "outcomes": run.live["outcomes"],
                    "live_response_s": run.live["means"]["response_s"],
                    "simulated_response_s": run.predicted("response_s"),
                    "lag_s": run.live["lag_s"],
                    "wasted_share": run.live["wasted_share"],
                    "local_load": run.live["local_load"],
                }
                for run in self._runs
            ],
        }

    def _is_there(self, policy: str, name: str) -> bool:
        return fmean(self.live(policy, name).values()) > 0

    # ------------------------------------------------------------------------------------------- claims

    def claims(self) -> list[PaperClaim]:
        """Return first the claims on the accuracy of the simulation, then the paper's, live."""
        return [
            self._agreement(),
            self._best(),
            self._fewer_clusters(),
            self._execution_rises(),
            self._overhead_rises(),
        ]

    def _agreement(self) -> PaperClaim:
        limit = self._agree_percent
        comparisons = [
            within(
                f"{policy} mean response, simulated - live",
                mean_interval([run.error_percent("response_s") for run in self._runs if run.policy == policy]),
                -limit,
                limit,
                unit="%",
            )
            for policy in self.policies
        ]
        means = ", ".join(f"{policy} {self.of_means(policy, 'response_s'):+.1f} %" for policy in self.policies)
        return judge(
            "L1",
            f"The simulated mean response time of each policy is within {limit:g} % of the measured one.",
            comparisons,
            note=f"Of the means over all seeds: {means}.",
            means_within={policy: abs(self.of_means(policy, "response_s")) <= limit for policy in self.policies},
        )

    def _best(self) -> PaperClaim:
        comparisons = [
            below(f"mean response, {policy} - WF", self._difference(policy, "WF", "response_s"))
            for policy in ("CM", "FCM")
        ]
        return judge("L2", "CM and FCM give a shorter mean response time than WF, live.", comparisons)

    def _fewer_clusters(self) -> PaperClaim:
        comparisons = [
            below(f"clusters combined, {policy} - WF", self._difference(policy, "WF", "clusters"), unit="")
            for policy in ("CM", "FCM")
        ]
        return judge("L3", "CM and FCM combine fewer clusters than WF, live.", comparisons)

    def _difference(self, first: str, second: str, name: str) -> Interval:
        interval = paired_difference(self.live(first, name), self.live(second, name))
        assert interval is not None, "every policy has run under every seed"
        return interval

    def _execution_rises(self) -> PaperClaim:
        comparisons = []
        for key, by_clusters in executions(self._calibrations).items():
            for fewer, more in zip(by_clusters, list(by_clusters)[1:], strict=False):
                pairs = zip(by_clusters[more], by_clusters[fewer], strict=True)
                rise = mean_interval([later - earlier for later, earlier in pairs])
                comparisons.append(above(f"{key}, {more} - {fewer} clusters", rise))
        return judge(
            "L4", "A job runs longer the more clusters it combines, live (the paper's figure 5).", comparisons
        )

    def _overhead_rises(self) -> PaperClaim:
        measured = overheads(self._calibrations)
        least, most = min(measured), max(measured)
        slope = mean_interval([_mean_of(each, most) - _mean_of(each, least) for each in self._calibrations])
        return judge(
            "L5",
            "Starting a job takes longer the more components it has, live (the paper's figure 8).",
            [above(f"overhead of {most} - of {least} components", slope)],
        )

    def notes(self) -> list[str]:
        """Return what a reader must know about this run."""
        times = "; ".join(
            f"{kind} {', '.join(f'{seconds:.1f}' for seconds in self._model.by_clusters_s(kind).values())} s"
            for kind in self._model.times
        )
        lag_s = max(run.live["lag_s"] for run in self._runs)
        wasted = fmean(run.live["wasted_share"] for run in self._runs)
        ends = [end for run in self._runs for end in run.live["outcomes"].items()]
        failed = sum(count for outcome, count in ends if outcome != "done")
        startups = ", ".join(
            f"{startup.base_s:.2f} s at {site} (spread {startup.jitter:.2f})"
            for site, startup in self._model.startups.items()
        )
        further_s = max(startup.per_component_s for startup in self._model.startups.values())
        calibrated = (
            f"Calibrated from single jobs: start-up {startups}, and {further_s:.2f} s for each further component; "
            f"execution on 1, 2 and 3 clusters: {times}. For each job that computes beside it a job takes "
            f"{self._model.crowding_one:.0%} longer on one cluster and {self._model.crowding_several:.0%} on several."
        )
        quality = (
            f"No submission was later than {lag_s:.1f} s. Of what was held, {wasted:.1%} waited at barriers or ran "
            f"in vain. Jobs that were not done: {failed}."
        )
        return [calibrated, quality, self._host()]

    def _host(self) -> str:
        """Return how much the host disturbed the measurements."""
        percents, tries = zip(
            *(each for found in (*self._calibrations, *(run.live for run in self._runs)) for each in found["host"]),
            strict=True,
        )
        again = sum(count > 1 for count in tries)
        limit = self._stolen_percent_max
        disturbed = sum(percent > limit for percent in percents)
        return (
            f"The host withheld {fmean(percents):.1f} % of the processor time on average. Of {len(percents)} "
            f"measurements {again} were made again for more than {limit:g} %, and {disturbed} stayed above it, "
            f"with {max(percents):.1f} % at most."
        )

    # ------------------------------------------------------------------------------------------ figures

    def figures(self) -> list[ReportFigure]:
        """Return responses side by side, and the paper's figures 5 and 8."""
        seeds = f"Means over {len(self.seeds)} seeds with 95 % confidence intervals."
        panels = {
            title: {policy: mean_interval(list(of(policy, "response_s").values())) for policy in self.policies}
            for title, of in (("live", self.live), ("simulated", self.predicted))
        }
        return [
            ReportFigure(
                "response",
                "Mean response time, live and simulated",
                seeds,
                partial(bars, panels, "mean response time (s)"),
            ),
            ReportFigure(
                "execution-by-clusters",
                "Execution time by clusters combined",
                "Single jobs of the real applications over the emulated links, and the straight line that a workload "
                f"file would draw; the simulation takes the measured times. {seeds}",
                self._draw_execution,
            ),
            ReportFigure(
                "overhead-by-components",
                "Start-up overhead by components",
                f"From placement to the opening of the barrier, and the model's line. {seeds}",
                self._draw_overhead,
            ),
        ]

    def _draw_execution(self) -> Figure:
        measured_by_kind = executions(self._calibrations)
        sizes = sorted({int(kind.partition("/")[2]) for kind in measured_by_kind})
        panels: dict[str, list[Series]] = {}
        for kind, by_clusters in measured_by_kind.items():
            name, processors = kind.split("/")
            look = NEUTRAL[sizes.index(int(processors)) % len(NEUTRAL)]
            form = self._model.forms[kind]
            straight = {clusters: _exact(form.seconds(int(processors), clusters)) for clusters in by_clusters}
            measured = {clusters: mean_interval(seconds) for clusters, seconds in by_clusters.items()}
            panels.setdefault(name.capitalize(), []).extend(
                [
                    Series(f"{processors} processors", look, measured),
                    Series(f"{processors}, straight", look._replace(line=":"), straight),
                ]
            )
        return lines(panels, "clusters combined", "execution time (s)")

    def _draw_overhead(self) -> Figure:
        measured = {count: mean_interval(seconds) for count, seconds in overheads(self._calibrations).items()}
        places = [places for places, _ in starts(self._calibrations)]
        modelled = {
            count: _exact(
                fmean(longest_startup_s(self._model.startups, each) for each in places if len(each) == count)
            )
            for count in measured
        }
        look = NEUTRAL[0]
        series = [Series("measured", look, measured), Series("model", look._replace(line=":"), modelled)]
        return lines({"": series}, "components of the job", "start-up overhead (s)")


def _shares(counts: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Return the share of all jobs on each set of sites."""
    summed: Counter[str] = Counter()
    for each in counts:
        summed.update(each)
    return {sites: count / summed.total() for sites, count in sorted(summed.items())}


def _mean_of(calibration: Mapping[str, Any], components: int) -> float:
    return fmean(overheads([calibration])[components])


def _exact(value: float) -> Interval:
    return Interval(value, value, value, 1)
