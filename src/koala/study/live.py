"""A live grid for one measurement: a lab of real batch systems behind emulated links, and a daemon that uses it.

Everything is below one directory of its own and is gone when the measurement is over, however it ends.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import yaml

from koala import lab
from koala.client import Client, ClientError
from koala.descriptions import read_grid
from koala.lab.lab import plan_of
from koala.lab.requirements import check
from koala.model.grid import Grid
from koala.sites import processes

__all__ = ["LabSize", "LiveGrid", "LiveGridError", "check_machine", "live_grid", "run_script"]

DAEMON_S = 60.0
STOP_S = 20.0
# Rare enough not to disturb the measurement.
_LOOK_S = 0.05
_SCRIPT, _LOG = "script", "log"
_SHOWN_CHARACTERS = 600


class LiveGridError(RuntimeError):
    """The daemon of a measurement did not start."""

    def for_user(self) -> str:
        """Return its last output."""
        return str(self)


class LiveGrid(NamedTuple):
    """A lab with a daemon on it. ``server`` is the daemon's address, ``grid`` the content of the lab's file."""

    lab: lab.Lab
    server: str
    grid: Grid

    def grid_as_json(self) -> dict[str, Any]:
        """Return the grid without the paths of this lab."""
        sites = tuple(msgspec.structs.replace(site, batch=None) for site in self.grid.sites)
        found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self.grid, sites=sites))
        return found


class LabSize(NamedTuple):
    """The size of a lab, and the distance between its sites."""

    nodes: int
    processors_per_node: int
    slots: int
    first_port: int
    rate_mbit_s: float
    delay_ms: float


def options_for(size: LabSize, directory: Path) -> lab.LabOptions:
    """Return the lab of that size in a directory."""
    return lab.LabOptions(
        directory=directory,
        nodes=size.nodes,
        processors_per_node=size.processors_per_node,
        slots=size.slots,
        first_port=size.first_port,
        wan=lab.WideAreaLink(rate_mbit_s=size.rate_mbit_s, delay_s=size.delay_ms / 1e3),
    )


def check_machine(size: LabSize) -> None:
    """Raise LabError if such a lab cannot run here, and say what is missing."""
    check(plan_of(options_for(size, Path(tempfile.gettempdir()) / "koala-live")))


@contextmanager
def live_grid(size: LabSize, scheduler: Mapping[str, object] = MappingProxyType({})) -> Iterator[LiveGrid]:
    """Start a lab and a daemon, and stop both in the end. ``scheduler`` are parameters as a grid file names them."""
    with tempfile.TemporaryDirectory(prefix="koala-live-") as folder:
        root = Path(folder)
        running = lab.up(options_for(size, root / "lab"))
        try:
            grid_file = root / "grid.yaml"
            text = _with_scheduler(running.grid_file.read_text(encoding="utf-8"), scheduler)
            grid_file.write_text(text, encoding="utf-8")
            with _daemon(root, grid_file) as server:
                yield LiveGrid(running, server, read_grid(text, str(grid_file)))
        finally:
            running.down()


def _with_scheduler(text: str, parameters: Mapping[str, object]) -> str:
    """Return the lab's grid file with these parameters of the scheduler."""
    grid = yaml.safe_load(text)
    grid["scheduler"].update(parameters)
    return yaml.safe_dump(grid, sort_keys=False)


@contextmanager
def _daemon(root: Path, grid_file: Path) -> Iterator[str]:
    home, state = root / "daemon", root / "state"
    home.mkdir()
    words = [sys.executable, "-m", "koala", "up", "--grid", str(grid_file), "--state", str(state)]
    (home / _SCRIPT).write_text(f"exec {shlex.join(words)}\n", encoding="utf-8")
    child = processes.spawn(home, _SCRIPT, _LOG, processes.own_environment())
    identity = processes.identity_of(child)
    server = f"unix:{state / 'koala.sock'}"
    try:
        _until_ready(server, child, home)
        yield server
    finally:
        processes.end(identity, home, by_force=False)
        _left_within(child, STOP_S)
        processes.end(identity, home, by_force=True)
        processes.has_left(child)


def run_script(directory: Path, script: str, log: str, environment: Mapping[str, str], limit_s: float) -> bool:
    """Run a shell script of a directory to its end, within a time limit; return True if it ended by itself.

    Its output goes to the file ``log`` beside it. All processes that it started end with it, in any session: the
    directory in their environment identifies them.

    >>> import os
    >>> from pathlib import Path
    >>> from koala.study.live import run_script
    >>> _ = Path("script").write_text("echo measured")
    >>> run_script(Path.cwd(), "script", "log", os.environ, 60.0)
    True
    >>> Path("log").read_text()
    'measured\\n'
    """
    child = processes.spawn(directory, script, log, environment)
    identity = processes.identity_of(child)
    try:
        return _left_within(child, limit_s)
    finally:
        processes.end(identity, directory, by_force=True)


def _left_within(child: processes.Child, limit_s: float) -> bool:
    ends_at = time.monotonic() + limit_s
    while not processes.has_left(child):
        if time.monotonic() > ends_at:
            return False
        time.sleep(_LOOK_S)
    return True


def _until_ready(server: str, child: processes.Child, home: Path) -> None:
    """Wait until the daemon answers and has received a report from every site."""
    ends_at = time.monotonic() + DAEMON_S
    with Client(server, patience_s=0.0) as client:
        while True:
            problem = ""
            try:
                if all(site.reported_at is not None for site in client.sites()):
                    return
                problem = "some site has not answered it"
            except ClientError as error:
                problem = error.message
            if processes.has_left(child) or time.monotonic() > ends_at:
                said = (home / _LOG).read_text(errors="replace")[-_SHOWN_CHARACTERS:]
                raise LiveGridError(f"the daemon of the measurement did not come up: {problem}; it said: {said}")
            time.sleep(_LOOK_S)
