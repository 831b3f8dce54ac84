"""Measurements beside which the host withheld processors are made again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from koala_papers.live2006.host import Ticks, stolen_percent, ticks, undisturbed


def test_this_machine_counts_and_time_passes() -> None:
    found = ticks()
    assert found is not None
    assert found.all > 0
    assert 0 <= found.stolen <= found.all


def test_guests_count_once_and_only_the_first_line_counts(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 20 300 10 1 2 67 50 50\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 7\n", encoding="ascii")
    assert ticks(stat) == Ticks(500, 67)


@pytest.mark.parametrize("text", ["", "cpu", "cpu  1 2 3 4 5 6 7\n", "cpu  1 2 x 4 5 6 7 8", "intr 1 2 3 4 5 6 7 8"])
def test_where_nobody_counts_nothing_is_withheld(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text, encoding="ascii")
    assert ticks(stat) is None
    assert ticks(tmp_path / "none") is None
    assert stolen_percent(None, Ticks(5, 5)) == stolen_percent(Ticks(5, 5), Ticks(5, 5)) == 0.0


def test_what_is_withheld_is_a_share_of_the_time_of_all_processors() -> None:
    assert stolen_percent(Ticks(1_000, 40), Ticks(1_400, 60)) == 5.0


@pytest.mark.parametrize(
    ("percents", "counts", "tries"),
    [([4.0], 1, 1), ([5.0], 1, 1), ([9.0, 2.0], 2, 2), ([9.0, 6.0, 7.0], 2, 3), ([9.0, 8.0, 1.0], 3, 3)],
)
def test_it_is_measured_again_until_it_is_left_alone_and_the_least_disturbed_counts(
    percents: list[float], counts: int, tries: int
) -> None:
    clock = iter(_readings(percents))
    made: list[int] = []

    async def measure() -> int:
        made.append(len(made) + 1)
        return made[-1]

    found = asyncio.run(undisturbed(measure, 5.0, lambda: next(clock)))
    assert found == (counts, percents[counts - 1], tries)
    assert len(made) == tries


def _readings(percents: Iterable[float]) -> Iterable[Ticks]:
    """Before and after each measurement of a hundred ticks."""
    stolen = 0
    for index, percent in enumerate(percents):
        yield Ticks(1_000 * index, stolen)
        stolen += int(percent)
        yield Ticks(1_000 * index + 100, stolen)
