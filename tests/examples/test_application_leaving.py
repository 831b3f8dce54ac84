"""A process that fails says why before it ends all others, and ends them whether or not anybody hears it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from koala.examples.applications import program
from koala.examples.applications.heat import Heat
from tests.support.application_runs import python


def failing(failure: str, before: str = "pass") -> str:
    """A program of several processes, the last of which does something and fails."""
    return (
        "import os, signal, subprocess, sys\n"
        "from koala.examples.applications.heat import Heat\n"
        "from koala.examples.applications.program import run\n"
        "class Failing(Heat):\n"
        "    def _step(self, field):\n"
        "        if self._world.rank == self._world.size - 1:\n"
        f"            {before}\n"
        f"            raise {failure}\n"
        "        return super()._step(field)\n"
        "sys.exit(run(Failing, ['--size', '9']))\n"
    )


@pytest.mark.parametrize(
    ("failure", "said"), [("MemoryError('2 GiB')", "use a smaller --size"), ("RuntimeError('broken')", "broken")]
)
def test_a_process_that_fails_takes_the_others_with_it(failure: str, said: str) -> None:
    done = python("-c", failing(failure), processes=3)
    assert done.code == 1
    assert said in done.err


def test_last_words_are_heard_also_where_the_process_manager_is_slow() -> None:
    """Its proxy, which has started the process, is held still, so that it would find words and abort together."""
    hold = "os.kill(os.getppid(), signal.SIGSTOP)"
    let_go = "['sh', '-c', f'sleep 1; kill -CONT {os.getppid()}'], start_new_session=True, stderr=subprocess.DEVNULL"
    done = python("-c", failing("RuntimeError('broken')", f"{hold}; subprocess.Popen({let_go})"), processes=3)
    assert done.code == 1
    assert "RuntimeError: broken" in done.err


@pytest.mark.parametrize("closed", ["sys.stderr = None", "sys.stderr.close()", "os.close(2)"])
def test_a_process_whose_standard_error_is_closed_takes_the_others_with_it_too(closed: str) -> None:
    assert python("-c", failing("RuntimeError('broken')", closed), processes=2).code == 1


def test_a_result_for_which_standard_output_is_closed_is_a_failure_and_nobody_waits() -> None:
    text = (
        "import sys\nfrom koala.examples.applications.heat import Heat\n"
        "from koala.examples.applications.program import run\n"
        "sys.stdout = None\nsys.exit(run(Heat, ['--size', '9', '--steps', '2']))\n"
    )
    done = python("-c", text, processes=2)
    assert done.code == 1
    assert "the result cannot be printed: standard output is closed" in done.err


# ------------------------------------------------------------------------------------- a pipe that is read late


class Together:
    """As much of a communicator of two processes as one that fails uses; it notes what nobody has read at its end."""

    rank, size = 0, 2

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self.aborts: list[tuple[int, int]] = []

    def Abort(self, code: int) -> None:  # noqa: N802 - as MPI calls it
        """All processes would end here."""
        (unread,) = struct.unpack("i", fcntl.ioctl(self._reader, termios.FIONREAD, bytes(4)))
        self.aborts.append((code, unread))


class Broken(Heat):
    """It fails at its beginning."""

    def __init__(self, *_: object) -> None:
        raise RuntimeError("broken")


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Both ends of a pipe."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "w") as stream:
        yield reader, stream


def fail(comm: Together, stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what fails, in a world of two processes, with this standard error."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        patched.setattr(program, "connected", lambda: comm)
        patched.setattr(program, "MpiWorld", lambda *_, **__: None)
        assert program.run(Broken, ["--groups", "1,1"]) == 1


def test_the_abort_comes_after_the_last_words_were_read(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads before the process waits for that."""
    reader, stream = pipe
    comm = Together(reader)
    heard: list[bytes] = []
    waits = threading.Event()
    monkeypatch.setattr("time.sleep", lambda _: waits.set())

    def read_late() -> None:
        waits.wait()
        if not comm.aborts:
            heard.append(os.read(reader, 65_536))

    thread = threading.Thread(target=read_late)
    thread.start()
    try:
        fail(comm, stream, monkeypatch)
    finally:
        waits.set()
        thread.join()
    assert comm.aborts == [(1, 0)]
    assert b"RuntimeError: broken" in heard[0]


def test_the_abort_comes_also_where_nobody_ever_reads(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stream = pipe
    comm = Together(reader)
    monkeypatch.setattr(program, "HEARD_S_MAX", 0.05)
    fail(comm, stream, monkeypatch)
    ((code, unread),) = comm.aborts
    assert code == 1
    assert unread > 0
