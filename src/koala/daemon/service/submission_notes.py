"""What is said of a job that was taken: what has no effect in this grid, and programs that will not be there.

Nothing here refuses a job. What a script calls is guessed from its text; where it may make or find a program by
itself nothing is said.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from koala.model.grid import Grid, SiteKind
from koala.model.request import Application, Request, SiteName

# So many sites are named in a sentence, and so many programs.
SITES_NAMED_MAX = 8
PROGRAMS_NAMED_MAX = 4
# So much of a script is looked at, and so many different applications.
LOOKED_AT_CHARACTERS_MAX = 50_000
APPLICATIONS_LOOKED_AT_MAX = 16
# A line longer than this is data, and no command.
_LINE_CHARACTERS_MAX = 1_000

_PATH = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_.+-]+)*"
_HERE = re.compile(rf"(?:^|(?<=[\s;&|(=\"'`]))\./({_PATH})")
_BY_INTERPRETER = re.compile(
    rf"(?:^|[\s;&|(])(?:python3?|torchrun|bash|sh|Rscript|julia|perl)\s[^;&|<>]*?(?<=\s)({_PATH}\.(?:py|sh|R|jl|pl))\b"
)
# Words that may put a program into the workspace, or lead away from it.
_MAKES = re.compile(
    r"(?:^|[\s;&|(])(?:make|cmake|ninja|cargo|go|cp|mv|ln|install|tar|unzip|git|wget|curl|rsync|scp|[A-Za-z0-9_]*"
    r"(?:cc|c\+\+|g\+\+|fort|fortran|f90|f77|nvcc|clang)|pushd|cd(?!\s+\"?\$\{?SLURM_SUBMIT_DIR\}?\"?\s*(?:$|[;&|])))\s"
)
_SLURM_COMMAND = re.compile(r"(?:^|[\s;&|(`])(srun|scontrol|sbatch|squeue|scancel|sacct)\s")


def submission_notes(request: Request, grid: Grid) -> list[str]:
    """All that is said of a request in this grid."""
    applications = list(dict.fromkeys(part.application for part in request.components))[:APPLICATIONS_LOOKED_AT_MAX]
    scripts = [[*_commands(each.script)] for each in applications if each.script is not None]
    return [
        *partition_notes(request, grid),
        *_program_notes(request, applications),
        *_slurm_notes(scripts, request, grid),
    ]


def partition_notes(request: Request, grid: Grid) -> list[str]:
    """Where the partitions that a job asks for are known, and that they are left out elsewhere."""
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
    """Programs beside the description that the job calls and nothing brings to its sites."""
    there = {file.path for file in request.files}
    there |= {
        file.name if file.path is None else file.path for part in request.components for file in part.input_files
    }
    missing: dict[str, None] = {}
    for application in applications:
        if application.directory is not None and application.directory.startswith("/"):
            continue  # it starts in a directory of the site
        for program in _programs(application):
            path = posixpath.normpath(posixpath.join(application.directory or "", program))
            if not _is_there(path, there):
                missing[program] = None
    for program in list(missing)[:PROGRAMS_NAMED_MAX]:
        yield (
            f"{program} is looked for where the job starts, and nothing brings it there; koala submit --with "
            f"{program} sends it along"
        )


def _is_there(path: str, there: set[str]) -> bool:
    steps = path.split("/")
    return any("/".join(steps[:count]) in there for count in range(1, len(steps) + 1))


def _programs(application: Application) -> Iterator[str]:
    """What an application calls below the directory in which it starts."""
    if application.executable is not None:
        if application.executable.startswith("./"):
            yield posixpath.normpath(application.executable)
        return
    lines = [*_commands(application.script or "")]
    if any(_MAKES.search(line) for line in lines):
        return
    written = "\n".join(lines)
    for line in lines:
        for pattern in (_HERE, _BY_INTERPRETER):
            for found in pattern.finditer(line):
                made = re.search(rf"(?:>|-o)\s*\"?(?:\./)?{re.escape(found[1])}\b", written)
                if made is None:
                    yield posixpath.normpath(found[1])


def _commands(script: str) -> Iterator[str]:
    """The lines of a script that are no comments."""
    for line in script[:LOOKED_AT_CHARACTERS_MAX].splitlines():
        if not line.lstrip().startswith("#") and len(line) <= _LINE_CHARACTERS_MAX:
            yield line


def _slurm_notes(scripts: Sequence[Sequence[str]], request: Request, grid: Grid) -> Iterator[str]:
    """Commands of Slurm in a script, where it may run at sites without them."""
    commands = dict.fromkeys(
        found[1] for lines in scripts for line in lines for found in _SLURM_COMMAND.finditer(f"{line} ")
    )
    chosen = {part.site for part in request.components}
    without = [
        site.name
        for site in grid.sites
        if site.kind is not SiteKind.SLURM and (None in chosen or site.name in chosen)
    ]
    if not commands or not without:
        return
    cure = (
        "name another cluster with --clusters, or start the program without srun: #KOALA --type mpi starts every rank"
        if "srun" in commands
        else "name another cluster with --clusters"
    )
    yield f"the script calls {', '.join(commands)}, and there is no Slurm at {some_sites(without)}; {cure}"


def some_sites(sites: Sequence[SiteName]) -> str:
    """Sites in a sentence, which does not become long."""
    more = len(sites) - SITES_NAMED_MAX
    return ", ".join(sites[:SITES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
