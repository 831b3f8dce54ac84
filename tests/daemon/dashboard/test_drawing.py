"""The dashboard's pictures as positions: true to time and number, and never outside of their box."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.daemon.dashboard.axis import TICKS_MAX, Axis, life, recent
from koala.daemon.dashboard.charts import (
    AREA_HEIGHT,
    AREA_WIDTH,
    CELLS_MAX,
    STEPS_DRAWN_MAX,
    measured_line,
    processor_bar,
    usage_chart,
)
from koala.daemon.dashboard.network import HEIGHT, NODES_MAX, WIDTH, network
from koala.daemon.dashboard.timeline import (
    ROWS_MAX,
    Stretch,
    TimelinePhase,
    component_rows,
    component_stretches,
    job_row,
    job_stretches,
    rows_at_site,
    told,
)
from koala.daemon.dashboard.words import amount, condition, duration
from koala.model.api import ElementCountsInfo, JobDetail, LinkMeasurement, SiteHistory, UsagePoint
from tests.support.grid_forms import NOW, all_links, component, job, link, overview, site, transfer

# ------------------------------------------------------------------------------------------------ axis


@given(st.floats(1e-3, 1e9), st.floats(-10.0, 1e9))
def test_ticks_are_few_and_on_the_axis(length_s: float, offset_s: float) -> None:
    axis = Axis(from_at=NOW - length_s - offset_s, to_at=NOW - offset_s, zero_at=NOW)
    ticks = axis.ticks()
    assert len(ticks) <= TICKS_MAX
    assert all(0 <= tick.percent <= 100 for tick in ticks)


def test_ticks_stand_at_round_times_before_now() -> None:
    labels = [tick.label for tick in recent(NOW, 1_800).ticks()]
    assert labels == ["\N{MINUS SIGN}30 min", "\N{MINUS SIGN}20 min", "\N{MINUS SIGN}10 min", "now"]


def test_a_moment_outside_of_the_axis_stands_at_its_end() -> None:
    axis = recent(NOW, 100)
    assert (axis.percent(NOW - 1_000), axis.percent(NOW - 25), axis.percent(NOW + 1_000)) == (0, 75, 100)


def test_an_axis_without_width_is_refused() -> None:
    with pytest.raises(ValueError, match="no width"):
        Axis(from_at=1, to_at=1, zero_at=1)


def test_the_life_of_a_job_that_has_just_come_has_a_width() -> None:
    assert life(NOW, NOW).length_s == 1.0


# -------------------------------------------------------------------------------------------- timeline


def a_whole_life() -> JobDetail:
    """100 s: 20 s queue, 20 s transfer, 10 s at the barrier, 50 s running."""
    return job(
        state="done",
        ended_at=NOW,
        transfers=[transfer(started_at=NOW - 80, ended_at=NOW - 60)],
        components=[
            component(0, claimed_at=NOW - 60, released_at=NOW - 50, ended_at=NOW),
            component(1, "leiden", claimed_at=NOW - 58, released_at=NOW - 50, ended_at=NOW - 10),
        ],
    )


def test_a_bar_is_as_wide_as_its_share_of_the_time() -> None:
    row = job_row(a_whole_life(), recent(NOW, 200), NOW)
    assert [(bar.phase, bar.left, bar.width) for bar in row.bars] == [
        (TimelinePhase.QUEUE, 50, 10),
        (TimelinePhase.TRANSFER, 60, 10),
        (TimelinePhase.BARRIER, 70, 5),
        (TimelinePhase.RUNNING, 75, 25),
    ]
    assert row.end == 100


def test_a_job_that_was_started_again_shows_both_runs_and_the_queue_between() -> None:
    again = job(
        state="running",
        components=[
            component(claimed_at=NOW - 90, released_at=NOW - 80, ended_at=NOW - 70, outcome="site_failed"),
            component(claimed_at=NOW - 40, released_at=NOW - 30),
        ],
    )
    phases = [each.phase for each in job_stretches(again, NOW)]
    assert phases == [
        TimelinePhase.QUEUE,
        TimelinePhase.BARRIER,
        TimelinePhase.RUNNING,
        TimelinePhase.QUEUE,
        TimelinePhase.BARRIER,
        TimelinePhase.RUNNING,
    ]


def test_a_claim_that_was_given_up_at_the_barrier_never_ran() -> None:
    given_up = component(claimed_at=NOW - 20, ready_at=NOW - 20, ended_at=NOW - 5, outcome="aborted")
    assert [each.phase for each in component_stretches(given_up, NOW)] == [TimelinePhase.BARRIER]


def test_until_it_reports_a_claim_is_in_the_queue_of_its_site() -> None:
    waiting = component(claimed_at=NOW - 20)
    assert component_stretches(waiting, NOW) == [Stretch(TimelinePhase.QUEUE, NOW - 20, NOW)]
    ready = component(claimed_at=NOW - 20, ready_at=NOW - 15)
    assert component_stretches(ready, NOW) == [
        Stretch(TimelinePhase.QUEUE, NOW - 20, NOW - 15),
        Stretch(TimelinePhase.BARRIER, NOW - 15, NOW),
    ]


times = st.floats(0, 1_000, allow_nan=False)


@st.composite
def jobs(draw: st.DrawFn) -> JobDetail:
    """Jobs whose times are in any order: clocks of sites and of the daemon need not agree."""
    components = [
        component(
            part,
            claimed_at=NOW - draw(times),
            released_at=draw(st.none() | times.map(lambda s: NOW - s)),
            ended_at=draw(st.none() | times.map(lambda s: NOW - s)),
        )
        for part in range(draw(st.integers(0, 4)))
    ]
    transfers = [transfer(number, started_at=NOW - draw(times)) for number in range(draw(st.integers(0, 3)))]
    return job(
        submitted_at=NOW - draw(times),
        ended_at=draw(st.none() | times.map(lambda s: NOW - s)),
        components=components,
        transfers=transfers,
    )


@given(jobs())
def test_the_phases_of_a_job_follow_each_other_without_gap_or_overlap(drawn: JobDetail) -> None:
    stretches = job_stretches(drawn, NOW)
    end = max(drawn.submitted_at, NOW if drawn.ended_at is None else drawn.ended_at)
    assert sum(each.to_at - each.from_at for each in stretches) == pytest.approx(end - drawn.submitted_at)
    for before, after in itertools.pairwise(stretches):
        assert before.to_at == after.from_at
        assert before.phase is not after.phase


@given(jobs(), st.floats(1, 5_000))
def test_no_bar_leaves_the_axis(drawn: JobDetail, length_s: float) -> None:
    axis = recent(NOW, length_s)
    for row in [job_row(drawn, axis, NOW), *component_rows(drawn, axis, NOW)]:
        for bar in row.bars:
            assert bar.left >= 0
            assert bar.width > 0
            assert bar.left + bar.width <= 100.001


def test_components_and_files_have_rows_of_their_own() -> None:
    whole = a_whole_life()
    rows = component_rows(whole, life(whole.submitted_at, NOW), NOW)
    assert [(row.label, row.detail) for row in rows] == [
        ("component 0", "4 on delft"),
        ("component 1", "4 on leiden"),
        ("input-1.dat", "leiden \N{RIGHTWARDS ARROW} delft, 1.0 GB"),
    ]


def test_an_array_waits_until_the_first_of_its_elements_has_started() -> None:
    elements = ElementCountsInfo(indices="0-9", size=10, waiting=7, running=2, done=1)
    begun = job(submitted_at=NOW - 60, started_at=NOW - 45, state="unfolding", standing="running", elements=elements)
    row = job_row(begun, recent(NOW, 100), NOW)
    assert told(row) == "1 job-1, running, 1 of 10 ended: waits in a queue: 15 s; runs: 45 s"
    assert row.state == "running"
    waits = job(submitted_at=NOW - 60, state="unfolding", standing="waiting", elements=elements)
    assert told(job_row(waits, recent(NOW, 100), NOW)).startswith("1 job-1, waiting, ")


def test_at_a_site_only_its_own_components_are_shown() -> None:
    rows = rows_at_site([a_whole_life()], "leiden", recent(NOW, 100), NOW)
    assert [row.detail for row in rows] == ["4 processors"]


def test_a_thousand_jobs_and_a_thousand_components_stay_within_the_rows() -> None:
    many = [job(number, components=[component(claimed_at=NOW - 50)]) for number in range(1_000)]
    assert len(rows_at_site(many, "delft", recent(NOW, 100), NOW)) == ROWS_MAX
    wide = job(components=[component(part, claimed_at=NOW - 50) for part in range(1_000)])
    assert len(component_rows(wide, recent(NOW, 100), NOW)) == ROWS_MAX


def test_a_row_is_told_in_words() -> None:
    assert told(job_row(a_whole_life(), recent(NOW, 200), NOW)) == (
        "1 job-1, done: waits in a queue: 20 s; files are on their way: 20 s; "
        "claimed, waits at the barrier: 10 s; runs: 50 s"
    )


# ---------------------------------------------------------------------------------------------- charts


def test_a_small_site_has_a_cell_for_each_processor() -> None:
    bar = processor_bar(site(processors=10, ours=4, others=3, idle=1))
    assert [piece.kind for piece in bar.pieces] == ["ours"] * 4 + ["others"] * 3 + ["idle"] + ["kept"] * 2
    assert bar.told == "4 ours, 3 others', 1 idle, 2 not available, of 10 processors"


def test_a_large_site_has_a_piece_for_each_kind_as_wide_as_its_share() -> None:
    bar = processor_bar(site(processors=1_000, ours=250, others=500))
    assert [(piece.kind, piece.left, piece.width) for piece in bar.pieces] == [
        ("ours", 0, 25),
        ("others", 25, 50),
        ("idle", 75, 25),
    ]


@given(*(st.integers(0, 200) for _ in range(5)))
def test_a_bar_is_never_wider_than_its_box(
    processors: int, ours: int, others: int, idle: int, earmarked: int
) -> None:
    drawn = site(processors=processors, ours=ours, others=others, idle=idle, earmarked=earmarked)
    bar = processor_bar(drawn)
    assert all(piece.left >= 0 and piece.left + piece.width <= 100.001 for piece in bar.pieces)
    total = sum(size for _, size in bar.shares)
    assert total == processors
    assert not bar.pieces or max(piece.left + piece.width for piece in bar.pieces) >= 99.99
    assert len(bar.pieces) == total if total <= CELLS_MAX else len(bar.pieces) <= 5


def history(*points: tuple[float, int, int, int]) -> SiteHistory:
    made = [UsagePoint(at=NOW - ago, processors=size, ours=ours, others=others) for ago, size, ours, others in points]
    return SiteHistory(site="delft", from_at=NOW - 100, to_at=NOW, points=made)


def numbers(path: str) -> list[tuple[float, float]]:
    """The corners of a path of M, L and H."""
    corners: list[tuple[float, float]] = []
    for letter, text in re.findall(r"([MLH])([-0-9. ]+)", path):
        values = [float(each) for each in text.split()]
        corners.append((values[0], corners[-1][1]) if letter == "H" else (values[0], values[1]))
    return corners


def test_a_step_stands_at_its_time_and_is_as_high_as_its_share() -> None:
    chart = usage_chart(history((100, 10, 0, 0), (50, 10, 5, 2)), recent(NOW, 100))
    assert numbers(chart.ours) == [
        (0, 100), (0, 100), (500, 100), (500, 50), (1000, 50), (1000, 100), (500, 100), (500, 100), (0, 100),
    ]  # fmt: skip
    assert (500, 30) in numbers(chart.others)
    assert chart.top == 10
    assert chart.told == "on average 2.5 ours and 1.0 others'; now 5 ours and 2 others' of 10"


def test_more_held_than_there_is_makes_no_axis_longer_than_the_site_is_large() -> None:
    """What the daemon counts and what the site last reported are of different moments."""
    chart = usage_chart(history((100, 8, 8, 1), (50, 8, 3, 9), (20, 4, 8, 0)), recent(NOW, 100))
    assert chart.top == 8
    assert chart.told.endswith("now 4 ours and 0 others' of 4")
    assert min(y for _, y in numbers(chart.others) + numbers(chart.ours)) == 0


def test_what_held_before_the_axis_holds_at_its_beginning() -> None:
    chart = usage_chart(history((500, 10, 10, 0)), recent(NOW, 100))
    assert numbers(chart.capacity) == [(0, 0), (1000, 0)]


def test_a_site_of_which_nothing_is_known_has_an_empty_chart() -> None:
    chart = usage_chart(history(), recent(NOW, 100))
    assert (chart.ours, chart.others, chart.capacity, chart.top) == ("", "", "", 0)


@given(st.lists(st.tuples(st.floats(0, 300), *(st.integers(0, 99) for _ in range(3))), max_size=30))
def test_no_area_leaves_its_box(points: list[tuple[float, int, int, int]]) -> None:
    chart = usage_chart(history(*points), recent(NOW, 100))
    for path in (chart.ours, chart.others, chart.capacity):
        for x, y in numbers(path):
            assert 0 <= x <= AREA_WIDTH
            assert -0.01 <= y <= AREA_HEIGHT


def test_a_long_history_is_drawn_in_a_bounded_number_of_steps() -> None:
    chart = usage_chart(history(*((100 - n / 100, 10, n % 10, 0) for n in range(10_000))), recent(NOW, 100))
    assert chart.capacity.count("H") == STEPS_DRAWN_MAX


# --------------------------------------------------------------------------------------------- network


def test_an_empty_grid_has_an_empty_diagram() -> None:
    drawn = network(overview([]))
    assert (drawn.nodes, drawn.lines, drawn.arrows, drawn.left_out) == ((), (), (), 0)


@pytest.mark.parametrize("count", range(1, NODES_MAX + 1))
def test_every_site_has_a_place_of_its_own_inside_the_box(count: int) -> None:
    sites = [site(f"site-{number}") for number in range(count)]
    drawn = network(overview(sites))
    assert len({(node.x, node.y) for node in drawn.nodes}) == count
    assert all(20 <= node.x <= WIDTH - 20 and 20 <= node.y <= HEIGHT - 35 for node in drawn.nodes)
    assert len(drawn.lines) == count * (count - 1) // 2


def test_files_on_their_way_are_one_arrow_for_each_direction() -> None:
    sites = [site("delft"), site("leiden")]
    moving = [transfer(1), transfer(2, brought_bytes=0), transfer(3, source="delft", target="leiden")]
    drawn = network(overview(sites, transfers=[*moving, transfer(4, ended_at=NOW, ok=True)]))
    assert [arrow.label for arrow in drawn.arrows] == ["2 files, 25%", "50%"]
    assert drawn.arrows[0].told == "leiden to delft: 2 files, 500 MB of 2.0 GB"
    for arrow in drawn.arrows:
        corners = [float(each) for each in re.findall(r"-?[0-9.]+", arrow.path)]
        assert all(0 <= x <= WIDTH for x in corners[::2])
        assert all(0 <= y <= HEIGHT for y in corners[1::2])


def test_of_fifty_sites_only_those_that_files_move_between_are_drawn() -> None:
    sites = [site(f"site-{number}") for number in range(50)]
    drawn = network(overview(sites, transfers=[transfer(source="site-7", target="site-42")]))
    assert [node.name for node in drawn.nodes] == ["site-7", "site-42"]
    assert drawn.left_out == 48
    assert len(drawn.lines) == 1
    assert network(overview(sites)).nodes == ()


def test_a_transfer_from_a_site_that_is_not_in_the_grid_is_not_drawn() -> None:
    assert network(overview([site("delft")], transfers=[transfer(source="gone")])).arrows == ()


def test_a_link_says_what_is_believed_and_what_is_configured() -> None:
    sites = [site("delft"), site("leiden")]
    drawn = network(overview(sites, links=[link("delft", "leiden", 1_000, 250)]))
    assert drawn.lines[0].label == "250 Mbit/s"
    assert drawn.lines[0].told == "delft and leiden: 250 Mbit/s recently, 1 Gbit/s in the grid file"
    assert len(all_links(sites)) == 1


# ----------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (8.24, "8.2 s"), (9.97, "10 s"), (59.7, "1 min"), (200, "3 min 20 s"), (7_500, "2 h 5 min"),
     (86_400 * 4 + 11_000, "4 d 3 h")],
)  # fmt: skip
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_amounts_have_decimal_units() -> None:
    assert [amount(size) for size in (0, 999, 1_500, 2 * 10**9, 3 * 10**18)] == [
        "0 B", "999 B", "1.5 kB", "2.0 GB", "3000.0 PB",
    ]  # fmt: skip


def test_the_gravest_condition_of_a_site_is_named() -> None:
    assert condition(site(drained=True, trust="unusable", silent_since=NOW)) == "silent"
    assert condition(site(drained=True, trust="unusable")) == "unusable"
    assert condition(site(drained=True)) == "drained"
    assert condition(site(trust="probing")) == "probing"
    assert condition(site()) == "usable"


def test_measurements_of_a_link_are_a_line_that_begins_at_zero() -> None:
    def measured(value: float) -> LinkMeasurement:
        return LinkMeasurement(at=1.0, value=value, weight=1.0, size_bytes=0, by="probe")

    assert measured_line([measured(40.0)], str) is None
    line = measured_line([measured(40.0), measured(40.0), measured(10.0)], lambda value: f"{value:g} Mbit/s")
    assert line is not None
    assert line.points == "0.0,1.0 50.0,1.0 100.0,14.5"
    assert line.told == "3 measurements, the newest at the end: 40 Mbit/s, 40 Mbit/s, 10 Mbit/s"
    flat = measured_line([measured(0.0), measured(0.0)], str)
    assert flat is not None
    assert flat.points == "0.0,19.0 100.0,19.0"
