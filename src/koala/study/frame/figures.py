"""The house style of every figure: one colour and marker for each policy everywhere, error bars, legends outside.

A ``ReportFigure`` draws itself; ``save`` writes it as PNG and as SVG with text as text. The same data give the same
bytes. Figures receive plain numbers and intervals, which each experiment chooses.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.study.frame.claims import decimals
from koala.study.frame.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_DPI = 150
PANEL_INCHES = (2.9, 2.75)
_CAP_POINTS = 3.0
_GROUP_WIDTH = 0.8
# At most this many names fit side by side above a figure.
_LEGEND_COLUMNS = 4
# Room above the highest bar and its error bar, as a share of the axis, for its number.
_ROOM_ABOVE = 0.12


class Style(NamedTuple):
    """The look of one thing in every figure.

    >>> from koala.study import Style
    >>> Style("#0072b2", "o").line
    '-'
    """

    colour: str
    marker: str
    line: str = "-"


# Distinct for people who do not see all colours, and by marker in print without any.
POLICIES: dict[str, Style] = {
    "WF": Style("#d55e00", "s"),
    "CM": Style("#0072b2", "o"),
    "FCM": Style("#009e73", "^"),
    "CF": Style("#cc79a7", "D"),
    "NCM": Style("#56b4e9", "v"),
    "NFCM": Style("#1b7837", ">"),
    "FCF": Style("#7a5195", "P"),
    # Class A in blue, class B in warm colours, B3 in green, and their bounds in grey.
    "Ideal": Style("#111111", "_", "--"),
    "Migration-Only": Style("#707070", "|", ":"),
    "Initial": Style("#a6761d", "x"),
    "A1": Style("#08519c", "p"),
    "A2": Style("#35a1e0", "h"),
    "B1": Style("#e6550d", "8"),
    "B2": Style("#f0a30a", "d"),
    "B3": Style("#2f9e44", "H"),
    "B4": Style("#b3123c", "4"),
    "B5": Style("#8e44ad", "*"),
}
# For other policies; the choice depends on the policy's name alone.
_OTHERS = (
    Style("#b8860b", "X"),
    Style("#8c564b", "<"),
    Style("#800026", "*"),
)
# For series that are no policies: workloads, sizes, sites. Greys, so that they suggest no policy.
NEUTRAL: tuple[Style, ...] = (
    Style("#8a8a8a", "o", "--"),
    Style("#222222", "s", "-"),
    Style("#5c5c5c", "^", ":"),
    Style("#b0b0b0", "D", "-."),
)

_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
}


class ReportFigure(NamedTuple):
    """A figure of a report: ``name`` is that of its files, ``caption`` describes it and its number of seeds.

    >>> from koala.study import ReportFigure, bars, mean_interval
    >>> waits = {"WF": mean_interval([4.0, 5.0, 6.0])}
    >>> figure = ReportFigure("waits", "Waiting", "Means of 3 seeds.", lambda: bars({"": waits}, "wait (s)"))
    >>> len(figure.draw().axes)
    1
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]

    def _repr_svg_(self) -> str:
        """Return its display in a notebook."""
        return svg_text(self)


class Series(NamedTuple):
    """One line or one set of bars: its name, its look, and its values by place, a number, on the x axis.

    >>> from koala.study import Series, mean_interval, style_of
    >>> Series("WF", style_of("WF"), {16: mean_interval([4.0, 5.0, 6.0])}).points[16].mean
    5.0
    """

    label: str
    style: Style
    points: dict[Any, Interval]


def style_of(policy: str) -> Style:
    """Return the look of a policy, the same in every figure of every report.

    >>> from koala.study import style_of
    >>> style_of("WF") == style_of("CM")
    False
    """
    known = POLICIES.get(policy)
    if known is not None:
        return known
    return _OTHERS[hashlib.sha256(policy.encode()).digest()[0] % len(_OTHERS)]


@contextmanager
def house_style(salt: str = "koala") -> Iterator[None]:
    """Draw and save inside this context. The salt makes the ids inside an SVG reproducible, and distinct between
    figures."""
    import matplotlib

    style: Any = {**_RC, "svg.hashsalt": salt}
    with matplotlib.rc_context(style):
        yield


def new_figure(panels: int = 1, *, shared_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with panels side by side; it needs no screen.

    >>> from koala.study import new_figure
    >>> figure, axes = new_figure(2)
    >>> len(axes)
    2
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    # A lone panel is as wide as two, so that text has the same size in all figures of a page.
    figure = Figure(figsize=(width * max(panels, 2), height))
    FigureCanvasAgg(figure)
    if not panels:
        return figure, []
    axes = figure.subplots(1, panels, sharey=shared_y, squeeze=False)
    return figure, list(axes[0])


def new_grid(panels: int, columns: int, height: float, *, shared_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with panels in rows of ``columns``, each of the given height in inches.

    >>> from koala.study import new_grid
    >>> figure, axes = new_grid(5, columns=2, height=2.0)
    >>> len(axes)
    5
    """
    figure, _ = new_figure(0)
    rows = -(-panels // columns)
    figure.set_size_inches(PANEL_INCHES[0] * 2, height * rows)
    axes = figure.subplots(rows, columns, sharey=shared_y, squeeze=False).ravel().tolist()
    for spare in axes[panels:]:
        spare.remove()
    return figure, axes[:panels]


def legend(figure: Figure, axes: Axes, columns: int | None = None) -> None:
    """Add one legend for all panels, above them, where it hides nothing; in one row unless ``columns`` is given.

    >>> from koala.study import legend, new_figure
    >>> figure, (axes,) = new_figure()
    >>> _ = axes.plot([1, 2], [3, 4], label="WF")
    >>> legend(figure, axes)
    >>> len(figure.legends)
    1
    """
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns or len(labels))


def _from_zero(all_axes: Sequence[Axes], room_above: float = 0.05) -> None:
    """Let the y axes begin at zero and contain everything drawn. Panels that share one must all be drawn by then."""
    for axes in all_axes:
        axes.margins(y=room_above)
        axes.autoscale_view(scalex=False)
    for axes in all_axes:
        axes.set_ylim(bottom=0)


def error_bars(axes: Axes, x: float, interval: Interval, **look: Any) -> None:
    """Draw the confidence interval at one place, if there is one.

    >>> from koala.study import error_bars, mean_interval, new_figure
    >>> figure, (axes,) = new_figure()
    >>> error_bars(axes, 16, mean_interval([4.0, 5.0, 6.0]), color="black")
    >>> len(axes.containers)
    1
    """
    if interval.bounded:
        above_below = [[interval.mean - interval.low], [interval.high - interval.mean]]
        axes.errorbar(x, interval.mean, yerr=above_below, fmt="none", capsize=_CAP_POINTS, **look)


def bars(
    panels: Mapping[str, Mapping[str, Interval]],
    ylabel: str,
    *,
    xlabel: str = "",
    looks: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """Return one panel for each workload, all on one scale, with one bar for each policy and its value above.

    ``looks`` names the policy whose look a bar has, if that is not its label.

    >>> from koala.study import bars, mean_interval
    >>> figure = bars({"W1": {"WF": mean_interval([4.0, 5.0, 6.0]), "CM": mean_interval([3.0, 4.0])}}, "wait (s)")
    >>> figure.axes[0].get_ylabel()
    'wait (s)'
    """
    figure, all_axes = new_figure(len(panels), shared_y=True)
    for axes, (title, by_policy) in zip(all_axes, panels.items(), strict=True):
        for place, (policy, interval) in enumerate(by_policy.items()):
            axes.bar(place, interval.mean, 0.62, color=style_of(looks.get(policy, policy)).colour)
            error_bars(axes, place, interval, ecolor="#222222", elinewidth=1.1)
            top = interval.high if interval.bounded else interval.mean
            axes.annotate(
                f"{interval.mean:.{min(2, decimals(interval))}f}",
                (place, top),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        axes.set_xticks(range(len(by_policy)), list(by_policy))
        axes.set_xlim(-0.6, len(by_policy) - 0.4)
        axes.set_title(title)
        axes.set_xlabel(xlabel)
        axes.tick_params(axis="x", length=0)
    all_axes[0].set_ylabel(ylabel)
    _from_zero(all_axes, _ROOM_ABOVE)
    return figure


def grouped_bars(
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    *,
    places: Sequence[int],
    texts: Sequence[str] | None = None,
    marks: Sequence[float] = (),
) -> Figure:
    """Return a bar for each series at each place of the x axis, in a panel for each workload, on one scale.

    ``texts`` name the places if their numbers do not; ``marks`` are heights to compare with.

    >>> from koala.study import Series, grouped_bars, mean_interval, style_of
    >>> points = {16: mean_interval([4.0, 5.0]), 32: mean_interval([6.0, 7.0])}
    >>> series = [Series("WF", style_of("WF"), points)]
    >>> figure = grouped_bars({"": series}, "processors", "wait (s)", places=[16, 32])
    >>> figure.axes[0].get_xlabel()
    'processors'
    """
    figure, all_axes = new_figure(len(panels), shared_y=True)
    for axes, (title, series) in zip(all_axes, panels.items(), strict=True):
        width = _GROUP_WIDTH / len(series)
        for number, each in enumerate(series):
            shift = (number - (len(series) - 1) / 2) * width
            heights = [each.points[place].mean if place in each.points else 0.0 for place in places]
            spots = [place + shift for place in places]
            axes.bar(spots, heights, width * 0.92, color=each.style.colour, label=each.label)
            for place, spot in zip(places, spots, strict=True):
                if place in each.points:
                    error_bars(axes, spot, each.points[place], ecolor="#222222", elinewidth=0.9)
        for height in marks:
            axes.axhline(height, color="#444444", linewidth=0.9, linestyle="--", zorder=3)
        axes.set_xticks(list(places), texts)
        axes.set_title(title)
        axes.set_xlabel(xlabel)
        axes.tick_params(axis="x", length=0)
    all_axes[0].set_ylabel(ylabel)
    _from_zero(all_axes)
    legend(figure, all_axes[0])
    return figure


def lines(panels: Mapping[str, Sequence[Series]], xlabel: str, ylabel: str, *, whole_x: bool = True) -> Figure:
    """Return lines with markers and error bars, in a panel for each title, on one scale; ``whole_x`` puts ticks at
    whole numbers only.

    >>> from koala.study import Series, lines, mean_interval, style_of
    >>> points = {16: mean_interval([4.0, 5.0]), 32: mean_interval([6.0, 7.0])}
    >>> figure = lines({"": [Series("WF", style_of("WF"), points)]}, "processors", "wait (s)")
    >>> figure.axes[0].get_xlabel()
    'processors'
    """
    from matplotlib.ticker import MaxNLocator

    figure, all_axes = new_figure(len(panels), shared_y=True)
    fullest = max(panels, key=lambda title: len(panels[title]))
    for axes, (title, series) in zip(all_axes, panels.items(), strict=True):
        for each in series:
            places = sorted(each.points)
            look = each.style
            means = [each.points[place].mean for place in places]
            axes.plot(places, means, look.line, color=look.colour, marker=look.marker, label=each.label)
            for place in places:
                error_bars(axes, place, each.points[place], ecolor=look.colour, elinewidth=1.1)
        axes.margins(x=0.08)
        if whole_x:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if title:
            axes.set_title(title)
        axes.set_xlabel(xlabel)
    all_axes[0].set_ylabel(ylabel)
    _from_zero(all_axes)
    legend(figure, all_axes[list(panels).index(fullest)])
    return figure


def bands(
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    *,
    levels: Sequence[Series] = (),
    y_range: tuple[float, float] | None = None,
) -> Figure:
    """Return lines with their confidence intervals as bands, in a panel for each title, on one scale.

    ``levels`` are constant and have one point: lines across all panels, named at the end of the legend. The y axis
    need not begin at zero; values outside ``y_range`` are cut off.

    >>> from koala.study import Series, bands, mean_interval, style_of
    >>> points = {16: mean_interval([4.0, 5.0]), 32: mean_interval([6.0, 7.0])}
    >>> figure = bands({"": [Series("WF", style_of("WF"), points)]}, "processors", "wait (s)")
    >>> figure.axes[0].get_xlabel()
    'processors'
    """
    figure, all_axes = new_figure(len(panels), shared_y=True)
    for axes, (title, series) in zip(all_axes, panels.items(), strict=True):
        for each in series:
            places = sorted(each.points)
            look = each.style
            points = [each.points[place] for place in places]
            means = [point.mean for point in points]
            axes.plot(places, means, look.line, color=look.colour, marker=look.marker, label=each.label)
            if all(point.bounded for point in points):
                low, high = [point.low for point in points], [point.high for point in points]
                axes.fill_between(places, low, high, color=look.colour, alpha=0.15, linewidth=0)
        for each in levels:
            (point,) = each.points.values()
            axes.axhline(point.mean, color=each.style.colour, linestyle=each.style.line, label=each.label, zorder=1.5)
            if point.bounded:
                axes.axhspan(point.low, point.high, color=each.style.colour, alpha=0.08, linewidth=0)
        axes.margins(x=0.03)
        if title:
            axes.set_title(title)
        axes.set_xlabel(xlabel)
    all_axes[0].set_ylabel(ylabel)
    if y_range is not None:
        all_axes[0].set_ylim(*y_range)
    legend(figure, all_axes[0], _LEGEND_COLUMNS)
    return figure


def svg_text(picture: ReportFigure) -> str:
    """Return the picture as SVG, without the date and the names that would change the file each time."""
    with house_style(picture.name):
        return _laid_out(picture.draw())


def _laid_out(figure: Figure) -> str:
    """Return the figure as SVG, which lays it out. ``savefig`` would draw it once more for that."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(text, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def save(picture: ReportFigure, folder: Path) -> tuple[Path, Path]:
    """Write the picture as PNG and SVG under its name, and return both paths. Both have the same layout."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    png, svg = folder / f"{picture.name}.png", folder / f"{picture.name}.svg"
    with house_style(picture.name):
        figure = picture.draw()
        svg.write_text(_laid_out(figure), encoding="utf-8")
        figure.set_layout_engine("none")
        figure.set_dpi(PNG_DPI)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.print_png(png, metadata={"Software": None})
    return png, svg


# ------------------------------------------------------------------------------------------- surfaces

# Blue is better than the level and red is worse, also for people who do not see all colours.
_COLOURS = "RdBu_r"
# Numbers are white on fields that are darker than this.
_DARK = 0.32


class Scale(NamedTuple):
    """The meaning of the colours: from ``least`` to ``most``, with neither colour at ``level``. Values beyond are
    clipped.

    >>> from koala.study import Scale
    >>> Scale(least=-10.0, level=0.0, most=10.0).level
    0.0
    """

    least: float
    level: float
    most: float


def surface(
    fields: Mapping[tuple[float, float], float],
    scale: Scale,
    labels: tuple[str, str, str],
    *,
    texts: tuple[Sequence[str], Sequence[str]],
) -> Figure:
    """Return a map of the fields by (x, y), all of one size; ``labels`` are of x, y and the colours.

    ``texts`` are those of the places on the two axes, in order.

    >>> from koala.study import Scale, surface
    >>> fields = {(x, y): x - y for x in (1.0, 2.0) for y in (1.0, 2.0)}
    >>> labels = ("threshold", "load", "gain (s)")
    >>> figure = surface(fields, Scale(-1.0, 0.0, 1.0), labels, texts=(("1", "2"), ("1", "2")))
    >>> figure.axes[0].get_xlabel()
    'threshold'
    """
    from matplotlib.colors import TwoSlopeNorm

    across = sorted({x for x, _ in fields})
    up = sorted({y for _, y in fields})
    norm = TwoSlopeNorm(vmin=scale.least, vcenter=scale.level, vmax=scale.most)
    figure, (axes,) = new_figure()
    values = [[fields[x, y] for x in across] for y in up]
    image = axes.imshow(values, cmap=_COLOURS, norm=norm, origin="lower", aspect="auto")
    for row, y in enumerate(up):
        for column, x in enumerate(across):
            shade = float(norm(fields[x, y]))
            colour = "white" if abs(shade - 0.5) > _DARK else "#222222"
            axes.text(column, row, _short(fields[x, y]), ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_xticks(range(len(across)), list(texts[0]))
    axes.set_yticks(range(len(up)), list(texts[1]))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.02, fraction=0.06)
    bar.set_label(labels[2])
    bar.set_ticks([scale.least, scale.level, scale.most], labels=[f"{value:.0f}" for value in scale])
    bar.outline.set_visible(False)
    return figure


def _short(value: float) -> str:
    """Return a number with at most four digits."""
    if value < 9_999.5:
        return f"{value:.0f}"
    return f"{value / 1000:.0f}k" if value < 999_500 else f"{value / 1e6:.1f}M"
