"""A job that is made of a command, for ``koala submit --wrap`` and ``koala run``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from koala.cli.errors import UserError
from koala.cli.terminal.words import clean
from koala.model.request import JobType

# The place of a problem in the options.
SOURCE = "the options"
# At most this much of its program's name becomes the name of a job without one.
PROGRAM_CHARACTERS_MAX = 40


class CommandOptions(NamedTuple):
    """The request of a job that is made of a command; None stands for a job's default."""

    processors: int | None
    walltime: str | None
    name: str | None
    type: str | None

    @property
    def given(self) -> str:
        """The first of the given options, empty without any."""
        return next((f"--{name}" for name, value in self._asdict().items() if value is not None), "")


def command_options(only: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of ``CommandOptions``, to a verb that has them ``only`` in some cases."""

    def help_text(text: str) -> str:
        return f"{only}{text}" if only else f"{text[0].upper()}{text[1:]}"

    kinds = [kind.value for kind in JobType]
    options = [
        click.option(
            "-n", "--processors", type=click.IntRange(min=1), metavar="N", help=help_text("how many; one by default.")
        ),
        click.option(
            "--walltime", metavar="TIME", help=help_text("the longest that it may run: seconds, 15m, 1h30m.")
        ),
        click.option(
            "--name", metavar="TEXT", help=help_text("the name of the job; by default that of the program.")
        ),
        click.option("--type", type=click.Choice(kinds), help=help_text("which runner starts it; plain by default.")),
    ]

    def add(verb: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return add


def wrapped_job(line: str, options: CommandOptions) -> str:
    """Return the description of a job whose script is one line for the shell."""
    if not line.strip():
        raise UserError("--wrap: it is empty; write the command in quotes, as in --wrap './solver mesh.dat'")
    try:
        first = shlex.split(line)[0]
    except ValueError:  # the shell reports it
        first = line.split()[0]
    return _described({"script": f"{line}\n"}, first, options)


def job_of_words(words: Sequence[str], options: CommandOptions) -> tuple[str, dict[str, str | Path]]:
    """Return the description of a job that runs a program with arguments, and the files that travel with it: a
    program with a relative path, such as ``./solver``, travels under its last name."""
    program = words[0]
    files: dict[str, str | Path] = {}
    if "/" in program and not program.startswith("/"):
        if not Path(program).is_file():
            raise UserError(
                f"{clean(program)}: there is no such file here that could travel with the job; check the path, or "
                "name a program of the site by its absolute path, or without one"
            )
        files[Path(program).name] = program
        program = f"./{Path(program).name}"
    text = _described({"executable": program, "arguments": list(words[1:])}, words[0], options, restarts=0)
    return text, files


def _described(
    application: dict[str, Any], program: str, options: CommandOptions, restarts: int | None = None
) -> str:
    fields = {
        "name": options.name or Path(program).name[:PROGRAM_CHARACTERS_MAX] or "job",
        "processors": options.processors or 1,
        "walltime": options.walltime,
        "type": options.type,
        "limits": None if restarts is None else {"restarts": restarts},
        "application": application,
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items() if value is not None)
