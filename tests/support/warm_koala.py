"""``koala`` in a process of its own without the start of a Python: forked from one that has imported everything.

A test sees such a process (its number, signals, streams, environment, exit code) like one that was started from a
file; only its end is shorter (``leave`` in ``forking.py``). Some tests of ``tests/cli/daemon`` and of the demo start
``koala`` from its file.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import forking
from tests.support.paths import child_environment

_STARTER = "import sys; from tests.support.warm_koala import serve_number; serve_number(*sys.argv[1:])"
# The variable with the socket of a process that forks for all processes of a test run.
SHARED = "KOALA_TESTS_FORKED_FROM"
# A program that prints nothing for this long, or does not end when it should, hangs.
SILENT_S_MAX = 300.0
# The modules that a daemon and most of its callers import.
DAEMON = (
    "httpcore",  # with the first client
    "koala.cli.daemon.up",
    "koala.cli.job.command",
    "koala.cli.job.submit",
    "koala.client.client",
    "koala.daemon.run",
    "koala.descriptions.grid.form",
)


class WarmProcess:
    """A forked ``koala`` with the methods of ``subprocess.Popen``."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("koala", timeout or 0.0)
            self.returncode = forking.number_from(self._status)
            os.close(self._status)
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
    """Start ``koala``, or a ``program`` of the tests, with these words, these open files as its streams and this
    environment. It is forked from a process that has ``imported`` these modules."""
    pid, status = forking.ask(
        _link(imported),
        [stdin, stdout, stderr],
        env=env,
        directory=cwd or Path.cwd(),
        session=start_new_session,
        program=None if program is None else str(program),
        arguments=list(arguments),
    )
    return WarmProcess(pid, status)


class LimitedReader:
    """The lines from a pipe. Raises AssertionError if nothing comes for ``limit_s`` and the pipe is not closed."""

    def __init__(self, pipe: int, limit_s: float = SILENT_S_MAX) -> None:
        self._pipe = pipe
        self._limit_s = limit_s
        self._unread = b""

    def readline(self) -> str:
        """Return the next line, or the rest at the end."""
        while b"\n" not in self._unread and self._receives():
            pass
        line, end, self._unread = self._unread.partition(b"\n")
        return (line + end).decode()

    def read(self) -> str:
        """Return all the rest."""
        while self._receives():
            pass
        text, self._unread = self._unread.decode(), b""
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def close(self) -> None:
        """Stop reading."""
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
    """A program of the tests in a process of its own, with pipes in both directions. It has the methods of
    ``subprocess.Popen``. The end of the block waits for its end; a block that fails kills it."""

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
    """Return the connection to the process that forks, which ends with this one, or with the test run."""
    if imported == DAEMON and SHARED in os.environ:
        shared = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        shared.connect(os.environ[SHARED])
        atexit.register(shared.close)
        return shared
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(theirs.fileno()), *imported],
            pass_fds=[theirs.fileno()],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve_number(number: str, *imported: str) -> None:
    """Serve at the open socket with this number."""
    serve(socket.socket(fileno=int(number)), imported)


def serve(link: socket.socket, imported: Sequence[str], end: int | None = None) -> None:
    """Import the modules, then fork one ``koala`` for each message until the other side is closed, or the file
    ``end``. Returns then, and never in a forked process."""
    gc.disable()  # what is imported stays: to look for garbage in it would take a third of the time
    for module in imported:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    forking.serve(link, _be_koala, end)


def _be_koala(asked: dict[str, Any]) -> None:
    """Perform the work of the new process."""
    from koala.cli import main

    if asked["program"] is None:
        sys.argv = ["koala", *asked["arguments"]]
        main()
    else:
        sys.argv = [asked["program"], *asked["arguments"]]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
