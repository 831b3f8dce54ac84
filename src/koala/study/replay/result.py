"""The evaluation of a replay: a result of the simulator's own type, so that its tables and pages show a replay like a
simulation, and facts of a live grid alone: late submissions, and wasted processor time.

Pure functions over the record of a replay; see ``record``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from koala.model.api import Overview, SiteHistory, SiteInfo
from koala.model.facts import JobEnded
from koala.model.grid import Grid, Link, Links, PairLink, SchedulerParameters, Site
from koala.model.messages import Outcome
from koala.model.request import JobId, Request, SiteName
from koala.simulator.report.page_data import PageHold
from koala.simulator.result import Result, SiteUse, Unfinished
from koala.simulator.told_times import ToldTime, errors
from koala.study.replay.plan import OmittedJob
from koala.study.replay.record import ComponentRecord, ReplayRecord

replace = msgspec.structs.replace


class ReplaySubmission(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the daemon has on record: its number there, and its delay."""

    job: JobId
    name: int
    request: Request
    planned_s: float
    lag_s: float


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """Wasted processor time: at barriers, and in failed runs, with the total that was held."""

    barrier_processor_s: float
    lost_processor_s: float
    held_processor_s: float

    @property
    def share(self) -> float:
        """The wasted share of the held time."""
        wasted = self.barrier_processor_s + self.lost_processor_s
        return wasted / self.held_processor_s if self.held_processor_s > 0 else 0.0


def waste(components: Iterable[ComponentRecord], now: float) -> Waste:
    """Return the waste of these starts of components; a component holds its processors from its readiness on."""
    barrier = lost = held = 0.0
    for each in components:
        barrier += each.barrier_processor_s(now)
        lost += each.lost_processor_s()
        if each.ready_at is not None:
            ended = now if each.ended_at is None else each.ended_at
            held += each.processors * max(0.0, ended - each.ready_at)
    return Waste(barrier_processor_s=barrier, lost_processor_s=lost, held_processor_s=held)


def holds(components: Iterable[ComponentRecord], sites: Sequence[str], zero_at: float) -> list[PageHold]:
    """Return who held which processors, from the claim to the end as in a simulation, counted from ``zero_at``."""
    places = {name: place for place, name in enumerate(sites)}
    found = [
        PageHold(
            each.job,
            places[each.site],
            each.processors,
            each.claimed_at - zero_at,
            float("inf") if each.ended_at is None else each.ended_at - zero_at,
        )
        for each in components
        if each.site in places and each.held
    ]
    return sorted(found, key=lambda hold: (hold.job, hold.from_s, hold.site))


def measured_period(record: ReplayRecord, zero_at: float, now: float, *, cut_off: bool) -> tuple[float, float]:
    """Return the period from the first submission to the last end of a job, as in a simulation; to now if it was cut
    off."""
    from_at = min((job.submitted_at for job in record.jobs.values()), default=zero_at)
    ends = [job.ended.ended_at for job in record.jobs.values() if job.ended is not None]
    return from_at, now if cut_off else max(ends, default=now)


def uses(
    sites: Sequence[SiteInfo],
    histories: Mapping[SiteName, SiteHistory],
    components: Sequence[ComponentRecord],
    from_at: float,
    to_at: float,
) -> list[SiteUse]:
    """Return the use of the sites between two times: by the replay's jobs, and by all others, Koala's and the
    site's."""
    found = []
    for site in sites:
        ours = sum(
            each.processors * max(0.0, min(to_at, each.ended_at or to_at) - max(from_at, each.claimed_at))
            for each in components
            if each.site == site.name and each.held
        )
        whole = site.processors * (to_at - from_at)
        others = max(0.0, _used_processor_s(histories.get(site.name), to_at) - ours)
        shares = (ours / whole, others / whole) if whole > 0 else (0.0, 0.0)
        found.append(SiteUse(site=site.name, processors=site.processors, ours=shares[0], others=shares[1]))
    return found


def _used_processor_s(history: SiteHistory | None, to_at: float) -> float:
    """Return the total use, by the daemon's own account."""
    if history is None:
        return 0.0
    ends = [point.at for point in history.points[1:]] + [to_at]
    return sum(
        (point.ours + point.others) * max(0.0, until - point.at)
        for point, until in zip(history.points, ends, strict=True)
    )


def moved(ended: JobEnded, zero_at: float) -> JobEnded:
    """Return the end of a job with its times counted from ``zero_at``."""
    times = ("submitted_at", "placed_at", "started_at", "ended_at", "first_start_estimate", "last_start_estimate")
    return replace(ended, **{name: _less(getattr(ended, name), zero_at) for name in times})


def _less(at: float | None, zero_at: float) -> float | None:
    return None if at is None else at - zero_at


def result(
    record: ReplayRecord,
    submissions: Sequence[ReplaySubmission],
    unfinished: Mapping[JobId, str],
    site_uses: Sequence[SiteUse],
    *,
    policy: str,
    seed: int,
    zero_at: float,
    now: float,
    stopped: str,
    not_submitted: int,
    notes: Sequence[str],
    told: Mapping[JobId, ToldTime] | None = None,
) -> Result:
    """Return the replay as a result of the simulator's type, its times counted from ``zero_at``.

    Jobs that have not ended, or were given up, are unfinished, for the reasons given. ``told`` contains the daemon's
    predictions for waiting jobs, if it makes plans.
    """
    ended: list[tuple[JobEnded, Request]] = []
    left: list[Unfinished] = []
    for each in submissions:
        known = record.jobs[each.job]
        if known.ended is not None and each.job not in unfinished:
            ended.append((moved(known.ended, zero_at), each.request))
        else:
            reason = unfinished.get(each.job, "it has not ended")
            left.append(Unfinished(each.job, each.request, known.submitted_at - zero_at, reason))
    submitted_s = (known.submitted_at - zero_at for known in record.jobs.values())
    failures = sum(each.outcome == Outcome.SITE_FAILED for each in record.components())
    return Result(
        ended=ended,
        unfinished=left,
        uses=site_uses,
        voids=(),
        policy=policy,
        totals_policy=policy,
        tasks_policy=policy,
        seed=seed,
        first_submission_s=min(submitted_s, default=0.0),
        end_s=now - zero_at,
        events=record.entries(),
        component_failures=failures,
        log_sha256=None,
        stopped=stopped,
        not_submitted=not_submitted,
        notes=notes,
        told_times=None if told is None else _told_times(record, told),
    )


def _told_times(record: ReplayRecord, told: Mapping[JobId, ToldTime]) -> dict[str, Any]:
    """Return the differences between the predicted and the actual starts of jobs."""
    found = []
    for job, each in told.items():
        ended = record.jobs[job].ended
        found.append(each._replace(started_at=ended.started_at if ended is not None and ended.runs == 1 else None))
    return {"planned": len(found), **errors(found)}


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of a replay. ``refused`` are jobs that the daemon did not accept, ``left_behind`` those that an
    interrupted replay could not or should not cancel."""

    result: Result
    submissions: Sequence[ReplaySubmission]
    refused: Sequence[OmittedJob]
    waste: Waste
    holds: Sequence[PageHold]
    left_behind: Sequence[JobId] = ()
    unanswered: int | None = None


def live_grid(overview: Overview) -> Grid:
    """Return the grid as the daemon reports it, for drawing jobs and for a simulation of it.

    The daemon reports sites, links, its policy and its plans; everything else has the defaults of a grid file.
    """
    sites = tuple(
        Site(name=site.name, processors=site.processors, quota=_quota(site.usable, site.processors))
        for site in overview.sites
        if site.processors > 0
    )
    pairs = tuple(
        PairLink(between=link.between, bandwidth_mbit_s=link.bandwidth_mbit_s, latency_s=link.latency_s)
        for link in overview.links
    )
    default = Links().default
    if pairs and len({(pair.bandwidth_mbit_s, pair.latency_s) for pair in pairs}) == 1:
        default, pairs = Link(bandwidth_mbit_s=pairs[0].bandwidth_mbit_s, latency_s=pairs[0].latency_s), ()
    return Grid(
        name=overview.grid,
        sites=sites,
        links=Links(default=default, pairs=pairs),
        scheduler=SchedulerParameters(policy=overview.policy, scan_interval_s=0.0, plan_depth=overview.plan_depth),
    )


def _quota(usable: int, processors: int) -> float:
    """Return a fraction that gives exactly these processors, with any rounding."""
    return min(1.0, (usable + 0.5) / processors)
