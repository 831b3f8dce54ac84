"""The shell scripts that run at sites: shellcheck finds nothing in them, and they are part of the package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import koala.files
from koala.files.transfer.methods import paced_reader
from tests.support.real_programs import real_program

SCRIPTS = sorted(Path(koala.files.__file__).parent.rglob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = real_program("shellcheck")
    done = subprocess.run([shellcheck, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert script.read_text().startswith("# shellcheck shell=sh"), "whichever shell a site has must understand it"


def test_what_a_login_shell_reads_is_one_line() -> None:
    assert "\n" not in paced_reader("a file", 0, 10, 5.0)
