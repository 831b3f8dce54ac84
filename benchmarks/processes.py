"""What the kernel tells of a process: the time it has had on a processor, and the memory it holds. Linux only."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """The processor time of a process so far, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """The memory that a process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def load_percent(pid: int, over_s: float) -> float:
    """How much of one processor the process uses over this time."""
    begun, before = time.monotonic(), cpu_s(pid)
    time.sleep(over_s)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - begun)


def percentile(values: list[float], percent: float) -> float:
    """The value below which so many percent of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]
