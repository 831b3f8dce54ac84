"""The daemon of the live demo: ``koala up`` in a directory of its own, and the removal of both.

When a ``DemoDaemon`` is removed, nothing of it is left: no daemon, no component, no file.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from koala.cli.daemon.background import running_pid, stop
from koala.cli.errors import FailedError, UserError

if TYPE_CHECKING:
    from koala.client import Client
    from koala.sites.processes import Child

# The limits for the daemon's start, the end of its jobs, its stop, and the end of all that is left then.
START_S_MAX = 60.0
LET_GO_S_MAX = 5.0
STOP_S_MAX = 15.0
SWEEP_S_MAX = 10.0
# The demo's calls wait this long for a daemon that cannot work for a moment.
PATIENCE_S = 5.0
POLL_S = 0.05
LOG_LINES_SHOWN = 15
# The kernel's limit on the path of a socket is 107 bytes.
SOCKET_PATH_BYTES_MAX = 107
SHORT_DIRECTORY = "/tmp"  # noqa: S108 - only the parent of a directory that mkdtemp makes
_PREFIX = "koala-demo-"
_STATE, _SOCKET, _SCRIPT, _LOG = "state", "koala.sock", "up", "daemon.log"


class DemoDaemon:
    """``koala up`` on the demo's grid, below a new temporary directory, or the one that was kept in a directory.
    ``remove`` ends and removes everything, even if it never started."""

    def __init__(
        self,
        kept: Path | None = None,
        *,
        command: str | None = None,
        start_s_max: float = START_S_MAX,
        stop_s_max: float = STOP_S_MAX,
    ) -> None:
        self.directory = _new_directory() if kept is None else _checked(kept)
        self._command = command
        self._start_s_max = start_s_max
        self._stop_s_max = stop_s_max
        self._child: Child | None = None

    @property
    def server(self) -> str:
        """The daemon's address for clients."""
        return f"unix:{self.directory / _STATE / _SOCKET}"

    @property
    def pid(self) -> int | None:
        """The daemon's process."""
        return running_pid(self.directory / _STATE)

    def client(self) -> Client:
        """Open a client for it."""
        from koala.client import Client

        return Client(self.server, patience_s=PATIENCE_S)

    def start(self, meanwhile: Callable[[], None]) -> None:
        """Start it and wait until it answers; ``meanwhile`` is called repeatedly, and may raise to give up. Raises
        FailedError with the end of its log if it does not answer."""
        from koala.sites.processes import spawn

        (self.directory / "tmp").mkdir()
        command = _up(self.directory) if self._command is None else self._command
        (self.directory / _SCRIPT).write_text(f"{command}\n", encoding="utf-8")
        # Temporary files of components are below the directory too, and are removed with it.
        environment = {**os.environ, "TMPDIR": str(self.directory / "tmp"), "PYTHONUNBUFFERED": "1"}
        self._child = spawn(self.directory, _SCRIPT, _LOG, environment)
        end = time.monotonic() + self._start_s_max
        while "Ctrl-C" not in self._log():  # the end of its greeting
            if time.monotonic() > end:
                raise self.failed(f"the demo's daemon did not answer within {self._start_s_max:g} s (START_S_MAX)")
            meanwhile()
            self.check()
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise FailedError with the end of its log if it has ended."""
        from koala.sites.processes import has_left

        if self._child is not None and has_left(self._child):
            raise self.failed("the demo's daemon has ended, and should not have")

    def failed(self, message: str) -> FailedError:
        """Return the error, with the end of the daemon's log."""
        lines = self._log().splitlines()[-LOG_LINES_SHOWN:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return FailedError(f"{message}\nthe end of its log:\n{tail}")

    def _log(self) -> str:
        try:
            return (self.directory / _LOG).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def remove(self) -> None:
        """End the daemon and all processes of its sites, and remove the directory. Takes a bounded time."""
        self._cancel_jobs()
        with contextlib.suppress(UserError):  # a daemon that never began to run, or does not stop when asked
            stop(self.directory / _STATE, within_s=self._stop_s_max)
        self._sweep(signal.SIGTERM, self._stop_s_max)
        self._sweep(signal.SIGKILL, SWEEP_S_MAX)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _cancel_jobs(self) -> None:
        """Cancel the jobs, so that the daemon itself ends what runs. Ignores a daemon that does not answer."""
        from koala.client import ENDED_STATES, Client, ClientError

        with contextlib.suppress(ClientError), Client(self.server, patience_s=0) as client:
            for job in client.each_job():
                if job.state not in ENDED_STATES:
                    client.cancel(job.id)
            end = time.monotonic() + LET_GO_S_MAX
            while any(site.ours for site in client.sites()) and time.monotonic() < end:
                time.sleep(POLL_S)

    def _sweep(self, number: signal.Signals, within_s: float) -> None:
        """Send a signal, once to each, to the daemon and to the processes that have a directory below this one in
        their environment, such as components that were just starting, and wait for their end."""
        from koala.sites.processes import Census, has_left

        signalled: set[int] = set()
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            running = Census().processes
            left = {pid for pid, _, home in running if home is not None and home.is_relative_to(self.directory)}
            if self._child is not None and not has_left(self._child):
                left.add(self._child.pid)
            if not left:
                return
            for pid in left - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled |= left
            time.sleep(POLL_S)


def _up(directory: Path) -> str:
    grid = directory / "grid.yaml"
    shipped = resources.files("koala") / "examples/demo/grid.yaml"
    options = ("--grid", str(grid), "--state", str(directory / _STATE), "--listen", "127.0.0.1:0")
    grid.write_text(shipped.read_text("utf-8"), encoding="utf-8")
    return f"exec {shlex.join((sys.executable, '-m', 'koala', 'up', *options))}"


def _new_directory() -> Path:
    """Make a directory in the usual place, or in ``SHORT_DIRECTORY`` if a socket's path would become too long."""
    made = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    if len(os.fsencode(made / _STATE / _SOCKET)) <= SOCKET_PATH_BYTES_MAX:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHORT_DIRECTORY)).resolve()


def _checked(directory: Path) -> Path:
    """Return the directory of a kept demo, and refuse any other, since it will be removed."""
    directory = directory.resolve()
    is_ours = directory.name.startswith(_PREFIX)
    if not (is_ours and (directory / _STATE).is_dir() and (directory / _LOG).is_file()):
        raise UserError(f"{directory} is not the directory of a kept demo; give the one that koala demo --keep named")
    return directory
