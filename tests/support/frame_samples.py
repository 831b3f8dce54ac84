"""A small experiment for tests of the frame, which worker processes can import, and makers of its parts."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from koala.study.frame.claims import above, judge
from koala.study.frame.experiment import Conclusion, Experiment, FinishedUnit, Parameters, Unit
from koala.study.frame.figures import ReportFigure, Series, bars, lines, style_of
from koala.study.frame.statistics import mean_interval


class SampleParameters(Parameters, frozen=True, kw_only=True):
    """One parameter of each kind."""

    factor: Annotated[float, msgspec.Meta(gt=0)] = 2.0
    rounds: int = 10
    title: str = "plain"
    sizes: tuple[int, ...] = (1, 2)


class Sample(Experiment[SampleParameters]):
    """Doubles numbers. ``work["do"]`` makes a unit misbehave; each computed unit leaves a mark."""

    name = "sample"
    verb = "koala experiment run"
    title = "A <sample> & more"
    question = "Is twice a number more than the number?"
    method = ("Multiply.",)
    parameters_type = SampleParameters

    def quick(self, parameters: SampleParameters) -> SampleParameters:
        return msgspec.structs.replace(parameters, rounds=1)

    def units(self, parameters: SampleParameters, seed: int, repetitions: int) -> list[Unit]:
        return [
            Unit(label=f"seed {each}", work={"seed": each, "factor": parameters.factor})
            for each in range(seed, seed + repetitions)
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        if "marks" in work:
            with (Path(work["marks"]) / str(work["seed"])).open("a") as mark:
                mark.write("computed\n")
        match work.get("do"):
            case "fail":
                raise RuntimeError("the dice fell off the table")
            case "advise":
                raise AdvisedError
            case "interrupt":
                raise KeyboardInterrupt
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return {"value": work["seed"] * work["factor"], "by": {1: (2, 3)}}

    def conclude(self, parameters: SampleParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        values = [finished.result["value"] for finished in results]
        interval = mean_interval(values)
        points = {index: mean_interval([value, value + 1]) for index, value in enumerate(values, 1)}
        figures = [
            ReportFigure("bars", "Bars", "All <values>.", partial(bars, {"one": {"WF": interval}}, "value (s)")),
            ReportFigure(
                "lines",
                "Lines",
                "By seed.",
                partial(lines, {"": [Series("CM", style_of("CM"), points)]}, "seed", "value (s)"),
            ),
        ]
        claims = [
            judge("S1", "It is above zero.", [above("value", interval)]),
            judge("S2", "It is above <a million>.", [above("value & more", interval, 1e6)]),
        ]
        return Conclusion({"values": values}, claims, figures, ["Nothing was void."])


class Compiled(Sample):
    """Runs a compiled kernel instead."""

    name = "compiled"

    def run(self, unit: Unit) -> dict[str, Any]:
        from koala.simulator import MiniGrid, mini_grid_workload, run_mini_grid

        jobs = mini_grid_workload(jobs_per_cluster=100, seed=unit.work["seed"])
        return {"end_s": float(run_mini_grid(jobs, MiniGrid.star(), "B1").end_s.max())}


class AdvisedError(ValueError):
    """An error with a message for the user."""

    def for_user(self) -> str:
        return "use other dice"


def marked_units(folder: Path, count: int, **do: str) -> list[Unit]:
    """Return units that leave marks in the folder; ``do`` maps units to what goes wrong, such as u3="fail"."""
    folder.mkdir(exist_ok=True)
    units = []
    for seed in range(1, count + 1):
        work: dict[str, Any] = {"seed": seed, "factor": 2.0, "marks": str(folder)}
        if f"u{seed}" in do:
            work["do"] = do[f"u{seed}"]
        units.append(Unit(label=f"number {seed}", work=work))
    return units


def times_computed(folder: Path) -> dict[int, int]:
    """Return how often each unit was computed."""
    return {int(path.name): len(path.read_text().splitlines()) for path in folder.iterdir()}
