"""What the machines of a site can do now: a small program that runs there, in the shell that Koala uses anyway.

Its text is sent to the site, so that it needs no more than an old Python 3 and its standard library. It prints lines
of words: ``class PROCESSORS LOAD`` for machines that are alike, and ``rate STEPS`` where it was asked how fast a
processor is. A line that begins with ``error`` says why there is nothing to see.
"""

import os
import subprocess
import sys
import time

STEPS = 100_000
TRIES = 5
COMMAND_S = 20
# Loads are told in so many steps from idle to busy, as smaller changes are noise; a processor is never wholly busy.
LOAD_STEPS = 10
LOAD_MAX = 0.9


def rate() -> float:
    """How many steps of a multiplication and an addition a processor does in a second, at its best."""
    best = float("inf")
    for _ in range(TRIES):
        value, begun = 0.0, time.process_time()
        for _ in range(STEPS):
            value = value * 0.5 + 1.0
        best = min(best, time.process_time() - begun)
    return STEPS / max(best, 1e-9)


def load_of_idle(load: float, processors: int, held: int) -> float:
    """What a task loses on each idle processor to those who compute there all the same and hold none, where every
    idle processor has a task and all share alike."""
    idle, others = processors - held, max(0.0, load - held)
    if idle <= 0:
        return 0.0
    return min(LOAD_MAX, round(LOAD_STEPS * others / (others + idle)) / LOAD_STEPS)


def here(held: int) -> dict[float, int]:
    """This machine, of which so many processors are held by our jobs."""
    processors = os.cpu_count() or 1
    return {load_of_idle(os.getloadavg()[0], processors, min(held, processors)): processors}


def slurm(partition: str) -> dict[float, int]:
    """The nodes of a partition, as sinfo tells of their processors and load."""
    words = ["sinfo", "-h", "-N", "-o", "%N|%C|%O"] + (["-p", partition] if partition else [])
    nodes = {}
    for line in said(words).splitlines():
        name, counts, load = line.strip().split("|")
        allocated, idle, _, _ = (int(each) for each in counts.split("/"))
        if allocated + idle > 0 and load.replace(".", "", 1).isdigit():
            nodes[name] = load_of_idle(float(load), allocated + idle, allocated), allocated + idle
    return together(nodes)


def grid_engine(queue: str) -> dict[float, int]:
    """The hosts of a queue, as qstat tells of their slots and load."""
    words = ["qstat", "-f"] + (["-q", queue] if queue else [])
    hosts: dict[str, list[float]] = {}
    for line in said(words).splitlines():
        fields = line.split()
        if len(fields) < 5 or "@" not in fields[0] or fields[2].count("/") != 2:
            continue
        if not fields[3].replace(".", "", 1).isdigit():
            continue
        _, used, total = (int(each) for each in fields[2].split("/"))
        host = hosts.setdefault(fields[0].partition("@")[2], [0, 0, float(fields[3])])
        host[0] += total
        host[1] += used
    return together(
        {name: (load_of_idle(load, int(total), int(used)), int(total)) for name, (total, used, load) in hosts.items()}
    )


def together(nodes: dict[str, tuple[float, int]]) -> dict[float, int]:
    """Processors by load."""
    found: dict[float, int] = {}
    for load, processors in nodes.values():
        found[load] = found.get(load, 0) + processors
    return found


def said(words: list[str]) -> str:
    """What a command prints."""
    return subprocess.run(words, capture_output=True, timeout=COMMAND_S, check=True, text=True).stdout  # noqa: S603


def main() -> None:
    """Arguments: the kind of site, its partition or queue or how many processors we hold, and whether to time."""
    kind, told, timed = sys.argv[1:4]
    try:
        found = {"slurm": slurm, "grid_engine": grid_engine}[kind](told) if kind != "local" else here(int(told))
    except Exception as error:
        sys.stdout.write(f"error {kind}: {' '.join(str(error).split())}\n")
        return
    for load in sorted(found):
        sys.stdout.write(f"class {found[load]} {load}\n")
    if timed == "1":
        sys.stdout.write(f"rate {rate()}\n")


if __name__ == "__main__":
    main()
