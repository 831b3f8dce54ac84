"""The grid at this moment: as one caller sees it, with only the jobs that the caller may see, and in metrics."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from koala.core.life.states import ENDED, IN_CLAIMING_QUEUE, JobState
from koala.core.state.ledger import Ledger
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.site_belief import Trust
from koala.core.state.sites import Sites
from koala.daemon.engine.loop import Engine
from koala.daemon.service.answers import (
    accusations,
    as_lan,
    beside_processors,
    excluded_nodes,
    job_summary,
    last_error_for,
    link_history,
    link_infos,
    network_info,
    places_in_line,
    site_problem,
    trouble,
)
from koala.daemon.service.principal import Principal
from koala.daemon.service.sites.metrics import Metrics, SiteMetrics
from koala.daemon.site_clocks import ClockVerdict, judged, own_clock_in_words, site_clock_in_words
from koala.model.api import (
    JobOnLinks,
    JobSummary,
    LicensePool,
    LinkHistory,
    NetworkInfo,
    Overview,
    SiteInfo,
    TransferInfo,
)
from koala.model.nodes import PoolCount, total_of
from koala.policies.view import SHARED
from koala.store.rows import TransferRow
from koala.version import __version__

# An overview shows at most this many jobs of each list, and this many transfers; the counts are complete.
OVERVIEW_JOBS_MAX = 500
OVERVIEW_TRANSFERS_MAX = 500
# A warning names at most this many jobs.
JOBS_NAMED_MAX = 20
# At most this many viewers' lists are kept until something changes.
VIEWS_KEPT_MAX = 256
_CLAIMING = tuple(state for state in JobState if state in IN_CLAIMING_QUEUE)
# An array is in none of them: its elements are.
_ACTIVE = tuple(
    state
    for state in JobState
    if state not in ENDED | IN_CLAIMING_QUEUE | {JobState.WAITING, JobState.HELD, JobState.UNFOLDING}
)


class CallerView:
    """One caller's view at one moment, made for one answer. It waits for nothing."""

    def __init__(self, engine: Engine, who: Principal) -> None:
        self._engine = engine
        self._who = who

    def overview(self, counts: Mapping[str, int], lists: JobLists) -> Overview:
        """Return the whole grid, with these of its jobs."""
        engine = self._engine
        ledger = engine.scheduler.ledger
        return Overview(
            grid=engine.grid.name,
            version=__version__,
            now=engine.now(),
            started_at=engine.started_at,
            policy=engine.grid.scheduler.policy,
            plan_depth=engine.grid.scheduler.plan_depth,
            order=engine.grid.scheduler.order,
            order_problem=ledger.order_problem,
            sites=self.sites(),
            links=link_infos(engine.grid, ledger.sites.view),
            transfers=self._transfers_now(),
            waiting_high=lists.waiting_high,
            waiting_low=lists.waiting_low,
            claiming=lists.claiming,
            active=lists.active,
            held=lists.held,
            counts=_every_state(counts),
            last_seq=engine.last_seq,
        )

    def sites(self) -> list[SiteInfo]:
        """Return all sites, in the order of the grid."""
        return [self.site(site.name) for site in self._engine.grid.sites]

    def site(self, name: str) -> SiteInfo:
        """Return one site, which must be in the grid."""
        engine = self._engine
        book = engine.scheduler.ledger.sites
        index = book.view.index[name]
        belief = book.sites[index]
        sees_all, caller = self._who.sees_all, self._who.name
        silence = engine.silence_of(name)
        whole, pools = total_of(book.pools.whole(index)), book.view.licenses
        return SiteInfo.of(
            belief,
            kind=next(site.kind for site in engine.grid.sites if site.name == name),
            usable=belief.limit,
            idle=book.view.idle[index],
            drained_by=belief.drained_by.removeprefix(" by "),
            distrusted=belief.record.distrusted if sees_all else belief.record.distrusted_in_short,
            accusations=accusations(belief, self._visible([each.job for each in belief.record.accusations.values()])),
            excluded=excluded_nodes(engine.scheduler.exclusions(index), caller, sees_all=sees_all),
            fenced=sum(claim.fenced for claim in belief.claims.values()),
            last_error=last_error_for(caller, belief, sees_all=sees_all),
            problem=site_problem(belief, silence, caller=caller, sees_all=sees_all)
            or site_clock_in_words(name, clocks_of(engine)),
            jobs=self._visible(sorted({claim.job.id for claim in belief.claims.values()})),
            jobs_to_restart=self._visible(
                sorted({claim.job.id for claim in belief.claims.values() if not claim.aborting})
            ),
            set_aside=engine.defects_of(name) if sees_all else [],  # they name components of any user
            reported_at=engine.reported_at(name),
            licenses=[
                LicensePool(
                    name=name,
                    total=total,
                    left=max(0, pools.left[pool][name]),
                    shared=pool == SHARED,
                    jobs=self._visible(pools.holders(pool, name)),
                )
                for pool in (index, SHARED)
                for name, total in pools.sizes[pool].items()
            ],
            **trouble(silence),
            **beside_processors(whole, _free_beside(book, index, whole)),
            **as_lan(book.view.lans, name),
        )

    def network(self) -> NetworkInfo:
        """Return what is known of the links between sites."""
        engine = self._engine
        return network_info(engine.grid, engine.scheduler.ledger.forecasts, engine.now(), self._jobs_on_links())

    def _jobs_on_links(self) -> list[JobOnLinks]:
        """Return the jobs at several sites among the first running jobs."""
        engine, found = self._engine, []
        owner = None if self._who.sees_all else self._who.name
        for row in islice(engine.rows.in_state(JobState.RUNNING, owner=owner), OVERVIEW_JOBS_MAX):
            traffic = engine.scheduler.traffic(row.id)
            job = engine.scheduler.ledger.jobs.get(row.id)
            if traffic is not None and job is not None:
                sites = [*dict.fromkeys(site for site, _ in job.places)]
                found.append(JobOnLinks(job=row.id, name=row.name, sites=sites, traffic=traffic))
        return sorted(found, key=lambda each: each.job)

    def link(self, source: str, target: str) -> LinkHistory:
        """Return one direction of a link between two sites, which must be in the grid."""
        engine = self._engine
        return link_history(engine.grid, engine.scheduler.ledger.forecasts, source, target, engine.now())

    def transfers_of(self, job: int, recorded: Iterable[TransferRow]) -> list[TransferInfo]:
        """Return the transfers for one job that the caller sees: those on record, each in its newest state."""
        rows = {row.id: row for row in recorded}
        rows |= {row.id: row for row in self._engine.transfers_now() if job in row.jobs}
        return [self._transfer(row, {job}) for row in rows.values()]

    # ------------------------------------------------------------------------------------------- parts

    def _transfers_now(self) -> list[TransferInfo]:
        rows = self._engine.transfers_now()
        seen = [row for row in rows if self._who.sees_all or self._visible(row.jobs)]
        return [self._transfer(row) for row in seen[:OVERVIEW_TRANSFERS_MAX]]

    def _transfer(self, row: TransferRow, surely: Iterable[int] = ()) -> TransferInfo:
        visible = {*surely, *self._visible(row.jobs)}
        jobs = [job for job in row.jobs if job in visible]
        brought_bytes = row.size_bytes if row.ok else self._engine.transferred_bytes(row.id)
        return TransferInfo.of(row, brought_bytes=brought_bytes, jobs=jobs)

    def _visible(self, jobs: Iterable[int]) -> list[int]:
        """Return the jobs that exist for the caller; ended jobs only for an operator."""
        if self._who.sees_all:
            return list(jobs)
        rows = ((job, self._engine.live_row(job)) for job in jobs)
        return [job for job, row in rows if row is not None and row.owner == self._who.name]


class JobLists(NamedTuple):
    """The jobs that an overview shows, at most ``OVERVIEW_JOBS_MAX`` of each list."""

    waiting_high: list[JobSummary]
    waiting_low: list[JobSummary]
    claiming: list[JobSummary]
    active: list[JobSummary]
    held: list[JobSummary]


class OverviewBoard:
    """The lists of jobs in overviews, rebuilt only after a change, and then once for all who see the same. Their cost
    does not grow with the number of live jobs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: dict[str | None, tuple[int, JobLists]] = {}

    def lists(self, owner: str | None) -> JobLists:
        """Return the jobs of one owner, or of all."""
        seq = self._engine.last_seq
        made = self._made.get(owner)
        if made is None or made[0] != seq:
            if len(self._made) >= VIEWS_KEPT_MAX:
                self._made.clear()
            made = self._made[owner] = seq, self._make(owner)
        return made[1]

    def _make(self, owner: str | None) -> JobLists:
        rows, ledger = self._engine.rows, self._engine.scheduler.ledger

        def summaries(states: Iterable[str]) -> list[JobSummary]:
            found = islice(rows.in_state(*states, owner=owner), OVERVIEW_JOBS_MAX)
            return [job_summary(row, ledger) for row in sorted(found, key=lambda row: row.id)]

        return JobLists(
            waiting_high=self._waiting(ledger, ledger.high, owner),
            waiting_low=self._waiting(ledger, ledger.low, owner),
            claiming=summaries(_CLAIMING),
            active=summaries(_ACTIVE),
            held=summaries((JobState.HELD,)),
        )

    def _waiting(self, ledger: Ledger, queue: PlacementQueue, owner: str | None) -> list[JobSummary]:
        """Return the waiting jobs, head to tail. A job that has just left or entered the queue is shown where it
        was."""
        rows = self._engine.rows
        if owner is None:
            jobs = queue.first(OVERVIEW_JOBS_MAX)
        else:
            own = (ledger.jobs.get(row.id) for row in rows.in_state(JobState.WAITING, owner=owner))
            here = [job for job in own if job is not None and ledger.queue_of(job) is queue]
            jobs = heapq.nsmallest(OVERVIEW_JOBS_MAX, here, key=lambda job: (job.id in queue.resting, job.position))
        in_line = (
            {job.id: min(place, queue.size + 1) for place, job in enumerate(jobs, start=1)}
            if owner is None
            else places_in_line(ledger, (job.id for job in jobs))
        )
        found = ((rows.jobs.get(job.id), in_line.get(job.id)) for job in jobs)
        return [
            job_summary(row, ledger, place)
            for row, place in found
            if row is not None and row.state == JobState.WAITING
        ]


def gather_metrics(engine: Engine, counts: Mapping[str, int]) -> Metrics:
    """Return the daemon's metrics."""
    ledger = engine.scheduler.ledger
    active = [row for row in engine.transfers_now() if row.ended_at is None]
    counters = engine.counters
    return Metrics(
        jobs=_every_state(counts),
        sites=tuple(
            SiteMetrics.of(
                site,
                usable=site.limit,
                idle=ledger.sites.view.idle[index],
                trusted=site.trust is not Trust.UNUSABLE,
                answers=(silence := engine.silence_of(site.name)) is None or silence.answers,
                set_aside=len(engine.defects_of(site.name)),
                calls=dict(engine.site(site.name).calls),
                gpus=(whole := total_of(ledger.sites.pools.whole(index))).gpus,
                gpus_idle=_free_beside(ledger.sites, index, whole).gpus,
            )
            for index, site in enumerate(ledger.sites)
        ),
        queues={"high": len(ledger.high), "low": len(ledger.low), "claiming": len(ledger.claiming)},
        transfers_active=len(active),
        arriving_bytes=sum(engine.transferred_bytes(row.id) for row in active),
        events_handled=counters.events,
        commits=counters.commits,
        commands_owed=len(engine.outbox),
        recoveries=counters.recoveries,
        journal_entries=engine.last_seq,
        started_at=engine.started_at,
        working=not engine.failure,
    )


def _free_beside(sites: Sites, index: int, whole: PoolCount) -> PoolCount:
    """Return the free GPUs and memory at the site, computed only if it has any."""
    return total_of(sites.pools.free(index) if whole.gpus or whole.memory_bytes is not None else None)


def clocks_of(engine: Engine) -> ClockVerdict:
    """Compare the sites' clocks with each other and with this machine's."""
    clocks = ((site.name, engine.site(site.name).clock_ahead_s) for site in engine.grid.sites)
    return judged(engine.grid.sites, {name: ahead_s for name, ahead_s in clocks if ahead_s is not None})


def operator_warnings(engine: Engine) -> list[str]:
    """Describe the failures of our own code, and what to do about them."""
    found = [f"{site.name}: {each}" for site in engine.grid.sites for each in engine.defects_of(site.name)]
    clock = own_clock_in_words(clocks_of(engine))
    if clock:
        found.append(f"this machine's clock {clock}; nothing was set by them: set it, and start the daemon again")
    jobs = sorted(row.id for row in engine.rows.in_state(JobState.QUARANTINED))
    if not jobs:
        return found
    more = f" and {len(jobs) - JOBS_NAMED_MAX} more" if len(jobs) > JOBS_NAMED_MAX else ""
    names = ", ".join(map(str, jobs[:JOBS_NAMED_MAX]))
    what = f"{len(jobs)} in quarantine after errors inside Koala (jobs {names}{more}): koala job explain shows why"
    return [*found, f"{what}; cancel them, or put them back with koala job requeue once the cause is mended"]


def _every_state(counts: Mapping[str, int]) -> dict[str, int]:
    return {str(state): counts.get(state, 0) for state in JobState}
