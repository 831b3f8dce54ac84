"""``koala policies``: the list of policies, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.policies.policy_file import POLICY_FILE_BYTES_MAX

MINE = """
from koala.policies import policy

@policy("MINE", summary="Refuses [everything].")
def mine(idle, sizes, left, chosen):
    return 0
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["policies", *arguments])


def test_every_policy_of_koala_is_listed_with_its_form() -> None:
    answer = run("--json")
    assert answer.exit_code == 0
    listed = json.loads(answer.stdout)
    assert [(known["name"], known["form"], known["origin"]) for known in listed] == [
        ("WF", "components", "koala"),
        ("CM", "components", "koala"),
        ("FCM", "flexible", "koala"),
        ("CF", "files", "koala"),
        ("NCM", "network", "koala"),
        ("NFCM", "flexible-network", "koala"),
        ("FCF", "flexible-files", "koala"),
        *[
            (name, "links", "koala")
            for name in ("Migration-Only", "Initial", "Ideal", "A1", "A2", "B1", "B2", "B3", "B4", "B5")
        ],
        ("WASE", "tasks", "koala"),
        ("WASE-whole", "tasks", "koala"),
        *[(name, "order", "koala") for name in ("round-robin", "fcfs", "easy", "sjf")],
    ]
    assert all(known["summary"] for known in listed)


def test_the_parameters_of_a_policy_are_listed_with_their_defaults() -> None:
    listed = {known["name"]: known["parameters"] for known in json.loads(run("--json").stdout)}
    assert listed["WF"] == []
    assert [(each["name"], each["default"]) for each in listed["B3"]] == [("chunk", "0.85"), ("lslt", "1")]
    assert listed["A1"][0]["values"] == "index or most-free"
    assert "chunk=0.85" in run().stdout


def test_the_table_shows_a_users_policies_and_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    answer = CliRunner(env={"COLUMNS": "300"}).invoke(koala, ["policies", "--policy-file", str(path)])
    assert answer.exit_code == 0
    assert "MINE" in answer.stdout
    assert "Refuses [everything]." in answer.stdout
    assert "mine.py" in answer.stdout


def test_a_narrow_screen_cuts_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    answer = run()
    assert answer.exit_code == 0
    assert "\N{HORIZONTAL ELLIPSIS}" not in answer.stdout
    assert all(len(line) <= 60 for line in answer.stdout.splitlines())
    assert "Migration-Only (links, from koala)" in answer.stdout
    assert "Parameters: order=index, objective=none, lslt=1." in answer.stdout


def test_a_policy_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    missing = run("--policy-file", str(tmp_path / "gone.py"))
    assert missing.exit_code == 2
    assert "gone.py: it cannot be read: No such file" in missing.stderr
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00")
    answer = run("--policy-file", str(binary))
    assert answer.exit_code == 2
    assert "not UTF-8" in answer.stderr


def test_a_policy_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    padding = "#" * (POLICY_FILE_BYTES_MAX - len(MINE.encode()))
    path.write_text(MINE + padding, encoding="utf-8")
    assert run("--policy-file", str(path)).exit_code == 0
    path.write_text(MINE + padding + "#", encoding="utf-8")
    answer = run("--policy-file", str(path))
    assert answer.exit_code == 2
    assert "POLICY_FILE_BYTES_MAX" in answer.stderr
