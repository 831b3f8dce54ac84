"""How every application runs: options, processes, the measured solution, the verification, the report.

The exit code is 0 when all is well, 1 when the solution did not converge or is wrong, 2 for wrong use, and 130 when
interrupted. Nothing about a particular equation lives here.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import stat
import struct
import sys
import termios
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from koala.examples.applications.clusters import WanEmulation, clusters_from
from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.options import Parser
from koala.examples.applications.report import Report, spent_by_all
from koala.examples.applications.saving import SavedAndLeftError
from koala.examples.applications.world import Array, MpiWorld, connected

if TYPE_CHECKING:
    from mpi4py import MPI

FINE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
# So long a process that fails waits at most until its last words have been read, and so long between two looks.
HEARD_S_MAX = 5.0
HEARD_LOOK_S = 0.01


@dataclass(frozen=True)
class SolverProgress:
    """How far a solution came."""

    iterations: int
    converged: bool


class Solver(ABC):
    """One equation on a square, solved by all processes of a world.

    Making one divides the square, and raises ``ApplicationError`` in all processes where that cannot be done. Every
    method but ``serial`` is called by all processes together.
    """

    name: str

    @staticmethod
    @abstractmethod
    def parser() -> Parser:
        """The command line."""

    @abstractmethod
    def __init__(self, world: MpiWorld, options: argparse.Namespace) -> None:
        """Divide the square."""

    @property
    @abstractmethod
    def pattern(self) -> str:
        """How the processes divide the square, in words."""

    @abstractmethod
    def solve(self) -> SolverProgress:
        """The work that is measured."""

    @abstractmethod
    def residual(self) -> float:
        """How far the values are from solving the equation, the same in all processes."""

    @abstractmethod
    def collect(self) -> Array | None:
        """The whole solution, in the first process."""

    @abstractmethod
    def serial(self, iterations: int) -> Array:
        """The same iterations on one array, by other means: what the whole solution must be equal to."""


def run(application: type[Solver], arguments: Sequence[str] | None = None, comm: MPI.Comm | None = None) -> int:
    """Run an application in this process and all others of a communicator, or all that were started with it. Returns
    the exit code."""
    try:
        options = application.parser().parse_args(arguments)
    except ApplicationError as error:
        return _refuse(error, comm)
    try:
        comm = connected() if comm is None else comm
    except ApplicationError as error:
        _complain(error.for_user())
        return FAILED
    try:
        wan = WanEmulation(options.wan_latency_ms, options.wan_bandwidth_mbit_s)
        clusters = clusters_from(options.groups, os.environ, comm.size)
        world = MpiWorld(comm, clusters, wan, work_s=options.work_ms / 1e3)
        report = _report(application(world, options), world, options)
    except SavedAndLeftError as left:
        return _saved(world, left)
    except ApplicationError as error:
        return _refuse(error, comm)
    except KeyboardInterrupt:
        return _leave(comm, INTERRUPTED)
    except MemoryError as error:
        words = f"rank {comm.rank}: there is not enough memory ({error}); use a smaller --size"
        return _leave(comm, FAILED, words)
    except Exception:
        return _leave(comm, FAILED, traceback.format_exc().rstrip())
    is_good = report.converged and not report.verified_difference
    is_told = world.rank != 0 or _tell(report.as_json() if options.json else report.as_text())
    # Every process waits here for the first one; in MPI's own end it would wait in a hurry, at the others' expense.
    (code,) = world.largest_of_all(FINE if is_good and is_told else FAILED)
    return int(code)


def _report(application: Solver, world: MpiWorld, options: argparse.Namespace) -> Report:
    world.restart_clock()
    began_at = time.time()
    progress = application.solve()
    spent = spent_by_all(world)
    residual = application.residual()
    difference = None
    if options.verify:
        solution = application.collect()
        if solution is not None:
            difference = float(np.abs(solution - application.serial(progress.iterations)).max())
    return Report(
        application=application.name,
        size=options.size,
        processes=world.size,
        pattern=application.pattern,
        clusters=world.clusters.sizes,
        wan_latency_ms=world.wan.latency_ms,
        wan_bandwidth_mbit_s=world.wan.bandwidth_mbit_s,
        iterations=progress.iterations,
        converged=progress.converged,
        residual=residual,
        began_at=began_at,
        seconds=spent.seconds,
        messages_across=spent.messages_across,
        bytes_across=spent.bytes_across,
        verified_difference=difference,
    )


def _saved(world: MpiWorld, left: SavedAndLeftError) -> int:
    """All have saved and leave together; the first one says so."""
    if world.rank == 0:
        _tell(f"{left}; it goes on from there when it is started again")
    world.meet()
    return FINE


def _tell(text: str) -> bool:
    """Print the result, or why that cannot be done."""
    if sys.stdout is None:
        _complain("the result cannot be printed: standard output is closed; look at where it goes")
        return False
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        _complain(f"the result cannot be printed: {error.strerror}; look at where standard output goes")
        # Nothing more can be written there, and Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _leave(comm: MPI.Comm, code: int, last_words: str = "") -> int:
    """End this process and, since they would wait for it for ever, all others.

    An abort and what was written before it go two ways to the process manager, which drops what it has not read when
    it hears of the abort. So the abort waits until the last words have been read.
    """
    if last_words:
        _complain(last_words)
    if comm.size > 1:
        _await_heard()
        comm.Abort(code)
    return code


def _await_heard() -> None:
    """Wait a while until nothing is left in the pipe that standard error is, if it is one."""
    end = time.monotonic() + HEARD_S_MAX
    # Where nothing can be known of it, nothing is waited for.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is None:
            return
        pipe = sys.stderr.fileno()
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return
        while _unread_bytes(pipe) > 0 and time.monotonic() < end:
            time.sleep(HEARD_LOOK_S)


def _unread_bytes(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(struct.calcsize("i"))))
    return int(count)


def _refuse(error: ApplicationError, comm: MPI.Comm | None) -> int:
    """All processes come here with the same error; the first one says it before any may leave."""
    try:
        comm = connected() if comm is None else comm
    except ApplicationError:
        _complain(error.for_user())
        return WRONG_USE
    if comm.rank == 0:
        _complain(error.for_user())
    comm.Barrier()
    return WRONG_USE


def _complain(text: str) -> None:
    """Say it, if anybody can hear it: a process that fails here would keep the others waiting for it."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
