"""``koala`` for scripts that tests run: found by its name, and forked instead of started (``warm_koala``).

A script sees a small process beside it, with the same streams, that ends with it and with its exit code.
"""

from __future__ import annotations

import marshal
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.forking import MESSAGE_BYTES_MAX
from tests.support.short_paths import directory_for_socket
from tests.support.warm_koala import DAEMON, SILENT_S_MAX, WarmProcess, start_koala

FORKING_PYTHON = "python-of-koala"
# How long to wait for a process that is ending.
ENDS_S_MAX = 60.0
# It imports nothing slow: it sends its directory, its words, its environment and its streams. A SIGTERM that it
# receives, too, is for the other process, whose end it waits for. The shell reads its first lines and becomes Python,
# which takes them as a string: the line with "#!" must not hold a long path or one with a space.
_ASKING = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
' '''
import _signal, _socket, marshal, os, sys
_signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
link.connect({address!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
words = sys.argv[3:] if sys.argv[1:3] == ["-m", "koala"] else sys.argv[1:]
asked = marshal.dumps((os.getcwd(), words, dict(os.environ)))
link.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
os._exit(int(link.recv(16)) & 255)
"""


@contextmanager
def koala_for_scripts(directory: Path, imported: tuple[str, ...] = DAEMON) -> Iterator[Path]:
    """Make a folder in this directory for the front of scripts' ``PATH``. Its ``koala``, and its ``FORKING_PYTHON -m
    koala``, are forked from a process that has ``imported`` these modules. Processes that still run at the end are
    killed, and AssertionError names them."""
    with directory_for_socket(directory, "asked") as short:
        started = _Started(imported)
        folder, address = directory / "bin", short / "asked"
        folder.mkdir()
        for name in ("koala", FORKING_PYTHON):
            program = folder / name
            program.write_text(_ASKING.format(python=sys.executable, address=str(address)), encoding="utf-8")
            program.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(address))
            listening.listen()
            serving = threading.Thread(target=started.serve, args=(listening,), daemon=True)
            serving.start()
            try:
                yield folder
            finally:
                listening.shutdown(socket.SHUT_RDWR)
                serving.join()
                left = started.end()
    assert not left, f"still running at the end: {', '.join(left)}"


class _Started:
    """The ``koala`` processes that scripts have started."""

    def __init__(self, imported: tuple[str, ...]) -> None:
        self._imported = imported
        self._starting = threading.Lock()
        self._ended = False
        self._koalas: list[tuple[str, WarmProcess]] = []
        self._answering: list[threading.Thread] = []

    def serve(self, listening: socket.socket) -> None:
        """Answer all requests, until it is shut down."""
        with suppress(OSError):
            while True:
                thread = threading.Thread(target=self._answer, args=(listening.accept()[0],), daemon=True)
                thread.start()
                self._answering.append(thread)

    def end(self) -> list[str]:
        """Start no more, and kill and return those that do not end. One that has ended may still be listed."""
        with self._starting:
            self._ended = True
        until_s = time.monotonic() + ENDS_S_MAX
        for thread in self._answering:
            thread.join(max(0.0, until_s - time.monotonic()))
        left = [(words, koala) for words, koala in self._koalas if koala.returncode is None]
        for _, koala in left:
            with suppress(ProcessLookupError):
                os.kill(koala.pid, signal.SIGKILL)
        for thread in self._answering:
            thread.join(SILENT_S_MAX)
        return [f"koala {words} (process {koala.pid})" for words, koala in left]

    def _answer(self, link: socket.socket) -> None:
        with link:
            message, streams, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, 3)
            try:
                koala = self._start(message, streams) if message else None  # it may be killed before it asks
            finally:
                for stream in streams:
                    os.close(stream)
            if koala is not None:
                with suppress(BrokenPipeError):
                    link.send(str(koala.wait(SILENT_S_MAX)).encode())

    def _start(self, message: bytes, streams: list[int]) -> WarmProcess | None:
        """Start the requested ``koala``; return None at the end."""
        cwd, words, environment = marshal.loads(message)  # noqa: S302 - it comes from the program above
        with self._starting:
            if self._ended:
                return None
            koala = start_koala(
                words,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env=environment,
                cwd=Path(cwd),
                imported=self._imported,
            )
            self._koalas.append((shlex.join(words), koala))
            return koala
