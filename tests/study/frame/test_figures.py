"""Figures: the same bytes for the same data, one look for each policy, and nothing drawn beyond the axes."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from koala.study.frame.figures import (
    PNG_DPI,
    POLICIES,
    ReportFigure,
    Series,
    bars,
    grouped_bars,
    house_style,
    lines,
    save,
    style_of,
    svg_text,
)
from koala.study.frame.statistics import Interval


def around(mean: float, half: float = 1.0) -> Interval:
    return Interval(mean, mean - half, mean + half, 20)


SAMPLE = ReportFigure(
    "sample", "Sample", "A caption.", partial(bars, {"W1": {"WF": around(5), "CM": around(3)}}, "wait time (s)")
)


def test_the_same_data_give_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for first, second in zip(save(SAMPLE, tmp_path / "a"), save(SAMPLE, tmp_path / "b"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_text_in_an_svg_is_text_and_no_date_is_in_it() -> None:
    svg = svg_text(SAMPLE)
    assert ">wait time (s)</text>" in svg
    assert "<dc:date>" not in svg


def test_a_png_has_the_resolution_of_print(tmp_path: Path) -> None:
    png, _ = save(SAMPLE, tmp_path)
    with Image.open(png) as image:
        assert image.info["dpi"] == pytest.approx((PNG_DPI, PNG_DPI), rel=1e-3)


def test_every_policy_has_a_colour_and_a_marker_of_its_own() -> None:
    assert len({style.colour for style in POLICIES.values()}) == len(POLICIES)
    assert len({style.marker for style in POLICIES.values()}) == len(POLICIES)
    other = style_of("SOMETHING-NEW")
    assert other == style_of("SOMETHING-NEW")
    assert other.colour not in {style.colour for style in POLICIES.values()}


def test_panels_on_one_scale_hold_what_is_drawn_in_each() -> None:
    style = style_of("CM")
    panels = {
        "low": [Series("CM", style, {1: around(10)})],
        "high": [Series("CM", style, {1: around(900, 50), 2: Interval(20.0, -math.inf, math.inf, 1)})],
    }
    with house_style():
        for figure in (lines(panels, "x", "y (s)"), grouped_bars(panels, "x", "y (s)", places=[1, 2])):
            for axes in figure.axes:
                bottom, top = axes.get_ylim()
                assert bottom == 0
                assert top >= 950


def test_the_number_above_a_bar_has_room_below_the_title() -> None:
    with house_style():
        figure = bars({"W1": {"WF": around(100, 20)}}, "y (s)")
        assert figure.axes[0].get_ylim()[1] > 120 * 1.1


def test_the_legend_lies_outside_of_the_data() -> None:
    panels = {"": [Series("CM", style_of("CM"), {1: around(10), 2: around(30)})]}
    with house_style():
        figure = lines(panels, "x", "y (s)")
        figure.draw_without_rendering()
        assert figure.legends[0].get_window_extent().y0 >= figure.axes[0].get_window_extent().y1


def test_the_same_value_is_as_high_in_every_panel_of_bars() -> None:
    with house_style():
        figure = bars({"W1": {"WF": around(5), "CM": around(3)}, "W2": {"WF": around(90), "CM": around(3)}}, "s")
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_ylim()[1] > 91
