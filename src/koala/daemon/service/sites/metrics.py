"""The daemon's metrics: how many jobs, how busy the sites, how much work was done."""

from __future__ import annotations

import msgspec

from koala.model.api import Answer
from koala.model.request import SiteName


class SiteMetrics(Answer, frozen=True, kw_only=True):
    """One site: its processors and their holders; whether it is used and answers; the commands that an error inside
    Koala keeps from it; the calls of its batch system by purpose; its GPUs by kind; the processor time gained there
    by late claims and wasted before starts; and the GPU time of our ended components."""

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
    and ``claiming``. ``transfers_active`` counts those on their way, ``arriving_bytes`` the bytes that they have
    moved so far. ``events_handled``, ``commits`` and ``recoveries`` count from the daemon's start, ``commands_owed``
    are on record and not performed yet, ``journal_entries`` is the number of the newest entry.
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
