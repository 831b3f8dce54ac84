"""The page of a simulation: what travels in it, and in a real browser that one can come close to single jobs."""

from __future__ import annotations

import base64
import itertools
import json
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from koala.model.grid import Grid, SchedulerParameters, Site
from koala.model.messages import ComponentEnded, Outcome, StartComponent, Tick
from koala.model.request import Application, Component, Request
from koala.simulator import Arrival, Workload, simulate
from koala.simulator.report.page import duration, page
from koala.simulator.report.page_data import NEVER, PageHold, RunPicture, longest_waits, packed, wait_classes
from koala.simulator.report.page_holds import HoldCollector, run_picture
from koala.simulator.run import RunLog

GRID = Grid(
    sites=(Site(name="a", processors=10), Site(name="b <b>", processors=20)),
    scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
)


def picture(jobs: int = 3, **changes: Any) -> RunPicture:
    """Jobs of two processors on the first site, one after the other, each waiting ten times as long as it may."""
    fields: dict[str, Any] = {
        "title": "example",
        "subtitle": "policy WF",
        "facts": [("jobs", str(jobs))],
        "sites": [("a", 10), ("b <b>", 20)],
        "ids": list(range(1, jobs + 1)),
        "sizes": [2] * jobs,
        "submit_s": [10.0 * row for row in range(jobs)],
        "start_s": [10.0 * row + 1 for row in range(jobs)],
        "end_s": [10.0 * row + 9 for row in range(jobs)],
        "holds": [PageHold(row, 0, 2, 10.0 * row + 1, 10.0 * row + 9) for row in range(jobs)],
    }
    return RunPicture(**{**fields, **changes})


def unpacked(column: dict[str, str]) -> list[float]:
    kind = {"8": "B", "16": "H", "32": "I", "64": "d"}[column["bits"]]
    values: array[Any] = array(kind)
    values.frombytes(base64.b64decode(column["data"]))
    return values.tolist()


# ---------------------------------------------------------------------------------------------- the data


def test_columns_hold_times_in_whole_units_from_the_first_submission() -> None:
    data = packed(picture(submit_s=[5.0, 15.5, 25.0], start_s=[6.0, None, 26.0], end_s=[9.0, None, 29.0], holds=[]))
    assert (data["origin_s"], data["unit_s"]) == (5.0, 0.001)
    assert unpacked(data["columns"]["submit"]) == [0, 10_500, 20_000]
    assert unpacked(data["columns"]["start"]) == [1_000, NEVER, 21_000]
    assert unpacked(data["columns"]["size"]) == [2, 2, 2]


def test_a_long_run_is_counted_in_coarser_units_that_still_fit() -> None:
    year_s = 365 * 86_400.0
    data = packed(picture(1, submit_s=[0.0], start_s=[year_s], end_s=[2 * year_s], holds=[]))
    assert data["unit_s"] == 0.1
    assert unpacked(data["columns"]["end"]) == [2 * year_s * 10]


def test_what_goes_without_saying_does_not_travel() -> None:
    columns = packed(picture())["columns"]
    assert set(columns) == {"size", "submit", "start", "end", "hold_site"}
    several = [PageHold(0, 0, 1, 1.0, 9.0), PageHold(0, 1, 1, 1.0, 9.0)]
    assert set(packed(picture(1, holds=several, ids=[77]))["columns"]) >= {"id", "hold_job", "hold_size", "hold_from"}


def test_ids_beyond_32_bits_travel_too() -> None:
    assert unpacked(packed(picture(2, ids=[1, 2**40]))["columns"]["id"]) == [1, 2**40]


def test_the_classes_of_waits_take_every_job_once() -> None:
    classes = wait_classes([0.0, 0.5, 1.0, 59.0, 60.0, 200.0])
    assert [(each.name, each.jobs) for each in classes if each.jobs] == [
        ("under 1 s", 2),
        ("1 - 3 s", 1),
        ("30 s - 1 min", 1),
        ("1 - 3 min", 1),
        ("3 - 10 min", 1),
    ]
    assert classes[-1].up_to == 1.0
    assert max(each.bar for each in classes) == 1.0
    assert [each.jobs for each in wait_classes([])] == [0]
    assert wait_classes([1e9])[-1].name == "over 100 days"


def test_the_longest_waits_are_listed_with_their_places() -> None:
    found = longest_waits(picture(start_s=[1.0, None, 27.0], ids=[5, 6, 7]))
    assert [(each.row, each.job, each.wait_s) for each in found] == [(2, 7, 7.0), (0, 5, 1.0)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.25, "0.2 s"),
        (59.9, "59.9 s"),
        (125, "2 min 05 s"),
        (3700, "1 h 01 min"),
        (200_000, "2 d 07 h"),
    ],
)
def test_a_duration_has_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_the_page_is_whole_and_escapes_names() -> None:
    text = page(picture(title="<script>alert(1)</script>"))
    assert "<script>alert(1)" not in text
    assert "b <b>" not in text
    assert not re.search(r"https?://", text), "nothing is fetched"
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["sites"][1]["name"] == "b <b>"
    assert page(picture()) == page(picture())


def test_a_hundred_thousand_jobs_make_a_light_page() -> None:
    assert len(page(picture(100_000)).encode()) < 3_000_000


# ---------------------------------------------------------------------------------------------- the log


def test_holds_are_read_from_the_log_of_a_run() -> None:
    application = Application(executable="x")
    wide = Request(components=(Component(processors=10, application=application),) * 2)
    collector = HoldCollector(GRID)
    result = simulate(
        GRID, Workload.from_arrivals([Arrival(5.0, wide, 100.0), Arrival(6.0, wide, 50.0)]), log=collector.take
    )
    rows = list(result.rows())
    holds = collector.holds()
    assert [(hold.job, hold.processors) for hold in holds] == [(1, 10), (1, 10), (2, 10), (2, 10)]
    assert {hold.site for hold in holds if hold.job == 1} == {0, 1}
    for hold in holds:
        row = rows[hold.job - 1]
        assert (hold.from_s, hold.to_s) == (row.started, row.finished)
    drawn = run_picture(rows, holds, GRID, title="t", subtitle="s", facts=[], ids=[70, 80])
    assert [hold.job for hold in drawn.holds] == [0, 0, 1, 1]
    assert (drawn.ids, drawn.start_s) == ([70, 80], [row.started for row in rows])


def test_a_refused_start_holds_nothing_and_one_that_goes_on_has_no_end() -> None:
    collector = HoldCollector(GRID)
    log = RunLog(collector.take)
    for token, job in (("1.1", 1), ("2.1", 2), ("3.1", 3)):
        start = StartComponent(job=job, token=token, site="a", processors=2, component=0, part=0, parts=1)
        log.write(Tick(at=0.0), [start])
    ends = ((4.0, "1.1", Outcome.REFUSED), (5.0, "2.1", Outcome.DONE), (6.0, "2.1", Outcome.DONE))
    for at_s, token, outcome in ends:
        log.write(ComponentEnded(at=at_s, token=token, outcome=outcome), [])
    log.close()
    assert collector.holds() == [PageHold(2, 0, 2, 0.0, 5.0), PageHold(3, 0, 2, 0.0, float("inf"))]
    assert unpacked(packed(picture(1, holds=[PageHold(0, 0, 2, 1.0, float("inf"))]))["columns"]["end"]) == [9_000]


# ---------------------------------------------------------------------------------------------- the browser


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 jobs of 10 processors each on a site of 20, two at a time: more than can be drawn as bars."""
    jobs = 20_000
    starts = [50.0 * (row // 2) for row in range(jobs)]
    path = tmp_path_factory.mktemp("page") / "many.html"
    path.write_text(
        page(
            picture(
                jobs,
                sites=[("only", 20)],
                ids=[row + 1000 for row in range(jobs)],
                sizes=[10] * jobs,
                submit_s=[max(0.0, start - row % 97) for row, start in enumerate(starts)],
                start_s=starts,
                end_s=[start + 50 for start in starts],
                holds=[PageHold(row, 0, 10, start, start + 50) for row, start in enumerate(starts)],
            )
        )
    )
    return path


# What is written on a canvas is no text of the page; this keeps it by canvas, with its width and place.
KEEP_WORDS = """
window.words = {};
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  (window.words[this.canvas.id] ||= []).push([text, x, this.measureText(text).width]);
  write.call(this, text, x, y);
};
"""


class Watched:
    """A page that collects what the browser complains of."""

    def __init__(self, browser: Browser, path: Path, scheme: str = "light", width: int = 1200) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 1400}, color_scheme=scheme)  # type: ignore[arg-type]
        self.page.add_init_script(KEEP_WORDS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: self._asked(asked.url))
        self.page.goto(path.as_uri())
        expect(self.page.locator("#gantt")).to_have_attribute("data-mode", re.compile("."))

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.complaints.append(f"asked for {url}")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A place in the Gantt chart by shares of its width and height."""
        box = self.page.locator("#gantt").bounding_box()
        assert box is not None
        return box["x"] + box["width"] * x, box["y"] + box["height"] * y

    def come_closer(self, turns: int) -> None:
        """Turn the wheel over the middle of the chart."""
        self.page.mouse.move(*self.at(0.5, 0.4))
        for _ in range(turns):
            self.page.mouse.wheel(0, -240)


@pytest.fixture(scope="module")
def shown(browser: Browser, many: Path) -> Iterator[Watched]:
    """The page of many jobs in the light, opened once."""
    seen = Watched(browser, many)
    yield seen
    seen.page.close()


@pytest.fixture
def watched(shown: Watched) -> Iterator[Watched]:
    """The page of many jobs, all of them in view and the mouse away from them."""
    shown.page.mouse.move(0, 0)
    expect(shown.page.locator("#tip")).to_be_hidden()
    shown.page.get_by_role("button", name="Show all").click()
    expect(shown.page.locator("#gantt")).to_have_attribute("data-mode", "density")
    yield shown
    assert shown.complaints == []


def test_from_afar_the_chart_shows_density_and_close_by_single_jobs(watched: Watched) -> None:
    status = watched.page.locator("#gantt-mode")
    expect(status).to_have_text("20,000 jobs in view, as density; come closer to see each")
    watched.come_closer(12)
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "bars")
    expect(status).to_have_text(re.compile(r"^\d+ jobs in view$"))
    watched.page.get_by_role("button", name="Show all").click()
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "density")


def test_a_bar_tells_its_job(watched: Watched) -> None:
    watched.come_closer(14)
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "bars")
    watched.page.mouse.move(*watched.at(0.5, 0.3))
    tip = watched.page.locator("#tip")
    expect(tip).to_be_visible()
    told = re.match(
        r"job (\d+)\s+10 processors on only\s+submitted .*?\s+waited (\d+|1 min \d\d) s\s+ran 50 s", tip.inner_text()
    )
    assert told is not None, tip.inner_text()
    # Near the middle of the run are the jobs near the middle of the table.
    assert 10_000 < int(told[1]) < 11_000
    row = int(told[1]) - 1000
    wait_s = row % 97 if not told[2].startswith("1 min") else 60 + int(told[2][-2:])
    assert wait_s == row % 97
    watched.page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_dragging_moves_and_the_keyboard_does_the_same_as_the_mouse(watched: Watched) -> None:
    watched.page.locator("#gantt").focus()
    for _ in range(10):
        watched.page.keyboard.press("+")
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "bars")
    watched.page.mouse.move(*watched.at(0.5, 0.3))
    before = watched.page.locator("#tip").inner_text()
    watched.page.mouse.down()
    watched.page.mouse.move(*watched.at(0.2, 0.3))
    watched.page.mouse.up()
    watched.page.mouse.move(*watched.at(0.5, 0.31))
    assert watched.page.locator("#tip").inner_text() != before
    watched.page.keyboard.press("0")
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "density")


def test_dragging_over_a_curve_chooses_a_time_for_all_charts(watched: Watched) -> None:
    box = watched.page.locator("#use").bounding_box()
    assert box is not None
    watched.page.mouse.move(box["x"] + 300, box["y"] + 60)
    expect(watched.page.locator("#tip")).to_contain_text("only: 20 of 20 in use")
    watched.page.mouse.down()
    watched.page.mouse.move(box["x"] + 400, box["y"] + 60)
    watched.page.mouse.up()
    expect(watched.page.locator("#gantt-mode")).to_have_text(re.compile(r"^[12],\d\d\d jobs in view$"))


def test_a_long_wait_can_be_looked_at(watched: Watched) -> None:
    watched.page.locator("button[data-row]").first.click()
    expect(watched.page.locator("#gantt")).to_have_attribute("data-mode", "bars")


def painted(seen: Watched) -> list[int]:
    """The colour of the paper, and how many different colours the Gantt chart has."""
    counted: list[int] = seen.page.evaluate(
        """() => {
          const canvas = document.getElementById("gantt"), context = canvas.getContext("2d");
          const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data, colours = new Set();
          for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255)
            colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
          const paper = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
          return [Math.max(...paper), colours.size];
        }"""
    )
    return counted


def test_both_themes_are_painted(browser: Browser, many: Path, watched: Watched) -> None:
    dark = Watched(browser, many, "dark")
    (bright, colours), (dim, as_many) = painted(watched), painted(dark)
    assert bright > 200
    assert dim < 60
    assert min(colours, as_many) > 20
    assert dark.complaints == []
    dark.page.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_times_stand_side_by_side_on_narrow_and_wide_screens(browser: Browser, many: Path, width: int) -> None:
    seen = Watched(browser, many, width=width)
    words = seen.page.evaluate("window.words.queue")
    times = [(x - wide / 2, x + wide / 2) for text, x, wide in words if text.startswith("day ")]
    assert len(times) >= 3
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(times))
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    longest = seen.page.locator("i[data-wait]").evaluate_all(
        "bars => Math.max(...bars.map((bar) => bar.clientWidth))"
    )
    assert longest > 40
    assert seen.complaints == []
    seen.page.close()


def test_one_processor_is_not_told_as_several(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    holds = [PageHold(0, 0, 1, 0.0, 100.0)]
    path.write_text(
        page(picture(1, sites=[("only", 1)], sizes=[1], submit_s=[0.0], start_s=[0.0], end_s=[100.0], holds=holds))
    )
    seen = Watched(browser, path)
    seen.page.mouse.move(*seen.at(0.5, 0.4))
    expect(seen.page.locator("#tip")).to_contain_text("1 processor on only")
    assert seen.complaints == []
    seen.page.close()


def test_a_page_of_few_jobs_on_many_sites_is_drawn_too(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "few.html"
    path.write_text(page(picture(3, sites=[(f"site {number}", 10) for number in range(40)])))
    seen = Watched(browser, path)
    expect(seen.page.locator("#use-legend li")).to_have_count(8)
    expect(seen.page.locator("#use-legend")).to_contain_text("33 other sites")
    expect(seen.page.locator("#gantt-mode")).to_have_text("3 jobs in view")
    assert seen.complaints == []
    seen.page.close()


def test_a_page_without_any_job_is_drawn_without_a_complaint(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "none.html"
    path.write_text(page(picture(0)))
    seen = Watched(browser, path)
    expect(seen.page.locator("#gantt-mode")).to_have_text("0 jobs in view")
    assert seen.complaints == []
    seen.page.close()
