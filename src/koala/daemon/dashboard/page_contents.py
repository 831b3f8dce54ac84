"""Asks the service for the values of each page, and puts them in the order in which they are drawn. No HTML here.

Everything that grows with the number of jobs or sites has a limit, so that a browser can show the page of a busy
grid, and the daemon can make it once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from koala.daemon.dashboard.axis import life, recent
from koala.daemon.dashboard.charts import measured_line, processor_bar, usage_chart
from koala.daemon.dashboard.network import network
from koala.daemon.dashboard.queues import arrays_shown, queue, stands_for
from koala.daemon.dashboard.timeline import component_rows, job_row, rows_at_site
from koala.daemon.dashboard.words import counted, expected, with_its_time
from koala.daemon.service.principal import Principal
from koala.model.api import (
    JobDetail,
    JobSummary,
    JournalEntry,
    LinkInfo,
    LinkState,
    Output,
    Overview,
    Page,
    Scope,
    SiteInfo,
    TransferInfo,
)
from koala.model.errors import ClientError, NotFoundError
from koala.model.network import bandwidth_text, latency_text
from koala.store import ChosenJobs

if TYPE_CHECKING:
    from koala.daemon.service.service import Service

WINDOWS_MIN = (1, 5, 30, 120, 720)
WINDOW_DEFAULT_MIN = 30
TIMELINE_JOBS_MAX = 16
TIMELINE_ENDED_MAX = 6
# At most this many ended elements of one array are shown beside other jobs at a site.
TIMELINE_ELEMENTS_MAX = 3
SITE_CHARTS_MAX = 24
EXPLAINED_MAX = 10
EVENTS_MAX = 30
LINKS_MAX = 200
MATRIX_SITES_MAX = 12
REASONS_MAX = 4
TRANSFERS_MAX = 50
COMPONENTS_MAX = 500
PAGE_JOBS = 50
STATES = (
    "held",
    "waiting",
    "placed",
    "claiming",
    "starting",
    "running",
    "collecting",
    "unfolding",
    "unwinding",
    "quarantined",
    "done",
    "failed",
    "cancelled",
)
ENDED = frozenset({"done", "failed", "cancelled"})
_KEPT = frozenset({"waiting", "held", "unfolding"})
HOLDABLE = frozenset({"held", "waiting", "placed", "claiming", "starting"})

TAIL_BYTES = 65_536
# Enough to find the end of an output of 2 ** 50 bytes, doubling and halving.
PROBES_MAX = 100
_PROBE_BYTES = 64

Context = dict[str, Any]


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The newest text of an output. It continues at ``next_offset`` unless it is ``complete``; ``skipped_bytes``
    precede it."""

    text: str
    skipped_bytes: int
    next_offset: int
    complete: bool


class JobSelection(NamedTuple):
    """The jobs that a page lists: in a state, of an owner, of a name; submitted from one day on, until the end of
    another, both in UTC. Empty fields select all."""

    state: str = ""
    owner: str = ""
    name: str = ""
    since: str = ""
    until: str = ""

    @property
    def which(self) -> ChosenJobs:
        """The selection in the store's form."""
        from_at = None if not self.since else day_at(self.since)
        to_at = None if not self.until else day_at(self.until) + 86_400.0
        return ChosenJobs(self.name, from_at, to_at)


def day(text: str) -> str:
    """Return the day of a page's parameter; empty if it is invalid."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return ""


def day_at(text: str) -> float:
    """Return when a day begins, in UTC."""
    return max(0.0, datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


class OutputSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The output that a page shows: a component's in one run (None: the last) of a job; for a failed job by default
    the standard error of the component that failed. For an array, the cursor of the listed elements."""

    job: int
    part: int | None
    run: int | None
    stream: str
    elements_cursor: str = ""


def was_measured(link: LinkState) -> bool:
    """Return True if a direction of a link was ever measured."""
    return bool(link.bandwidth_mbit_s.measurements or link.latency_s.measurements)


def window_min(wish: str | None) -> int | None:
    """Return how many minutes a page is asked to look back: one of ``WINDOWS_MIN``, or None."""
    return next((each for each in WINDOWS_MIN if str(each) == wish), None)


def window_for(up_s: float) -> int:
    """Return how many minutes a page looks back by default: no longer than a young daemon has been up."""
    return min(WINDOW_DEFAULT_MIN, next((each for each in WINDOWS_MIN if each * 60 >= up_s), WINDOW_DEFAULT_MIN))


class PageContents:
    """The values of each page, requested from the service for one caller at a time."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.time) -> None:
        self._service = service
        self._clock = clock

    async def overview(self, who: Principal, minutes: int | None) -> Context:
        """Return the whole grid."""
        grid = await self._service.grid.overview(who)
        if minutes is None:
            minutes = window_for(grid.now - grid.started_at)
        axis = recent(grid.now, minutes * 60.0)
        jobs = await self._timeline_jobs(who, grid, axis.from_at)
        charts = {}
        if len(grid.sites) <= SITE_CHARTS_MAX:
            for site in grid.sites:
                history = await self._service.grid.history(who, site.name, axis.from_at, axis.to_at)
                charts[site.name] = usage_chart(history, axis)
        listed = {
            "high": grid.waiting_high,
            "low": grid.waiting_low,
            "held": grid.held,
            "claiming": grid.claiming,
            "active": grid.active,
        }
        arrays = {each.id: each for each in await self._details(who, arrays_shown(list(listed.values())))}
        queues = {name: queue(jobs, arrays) for name, jobs in listed.items()}
        waiting = {line.job.id: line.job for name in ("high", "low", "held") for line in queues[name].lines}
        return {
            "grid": grid,
            "axis": axis,
            "bars": {site.name: processor_bar(site) for site in grid.sites},
            "charts": charts,
            "rows": [job_row(job, axis, grid.now) for job in jobs],
            "network": network(grid),
            "links": busiest_links(grid)[:LINKS_MAX],
            "transfers": moving_first(grid)[:TRANSFERS_MAX],
            "queues": queues,
            "reasons": await self._reasons(who, list(waiting.values()), grid.now),
            "events": await self._newest_events(who),
            "minutes": minutes,
            "windows_all": WINDOWS_MIN,
            "refresh_s": 2 if any(each.ended_at is None for each in grid.transfers) else 5,
        }

    async def jobs(self, who: Principal, asked: JobSelection, cursor: str) -> Context:
        """Return one page of the list of jobs."""
        state = asked.state
        states = frozenset(STATES) - ENDED if state == "live" else frozenset({state}) if state else frozenset()
        found = await self._service.jobs(
            who,
            states=frozenset(states),
            owner=asked.owner or None,
            limit=PAGE_JOBS,
            cursor=cursor or None,
            which=asked.which,
        )
        now = self._clock()
        kept = [each for each in found.items if each.state in _KEPT][:EXPLAINED_MAX]
        return {
            "jobs": found.items,
            "next": found.next,
            "reasons": await self._reasons(who, kept, now),
            "asked": asked,
            "asked_words": urlencode({name: value for name, value in asked._asdict().items() if value}),
            "cursor": cursor,
            "states": STATES,
            "now": now,
            "refresh_s": 5,
        }

    async def job(self, who: Principal, wanted: OutputSelection) -> Context:
        """Return one job, with the output of one of its components."""
        job = await self._service.job(who, wanted.job)
        wanted = shown_first(job, wanted)
        explanation = await self._service.explain(who, wanted.job)
        now = max(self._clock(), job.since)
        axis = life(job.submitted_at, now if job.ended_at is None else job.ended_at)
        tail, no_output = await self._output(who, job, wanted)
        elements: Page[JobSummary] = Page(items=[])
        if job.elements is not None:
            elements = await self._service.jobs(
                who, array=job.id, limit=PAGE_JOBS, cursor=wanted.elements_cursor or None
            )
        return {
            "job": job,
            "elements": elements.items,
            "elements_next": elements.next,
            "explanation": explanation,
            "axis": axis,
            "rows": [job_row(job, axis, now), *component_rows(job, axis, now)],
            "components": sorted(job.components, key=lambda each: (-each.claimed_at, each.part))[:COMPONENTS_MAX],
            "parts": sorted({each.part for each in job.components}),
            "runs": sorted({each.run for each in job.components}),
            "wanted": wanted,
            "tail": tail,
            "no_output": no_output,
            "ended": job.state in ENDED,
            "now": now,
            "refresh_s": 3600 if job.state in ENDED else 3,
        }

    async def network(self, who: Principal) -> Context:
        """Return the links between sites: the belief about each, and its measurements."""
        found = await self._service.grid.network(who)
        small = len(found.sites) <= MATRIX_SITES_MAX
        measured = [link for link in found.links if was_measured(link)][:LINKS_MAX]
        lines = {}
        for link in measured:
            history = await self._service.grid.link(who, link.source, link.target)
            ends = link.source, link.target
            lines[*ends, "bandwidth"] = measured_line(history.bandwidth_mbit_s, bandwidth_text)
            lines[*ends, "latency"] = measured_line(history.latency_s, latency_text)
        return {
            "network": found,
            "lines": lines,
            "on_links": found.jobs[:LINKS_MAX],
            "matrix": {(link.source, link.target): link for link in found.links} if small else {},
            "measured": measured,
            "failed": [link for link in found.links if link.probe_failure][:LINKS_MAX],
            "not_probed": sorted({link.not_probed for link in found.links if link.not_probed})[:REASONS_MAX],
            "now": found.now,
            "refresh_s": 10,
        }

    async def site(self, who: Principal, name: str, minutes: int | None) -> Context:
        """Return one site."""
        grid = await self._service.grid.overview(who)
        site = next((each for each in grid.sites if each.name == name), None)
        if site is None:
            raise NotFoundError(f"there is no site {name!r} in this grid; the overview lists all sites")
        now = self._clock()
        minutes = window_for(now - grid.started_at) if minutes is None else minutes
        axis = recent(now, minutes * 60.0)
        history = await self._service.grid.history(who, name, axis.from_at, axis.to_at)
        there = await self._details(who, site.jobs[:TIMELINE_JOBS_MAX])
        lately = await self._details(who, await self._ended(who, axis.from_at, name))
        return {
            "site": site,
            "axis": axis,
            "bar": processor_bar(site),
            "chart": usage_chart(history, axis),
            "rows": rows_at_site([*there, *lately], name, axis, now),
            "jobs": there,
            "near": near(site, grid.sites),
            "minutes": minutes,
            "windows_all": WINDOWS_MIN,
            "now": now,
            "refresh_s": 5,
        }

    # ---------------------------------------------------------------------------------------- pieces

    async def _timeline_jobs(self, who: Principal, grid: Overview, from_at: float) -> list[JobDetail]:
        """Return at most ``TIMELINE_JOBS_MAX`` jobs, newest first, an array in place of its elements. Jobs with
        places come before recently ended ones, and these before waiting ones, which may be very many."""
        placed = sorted({stands_for(each) for each in (*grid.active, *grid.claiming)}, reverse=True)
        waiting = sorted({stands_for(each) for each in (*grid.waiting_high, *grid.waiting_low)}, reverse=True)
        ended = [each for each in await self._ended(who, from_at) if each not in placed]
        room = max(0, TIMELINE_JOBS_MAX - len(placed) - min(len(ended), TIMELINE_ENDED_MAX))
        chosen = [*placed, *ended[:TIMELINE_ENDED_MAX], *waiting[:room], *ended[TIMELINE_ENDED_MAX:]]
        chosen = list(dict.fromkeys(chosen))[:TIMELINE_JOBS_MAX]
        return await self._details(who, sorted(chosen, reverse=True))

    async def _ended(self, who: Principal, from_at: float, site: str | None = None) -> list[int]:
        """Return the jobs that ended last after a moment: at the site, with a few elements of each array, or
        anywhere, with an array in place of its elements."""
        elements: Counter[int] = Counter()
        ends: dict[int, float] = {}
        for each in await self._service.grid.ended_lately(who, from_at, site):
            if each.array is not None and site is None:
                ends.setdefault(each.array, each.ended_at)
                continue
            if each.array is not None:
                elements[each.array] += 1
            if each.array is None or elements[each.array] <= TIMELINE_ELEMENTS_MAX:
                ends[each.id] = each.ended_at
        if site is None:  # arrays without places, and those that never had any
            found = await self._service.jobs(who, states=ENDED, limit=TIMELINE_JOBS_MAX)
            ends |= {each.id: at for each in found.items if (at := each.ended_at or 0.0) >= from_at}
        return sorted(ends, key=lambda job: (ends[job], job), reverse=True)[:TIMELINE_JOBS_MAX]

    async def _details(self, who: Principal, jobs: Iterable[int]) -> list[JobDetail]:
        details = await asyncio.gather(*(self._service.job(who, job) for job in jobs), return_exceptions=True)
        return [each for each in details if isinstance(each, JobDetail)]

    async def _reasons(self, who: Principal, jobs: Sequence[JobSummary], now: float) -> dict[int, str]:
        """Return why each of the jobs waits, for an array its next element, and until when if that is known, in one
        line."""
        reasons = {}
        for job in jobs:
            try:
                found = await self._service.explain(who, job.id)
            except NotFoundError:  # it has gone since the overview was made
                continue
            refusal, plan = found.refusal, found.expected_at
            parts = [with_its_time(found.meaning, found.begins_at, now)] if found.state == "held" else []
            parts += [] if plan is None else [expected(plan, found.expected_sites, now)]
            if refusal is not None:
                why = f"can never fit: {refusal.reason}" if refusal.permanent else refusal.reason
                parts += [why, f"would help: {refusal.cure}" if refusal.cure else ""]
            if any(parts):
                if job.elements is not None:
                    parts.insert(0, f"{counted(job.elements.size, 'element')}: {job.elements.in_words}")
                reasons[job.id] = "; ".join(filter(None, parts))
        return reasons

    async def _newest_events(self, who: Principal) -> list[JournalEntry]:
        last = self._service.last_seq
        found = await self._service.journal(who, after=max(0, last - 4 * EVENTS_MAX), limit=4 * EVENTS_MAX)
        shown = [each for each in found if each.what not in ("Tick", "AskSite")]
        return shown[::-1][:EVENTS_MAX]

    async def _output(self, who: Principal, job: JobDetail, wanted: OutputSelection) -> tuple[Tail | None, str]:
        if not job.components:
            return None, "No component has started yet."
        try:
            return await read_tail(self._service, who, wanted), ""
        except ClientError as error:
            return None, error.for_user()


def shown_first(job: JobDetail, wanted: OutputSelection) -> OutputSelection:
    """Choose the output that a page opens on if none is named."""
    run = wanted.run or max((each.run for each in job.components), default=0)
    failed = [each for each in job.components if each.run == run and each.outcome == "failed"]
    first = min(failed, key=lambda each: (each.ended_at or 0.0, each.part), default=None)
    part = wanted.part if wanted.part is not None else first.part if first is not None else 0
    stream = wanted.stream or ("stderr" if job.state == "failed" else "stdout")
    return msgspec.structs.replace(wanted, part=part, stream=stream)


async def read_tail(service: Service, who: Principal, wanted: OutputSelection) -> Tail:
    """Return at most the last ``TAIL_BYTES`` of an output, from the beginning of a line if some is left out."""

    async def read(offset: int, limit: int) -> Output:
        return await service.output(
            who,
            wanted.job,
            part=wanted.part or 0,
            run=wanted.run,
            stream=wanted.stream,
            offset=offset,
            limit=limit,
        )

    first = await read(0, TAIL_BYTES)
    if first.complete or first.next_offset < TAIL_BYTES // 2:
        return Tail(text=first.text, skipped_bytes=0, next_offset=first.next_offset, complete=first.complete)
    low, high = first.next_offset, first.next_offset * 2  # something is written up to low; is there at high?
    ended = False
    for _ in range(PROBES_MAX):
        if ended and high - low <= _PROBE_BYTES:
            break
        at = (low + high) // 2 if ended else high
        there = (await read(at, _PROBE_BYTES)).text != ""
        if there:
            low = at
            high = high if ended else high * 2
        else:
            high = at
            ended = True
    begin = max(0, high - TAIL_BYTES)
    last = await read(begin, 2 * TAIL_BYTES)
    text = last.text.partition("\n")[2] if begin and "\n" in last.text else last.text
    return Tail(text=text, skipped_bytes=begin, next_offset=last.next_offset, complete=last.complete)


def near(site: SiteInfo, sites: Sequence[SiteInfo]) -> list[str]:
    """Return the other sites of a site's region."""
    return [each.name for each in sites if each.man == site.man != "" and each.name != site.name]


def busiest_links(grid: Overview) -> list[LinkInfo]:
    """Return all links: those with running transfers first, then by the names of their sites."""
    moving = {frozenset((each.source, each.target)) for each in grid.transfers if each.ended_at is None}
    return sorted(grid.links, key=lambda each: (frozenset(each.between) not in moving, each.between))


def moving_first(grid: Overview) -> list[TransferInfo]:
    """Return all transfers: those on their way first, then the newest."""
    return sorted(grid.transfers, key=lambda each: (each.ended_at is not None, -each.started_at))


def may_cancel(who: Principal, job: JobSummary) -> bool:
    """Return True if a button to cancel the job makes sense; the service decides."""
    return job.state not in ENDED and (who.may(Scope.OPERATE) or (who.may(Scope.SUBMIT) and who.name == job.owner))


def may_hold(who: Principal, job: JobSummary) -> bool:
    """Return True if a button to hold the job makes sense: it has not started; the service decides."""
    return may_cancel(who, job) and job.state in HOLDABLE
