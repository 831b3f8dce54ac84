"""What a run gave: one row for each job, the metrics over them, and how the sites were used.

The times are KOALA's: queue = placement - submission, overhead = start - placement, wait = start - submission,
execution = finish - start, response = finish - submission.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from koala.messages import JobEnded
from koala.model import JobId, Request
from koala.simulator.background import VoidPeriod

UNFINISHED = "unfinished"
DONE = "done"
_TIMES = ("queue_s", "overhead_s", "wait_s", "execution_s", "response_s")


class JobRow(NamedTuple):
    """One job. Times are in seconds of virtual time; what never happened is None."""

    job: JobId
    name: str
    priority: str
    processors: int
    components: int
    clusters: int
    sites: str
    submitted: float
    placed: float | None
    started: float | None
    finished: float | None
    queue_s: float | None
    overhead_s: float | None
    wait_s: float | None
    execution_s: float | None
    response_s: float | None
    placement_tries: int
    claiming_tries: int
    failures: int
    preemptions: int
    start_delay_s: float | None
    outcome: str
    reason: str


class SiteUse(msgspec.Struct, frozen=True, kw_only=True):
    """How one site was used from the first submission to the end of the run, as fractions of its processors."""

    site: str
    processors: int
    ours: float
    others: float


class Unfinished(NamedTuple):
    """A job that the run left behind, and why."""

    job: JobId
    request: Request
    submitted_s: float
    reason: str


class Result:
    """Everything that a run gave; rows and metrics are computed when they are asked for."""

    def __init__(
        self,
        *,
        ended: Sequence[tuple[JobEnded, Request]],
        unfinished: Sequence[Unfinished],
        uses: Sequence[SiteUse],
        voids: Sequence[VoidPeriod],
        policy: str,
        seed: int,
        first_submission_s: float,
        end_s: float,
        events: int,
        component_failures: int,
        log_sha256: str,
    ) -> None:
        self._ended = ended
        self._unfinished = unfinished
        self.uses = tuple(uses)
        self.voids = tuple(voids)
        self.policy = policy
        self.seed = seed
        self.first_submission_s = first_submission_s
        self.end_s = end_s
        self.events = events
        self.component_failures = component_failures
        self.log_sha256 = log_sha256

    @property
    def jobs(self) -> int:
        """How many jobs there were."""
        return len(self._ended) + len(self._unfinished)

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end of a job; 0 where none has ended."""
        last_s = max((ended.ended_at for ended, _ in self._ended), default=self.first_submission_s)
        return last_s - self.first_submission_s

    def rows(self) -> Iterator[JobRow]:
        """Every job, by id."""
        rows = [_ended_row(ended, request) for ended, request in self._ended]
        rows += [_unfinished_row(left) for left in self._unfinished]
        rows.sort()
        return iter(rows)

    def csv(self) -> str:
        """The job table with a header line; an empty cell is a time that never came."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(JobRow._fields)
        writer.writerows(self.rows())
        return text.getvalue()

    def metrics(self) -> dict[str, Any]:
        """The run in numbers, ready for JSON. Times, clusters and shares are over the jobs that were done."""
        rows = list(self.rows())
        done = [row for row in rows if row.outcome == DONE]
        clusters = Counter(row.clusters for row in done)
        capacity = sum(use.processors for use in self.uses)
        ours, others = (
            sum(getattr(use, by) * use.processors for use in self.uses) / capacity for by in ("ours", "others")
        )
        return {
            "policy": self.policy,
            "seed": self.seed,
            "jobs": len(rows),
            "outcomes": dict(sorted(Counter(row.outcome for row in rows).items())),
            **{time: summary(getattr(row, time) for row in done) for time in _TIMES},
            "clusters_combined": {
                "mean": _mean([row.clusters for row in done]),
                "histogram": {str(count): clusters[count] for count in sorted(clusters)},
            },
            "coallocated_share": _mean([row.clusters > 1 for row in done]),
            "utilisation": {
                "ours": ours,
                "others": others,
                "total": ours + others,
                "sites": {use.site: {"ours": use.ours, "others": use.others} for use in self.uses},
            },
            "failures": self.component_failures,
            "restarts": sum(row.failures for row in rows),
            "preemptions": sum(row.preemptions for row in rows),
            "makespan_s": self.makespan_s,
            "void": bool(self.voids),
            "void_periods": [{"site": v.site, "from_s": v.from_s, "to_s": v.to_s} for v in self.voids],
            "unfinished": [
                {"job": left.job, "name": left.request.name, "reason": left.reason} for left in self._unfinished
            ],
            "events": self.events,
            "log_sha256": self.log_sha256,
        }


def summary(values: Iterable[float | None]) -> dict[str, float] | None:
    """Mean, median, 95th percentile and maximum; None where there is nothing to sum up."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return {
        "mean": sum(known) / len(known),
        "median": percentile(known, 0.5),
        "p95": percentile(known, 0.95),
        "max": known[-1],
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies, linear between two neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _less(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _ended_row(ended: JobEnded, request: Request) -> JobRow:
    sites = tuple(dict.fromkeys(site for site, _ in ended.places))
    return JobRow(
        job=ended.job,
        name=request.name,
        priority=str(request.priority),
        processors=request.processors,
        components=len(ended.places) or len(request.components),
        clusters=len(sites),
        sites="+".join(sites),
        submitted=ended.submitted_at,
        placed=ended.placed_at,
        started=ended.started_at,
        finished=ended.ended_at,
        queue_s=_less(ended.placed_at, ended.submitted_at),
        overhead_s=_less(ended.started_at, ended.placed_at),
        wait_s=_less(ended.started_at, ended.submitted_at),
        execution_s=_less(ended.ended_at, ended.started_at),
        response_s=_less(ended.ended_at, ended.submitted_at),
        placement_tries=ended.placement_tries,
        claiming_tries=ended.claiming_tries,
        failures=ended.failures,
        preemptions=ended.preemptions,
        start_delay_s=_less(ended.last_start_estimate, ended.first_start_estimate),
        outcome=str(ended.outcome),
        reason=ended.reason,
    )


def _unfinished_row(left: Unfinished) -> JobRow:
    request = left.request
    return JobRow(
        job=left.job,
        name=request.name,
        priority=str(request.priority),
        processors=request.processors,
        components=len(request.components),
        clusters=0,
        sites="",
        submitted=left.submitted_s,
        placed=None,
        started=None,
        finished=None,
        queue_s=None,
        overhead_s=None,
        wait_s=None,
        execution_s=None,
        response_s=None,
        placement_tries=0,
        claiming_tries=0,
        failures=0,
        preemptions=0,
        start_delay_s=None,
        outcome=UNFINISHED,
        reason=left.reason,
    )
