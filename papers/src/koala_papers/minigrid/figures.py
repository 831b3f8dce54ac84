"""The figures of the paper on mini-grids, drawn from the new results, and further ones.

Figure 5, the surfaces of figures 7 to 12 and the lines of figures 13 to 18 are the paper's; then come B3 over its
chunk, the load of the links, mixed bandwidths, other patterns, and islands behind shared links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from koala.study import (
    Interval,
    ReportFigure,
    Scale,
    Series,
    Style,
    bands,
    bars,
    grouped_bars,
    mean_interval,
    style_of,
    surface,
)
from koala_papers.minigrid.cases import (
    CHUNKS_TO_THE_ENDS,
    FULL_LSLT,
    HIGH_BSBW,
    IDEAL,
    INITIAL,
    ISLAND_BSBWS,
    ISLANDS,
    LOW_BSBW,
    MIGRATION_ONLY,
    MIXED,
    OWN_A,
    OWN_B,
    PATTERN_BSBW,
    PATTERNS,
    PLAIN_MODULES,
    SELECTED,
    STAR,
    MiniGridCase,
    alone,
    at,
    chunked,
    mixed,
    selected,
    surface_bandwidths,
    surface_modules,
)
from koala_papers.minigrid.data import MiniGridData
from koala_papers.minigrid.duels import bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BSBW_LABEL = "bisection bandwidth (Mbit/s)"
LSLT_LABEL = "threshold on links, LSLT (%)"
TURNAROUND_LABEL = "mean turnaround (s)"
# The chunk that represents B3 in comparisons of all modules.
SHOWN_CHUNK = 0.85
# The axis of turnaround ends at this multiple of Migration-Only's: much worse values are cut off.
CUT_OFF = 1.75
# B3 by its chunk: from light to dark.
_GREENS = ("#a1d99b", "#74c476", "#41ab5d", "#238b45", "#005a32", "#00290f")
_MARKERS = ("o", "v", "s", "D", "^", "P")

# The paper's names of the modules; B3 by its chunk follows them.
MODULE_TITLES = {
    "A1": "A1, satisfy",
    "B1": "B1, largest free first",
    "B2": "B2, least saturated link first",
    "B4": "B4, load balancing",
}
FIRST_SURFACE = 7


def figures(data: MiniGridData) -> list[ReportFigure]:
    """Return all figures, in the order of the paper."""
    return [_initial(data), *_surfaces(data), *_lines(data), *_beyond(data)]


def _words(seeds: Sequence[int], how: str = "bands") -> str:
    """Return the number of seeds behind a figure."""
    return "One seed." if len(seeds) == 1 else f"Means over {len(seeds)} seeds with 95 % confidence {how}."


def _series(
    data: MiniGridData, label: str, style: Style, cases: dict[float, MiniGridCase], seeds: Sequence[int] | None
) -> Series:
    there = {place: case for place, case in cases.items() if data.has(case)}
    return Series(label, style, {place: data.interval(case, seeds=seeds) for place, case in there.items()})


def _chunk_style(data: MiniGridData, chunk: float) -> Style:
    number = data.parameters.chunks.index(chunk) % len(_GREENS)
    return Style(_GREENS[number], _MARKERS[number])


def _turnaround(data: MiniGridData, series: Sequence[Series], seeds: Sequence[int], xlabel: str) -> Figure:
    """Return lines of turnaround between the bounds: from a little below Ideal to the longest, or to the cut-off."""
    levels = bounds(data, seeds)
    least, migration = (level.points[0].mean for level in levels)
    longest = max(point.mean for each in series for point in each.points.values())
    y_range = (0.95 * least, min(CUT_OFF * migration, 1.03 * max(longest, migration)))
    return bands({"": series}, xlabel, TURNAROUND_LABEL, levels=levels, y_range=y_range)


def _shown(data: MiniGridData) -> float:
    chunks = data.parameters.chunks
    return SHOWN_CHUNK if SHOWN_CHUNK in chunks else chunks[-1]


# ------------------------------------------------------------------------------------ the paper's figures


def _initial(data: MiniGridData) -> ReportFigure:
    lines = {policy: {bsbw: at(policy, bsbw) for bsbw in data.parameters.bsbw} for policy in ("A1", "B1")}
    initial = {bsbw: at(INITIAL, bsbw, None) for bsbw in data.parameters.bsbw}
    lines[INITIAL] = {bsbw: case for bsbw, case in initial.items() if data.has(case)}
    seeds = data.shared_seeds(case for cases in lines.values() for case in cases.values())
    series = [_series(data, policy, style_of(policy), lines[policy], seeds) for policy in (INITIAL, "A1", "B1")]
    lost = [f"{bsbw:g}" for bsbw, case in initial.items() if data.has(case) and not data.is_steady(case)]
    beyond = f" Initial has no steady state at {', '.join(lost)} Mbit/s and leaves the figure." if lost else ""
    return ReportFigure(
        "figure-05",
        "Co-allocation with and without an eye on links (figure 5 of the paper)",
        f"A1 and B1 at a threshold of 100 %. {_words(seeds)}{beyond}",
        partial(_turnaround, data, series, seeds, BSBW_LABEL),
    )


def _surfaces(data: MiniGridData) -> list[ReportFigure]:
    pictures = []
    titles = MODULE_TITLES | {chunked(chunk): f"B3, a chunk of {100 * chunk:g} %" for chunk in data.parameters.chunks}
    for number, policy in enumerate(surface_modules(data.parameters), FIRST_SURFACE):
        name, title = f"figure-{number:02}", f"{titles[policy]} (figure {number} of the paper)"
        cases = {
            (bsbw, lslt): at(policy, bsbw, lslt)
            for bsbw in surface_bandwidths(data.parameters)
            for lslt in data.parameters.lslt
        }
        if all(map(data.has, cases.values())):
            seeds = data.shared_seeds(cases.values())
            caption = (
                f"Mean turnaround in seconds over {len(seeds)} seed{'' if len(seeds) == 1 else 's'}. Blue is better "
                "than Migration-Only, red is worse; darkest blue is Ideal, darkest red half as long again or more."
            )
            pictures.append(ReportFigure(name, title, caption, partial(_surface, data, cases, seeds)))
    return pictures


def _surface(data: MiniGridData, cases: dict[tuple[float, float], MiniGridCase], seeds: Sequence[int]) -> Figure:
    least, level = (bound.points[0].mean for bound in bounds(data, seeds))
    across, up = (sorted({place[axis] for place in cases}) for axis in (0, 1))
    return surface(
        {place: data.interval(case, seeds=seeds).mean for place, case in cases.items()},
        Scale(least, level, 1.5 * level),
        (BSBW_LABEL, LSLT_LABEL, TURNAROUND_LABEL),
        texts=([f"{bsbw:g}" for bsbw in across], [f"{100 * lslt:.0f}" for lslt in up]),
    )


def _compared(data: MiniGridData) -> list[tuple[str, str, Style]]:
    """Return the modules of a comparison: name of the policy, label, look."""
    shown = _shown(data)
    return [
        *((policy, policy, style_of(policy)) for policy in PLAIN_MODULES),
        (chunked(shown), f"B3 ({100 * shown:g} %)", style_of("B3")),
    ]


def _chunks_compared(data: MiniGridData) -> list[tuple[str, str, Style]]:
    return [
        *((chunked(chunk), f"B3 ({100 * chunk:g} %)", _chunk_style(data, chunk)) for chunk in data.parameters.chunks),
        ("A1", "A1", style_of("A1")),
    ]


def _compare(
    data: MiniGridData, name: str, title: str, caption: str, chunks: bool, by: dict[float, tuple[float, float]]
) -> list[ReportFigure]:
    """Return a figure of lines, if all of it was run: modules, or the chunks of B3, at (bandwidth, threshold) by
    place."""
    compared = _chunks_compared(data) if chunks else _compared(data)
    lines = {policy: {place: at(policy, *point) for place, point in by.items()} for policy, _, _ in compared}
    cases = [case for line in lines.values() for case in line.values()]
    if not all(map(data.has, cases)):
        return []
    seeds = data.shared_seeds(cases)
    series = [_series(data, label, look, lines[policy], seeds) for policy, label, look in compared]
    bandwidths = {bsbw for bsbw, _ in by.values()}
    xlabel = BSBW_LABEL if len(bandwidths) > 1 else LSLT_LABEL
    draw = partial(_turnaround, data, series, seeds, xlabel)
    return [ReportFigure(name, title, f"{caption}{_words(seeds)}", draw)]


def _lines(data: MiniGridData) -> list[ReportFigure]:
    """Return figures 13 to 18: over bandwidths at the full threshold, and over thresholds at two bandwidths."""
    full = {bsbw: (bsbw, FULL_LSLT) for bsbw in data.parameters.bsbw}
    found = [
        *_compare(data, "figure-13", "All modules at a threshold of 100 % (figure 13 of the paper)", "", False, full),
        *_compare(data, "figure-14", "B3 at a threshold of 100 % (figure 14 of the paper)", "", True, full),
    ]
    for number, (word, bsbw) in enumerate((("low", LOW_BSBW), ("high", HIGH_BSBW))):
        by = {100 * lslt: (bsbw, lslt) for lslt in data.parameters.lslt}
        caption = f"A bisection bandwidth of {bsbw:g} Mbit/s. "
        for first, whose, chunks in ((15, "All modules", False), (17, "B3", True)):
            title = f"{whose}, {word} bandwidth (figure {first + number} of the paper)"
            found += _compare(data, f"figure-{first + number}", title, caption, chunks, by)
    return sorted(found, key=lambda picture: picture.name)


# ------------------------------------------------------------------------------------ beyond the paper


def _beyond(data: MiniGridData) -> list[ReportFigure]:
    found = [_chunk_line(data)]
    if all(data.has(at("A1", LOW_BSBW, lslt)) for lslt in data.parameters.lslt):
        found.append(_demands(data))
    if data.has(mixed(OWN_A, None)):
        found.append(_mixed(data))
    if all(data.has(selected(OWN_A, PATTERN_BSBW, pattern)) for pattern in PATTERNS):
        found.append(_patterns(data))
    if data.has(selected(OWN_A, LOW_BSBW, wiring=ISLANDS)):
        found.append(_islands(data))
    return found


def _chunk_line(data: MiniGridData) -> ReportFigure:
    chunks = sorted({*CHUNKS_TO_THE_ENDS, *data.parameters.chunks})
    ends = [at("B1", bsbw) for bsbw in (LOW_BSBW, HIGH_BSBW)]
    seeds = data.shared_seeds([*ends, *(at(chunked(chunk), end.bsbw_low) for chunk in chunks for end in ends)])
    dashed = Style(style_of("B1").colour, "", "-.")
    panels = {
        f"{end.bsbw_low:g} Mbit/s": [
            _series(
                data, "B3", style_of("B3"), {100 * chunk: at(chunked(chunk), end.bsbw_low) for chunk in chunks}, seeds
            ),
            _series(data, "B1", dashed, {100 * chunk: end for chunk in chunks}, seeds),
        ]
        for end in ends
    }
    caption = f"B3 goes from B1 to Migration-Only, and has its best in between. {_words(seeds)}"
    draw = partial(bands, panels, "chunk (% of the job)", TURNAROUND_LABEL, levels=bounds(data, seeds))
    return ReportFigure("chunks", "B3 over its chunk, at a threshold of 100 %", caption, draw)


def _demands(data: MiniGridData) -> ReportFigure:
    lines = {
        bsbw: {
            policy: {100 * lslt: at(policy, bsbw, lslt) for lslt in data.parameters.lslt}
            for policy, _, _ in _compared(data)
        }
        for bsbw in (LOW_BSBW, HIGH_BSBW)
    }
    seeds = data.shared_seeds(case for line in lines.values() for cases in line.values() for case in cases.values())
    panels = {
        f"{bsbw:g} Mbit/s": [
            Series(label, look, {lslt: _percent(data, case, seeds) for lslt, case in line[policy].items()})
            for policy, label, look in _compared(data)
        ]
        for bsbw, line in lines.items()
    }
    caption = (
        "The greatest demand that any link met in a run, of its capacity. A1 keeps to the threshold; the others find "
        f"out after the fact. {_words(seeds)}"
    )
    draw = partial(bands, panels, LSLT_LABEL, "greatest demand on a link (%)")
    return ReportFigure("link-demand", "How far links are loaded", caption, draw)


def _percent(data: MiniGridData, case: MiniGridCase, seeds: Sequence[int]) -> Interval:
    saturation = data.values(case, "saturation")
    return mean_interval([100 * saturation[seed] for seed in seeds])


def _mixed(data: MiniGridData) -> ReportFigure:
    by_chunk = {f"B3\n{100 * chunk:g} %": mixed(chunked(chunk)) for chunk in data.parameters.chunks}
    last = "Migr.\nOnly"
    shown = {policy: mixed(policy) for policy in PLAIN_MODULES} | by_chunk
    shown |= {policy: mixed(policy, None) for policy in (OWN_A, OWN_B)}
    shown |= {IDEAL: alone(IDEAL), last: alone(MIGRATION_ONLY)}
    seeds = data.shared_seeds(shown.values())
    panel = {label: data.interval(case, seeds=seeds) for label, case in shown.items()}
    looks = dict.fromkeys(by_chunk, "B3") | {last: MIGRATION_ONLY}
    caption = (
        f"Each job's bisection bandwidth is drawn between {MIXED[0]:g} and {MIXED[1]:g} Mbit/s. Thresholds of 100 %; "
        f"ours by default. {_words(seeds, 'intervals')}"
    )
    return ReportFigure(
        "mixed", "Mixed bandwidths", caption, partial(bars, {"": panel}, TURNAROUND_LABEL, looks=looks)
    )


def _grouped(
    data: MiniGridData, name: str, title: str, caption: str, xlabel: str, places: dict[str, dict[str, MiniGridCase]]
) -> ReportFigure:
    """Return the selected policies side by side, in a group for each place."""
    seeds = data.shared_seeds(case for cases in places.values() for case in cases.values())
    numbers = range(len(places))
    series = [
        Series(
            f"B3 ({100 * SHOWN_CHUNK:g} %)" if policy == chunked(SHOWN_CHUNK) else policy,
            style_of(policy.partition("(")[0]),
            {
                number: data.interval(cases[policy], seeds=seeds)
                for number, cases in zip(numbers, places.values(), strict=True)
            },
        )
        for policy in SELECTED
    ]
    draw = partial(grouped_bars, {"": series}, xlabel, TURNAROUND_LABEL, places=numbers, texts=list(places))
    return ReportFigure(name, title, f"{caption} {_words(seeds, 'intervals')}", draw)


def _patterns(data: MiniGridData) -> ReportFigure:
    places = {
        pattern: {policy: selected(policy, PATTERN_BSBW, pattern=pattern) for policy in SELECTED}
        for pattern in PATTERNS
    }
    caption = f"All jobs communicate by one pattern, with a bisection bandwidth of {PATTERN_BSBW:g} Mbit/s."
    return _grouped(data, "patterns", "Other patterns of communication", caption, "pattern", places)


def _islands(data: MiniGridData) -> ReportFigure:
    places = {
        f"{bsbw:g},\n{wiring}": {policy: selected(policy, bsbw, wiring=wiring) for policy in SELECTED}
        for bsbw in ISLAND_BSBWS
        for wiring in (STAR, ISLANDS)
    }
    caption = "On islands, two clusters each share one more link of 1000 Mbit/s to the other two."
    return _grouped(data, "islands", "Clusters behind a shared link", caption, f"{BSBW_LABEL}, wiring", places)
