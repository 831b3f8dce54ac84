"""Parameters from what a user writes after --set, and errors that name the parameter."""

from __future__ import annotations

import pytest

from koala.study.frame.experiment import ParameterError, parameters_from
from koala_papers.catalogue import EXPERIMENTS, UnknownExperimentError, experiments, find
from tests.support.frame_samples import Sample, SampleParameters


def test_text_becomes_what_the_parameter_is() -> None:
    settings = {"factor": "3", "rounds": "4", "title": "12", "sizes": "[5, 6]"}
    assert parameters_from(Sample(), settings) == SampleParameters(factor=3.0, rounds=4, title="12", sizes=(5, 6))


def test_a_quick_look_starts_from_less_and_what_is_set_still_holds() -> None:
    assert parameters_from(Sample(), {}, quick=True).rounds == 1
    assert parameters_from(Sample(), {"rounds": "7"}, quick=True).rounds == 7


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("factr", "3", "sample has no parameter factr; did you mean factor? There are factor, rounds, title, sizes"),
        ("zzz", "3", "sample has no parameter zzz; there are factor, rounds, title, sizes"),
        ("rounds", "many", "sample, parameter rounds: 'many' will not do: Expected `int`"),
        ("factor", "-1", "Expected `float` > 0"),
        ("factor", "nan", "sample, parameter factor: 'nan' will not do"),
        ("factor", "inf", "sample, parameter factor: 'inf' will not do"),
        ("sizes", "[1, ", "sample, parameter sizes: '[1, ' will not do"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_do(name: str, text: str, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parameters_from(Sample(), {name: text})
    assert words in caught.value.for_user()


def test_every_experiment_has_a_question_and_enough_seeds() -> None:
    assert {each.name for each in experiments()} == set(EXPERIMENTS)
    for each in experiments():
        assert each.question.endswith("?")
        # A map only leans, and leaves judging to the experiment that it is a map of.
        assert each.repetitions >= each.seeds_min or each.name == "koala2006-map"
        assert each.method


def test_an_unknown_experiment_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownExperimentError) as caught:
        find("koala206")
    assert "koala206: there is no experiment of that name; did you mean koala2006?" in caught.value.for_user()
