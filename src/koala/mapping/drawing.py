"""A mapping as a picture: DOT for Graphviz, and SVG that needs no other program.

Tasks have the colour of their cluster and stand in the box of their LAN, which has a tint and a frame of its own. The
thickness of a line shows the traffic, and lines between LANs are dashed.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from koala.mapping.result import TaskMapping
from koala.model.dendrogram import LAN, MAN, WAN, Dendrogram, FlatGrid
from koala.model.task_graph import TaskGraph

# Neighbouring numbers get distant colours: each is a golden section of the circle further.
_GOLDEN = (math.sqrt(5) - 1) / 2
_CLUSTER_HUE, _LAN_HUE = 0.58, 0.08

# All lengths of the SVG are in pixels.
_TASK_HEIGHT = 28
_TASK_PITCH = 84
_CHARACTER_WIDTH = 6.8
_MARGIN = 24
_TITLE_HEIGHT = 34
_LABEL_CHARACTERS = 10
_LINE_MIN, _LINE_MAX = 1.0, 6.0
_INK, _FAINT = "#1f2430", "#5b6270"
_FONT = "font-family='Helvetica, Arial, sans-serif'"


def cluster_colour(cluster: int) -> str:
    """Return the colour of a cluster's tasks, as #rrggbb."""
    return _colour(_CLUSTER_HUE + cluster * _GOLDEN, lightness=0.74, saturation=0.62)


def _lan_tint(number: int) -> str:
    return _colour(_LAN_HUE + number * _GOLDEN, lightness=0.965, saturation=0.55)


def _lan_frame(number: int) -> str:
    return _colour(_LAN_HUE + number * _GOLDEN, lightness=0.45, saturation=0.45)


def _colour(hue: float, *, lightness: float, saturation: float) -> str:
    channels = colorsys.hls_to_rgb(hue % 1.0, lightness, saturation)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


class _Scene(NamedTuple):
    """The content of both pictures: the LANs in use by index, their tasks, and the LAN, cluster and machine of each
    task."""

    graph: TaskGraph
    flat: FlatGrid
    tasks_of: dict[int, list[int]]
    lan_of: list[int]
    cluster_of: list[int]
    machine_of: list[str]
    homes: Sequence[int]

    @classmethod
    def of(cls, mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram) -> _Scene:
        flat = dendrogram.flat
        lan_of = [flat.machine_lan[machine] for machine in mapping.machines]
        cluster_of = [0] * len(lan_of)
        tasks_of: dict[int, list[int]] = {lan: [] for lan in sorted(set(lan_of))}
        for number, cluster in enumerate(mapping.clusters):
            for task in cluster:
                cluster_of[task] = number
        for task in _side_by_side(graph, mapping.clusters):
            tasks_of[lan_of[task]].append(task)
        names = [flat.machine_names[machine] for machine in mapping.machines]
        return cls(graph, flat, tasks_of, lan_of, cluster_of, names, mapping.homes)

    def place(self, lan: int) -> str:
        """Return the MAN and WAN around a LAN."""
        man = self.flat.levels[LAN].father[lan]
        wan = self.flat.levels[MAN].father[man]
        return f"{self.flat.levels[MAN].names[man]}, {self.flat.levels[WAN].names[wan]}"

    def widths(self) -> Iterator[float]:
        """Yield the width of each edge's line."""
        most = max((rqoc for _, _, rqoc in self.graph.edges), default=1.0)
        for _, _, rqoc in self.graph.edges:
            yield _LINE_MIN + (_LINE_MAX - _LINE_MIN) * rqoc / most

    def told(self, task: int) -> str:
        """Describe a task for a tooltip."""
        names = self.flat.levels[LAN].names
        need = self.graph.mcr * self.graph.rcr[task]
        return (
            f"{self.graph.names[task]}: needs {need:g} MFlop/s, cluster {self.cluster_of[task] + 1} of "
            f"{len(self.homes)} (home {names[self.homes[self.cluster_of[task]]]}), on {self.machine_of[task]} in "
            f"{names[self.lan_of[task]]}"
        )


def _side_by_side(graph: TaskGraph, clusters: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the tasks of each cluster in turn, each followed by the remaining one that it exchanges most with."""
    neighbours: list[list[tuple[float, int]]] = [[] for _ in graph.names]
    for one, other, rqoc in graph.edges:
        neighbours[one].append((-rqoc, other))
        neighbours[other].append((-rqoc, one))
    for cluster in clusters:
        waiting = dict.fromkeys(cluster)
        while waiting:
            task: int | None = next(iter(waiting))
            while task is not None:
                del waiting[task]
                yield task
                task = next((other for _, other in sorted(neighbours[task]) if other in waiting), None)


def dot(mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram) -> str:
    """Return the mapping in Graphviz's language; ``fdp`` and ``dot`` draw the LANs as boxes."""
    scene = _Scene.of(mapping, graph, dendrogram)
    lines = [
        "graph mapping {",
        '  layout=fdp; overlap=false; splines=true; fontname="Helvetica";',
        '  node [shape=ellipse, style=filled, fontname="Helvetica", fontsize=11];',
        '  edge [color="#5b6270"];',
    ]
    for number, (lan, tasks) in enumerate(scene.tasks_of.items()):
        label = f"{scene.flat.levels[LAN].names[lan]} ({scene.place(lan)})"
        lines += [
            f"  subgraph cluster_{number} {{",
            (
                f'    label={_quoted(label)}; style=filled; color="{_lan_frame(number)}"; '
                f'fillcolor="{_lan_tint(number)}";'
            ),
        ]
        for task in tasks:
            label = f"{graph.names[task]}\n{scene.machine_of[task]}"
            fill = cluster_colour(scene.cluster_of[task])
            lines.append(
                f"    {_quoted(graph.names[task])} [label={_quoted(label)}, "
                f'fillcolor="{fill}", tooltip={_quoted(scene.told(task))}];'
            )
        lines.append("  }")
    for (one, other, rqoc), width in zip(graph.edges, scene.widths(), strict=True):
        style = "" if scene.lan_of[one] == scene.lan_of[other] else ", style=dashed"
        ends = f"{_quoted(graph.names[one])} -- {_quoted(graph.names[other])}"
        lines.append(f'  {ends} [penwidth={width:.2f}, tooltip="rqoc {rqoc:g}"{style}];')
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class _Box(NamedTuple):
    """The box of a LAN: its corner, its size, and the positions of its tasks."""

    left: float
    top: float
    side: float
    spots: list[tuple[float, float]]


def svg(mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram) -> str:
    """Return the mapping as a complete SVG document, with descriptions of the tasks as tooltips."""
    scene = _Scene.of(mapping, graph, dendrogram)
    boxes, width, height = _laid_out([len(tasks) for tasks in scene.tasks_of.values()])
    where: dict[int, tuple[float, float]] = {}
    for box, tasks in zip(boxes, scene.tasks_of.values(), strict=True):
        where |= dict(zip(tasks, box.spots, strict=True))
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' "
            f"width='{width:.0f}' height='{height:.0f}' role='img' {_FONT}>"
        ),
        f"<title>{len(graph.names)} tasks in {len(mapping.clusters)} clusters on {len(scene.tasks_of)} LANs</title>",
        "<rect width='100%' height='100%' fill='#ffffff'/>",
    ]
    for number, (box, lan) in enumerate(zip(boxes, scene.tasks_of, strict=True)):
        parts += _drawn_box(box, number, scene.flat.levels[LAN].names[lan], scene.place(lan))
    parts += _drawn_edges(scene, where)
    for task, spot in where.items():
        parts += _drawn_task(scene, task, *spot)
    return "\n".join([*parts, "</svg>", ""])


def _laid_out(counts: Sequence[int]) -> tuple[list[_Box], float, float]:
    """Return boxes for these numbers of tasks, in rows that make about a square, and the total size."""
    sides = [_side(count) for count in counts]
    # As wide as a square of the same area, but never narrower than the widest box.
    row_width = max(math.sqrt(sum((side + _MARGIN) ** 2 for side in sides)) * 1.7, max(sides) + _MARGIN)
    boxes: list[_Box] = []
    left, top, row_height, width = float(_MARGIN), float(_MARGIN), 0.0, 0.0
    for count, side in zip(counts, sides, strict=True):
        if left > _MARGIN and left + side > row_width + _MARGIN:
            left, top, row_height = _MARGIN, top + row_height + _MARGIN + _TITLE_HEIGHT, 0.0
        boxes.append(_Box(left, top, side, _ring(count, left + side / 2, top + _TITLE_HEIGHT + side / 2)))
        left += side + _MARGIN
        row_height = max(row_height, side)
        width = max(width, left)
    return boxes, width, top + row_height + _MARGIN + _TITLE_HEIGHT


def _radius(count: int) -> float:
    """Return the radius of a ring on which this many tasks stand a pitch apart."""
    return 0.0 if count == 1 else max(_TASK_PITCH * 0.55, _TASK_PITCH / 2 / math.sin(math.pi / count))


def _side(count: int) -> float:
    return 2 * _radius(count) + _TASK_PITCH + _TASK_HEIGHT


def _ring(count: int, x: float, y: float) -> list[tuple[float, float]]:
    """Return the positions on a ring, where no line between two tasks passes over a third."""
    radius = _radius(count)
    turns = [2 * math.pi * number / count - math.pi / 2 for number in range(count)]
    return [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]


def _drawn_box(box: _Box, number: int, name: str, place: str) -> list[str]:
    fits = max(6, int(box.side / 7.5))
    return [
        (
            f"<rect x='{box.left:.1f}' y='{box.top:.1f}' width='{box.side:.1f}' "
            f"height='{box.side + _TITLE_HEIGHT:.1f}' "
            f"rx='10' fill='{_lan_tint(number)}' stroke='{_lan_frame(number)}' stroke-width='1.5'/>"
        ),
        (
            f"<text x='{box.left + 12:.1f}' y='{box.top + 20:.1f}' font-size='14' font-weight='bold' fill='{_INK}'>"
            f"{_short(name, fits)}</text>"
        ),
        (
            f"<text x='{box.left + 12:.1f}' y='{box.top + 35:.1f}' font-size='11' fill='{_FAINT}'>"
            f"{_short(place, fits)}</text>"
        ),
    ]


def _drawn_edges(scene: _Scene, where: dict[int, tuple[float, float]]) -> Iterator[str]:
    for (one, other, rqoc), width in zip(scene.graph.edges, scene.widths(), strict=True):
        (x1, y1), (x2, y2) = where[one], where[other]
        inside = scene.lan_of[one] == scene.lan_of[other]
        look = "stroke='#2b3140' stroke-opacity='0.55'"
        if not inside:
            look = "stroke='#b3261e' stroke-opacity='0.5' stroke-dasharray='7 5'"
        tip = escape(f"{scene.graph.names[one]} - {scene.graph.names[other]}: rqoc {rqoc:g}", quote=False)
        yield (
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' {look} stroke-width='{width:.2f}'>"
            f"<title>{tip}</title></line>"
        )


def _drawn_task(scene: _Scene, task: int, x: float, y: float) -> list[str]:
    # A white rim keeps labels readable where a line passes.
    rim = "paint-order='stroke' stroke='#ffffff' stroke-width='3' stroke-linejoin='round'"
    middle = f"x='{x:.1f}' text-anchor='middle'"
    label = _short(scene.graph.names[task], _LABEL_CHARACTERS)
    width = max(_TASK_HEIGHT, _CHARACTER_WIDTH * min(len(scene.graph.names[task]), _LABEL_CHARACTERS) + 16)
    machine = _short(scene.machine_of[task], _LABEL_CHARACTERS + 2)
    return [
        f"<g><title>{escape(scene.told(task), quote=False)}</title>",
        (
            f"<rect x='{x - width / 2:.1f}' y='{y - _TASK_HEIGHT / 2:.1f}' width='{width:.1f}' "
            f"height='{_TASK_HEIGHT}' "
            f"rx='{_TASK_HEIGHT / 2}' fill='{cluster_colour(scene.cluster_of[task])}' stroke='{_INK}'/>"
        ),
        f"<text {middle} y='{y + 4:.1f}' font-size='12' fill='{_INK}'>{label}</text>",
        f"<text {middle} y='{y + _TASK_HEIGHT / 2 + 12:.1f}' font-size='10' fill='{_FAINT}' {rim}>{machine}</text>",
        "</g>",
    ]


def _short(text: str, characters: int) -> str:
    kept = text if len(text) <= characters else text[: characters - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return escape(kept, quote=False)
