"""The only place of the lab that runs programs and waits for them; and where it finds them.

``koala.lab.daemons`` starts daemons, with the functions of ``koala.sites.processes``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from koala.lab.errors import LabFailedError
from koala.sites import processes

TIMEOUT_S = 30.0
# Far more than a daemon needs to start on a busy machine; the death of one is noticed at once.
START_S_MAX = 120.0
# Administrators' programs are not on an ordinary user's path.
_MORE_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_LAST_LINES = 8
_POLL_S = 0.03


class ProgramResult(msgspec.Struct, frozen=True):
    """A program's exit code and output."""

    code: int
    stdout: str
    stderr: str


@functools.cache
def search_path() -> str:
    """Return the directories with programs, in the form of PATH."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*path, *(each for each in _MORE_DIRECTORIES if each not in path)])


def find(program: str) -> str | None:
    """Return the path of a program; None if it is not installed."""
    return shutil.which(program, path=search_path())


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these variables and without those of other batch systems."""
    return {**processes.own_environment(), "PATH": search_path(), **more}


def run(
    words: Sequence[str],
    more: Mapping[str, str] | None = None,
    *,
    text: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ProgramResult:
    """Run a program to its end, with ``text`` as its standard input. Raises LabFailedError if it takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - words of the lab's own, never text of a shell
            list(words),
            env=environment(more or {}),
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabFailedError(f"{' '.join(words)}: no answer within {timeout_s:g} seconds") from None
    except OSError as error:
        raise LabFailedError(f"{words[0]}: cannot be run: {error.strerror}") from None
    return ProgramResult(done.returncode, done.stdout, done.stderr)


def must_run(words: Sequence[str], more: Mapping[str, str] | None = None, *, text: str | None = None) -> str:
    """Return a program's output. Raises LabFailedError with its last words if it failed."""
    answer = run(words, more, text=text)
    if answer.code != 0:
        said = last_lines((answer.stdout + answer.stderr).splitlines())
        raise LabFailedError(f"{' '.join(words)}: failed with exit code {answer.code}: {said}")
    return answer.stdout


def last_lines(lines: Iterable[str]) -> str:
    """Return the end of a program's output, in one line."""
    told = [line.strip() for line in lines if line.strip()]
    return " | ".join(told[-_LAST_LINES:]) or "it printed nothing"


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Poll a condition; return True if it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
