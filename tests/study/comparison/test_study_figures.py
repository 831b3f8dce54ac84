"""Figures of a study: one scale for all worlds, and every number where it can be read."""

from __future__ import annotations

from itertools import chain

from koala.study.comparison.figures import changes, means
from koala.study.frame.figures import house_style, style_of
from koala.study.frame.statistics import Interval

STYLES = {policy: style_of(policy) for policy in ("WF", "CM", "CF")}
NOTHING = Interval(0.0, 0.0, 0.0, 0)


def around(mean: float, half: float = 1.0) -> Interval:
    return Interval(mean, mean - half, mean + half, 20)


def test_the_same_mean_is_as_long_in_every_world() -> None:
    with house_style():
        figure = means(
            {"W1": {"WF": around(5), "CM": around(3)}, "W2": {"WF": around(90), "CM": NOTHING}}, "s", STYLES
        )
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_xlim()[1] > 91


def test_changes_in_all_worlds_have_one_scale_with_zero_in_it() -> None:
    with house_style():
        figure = changes({"W1": {"CM": around(-20)}, "W2": {"CM": around(-3, 0.5)}}, "%", STYLES)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    low, high = figure.axes[1].get_xlim()
    assert low < -21 < 0 < high


def test_no_number_of_a_change_stands_on_the_zero_line_or_on_another_panel() -> None:
    panels = {
        "W1": {"WF": around(0.0, 0.0), "CM": around(-6, 4), "CF": around(-25, 4)},
        "W2": {"WF": around(0.0, 2.0), "CM": around(-40, 40), "CF": around(7, 8)},
    }
    with house_style():
        figure = changes(panels, "%", STYLES)
        figure.draw_without_rendering()
        drawn = [axes.get_window_extent() for axes in figure.axes]
        for axes, values in zip(figure.axes, panels.values(), strict=True):
            assert len(axes.texts) == len(values)
            assert axes.texts[1].get_text().startswith("\N{MINUS SIGN}")
            for text, area in ((text, area) for text in axes.texts for area in drawn):
                box = text.get_window_extent()
                assert box.x0 >= area.x1 or box.x1 <= area.x0, f"{text.get_text()} is inside of a panel"
        numbers = [text.get_window_extent() for text in chain.from_iterable(axes.texts for axes in figure.axes)]
        assert max(box.x1 for box in numbers) <= figure.bbox.x1
