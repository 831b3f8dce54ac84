"""Outputs of a job: the results in its workspaces that are kept, and their files in the catalogue.

Values and their rules. How they get into a site's file area is in ``koala.files.area.workspace``;
``koala.core.collecting`` decides when.
"""

from __future__ import annotations

import posixpath

import msgspec

# Limits on outputs: the number of one component, the bytes that any grid may allow for one, the entries of a
# directory.
OUTPUTS_MAX = 100
COLLECTED_BYTES_MAX = 1_099_511_627_776
COLLECTED_ENTRIES_MAX = 100_000
# The defaults of a grid: the largest size of an output, holes included, and (COLLECT_S_MAX) the longest time to pack
# and read it.
OUTPUT_BYTES_MAX = 107_374_182_400
# An output may have this many bytes of holes more than it has data: holes take time to read and no space.
OUTPUT_HOLES_BYTES_MAX = 1_073_741_824
COLLECT_S_MAX = 3_600.0
OUTPUT_PATH_CHARACTERS_MAX = 255
# File systems allow no longer names; a letter may take several bytes.
OUTPUT_STEP_BYTES_MAX = 255
# The prefix of the names of outputs: nobody registers a file with it.
OUTPUT_PREFIX = "jobs/"
# The archive of a directory is named after the directory, with this ending.
ARCHIVE_ENDING = ".tar"


class CollectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on one output or checkpoint: its size, and the time to pack and read it."""

    bytes_max: int = OUTPUT_BYTES_MAX
    holes_bytes_max: int = OUTPUT_HOLES_BYTES_MAX
    entries_max: int = COLLECTED_ENTRIES_MAX
    time_s: float = COLLECT_S_MAX


class JobOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An output that a component is to make, by its path below the directory where its application starts: a file, or
    a directory, which is kept as one archive.

    ``size_bytes`` is its size in a simulation; a real output is as large as it is. ``to`` is a further destination:
    another site, or a URL. An output that several components list must be made by at least one of them.
    """

    path: str
    size_bytes: int = 0
    to: str | None = None

    @property
    def to_url(self) -> bool:
        """True if the further destination is a URL rather than a site."""
        return self.to is not None and "://" in self.to


class MadeOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An output that was collected at its site: its size, its SHA-256, and whether it is the archive of a directory.
    ``also_at`` are further sites that have it."""

    path: str
    size_bytes: int
    checksum: str
    directory: bool = False
    also_at: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Its path as a file: the archive of a directory has an ending that marks it."""
        return f"{self.path}{ARCHIVE_ENDING}" if self.directory else self.path


class OutputOfGraph(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a job of a graph that another job of the graph makes: the ``file`` as the description writes it,
    the position of the other job, its element if it is an array, its component, and the path of the output."""

    file: str
    job: int
    index: int | None
    part: int
    path: str


def output_problem(path: str) -> tuple[str, str] | None:
    """Return what is wrong with the path of an output, and what to write; None for a valid path."""
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
    """Return the path of an output in its plain form: ``logs/`` is ``logs``."""
    return posixpath.normpath(path)


def output_name(job: int, part: int, path: str) -> str:
    """Return the name of an output in the catalogue: ``jobs/17/result.h5`` for the first component of job 17, and
    ``jobs/17.2/result.h5`` for its component 2 with the same path."""
    return f"{OUTPUT_PREFIX}{job}/{path}" if part == 0 else f"{OUTPUT_PREFIX}{job}.{part}/{path}"


def job_of_output(name: str) -> int | None:
    """Return the job that made a file of the catalogue, by the file's name; None for a file that no job made."""
    if not name.startswith(OUTPUT_PREFIX):
        return None
    number = name.removeprefix(OUTPUT_PREFIX).partition("/")[0].partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= 18 else None
