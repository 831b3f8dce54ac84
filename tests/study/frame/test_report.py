"""The report: five keys for programs, one page for people that needs nothing else, the same bytes each time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from koala.study.frame.claims import PaperClaim
from koala.study.frame.experiment import FinishedUnit
from koala.study.frame.looks import judged, planned_looks
from koala.study.frame.report import OtherReportError, WrittenReport, check_folder, write_report
from tests.support.frame_samples import Sample, SampleParameters

# Names of the languages that an SVG is written in; nothing is fetched from there.
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")


def written(folder: Path, repetitions: int = 3) -> WrittenReport:
    experiment = Sample()
    parameters = SampleParameters(factor=3.0)

    def results_of(seeds: int, _undecided: Sequence[PaperClaim]) -> list[FinishedUnit]:
        units = experiment.units(parameters, 1, seeds)
        return [FinishedUnit(unit, json.loads(json.dumps(experiment.run(unit)))) for unit in units]

    seen = judged(experiment, parameters, planned_looks(repetitions, repetitions), results_of)
    return write_report(experiment, parameters, 1, repetitions, seen, folder)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    """One that the tests only read."""
    return written(tmp_path_factory.mktemp("report"))


class Page(HTMLParser):
    """Counts ids and tags, and collects what a tag refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.refers: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id" and value is not None:
                self.ids[value] += 1
            if name in ("href", "xlink:href", "src") and value is not None:
                self.refers.add(value)
            self.refers.update(f"#{target}" for target in re.findall(r"url\(#([^)]+)\)", value or ""))


def test_the_json_has_its_parts_and_every_claim_its_evidence(report: WrittenReport) -> None:
    told = json.loads(report.json_path.read_text())
    assert list(told) == ["experiment", "parameters", "judged", "results", "claims"]
    assert told["experiment"] == "sample"
    assert told["parameters"]["factor"] == 3.0
    assert told["parameters"]["repetitions"] == 3
    assert told["results"] == {"values": [3.0, 6.0, 9.0]}
    assert told["judged"]["looks"] == [{"seeds": 3, "confidence": 0.95}]
    assert [claim["verdict"] for claim in told["claims"]] == ["undecided", "undecided"]
    assert [claim["leaning"] for claim in told["claims"]] == ["undecided", "contrary"]
    assert "Undecided by value: 6.0 s (-1.5 to 13.5)." in told["claims"][0]["evidence"]["why"]
    assert "The contrary is shown by value & more" in told["claims"][1]["evidence"]["why"]


def test_the_same_results_give_the_same_files(report: WrittenReport, tmp_path: Path) -> None:
    written(tmp_path)
    folder = report.json_path.parent
    names = {path.name for path in folder.iterdir()}
    assert names == {"report.json", "report.html", "bars.png", "bars.svg", "lines.png", "lines.svg"}
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(report: WrittenReport) -> None:
    text = report.html_path.read_text()
    page = Page(text)
    assert page.tags["svg"] == 2
    assert not page.tags.keys() & {"script", "link", "img", "iframe"}
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")
    assert "://" not in text


def test_ids_on_the_page_are_unique_and_what_refers_to_one_finds_it(report: WrittenReport) -> None:
    page = Page(report.html_path.read_text())
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert page.refers
    assert {target.removeprefix("#") for target in page.refers} <= page.ids.keys()


def test_words_of_an_experiment_are_text_on_the_page_and_not_markup(report: WrittenReport) -> None:
    text = report.html_path.read_text()
    for words in (
        "A &lt;sample&gt; &amp; more",
        "above &lt;a million&gt;",
        "All &lt;values&gt;.",
        "value &amp; more",
    ):
        assert words in text


def test_the_page_shows_verdicts_numbers_captions_and_the_command_to_repeat_it(
    report: WrittenReport, tmp_path: Path
) -> None:
    text = report.html_path.read_text()
    for words in (
        "Claims: 2 undecided",
        "reaches 1.5 s beyond 0",
        "it leans to: contrary",
        "6.0 s (-1.5 to 13.5)",
        "undecided",
        "contrary",
        "By seed.",
        "Nothing was void.",
        "koala experiment run sample --seed 1 --repetitions 3 --set factor=3.0 --out DIR",
        "3 seeds are a first look",
    ):
        assert words in text
    assert 'class="no"' not in text
    enough = written(tmp_path, 20).html_path.read_text()
    assert "first look" not in enough
    assert "Claims: 1 hold, 1 contrary" in enough
    assert '<td class="no">contrary</td>' in enough


def test_an_experiment_without_a_verb_has_no_command_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sample, "verb", "")
    text = written(tmp_path, 3).html_path.read_text()
    assert 'class="command"' not in text
    assert "The same command" not in text


def test_the_report_of_another_experiment_is_not_overwritten(report: WrittenReport, tmp_path: Path) -> None:
    check_folder(tmp_path / "not there", "sample")
    folder = report.json_path.parent
    check_folder(folder, "sample")
    with pytest.raises(OtherReportError) as caught:
        check_folder(folder, "koala2006")
    assert "the report of sample is there" in caught.value.for_user()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_and_its_tables_are_no_wider_than_the_window(
    browser: Browser, report: WrittenReport, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(report.html_path.as_uri())
    cut = "[...document.querySelectorAll('html, .scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.evaluate(cut) == 0
    page.close()
