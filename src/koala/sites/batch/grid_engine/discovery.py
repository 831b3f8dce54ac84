"""The search for Grid Engine cells at a host."""

from __future__ import annotations

from collections.abc import Sequence

from koala.sites.batch.discovery import FoundQueue, Printed, SystemDiscovery
from koala.sites.shell_script import shell_file


def found_queues(printed: Printed) -> list[FoundQueue]:
    """Parse lines of ``qstat -g c``: name, load, used, reserved, available, total, and how many are in which
    states."""
    offers = {name: words.split() for name, _, words in (each.partition(" ") for each in printed.get("offers", []))}
    environments = [each.split() for each in printed.get("environment", []) if each.split()]
    # Environments that let a job start processes on all its nodes come first.
    known = [words[0] for words in sorted(environments, key=lambda words: words[1:2] != ["TRUE"])]
    queues = []
    for line in printed.get("queue", []):
        fields = line.split()
        if len(fields) >= 8 and all(field.isdecimal() for field in fields[2:6]) and int(fields[5]) > 0:
            queues.append(
                _queue(fields[0], int(fields[5]), [each for each in known if each in offers.get(fields[0], [])])
            )
    return queues


def _queue(name: str, slots: int, environments: Sequence[str]) -> FoundQueue:
    """Return a queue that uses the first of the parallel environments that it offers."""
    others = ", ".join(environments[1:])
    return FoundQueue(
        name=name,
        processors=slots,
        own=tuple(("parallel_environment", each) for each in environments[:1]),
        remark=f"the queue also offers {others}" if others else "",
    )


DISCOVERY = SystemDiscovery(
    variables=("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
    script=shell_file(__package__, "discovery.sh"),
    queues=found_queues,
)
