"""The start of a co-allocated application: the script of each component, and what it receives when its barrier opens.

Pure functions from values to text. Sites run the script, and the daemon relays the mail.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.launch import Go, Peer
from koala.model.request import JobId, JobType
from koala.runners.mpi import PROXIES, PROXY, mpi_go, proxy_mail
from koala.runners.plain import plain_go, rendezvous_port
from koala.runners.script import component_script
from koala.runners.torchrun import torchrun_go
from koala.runners.traffic import is_traffic_mail, parse_traffic

__all__ = [
    "PROXIES",
    "PROXY",
    "component_script",
    "go_for",
    "is_traffic_mail",
    "parse_traffic",
    "proxy_mail",
    "rendezvous_port",
]

_RUNNERS = {JobType.PLAIN: plain_go, JobType.MPI: mpi_go, JobType.TORCHRUN: torchrun_go}


def go_for(job_type: JobType, job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """Return what the components of a job receive when their barrier opens: one ``Go`` for each of ``peers``, in
    their order.

    ``port`` is where the components may meet at the first one's host; the default is ``rendezvous_port(job)``.
    """
    return _RUNNERS[job_type](job, peers, port)
