"""Our own policies beside the best of the paper's: A2 beside A1 and B5 beside B3, by paired differences.

The comparison is the hardest possible: at every bandwidth the paper's module may choose, afterwards, the chunk,
threshold and objective with which it did best under these very seeds, while ours use their defaults everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.study import (
    Comparison,
    Interval,
    PaperClaim,
    ReportFigure,
    Series,
    Style,
    bands,
    below,
    judge,
    measured,
    style_of,
)
from koala_papers.minigrid.cases import (
    IDEAL,
    MIGRATION_ONLY,
    OWN_A,
    OWN_B,
    PATTERN_BSBW,
    PATTERN_RIVALS,
    MiniGridCase,
    alone,
    at,
    mixed,
    places,
    rivals_of,
    selected,
)
from koala_papers.minigrid.data import MiniGridData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIVAL_NAMES = {OWN_A: "A1", OWN_B: "B3"}
# Mixed bandwidths have no place on the axis of bandwidths.
MIXED_WORDS = "mixed bandwidths"


class Duel(NamedTuple):
    """One of ours and the best of its rivals with the same jobs."""

    ours: MiniGridCase
    rival: MiniGridCase
    difference: Interval


def duels(data: MiniGridData, own: str) -> dict[float, Duel]:
    """Return by bandwidth the comparison of one of ours with the best of the paper's; only where that was run."""
    found = {}
    for bsbw in data.parameters.bsbw:
        rivals = [at(policy, bsbw, lslt) for policy, lslt in rivals_of(data.parameters)[own]]
        duel = _duel(data, at(own, bsbw, None), rivals)
        if duel is not None:
            found[bsbw] = duel
    return found


def mixed_duel(data: MiniGridData, own: str) -> Duel | None:
    """Return the same with a bandwidth of its own for every job."""
    return _duel(data, mixed(own, None), [mixed(policy, lslt) for policy, lslt in rivals_of(data.parameters)[own]])


def _duel(data: MiniGridData, ours: MiniGridCase, rivals: list[MiniGridCase]) -> Duel | None:
    there = [rival for rival in rivals if data.has(rival)]
    if not data.has(ours) or not there:
        return None
    best = data.best(there, data.shared_seeds([ours, *there]))
    return Duel(ours, best, data.difference(ours, best))


# ---------------------------------------------------------------------------------------------- claims


def claims(data: MiniGridData) -> list[PaperClaim]:
    """Return the claims that ours are better, at every bandwidth and with mixed bandwidths."""
    judges = [
        partial(_beats, "M1", OWN_A, "A2, which knows what a job sends, beats A1 at its best"),
        partial(_beats, "M2", OWN_B, "B5, which knows nothing in advance, beats B3 at its best"),
        partial(_beats_everywhere, "M3", OWN_A),
        partial(_beats_everywhere, "M4", OWN_B),
    ]
    return [data.judged(each) for each in judges]


def _beats(name: str, own: str, text: str, data: MiniGridData) -> PaperClaim:
    comparisons: list[Comparison] = []
    for bsbw, duel in duels(data, own).items():
        comparisons.append(below(f"{own} - {duel.rival.name} at {bsbw:g} Mbit/s", duel.difference))
    together = mixed_duel(data, own)
    if together is not None:
        comparisons.append(below(f"{own} - {together.rival.name}, {MIXED_WORDS}", together.difference))
    if not comparisons:
        return judge(name, f"{text}, at every bandwidth.", [])
    rivals = len(rivals_of(data.parameters)[own])
    fixed = "; ".join(_fixed(data, own))
    return judge(
        name,
        f"{text}, at every bandwidth and where they are mixed.",
        comparisons,
        note=f"At each bandwidth the best of {rivals} variants of {RIVAL_NAMES[own]} is taken. "
        f"Mean over the bandwidths, with one variant for all: {fixed}.",
    )


def _beats_everywhere(name: str, own: str, data: MiniGridData) -> PaperClaim:
    comparisons: list[Comparison] = []
    for pattern, wiring in places():
        ours = selected(own, PATTERN_BSBW, pattern, wiring)
        duel = _duel(data, ours, [selected(policy, PATTERN_BSBW, pattern, wiring) for policy in PATTERN_RIVALS])
        if duel is not None:
            comparisons.append(below(f"{own} - {duel.rival.name}, {pattern}, {wiring}", duel.difference))
    return judge(
        name,
        f"{own} beats A1 and B3 with every pattern of communication and every wiring.",
        comparisons,
        note=f"At {PATTERN_BSBW:g} Mbit/s, beside the best of {len(PATTERN_RIVALS)} variants of A1 and B3 each time.",
    )


def _fixed(data: MiniGridData, own: str) -> list[str]:
    """Return ours and its best rival if that keeps one variant at all bandwidths."""
    line = [at(own, bsbw, None) for bsbw in data.parameters.bsbw]
    rivals = [
        [at(policy, bsbw, lslt) for bsbw in data.parameters.bsbw] for policy, lslt in rivals_of(data.parameters)[own]
    ]
    whole = [cases for cases in rivals if all(map(data.has, cases))]
    if not whole:
        return []
    seeds = data.shared_seeds(case for cases in (line, *whole) for case in cases)

    def mean(cases: list[MiniGridCase]) -> float:
        by_seed = data.over(cases)
        return sum(by_seed[seed] for seed in seeds) / len(seeds)

    best = min(whole, key=mean)
    return [f"{own} {mean(line):.0f} s", f"{best[0].name} {mean(best):.0f} s"]


def as_json(data: MiniGridData) -> dict[str, Any]:
    """Return every comparison, for programs."""
    return {
        own: {
            **{
                f"{bsbw:g}": {"rival": duel.rival.name, **duel.difference.as_json()}
                for bsbw, duel in duels(data, own).items()
            },
            **_mixed_json(data, own),
        }
        for own in (OWN_A, OWN_B)
    }


def _mixed_json(data: MiniGridData, own: str) -> dict[str, Any]:
    duel = mixed_duel(data, own)
    return {} if duel is None else {"mixed": {"rival": duel.rival.name, **duel.difference.as_json()}}


# --------------------------------------------------------------------------------------------- figures


def figures(data: MiniGridData) -> list[ReportFigure]:
    """Return ours beside the best of the paper's: the times, and the differences."""
    if not duels(data, OWN_A):
        return []
    how = "At each bandwidth A1 and B3 have the chunk, threshold and objective that did best there."
    differences = {own: [duel.difference.n for duel in duels(data, own).values()] for own in (OWN_A, OWN_B)}
    seeds = ", ".join(f"{own} {min(counts)}" for own, counts in differences.items())
    return [
        ReportFigure(
            "own-turnaround",
            "Our own policies: mean turnaround",
            f"A2 and B5 with their defaults; Migration-Only lies above the figure. {how} "
            f"{len(_shown_seeds(data))} seeds.",
            partial(_turnaround, data),
        ),
        ReportFigure(
            "own-difference",
            "Our own policies: difference from the best of the paper's",
            f"Paired differences with 95 % confidence intervals; below zero ours are better. {how} Seeds: {seeds}.",
            partial(_differences, data),
        ),
    ]


def _shown_seeds(data: MiniGridData) -> list[int]:
    """Return the seeds under which ours and the best of their rivals were all run."""
    return data.shared_seeds(
        case for own in (OWN_A, OWN_B) for duel in duels(data, own).values() for case in (duel.ours, duel.rival)
    )


def _turnaround(data: MiniGridData) -> Figure:
    series = []
    seeds = _shown_seeds(data)
    for own in (OWN_A, OWN_B):
        found = duels(data, own)
        rival = RIVAL_NAMES[own]
        series += [
            Series(own, style_of(own), {bsbw: data.interval(duel.ours, seeds=seeds) for bsbw, duel in found.items()}),
            Series(
                f"{rival} at its best",
                Style(style_of(rival).colour, style_of(rival).marker, "--"),
                {bsbw: data.interval(duel.rival, seeds=seeds) for bsbw, duel in found.items()},
            ),
        ]
    return bands({"": series}, "bisection bandwidth (Mbit/s)", "mean turnaround (s)", levels=bounds(data, seeds)[:1])


def bounds(data: MiniGridData, seeds: Sequence[int]) -> list[Series]:
    """Return the unbeatable bound, and the level that co-allocation has to beat, over these seeds."""
    return [
        Series(policy, style_of(policy), {0: data.interval(alone(policy), seeds=seeds)})
        for policy in (IDEAL, MIGRATION_ONLY)
    ]


def _differences(data: MiniGridData) -> Figure:
    series = [
        Series(
            f"{own} - {RIVAL_NAMES[own]} at its best",
            style_of(own),
            {bsbw: duel.difference for bsbw, duel in duels(data, own).items()},
        )
        for own in (OWN_A, OWN_B)
    ]
    nothing = Series("no difference", Style("#222222", "", "-"), {0: Interval(0.0, 0.0, 0.0, 1)})
    return bands({"": series}, "bisection bandwidth (Mbit/s)", "mean turnaround, ours - theirs (s)", levels=[nothing])


def notes(data: MiniGridData) -> list[str]:
    """Return our own on mixed bandwidths, in words."""
    found = []
    for own in (OWN_A, OWN_B):
        duel = mixed_duel(data, own)
        if duel is not None:
            found.append(f"{own} - {duel.rival.name}: {measured(duel.difference, 's')}")
    return [f"On mixed bandwidths, in mean turnaround: {'; '.join(found)}."] if found else []
