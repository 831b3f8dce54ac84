"""Which program a component runs, by its content: what is held against one program is not held against another.

A job's request carries all that this takes, so that it is the same whenever the job is read.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import msgspec

from koala.model.request import Application, Component, InputFile, Request
from koala.model.travelling import TravellingFile

# Jobs that wait often run the same programs.
PROGRAMS_REMEMBERED = 1_024
_DIGEST_CHARACTERS = 32


class KnownProgram(NamedTuple):
    """A program: ``digest`` is its identity, ``name`` what people call it."""

    digest: str
    name: str


def program_of(request: Request, component: Component) -> KnownProgram:
    """The program of a component of the request.

    Two components run the same program if they run the same script or the same command line, in the same directory
    and image, on the same files: those that travel with the job by their contents, input files by their names.
    Environment, processors and streams make no difference.
    """
    name = component.application.executable or f"the script of {request.name}"
    return KnownProgram(_digest(component.application, component.input_files, request.files), name)


@lru_cache(maxsize=PROGRAMS_REMEMBERED)
def _digest(
    application: Application, input_files: tuple[InputFile, ...], travelling: tuple[TravellingFile, ...]
) -> str:
    what = (
        application.script,
        application.executable,
        application.arguments,
        application.directory,
        application.image,
        [(file.name, file.mode, file.path) for file in input_files],
        [(file.path, file.checksum, file.link) for file in travelling],
    )
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:_DIGEST_CHARACTERS]
