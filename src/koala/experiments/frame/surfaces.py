"""Surfaces as maps: a field for every pair of values, coloured by how it compares with a level and with its number.

A part of the house style of figures; lines and bars are in ``koala.experiments.frame.figures``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from koala.experiments.frame.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Blue is better than the level and red is worse, also for people who do not see all colours.
_COLOURS = "RdBu_r"
# On fields as dark as this, numbers are white.
_DARK = 0.32


class Scale(NamedTuple):
    """What the colours mean: from ``least`` to ``most``, with neither colour at ``level``. Beyond, they stay."""

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
    """A map of the fields by (x, y), which are evenly spaced; ``labels`` are of x, y and the colours.

    ``texts`` are those of the places on the two axes, in order.
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
    """Four digits at most."""
    if value < 9_999.5:
        return f"{value:.0f}"
    return f"{value / 1000:.0f}k" if value < 999_500 else f"{value / 1e6:.1f}M"
