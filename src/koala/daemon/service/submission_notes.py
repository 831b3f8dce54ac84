"""Notes on an accepted job: settings without effect in this grid, and programs that will be missing.

Nothing here refuses a job. The programs of a script are guessed from its text; if it may make or find a program
itself, there is no note.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Sequence

from koala.descriptions.job.required import commands_of
from koala.model.grid import Grid
from koala.model.request import Application, Request, SiteName
from koala.sites.batch.systems import SYSTEMS

# At most this many sites and programs are named in a sentence.
SITES_NAMED_MAX = 8
PROGRAMS_NAMED_MAX = 4
# At most this many different applications are looked at.
APPLICATIONS_LOOKED_AT_MAX = 16
# At most this many programs of one application; a longer path is none.
PROGRAMS_LOOKED_AT_MAX = 100
_PATH_CHARACTERS_MAX = 255

# Each pattern passes over a line once, whatever its text: others wait meanwhile.
_PATH = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_.+-]+)*"
_HERE = re.compile(rf"(?:^|(?<=[\s;&|(=\"'`]))\./({_PATH})")
_MADE = re.compile(rf"(?:>|-o)\s*\"?(?:\./)?({_PATH})")
_BESIDE = re.compile(_PATH)
_BETWEEN_COMMANDS = re.compile(r"[;&|<>]")
_INTERPRETERS = frozenset({"python", "python3", "torchrun", "bash", "sh", "Rscript", "julia", "perl"})
_SCRIPT_ENDINGS = (".py", ".sh", ".R", ".jl", ".pl")
# Words that may put a program into the workspace, or lead away from it.
_MAKES = re.compile(
    r"(?:^|[\s;&|(])(?:make|cmake|ninja|cargo|go|cp|mv|ln|install|tar|unzip|git|wget|curl|rsync|scp|[A-Za-z0-9_]*"
    r"(?:cc|c\+\+|g\+\+|fort|fortran|f90|f77|nvcc|clang)|pushd|cd(?!\s+\"?\$\{?[A-Z]+_(?:SUBMIT_DIR|O_WORKDIR)\}?\"?\s*(?:$|[;&|])))\s"
)
# A word that stands where a command does.
_COMMAND = re.compile(r"(?:^|(?<=[\s;&|(`]))([a-z]+)(?=\s)")


def submission_notes(request: Request, grid: Grid) -> list[str]:
    """Return all notes on a request in this grid."""
    applications = list(dict.fromkeys(part.application for part in request.components))[:APPLICATIONS_LOOKED_AT_MAX]
    scripts = [commands_of(each.script) for each in applications if each.script is not None]
    return [
        *partition_notes(request, grid),
        *_program_notes(request, applications),
        *_required_notes(request, grid),
        *_system_notes(scripts, request, grid),
    ]


def partition_notes(request: Request, grid: Grid) -> list[str]:
    """Return where the requested partitions are known, and that they are left out elsewhere."""
    notes = []
    batches = [(site.name, dict(site.batch.partitions)) for site in grid.sites if site.batch is not None]
    for partition in dict.fromkeys(part.application.partition for part in request.components):
        if partition is None:
            continue
        known = [name for name, partitions in batches if partition in partitions]
        where = (
            f"it is used at {some_sites(known)}" if known else "no site has it among its partitions in the grid file"
        )
        notes.append(f"the partition {partition} is left out where a site does not know it; {where}")
    return notes


def _program_notes(request: Request, applications: Sequence[Application]) -> Iterator[str]:
    for program in itertools.islice(_missing(request, applications), PROGRAMS_NAMED_MAX):
        yield (
            f"{program} is looked for where the job starts, and nothing brings it there; koala submit --with "
            f"{program} sends it along"
        )


def _missing(request: Request, applications: Sequence[Application]) -> Iterator[str]:
    """Yield programs next to the description that the job calls and nothing brings to its sites, each once."""
    there = {file.path for file in request.files}
    there |= {
        file.name if file.path is None else file.path for part in request.components for file in part.input_files
    }
    noted: set[str] = set()
    for application in applications:
        directory = application.directory or ""
        if directory.startswith("/") or len(directory) > _PATH_CHARACTERS_MAX:
            continue  # it starts in a directory of the site
        for program in _programs(application):
            path = posixpath.normpath(posixpath.join(directory, program))
            if program not in noted and not _is_there(path, there):
                noted.add(program)
                yield program


def _is_there(path: str, there: set[str]) -> bool:
    steps = path.split("/")
    return any("/".join(steps[:count]) in there for count in range(1, len(steps) + 1))


def _programs(application: Application) -> list[str]:
    """Return the programs that an application calls below its starting directory, each once."""
    if application.executable is not None:
        path = application.executable
        is_here = path.startswith("./") and len(path) <= _PATH_CHARACTERS_MAX
        return [posixpath.normpath(path)] if is_here else []
    lines = commands_of(application.script or "")
    if any(_MAKES.search(line) for line in lines):
        return []
    made = {found[1] for line in lines for found in _MADE.finditer(line)}
    called = dict.fromkeys(
        path for line in lines for path in _called(line) if path not in made and len(path) <= _PATH_CHARACTERS_MAX
    )
    looked_at = itertools.islice(called, PROGRAMS_LOOKED_AT_MAX)
    return [*dict.fromkeys(posixpath.normpath(path) for path in looked_at)]


def _called(line: str) -> Iterator[str]:
    """Yield programs that a line calls by their path, and scripts that it passes to an interpreter."""
    for found in _HERE.finditer(line):
        yield found[1]
    for command in _BETWEEN_COMMANDS.split(line):
        interprets = False
        for word in command.split():
            if word.rpartition("(")[2] in _INTERPRETERS:
                interprets = True
            elif interprets and (path := _BESIDE.match(word)) and path[0].endswith(_SCRIPT_ENDINGS):
                yield path[0]
                interprets = False


def _required_notes(request: Request, grid: Grid) -> Iterator[str]:
    """Yield where the job does not go because of what it requires, and where it still goes since it names the
    site."""
    named = {part.site for part in request.components}
    for program in request.required:
        without = [site.name for site in grid.sites if program not in site.provides]
        lacking = [name for name in without if name in named]
        if lacking:
            yield f"it requires {program}, which {some_sites(lacking)} does not provide, and goes there as requested"
        if len(without) > len(lacking) and None in named:
            there = [site.name for site in grid.sites if site.name not in without]
            yield (
                f"it requires {program}, and goes only where that is provided: {some_sites(there) or 'nowhere'}; "
                "'requires: []' (#KOALA --requires none) lets it go anywhere"
            )


def _system_notes(scripts: Sequence[Sequence[str]], request: Request, grid: Grid) -> Iterator[str]:
    """Commands of a batch system in a script that it does not require, where it may run at sites without them."""
    called = dict.fromkeys(
        found[1]
        for lines in scripts
        for line in lines
        for found in _COMMAND.finditer(f"{line} ")
        if found[1] not in request.required
    )
    named = {part.site for part in request.components}
    for system in SYSTEMS.values():
        commands = [each for each in called if each in system.programs]
        without = [
            site.name
            for site in grid.sites
            if not set(commands).issubset(site.provides)
            and (site.name in named or (None in named and set(request.required).issubset(site.provides)))
        ]
        if not commands or not without:
            continue
        cure = "name another cluster with --clusters"
        if system.launcher in commands:
            cure += f", or start the program without {system.launcher}: #KOALA --type mpi starts every rank"
        where = f"there is no {system.title} at {some_sites(without)}"
        yield f"the script calls {', '.join(commands)}, and {where}; {cure}"


def some_sites(sites: Sequence[SiteName]) -> str:
    """Format a list of sites for a sentence, with an upper limit."""
    more = len(sites) - SITES_NAMED_MAX
    return ", ".join(sites[:SITES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
