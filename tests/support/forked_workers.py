"""Test processes are forked from one that has collected the tests, so that the tests are imported once.

pytest-xdist starts each of its processes as a Python that reads its first line from the standard input. Here that
Python is this file: it requests from the forking process a Python that has imported all tests already, hands its
streams to it, and ends when that one does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support import forking, warm_koala
from tests.support.paths import child_environment

_STARTER = "import sys; from tests.support.forked_workers import collect_and_fork; collect_and_fork(*sys.argv[1:])"

# Modules that Koala imports only where they are needed, and that the tests of most processes need.
IMPORTED_LATER = ("matplotlib.figure", "networkx", "psycopg")


def fork_workers(config: pytest.Config, koala: bool = False) -> None:
    """Fork the processes that share the tests of a run; and the ``koala`` of all their tests, too, from one process
    instead of one for each."""
    shared = getattr(config.option, "numprocesses", None) and config.option.tx
    if shared and not hasattr(config, "workerinput") and not config.option.collectonly:
        collected = Collected(config.invocation_params.args, koala)
        config.add_cleanup(collected.end)
        config.option.tx = [f"popen//python={collected.python()}" for _ in config.option.tx]


class Collected:
    """A process that collects the tests for these words, and is then forked for each request."""

    def __init__(self, arguments: Sequence[str], koala: bool) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="koala-workers-"))
        with contextlib.ExitStack() as opened:
            links = [opened.enter_context(_bound(self._place / name)) for name in ("python", "koala")[: 1 + koala]]
            numbers = [link.fileno() for link in links]
            words = [sys.executable, "-c", _STARTER, ",".join(map(str, numbers)), *arguments]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=numbers, env=child_environment())
        if koala:
            os.environ[warm_koala.SHARED] = str(self._place / "koala")

    def python(self) -> str:
        """Return the command of a Python that has imported the tests."""
        return shlex.join([sys.executable, "-S", __file__, str(self._place / "python")])

    def end(self) -> None:
        """Stop accepting requests; processes that have not ended by now hang."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _bound(path: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    link.bind(str(path))
    return link


def collect_and_fork(numbers: str, *arguments: str) -> None:
    """Import everything that the tests need, then fork for each request, until the standard input is closed."""
    link, *more = (socket.socket(fileno=int(number)) for number in numbers.split(","))
    place = Path(link.getsockname()).parent
    # An interrupt from the keyboard is for the tests; this process ends with pytest, however that ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for each in more:
        _fork_koala(each, link)
    collect(arguments)
    if more:
        import_more()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, f"the import of a test has started {threading.enumerate()[1:]}"
    forking.serve(link, _be_python, end=0)
    shutil.rmtree(place)
    forking.leave(0)


def _fork_koala(link: socket.socket, other: socket.socket) -> None:
    """Fork from a process of its own, before it is made large by tests."""
    if os.fork() == 0:
        other.close()  # else nobody would see that the process of that socket has ended
        os.setsid()
        warm_koala.serve(link, warm_koala.DAEMON, end=0)
        forking.leave(0)
    link.close()


def collect(arguments: Sequence[str]) -> None:
    """Import the tests as pytest does. The processes that run a test report what is wrong with it."""
    import pytest

    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        pytest.main([*arguments, "-n", "0", "--collect-only", "-qq"])


def import_more() -> None:
    """Import what most processes would import in their first tests."""
    from hypothesis.strategies import text  # not before pytest, which rewrites what it imports as a plugin

    text().validate()  # reads its tables of characters
    for module in IMPORTED_LATER:
        importlib.import_module(module)


def _be_python(asked: dict[str, Any]) -> None:
    """Read the program as ``python -c`` would."""
    sys.argv = ["-c"]
    exec(asked["program"], {"__name__": "__main__"})  # noqa: S102 - as ``python -c`` does


def main() -> int:
    """Stand for the forked process, which has this one's streams, end and exit code."""
    path, *_, program = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect(path)
        pid, status = forking.ask(link, [0, 1, 2], env=os.environ, directory=Path.cwd(), program=program)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # reaches the other one by itself
    signal.signal(signal.SIGTERM, lambda got, _: os.kill(pid, got))
    code = forking.number_from(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
