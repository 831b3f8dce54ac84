"""``koala`` for scripts that tests run: found by its name, and forked instead of started (``warm_koala``).

What a script sees is a small process beside it, with the same streams, that ends with it and with its exit code.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.warm_koala import DAEMON, SILENT_S_MAX, WarmProcess, start_koala

FORKING_PYTHON = "python-of-koala"
_MESSAGE_BYTES_MAX = 1_048_576
# It imports nothing that takes time: it says where it is, its words, its environment and its streams. A SIGTERM that
# comes to it as well is for the other one, whose end it waits for.
_ASKING = """#!{python} -IS
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
    """A folder, made in this directory, that stands first in the ``PATH`` of scripts. Its ``koala``, and its
    ``FORKING_PYTHON -m koala``, are forked from a process that has ``imported`` these modules. At the end none
    of them runs on."""
    folder, address = directory / "bin", directory / "asked"
    folder.mkdir()
    for name in ("koala", FORKING_PYTHON):
        program = folder / name
        program.write_text(_ASKING.format(python=sys.executable, address=str(address)), encoding="utf-8")
        program.chmod(0o755)
    starting = threading.Lock()
    started: list[WarmProcess] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(address))
        listening.listen()

        def answer(link: socket.socket) -> None:
            message, streams, _, _ = socket.recv_fds(link, _MESSAGE_BYTES_MAX, 3)
            cwd, words, environment = marshal.loads(message)  # noqa: S302 - it comes from the program above
            with starting:
                koala = start_koala(
                    words,
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                    env=environment,
                    cwd=Path(cwd),
                    imported=imported,
                )
                started.append(koala)
            for stream in streams:
                os.close(stream)
            with link, suppress(BrokenPipeError):
                link.send(str(koala.wait(SILENT_S_MAX)).encode())

        def serve() -> None:
            with suppress(OSError):  # it is closed at the end
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield folder
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()
            for koala in started:
                if koala.returncode is None:
                    with suppress(ProcessLookupError):
                        os.kill(koala.pid, signal.SIGKILL)
