"""``koala demo --simulated``: the three jobs of the story are shown, in the width there is."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from koala.cli import koala


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_the_demo_shows_the_split_the_preemption_and_the_restart(columns: str) -> None:
    result = CliRunner(env={"COLUMNS": columns}).invoke(koala, ["demo", "--simulated"])
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert "placed: 18 on amsterdam, 6 on berlin" in text
    assert "preempted by high-priority job 2" in text
    assert "requeued: component 1 failed on berlin" in text
    assert "restarted, done" in text
    assert "preempted, done" in text
    assert all(len(line) <= int(columns) for line in text.splitlines())
    assert "mesh.dat" in text
    for job in ("A waves", "B alarm", "C sweep"):
        assert job in text


def test_the_legend_stands_under_the_picture() -> None:
    lines = CliRunner(env={"COLUMNS": "80"}).invoke(koala, ["demo", "--simulated"]).stdout.splitlines()
    ruler = next(number for number, line in enumerate(lines) if "|0 s" in line)
    assert "at the barrier" in lines[ruler + 1]
    assert "site down" in lines[ruler + 1]
    assert "row 3 processors" in lines[ruler + 1]
    assert ruler + 1 < 24, "the whole picture and its legend fit a terminal of 24 lines"


@pytest.mark.parametrize("option", ["--keep", "--json"])
def test_what_only_the_live_demo_has_is_refused(option: str) -> None:
    result = CliRunner().invoke(koala, ["demo", "--simulated", option])
    assert result.exit_code == 2
    assert "leave out --simulated" in result.stderr
