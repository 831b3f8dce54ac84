"""One door to all runners: what every component of a job is told when its barrier opens."""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.launch import Go, Peer
from koala.model.request import JobId, JobType
from koala.runners.mpi import mpi_go
from koala.runners.plain import plain_go
from koala.runners.torchrun import torchrun_go

_RUNNERS = {JobType.PLAIN: plain_go, JobType.MPI: mpi_go, JobType.TORCHRUN: torchrun_go}


def go_for(job_type: JobType, job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """One ``Go`` for each of ``peers``, in their order.

    ``port`` is where the components may meet at the first one's host; by default ``rendezvous_port(job)``.
    """
    return _RUNNERS[job_type](job, peers, port)
