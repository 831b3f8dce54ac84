"""A site's use as steps, against counting it at single moments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.daemon.service.sites.site_history import HISTORY_POINTS_MAX, HISTORY_S_MAX, check_stretch, usage_points
from koala.model.api import UsagePoint
from koala.model.errors import InvalidError
from koala.model.messages import SiteReported
from koala.store.rows import JournalRow


def steps(drawn: Sequence[tuple[float, float | None, int]]) -> list[tuple[float, int]]:
    """What claims and ends of components say of the processors that are held."""
    ends = [(ended_at, -size) for _, ended_at, size in drawn if ended_at is not None]
    return [(claimed_at, size) for claimed_at, _, size in drawn] + ends


def report(seq: int, at: float, processors: int, others: int) -> JournalRow:
    body = SiteReported(at=at, site="A", processors=processors, others=others)
    return JournalRow(seq=seq, at=at, kind="event", what="SiteReported", site="A", body=body)


moments = st.integers(min_value=0, max_value=40).map(float)
components = st.lists(
    st.tuples(moments, st.none() | st.integers(min_value=0, max_value=20), st.integers(min_value=1, max_value=8)),
    max_size=12,
)
reports = st.lists(st.tuples(moments, st.integers(0, 16), st.integers(0, 16)), max_size=6)


@given(components, reports)
def test_between_two_steps_the_use_is_what_one_counts_then(
    drawn: list[tuple[float, int | None, int]], said: list[tuple[float, int, int]]
) -> None:
    rows = [(at, None if longer is None else at + longer, size) for at, longer, size in drawn]
    entries = [report(seq, *values) for seq, values in enumerate(sorted(said, key=lambda each: each[0]))]
    points = usage_points(steps(rows), entries, processors=99, from_at=10.0, to_at=30.0)
    assert points[0].at == 10.0
    assert [point.at for point in points] == sorted({point.at for point in points})
    assert all(
        (one.processors, one.ours, one.others) != (other.processors, other.ours, other.others)
        for one, other in pairwise(points)
    )
    for moment in (10.0, 10.5, 15.0, 20.5, 29.5, 30.0):
        held = sum(
            size
            for claimed_at, ended_at, size in rows
            if claimed_at <= moment and (ended_at is None or ended_at > moment)
        )
        told = [entry.body for entry in entries if entry.at <= moment]
        last = told[-1] if told else SiteReported(at=0, site="A", processors=99, others=0)
        assert isinstance(last, SiteReported)
        assert at_moment(points, moment) == (last.processors, held, last.others)


def at_moment(points: list[UsagePoint], moment: float) -> tuple[int, int, int]:
    point = [point for point in points if point.at <= moment][-1]
    return point.processors, point.ours, point.others


def test_a_busy_history_is_thinned_out_and_each_step_that_is_left_is_true() -> None:
    rows = [(float(number), number + 0.5, 1 + number % 7) for number in range(5 * HISTORY_POINTS_MAX)]
    end = float(len(rows))
    points = usage_points(steps(rows), [], processors=8, from_at=0.0, to_at=end)
    assert HISTORY_POINTS_MAX // 2 < len(points) <= HISTORY_POINTS_MAX
    assert points[0].at == 0.0
    assert [point.at for point in points] == sorted({point.at for point in points})
    for point in points:
        number = int(point.at)
        assert point.ours == (1 + number % 7 if point.at == number else 0)


@pytest.mark.parametrize(
    ("from_at", "to_at"),
    [(5.0, 5.0), (6.0, 5.0), (float("nan"), 5.0), (0.0, float("inf")), (float("-inf"), 0.0), (0.0, float("nan"))],
)
def test_a_stretch_of_time_that_is_none_is_refused(from_at: float, to_at: float) -> None:
    with pytest.raises(InvalidError, match="two times"):
        check_stretch(from_at, to_at)


def test_a_stretch_that_is_too_long_is_refused_and_the_longest_is_not() -> None:
    check_stretch(0.0, HISTORY_S_MAX)
    with pytest.raises(InvalidError, match="HISTORY_S_MAX"):
        check_stretch(0.0, HISTORY_S_MAX + 1)
