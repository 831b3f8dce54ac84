"""How a co-allocated application starts: the script that each component runs, and what its barrier tells it.

Pure functions from values to text. Sites carry the text to where it runs; the live driver carries the mail.
"""

from __future__ import annotations

from koala.runners.mpi import PROXIES, PROXY, mpi_go, proxy_mail
from koala.runners.plain import plain_go, rendezvous_port
from koala.runners.release import go_for
from koala.runners.script import component_script
from koala.runners.torchrun import torchrun_go

__all__ = [
    "PROXIES",
    "PROXY",
    "component_script",
    "go_for",
    "mpi_go",
    "plain_go",
    "proxy_mail",
    "rendezvous_port",
    "torchrun_go",
]
