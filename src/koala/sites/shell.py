"""The only place that starts processes and sends signals, and how a process is known for certain.

A process is known by its id, its start time and the boot, since ids are used again. The processes of a component are
those of its session, and those that carry its directory in their environment: MPI ranks and daemons leave a session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

# What a component inherits from the driver's environment: enough to find programs, and no secrets.
INHERITED_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
MARKER = "KOALA_HOME"
ENVIRON_BYTES_MAX = 4_194_304

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_UNKNOWN = "-"


class Identity(msgspec.Struct, frozen=True):
    """One process, for ever: '-' stands for what this machine does not tell."""

    pid: int
    started: str
    boot: str


class Child(msgspec.Struct, frozen=True):
    """A process that this one started, and must reap."""

    pid: int


class _Stat(msgspec.Struct, frozen=True):
    state: str
    session: int
    started: str


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a component gets."""
    return {name: environment[name] for name in INHERITED_VARIABLES if name in environment}


def own_environment() -> dict[str, str]:
    """The part of this process's environment that a component gets."""
    return inherited_environment(os.environ)


def spawn(home: Path, script: str, log: str, environment: Mapping[str, str]) -> Child:
    """Run a script of a directory in a session of its own, so that it outlives this process and its terminal."""
    with (home / log).open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - the command is fixed; the script's text is a runner's
            ["/bin/sh", f"./{script}"],
            cwd=home,
            env={**environment, MARKER: str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # Popen objects complain when they are dropped before their process ends, which is how these are meant to live.
    process.returncode = 0
    return Child(process.pid)


def has_left(child: Child) -> bool:
    """Whether a child of this process has ended; it is then no longer a zombie."""
    try:
        return os.waitpid(child.pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def parse_identity(text: str) -> Identity | None:
    """What a component's script wrote about itself; None for anything else."""
    words = text.split()
    if len(words) != 3 or not words[0].isascii() or not words[0].isdigit() or int(words[0]) < 2:
        return None
    return Identity(int(words[0]), words[1], words[2])


def is_alive(process: Identity) -> bool:
    """Whether this very process runs: not another with its id, and not a zombie."""
    if process.boot != _UNKNOWN and process.boot != _boot():
        return False
    if process.started == _UNKNOWN:
        return _answers(process.pid)
    stat = _stat(process.pid)
    return stat is not None and stat.state not in "ZX" and stat.started == process.started


def members(process: Identity, home: Path) -> list[int]:
    """The living processes of the component that ``process`` leads or led."""
    if not _BOOT_ID.exists():
        return [process.pid] if _answers(process.pid) else []
    if process.boot != _UNKNOWN and process.boot != _boot():
        return []
    leader = _stat(process.pid)
    session_is_ours = leader is None or leader.started == process.started
    mark = os.fsencode(f"{MARKER}={home}")
    found = []
    for pid in _pids():
        stat = _stat(pid)
        if stat is None or stat.state in "ZX":
            continue
        if (session_is_ours and stat.session == process.pid) or _carries(pid, mark):
            found.append(pid)
    return found


def end(process: Identity, home: Path, *, by_force: bool) -> None:
    """Send SIGTERM, or by force SIGKILL, to all processes of a component. Those already gone do not matter."""
    signal_number = signal.SIGKILL if by_force else signal.SIGTERM
    if not _BOOT_ID.exists():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal_number)
        return
    for pid in members(process, home):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _UNKNOWN


def _pids() -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are enough, and there are many
        if name.isdigit() and int(name) != own:
            yield int(name)


def _stat(pid: int) -> _Stat | None:
    """State, session and start time of a process; None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The program's name may hold anything, also ')', so the fields begin after the last one.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    return _Stat(fields[0], int(fields[3]), fields[19])


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with (_PROC / str(pid) / "environ").open("rb") as file:
            return mark in file.read(ENVIRON_BYTES_MAX).split(b"\0")
    except OSError:
        return False
