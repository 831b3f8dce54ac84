"""``koala`` in a process of its own without the start of a Python: forked from one that has imported everything.

What a test sees of such a process (its number, signals, streams, environment, exit code) is as of one that was
started from a file; only its end is shorter (``_leave``). ``tests/cli/daemon`` starts ``koala`` from its file.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tests.support.paths import child_environment

_MESSAGE_BYTES_MAX = 1_048_576
_STARTER = "import sys; from tests.support.warm_koala import serve; serve(int(sys.argv[1]), sys.argv[2:])"
# A program that prints nothing for so long, or does not end when it shall, hangs.
SILENT_S_MAX = 300.0
# What a daemon and most of its callers import.
DAEMON = ("koala.cli.job.submit", "koala.client.client", "koala.daemon.run", "koala.descriptions.grid.form")


class WarmProcess:
    """A ``koala`` that was forked; it has the names of ``subprocess.Popen``."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code, negative for a signal."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("koala", timeout or 0.0)
            said = os.read(self._status, 16)
            os.close(self._status)
            assert said, "the process that koala was forked from has ended"
            self.returncode = int(said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def start_koala(
    arguments: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str],
    cwd: Path | None = None,
    start_new_session: bool = False,
    program: Path | None = None,
    imported: tuple[str, ...] = DAEMON,
) -> WarmProcess:
    """Start ``koala`` with these words, these open files as its streams and this environment; or else a ``program``
    of the tests. It is forked from a process that has ``imported`` these modules."""
    asked = {
        "program": None if program is None else str(program),
        "arguments": list(arguments),
        "environment": dict(env),
        "directory": str(cwd or Path.cwd()),
        "session": start_new_session,
    }
    reading, writing = os.pipe()
    try:
        link = _link(imported)
        socket.send_fds(link, [json.dumps(asked).encode()], [stdin, stdout, stderr, writing])
        pid = int(link.recv(64))
    finally:
        os.close(writing)
    return WarmProcess(pid, reading)


class LimitedReader:
    """What comes out of a pipe, in lines; AssertionError where nothing comes for ``limit_s`` and it is not closed."""

    def __init__(self, pipe: int, limit_s: float = SILENT_S_MAX) -> None:
        self._pipe = pipe
        self._limit_s = limit_s
        self._unread = b""

    def readline(self) -> str:
        """The next line, or what is there at the end."""
        while b"\n" not in self._unread and self._receives():
            pass
        line, end, self._unread = self._unread.partition(b"\n")
        return (line + end).decode()

    def read(self) -> str:
        """All the rest."""
        while self._receives():
            pass
        text, self._unread = self._unread.decode(), b""
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def close(self) -> None:
        """Read no more."""
        os.close(self._pipe)

    def _receives(self) -> bool:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        assert poll.poll(self._limit_s * 1000), (
            f"the program has printed nothing for {self._limit_s:g} s and has not ended; before: {self._unread!r}"
        )
        more = os.read(self._pipe, 65_536)
        self._unread += more
        return bool(more)


class PipedProgram:
    """A program of the tests in a process of its own, with pipes to it and from it. It has the names of
    ``subprocess.Popen``, and its end is waited for where the block ends; a block that fails kills it."""

    def __init__(self, program: Path, *words: str, errors: int = 2) -> None:
        reading, stdin = os.pipe()
        stdout, writing = os.pipe()
        try:
            self._process = start_koala(
                words, stdin=reading, stdout=writing, stderr=errors, env=os.environ, program=program
            )
        finally:
            os.close(reading)
            os.close(writing)
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = LimitedReader(stdout)
        self.poll, self.wait, self.kill = self._process.poll, self._process.wait, self._process.kill

    def __enter__(self) -> PipedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is not None:
            self.kill()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        try:
            self.wait(SILENT_S_MAX)
        finally:
            self.kill()


@functools.cache
def _link(imported: tuple[str, ...]) -> socket.socket:
    """The way to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        forking = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(theirs.fileno()), *imported],
            pass_fds=[theirs.fileno()],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        forking.wait()

    atexit.register(end)
    return ours


def serve(number: int, imported: Sequence[str]) -> None:
    """Import the modules, then fork one ``koala`` for each message until the other side is closed. Returns there,
    and never in what was forked."""
    for module in imported:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    link = socket.socket(fileno=number)
    ended = selectors.DefaultSelector()
    ended.register(link, selectors.EVENT_READ)
    is_open = True
    while is_open or len(ended.get_map()) > 0:
        for key, _ in ended.select():
            if key.fileobj is not link:
                ended.unregister(key.fileobj)
                _report(key.fd, *key.data)
                continue
            message, streams, _, _ = socket.recv_fds(link, _MESSAGE_BYTES_MAX, 4)
            if not message:
                ended.unregister(link)
                is_open = False
                continue
            pid = os.fork()
            if pid == 0:
                ended.close()
                link.detach()
                _be_koala(json.loads(message), streams[:3])
            for stream in streams[:3]:
                os.close(stream)
            ended.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, streams[3]))
            link.send(str(pid).encode())


def _report(process: int, pid: int, status: int) -> None:
    _, code = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
    os.close(status)
    os.close(process)


def _be_koala(asked: dict[str, object], streams: list[int]) -> None:
    """What the new process does; it does not return."""
    from koala.cli import main

    arguments, environment = asked["arguments"], asked["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    if asked["session"]:
        os.setsid()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(asked["directory"]))
    warnings.resetwarnings()
    random.seed()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (_writer(target) for target in (1, 2))
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    try:
        if asked["program"] is None:
            sys.argv = ["koala", *arguments]
            main()
        else:
            sys.argv = [str(asked["program"]), *arguments]
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        _leave(end.code)
    _leave(0)


def _leave(code: str | int | None) -> None:
    """What Python does at its end, but for taking apart all that was imported: a process that was forked would copy
    every page of it first, which takes longer than most commands."""
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):  # Python tells of a stream that it cannot write to
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code or 0)
    sys.exit(code)


def _writer(target: int) -> TextIO:
    """Lines are written at once where nothing shall wait for more of them."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) or target == 2
    return open(
        target,
        "w",
        encoding="utf-8",
        buffering=1 if unbuffered or os.isatty(target) else -1,
        closefd=False,
    )
