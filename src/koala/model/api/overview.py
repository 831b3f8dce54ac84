"""The whole grid at once, and the journal."""

from __future__ import annotations

from typing import Any, Literal

from koala.model.api.common import Answer
from koala.model.api.jobs import JobSummary, TransferInfo
from koala.model.api.sites import LinkInfo, SiteInfo


class Overview(Answer, frozen=True, kw_only=True):
    """The whole grid at one moment, as the dashboard and ``koala top`` draw it. ``last_seq`` is the newest entry of
    the journal: a caller that follows the journal from there misses nothing. ``order`` is the order of the queues;
    ``order_problem`` explains why they are first come, first served instead."""

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
    """The fields that the record of a journal entry and its listing share."""

    seq: int
    at: float
    kind: Literal["event", "command"]
    what: str
    job: int | None = None
    site: str | None = None


class JournalEntry(EntryOnRecord, frozen=True, kw_only=True):
    """One event, decision or fact. ``kind`` is ``event`` or ``command``, ``what`` its type."""

    text: str
    data: dict[str, Any] = {}
