"""The whole grid at once, and the journal."""

from __future__ import annotations

from typing import Any, Literal

from koala.model.api.common import Answer
from koala.model.api.jobs import JobSummary, TransferInfo
from koala.model.api.sites import LinkInfo, SiteInfo


class Overview(Answer, frozen=True, kw_only=True):
    """The whole grid at one moment: what the dashboard and ``koala top`` draw. ``last_seq`` is the newest entry of
    the journal: who follows it from there misses nothing. ``order`` says who comes first in the queues;
    ``order_problem`` why they are first come, first served where that is not their order."""

    grid: str
    version: str
    now: float
    started_at: float
    policy: str
    plan_depth: int = 0
    order: str = ""
    order_problem: str = ""
    sites: list[SiteInfo]
    links: list[LinkInfo]
    transfers: list[TransferInfo]
    waiting_high: list[JobSummary]
    waiting_low: list[JobSummary]
    claiming: list[JobSummary]
    active: list[JobSummary]
    held: list[JobSummary] = []
    counts: dict[str, int]
    last_seq: int = 0


class EntryOnRecord(Answer, frozen=True, kw_only=True):
    """What is on record of one thing that happened, and shown of it."""

    seq: int
    at: float
    kind: Literal["event", "command"]
    what: str
    job: int | None = None
    site: str | None = None


class JournalEntry(EntryOnRecord, frozen=True, kw_only=True):
    """One thing that happened or was decided. ``kind`` is ``event`` or ``command``, ``what`` its type."""

    text: str
    data: dict[str, Any] = {}
