"""Shell that is more than a line lives in files of the package, which shellcheck and every POSIX shell can read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import koala
from tests.support.real_programs import real_program

PACKAGE = Path(koala.__file__).parent
FILES = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.sh"))]


@pytest.mark.parametrize("name", FILES)
def test_shellcheck_finds_nothing(name: str) -> None:
    assert (PACKAGE / name).read_text().startswith("# shellcheck shell=sh")
    done = subprocess.run(
        [real_program("shellcheck"), PACKAGE / name], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("shell", [("dash",), ("bash", "--posix"), ("busybox", "sh")])
def test_every_shell_reads_them(shell: tuple[str, ...]) -> None:
    program = real_program(shell[0])
    assert FILES
    for name in FILES:
        done = subprocess.run(
            [program, *shell[1:], "-n", PACKAGE / name], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
