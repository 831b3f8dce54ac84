"""``koala place`` with links: their capacities, what is on them, and what the job sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.errors import UserError
from koala.cli.place.options import parse_load, with_communication
from koala.model.request import Communication, Component, Pattern, Request

IDLE = ("--idle", "C1=30,C2=20,C3=20")
LINKED = (*IDLE, "--uplink", "1000")

GRID = """
sites:
  A: {processors: 40}
  B: {processors: 40}
  C: {processors: 40}
network:
  uplink_mbit_s: 1000
  groups:
    - {name: west, uplink_mbit_s: 500, members: [A, B]}
"""


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(koala, ["place", *arguments])


def places(*arguments: str) -> dict[str, int] | None:
    result = run(*arguments, "--json")
    assert result.exit_code in (0, 3), result.output
    answer: Any = json.loads(result.stdout)
    if not answer["placed"]:
        return None
    return {component["site"]: component["processors"] for component in answer["components"]}


@pytest.fixture
def grid(tmp_path: Path) -> str:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID, encoding="utf-8")
    return str(path)


def test_what_is_on_the_links_decides_where_a_job_is_divided() -> None:
    asked = (*LINKED, "--flexible", "35", "--policy", "B1")
    assert places(*asked) == {"C1": 30, "C2": 5}
    assert places(*asked, "--load", "C1=1000") == {"C2": 20, "C3": 15}
    assert places(*asked, "--load", "C1=1000,C2=1000.5") is None


def test_parameters_are_given_behind_the_name_and_the_name_is_said_back() -> None:
    result = run(*LINKED, "--flexible", "35", "--policy", "b3(0.9)", "--json")
    assert json.loads(result.stdout)["policy"] == "B3(chunk=0.9)"
    assert places(*LINKED, "--flexible", "35", "--policy", "B3(0.85)") == {"C1": 30, "C2": 5}
    wrong = run(*LINKED, "--flexible", "35", "--policy", "B3(size=1)")
    assert wrong.exit_code == 2
    assert "the parameters are: chunk, lslt" in wrong.stderr


def test_a_job_has_a_home_and_sends_something() -> None:
    assert places(*LINKED, "--flexible", "20", "--home", "C1", "--policy", "A1") == {"C1": 20}
    asked = (*LINKED, "--flexible", "40", "--load", "C1=900", "--policy", "A1")
    assert places(*asked) == {"C1": 30, "C2": 10}
    assert places(*asked, "--bisection", "300") == {"C1": 3, "C2": 20, "C3": 17}
    assert places(*asked, "--bisection", "300", "--pattern", "ring") == {"C2": 20, "C3": 20}
    assert places(*asked, "--pattern", "none") == {"C1": 30, "C2": 10}


def test_b5_is_told_what_was_observed() -> None:
    asked = (*LINKED, "--flexible", "60", "--load", "C1=900,C2=900,C3=900", "--policy", "B5")
    assert places(*asked) is not None
    assert places(*asked, "--observed", "900") is None


def test_a_grid_says_what_its_links_carry_and_which_are_shared(grid: str) -> None:
    asked = ("--grid", grid, "--flexible", "100", "--policy", "B1")
    assert places(*asked) == {"A": 40, "B": 40, "C": 20}
    assert places(*asked, "--load", "west=500") is None
    result = run(*asked, "--load", "west=500")
    assert result.exit_code == 3
    assert "the link west (500 of 500 Mbit/s in use)" in result.stdout
    assert "less traffic on the link west" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((*IDLE, "--flexible", "9", "--load", "C1=5"), "give --uplink 1000"),
        ((*LINKED, "--flexible", "9", "--load", "C9=5"), "no link 'C9'; did you mean"),
        ((*LINKED, "--flexible", "9", "--load", "C1"), "does not name a link"),
        ((*LINKED, "--flexible", "9", "--load", "C1=5,C1=6"), "is given twice"),
        ((*LINKED, "--flexible", "9", "--load", "C1=much"), "'much' is not a number"),
        ((*LINKED, "--flexible", "9", "--load", "C1=-5"), "-5 is not a bandwidth"),
        ((*LINKED, "--flexible", "9", "--bisection", "-1"), "--bisection: -1 is not a bandwidth"),
        ((*LINKED, "--flexible", "9", "--observed", "0"), "--observed: 0 is not a bandwidth"),
        ((*IDLE, "--uplink", "0", "--flexible", "9"), "--uplink: 0 is not a bandwidth"),
        ((*LINKED, "--flexible", "9", "--pattern", "ring"), "give --bisection too"),
        ((*LINKED, "--flexible", "9", "--home", "C9", "--policy", "B1"), "the home of the job is 'C9'"),
    ],
)
def test_bad_link_options_are_told(arguments: tuple[str, ...], problem: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_an_uplink_is_not_given_twice(grid: str) -> None:
    result = run("--grid", grid, "--uplink", "5", "--flexible", "9")
    assert result.exit_code == 2
    assert "leave the option out" in result.stderr


def test_loads_are_read_with_their_fractions() -> None:
    assert parse_load("C1=900, C2=0.5") == {"C1": 900.0, "C2": 0.5}
    with pytest.raises(UserError):
        parse_load("C1=900,,")


def test_options_change_what_a_job_says_of_its_communication() -> None:
    said = Communication(per_processor_mbit_s=2.0, share=0.5)
    job = Request(components=(Component(processors=8),), communication=said)
    assert with_communication(job, home=None, bisection=None, pattern=None) is job
    ring = with_communication(job, home="C1", bisection=None, pattern="ring")
    assert ring.home == "C1"
    assert ring.communication == Communication(per_processor_mbit_s=2.0, share=0.5, pattern=Pattern.RING)
    wide = with_communication(job, home=None, bisection=100.0, pattern=None).communication
    assert wide == Communication(bisection_mbit_s=100.0, share=0.5)
