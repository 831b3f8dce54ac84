"""Turns a command and its request into what a site receives, and checks in advance that a request can be started.

A request that passes ``check_launch`` never fails later because of what its user wrote. Pure, except that it looks
for this Python's own ``mpiexec``.
"""

from __future__ import annotations

import posixpath
import sys
from functools import cache, partial
from pathlib import Path

import msgspec

from koala.model.checkpoint import CHECKPOINT_ARCHIVE, Checkpoint
from koala.model.grid import Site
from koala.model.job_array import ArraySpec
from koala.model.launch import (
    ARRAY_INDEX_VARIABLES,
    ARRAY_JOB_VARIABLES,
    ARRAY_SIZE_VARIABLES,
    BARRIER_TIMEOUT_DEFAULT_S,
    STREAM_ADVICE,
    DialectNames,
    InputLink,
    Launch,
    LaunchError,
    check_path,
    dialect_of,
    filled_in,
    stream_problem,
)
from koala.model.messages import StartComponent
from koala.model.request import JOB_ID_MAX, Application, Component, InputFile, Request
from koala.model.travelling import ARCHIVE_NAME, TravellingFile
from koala.runners import component_script
from koala.sites.batch.systems import launchers

# The tasks that a component holds, in the order of their ranks, separated by blanks.
TASKS_VARIABLE = "KOALA_TASKS"
# The run of its job that the application is in, from 1: a later run may continue from what an earlier one wrote.
RUN_VARIABLE = "KOALA_RUN"

# Replaces the source where only the destination of an input file is checked.
_SOMEWHERE = "replicas/file"
# At most this many files are named in a message.
NAMED_MAX = 8


@cache
def search_path() -> tuple[str, ...]:
    """Return the directory of this Python environment's own ``mpiexec``, if it has one: the extra ``mpi`` installs
    it."""
    directory = Path(sys.executable).parent
    return (str(directory),) if (directory / "mpiexec").exists() and ":" not in str(directory) else ()


def destination_of(file: InputFile) -> str:
    """Return where an input file appears, relative to the application's working directory."""
    return file.name if file.path is None else file.path


def launch_for(command: StartComponent, request: Request, site: Site) -> Launch:
    """Return what ``site`` receives for a command of a job with this request. Raises ``LaunchError``.

    Only sites whose commands run on this machine get the directory of its ``mpiexec``: elsewhere that directory is
    missing, or is something else.
    """
    elsewhere = site.batch is not None and site.batch.ssh is not None
    application = request.components[command.component].application
    return Launch(
        token=command.token,
        job=command.job,
        processors=command.processors,
        name=request.name,
        application=_told(application, command, request),
        starts_steps=_starts_steps(application),
        part=command.part,
        parts=command.parts,
        job_type=request.job_type,
        barrier_timeout_s=BARRIER_TIMEOUT_DEFAULT_S
        if command.barrier_timeout_s is None
        else command.barrier_timeout_s,
        walltime_s=request.walltime_s if command.walltime_s is None else command.walltime_s,
        search_path=() if elsewhere else search_path(),
        begin_at=command.begin_at,
        exclude_nodes=command.exclude_nodes,
        needs=request.components[command.component].needs,
        containers=site.containers,
        checkpoint=request.checkpoint,
        licenses=command.licenses,
    )


def _starts_steps(application: Application) -> bool:
    program = (application.executable or "").rpartition("/")[2]
    return not set(launchers()).isdisjoint((program, *application.requires))


def _told(application: Application, command: StartComponent, request: Request) -> Application:
    """Return the component's application with its run and its tasks in the environment, which override what the user
    set, and with the names of its streams filled in."""
    variables = [(RUN_VARIABLE, str(command.run))]
    dialect = dialect_of(application.script)
    names = None if dialect is None else dialect.names
    if command.run > 1 and names is not None and names.restarts is not None:
        variables.append((names.restarts, str(command.run - 1)))
    if command.index is not None:
        variables += _array_variables(command, request.array, names)
    if command.tasks:
        variables.append((TASKS_VARIABLE, " ".join(command.tasks)))
    taken = {name for name, _ in variables}
    others = tuple(pair for pair in application.environment if pair[0] not in taken)
    fill_in = partial(
        filled_in,
        job=command.job,
        job_name=request.name,
        array=command.array if command.index is not None else None,
        index=command.index,
        batch_script=dialect is not None,
    )
    streams = {
        field: None if (path := getattr(application, field)) is None else fill_in(path)
        for field in ("stdin", "stdout", "stderr")
    }
    return msgspec.structs.replace(application, environment=(*others, *variables), **streams)


def _array_variables(
    command: StartComponent, array: ArraySpec | None, names: DialectNames | None
) -> list[tuple[str, str]]:
    """Return the variables of an element about itself and its array; those about the ends are for batch scripts."""
    variables = [(name, str(command.array)) for name in ARRAY_JOB_VARIABLES]
    variables += [(name, str(command.index)) for name in ARRAY_INDEX_VARIABLES]
    if names is not None:
        variables += [(name, str(command.index)) for name in names.indices]
    if array is not None:
        variables += [(name, str(array.size)) for name in ARRAY_SIZE_VARIABLES]
        ends = (array.index_at(0), array.index_at(array.size - 1), array.ranges[0][2])
        if names is not None:
            variables += [(name, str(end)) for name, end in zip(names.ends, ends, strict=True)]
    return variables


def check_launch(request: Request) -> None:
    """Raise ``LaunchError`` with the component's name if a component of the request could not be started."""
    for index, component in enumerate(request.components):
        try:
            launch = Launch(
                token="0.1",  # noqa: S106 - a token names a start, it is no secret
                job=0,
                processors=component.processors,
                application=component.application,
                part=index,
                parts=len(request.components),
                job_type=request.job_type,
                walltime_s=request.walltime_s,
                search_path=search_path(),
                needs=component.needs,
                checkpoint=request.checkpoint,
            )
            component_script(launch)
            _check_streams(component.application, request.name)
            _check_input_files(component)
            _check_checkpoint(component, request.checkpoint)
            _check_travelling(component, request.files)
        except LaunchError as error:
            if len(request.components) == 1:
                raise
            raise LaunchError(f"component {index}: {error.field}", error.message) from None


def _check_checkpoint(component: Component, checkpoint: Checkpoint | None) -> None:
    """Check that no input file is in the place of the checkpoint, above it or below it."""
    if checkpoint is None:
        return
    for file in component.input_files:
        path = posixpath.normpath(destination_of(file))
        if f"{path}/".startswith(f"{checkpoint.directory}/") or f"{checkpoint.directory}/".startswith(f"{path}/"):
            raise LaunchError(
                f"input file {file.name!r}",
                f"{path!r} is in the way of the checkpoint {checkpoint.directory!r}; give one of them another path",
            )


def _check_streams(application: Application, job_name: str) -> None:
    """Check that the names of the streams can be filled in, and stay in place, whatever number the job gets."""
    for field in ("stdin", "stdout", "stderr"):
        path: str | None = getattr(application, field)
        if path is None:
            continue
        problem = stream_problem(path)
        if problem is not None:
            raise LaunchError(field, f"{path!r}: {problem}; {STREAM_ADVICE}")
        whole = filled_in(path, job=JOB_ID_MAX, job_name=job_name, array=JOB_ID_MAX, index=JOB_ID_MAX)
        try:
            check_path(field, whole, below=application.directory)
        except LaunchError as error:
            raise LaunchError(field, f"{path!r} is filled in with what the job is called: {error.message}") from None


def _check_travelling(component: Component, files: tuple[TravellingFile, ...]) -> None:
    """Check that no input file is in the place of a travelling file, or below one, and that a travelling program can
    be run."""
    if not files:
        return
    by_path = {file.path: file for file in files}
    inputs = {posixpath.normpath(destination_of(file)) for file in component.input_files}
    for path in sorted(inputs):
        steps = path.split("/")
        for above in ("/".join(steps[:count]) for count in range(1, len(steps))):
            if above in by_path and not by_path[above].directory:
                raise LaunchError(
                    "input_files",
                    f"{path!r} would be below {above!r}, a file that travels with the job; give it another path",
                )
        if any(path == each or each.startswith(f"{path}/") for each in by_path):
            raise LaunchError(
                "input_files", f"{path!r} is also a file that travels with the job; give it another path"
            )
    application = component.application
    program = application.executable
    if program is None or "/" not in program or program.startswith("/"):
        return
    path = posixpath.normpath(posixpath.join(application.directory or "", program))
    if path.startswith("/") or path in inputs:
        return
    file = by_path.get(path)
    if file is None and not any(each.link and path.startswith(f"{each.path}/") for each in files):
        known = ", ".join(sorted(each.path for each in files if not each.directory)[:NAMED_MAX])
        raise LaunchError(
            "executable", f"{program!r} is not among the files that travel with the job ({known}); name it there"
        )
    if file is not None and (file.directory or (file.is_content and not file.mode & 0o111)):
        raise LaunchError(
            "executable", f"{program!r} is not executable: it has no x bit; chmod +x it, and submit again"
        )


def _check_input_files(component: Component) -> None:
    """Check that every file can have its place, and that no two want the same one."""
    taken: dict[str, str] = {}
    for file in component.input_files:
        try:
            link = InputLink(source=_SOMEWHERE, destination=destination_of(file))
        except LaunchError as error:
            advice = "" if file.path is not None else "; give it another path"
            raise LaunchError(f"input file {file.name!r}", f"{error.message}{advice}") from None
        path = posixpath.normpath(link.destination)
        if path in (ARCHIVE_NAME, CHECKPOINT_ARCHIVE):
            raise LaunchError(f"input file {file.name!r}", f"{path!r} is a name of Koala's own; give it another path")
        if path == ".":
            raise LaunchError(f"input file {file.name!r}", "its path names no file; give it another path")
        if path in taken:
            raise LaunchError(
                f"input file {file.name!r}",
                f"would appear as {path!r}, as does {taken[path]!r}; give it another path",
            )
        taken[path] = file.name
    for path, name in taken.items():
        above = posixpath.dirname(path)
        while above:
            if above in taken:
                raise LaunchError(
                    f"input file {name!r}",
                    f"would appear below {above!r}, which is the file {taken[above]!r}; give it another path",
                )
            above = posixpath.dirname(above)
