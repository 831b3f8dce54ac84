"""Runs the commands that the pages show and writes their real output under them.

In a block marked ``console`` every line that starts with ``$ `` is run by a shell, in an empty directory for each
page, and what follows it is its output; ``$ echo $?`` shows an exit code other than 0. A block with a ``title`` is
a file, which is written into that directory first. ``--check`` changes nothing and names the pages that differ.

A page that starts a daemon has one of its own, whose state is in that directory and which is stopped at the end. What
differs there only in times is kept as it is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')
TIMEOUT_S = 120
ASK_CODE = "echo $?"
STATE = ".state"
STARTS_DAEMON = "$ koala up --detach"
# How long something took, and when it was: no two runs say the same.
TIMES = re.compile(r"\b\d\d:\d\d:\d\d\b|\b(\d+m)?\d+(\.\d+)?(s|ms)\b")

# Runs a command in a directory: its exit code and what it printed.
Shell = Callable[[str, Path], tuple[int, str]]


class UnexpectedExitError(RuntimeError):
    """A command on a page ended with a code that the page does not show."""


def pages() -> list[Path]:
    """Every page of the project that shows commands to run."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "```console\n" in page.read_text(encoding="utf-8")]


def refreshed(page: str, directory: Path, run: Shell | None = None) -> str:
    """The page with the output of its commands as it is now; they run in the directory given, in order."""

    def rewrite(block: re.Match[str]) -> str:
        info, body = block["info"], block["body"]
        title = TITLE.search(info)
        if title is not None:
            (directory / title[1]).write_text(body, encoding="utf-8")
        if info != "console":
            return block[0]
        now = _run_block(body, directory, run or run_in_shell)
        if is_live and _without_times(now) == _without_times(body):
            return block[0]
        return f"```console\n{now}```"

    is_live = STARTS_DAEMON in page
    try:
        return BLOCK.sub(rewrite, page)
    finally:
        if is_live and (directory / STATE).exists():
            (run or run_in_shell)("koala down", directory)


def _without_times(text: str) -> str:
    """A column may be wider where a time in it is longer."""
    return re.sub(r" +", " ", TIMES.sub("", text))


def _run_block(body: str, directory: Path, run: Shell) -> str:
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    lines: list[str] = []
    code = 0
    for number, command in enumerate(commands):
        if command == ASK_CODE:
            lines += [f"$ {command}", str(code)]
            continue
        code, output = run(command, directory)
        shown = number + 1 < len(commands) and commands[number + 1] == ASK_CODE
        if code != 0 and not shown:
            raise UnexpectedExitError(f"{command!r} exits with {code}; show it with '$ {ASK_CODE}'\n{output}")
        lines += [f"$ {command}", *(line.rstrip() for line in output.rstrip().splitlines())]
    return "".join(f"{line}\n" for line in lines)


def environment(directory: Path) -> dict[str, str]:
    """What commands are run with: a terminal of 80 columns without colours, ``koala`` of this Python, and a state of
    their own."""
    tools = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TERM", "KOALA_SERVER")}
    return kept | {
        "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        "XDG_STATE_HOME": str(directory / STATE),
    }


def run_in_shell(command: str, directory: Path) -> tuple[int, str]:
    """The exit code of a command and what it printed."""
    done = subprocess.run(  # noqa: S603 - running what our own pages show is the purpose
        ["/bin/sh", "-c", command],
        cwd=directory,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout


def main(arguments: list[str]) -> int:
    """Write the pages that differ, or with ``--check`` name them and return 1."""
    wanted = [Path(name).resolve() for name in arguments if name != "--check"] or pages()
    stale = 0
    for page in wanted:
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as directory:
            after = refreshed(before, Path(directory))
        if after != before:
            stale += 1
            print(f"{page.relative_to(ROOT)} shows old output")
            if "--check" not in arguments:
                page.write_text(after, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
