"""The POSIX sh script that every component runs, on any kind of site.

A head of quoted assignments describes this component; the rest, the files ``*.sh`` of this package, is the same for
all. User input is quoted once, here, and is never pasted into a command.
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
# The script's exit code when its directory cannot be written.
EXIT_UNWRITTEN = 73
# A wait without an end, within the range of a shell's arithmetic.
FOR_EVER_TENTHS = 2**31 - 1
# The last line of standard error is searched in this many bytes at its end.
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
# The parts of names that only a site knows: the first node of a component, without its domain, the user there, and
# the number of a batch script.
_SITE_PARTS = {
    SitePart.NODE: '"$(uname -n | sed "s/[.].*//")"',
    SitePart.USER: '"$(id -un)"',
    SitePart.JOB: '"$(printf %0{places}d "{number}")"',
}
_HEADER = "# shellcheck shell=sh\n"


class ScriptTimings(NamedTuple):
    """The waiting times of a component's script, in tenths of a second."""

    # The barrier is polled every 0.1 s for this long, then every second.
    barrier_brisk_tenths: int = 300
    # How long the script retries to write a file before the component gives up its processors.
    write_tenths: int = 300
    # How long a command may take to end after SIGTERM before it receives SIGKILL.
    group_grace_tenths: int = 50
    # How long mpiexec may outlive a rank that ended without MPI_Finalize: it would wait for ever.
    mpiexec_grace_tenths: int = 50
    # How long ranks may outlive a failed one: ranks that finish their work need little, and a proxy that has not
    # noticed the failure would leave the others waiting for it.
    ranks_grace_tenths: int = 200
    # How long a component whose ranks were cut off waits for the end of the job.
    verdict_tenths: int = 100


class TrafficReports(NamedTuple):
    """The reports of a component's traffic: the first this many seconds after its start, each further one after twice
    the time, and their number."""

    traffic_first_s: int = TRAFFIC_FIRST_S
    traffic_reports: int = TRAFFIC_REPORTS_MAX


TIMINGS = ScriptTimings()


def component_script(launch: Launch, timings: ScriptTimings = TIMINGS) -> str:
    """Return the script of one component. ``sh`` runs it in the component's own directory, and it works only
    there."""
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
    """Return the name of a stream for the shell; the script fills in what only its site knows."""
    return "".join(_stream_piece(piece, number) for piece in stream_parts(name)) or "''"


def _stream_piece(piece: str | SitePiece, number: str) -> str:
    if isinstance(piece, str):
        return shlex.quote(piece)
    return _SITE_PARTS[piece.part].format(places=max(1, piece.places), number=number)


def _is_named_there(name: str | None) -> bool:
    return any(isinstance(part, SitePiece) for part in stream_parts(name or ""))


def _container(launch: Launch) -> dict[str, str]:
    """Return the container tool and the image in that tool's terms, for an application that runs in an image."""
    image, containers = launch.application.image, launch.containers
    if image is None or containers is None:
        return {"container_tool": "", "image": ""}
    return {"container_tool": containers.tool.value, "image": containers.image(image)}


def _checkpoint(launch: Launch) -> dict[str, str | int]:
    """Return where the application saves its state, and when it is asked to; in whole seconds, 0 for never."""
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
    """Return a function that becomes the application, with the user's variables and then those that the function
    receives.

    A task with several processors runs as many threads, unless the user sets another number. ``env`` sets the
    variables because a shell refuses to set some names; the inner ``sh`` keeps a program with a '=' in its name from
    being taken for a variable. The script itself starts an application in an image, with the variables set.
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
