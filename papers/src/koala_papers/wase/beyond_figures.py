"""Figures on the extensions of the paper on WASE: methods side by side, spawned tasks, and the optimum."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from koala.study import NEUTRAL, Interval, ReportFigure, Series, Style, grouped_bars, mean_interval
from koala_papers.wase.beyond import solved
from koala_papers.wase.data import WaseData
from koala_papers.wase.figures import HIT_LABEL, STYLES, TASKS_LABEL, by_tasks, category_lines, texts_of
from koala_papers.wase.spawning import ANYWHERE, NEAR
from koala_papers.wase.trials import ALL, FAR, GREEDY, SOFT, WASE, WHOLE

if TYPE_CHECKING:
    from koala_papers.wase.data import Column

SHOWN = (WASE, WHOLE, FAR, SOFT, ALL)


def figures(data: WaseData) -> list[ReportFigure]:
    """Return all figures; the optimum only if it was computed."""
    seeds = f"Means over {len(data.seeds)} seeds with 95 % confidence intervals."
    found = [_hits(data, seeds), _carried(data, seeds), _spawned(data, seeds)]
    return [*found, _bound(data)] if data.bounds else found


def _where_wase_mapped(data: WaseData, method: str, measure: str) -> Column:
    """Return a share in per cent on the trials that WASE mapped, nothing elsewhere: those are harder."""
    import numpy

    return numpy.where(data.failed(WASE) == 0, 100.0 * data.column(method, measure), numpy.nan)


def _series(data: WaseData, measure: str) -> list[Series]:
    return [by_tasks(data, name, STYLES[name], _where_wase_mapped(data, name, measure)) for name in SHOWN]


def _hits(data: WaseData, seeds: str) -> ReportFigure:
    panels = {"over clusters": _series(data, "lan_hit"), "over tasks": _series(data, "tasks_at_home")}
    texts = texts_of(data.parameters.tasks)
    return ReportFigure(
        "beyond-lan-hit",
        "LAN hit ratio of the methods beyond the paper",
        "On the trials that WASE mapped. The methods beyond it keep the same clusters whole, so their lines lie on "
        f"each other. {seeds}",
        partial(category_lines, panels, texts, TASKS_LABEL, HIT_LABEL, y_range=(70.0, 101.0)),
    )


def _carried(data: WaseData, seeds: str) -> ReportFigure:
    return ReportFigure(
        "beyond-carried",
        "Communication that the links carry",
        f"An edge of RQoC 1 needs {data.parameters.mbit_s_per_rqoc:g} Mbit/s between LANs; each is cut down by the "
        f"most loaded uplink on its way. On the trials that WASE mapped. {seeds}",
        partial(
            grouped_bars,
            {"": _series(data, "carried")},
            TASKS_LABEL,
            "communication carried (%)",
            places=range(len(data.parameters.tasks)),
            texts=texts_of(data.parameters.tasks),
        ),
    )


def _spawned(data: WaseData, seeds: str) -> ReportFigure:
    looks = {
        WHOLE: ("all known at the start", STYLES[WHOLE]),
        NEAR: ("near their partners", Style("#0072b2", "o")),
        ANYWHERE: ("wherever they fit", STYLES[GREEDY]),
    }
    series = [
        by_tasks(data, name, style, 100.0 * data.column(method, "inter_lan"))
        for method, (name, style) in looks.items()
    ]
    share = 100 * data.parameters.spawned_share
    return ReportFigure(
        "beyond-spawned",
        "Tasks that come while the application runs",
        f"Communication between LANs where {share:g} % of the tasks come later and nothing moves. {seeds}",
        partial(
            category_lines,
            {"": series},
            texts_of(data.parameters.tasks),
            TASKS_LABEL,
            "communication between LANs (%)",
        ),
    )


def _bound(data: WaseData) -> ReportFigure:
    sizes = sorted({row["tasks"] for row in data.bounds})
    seeds = len({row["seed"] for row in data.bounds})
    panels = {
        title: [
            Series(
                label,
                style,
                {
                    number: interval
                    for number, tasks in enumerate(sizes)
                    if (interval := _bound_mean(data, measure, tasks, key)) is not None
                },
            )
            for key, label, style in (
                (GREEDY, "greedy", STYLES[GREEDY]),
                (WASE, "WASE", STYLES[WASE]),
                (WHOLE, WHOLE, STYLES[WHOLE]),
                ("value", "best found", NEUTRAL[1]),
                ("bound", "bound", NEUTRAL[2]),
            )
        ]
        for title, measure in {"LAN hit ratio (%)": "lan_hit", "between LANs (%)": "inter_lan"}.items()
    }
    count, optimal = solved(data, "lan_hit")
    return ReportFigure(
        "beyond-bound",
        "The best that any mapping can do",
        f"Mapping by optimisation on {min(data.parameters.machines)} machines, where all three methods found a "
        f"mapping. The best LAN hit ratio is proven for {optimal} of {count} instances, the least communication for "
        f"{solved(data, 'inter_lan')[1]}; for the others the truth lies between bound and best found. Means over "
        f"{seeds} seeds with 95 % confidence intervals.",
        partial(category_lines, panels, texts_of(sizes), TASKS_LABEL, "%", y_range=(-2.0, 103.0)),
    )


def _bound_mean(data: WaseData, measure: str, tasks: int, key: str) -> Interval | None:
    """Return the mean over instances of one size that WASE, greedy and wase-whole mapped."""
    by_seed: dict[int, list[float]] = {}
    for row in data.bounds:
        found = row[measure]
        if row["tasks"] == tasks and len(found["methods"]) == 3:
            value = found[key] if key in ("value", "bound") else found["methods"][key]
            by_seed.setdefault(row["seed"], []).append(100.0 * value)
    means = [sum(values) / len(values) for values in by_seed.values()]
    return mean_interval(means) if means else None
