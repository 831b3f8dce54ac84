"""The shell functions for component directories where two scripts are at the same one."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
