"""The search for Slurm clusters at a host."""

from __future__ import annotations

from koala.sites.batch.discovery import FoundQueue, Printed, SystemDiscovery
from koala.sites.shell_script import shell_file


def found_queues(printed: Printed) -> list[FoundQueue]:
    """Return the partitions that are up, from lines of name, availability and processors by state such as
    ``main*|up|0/8/0/8``."""
    queues = []
    for line in printed.get("queue", []):
        fields = line.split("|")
        counts = fields[2].split("/") if len(fields) == 3 else []
        if len(counts) == 4 and fields[1] == "up" and counts[3].isdecimal() and int(counts[3]) > 0:
            name = fields[0].rstrip("*")
            queues.append(FoundQueue(name=name, processors=int(counts[3]), is_default=fields[0].endswith("*")))
    return queues


DISCOVERY = SystemDiscovery(
    variables=("SLURM_CONF",), script=shell_file(__package__, "discovery.sh"), queues=found_queues
)
