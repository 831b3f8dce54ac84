"""The daemon in numbers, for monitoring: how many jobs, how busy the sites, how much work was done."""

from __future__ import annotations

import msgspec

from koala.model.api import Answer
from koala.model.request import SiteName


class SiteMetrics(Answer, frozen=True, kw_only=True):
    """One site: its processors, how many of them who holds, whether it is used and answers, how many commands an
    error inside Koala keeps from it, how often its batch system was called, by what for, its GPUs by kind, and the
    processor time that claiming late gained there and that was wasted before starts, and the GPU time of our
    components that have ended."""

    name: SiteName
    processors: int
    usable: int
    ours: int
    others: int
    idle: int
    errors: int
    trusted: bool
    drained: bool
    answers: bool
    set_aside: int
    calls: dict[str, int]
    gpus: dict[str, int]
    gpus_idle: dict[str, int]
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    early_gained_processor_s: float = 0.0
    early_wasted_processor_s: float = 0.0
    gpu_s: float = 0.0


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment.

    ``jobs`` counts all jobs on record by state, every state named. ``queues`` are the lengths of ``high``, ``low``
    and ``claiming``. ``transfers_active`` counts those on their way, ``arriving_bytes`` is what they have brought so
    far. ``events_handled``, ``commits`` and ``recoveries`` count from the daemon's start, ``commands_owed`` are on
    record and not performed yet, ``journal_entries`` is the number of the newest entry.
    """

    jobs: dict[str, int]
    sites: tuple[SiteMetrics, ...]
    queues: dict[str, int]
    transfers_active: int
    arriving_bytes: int
    events_handled: int
    commits: int
    commands_owed: int
    recoveries: int
    journal_entries: int
    started_at: float
    working: bool
