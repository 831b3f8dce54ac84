"""Properties of the readers: what is written is read back, and no text breaks them."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.descriptions import DescriptionError, read_grid, read_job, write_job_yaml, write_rsl
from koala.descriptions.yaml import nodes as yaml_nodes
from koala.model.request import Request
from tests.support.description_samples import GRID_YAML, JOB_RSL, JOB_SBATCH, JOB_YAML, requests

SAMPLES = {"job.yaml": JOB_YAML, "job.rsl": JOB_RSL, "job.sbatch": JOB_SBATCH}
# Characters that mean something in one of the formats.
SIGNS = st.sampled_from(
    [*"+&|()=<>!\"'^#$:,-[]{}*&?@`%\\ \n\t0a", "<<", "---", "\x07", "\ud800", "é", "\u2028", '"\\e"']
)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """A good document with a few pieces cut out, doubled, or replaced by signs."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.one_of(SIGNS, st.just(""), st.just(text[start:end] * 2), st.text(max_size=3)))
        text = text[:start] + piece + text[end:]
    return text


def report_of(text: str, source: str) -> str | None:
    """What the user is told of the text; None where it is good."""
    try:
        if source == "grid.yaml":
            read_grid(text, source)
        else:
            read_job(text, source)
    except DescriptionError as error:
        return error.for_user()
    return None


def check_report(text: str, source: str) -> None:
    """Whatever the text holds, its report names the file and is safe to print on a terminal."""
    report = report_of(text, source)
    if report is not None:
        assert report.startswith(source)
        assert all(
            character.isprintable() or character in "\n\ufffd\u00a0" for character in report if ord(character) < 256
        )
        report.encode("utf-8")


@settings(max_examples=60, deadline=None)
@given(requests())
def test_a_request_written_as_rsl_is_read_as_the_same_request(request_: Request) -> None:
    assert read_job(write_rsl(request_), "job.rsl") == request_


@settings(max_examples=60, deadline=None)
@given(requests())
def test_a_request_written_as_yaml_is_read_as_the_same_request(request_: Request) -> None:
    assert read_job(write_job_yaml(request_), "job.yaml") == request_


@pytest.mark.parametrize("source", ["job.yaml", "job.rsl", "job.sbatch", "grid.yaml", "job"])
def test_no_text_raises_anything_but_a_description_error(source: str) -> None:
    @settings(max_examples=100, deadline=None)
    @given(st.one_of(st.text(max_size=60), st.lists(SIGNS, max_size=30).map("".join)))
    def check(text: str) -> None:
        check_report(text, source)
        check_report("#!" + text, source)

    check()


@pytest.mark.parametrize("source", ["job.yaml", "job.rsl", "job.sbatch", "grid.yaml"])
def test_no_damaged_document_raises_anything_but_a_description_error(source: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(mutated(SAMPLES.get(source, GRID_YAML)))
    def check(text: str) -> None:
        check_report(text, source)

    check()


@pytest.mark.parametrize(
    "text", ['name: "\\U99999999"', 'name: "\\UFFFFFFFF"', 'name: "\\ud800"', "a: [", "\t- a", "*a"]
)
def test_the_yaml_parser_in_python_reports_as_libyaml_does(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report_of(text, "job.yaml") is not None
    # Where PyYAML is built without libyaml, this parser is all there is.
    monkeypatch.setattr(yaml_nodes, "_PARSER", yaml.SafeLoader)
    check_report(text, "job.yaml")
    assert report_of(text, "job.yaml") is not None


def test_both_yaml_parsers_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    job, grid = read_job(JOB_YAML, "job.yaml"), read_grid(GRID_YAML, "grid.yaml")
    monkeypatch.setattr(yaml_nodes, "_PARSER", yaml.SafeLoader)
    assert read_job(JOB_YAML, "job.yaml") == job
    assert read_grid(GRID_YAML, "grid.yaml") == grid
