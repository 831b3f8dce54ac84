"""``koala`` for scripts that tests run: found by its name, and forked instead of started (``warm_koala``)."""

from __future__ import annotations

import marshal
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.warm_koala import SILENT_S_MAX, start_koala

_MESSAGE_BYTES_MAX = 1_048_576
# It imports nothing that takes time: it says where it is, its words, its environment and its streams.
_ASKING = """#!{python} -IS
import _socket, marshal, os, sys
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
link.connect({address!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
asked = marshal.dumps((os.getcwd(), sys.argv[1:], dict(os.environ)))
link.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
os._exit(int(link.recv(16)) & 255)
"""


@contextmanager
def koala_for_scripts(directory: Path, imported: tuple[str, ...]) -> Iterator[Path]:
    """A folder, made in this directory, whose ``koala`` is forked from a process that has ``imported`` these modules;
    it stands first in the ``PATH`` of scripts."""
    folder = directory / "bin"
    folder.mkdir()
    program, address = folder / "koala", directory / "asked"
    program.write_text(_ASKING.format(python=sys.executable, address=str(address)), encoding="utf-8")
    program.chmod(0o755)
    starting = threading.Lock()
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
