"""Study files: short and long entries, defaults, and errors that name the key, what is wrong and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from koala.descriptions.errors import DescriptionError
from koala.descriptions.fields import STUDY_LABEL_CHARACTERS_MAX
from koala.descriptions.study.form import (
    STUDY_ENTRIES_MAX,
    STUDY_RUNS_MAX,
    STUDY_SEEDS_MAX,
    StudyMetric,
    StudyText,
    file_label,
    read_study_text,
    study_schema,
)

SHORT = """\
study: mine
policies: [WF, CM]
grids: [4x100]
workloads: [hello]
"""


def read(text: str) -> StudyText:
    return read_study_text(text, "study.yaml").model


def problem(text: str) -> str:
    with pytest.raises(DescriptionError) as caught:
        read(text)
    return caught.value.for_user()


def test_names_alone_make_a_study() -> None:
    study = read(SHORT)
    assert [each.policy for each in study.policies] == ["WF", "CM"]
    assert (study.seeds.first, study.seeds.count, study.seeds.at_most) == (1, 20, 80)
    assert study.metrics[0] is StudyMetric.RESPONSE
    assert study.runs_max == 2 * 1 * 1 * 80


def test_a_number_alone_says_how_many_seeds() -> None:
    assert read(SHORT + "seeds: 30\n").seeds.count == 30


def test_files_are_called_by_their_names_without_folders_and_endings() -> None:
    study = read(SHORT + "traces: [archive/KTH-SP2.swf.gz, {trace: a.swf, label: other}]\n")
    assert [file_label(each) for each in study.traces] == ["KTH-SP2", "other"]


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        (("workloads: [hello]\n", ""), "study.yaml:1:1", "there are no jobs to run"),
        (("[WF, CM]", "[WF, WF]"), "study.yaml:2:16", "give one of them a label"),
        (("[WF, CM]", "[]"), "study.yaml:2:1", "policies"),
        (("study: mine", "study: my study"), "study.yaml:1:8", "study"),
        (("[hello]", "[hello]\npolicy: WF"), "study.yaml:5:1", "did you mean 'policies'?"),
        (("[hello]", "[hello]\nseeds: {count: 30, most: 20}"), "study.yaml:5:26", "fewer than the 30 to begin with"),
        (("[hello]", "[hello]\nseeds: 1"), "study.yaml:5:8", "seeds"),
        (("[hello]", f"[hello]\nseeds: {STUDY_SEEDS_MAX + 1}"), "study.yaml:5:8", f"{STUDY_SEEDS_MAX}"),
        (("[hello]", "[hello]\nbaseline: CF"), "study.yaml:5:11", "known here: WF, CM"),
        (("[hello]", "[hello]\nmetrics: [speed]"), "study.yaml:5:11", "response_s"),
        (
            ("[hello]", "[hello]\nexpectations: [{policy: CM}]"),
            "study.yaml:5:16",
            "exactly one of below, above, near",
        ),
        (("[hello]", "[hello]\nexpectations: [{policy: XM, below: WF}]"), "study.yaml:5:25", "has no policy 'XM'"),
        (("[hello]", "[hello]\nexpectations: [{policy: CM, below: WX}]"), "study.yaml:5:36", "known here: WF, CM"),
        (("[hello]", "[hello]\nexpectations: [{policy: CM, below: CM}]"), "study.yaml:5:36", "compared with itself"),
        (("[hello]", "[hello]\nexpectations: [{policy: CM, near: WF}]"), "study.yaml:5:35", "write percent: 5"),
        (
            ("[hello]", "[hello]\nexpectations: [{policy: CM, below: 9, percent: 5}]"),
            "study.yaml:5:48",
            "percent goes with the name of a policy",
        ),
        (
            ("[hello]", "[hello]\nexpectations: [{policy: CM, below: WF, grids: [das2]}]"),
            "study.yaml:5:48",
            "has no grid 'das2'",
        ),
        (
            ("[WF, CM]", f"[{{policy: WF, label: {'x' * (STUDY_LABEL_CHARACTERS_MAX + 1)}}}]"),
            "study.yaml:2:",
            f"{STUDY_LABEL_CHARACTERS_MAX}",
        ),
        (
            ("[WF, CM]", f"[{', '.join(f'P{number}' for number in range(STUDY_ENTRIES_MAX + 1))}]"),
            "study.yaml:2:",
            f"{STUDY_ENTRIES_MAX:,}".replace(",", ""),
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_advice(change: tuple[str, str], place: str, words: str) -> None:
    said = problem(SHORT.replace(*change))
    assert place in said
    assert words in said


def test_a_million_runs_are_refused_by_the_name_of_the_limit() -> None:
    grids = ", ".join(f"{count}x10" for count in range(1, 126))
    said = problem(SHORT.replace("[4x100]", f"[{grids}]") + "seeds: {count: 20, most: 4000}\n")
    assert "2 policies x 125 grids x 1 workloads and traces x 4,000 seeds are 1,000,000 runs" in said
    assert f"more than {STUDY_RUNS_MAX:,} (STUDY_RUNS_MAX)" in said
    assert "take fewer seeds" in said


def test_every_field_of_the_schema_says_what_it_means() -> None:
    schema = study_schema()

    def properties(part: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            field for each in (part, *part.get("$defs", {}).values()) for field in each.get("properties", {}).values()
        ]

    assert all(field.get("description") for field in properties(schema))
