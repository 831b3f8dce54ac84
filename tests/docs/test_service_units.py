"""The units for systemd that the page on live grids shows: systemd itself finds nothing wrong with them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.real_programs import real_program

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "run-a-live-grid.md"
UNIT = re.compile(r'^```ini title="([^"]*/koala\.service)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
UNITS = UNIT.findall(PAGE.read_text(encoding="utf-8"))
SYSTEM, USER = "/etc/systemd/system/koala.service", "~/.config/systemd/user/koala.service"
PROGRAM = re.compile(r"(?<=^ExecStart=)\S+", re.MULTILINE)


def complaints(text: str, folder: Path, *, user: bool) -> str:
    """What ``systemd-analyze verify`` says of a unit whose program is one that every machine has."""
    unit = folder / "koala.service"
    unit.write_text(PROGRAM.sub("/bin/true", text))
    done = subprocess.run(
        [real_program("systemd-analyze", "systemd"), *(["--user"] if user else []), "verify", unit],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


def test_the_page_has_a_unit_for_the_machine_and_one_for_a_user() -> None:
    assert [name for name, _ in UNITS] == [SYSTEM, USER]


@pytest.mark.parametrize(("name", "text"), UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, text: str, tmp_path: Path) -> None:
    assert complaints(text, tmp_path, user=name == USER) == ""
    broken = text.replace("KillMode=process", "KillMood=process")
    assert "KillMood" in complaints(broken, tmp_path, user=name == USER)


@pytest.mark.parametrize(("name", "text"), UNITS)
def test_a_unit_starts_with_the_machine_and_leaves_components_alone(name: str, text: str) -> None:
    lines = text.splitlines()
    assert "WantedBy=" in text.partition("[Install]")[2], "systemctl enable has something to do"
    assert "KillMode=process" in lines
    assert "Restart=on-failure" in lines
    if name == SYSTEM:
        (after,) = [line for line in lines if line.startswith("After=")]
        assert "network-online.target" in after
        assert "Wants=network-online.target" in text
