"""The shell functions for component directories where two scripts are at the same one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from koala.sites.batch.scripts import directory

FRAME = "koala_new=ours\nkoala_mark() { printf '[%s]\\n' \"$*\"; }\n"
# Between the look and the rename another script makes the component.
OVERTAKEN = 'mv() { mkdir -p 1.1; echo theirs >1.1/record.json; command mv "$@"; }\n'


def run(root: Path, text: str) -> int:
    functions = f"koala_root='{root}'\n{directory._functions()}"
    return subprocess.run(["sh", "-c", f"{FRAME}{functions}{text}"], check=False).returncode


def opened(root: Path) -> Path:
    assert run(root, "koala_open me mark\n") == 0
    return root / "components"


def test_of_two_scripts_that_make_a_component_one_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    components = opened(tmp_path)
    assert run(tmp_path, f"{OVERTAKEN}koala_enter\nkoala_make 1.1 script site '{{}}'\n") == 74
    assert [each.name for each in components.iterdir()] == ["1.1"]
    assert [each.name for each in (components / "1.1").iterdir()] == ["record.json"]
    assert (components / "1.1/record.json").read_text() == "theirs\n"


# What an application does that is let go at once: before the script that opened its barrier looks again.
AT_ONCE = 'ln() { command ln "$@" && case $2 in */go) %s ;; esac; }\n'


@pytest.mark.parametrize("trick", ["rm -rf 1.1", "rm -rf 1.1; touch 1.1", "rm 1.1/go 1.1/released", "mv 1.1 1.2"])
def test_a_barrier_was_opened_whatever_the_application_does_to_its_directory_at_once(
    tmp_path: Path, trick: str, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path)
    made = "koala_enter\nkoala_make 1.1 script site '{}'\nkoala_stage() { :; }\n"
    run(tmp_path, made + AT_ONCE % trick + "koala_release 1.1 '' 5.0\n")
    assert "[released]" in capfd.readouterr().out


@pytest.mark.parametrize("trick", ["rm -rf 1.1", "rm -rf 1.1; touch 1.1", "mv 1.1 1.2; ln -s 1.2 1.1"])
def test_a_directory_that_cannot_be_used_before_its_barrier_is_told_of_as_such(
    tmp_path: Path, trick: str, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path)
    made = f"koala_enter\nkoala_make 1.1 script site '{{}}'\nkoala_stage() {{ :; }}\n{trick}\n"
    run(tmp_path, f"{made}koala_release 1.1 '' 5.0\n")
    told = capfd.readouterr().out
    assert "[unseen]" in told
    assert "[released]" not in told


def test_what_a_killed_script_was_making_is_removed_when_the_site_is_opened(tmp_path: Path) -> None:
    components = opened(tmp_path)
    for name in (".1.1.new.theirs", ".1.2.gone.theirs"):
        (components / name / "workspace").mkdir(parents=True)
    assert run(tmp_path, "koala_enter\nkoala_make 1.3 script site '{}'\n") == 0
    opened(tmp_path)
    assert [each.name for each in components.iterdir()] == ["1.3"]
    assert sorted(each.name for each in (components / "1.3").iterdir()) == [
        *("inbox", "outbox", "record.json", "script", "site", "workspace")
    ]
