"""Processes that are forked from one that has already imported much: the forking side.

A request is a message with four open files: the streams of the new process, and a pipe for its number and later its
exit code. From outside such a process looks like one that was started from a file; only its end is shorter
(``leave``).
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import random
import selectors
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

MESSAGE_BYTES_MAX = 1_048_576
_NUMBER = struct.Struct("i")
# Processes of a killed test run end their children one after the other; one that does nothing for this long hangs.
PATIENCE_S = 30.0


def ask(
    link: socket.socket,
    streams: Sequence[int],
    *,
    env: Mapping[str, str],
    directory: Path,
    session: bool = False,
    **more: object,
) -> tuple[int, int]:
    """Have a process forked; return its number, and the pipe for its exit code."""
    asked = {"environment": dict(env), "directory": str(directory), "session": session} | more
    reading, writing = os.pipe()
    try:
        socket.send_fds(link, [json.dumps(asked).encode()], [*streams, writing])
    finally:
        os.close(writing)
    return number_from(reading), reading


def number_from(pipe: int) -> int:
    """Read the next number from the pipe of a process."""
    said = os.read(pipe, _NUMBER.size)
    assert said, "the process that forks has ended"
    number: int = _NUMBER.unpack(said)[0]
    return number


def serve(link: socket.socket, become: Callable[[dict[str, Any]], None], end: int | None = None) -> None:
    """Fork a process for each message, which ``become`` turns into the requested one, until the other side is closed,
    and wait for all of them; or until the file ``end`` is closed, and kill those that still run after a while.
    Returns then, and never in a forked process."""
    with selectors.DefaultSelector() as events:
        events.register(link, selectors.EVENT_READ)
        if end is not None:
            events.register(end, selectors.EVENT_READ)
        patience_s = None
        while len(events.get_map()) > 0:
            happened = events.select(patience_s)
            if not happened:
                _kill_all(events)
            for key, _ in happened:
                if key.data is not None:
                    events.unregister(key.fileobj)
                    _report(key.fd, *key.data)
                elif key.fileobj == end:
                    events.unregister(end)
                    events.unregister(link)
                    patience_s = PATIENCE_S
                    break
                elif not _forked(link, events, become):
                    events.unregister(link)


def _kill_all(events: selectors.BaseSelector) -> None:
    for key in events.get_map().values():
        os.kill(key.data[0], signal.SIGKILL)


def _forked(link: socket.socket, events: selectors.BaseSelector, become: Callable[[dict[str, Any]], None]) -> bool:
    """Fork for the next message; return True if there was one."""
    message, streams, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, 4)
    if not message:
        return False
    pid = os.fork()
    if pid == 0:
        events.close()
        link.detach()
        _be(json.loads(message), streams[:3], become)
    for stream in streams[:3]:
        os.close(stream)
    _tell(streams[3], pid)
    events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, streams[3]))
    return True


def _tell(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, _NUMBER.pack(number))


def _report(process: int, pid: int, pipe: int) -> None:
    _, code = os.waitpid(pid, 0)
    _tell(pipe, os.waitstatus_to_exitcode(code))
    os.close(pipe)
    os.close(process)


def _be(asked: dict[str, Any], streams: list[int], become: Callable[[dict[str, Any]], None]) -> None:
    """Perform the work of the new process; never return."""
    if asked["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    warnings.resetwarnings()
    random.seed()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (_writer(target) for target in (1, 2))
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    try:
        become(asked)
    except SystemExit as end:
        leave(end.code)
    leave(0)


def leave(code: str | int | None) -> None:
    """Do what Python does at its end, except for taking apart all imports: a forked process would copy every page of
    them first, which takes longer than most commands."""
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):  # Python tells of a stream that it cannot write to
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code or 0)
    sys.exit(code)


def _writer(target: int) -> TextIO:
    """Return a stream that writes lines at once if nobody should wait for more."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) or target == 2
    return open(
        target,
        "w",
        encoding="utf-8",
        buffering=1 if unbuffered or os.isatty(target) else -1,
        closefd=False,
    )
