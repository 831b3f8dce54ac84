"""Every process of a lab, found on this machine and ended: its daemons, and the processes of its jobs.

A daemon is recognised by the directory in its environment, which no process outside the lab has; a job by the batch
system that runs it. So no other process is ever ended, and none is missed if a record is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from koala.lab import programs
from koala.lab.errors import LabFailedError
from koala.sites import processes

_PROC = Path("/proc")
_END_S = 10.0
# The environment of a job's processes has both variables: the place of its batch system, and the job's id. A user's
# shell that only points at the lab has the first alone.
_JOB_MARKS = (("SLURM_CONF", "SLURM_JOB_ID"), ("SGE_ROOT", "JOB_ID"))
# The supervisor of a job may have its own session and an environment that cannot be read.
_SUPERVISORS = ("slurmstepd", "sge_shepherd")


class LabProcess(msgspec.Struct, frozen=True):
    """A process of this machine; ``started`` distinguishes it from a later one with its id."""

    pid: int
    parent: int
    started: str
    program: str


def lab_processes(directory: Path) -> list[LabProcess]:
    """Return all processes of the lab in a directory, those of jobs first."""
    running = {found.pid: found for found in _running()}
    belonging = {pid for pid, found in running.items() if _belongs(found, directory)}
    generation = set(belonging)
    while generation:
        generation = {pid for pid, found in running.items() if found.parent in generation} - belonging
        belonging |= generation
    return sorted((running[pid] for pid in belonging), key=lambda found: _is_daemon(found, directory))


def end(directory: Path) -> int:
    """End all processes of the lab, and return how many there were. LabFailedError names those that cannot be
    ended."""
    ended: set[tuple[int, str]] = set()

    def gone() -> bool:
        found = lab_processes(directory)
        for each in found:
            ended.add((each.pid, each.started))
            _kill(each)
        return not found

    if not programs.wait_until(gone, _END_S):
        left = ", ".join(f"{each.program} ({each.pid})" for each in lab_processes(directory))
        raise LabFailedError(f"{directory}: these processes of the lab cannot be ended: {left}")
    return len(ended)


def end_site(directory: Path, environment: Mapping[str, str], daemons: Collection[str]) -> None:
    """End the processes of one site: its daemons, those of its jobs, which have the environment of its batch system,
    and their supervisors. LabFailedError names those that cannot be ended."""
    homes = {str(directory / "daemons" / name) for name in daemons}

    def left() -> list[LabProcess]:
        running = {found.pid: found for found in _running()}
        found = {pid for pid in running if _is_at_site(pid, homes, environment)}
        parents = {running[pid].parent for pid in found}
        found |= {pid for pid in parents if pid in running and running[pid].program in _SUPERVISORS}
        return [running[pid] for pid in sorted(found)]

    def gone() -> bool:
        found = left()
        for each in found:
            _kill(each)
        return not found

    if not programs.wait_until(gone, _END_S):
        names = ", ".join(f"{each.program} ({each.pid})" for each in left())
        raise LabFailedError(f"{directory}: these processes of the site cannot be ended: {names}")


def _is_at_site(pid: int, homes: Collection[str], environment: Mapping[str, str]) -> bool:
    found = _environment(pid)
    if found.get(processes.MARKER) in homes:
        return True
    is_job = any(job in found for _, job in _JOB_MARKS)
    return is_job and all(found.get(name) == environment[name] for name, _ in _JOB_MARKS if name in environment)


def _running() -> Iterator[LabProcess]:
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are enough, and there are many
        if name.isdigit() and int(name) != os.getpid():
            found = _process(int(name))
            if found is not None:
                yield found


def _process(pid: int) -> LabProcess | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(")")
    fields = after.split()
    if len(fields) < 20 or fields[0] in "ZX":
        processes.has_left(processes.Child(pid))  # a child of this process stays a zombie until it is waited for
        return None
    return LabProcess(pid, int(fields[1]), fields[19], before.partition("(")[2])


def _belongs(found: LabProcess, directory: Path) -> bool:
    return _is_daemon(found, directory) or _is_of_job(found, directory) or _is_supervisor(found, directory)


def _is_daemon(found: LabProcess, directory: Path) -> bool:
    home = _environment(found.pid).get(processes.MARKER)
    return home is not None and _is_below(home, directory / "daemons")


def _is_of_job(found: LabProcess, directory: Path) -> bool:
    environment = _environment(found.pid)
    return any(job in environment and _is_below(environment.get(where, ""), directory) for where, job in _JOB_MARKS)


def _is_supervisor(found: LabProcess, directory: Path) -> bool:
    if found.program not in _SUPERVISORS:
        return False
    home = _PROC / str(found.pid)
    with contextlib.suppress(OSError):
        return any(_is_below(str(each.readlink()), directory) for each in (home / "cwd", *(home / "fd").iterdir()))
    return False


def _environment(pid: int) -> dict[str, str]:
    """Return a process's environment; empty for another user's process, which cannot be read and is not ours."""
    try:
        text = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (each.partition("=") for each in os.fsdecode(text).split("\0"))
    return {name: value for name, _, value in pairs}


def _is_below(path: str, directory: Path) -> bool:
    return Path(path).is_relative_to(directory)


def _kill(found: LabProcess) -> None:
    """End exactly this process: a descriptor holds its id while its start time is checked."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(found.pid)
        try:
            now = _process(found.pid)
            if now is not None and now.started == found.started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
