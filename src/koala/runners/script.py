"""The POSIX sh script that every component runs, on any kind of site.

A head of quoted assignments says what this component is; what follows, the files ``*.sh`` of this package, is the
same for all. Whatever comes from a user is quoted once, here, and is never pasted into a command.
"""

from __future__ import annotations

import functools
import importlib.resources
import math
import shlex
from typing import NamedTuple

from koala.model.checkpoint import CheckpointSignal
from koala.model.launch import Launch, SitePart, SitePiece, dialect_of, stream_parts
from koala.model.messages import STDERR_LINE_BYTES_MAX
from koala.model.request import Application
from koala.runners.traffic import TRAFFIC_FIRST_S, TRAFFIC_REPORTS_MAX

# The script's exit code when another start of the same token was first.
EXIT_NOT_FIRST = 75
# Its exit code when its directory cannot be written.
EXIT_UNWRITTEN = 73
# A wait without an end of its own, as a shell's arithmetic knows it.
FOR_EVER_TENTHS = 2**31 - 1
# The last line of its errors is looked for in so much of the end of them.
_STDERR_BYTES = 4_096
_FILES = (
    "basics.sh", "nodes.sh", "beside.sh", "traffic.sh", "usage.sh", "mpi.sh", "torchrun.sh", "container.sh",
    "checkpoint.sh", "main.sh",
)  # fmt: skip
# As Linux numbers them.
_SIGNAL_NUMBERS = {
    CheckpointSignal.HUP: 1,
    CheckpointSignal.INT: 2,
    CheckpointSignal.USR1: 10,
    CheckpointSignal.USR2: 12,
    CheckpointSignal.TERM: 15,
}
# What a site knows: the first node of a component, without its domain, the user there, and the number of
# a batch script.
_SITE_PARTS = {
    SitePart.NODE: '"$(uname -n | sed "s/[.].*//")"',
    SitePart.USER: '"$(id -un)"',
    SitePart.JOB: '"$(printf %0{places}d "{number}")"',
}
_HEADER = "# shellcheck shell=sh\n"


class ScriptTimings(NamedTuple):
    """How long a component's script waits for what, in tenths of a second."""

    # The barrier is polled every 0.1 s for so long, then every second.
    barrier_brisk_tenths: int = 300
    # How long a file that cannot be written is tried again before the component gives up its processors.
    write_tenths: int = 300
    # How long a command may take to end after SIGTERM before it gets SIGKILL.
    group_grace_tenths: int = 50
    # How long mpiexec may outlive a rank that ended without MPI_Finalize: it would wait for ever.
    mpiexec_grace_tenths: int = 50
    # How long ranks may outlive one that failed: those that finish their work need little, and a proxy that has not
    # seen the failure would leave the others waiting for it.
    ranks_grace_tenths: int = 200
    # How long a component whose ranks were cut off waits to hear that the job is over.
    verdict_tenths: int = 100


class TrafficReports(NamedTuple):
    """When a component reports what it sends: so many seconds after its start, twice as late each time, so often."""

    traffic_first_s: int = TRAFFIC_FIRST_S
    traffic_reports: int = TRAFFIC_REPORTS_MAX


TIMINGS = ScriptTimings()


def component_script(launch: Launch, timings: ScriptTimings = TIMINGS) -> str:
    """The script of one component. It is run by ``sh`` in the component's own directory and works only there."""
    application = launch.application
    dialect = dialect_of(application.script)
    names = None if dialect is None else dialect.names
    values = {
        "job_type": launch.job_type.value,
        "component": launch.part,
        "processors": launch.processors,
        "task_gpus": 0 if launch.needs is None else launch.needs.gpus,
        "barrier_tenths": math.ceil(launch.barrier_timeout_s * 10),
        "exit_not_first": EXIT_NOT_FIRST,
        "exit_unwritten": EXIT_UNWRITTEN,
        "for_ever_tenths": FOR_EVER_TENTHS,
        **timings._asdict(),
        **TrafficReports()._asdict(),
        "directory": application.directory or "",
        "job_script": application.script or "",
        "executable": application.executable or "",
        "line_bytes": STDERR_LINE_BYTES_MAX,
        "stderr_bytes": _STDERR_BYTES,
        **_container(launch),
        **_checkpoint(launch),
        "batch_job": launch.job,
        "batch_system": "" if names is None else names.word,
        "job_name": launch.name,
        "tasks": launch.task_count,
        "starts_steps": "yes" if launch.starts_steps else "",
        "site_in_names": "yes" if any(map(_is_named_there, _outputs(application))) else "",
        "processors_per_task": launch.shape.processors,
    }
    number = "$koala_batch_job"
    if names is not None and names.number is not None:
        # That of the batch system for which the script is written, where it runs under that one.
        number = f"${{{names.number}:-{number}}}"
    streams = {name: _stream(getattr(application, name) or "", number) for name in ("stdin", "stdout", "stderr")}
    head = [
        "#!/bin/sh",
        f"# Component {launch.part} of {launch.parts} of job {launch.job}.",
        *(f"koala_{name}={shlex.quote(str(value))}" for name, value in values.items()),
        *(f"koala_{name}={text}" for name, text in streams.items()),
    ]
    if launch.search_path:
        head.append(f"PATH={shlex.quote(':'.join(launch.search_path))}:$PATH")
        head.append("export PATH")
    return "\n".join([*head, _program(application), *map(_shell_file, _FILES)])


def _outputs(application: Application) -> tuple[str | None, str | None]:
    return application.stdout, application.stderr


def _stream(name: str, number: str) -> str:
    """The name of a stream for the shell; what its site knows comes in where the script runs."""
    return "".join(_stream_piece(piece, number) for piece in stream_parts(name)) or "''"


def _stream_piece(piece: str | SitePiece, number: str) -> str:
    if isinstance(piece, str):
        return shlex.quote(piece)
    return _SITE_PARTS[piece.part].format(places=max(1, piece.places), number=number)


def _is_named_there(name: str | None) -> bool:
    return any(isinstance(part, SitePiece) for part in stream_parts(name or ""))


def _container(launch: Launch) -> dict[str, str]:
    """Where the application runs in an image: with what, and the image as that one knows it."""
    image, containers = launch.application.image, launch.containers
    if image is None or containers is None:
        return {"container_tool": "", "image": ""}
    return {"container_tool": containers.tool.value, "image": containers.image(image)}


def _checkpoint(launch: Launch) -> dict[str, str | int]:
    """Where the application saves its state, and when it is asked to; in whole seconds, 0 for never."""
    checkpoint = launch.checkpoint
    if checkpoint is None:
        return {"checkpoint": "", "signal": "", "signal_number": 0, "every_s": 0, "last_save_s": 0}
    walltime_s, signal = launch.walltime_s, checkpoint.signal
    last_s = 0 if walltime_s is None or not checkpoint.asks else max(1, int(walltime_s - checkpoint.grace_s))
    return {
        "checkpoint": checkpoint.directory,
        "signal": "" if signal is None else signal.value,
        "signal_number": 0 if signal is None else _SIGNAL_NUMBERS[signal],
        "every_s": 0 if checkpoint.every_s is None or signal is None else math.ceil(checkpoint.every_s),
        "last_save_s": last_s,
    }


@functools.cache
def _shell_file(name: str) -> str:
    text = importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return text.removeprefix(_HEADER)


def _program(application: Application) -> str:
    """A function that becomes the application, with the user's variables and then those that it is given.

    A task with several processors runs as many threads, unless the user says otherwise.
    ``env`` sets them because a shell refuses to set some names; the inner ``sh`` keeps a program whose name holds a
    '=' from being taken for a variable. What runs in an image is started by the script, with the variables set.
    """
    variables = "".join(f" {shlex.quote(f'{name}={value}')}" for name, value in application.environment)
    if application.processors_per_task > 1:
        variables = f" OMP_NUM_THREADS={application.processors_per_task}{variables}"
    if application.script is None:
        assert application.executable is not None, "a launch has something to run"
        words = " ".join(map(shlex.quote, (application.executable, *application.arguments)))
    else:
        interpreter = "" if application.script.startswith("#!") else "/bin/sh "
        words = f'{interpreter}"$koala_home/job-script"'
    if application.image is not None:
        words = f'/bin/sh "$koala_home/script" contained {words}'
    elif not words.startswith("/bin/sh "):
        words = f"/bin/sh -c 'exec \"$@\"' sh {words}"
    return f"""koala_program() {{ exec env{variables} "$@" {words}; }}"""
