"""The daemon that the live demo runs on: a process of its own in a directory of its own, and the end of both.

When a ``DemoDaemon`` is removed, nothing of it is left: no daemon, no component, no file.
"""

from __future__ import annotations

import contextlib
import os
import re
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

from koala.cli.errors import FailedError, UserError

if TYPE_CHECKING:
    from koala.client import Client
    from koala.sites.processes import Child

# How long the daemon may take until it answers, to end its jobs, to stop, and what is left then to be gone.
START_S_MAX = 60.0
LET_GO_S_MAX = 5.0
STOP_S_MAX = 15.0
SWEEP_S_MAX = 10.0
# How long the demo's calls wait for a daemon that cannot work for a moment.
PATIENCE_S = 5.0
POLL_S = 0.05
LOG_LINES_SHOWN = 15
# The kernel's limit on the path of a socket is 107 bytes.
SOCKET_PATH_BYTES_MAX = 107
SHORT_DIRECTORY = "/tmp"  # noqa: S108 - only the parent of a directory that mkdtemp makes
_PREFIX = "koala-demo-"
_STATE, _SOCKET, _SCRIPT, _LOG = "state", "koala.sock", "up", "daemon.log"

# Called again and again while something is waited for; it may raise to give up.
Meanwhile = Callable[[], None]


class DemoDaemon:
    """``koala up`` on the demo's grid, below a new temporary directory, or the one that was kept in a directory.
    ``remove`` ends and removes everything, also when it never started."""

    def __init__(self, kept: Path | None = None) -> None:
        self.directory = _new_directory() if kept is None else _checked(kept)
        self.url: str | None = None
        self._child: Child | None = None

    @property
    def server(self) -> str:
        """Its address for clients."""
        return f"unix:{self.directory / _STATE / _SOCKET}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._child is not None, "start it first"
        return self._child.pid

    def client(self) -> Client:
        """A client for it."""
        from koala.client import Client

        return Client(self.server, patience_s=PATIENCE_S)

    # --------------------------------------------------------------------------------------- its beginning

    def start(self, meanwhile: Meanwhile) -> None:
        """Start it and wait until it answers. Raises FailedError with the end of its log when it does not."""
        from koala.sites import processes as shell

        (self.directory / "tmp").mkdir()
        (self.directory / _SCRIPT).write_text(self._command(), encoding="utf-8")
        # Temporary files of components are below the directory too, and are removed with it.
        environment = {**os.environ, "TMPDIR": str(self.directory / "tmp"), "PYTHONUNBUFFERED": "1"}
        self._child = shell.spawn(self.directory, _SCRIPT, _LOG, environment)
        end = time.monotonic() + START_S_MAX
        while not self._has_greeted():
            if time.monotonic() > end:
                raise self.failed(f"the demo's daemon did not answer within {START_S_MAX:.0f} s (START_S_MAX)")
            meanwhile()
            self.check()
            time.sleep(POLL_S)
        found = re.search(r"^  address +(\S+)$", self._log(), re.MULTILINE)
        self.url = None if found is None else found[1]

    def _command(self) -> str:
        grid = self.directory / "grid.yaml"
        grid.write_text((resources.files("koala") / "examples/demo/grid.yaml").read_text("utf-8"), encoding="utf-8")
        state = str(self.directory / _STATE)
        words = (
            sys.executable,
            "-m",
            "koala",
            "up",
            "--grid",
            str(grid),
            "--state",
            state,
            "--listen",
            "127.0.0.1:0",
        )
        return f"exec {shlex.join(words)}\n"

    def _has_greeted(self) -> bool:
        text = self._log()
        return "koala is up" in text and "Ctrl-C" in text

    def check(self) -> None:
        """Raises FailedError with the end of its log if it runs no longer."""
        from koala.sites import processes as shell

        if self._child is not None and shell.has_left(self._child):
            raise self.failed("the demo's daemon has ended, and should not have")

    def failed(self, message: str) -> FailedError:
        """The error for what went wrong, with the end of the daemon's log."""
        lines = self._log().splitlines()[-LOG_LINES_SHOWN:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return FailedError(f"{message}\nthe end of its log:\n{tail}")

    def _log(self) -> str:
        try:
            return (self.directory / _LOG).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    # --------------------------------------------------------------------------------------------- its end

    def remove(self) -> None:
        """End the daemon and whatever its sites run, and remove the directory. Takes a bounded time."""
        self._cancel_jobs()
        self._stop()
        self._sweep(signal.SIGTERM, STOP_S_MAX)
        self._sweep(signal.SIGKILL, SWEEP_S_MAX)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _cancel_jobs(self) -> None:
        """So that the daemon itself ends what runs; a daemon that does not answer is no obstacle."""
        from koala.client import ENDED_STATES, Client, ClientError

        with contextlib.suppress(ClientError), Client(self.server, patience_s=0) as client:
            for job in client.each_job():
                if job.state not in ENDED_STATES:
                    client.cancel(job.id)
            end = time.monotonic() + LET_GO_S_MAX
            while any(site.ours for site in client.sites()) and time.monotonic() < end:
                time.sleep(POLL_S)

    def _stop(self) -> None:
        from koala.sites import processes as shell

        if self._child is None or shell.has_left(self._child):
            return
        os.kill(self._child.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_S_MAX
        while not shell.has_left(self._child):
            if time.monotonic() > end:
                os.kill(self._child.pid, signal.SIGKILL)
                end = float("inf")  # nothing outlives that
            time.sleep(POLL_S)

    def _sweep(self, number: signal.Signals, within_s: float) -> None:
        """Send a signal, once to each, to what carries the directory in its environment, and wait for their end. So a
        daemon that another process started is found, and components that were just starting."""
        told: set[int] = set()
        end = time.monotonic() + within_s
        while (left := processes_below(self.directory)) and time.monotonic() < end:
            for pid in set(left) - told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= set(left)
            time.sleep(POLL_S)


def _new_directory() -> Path:
    """A directory in the usual place, or in ``SHORT_DIRECTORY`` where a socket's path would become too long."""
    made = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    if len(os.fsencode(made / _STATE / _SOCKET)) <= SOCKET_PATH_BYTES_MAX:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHORT_DIRECTORY)).resolve()


def _checked(directory: Path) -> Path:
    """The directory of a kept demo, and nothing else, since it will be removed."""
    directory = directory.resolve()
    if (
        not directory.name.startswith(_PREFIX)
        or not (directory / _STATE).is_dir()
        or not (directory / _LOG).is_file()
    ):
        raise UserError(f"{directory} is not the directory of a kept demo; give the one that koala demo --keep named")
    return directory


def processes_below(directory: Path) -> list[int]:
    """The living processes that were started for the daemon in this directory, or for a component of its sites.

    Without /proc none are known; then the daemon has ended what it was told to cancel.
    """
    from koala.sites.processes import ENVIRON_BYTES_MAX, MARKER

    mark = os.fsencode(f"{MARKER}={directory}")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError), (entry / "environ").open("rb") as file:
            variables = file.read(ENVIRON_BYTES_MAX).split(b"\0")
            if any(each == mark or each.startswith(mark + b"/") for each in variables):
                found.append(int(entry.name))
    return found
