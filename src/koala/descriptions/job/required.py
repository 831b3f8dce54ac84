"""The programs that an application requires of its site, if the job does not declare them: launchers of one batch
system that start processes over its nodes.

They are guessed from the commands of its script, or from its command. A script that checks if such a program is there
does without.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from koala.sites.batch.systems import launchers

# The text for no requirements in formats without an empty list.
NOTHING_REQUIRED = "none"
# At most this much of a script is examined; a longer line is data, and no command.
LOOKED_AT_CHARACTERS_MAX = 50_000
LINE_CHARACTERS_MAX = 1_000
_BETWEEN_COMMANDS = re.compile(r"[;&|({`]")
# What may precede a command: words of the shell, and programs that run another.
_IN_FRONT = frozenset(
    {
        "!", "then", "do", "else", "elif", "if", "while", "until",
        "exec", "time", "nohup", "env", "command", "eval", "timeout", "nice",
    }
)  # fmt: skip
# Their options and numbers too, and variables that are set for a command.
_NO_COMMAND = re.compile(r"-\S*|[0-9.]+[smhd]?|[A-Za-z_][A-Za-z0-9_]*=\S*")
_LOOKS_WHETHER_THERE = re.compile(r"(?:^|[\s;&|({`!])(?:command\s+-[vV]|which|type|hash)\s+(?:-\S+\s+)*(\S+)")


def required_by(
    script: str | None, executable: str | None = None, arguments: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the launch programs that a script or a command calls, in the order of ``launchers``."""
    if script is None and executable is not None and not executable.startswith("./"):
        called = _called([executable, *arguments])
        return tuple(program for program in launchers() if program == called)
    return _required_by_script(script)


@lru_cache(maxsize=16)
def _required_by_script(script: str | None) -> tuple[str, ...]:
    if script is None or not any(program in script for program in launchers()):
        return ()
    called: set[str] = set()
    looked_for: set[str] = set()
    for line in commands_of(script):
        looked_for.update(found[1].rstrip(";)") for found in _LOOKS_WHETHER_THERE.finditer(line))
        called.update(_called(command.split()) for command in _BETWEEN_COMMANDS.split(line))
    return tuple(program for program in launchers() if program in called and program not in looked_for)


def commands_of(script: str) -> list[str]:
    """Return the lines of a script that are no comments."""
    lines = script[:LOOKED_AT_CHARACTERS_MAX].splitlines()
    return [line for line in lines if not line.lstrip().startswith("#") and len(line) <= LINE_CHARACTERS_MAX]


def _called(command: Sequence[str]) -> str:
    """Return the name of the program that a command of these words calls."""
    for word in command:
        if word not in _IN_FRONT and _NO_COMMAND.fullmatch(word) is None:
            return word.rpartition("/")[2]
    return ""
