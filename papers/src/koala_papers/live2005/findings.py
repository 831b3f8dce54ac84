"""The findings of the live experiment of 2005: claims, figures and notes. Every interval has one value for each
seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import msgspec

from koala.study import (
    Comparison,
    FinishedUnit,
    Interval,
    PaperClaim,
    ReportFigure,
    above,
    bars,
    below,
    judge,
    mean_interval,
)
from koala_papers.koala2005.claims import all_complete, priority_claim
from koala_papers.koala2005.data import (
    ALL,
    FAILURE_SHARE,
    GAINED_PROCESSOR_S,
    PLACEMENT_S,
    PRIORITIES,
    STABLE,
    START_DELAY_S,
    UNSTABLE,
    WASTED_PROCESSOR_S,
    JobFilter,
    Koala2005Data,
    Measure,
)
from koala_papers.live2005.runs import REACHED_S

SYSTEMS = (STABLE, UNSTABLE)
MEASURES: dict[str, Measure] = {
    "placement_s": PLACEMENT_S,
    "start_delay_s": START_DELAY_S,
    "gained_processor_s": GAINED_PROCESSOR_S,
    "wasted_processor_s": WASTED_PROCESSOR_S,
    "failure_share": FAILURE_SHARE,
}
# At least this share of the components that wait for files must be claimed before the job start time.
CLAIMED_AHEAD = 0.9

Run = Mapping[str, Any]


class Live2005Findings:
    """All runs by system and seed, and the simulator's predictions for those on the stable system, by seed."""

    def __init__(self, results: Sequence[FinishedUnit], predicted: Mapping[int, Run], breaking_site: str) -> None:
        self._data = Koala2005Data(results)
        self._predicted = predicted
        self._breaking_site = breaking_site

    def as_json(self) -> dict[str, Any]:
        """Return all numbers."""
        return {
            system: {
                "groups": {
                    priority: {name: _json(self._interval(system, each, priority)) for name, each in MEASURES.items()}
                    for priority in PRIORITIES
                },
                "runs": {str(seed): self._run_json(run) for seed, run in self._data.runs(system).items()},
            }
            for system in SYSTEMS
        } | {"predicted": {str(seed): dict(run) for seed, run in self._predicted.items()}}

    def _run_json(self, run: Run) -> dict[str, Any]:
        return {name: value for name, value in run.items() if name not in ("grid", "cells")}

    def _interval(self, system: str, measure: Measure, priority: str | None = None) -> Interval | None:
        return self._data.interval(system, measure, ALL if priority is None else JobFilter(priority=priority))

    # ------------------------------------------------------------------------------------------- claims

    def claims(self) -> list[PaperClaim]:
        """Return first the claim that all jobs are done, then the claims behind it."""
        replace = msgspec.structs.replace
        return [
            replace(all_complete(self._data), id="L9"),
            self._taken_out(),
            self._moved(),
            replace(priority_claim(self._data), id="L12"),
            self._claimed_ahead(),
        ]

    def _unstable(self) -> list[Run]:
        return list(self._data.runs(UNSTABLE).values())

    def _taken_out(self) -> PaperClaim:
        runs, site = self._unstable(), self._breaking_site
        out = min(float(site in run["taken_out"]) for run in runs)
        broken = _of(runs, "broken")
        return judge(
            "L10",
            "A cluster that breaks what comes to it is taken out.",
            [above(f"whether {site} was out at the end, the worst run", _exactly(out, runs), 0.5, unit="")],
            note=f"It had broken {min(broken):.0f} to {max(broken):.0f} components by then.",
        )

    def _moved(self) -> PaperClaim:
        hit = _of(self._unstable(), "hit")
        runs = [run for run in self._unstable() if run["hit"]]  # the others show nothing
        comparisons = []
        if runs:
            left = _exactly(max(_of(runs, "hit_not_done")), runs)
            comparisons.append(below("jobs there that were not done, the worst run", left, 1.0, unit="jobs"))
        return judge(
            "L11",
            "What a cluster held when its power went is done elsewhere, or there when it is back.",
            comparisons,
            note=f"Jobs there when its power went: {', '.join(f'{count:.0f}' for count in hit)}.",
        )

    def _claimed_ahead(self) -> PaperClaim:
        comparisons: list[Comparison] = []
        ahead_s: list[float] = []
        for system in SYSTEMS:
            shares = []
            for run in self._data.runs(system).values():
                times_s = run["claims_ahead_s"]
                ahead_s += times_s
                if times_s:
                    shares.append(fmean(each > -REACHED_S for each in times_s))
            if shares:
                what = f"share of the components that waited for files, {system} system"
                comparisons.append(above(what, mean_interval(shares), CLAIMED_AHEAD, unit=""))
        mean = (
            f"{fmean(ahead_s):.1f} s before it on average, {len(ahead_s)} components" if ahead_s else "no component"
        )
        return judge(
            "L13",
            f"More than {CLAIMED_AHEAD:.0%} of components that wait for files are claimed before the job start time.",
            comparisons,
            note=f"Claimed: {mean}.",
        )

    # ------------------------------------------------------------------------------------ figures and notes

    def figures(self) -> list[ReportFigure]:
        """Return placement times, the gain and the waste of claiming, and the prediction."""
        seeds = f"Means over {len(self._data.runs(UNSTABLE))} seeds with 95 % confidence intervals."
        placement = {
            f"{system} system": self._bars(system, {f"{each} priority": (PLACEMENT_S, each) for each in PRIORITIES})
            for system in SYSTEMS
        }
        claiming = {
            f"{system} system": self._bars(
                system, {"gained (PGT)": (GAINED_PROCESSOR_S, None), "wasted (PWT)": (WASTED_PROCESSOR_S, None)}
            )
            for system in SYSTEMS
        }
        since = "From submission to the last placement."
        by_job = "Until the claim, and from there to the start."
        return [
            ReportFigure(name, title, f"{caption} {seeds}", partial(bars, panels, label))
            for name, title, caption, panels, label in (
                ("placement", "Placement time by priority", since, placement, "placement time (s)"),
                ("claiming", "Processor time gained and wasted", by_job, claiming, "processor seconds by job"),
            )
        ]

    def _bars(self, system: str, wanted: Mapping[str, tuple[Measure, str | None]]) -> dict[str, Interval]:
        found = {label: self._interval(system, measure, priority) for label, (measure, priority) in wanted.items()}
        return {label: interval for label, interval in found.items() if interval is not None}

    def notes(self) -> list[str]:
        """Return what a reader must know about this run."""
        return [self._how_it_went(), self._prediction()]

    def _how_it_went(self) -> str:
        runs = self._unstable()
        counts = {
            "components broken": _of(runs, "broken"),
            "programs not found": _of(runs, "not_found"),
            "jobs started again": _of(runs, "restarts"),
            "preemptions": _of(runs, "preemptions"),
            "transfers": _of(runs, "transfers"),
        }
        told = "; ".join(
            f"{what} {', '.join(f'{each:.0f}' for each in each_run)}" for what, each_run in counts.items()
        )
        lag_s = max((run["lag_s"] for system in SYSTEMS for run in self._data.runs(system).values()), default=0.0)
        return f"On the unstable system, by seed: {told}. No submission was later than {lag_s:.1f} s."

    def _prediction(self) -> str:
        """Return the error of the simulation on the stable system."""
        live = self._data.runs(STABLE)
        both = sorted(live.keys() & self._predicted.keys())
        parts = []
        times = {
            "response_s": "response",
            "queue_s": "placement",
            "overhead_s": "start-up",
            "execution_s": "execution",
        }
        for name, words in times.items():
            measured = fmean(live[seed]["means"][name] for seed in both)
            predicted = fmean(self._predicted[seed]["means"][name] for seed in both)
            parts.append(f"{words} {measured:.1f} s live and {predicted:.1f} s simulated")
        return f"Means on the stable system: {'; '.join(parts)}."


def _of(runs: Sequence[Run], name: str) -> list[float]:
    return [float(run[name]) for run in runs]


def _exactly(value: float, runs: Sequence[Run]) -> Interval:
    """Return the worst of all runs, and not a mean: one deviating run is one too many."""
    return Interval(value, value, value, len(runs))


def _json(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else interval.as_json()
