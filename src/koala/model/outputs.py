"""Outputs of a job: what it makes in its workspaces that is to be kept, and the files of the catalogue they become.

The values and the rules that each of them keeps. How they get into a site's file area is in
``koala.files.area.workspace``; when, is decided in ``koala.core.collecting``.
"""

from __future__ import annotations

import posixpath

import msgspec

# One component has at most so many outputs; no grid allows one more bytes, and a directory has no more entries.
OUTPUTS_MAX = 100
COLLECTED_BYTES_MAX = 1_099_511_627_776
COLLECTED_ENTRIES_MAX = 100_000
# Where a grid says nothing else, an output has no more bytes than this, holes included, and is packed and read for no
# longer than this.
OUTPUT_BYTES_MAX = 107_374_182_400
# An output may have this many bytes of holes more than it has data: holes are read and take no room.
OUTPUT_HOLES_BYTES_MAX = 1_073_741_824
COLLECT_S_MAX = 3_600.0
OUTPUT_PATH_CHARACTERS_MAX = 255
# File systems have no longer names; a letter may be several bytes.
OUTPUT_STEP_BYTES_MAX = 255
# Names that begin so are those of outputs: nobody registers a file under one.
OUTPUT_PREFIX = "jobs/"
# The archive of a directory has the name of the directory, and this after it.
ARCHIVE_ENDING = ".tar"


class CollectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one output, or one checkpoint, may be at most, and how long it may take to pack and to read it."""

    bytes_max: int = OUTPUT_BYTES_MAX
    holes_bytes_max: int = OUTPUT_HOLES_BYTES_MAX
    entries_max: int = COLLECTED_ENTRIES_MAX
    time_s: float = COLLECT_S_MAX


class JobOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a component is to make, by its path below the directory where its application starts: a file, or a
    directory, which is kept as one archive.

    ``size_bytes`` is how large it becomes in a simulation; a real one is as large as it is. ``to`` is where it is
    brought besides: another site, or a URL. What several components list is to be made by one of them at least.
    """

    path: str
    size_bytes: int = 0
    to: str | None = None

    @property
    def to_url(self) -> bool:
        """Whether it is brought to a URL, and not to a site."""
        return self.to is not None and "://" in self.to


class MadeOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An output that was collected at its site: its size, its SHA-256, and whether it is the archive of a directory.
    ``also_at`` are further sites that it was brought to."""

    path: str
    size_bytes: int
    checksum: str
    directory: bool = False
    also_at: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Its path as a file: the archive of a directory has an ending that says so."""
        return f"{self.path}{ARCHIVE_ENDING}" if self.directory else self.path


class OutputOfGraph(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a job of a graph that another job of it makes: the ``file`` as it is written there, the position of
    the other, the element of it where it is an array, the component, and the path of what that makes."""

    file: str
    job: int
    index: int | None
    part: int
    path: str


def output_problem(path: str) -> tuple[str, str] | None:
    """What is wrong with the path of an output, and what to write; None for one that may be."""
    if len(path) > OUTPUT_PATH_CHARACTERS_MAX:
        return (
            f"it has more than {OUTPUT_PATH_CHARACTERS_MAX} characters (OUTPUT_PATH_CHARACTERS_MAX)",
            "give it a shorter path",
        )
    if any(len(step.encode("utf-8", "surrogatepass")) > OUTPUT_STEP_BYTES_MAX for step in path.split("/")):
        return (
            f"has a name of more than {OUTPUT_STEP_BYTES_MAX} bytes (OUTPUT_STEP_BYTES_MAX)",
            "give it a shorter name",
        )
    if path.startswith("/"):
        return "is absolute, and outputs are below the workspace", "write its path below the workspace"
    if plain_output(path).split("/")[0] in ("..", "."):
        return "is not below the workspace", "name a file or a directory there"
    if not path.isprintable():
        return "has characters that cannot be printed", "rename it"
    return None


def plain_output(path: str) -> str:
    """The path of an output in its plain form: ``logs/`` is ``logs``."""
    return posixpath.normpath(path)


def output_name(job: int, part: int, path: str) -> str:
    """What the catalogue calls an output: ``jobs/17/result.h5`` is what the first component of job 17 made, and
    ``jobs/17.2/result.h5`` what its component 2 made under the same path."""
    return f"{OUTPUT_PREFIX}{job}/{path}" if part == 0 else f"{OUTPUT_PREFIX}{job}.{part}/{path}"


def job_of_output(name: str) -> int | None:
    """The job that made a file of the catalogue, by its name; None for a file that no job made."""
    if not name.startswith(OUTPUT_PREFIX):
        return None
    number = name.removeprefix(OUTPUT_PREFIX).partition("/")[0].partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= 18 else None
