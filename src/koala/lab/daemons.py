"""Starting the lab's daemons: detached, each with its own directory, and recorded with its process.

The directory holds ``script``, which becomes the daemon, and ``log`` with its output. A restart runs the same script.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from koala.lab import programs
from koala.lab.errors import LabFailedError
from koala.lab.plan import LabPlan, SitePlan
from koala.lab.record import Daemon, Recorder
from koala.sites import processes

SCRIPT, LOG = "script", "log"
_LOG_BYTES = 4_096
_LISTENING = "0A"  # as /proc writes the state of a socket


class Daemons:
    """The daemons of one lab."""

    def __init__(self, plan: LabPlan, recorder: Recorder) -> None:
        self._plan = plan
        self._recorder = recorder

    def start(
        self, name: str, words: Sequence[str], site: SitePlan | None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a daemon for a site, in its namespace, or for the whole lab. It stays in the foreground of its own
        session, so that its process is known while it lives."""
        home = self._plan.daemons / name
        home.mkdir(parents=True, exist_ok=True)
        through = site.through if site is not None else ()
        exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in (environment or {}).items())
        (home / SCRIPT).write_text(f"{exports}exec {shlex.join([*through, *words])}\n", encoding="utf-8")
        self._spawn(name, site.name if site is not None else None)

    def start_again(self, name: str) -> None:
        """Restart a daemon in the way that it was started before."""
        self._spawn(name, next(each.site for each in self._recorder.record.daemons if each.name == name))

    def is_alive(self, name: str) -> bool:
        """Return True if a started daemon still lives."""
        return any(each.name == name and processes.is_alive(each.process) for each in self._recorder.record.daemons)

    def listens(self, name: str, port: int) -> bool:
        """Return True if somebody accepts connections at a port of the daemon's network."""
        pids = [each.process.pid for each in self._recorder.record.daemons if each.name == name]
        for pid in pids:
            with contextlib.suppress(OSError):
                rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()]
                return any(row[1].endswith(f":{port:04X}") and row[3] == _LISTENING for row in rows[1:])
        return False

    def said(self, name: str) -> str:
        """Return the last lines of a daemon's output."""
        try:
            text = (self._plan.daemons / name / LOG).read_bytes()[-_LOG_BYTES:]
        except OSError:
            return "it printed nothing"
        return programs.last_lines(text.decode(errors="replace").splitlines())

    def _spawn(self, name: str, site: str | None) -> None:
        home = self._plan.daemons / name
        child = processes.spawn(home, SCRIPT, LOG, programs.environment({}))
        process = processes.identity_of(child)
        if process is None:
            raise LabFailedError(f"{name}: it ended as soon as it was started: {self.said(name)}")
        self._recorder.add(Daemon(name=name, site=site, process=process))
