"""The range in which the claims of the paper of 2006 hold: a map over what the paper leaves open.

Its figure of execution times is lost, and of start-up times it gives the range of an axis. So each claim is examined
over T1, beta, start-up times and both readings of its testbed. The map shows where a claim leans with few seeds;
``koala2006`` then judges a promising setting on other seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from koala.model.grid import BandOver
from koala.simulator import example_workload, fingerprint
from koala.study import (
    ClaimVerdict,
    Conclusion,
    FinishedUnit,
    PaperClaim,
    Parameters,
    ReportFigure,
    ReportTable,
    Unit,
    new_grid,
)
from koala_papers.experiment import PaperExperiment
from koala_papers.koala2006.claims import claims
from koala_papers.koala2006.data import Koala2006Data
from koala_papers.koala2006.study import (
    GRID,
    POLICIES,
    WORKLOADS,
    Koala2006Parameters,
    Positive,
    Scheduled,
    das2_as_read,
    run_until_it_counts,
    with_applications,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZES = {"laplace": (36, 64), "heat": (36, 64, 72)}
_SHADES = {ClaimVerdict.HOLDS: "#7fbf8e", ClaimVerdict.UNDECIDED: "#e3e3e3", ClaimVerdict.CONTRARY: "#e08f7f"}
_METHOD = (
    (
        "Both applications take T1(36) * (36 / processors) ** power on one cluster, and beta of that more on each "
        "further one. Each field of the map is the whole experiment of 2006 with such times: W1 and W2 under WF, CM "
        "and FCM, with the background held over the whole testbed."
    ),
    (
        "A field says where a claim leans by its 95 % intervals over the seeds of this run, without a correction for "
        "the many fields: green where all of its comparisons are shown, red where the contrary of one is, grey "
        "else. The numbers are the comparisons shown. A map chooses settings, and judges none."
    ),
)

Time = Annotated[float, msgspec.Meta(gt=0.0, le=10_000.0)]
Times = Annotated[tuple[Time, ...], msgspec.Meta(min_length=1, max_length=20)]


class SensitivityParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``: the number of jobs of a workload;
    - ``t1_s``: the seconds on 36 processors of one cluster, one row of the map each;
    - ``beta``: the additional share for each further cluster, one column each;
    - ``startup``: the factor on the shipped start-up times;
    - ``power``: the decrease of T1 with the processors: 1 is in proportion, 0.5 with the square root.
    """

    jobs: Positive = 200
    t1_s: Times = (30.0, 60.0, 125.0, 250.0)
    beta: Times = (0.05, 0.15, 0.3, 0.6)
    startup: Times = (0.5, 1.0)
    power: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.5


class Setting(NamedTuple):
    """One field of the map, in one of its panels."""

    scheduled: str
    startup: float
    t1_s: float
    beta: float

    def __str__(self) -> str:
        return f"{self.scheduled}, start-up x {self.startup:g}, T1(36) = {self.t1_s:g} s, beta = {self.beta:g}"


class Sensitivity(PaperExperiment[SensitivityParameters]):
    """The claims of koala2006 over T1, beta and start-up, in processors and in whole nodes."""

    name = "koala2006-map"
    title = "Where the claims of 2006 hold: a map over T1, beta and start-up"
    question = "Is there a setting of what the paper leaves open with which all of its eight claims hold?"
    method = _METHOD
    repetitions = 4
    quick_repetitions = 2
    parameters_type = SensitivityParameters

    def quick(self, parameters: SensitivityParameters) -> SensitivityParameters:
        return msgspec.structs.replace(parameters, jobs=40, t1_s=(60.0, 125.0), beta=(0.15, 0.3), startup=(0.5,))

    def units(self, parameters: SensitivityParameters, seed: int, repetitions: int) -> list[Unit]:
        inputs = fingerprint(grids=(GRID,), workloads=tuple(WORKLOADS.values()))
        return [
            Unit(
                label=f"{setting}, {workload}, seed {each}",
                work={
                    **setting._asdict(),
                    "power": parameters.power,
                    "workload": workload,
                    "seed": each,
                    "jobs": parameters.jobs,
                    "inputs": inputs,
                },
            )
            for each in range(seed, seed + repetitions)
            for setting in settings(parameters)
            for workload in WORKLOADS
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        work = unit.work
        text = example_workload(WORKLOADS[work["workload"]]).text
        text = with_applications(text, execution_times(work["t1_s"], work["beta"], work["power"]), unit.label)
        grid = das2_as_read(Scheduled(work["scheduled"]), BandOver.GRID, work["startup"])
        return run_until_it_counts(grid, text, work["jobs"], work["seed"])

    def conclude(self, parameters: SensitivityParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        by_setting: dict[Setting, list[FinishedUnit]] = {setting: [] for setting in settings(parameters)}
        for finished in results:
            work = finished.unit.work
            by_setting[Setting(*(work[name] for name in Setting._fields))].append(finished)
        defaults = Koala2006Parameters()
        shares = {
            "low": defaults.low_share,
            "similar": defaults.similar_share,
            "much_lower": defaults.much_lower_share,
        }
        found = {
            setting: claims(Koala2006Data(runs, list(WORKLOADS), list(POLICIES)), shares)
            for setting, runs in by_setting.items()
        }
        best = sorted(found, key=lambda setting: (-_holding(found[setting]), -_shown(found[setting])))
        first = best[0]
        rows = [(str(setting), str(_holding(found[setting])), _leanings(found[setting])) for setting in best[:12]]
        table = ReportTable(
            "The settings with which most claims hold",
            "How many of the eight hold, and those that do not.",
            ("setting", "hold", "the others"),
            rows,
        )
        told = f"With {first} {_holding(found[first])} of 8 claims hold, the most of {len(found)} settings."
        return Conclusion(
            {"settings": [{**setting._asdict(), "claims": _as_json(found[setting])} for setting in found]},
            found[first],
            [_picture(parameters, found, place) for place in range(len(found[first]))],
            [told, "The claims above are those of this setting."],
            {"model.yaml": _model_text(first, parameters.power)},
            [table],
        )


def settings(parameters: SensitivityParameters) -> list[Setting]:
    """Return all fields of the map."""
    return [
        Setting(str(scheduled), startup, t1_s, beta)
        for scheduled in Scheduled
        for startup in parameters.startup
        for t1_s in parameters.t1_s
        for beta in parameters.beta
    ]


def execution_times(t1_s: float, beta: float, power: float) -> dict[str, Any]:
    """Return the same times for both applications, in the form of the experiment of 2006."""
    return {
        name: {
            "execution_s": {"by_size": {str(size): round(t1_s * (36 / size) ** power, 3) for size in sizes}},
            "per_extra_cluster": beta,
        }
        for name, sizes in _SIZES.items()
    }


def _holding(found: Sequence[PaperClaim]) -> int:
    return sum(claim.leaning is ClaimVerdict.HOLDS for claim in found)


def _shown(found: Sequence[PaperClaim]) -> float:
    return sum(_counts(claim)[0] / max(1, _counts(claim)[1]) for claim in found)


def _counts(claim: PaperClaim) -> tuple[int, int]:
    """Return the numbers of shown comparisons and of all."""
    return sum(each.verdict == "shown" for each in claim.comparisons), len(claim.comparisons)


def _leanings(found: Sequence[PaperClaim]) -> str:
    others = [f"{claim.id} {claim.leaning}" for claim in found if claim.leaning is not ClaimVerdict.HOLDS]
    return ", ".join(others) or "none"


def _as_json(found: Sequence[PaperClaim]) -> dict[str, Any]:
    return {claim.id: {"leaning": str(claim.leaning), "shown": _counts(claim)} for claim in found}


def _model_text(setting: Setting, power: float) -> str:
    lines = [f"source: {setting}", "applications:"]
    for name, model in execution_times(setting.t1_s, setting.beta, power).items():
        sizes = ", ".join(f"{size}: {seconds:g}" for size, seconds in model["execution_s"]["by_size"].items())
        lines.append(f"  {name}: {{execution_s: {{by_size: {{{sizes}}}}}, per_extra_cluster: {setting.beta:g}}}")
    return "\n".join(lines) + "\n"


def _picture(parameters: SensitivityParameters, found: dict[Setting, list[PaperClaim]], place: int) -> ReportFigure:
    claim = next(iter(found.values()))[place]
    return ReportFigure(
        f"map-{claim.id.lower()}",
        f"{claim.id}: where it holds",
        f"{claim.text} Green: holds; red: contrary; grey: undecided. In each field how many comparisons are shown.",
        lambda: _drawn(parameters, found, place),
    )


def _drawn(parameters: SensitivityParameters, found: dict[Setting, list[PaperClaim]], place: int) -> Figure:
    """Return one claim: a panel for each reading and start-up."""
    panels = [(str(scheduled), startup) for scheduled in Scheduled for startup in parameters.startup]
    figure, all_axes = new_grid(len(panels), 2, 2.6)
    for axes, (scheduled, startup) in zip(all_axes, panels, strict=True):
        axes.set_title(f"{scheduled}, start-up x {startup:g}", fontsize=9)
        for row, t1_s in enumerate(parameters.t1_s):
            for column, beta in enumerate(parameters.beta):
                _field(axes, column, row, found[Setting(scheduled, startup, t1_s, beta)][place])
        axes.set_xlim(-0.5, len(parameters.beta) - 0.5)
        axes.set_ylim(-0.5, len(parameters.t1_s) - 0.5)
        axes.set_xticks(range(len(parameters.beta)), [f"{beta:g}" for beta in parameters.beta])
        axes.set_yticks(range(len(parameters.t1_s)), [f"{t1_s:g}" for t1_s in parameters.t1_s])
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_xlabel("beta")
        axes.set_ylabel("T1(36), s")
    return figure


def _field(axes: Axes, column: int, row: int, claim: PaperClaim) -> None:
    from matplotlib.patches import Rectangle

    shown, of = _counts(claim)
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_SHADES[claim.leaning], edgecolor="white"))
    axes.text(column, row, f"{shown}/{of}", ha="center", va="center", fontsize=7.5, color="#222222")
