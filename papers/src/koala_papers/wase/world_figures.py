"""Pictures of the world of the mapping study: a grid of Tiers, and the loads over time."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from koala.mapping import MAN_SIDE_KM, LoadModel, LoadSeries, NodePosition, Topology
from koala.study import ReportFigure, legend, new_figure
from koala_papers.wase.data import WaseData
from koala_papers.wase.parameters import TIERS
from koala_papers.wase.worlds import tiers_grid_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WAN = "#222222"
_MAN = "#0072b2"
_LAN = "#d55e00"
_HOURS = 4
_STEP_S = 30
_LAG_STEPS = 120
_SERIES = 3
_LINES = 100
_ORDERED = ("#0072b2", "#d55e00", "#222222")


def figures(data: WaseData) -> list[ReportFigure]:
    """Return both figures; none for evenly nested grids."""
    parameters = data.parameters
    if parameters.topology != TIERS or not data.seeds:
        return []
    sizes = parameters.machines[len(parameters.machines) // 2], min(parameters.machines_per_lan)
    topology = tiers_grid_of(parameters, data.seeds[0], *sizes).topology
    model = LoadModel(mean=parameters.load, deviation=parameters.load_deviation)
    return [
        ReportFigure(
            "world-tiers",
            "A grid as Tiers makes it",
            f"{sizes[0]} machines in LANs of {sizes[1]}, seed {data.seeds[0]}: the whole, and one MAN with the "
            "routers of its LANs. Lines are links.",
            partial(_network, topology),
        ),
        ReportFigure(
            "world-loads",
            "Loads over time",
            f"{_SERIES} machines over {_HOURS} hours, and how much the load of a machine is like its own some time "
            f"later, on average over {_LINES} machines.",
            partial(_loads, model),
        ),
    ]


def _links(axes: Axes, places: tuple[NodePosition, ...], links: tuple[tuple[int, int], ...], colour: str) -> None:
    for link in links:
        ends = [places[node] for node in link]
        axes.plot([end.x_km for end in ends], [end.y_km for end in ends], color=colour, linewidth=0.9, zorder=1)


def _nodes(axes: Axes, places: list[NodePosition], colour: str, marker: str, label: str) -> None:
    size = 16 if marker == "o" else 26
    axes.scatter(
        [place.x_km for place in places],
        [place.y_km for place in places],
        s=size,
        marker=marker,
        color=colour,
        label=label,
        zorder=2,
    )


def _network(topology: Topology) -> Figure:
    figure, (whole, one) = new_figure(2)
    places = topology.places
    for axes in (whole, one):
        _links(axes, places, topology.wan.links, _WAN)
        for man in topology.mans:
            _links(axes, places, man.links, _MAN)
            _links(axes, places, man.uplinks, _WAN)
        for lan in topology.lans:
            _links(axes, places, lan.uplinks, _LAN)
        _nodes(axes, [places[node] for node in topology.wan.nodes], _WAN, "s", "WAN")
        _nodes(axes, [places[node] for man in topology.mans for node in man.nodes], _MAN, "o", "MAN")
        _nodes(axes, [places[lan.nodes[0]] for lan in topology.lans], _LAN, "^", "router of a LAN")
        axes.set_xlabel("km")
        axes.grid(visible=False)
        axes.set_aspect("equal")
    whole.set_title("the whole")
    one.set_title("one MAN")
    middle = [places[node] for node in topology.mans[0].nodes]
    x_km = sum(place.x_km for place in middle) / len(middle)
    y_km = sum(place.y_km for place in middle) / len(middle)
    one.set_xlim(x_km - 0.7 * MAN_SIDE_KM, x_km + 0.7 * MAN_SIDE_KM)
    one.set_ylim(y_km - 0.7 * MAN_SIDE_KM, y_km + 0.7 * MAN_SIDE_KM)
    whole.set_ylabel("km")
    legend(figure, whole)
    return figure


def _loads(model: LoadModel) -> Figure:
    figure, (over_time, alike) = new_figure(2)
    times_s = range(0, _HOURS * 3600, _STEP_S)
    series = [LoadSeries(model, Random(f"picture {number}")) for number in range(_LINES)]
    columns = [[each.at(time_s) for time_s in times_s] for each in series]
    hours = [time_s / 3600 for time_s in times_s]
    for column, colour in zip(columns[:_SERIES], _ORDERED, strict=False):
        over_time.plot(hours, [100 * load for load in column], color=colour, linewidth=0.9)
    over_time.set_xlabel("hours")
    over_time.set_ylabel("load (%)")
    over_time.set_ylim(0, None)
    around = [[load - each.mean for load in column] for each, column in zip(series, columns, strict=True)]
    alike.plot([_STEP_S * lag / 60 for lag in range(_LAG_STEPS)], _autocorrelations(around), color=_MAN)
    alike.axhline(0, color="#999999", linewidth=0.8)
    alike.set_xlabel("minutes later")
    alike.set_ylabel("autocorrelation")
    return figure


def _autocorrelations(around: list[list[float]]) -> list[float]:
    """Return for each lag the mean over series of products of the deviations from the mean."""
    import numpy

    rows = numpy.array(around)
    bottom = float((rows * rows).mean())
    means = (float((rows[:, : rows.shape[1] - lag] * rows[:, lag:]).mean()) for lag in range(_LAG_STEPS))
    return [mean / bottom if bottom else 1.0 for mean in means]
