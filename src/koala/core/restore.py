"""Reads the books of the core into the ledger of a new scheduler. They were written by ``books_writing``.

On the grid that they were written on, the scheduler goes on exactly as before. On another one sites are found by
name, and ``books_fitting`` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from koala.core.lifecycle import IN_CLAIMING_QUEUE, JobState
from koala.core.placement import JobPlacing
from koala.core.state.job import ComponentClaim, Job, Seen
from koala.core.state.ledger import Ledger
from koala.core.state.queues import INFINITY, PlacementQueue
from koala.core.state.sites import SiteBelief
from koala.core.state.snapshot import (
    AlarmPage,
    Books,
    Detail,
    JobPage,
    QueuePage,
    SnapshotError,
    StoryEntry,
    TransferPage,
    check_version,
    damaged,
    from_time,
)
from koala.core.state.snapshot_fitting import fit_to_grid, nothing_is_left_at_missing_sites
from koala.core.state.snapshot_writing import AS_IT_IS
from koala.core.state.timers import OF_CLAIMS, Alarm
from koala.core.state.transfer import FileTransfer
from koala.core.story import TOLD, words
from koala.policies import UnknownPolicyError
from koala.policies.front_door import FileAt, Spots, quota_processors

AnyKey = TypeVar("AnyKey", int, str)
AnyValue = TypeVar("AnyValue")


def read_books(books: Books, ledger: Ledger, placement: JobPlacing, *, same_grid: bool) -> None:
    """Fill the ledger of a scheduler that has not seen any event.

    Raises SnapshotError where the grid lacks a site at which something is left, where the catalogue lacks a policy
    that a job asks for, and where the books contradict themselves.
    """
    check_version(books.version)
    nothing_is_left_at_missing_sites(books, ledger.index)
    try:
        _Reading(books, ledger, placement, same_grid=same_grid).read()
    except SnapshotError:
        raise
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        # Pages of the right form may still contradict each other in ways for which there is no check of their own.
        raise damaged(f"their pages do not go together ({type(error).__name__}: {error})") from error
    if not same_grid:
        fit_to_grid(ledger)


class _Reading:
    def __init__(self, books: Books, ledger: Ledger, placement: JobPlacing, *, same_grid: bool) -> None:
        self._books = books
        self._ledger = ledger
        self._placement = placement
        self._index = ledger.index
        self._names = [page.name for page in books.sites]
        self._same_sites = self._names == ledger.names
        self._same_grid = same_grid
        self._idles = [self._idle_here(idle) for idle in books.idles]
        self._gone: dict[int, Job] = {}

    def read(self) -> None:
        books, ledger = self._books, self._ledger
        ledger.now = books.now
        self._placement.last_job = books.last_job
        for page in books.jobs:
            job = ledger.jobs[page.id] = self._job(page)
            self._bind(job, page)
        for page in books.gone:
            self._gone[page.id] = ledger.ended[page.id] = self._job(page)
        self._claims()
        self._transfers()
        self._files()
        self._sites()
        self._queue(ledger.high, books.high)
        self._queue(ledger.low, books.low)
        for place in books.claiming:
            ledger.claiming.stand(self._live(place.job), from_time(place.at), place.sequence)
        ledger.claiming.sequence = books.claiming_sequence
        for alarm in books.alarms:
            self._alarm(alarm)
        idle_of = {page.name: page.idle for page in books.sites}
        idle = [idle_of.get(name, 0) for name in ledger.names]
        self._links()
        ledger.sites.restore(idle, helped=books.helped, changed=books.changed)

    def _idle_here(self, idle: tuple[int, ...]) -> tuple[int, ...]:
        """What a try saw idle, by the sites of this grid; of a new one it saw nothing."""
        if len(idle) != len(self._names):
            raise damaged(f"of {len(self._names)} sites {len(idle)} have idle processors")
        if self._same_sites:
            return idle
        idle_of = dict(zip(self._names, idle, strict=True))
        return tuple([idle_of.get(name, 0) for name in self._ledger.names])

    def _idle(self, number: Any) -> tuple[int, ...]:
        if not isinstance(number, int) or not 0 <= number < len(self._idles):
            raise damaged(f"there are {len(self._idles)} lists of idle processors, and none has the number {number}")
        return self._idles[number]

    def _seen(self, idle: Any, demand: Any = None) -> Seen:
        """What a try saw. Of the links of another grid nothing is said."""
        if demand is None or not self._same_grid:
            return self._idle(idle), ()
        demands = self._books.link_demands
        if not 0 <= demand < len(demands) or len(demands[demand]) != len(self._ledger.sites.view.wiring.names):
            raise damaged(f"what was on the links, with the number {demand}, is missing or of another network")
        return self._idle(idle), demands[demand]

    def _links(self) -> None:
        """What jobs ask of links follows from their places, on this grid's network."""
        ledger, books = self._ledger, self._books
        for job in ledger.jobs.values():
            if (
                job.spots is not None
                and job.request.communication is not None
                and job.state is not JobState.UNWINDING
            ):
                ledger.links.add(job)
        ledger.links.observations = books.observations
        ledger.sites.view.observed_bisection_bit_s = books.observed_bisection_bit_s

    def _live(self, job: int) -> Job:
        return _known(self._ledger.jobs, job, "job")

    # ----------------------------------------------------------------------------------------- jobs

    def _job(self, page: JobPage) -> Job:
        """The job by itself, without what ties it to claims, transfers and queues."""
        job = Job(page.id, page.request, page.submitted_at, page.claim_fraction)
        for field in AS_IT_IS:
            setattr(job, field, getattr(page, field))
        job.story = [self._story_entry(entry) for entry in page.story]
        job.refused = None if page.refused_idle is None else self._seen(page.refused_idle, page.refused_demand)
        job.start_estimate = None if page.start_estimate is None else from_time(page.start_estimate)
        if page.first_start_estimate is not None:
            job.first_start_estimate = from_time(page.first_start_estimate)
        job.deadline = from_time(page.deadline)
        if self._same_grid:  # another grid may have what the sites of this one would not run
            job.barred = dict(page.barred)
        job.needs = [()] * len(page.needs)  # an ended job needs nothing; those of the others come with the transfers
        return job

    def _bind(self, job: Job, page: JobPage) -> None:
        """What a living job asks for and where it was placed, by the sites of this grid."""
        try:
            job.demand = self._placement.demand_of(job.request)
        except UnknownPolicyError as error:
            raise SnapshotError(
                f"job {job.id} ({job.request.name}) asks for the policy {error.name!r}, which is not known any more",
                "start with the file or package that has the policy, or cancel the job there first",
            ) from error
        if job.barred:
            job.demand = job.demand.barring(self._index[site] for site in job.barred)
        if page.places:
            sites = tuple([self._index[site] for site, _ in page.places])
            job.spots = Spots(sites=sites, sizes=tuple([size for _, size in page.places]), tasks=page.task_parts)
            for component in page.earmarks:
                job.earmarks[component] = sites[component]

    def _story_entry(self, entry: StoryEntry) -> tuple[Any, ...]:
        """A line as data; on another set of sites as the words that it had, since the data speak of the old ones."""
        at, what, written = entry
        details: tuple[Detail | Spots, ...] = written
        if what == "refused":
            details = (self._books.idles[_whole(written[0])],)
        elif what == "placed":
            sites, sizes, transfer_s = written
            assert isinstance(sites, tuple)
            assert isinstance(sizes, tuple)
            details = (Spots(sites, sizes), INFINITY if isinstance(transfer_s, str) else transfer_s)
        if self._same_sites or what in ("left_out", TOLD):
            return (at, what, *details)
        return (at, TOLD, words(what, details, self._names))

    # ------------------------------------------------------------------- claims, transfers and files

    def _claims(self) -> None:
        ledger = self._ledger
        owners = {**self._gone, **ledger.jobs}
        for page in self._books.claims:
            job = _known(owners, page.job, "job")
            claim = ComponentClaim(page.token, job, page.part, self._index[page.site], page.processors)
            claim.phase = page.phase
            claim.moved = page.moved
            claim.aborting = page.aborting
            claim.abort_tries = page.abort_tries
            ledger.claims[page.token] = claim
        for page_of_job in (*self._books.jobs, *self._books.gone):
            owners[page_of_job.id].claims = [
                None if token is None else _known(ledger.claims, token, "component") for token in page_of_job.claims
            ]

    def _transfers(self) -> None:
        book = self._ledger.transfers
        book.sequence = self._books.transfers_started
        for page in self._books.transfers:
            transfer = self._transfer(page)
            book.by_id[page.id] = book.by_key[transfer.key] = transfer
        for job_page in self._books.jobs:
            job = self._live(job_page.id)
            for transfer_id in job_page.transfers:
                transfer = _known(book.by_id, transfer_id, "transfer")
                job.transfers[transfer.key] = transfer
                job.transfers_open += not transfer.done
            own = {transfer.id: transfer.key for transfer in job.transfers.values()}
            job.needs = [
                tuple([_known(own, transfer_id, "transfer") for transfer_id in ids]) for ids in job_page.needs
            ]
        for link in self._books.links:
            one, other = (self._index.get(site) for site in link.between)
            if one is not None and other is not None:
                described = book.view.bytes_per_s[one][other]
                if described == link.described_bytes_per_s:
                    book.learn(one, other, link.bytes_per_s)

    def _transfer(self, page: TransferPage) -> FileTransfer:
        index = self._index
        transfer = FileTransfer((page.file, page.chunk, index[page.target]), page.size_bytes)
        transfer.id = page.id
        transfer.source = -1 if page.source is None else index.get(page.source, -1)
        if transfer.source < 0 and not page.done:
            raise damaged(f"the transfer {page.id} is under way from nowhere")
        transfer.started_at = page.started_at
        transfer.estimate_s = from_time(page.estimate_s)
        transfer.jobs = {self._live(job).id: None for job in page.jobs}
        transfer.tries = page.tries
        transfer.done = page.done
        transfer.failed_sources = {index[site] for site in page.failed_sources if site in index}
        return transfer

    def _files(self) -> None:
        sites = self._ledger.sites
        for page in self._books.files:
            holders = tuple(sorted({self._index[site] for site in page.replicas if site in self._index}))
            if holders:
                sites.view.files[page.name] = FileAt(page.size_bytes, holders)
            else:
                sites.view.files.pop(page.name, None)
            sites.files_told[page.name] = None

    # ---------------------------------------------------------------------------------------- sites

    def _sites(self) -> None:
        ledger = self._ledger
        beliefs = ledger.sites.sites
        for page in self._books.sites:
            index = self._index.get(page.name)
            if index is None:
                continue
            site = beliefs[index]
            if page.processors is not None:
                site.reported = True
                site.processors = page.processors
                site.limit = ledger.sites.view.limit[index] = quota_processors(page.processors, site.quota)
            site.others = page.others
            site.trust = page.trust
            site.drained = page.drained
            site.errors = page.errors
            site.probe_job = page.probe_job
            site.waiters = {job: self._live(job) for job in page.waiters}
        for claim in ledger.claims.values():
            beliefs[claim.site].claims[claim.token] = claim
            beliefs[claim.site].ours += claim.processors
        for job in ledger.jobs.values():
            if job.state in IN_CLAIMING_QUEUE:
                self._promises(job, beliefs)

    @staticmethod
    def _promises(job: Job, beliefs: list[SiteBelief]) -> None:
        assert job.spots is not None
        for component, (site, size) in enumerate(zip(job.spots.sites, job.spots.sizes, strict=True)):
            if component in job.earmarks:
                beliefs[site].earmarked += size
            elif job.claims[component] is None:
                beliefs[site].promised += size

    # --------------------------------------------------------------------------- queues and alarms

    def _queue(self, queue: PlacementQueue, page: QueuePage) -> None:
        queue.scan_due_at = from_time(page.scan_due_at)
        queue.scanned_helped = page.scanned_helped
        queue.scanned_changed = page.scanned_changed
        queue.passed_changed = page.passed_changed
        queue.next_position = page.next_position
        queue.scans = page.scans
        queue.untried = page.untried
        queue.seen = [(position, self._seen(*numbers)) for position, *numbers in page.seen]
        queue.resting = {job: self._live(job) for job in page.resting}
        # With another scan interval the scans are counted otherwise; nobody gains or loses a try by that.
        shift = self._ledger.scans_so_far(queue) - page.scans_so_far
        for place in page.in_line:
            job = self._live(place.job)
            job.position = place.position
            job.entered_scan = place.entered_scan + shift
            job.joined_after_scan = place.joined_after_scan
            queue.stand(job, None if place.exhausted_at_scan is None else place.exhausted_at_scan + shift)

    def _alarm(self, page: AlarmPage) -> None:
        ledger = self._ledger
        at, what, whom = from_time(page.at), page.what, page.whom
        if what is Alarm.COOLED_DOWN:
            index = self._index.get(str(whom))
            if index is not None:
                ledger.sites.sites[index].cooling = ledger.timers.set(at, what, index)
            return
        owner: Job | ComponentClaim | FileTransfer
        if what in OF_CLAIMS:
            owner = _known(ledger.claims, str(whom), "component")
        elif what is Alarm.TRANSFER_OVERDUE:
            owner = _known(ledger.transfers.by_id, str(whom), "transfer")
        else:
            owner = self._live(_whole(whom))
        owner.timer = ledger.timers.set(at, what, owner)


def _known(mapping: Mapping[AnyKey, AnyValue], key: AnyKey, what: str) -> AnyValue:
    found = mapping.get(key)
    if found is None:
        raise damaged(f"they speak of the {what} {key}, which has no page")
    return found


def _whole(number: Any) -> int:
    if not isinstance(number, int):
        raise damaged(f"{number!r} stands where a number belongs")
    return number
