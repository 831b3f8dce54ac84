"""Processes that mpiexec has started once, for many runs of applications.

A member waits for its next run at a pipe of its own, which costs nothing. The first members perform a run, as many as
it needs, with a communicator of their own; their output and their exit codes come back.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from koala.examples.applications import program
from koala.examples.applications.clusters import VARIABLE
from koala.examples.applications.world import connected
from tests.support.application_runs import MPIEXEC, Finished, read_report

if TYPE_CHECKING:
    from mpi4py import MPI

WAIT_S = 120.0
ANSWERS = "answers"


class MpiCrew:
    """This many processes, until ``__exit__``."""

    def __init__(self, directory: Path, processes: int) -> None:
        self._pipes = [directory / str(rank) for rank in range(processes)]
        for pipe in (*self._pipes, directory / ANSWERS):
            os.mkfifo(pipe)
        self._log = directory / "log"
        command = [str(MPIEXEC), "-n", str(processes), sys.executable, "-m", "tests.support.mpi_crew", str(directory)]
        inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=inherited, start_new_session=True
            )
        # Both ways, so that no opening waits for a member, and the end of a member is not an end of file.
        self._orders = [os.open(pipe, os.O_RDWR) for pipe in self._pipes]
        self._answers = os.open(directory / ANSWERS, os.O_RDWR | os.O_NONBLOCK)

    def __enter__(self) -> MpiCrew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self._order(len(self._orders), None)
            self._process.wait(WAIT_S)
        except BaseException:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        finally:
            self._process.wait()
            for descriptor in (*self._orders, self._answers):
                os.close(descriptor)

    def run(
        self, application: str, *arguments: str, processes: int, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Run an application in a world of the first processes."""
        order = {"application": application, "arguments": arguments, "environment": environment or {}}
        return self._done(order, processes)

    def told(self, application: str, *arguments: str, **options: Any) -> dict[str, Any]:
        """Return the report of a run that must succeed."""
        return read_report(self.run(application, *arguments, "--json", **options))

    def execute(self, text: str, processes: int) -> Finished:
        """Execute Python in each of the first processes, where ``comm`` is their communicator."""
        return self._done({"program": text, "environment": {}}, processes)

    def _done(self, order: dict[str, Any], processes: int) -> Finished:
        self._order(processes, {"processes": processes, **order})
        heard = b""
        while not heard.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], WAIT_S)
            assert ready, f"no answer within {WAIT_S:.0f} s\n{self._log.read_text()}"
            heard += os.read(self._answers, 65_536)
        return Finished(*json.loads(heard))

    def _order(self, processes: int, order: object) -> None:
        for descriptor in self._orders[:processes]:
            os.write(descriptor, json.dumps(order).encode() + b"\n")


# ----------------------------------------------------------------------------------------------- a member


def serve(directory: Path) -> None:
    """Perform orders until there are no more, or nobody to give them."""
    everybody = connected()
    crews: dict[int, MPI.Intracomm] = {}
    with (directory / str(everybody.rank)).open(encoding="utf-8") as orders:
        for line in orders:
            order = json.loads(line)
            if order is None:
                return
            count = order["processes"]
            if count not in crews:
                crews[count] = everybody.Create_group(everybody.group.Incl(range(count)))
            told = crews[count].gather(_performed(order, crews[count]))
            if told is not None:
                codes, outs, errs = zip(*told, strict=True)
                answer = Finished(max(codes), "".join(outs), "".join(errs))
                (directory / ANSWERS).write_text(json.dumps(answer) + "\n", encoding="utf-8")


def _performed(order: dict[str, Any], comm: MPI.Intracomm) -> Finished:
    """Perform an order in this process; return its result and its output."""
    out, err = io.StringIO(), io.StringIO()
    with (
        _told(order["environment"]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = _perform(order, comm)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except Exception:
            traceback.print_exc()
            code = 1
    return Finished(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _told(environment: Mapping[str, str]) -> Iterator[None]:
    """Set these variables beside the others during the block."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _perform(order: dict[str, Any], comm: MPI.Intracomm) -> int:
    if "program" in order:
        exec(order["program"], {"comm": comm})  # noqa: S102 - a test wrote it
        return 0
    name = order["application"]
    module = importlib.import_module(f"koala.examples.applications.{name}")
    return program.run(getattr(module, name.capitalize()), order["arguments"], comm)


if __name__ == "__main__":
    gc.freeze()  # so that at the end no garbage is looked for in what was imported
    serve(Path(sys.argv[1]))
