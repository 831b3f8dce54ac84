"""Runs of the shipped applications for tests: with the real mpiexec, in bounded time, and alone in this process."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from koala.examples.applications.clusters import VARIABLE, ProcessClusters, WanEmulation
from koala.examples.applications.program import Solver
from koala.examples.applications.world import MpiWorld

if TYPE_CHECKING:
    from mpi4py import MPI

MPIEXEC = Path(sys.executable).parent / "mpiexec"
WAIT_S = 120.0


class Finished(NamedTuple):
    """A finished run."""

    code: int
    out: str
    err: str


def python(*arguments: str, processes: int | None = None, environment: Mapping[str, str] | None = None) -> Finished:
    """Run Python, under mpiexec if a number of processes is given; no process of it stays."""
    command = [sys.executable, *arguments]
    if processes is not None:
        require_mpiexec()
        command = [str(MPIEXEC), "-n", str(processes), *command]
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **(environment or {})},
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=WAIT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Finished(process.returncode, out, err)


def require_mpiexec() -> None:
    """Skip, or fail in CI, if mpiexec is not installed."""
    if not MPIEXEC.exists():
        import pytest  # every process of a crew imports this module

        assert "CI" not in os.environ, f"{MPIEXEC} is missing; install the extra mpi"
        pytest.skip(f"{MPIEXEC} is missing; install the extra mpi")


def run(application: str, *arguments: str, **options: Any) -> Finished:
    """Run an application as a user does."""
    return python("-m", f"koala.examples.applications.{application}", *arguments, **options)


def told(application: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Return the report of a run that must succeed."""
    return read_report(run(application, *arguments, "--json", **options))


def read_report(done: Finished) -> dict[str, Any]:
    """Return the report of a successful run."""
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    return cast("dict[str, Any]", json.loads(line))


class _Alone:
    """The part of a communicator that a world of one process uses; it loads no MPI into the tests' own process."""

    rank = 0
    size = 1

    def Barrier(self) -> None:  # noqa: N802 - as MPI calls it
        """Return at once: there are no other processes."""


def comm_of_one() -> MPI.Comm:
    """Return the communicator of a process that runs alone."""
    return cast("MPI.Comm", _Alone())


def world_of_one(work_s: float = 0.0) -> MpiWorld:
    """Return a world in which no message is ever sent."""
    return MpiWorld(comm_of_one(), ProcessClusters((1,)), WanEmulation(), work_s=work_s)


def alone(application: type[Solver], *arguments: str) -> Solver:
    """Return an application that runs only in this process."""
    options: argparse.Namespace = application.parser().parse_args(arguments)
    return application(world_of_one(options.work_ms / 1e3), options)
