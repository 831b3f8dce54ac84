"""Writes the books of the core: reads a ledger and changes nothing. The way back is ``books_reading``."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from koala.core.state.job import ComponentClaim, Job, Seen
from koala.core.state.ledger import Ledger
from koala.core.state.queues import PlacementQueue
from koala.core.state.sites import SiteBelief
from koala.core.state.snapshot import (
    VERSION,
    AlarmPage,
    Books,
    ClaimingPage,
    ClaimPage,
    Detail,
    FilePage,
    JobPage,
    LinkPage,
    PlacePage,
    QueuePage,
    SitePage,
    StoryEntry,
    TransferPage,
    to_time,
)
from koala.core.state.timers import OF_CLAIMS, Alarm, Timer
from koala.core.state.transfer import FileTransfer
from koala.model.grid import Grid
from koala.model.request import JobId

# What of a job stands in its page as it is.
AS_IT_IS = (
    "id",
    "request",
    "state",
    "submitted_at",
    "waiting_since",
    "claim_fraction",
    "ended_at",
    "placement_tries",
    "places",
    "task_parts",
    "placed_at",
    "started_at",
    "ready",
    "outstanding",
    "observed",
    "claim_resumed",
    "rests",
    "claiming_tries",
    "claiming_tries_in_row",
    "runs",
    "starts",
    "failures",
    "application_failures",
    "preemptions",
)
_as_it_is = attrgetter(*AS_IT_IS)
# Between so many jobs whoever has the books written may do something else.
STEP_JOBS = 500


def grid_digest(grid: Grid) -> str:
    """Tells grids apart: equal for equal grids only."""
    return hashlib.sha256(msgspec.json.encode(grid)).hexdigest()


def write_books(ledger: Ledger, *, grid: str, last_job: JobId) -> Generator[None, None, Books]:
    """The books as of the last event. They are a value: what the ledger does later does not change them.

    They are written in short steps, and no event may be handled before the last one.
    """
    return _Writing(ledger).books(grid, last_job)


class _Writing:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names = ledger.names
        # Many jobs were refused on the very same idle processors: each different tuple is written once.
        self._idle_numbers: dict[tuple[int, ...], int] = {}
        self._idle_numbers_by_identity: dict[int, int] = {}
        self._demand_numbers: dict[tuple[int, ...], int] = {}

    def books(self, grid: str, last_job: JobId) -> Generator[None, None, Books]:
        ledger = self._ledger
        transfers = ledger.transfers
        jobs = []
        for number, job in enumerate(ledger.jobs.values(), start=1):
            jobs.append(self._job(job))
            if number % STEP_JOBS == 0:
                yield
        gone = {claim.job.id: claim.job for claim in ledger.claims.values() if claim.job.id not in ledger.jobs}
        gone_pages = tuple(map(self._job, gone.values()))
        yield
        high = self._queue(ledger.high)
        yield
        low = self._queue(ledger.low)
        yield
        return Books(
            version=VERSION,
            grid=grid,
            now=ledger.now,
            last_job=last_job,
            sites=tuple(map(self._site, ledger.sites, ledger.sites.view.idle)),
            helped=ledger.sites.helped,
            changed=ledger.sites.changed,
            idles=tuple(self._idle_numbers),
            link_demands=tuple(self._demand_numbers),
            observations=ledger.links.observations,
            observed_bisection_bit_s=ledger.sites.view.observed_bisection_bit_s,
            jobs=tuple(jobs),
            gone=gone_pages,
            claims=tuple(map(self._claim, ledger.claims.values())),
            transfers=tuple(map(self._transfer, transfers.by_key.values())),
            transfers_started=transfers.sequence,
            links=tuple(
                LinkPage(
                    between=(self._names[one], self._names[other]),
                    described_bytes_per_s=described,
                    bytes_per_s=learned,
                )
                for (one, other), (described, learned) in transfers.learned.items()
            ),
            files=tuple(map(self._file, ledger.sites.files_told)),
            high=high,
            low=low,
            claiming=tuple(
                ClaimingPage(job=job.id, at=to_time(job.claim_at), sequence=job.claim_sequence)
                for job in ledger.claiming
            ),
            claiming_sequence=ledger.claiming.sequence,
            alarms=tuple(map(self._alarm, ledger.timers.living())),
        )

    def _idle(self, idle: tuple[int, ...]) -> int:
        number = self._idle_numbers_by_identity.get(id(idle))
        if number is None:
            number = self._idle_numbers.setdefault(idle, len(self._idle_numbers))
            self._idle_numbers_by_identity[id(idle)] = number
        return number

    def _seen(self, seen: Seen) -> tuple[int] | tuple[int, int]:
        """What a try saw, as numbers of lists that are written once."""
        idle, link_demand_bit_s = seen
        if not link_demand_bit_s:
            return (self._idle(idle),)
        number = self._demand_numbers.setdefault(link_demand_bit_s, len(self._demand_numbers))
        return self._idle(idle), number

    def _job(self, job: Job) -> JobPage:
        held = self._ledger.claims
        refused_idle, refused_demand, *_ = (None, None) if job.refused is None else (*self._seen(job.refused), None)
        same: dict[str, Any] = dict(zip(AS_IT_IS, _as_it_is(job), strict=True))
        return JobPage(
            story=self._story(job),
            refused_idle=refused_idle,
            refused_demand=refused_demand,
            start_estimate=None if job.start_estimate is None else to_time(job.start_estimate),
            first_start_estimate=None if job.first_start_estimate is None else to_time(job.first_start_estimate),
            claims=tuple(
                [claim.token if claim is not None and claim.token in held else None for claim in job.claims]
            ),
            earmarks=tuple(job.earmarks),
            transfers=tuple([transfer.id for transfer in job.transfers.values()]),
            needs=tuple([tuple([job.transfers[key].id for key in keys]) for keys in job.needs]),
            deadline=to_time(job.deadline),
            barred=tuple(job.barred.items()),
            **same,
        )

    def _story(self, job: Job) -> tuple[StoryEntry, ...]:
        entries: list[StoryEntry] = []
        for at, what, *details in job.story:
            written: tuple[Detail, ...] = tuple(details)
            if what == "refused":
                written = (self._idle(details[0]),)
            elif what == "placed":
                spots, transfer_s = details
                written = (spots.sites, spots.sizes, to_time(transfer_s))
            entries.append((at, what, written))
        return tuple(entries)

    def _claim(self, claim: ComponentClaim) -> ClaimPage:
        return ClaimPage(
            token=claim.token,
            job=claim.job.id,
            part=claim.component,
            site=self._names[claim.site],
            processors=claim.processors,
            phase=claim.phase,
            moved=claim.moved,
            aborting=claim.aborting,
            abort_tries=claim.abort_tries,
        )

    def _site(self, site: SiteBelief, idle: int) -> SitePage:
        return SitePage(
            name=site.name,
            idle=idle,
            processors=site.processors if site.reported else None,
            others=site.others,
            trust=site.trust,
            drained=site.drained,
            errors=site.errors,
            probe_job=site.probe_job,
            waiters=tuple(site.waiters),
        )

    def _file(self, name: str) -> FilePage:
        known = self._ledger.sites.view.files.get(name)
        if known is None:
            return FilePage(name=name)
        return FilePage(name=name, size_bytes=known.size_bytes, replicas=self._all_names(known.holders))

    def _transfer(self, transfer: FileTransfer) -> TransferPage:
        file, chunk, target = transfer.key
        return TransferPage(
            id=transfer.id,
            file=file,
            chunk=chunk,
            target=self._names[target],
            source=self._names[transfer.source] if transfer.source >= 0 else None,
            size_bytes=transfer.size_bytes,
            started_at=transfer.started_at,
            estimate_s=to_time(transfer.estimate_s),
            jobs=tuple(transfer.jobs),
            tries=transfer.tries,
            done=transfer.done,
            failed_sources=self._all_names(sorted(transfer.failed_sources)),
        )

    def _all_names(self, sites: Iterable[int]) -> tuple[str, ...]:
        return tuple([self._names[site] for site in sites])

    def _queue(self, queue: PlacementQueue) -> QueuePage:
        limits = queue.limits()
        return QueuePage(
            in_line=tuple(
                [
                    PlacePage(
                        job=job.id,
                        position=job.position,
                        entered_scan=job.entered_scan,
                        joined_after_scan=job.joined_after_scan,
                        exhausted_at_scan=limits.get(job.id),
                    )
                    for job in queue.in_line()
                ]
            ),
            resting=tuple(queue.resting),
            scan_due_at=to_time(queue.scan_due_at),
            scanned_helped=queue.scanned_helped,
            scanned_changed=queue.scanned_changed,
            passed_changed=queue.passed_changed,
            next_position=queue.next_position,
            untried=queue.untried,
            scans=queue.scans,
            scans_so_far=self._ledger.scans_so_far(queue),
            seen=tuple([(position, *self._seen(seen)) for position, seen in queue.seen]),
        )

    def _alarm(self, timer: Timer) -> AlarmPage:
        whom: JobId | str
        if timer.what is Alarm.COOLED_DOWN:
            whom = self._names[timer.whom]
        elif timer.what in OF_CLAIMS:
            whom = timer.whom.token
        else:
            whom = timer.whom.id
        return AlarmPage(at=to_time(timer.at), what=timer.what, whom=whom)
