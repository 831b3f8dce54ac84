"""The identity of a component's program, by content: evidence against one program does not count against another.

A job's request holds all that this takes, so the identity is the same whenever the job is read.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import msgspec

from koala.model.request import Component, InputFile, Request
from koala.model.travelling import TravellingFile

# Waiting jobs often run the same programs.
PROGRAMS_REMEMBERED = 1_024
# The identity of programs with longer texts or more files is computed each time: they must not fill the memory.
_REMEMBERED_CHARACTERS = 4_096
_REMEMBERED_FILES = 16
_DIGEST_CHARACTERS = 32


class KnownProgram(NamedTuple):
    """A program: ``digest`` is its identity, ``name`` what people call it."""

    digest: str
    name: str


def program_of(request: Request, component: Component) -> KnownProgram:
    """Return the program of a component of the request.

    Two components run the same program if they run the same script or the same command line, in the same directory
    and image, on the same files: files that travel with the job by their contents, input files by their names.
    Environment, processors and streams make no difference.
    """
    name = component.application.executable or f"the script of {request.name}"
    run = component.application
    command = _Command(run.script, run.executable, run.arguments, run.directory, run.image)
    is_small = (
        len(run.script or "") + sum(map(len, run.arguments)) <= _REMEMBERED_CHARACTERS
        and len(component.input_files) + len(request.files) <= _REMEMBERED_FILES
    )
    digest = _remembered_digest if is_small else _digest
    return KnownProgram(digest(command, component.input_files, request.files), name)


class _Command(NamedTuple):
    """The parts of an application that identify the program."""

    script: str | None
    executable: str | None
    arguments: tuple[str, ...]
    directory: str | None
    image: str | None


def _digest(command: _Command, input_files: tuple[InputFile, ...], travelling: tuple[TravellingFile, ...]) -> str:
    what = (
        *command,
        [(file.name, file.mode, file.path) for file in input_files],
        [(file.path, file.checksum, file.link) for file in travelling],
    )
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:_DIGEST_CHARACTERS]


_remembered_digest = lru_cache(maxsize=PROGRAMS_REMEMBERED)(_digest)
