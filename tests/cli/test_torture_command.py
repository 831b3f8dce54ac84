"""``koala torture``: what it prints, how it fails, and which seeds it ran."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.simulator.torture import torture as storms


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["torture", *arguments])


LIVED_THROUGH = cache(storms.torture)


@pytest.fixture(autouse=True)
def lived_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storm of a seed is the same for all tests."""
    monkeypatch.setattr(storms, "torture", LIVED_THROUGH)


@pytest.fixture
def broken_seed_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that breaks a promise in the storm of seed 2, and in no other."""
    honest = storms.torture

    def planted(seed: int) -> Any:
        verdict = honest(seed)
        if seed != 2:
            return verdict
        return msgspec.structs.replace(
            verdict,
            broken="PLANTED",
            detail="PLANTED: job 1 got too much",
            story=("   0.0 s  submitted", "then [that]"),
        )

    monkeypatch.setattr(storms, "torture", planted)


def test_storms_that_keep_every_promise_exit_with_0() -> None:
    result = run("--seeds", "2", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "2 storms, " in result.stdout
    assert "every promise was kept" in result.stdout


@pytest.mark.usefixtures("broken_seed_2")
def test_a_broken_promise_exits_with_1_and_tells_the_story_and_how_to_repeat_it() -> None:
    result = run("--seeds", "3", "--first", "1", "--workers", "1")
    assert result.exit_code == 1
    for words in (
        "seed 2 broke a promise: PLANTED: job 1 got too much",
        "then [that]",
        "koala torture --seed 2",
        "1 storm broke a promise",
    ):
        assert words in result.stdout


@pytest.mark.usefixtures("broken_seed_2")
def test_json_says_which_seeds_ran_and_which_failed() -> None:
    result = run("--seeds", "2", "--first", "1", "--workers", "1", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["seeds"], told["first_seed"], told["last_seed"], told["complete"]) == (2, 1, 2, True)
    (failed,) = told["failed"]
    assert (failed["seed"], failed["broken"], failed["repeat"]) == (2, "PLANTED", "koala torture --seed 2")
    assert failed["story"][1] == "then [that]"


@pytest.mark.parametrize("other", ["--seeds", "--first"])
def test_one_seed_and_a_range_of_them_are_refused_together(other: str) -> None:
    result = run("--seed", "4", other, "3")
    assert result.exit_code == 2
    assert f"--seed runs one storm and {other} is about many" in result.stderr


def test_ctrl_c_tells_how_many_storms_were_kept_and_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = storms.torture

    def interrupted(seed: int) -> Any:
        if seed == 1:
            raise KeyboardInterrupt
        return honest(seed)

    monkeypatch.setattr(storms, "torture", interrupted)
    result = run("--seeds", "5", "--workers", "1")
    assert result.exit_code == 130
    assert "Interrupted after 1 of 5 storms." in result.stderr
    assert "1 storm, " in result.stdout
