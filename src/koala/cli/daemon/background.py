"""A daemon in the background: detaches from the terminal, and finds and stops the daemon of a state directory.

The output of a daemon in the background goes to ``daemon.log`` in its state directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from koala.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, FailedError, RefusedError, UserError

LOG_NAME = "daemon.log"
# A stopping daemon completes answers and commits; this is far longer than that takes.
STOP_S_MAX = 120.0
POLL_S = 0.05
_CHUNK_BYTES = 65_536
_PID_BYTES_MAX = 20


def into_background(log: Path) -> Callable[[str], None]:
    """Go on in a new process without a terminal. Returns there, with the function that reports to the waiting process
    that the daemon is up. The calling process never returns: it prints the report and ends with 0; or, if the new
    process ends before that, with the output and the exit code of the new process."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    begins = log.stat().st_size if log.exists() else 0
    pid = os.fork()
    if pid != 0:
        os.close(writing)
        _wait_and_leave(pid, reading, log, begins)
    os.close(reading)
    os.setsid()
    _redirect(log)
    return _teller(writing)


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(written)


def _teller(writing: int) -> Callable[[str], None]:
    def tell(words: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody waits any longer, and the daemon is up anyway
            os.write(writing, f"{words}\n".encode())
        os.close(writing)

    return tell


def _wait_and_leave(pid: int, reading: int, log: Path, begins: int) -> NoReturn:
    try:
        output = bytearray()
        while piece := os.read(reading, _CHUNK_BYTES):
            output += piece
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        click.echo("\nInterrupted; stopping the daemon.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    if output:
        click.echo(output.decode(), nl=False)
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    with log.open("rb") as file:
        file.seek(begins)
        click.echo(file.read(_CHUNK_BYTES).decode("utf-8", errors="replace"), nl=False, err=True)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code > 0 else EXIT_FAILED)


def running_pid(state: Path) -> int | None:
    """Return the process of the daemon that uses this state directory, None if none does. Raises ``UserError`` if no
    daemon ever did."""
    try:
        handle = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise UserError(f"{state} is not a state directory of a daemon; name one with --state") from None
        raise
    try:
        # A shared lock is granted at once if no daemon holds its own, and released with the file.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(handle, _PID_BYTES_MAX).decode("ascii", errors="replace").strip()
        if not text.isdigit():
            raise FailedError(f"a daemon has just begun to use {state}; try again") from None
        return int(text)
    finally:
        os.close(handle)
    return None


def stop(state: Path, *, within_s: float = STOP_S_MAX) -> int | None:
    """Stop the daemon of this state directory, and wait for its end. Returns its process, None if none ran."""
    pid = running_pid(state)
    if pid is None:
        return None
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return pid
    except PermissionError:
        raise RefusedError(f"process {pid} belongs to another user; only they can stop it") from None
    end = time.monotonic() + within_s
    while running_pid(state) == pid:
        if time.monotonic() > end:
            raise FailedError(
                f"process {pid} has not stopped within {within_s:g} s (STOP_S_MAX); look at its log, or end it "
                f"with kill -9 {pid}, which loses nothing"
            )
        time.sleep(POLL_S)
    return pid
