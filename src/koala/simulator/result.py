"""The result of a run: one row for each job, the metrics over them, and the use of the sites.

The times are KOALA's: queue = placement - submission, overhead = start - placement, wait = start - submission,
execution = finish - start, response = finish - submission.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from koala.model.facts import JobEnded
from koala.model.messages import JobOutcome
from koala.model.request import JobId, Request
from koala.simulator.world.overload import VoidPeriod

UNFINISHED = "unfinished"
# The outcome of a successful job in its row.
DONE = str(JobOutcome.DONE)
FAILED = str(JobOutcome.FAILED)
# Times in the table of jobs are rounded to microseconds: further digits are only floating-point noise.
_CSV_DIGITS = 6
_TIMES = ("queue_s", "overhead_s", "wait_s", "execution_s", "response_s")


class JobRow(NamedTuple):
    """One job of a run. Times are in seconds of virtual time; None marks what never happened.

    - ``clusters``, ``sites``: how many different sites held its components, and which, joined by ``+``;
    - ``queue_s``, ``overhead_s``: from submission to placement, and from placement to start;
    - ``wait_s``, ``execution_s``, ``response_s``: from submission to start, from start to end, and both together;
    - ``placement_tries``, ``claiming_tries``: the number of attempts to place it, and to claim its processors;
    - ``failures``, ``preemptions``: how often a failed component sent it back, and how often it was preempted;
    - ``start_delay_s``: the last estimate of its start minus the first;
    - ``gained_processor_s``, ``wasted_processor_s``: processor-seconds between placement and claim, which others
      could use, and between claim and start, which nobody could;
    - ``outcome``, ``reason``: ``done``, ``failed``, ``cancelled`` or ``unfinished``, and why if it is not done.

    >>> from koala.simulator import Workload, clusters_in_short, simulate
    >>> row = next(simulate(clusters_in_short("1x8"), Workload.from_arrays([0.0], [4], [60.0])).rows())
    >>> row.sites, row.wait_s, row.execution_s, row.outcome
    ('c1', 0.0, 60.0, 'done')
    """

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
    gained_processor_s: float
    wasted_processor_s: float
    outcome: str
    reason: str
    policy: str
    seed: int


class SiteUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one site, as fractions of its processors: by the jobs of the run, and by its own users.

    The period is from the first submission to the last end of a job, or to where the run was cut off.

    >>> from koala.simulator import Workload, clusters_in_short, simulate
    >>> simulate(clusters_in_short("1x8"), Workload.from_arrays([0.0], [4], [60.0])).uses
    (SiteUse(site='c1', processors=8, ours=0.5, others=0.0),)
    """

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
    placement_tries: int = 0
    claiming_tries: int = 0
    runs: int = 0
    failures: int = 0
    preemptions: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0


class Result:
    """The result of a run. Rows and metrics are computed on demand.

    - ``policy``, ``seed``: the arguments of the run;
    - ``uses``: a ``SiteUse`` for each site;
    - ``notes``: remarks on the run, such as what the policy ignored;
    - ``stopped``: why the run was cut off, else empty; ``not_submitted``: how many jobs had not come by then;
    - ``first_submission_s``, ``end_s``, ``events``: its beginning, its end, and its number of events;
    - ``component_failures``, ``spawns``: the numbers of failed components, and of tasks that came while jobs ran;
    - ``voids``: periods in which the sites' own users wanted more than the grid has;
    - ``told_times``: the errors of the expected starts, where the grid makes plans;
    - ``log_sha256``: the hash of the log, which is equal for equal runs.

    >>> from koala.simulator import example_grid, example_workload, simulate
    >>> result = simulate(example_grid("demo"), example_workload("demo"))
    >>> result.complete, result.jobs, round(result.makespan_s)
    (True, 3, 354)
    >>> for row in result.rows():
    ...     print(row.job, row.name, row.sites, round(row.wait_s, 2))
    1 waves amsterdam+cracow 204.01
    2 alarm cracow 32.01
    3 sweep amsterdam+berlin 102.0
    >>> print(result.csv().partition("\\n")[0][:40])
    job,name,priority,processors,components,
    """

    def __init__(
        self,
        *,
        ended: Sequence[tuple[JobEnded, Request]],
        unfinished: Sequence[Unfinished],
        uses: Sequence[SiteUse],
        voids: Sequence[VoidPeriod],
        policy: str,
        totals_policy: str,
        tasks_policy: str,
        seed: int,
        first_submission_s: float,
        end_s: float,
        events: int,
        component_failures: int,
        log_sha256: str | None,
        stopped: str = "",
        not_submitted: int = 0,
        notes: Sequence[str] = (),
        told_times: dict[str, Any] | None = None,
        spawns: Mapping[str, int] | None = None,
    ) -> None:
        self._ended = ended
        self._unfinished = unfinished
        self.uses = tuple(uses)
        self.voids = tuple(voids)
        self.policy = policy
        self._totals_policy = totals_policy
        self._tasks_policy = tasks_policy
        self.seed = seed
        self.first_submission_s = first_submission_s
        self.end_s = end_s
        self.events = events
        self.component_failures = component_failures
        self.log_sha256 = log_sha256
        self.stopped = stopped
        self.not_submitted = not_submitted
        self.notes = tuple(notes)
        self.told_times = told_times
        self.spawns = dict(spawns or {})

    @property
    def complete(self) -> bool:
        """True if the run came to its own end and was not cut off."""
        return not self.stopped

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self._ended) + len(self._unfinished)

    @property
    def ends(self) -> list[JobEnded]:
        """The end of every job that ended."""
        return [ended for ended, _ in self._ended]

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end of a job; 0 if none has ended."""
        last_s = max((ended.ended_at for ended, _ in self._ended), default=self.first_submission_s)
        return last_s - self.first_submission_s

    def rows(self) -> Iterator[JobRow]:
        """Yield every job, by number."""
        seed = self.seed
        rows = [_ended_row(ended, request, self._policy_of(request), seed) for ended, request in self._ended]
        rows += [_unfinished_row(left, self._policy_of(left.request), seed) for left in self._unfinished]
        rows.sort()
        return iter(rows)

    def _policy_of(self, request: Request) -> str:
        if request.policy is None and request.tasks is not None:
            return self._tasks_policy
        return request.policy or (self._totals_policy if request.is_total else self.policy)

    def _counts(self) -> list[JobEnded | Unfinished]:
        """Return the record of every job."""
        return [*(ended for ended, _ in self._ended), *self._unfinished]

    def csv(self) -> str:
        """Return the job table with a header line; an empty cell is a time that never came."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(JobRow._fields)
        for row in self.rows():
            writer.writerow(round(cell, _CSV_DIGITS) if isinstance(cell, float) else cell for cell in row)
        return text.getvalue()

    def metrics(self) -> dict[str, Any]:
        """Return the run in numbers, ready for JSON. Times, clusters and shares are over the jobs that were done."""
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
            "complete": self.complete,
            "stopped": self.stopped or None,
            "notes": list(self.notes),
            "jobs": len(rows),
            "not_submitted": self.not_submitted,
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
            "gained_processor_s": sum(each.gained_processor_s for each in self._counts()),
            "wasted_processor_s": sum(each.wasted_processor_s for each in self._counts()),
            "gpu_s": sum(each.gpu_s for each in self._counts()),
            **({} if self.told_times is None else {"told_times": self.told_times}),
            "failures": self.component_failures,
            "restarts": sum(max(0, each.runs - 1) for each in self._counts()),
            "preemptions": sum(row.preemptions for row in rows),
            **({"spawns": self.spawns} if self.spawns else {}),
            "makespan_s": self.makespan_s,
            "void": bool(self.voids),
            "void_periods": [{"from_s": void.from_s, "to_s": void.to_s} for void in self.voids],
            "failed": by_reason(row for row in rows if row.outcome == FAILED),
            "unfinished_by_reason": by_reason(row for row in rows if row.outcome == UNFINISHED),
            "unfinished": [
                {"job": left.job, "name": left.request.name, "reason": left.reason} for left in self._unfinished
            ],
            "events": self.events,
            **({} if self.log_sha256 is None else {"log_sha256": self.log_sha256}),
        }


def by_reason(rows: Iterable[JobRow]) -> list[dict[str, Any]]:
    """Return the reasons of the jobs, the commonest first, each with its number of jobs and the first of them."""
    counts: Counter[str] = Counter()
    first: dict[str, JobRow] = {}
    for row in rows:
        counts[row.reason] += 1
        first.setdefault(row.reason, row)
    return [
        {"reason": reason, "jobs": count, "first": {"job": first[reason].job, "name": first[reason].name}}
        for reason, count in counts.most_common()
    ]


def summary(values: Iterable[float | None]) -> dict[str, float] | None:
    """Return mean, median, 95th percentile and maximum; None without values."""
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
    """Return the value below which this share of the values lies, linear between two neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _less(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _ended_row(ended: JobEnded, request: Request, policy: str, seed: int) -> JobRow:
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
        gained_processor_s=ended.gained_processor_s,
        wasted_processor_s=ended.wasted_processor_s,
        outcome=str(ended.outcome),
        reason=ended.reason,
        policy=policy,
        seed=seed,
    )


def _unfinished_row(left: Unfinished, policy: str, seed: int) -> JobRow:
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
        placement_tries=left.placement_tries,
        claiming_tries=left.claiming_tries,
        failures=left.failures,
        preemptions=left.preemptions,
        start_delay_s=None,
        gained_processor_s=left.gained_processor_s,
        wasted_processor_s=left.wasted_processor_s,
        outcome=UNFINISHED,
        reason=left.reason,
        policy=policy,
        seed=seed,
    )
