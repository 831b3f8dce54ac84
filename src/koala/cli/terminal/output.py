"""The output functions of every verb: JSON for programs, tables that fit the terminal for people.

``OutputFile`` is for files: a file is there when all of it is written, or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import click
import msgspec
from rich.console import Console

from koala.cli.errors import UserError, advice


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, with keys in the given order."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=msgspec.to_builtins))


class _PlainConsole(Console):
    """For pipes and files: a table's lines have no trailing blanks."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print without trailing blanks."""
        with self.capture() as printed:
            super().print(*objects, **options)
        lines = (line.rstrip() for line in printed.get().split("\n"))
        click.echo("\n".join(lines), nl=False, err=self.stderr)


def console(*, stderr: bool = False) -> Console:
    """Return a console that keeps colour for terminals and plain text for pipes."""
    full = Console(stderr=stderr, highlight=False)
    return full if full.is_terminal else _PlainConsole(stderr=stderr, highlight=False)


def counted(count: int, noun: str) -> str:
    """Format a number of things: 1 job, 2,000 jobs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counted_first(count: int, noun: str, first: Iterable[object]) -> str:
    """Format a number of things with the names of the first of them: 2,000 jobs (3, 7, ...)."""
    names = [str(name) for name in first]
    dots = ", ..." if count > len(names) else ""
    return f"{counted(count, noun)} ({', '.join(names)}{dots})"


class OutputFile:
    """A file to write, as a context: opened on entry next to its place, and moved there on success.

    A target that is no plain file, such as a terminal or a pipe, is written directly.
    """

    def __init__(self, option: str, path: Path) -> None:
        self.option = option
        self.path = path
        self._target = path.resolve()
        self._direct = self._target.exists() and not self._target.is_file()
        self._beside = self._target if self._direct else self._target.with_name(f".{path.name}.{os.getpid()}.part")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> OutputFile:
        try:
            if self._target.is_file():
                self._target.open("ab").close()  # an existing file must be ours to replace
            self._file = self._beside.open("wb")
        except OSError as error:
            raise self._problem(error) from None
        return self

    def write(self, piece: bytes) -> None:
        """Add to the file."""
        assert self._file is not None, "inside the context only"
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._problem(error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            self._file.close()
            if kind is None and not self._direct:
                self._beside.replace(self._target)
        except OSError as problem:
            if kind is None:
                raise self._problem(problem) from None
        finally:
            if not self._direct:
                self._beside.unlink(missing_ok=True)

    def _problem(self, error: OSError) -> UserError:
        return UserError(f"{self.option} {self.path}: {error.strerror}; {advice(error)}")


def refuse_clashes(outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[tuple[str, str]]) -> None:
    """Refuse to write over a file that is read, or two outputs to one place."""
    taken = {Path(name).resolve(): option for option, name in inputs if Path(name).is_file()}
    for option, path in outputs:
        if path is None:
            continue
        other = taken.get(path.resolve())
        if other is not None:
            raise UserError(f"{option} {path}: {other} is the same file; choose another name")
        taken[path.resolve()] = option
