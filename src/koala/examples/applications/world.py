"""All processes of the run, and every message between them.

Each message, sums over all processes included, goes through ``MpiWorld.exchange``, so that the emulated distance
between clusters holds for all of them and all waiting is counted. Waiting does not use up a processor, as it would in
MPI itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mpi4py
import numpy as np
import numpy.typing as npt

from koala.examples.applications.clocks import Doing, Stopwatch
from koala.examples.applications.clusters import ProcessClusters, WanEmulation
from koala.examples.applications.errors import ApplicationError

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[np.float64]

# How often a process looks for a message before it sleeps between two looks; until then it only lets others go ahead.
BRISK_LOOKS = 100
# It sleeps for this share of the time it has waited already, so that little is lost, within these bounds.
SLEEP_SHARE = 0.1
SLEEP_S_MIN = 0.000_05
SLEEP_S_MAX = 0.002

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Parcel:
    """What is sent to a process, or the array, or part of one, that takes what it sends."""

    peer: int
    values: Array


class _Transit:
    """One message under way, coming or going. The first number on the wire is the time at which it was sent."""

    def __init__(self, request: MPI.Request, wire: Array, due_after_s: float, into: Array | None) -> None:
        self._request = request
        self._wire = wire
        self._due_after_s = due_after_s
        self._into = into
        self._is_here = False

    def wait_s(self) -> float | None:
        """How long it is still held back: nothing when it is done, None when nobody knows."""
        if not self._is_here:
            if not self._request.Test():
                return None
            self._is_here = True
        if self._into is None:
            return 0.0
        held_s = float(self._wire[0]) + self._due_after_s - time.monotonic() if self._due_after_s > 0 else 0.0
        if held_s <= 0.0:
            self._into[...] = self._wire[1:].reshape(self._into.shape)
            return 0.0
        return held_s


class MpiWorld:
    """The processes of this run. Every method is called by all processes that it concerns."""

    def __init__(self, comm: MPI.Comm, clusters: ProcessClusters, wan: WanEmulation, *, work_s: float = 0.0) -> None:
        self._comm = comm
        self._work_s = work_s
        self.clusters = clusters
        self.wan = wan
        self.rank = comm.rank
        self.size = comm.size
        self.clock = Stopwatch()
        self._is_far = [clusters.are_apart(comm.rank, peer) for peer in range(comm.size)]
        self.messages_across = 0
        self.bytes_across = 0
        if wan.is_emulated and len(clusters.sizes) > 1 and len(set(comm.allgather(_clock_identity()))) > 1:
            raise ApplicationError(
                "--wan-latency-ms and --wan-bandwidth-mbit-s: the processes run on several machines, whose clocks "
                "cannot be compared; leave the options out, since the distance is real there"
            )

    def restart_clock(self) -> None:
        """Count time and messages from now, in all processes from the same moment."""
        self.meet()
        self.messages_across = self.bytes_across = 0
        self.clock.restart()

    def work(self) -> None:
        """Rest for as long as an iteration is to compute beyond what it does; it counts as computing."""
        if self._work_s > 0.0:
            time.sleep(self._work_s)

    # ------------------------------------------------------------------------------------------ messages

    def exchange(self, out: Sequence[Parcel], into: Sequence[Parcel]) -> None:
        """Send and receive; back when all that was expected is here and all that was sent may be changed.

        A message from another cluster is here only after the emulated delay since it was sent. The wait for messages
        inside the cluster is counted first, what remains after it is the wait for other clusters.
        """
        inside: list[_Transit] = []
        across: list[_Transit] = []
        for parcel in into:
            (across if self._is_far[parcel.peer] else inside).append(self._expect(parcel))
        for parcel in out:
            (across if self._is_far[parcel.peer] else inside).append(self._send(parcel))
        with self.clock.counting(Doing.INSIDE):
            _await_all(inside)
        with self.clock.counting(Doing.ACROSS):
            _await_all(across)

    def _expect(self, parcel: Parcel) -> _Transit:
        wire = np.empty(parcel.values.size + 1)
        delay_s = self.wan.delay_s(wire.nbytes) if self._is_far[parcel.peer] else 0.0
        return _Transit(self._comm.Irecv(wire, source=parcel.peer), wire, delay_s, parcel.values)

    def _send(self, parcel: Parcel) -> _Transit:
        wire = np.empty(parcel.values.size + 1)
        wire[1:] = parcel.values.reshape(-1)
        if self._is_far[parcel.peer]:
            self.messages_across += 1
            self.bytes_across += wire.nbytes
        wire[0] = time.monotonic()
        return _Transit(self._comm.Isend(wire, dest=parcel.peer), wire, 0.0, None)

    # -------------------------------------------------------------------------------------- all together

    def sum_all(self, *values: float) -> list[float]:
        """The sum of each value over all processes, the same in all of them. The order of adding is fixed."""
        return self._combine(np.array(values), np.add)

    def largest_of_all(self, *values: float) -> list[float]:
        """The largest of each value over all processes, the same in all of them."""
        return self._combine(np.array(values), np.maximum)

    def meet(self) -> None:
        """Wait until every process is here."""
        self.sum_all(0.0)

    def _combine(self, values: Array, operator: Callable[[Array, Array], Array]) -> list[float]:
        """First in each cluster, then between the leaders, and back: two messages of a cluster cross the distance."""
        leaders = self.clusters.leaders()
        members = self.clusters.members(self.clusters.cluster_of(self.rank))
        values = self._to_first(values, list(members), operator)
        if self.rank == members[0]:
            values = self._to_first(values, leaders, operator)
            self._from_first(values, leaders)
        self._from_first(values, list(members))
        return [float(value) for value in values]

    def _to_first(self, values: Array, ranks: list[int], operator: Callable[[Array, Array], Array]) -> Array:
        first, *others = ranks
        if self.rank != first:
            self.exchange([Parcel(first, values)], [])
            return values
        parcels = [Parcel(other, np.empty_like(values)) for other in others]
        self.exchange([], parcels)
        for parcel in parcels:
            values = operator(values, parcel.values)
        return values

    def _from_first(self, values: Array, ranks: list[int]) -> None:
        first, *others = ranks
        if self.rank != first:
            self.exchange([], [Parcel(first, values)])
        else:
            self.exchange([Parcel(other, values) for other in others], [])


def _await_all(transits: list[_Transit]) -> None:
    """Look until all are done; sleep between the looks, but not longer than a message is known to be held back."""
    began_at = time.monotonic()
    looks = 0
    while transits:
        waits = [(transit, transit.wait_s()) for transit in transits]
        transits = [transit for transit, wait_s in waits if wait_s != 0.0]
        if not transits:
            return
        looks += 1
        held = [wait_s for _, wait_s in waits if wait_s]
        if len(held) == len(transits):
            time.sleep(min(held))
        elif looks <= BRISK_LOOKS:
            os.sched_yield()
        else:
            waited_s = time.monotonic() - began_at
            time.sleep(min(max(SLEEP_SHARE * waited_s, SLEEP_S_MIN), SLEEP_S_MAX, *held))


def _clock_identity() -> str:
    """Equal for processes that read the same clock."""
    try:
        return _BOOT_ID.read_text(encoding="ascii")
    except OSError:
        return os.uname().nodename


def connected() -> MPI.Intracomm:
    """All processes that ``mpiexec`` has started, or this one alone."""
    mpi4py.rc.threads = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ApplicationError(f"MPI cannot be loaded ({error}); install koala-scheduler[mpi]") from None
    return MPI.COMM_WORLD
