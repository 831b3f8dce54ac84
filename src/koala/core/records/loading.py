"""From records to a scheduler: values that follow from the records are computed again.

On the grid under which they were written the scheduler continues exactly as before. On another grid, sites are found
by name, parameters are the new grid's, and every waiting job is tried again; a site may only be missing if nothing is
left there.

A record that cannot be read, or that contradicts the others, is set aside with its job, and
everything else continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koala.core.encoded import INFINITY, known_time
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.life.phase import AwaitsClaims
from koala.core.life.places import FileTransfer, JobPlaces, TransferKey
from koala.core.life.running import Running
from koala.core.life.starting import Starting
from koala.core.life.states import ENDED, GIVEN_BACK, IN_CLAIMING_QUEUE, JobState
from koala.core.life.waiting import Seen, Waiting
from koala.core.placement import JobPlacing
from koala.core.records.reading import UNREADABLE, DamagedRecord, KnownJob, RecordReader, RecordsError, damaged
from koala.core.records.record import HIGH, LOW, Kind, Record
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.core.state.queues.placement import PlacementQueue
from koala.core.timers import Alarm, Timer, Whom
from koala.model.messages import EndedJob, JobOutcome, Token
from koala.model.request import JobId, SiteName
from koala.policies import UnknownPolicyError
from koala.policies.interface import FileAt, Spots

# At most this many of a kind are named in an error; the rest is only counted.
NAMED_IN_ERROR = 5


def load(
    records: Iterable[Record], known: Mapping[JobId, KnownJob], ledger: Ledger, placing: JobPlacing, *, grid: str
) -> list[DamagedRecord]:
    """Fill the ledger of a scheduler that has not seen any event; ``grid`` is the digest of its grid.

    Returns the records that were set aside. Raises RecordsError if the grid lacks a site at which something is left,
    if the catalogue lacks a policy that a job asks for, and if the records do not make a scheduler.
    """
    by_kind: dict[Kind, dict[str, bytes]] = {kind: {} for kind in Kind}
    for kind, key, body in records:
        if body is not None:
            by_kind[kind][key] = body
    try:
        reader = RecordReader(by_kind, known, ledger, grid)
        _Loading(reader, ledger, placing).run()
    except RecordsError:
        raise
    except UNREADABLE as error:
        raise damaged(f"its records do not go together ({type(error).__name__}: {error})") from error
    if not reader.same_grid:
        _fit_to_grid(ledger)
    return reader.damaged


class _Loading:
    def __init__(self, reader: RecordReader, ledger: Ledger, placing: JobPlacing) -> None:
        self._reader = reader
        self._ledger = ledger
        self._placing = placing
        self._counters = reader.counters
        self.same_grid = reader.same_grid
        self._names = reader.names
        self._same_sites = list(self._names) == ledger.names
        # By a site's number in the records, its index in this grid; -1 for a missing site.
        self._here = [ledger.index.get(name, -1) for name in self._names]
        self._left: set[Token] = set()  # components that have left with their sites
        self._seen_once: dict[Seen, Seen] = {}  # many jobs were refused on the very same idle processors

    def run(self) -> None:
        counters, ledger = self._counters, self._ledger
        self._reader.read_jobs()
        self._jobs, self._claims, self._transfers = self._reader.jobs, self._reader.claims, self._reader.transfers
        _nothing_is_left_at_missing_sites(self._names, self._here, self._jobs, self._claims, self._transfers)
        ledger.now = counters.now
        self._placing.last_job = counters.last_job
        ledger.jobs_known, ledger.claims_made = counters.jobs_known, counters.claims_made
        ledger.timers.set_so_far = counters.alarms_set
        ledger.preempted_at = list(counters.preempted_at)
        ledger.kept_early = list(counters.kept_early)
        self._load_usual_runs()
        self._load_sites()
        self._load_files()
        for job in self._jobs:
            self._load_job(job)
        for job in ledger.jobs.values():
            if job.array in ledger.arrays:
                job.join_array(ledger.arrays[job.array])
        self._load_dependencies()
        for job in ledger.jobs.values():
            if job.array and job.array not in ledger.arrays:
                ledger.follow_ups.add(Work.CANCEL_ELEMENTS, job.array)
        self._load_transfers()
        self._load_forecasts()
        self._load_claims()
        self._load_queues()
        self._load_alarms()
        self._load_links()
        all_there = not self._reader.damaged and counters.live == (len(ledger.jobs), len(ledger.claims))
        # Between events an array has nothing due except its alarm, unless one of its elements is missing.
        for array in () if all_there else ledger.arrays.values():
            if array.state is JobState.UNFOLDING:
                ledger.follow_ups.add(Work.UNFOLD, array.id)
        # On another grid, or without some former jobs, there may be more for waiting jobs.
        changed = not (self.same_grid and all_there)
        generation = counters.generation + changed
        ledger.sites.restored(generation, gained_at=generation if changed else counters.gained_at)
        if changed:
            for queue in (ledger.high, ledger.low):
                queue.scan_due_at = INFINITY
                queue.untried = queue.size > 0

    # --------------------------------------------------------------------------------------------- sites

    def _site(self, number: int) -> int:
        """Return the index of a site that must be there."""
        index = self._site_or_none(number)
        assert index >= 0, "nothing is left at a missing site"
        return index

    def _site_or_none(self, number: int) -> int:
        """Return the index of a site, -1 if the grid does not have it any more."""
        return self._here[number]

    def _sites_left(self, numbers: Iterable[int]) -> list[int]:
        """Return the indexes of the sites that the grid still has."""
        return [index for index in map(self._site_or_none, numbers) if index >= 0]

    def _seen(self, seen: Seen) -> Seen:
        """Return what a try saw, by the sites of this grid; it saw nothing of new sites or of the links
        of another grid."""
        idle, link_demand_bit_s = seen
        if not self._same_sites:
            idle_of = dict(zip(self._names, idle, strict=True))
            idle = tuple([idle_of.get(name, 0) for name in self._ledger.names])
        found = idle, link_demand_bit_s if self.same_grid else ()
        return self._seen_once.setdefault(found, found)

    def _load_sites(self) -> None:
        ledger = self._ledger
        jobs = {job.id for job in self._jobs}
        for name, belief in self._reader.sites().items():
            index = ledger.index.get(name, -1)
            if index < 0:
                continue
            if belief.probe_job not in jobs:
                belief.probe_job = None
            belief.releases = [(known_time(at), processors) for at, processors in belief.releases]
            belief.releases_told = [(known_time(at), processors) for at, processors in belief.releases_told]
            ledger.sites.put(index, belief)

    # ---------------------------------------------------------------------------------------------- jobs

    def _load_job(self, job: Job) -> None:
        if isinstance(job.phase, Waiting) and job.phase.refused is not None:
            job.phase.refused = self._seen(job.phase.refused)
        if job.placed_at is not None:
            job.start_estimate = known_time(job.start_estimate)
            job.first_start_estimate = known_time(job.first_start_estimate)
        if job.plan is not None:
            self._load_plan(job)
        if job.placement is not None:
            self._load_places(job, job.placement)
        if job.state in ENDED:
            self._ledger.ended[job.id] = job
            return
        self._ledger.add(job)
        for _, other in job.waits_for:
            self._ledger.dependents.setdefault(other, {})[job.id] = None
        if not self.same_grid:  # another grid may have what the former sites would not run
            job.barred = {}
            job.avoided = {}
            job.avoiding = ()
            job.failed_nodes = {}
        if job.avoided or job.avoiding:
            self._ledger.avoiders[job.id] = None
        if job.state is not JobState.QUARANTINED:  # its demand may be impossible
            self._load_demand(job)

    def _load_places(self, job: Job, placed: JobPlaces) -> None:
        placed.start_at = known_time(placed.start_at)
        placed.hold_until = known_time(placed.hold_until)
        if job.state in ENDED:
            if not self._same_sites:
                placed.spots = Spots((), ())  # their names show where it was
            return
        placed.spots = placed.spots._replace(sites=tuple([self._site(number) for number in placed.spots.sites]))
        if isinstance(job.phase, AwaitsClaims):
            job.phase.claim_at = known_time(job.phase.claim_at)
            job.phase.earmarks = {component: placed.spots.sites[component] for component in job.phase.earmarks}
        elif isinstance(job.phase, Starting | Running):
            job.phase.deadline = known_time(job.phase.deadline)
        placed.needs = [tuple([self._key(key) for key in keys]) for keys in placed.needs]

    def _load_plan(self, job: Job) -> None:
        """Load a job's plan; on another grid the job is planned anew."""
        if self.same_grid:
            self._ledger.planned[job.id] = job
        else:
            job.waiting.plan = None

    def _load_demand(self, job: Job) -> None:
        try:
            job.asks = self._placing.demand_for(job)
        except UnknownPolicyError as error:
            raise RecordsError(
                f"job {job.id} ({job.request.name}) asks for the policy {error.name!r}, which is not known any more",
                "start with the file or package that has the policy, or cancel the job there first",
            ) from error
        if job.barred:
            job.asks = job.demand.barring(self._ledger.index[site] for site in job.barred)
        if job.avoiding:
            job.asks = job.demand.barring(self._ledger.index[site] for site in job.avoiding)

    def _load_dependencies(self) -> None:
        ledger, events = self._ledger, self._counters.dependency_events
        over = {each.job for each in events if each.outcome is not None}
        for number, became in enumerate(events):
            ledger.follow_ups.add(Work.NOTIFY_DEPENDENTS, became, None if number else self._counters.last_notified)
        for other in ledger.dependents:
            if other not in ledger.jobs and other not in over and ledger.array_of(other) is None:
                # An operator took it out.
                ledger.note_dependency(EndedJob(job=other, outcome=JobOutcome.CANCELLED, started=False))

    # ------------------------------------------------------------------------------ transfers and claims

    def _key(self, key: TransferKey) -> TransferKey:
        file, chunk, site = key
        return file, chunk, self._site(site)

    def _load_transfers(self) -> None:
        ledger, transfers = self._ledger, self._ledger.transfers
        transfers.sequence = self._counters.transfers_started
        placed_jobs = [job for job in ledger.jobs.values() if job.placement is not None]
        needed_by: dict[TransferKey, list[JobId]] = {}
        for job in placed_jobs:
            for key in dict.fromkeys(key for keys in job.placed.needs for key in keys):
                needed_by.setdefault(key, []).append(job.id)
        for transfer in self._transfers:
            needing = dict.fromkeys(needed_by.get((*transfer.key[:2], self._site_or_none(transfer.key[2])), ()))
            # Its record has the order in which they came.
            transfer.jobs = {number: None for number in [*transfer.jobs, *needing] if number in needing}
            if not transfer.jobs:
                continue  # the jobs that needed it were taken out, or set aside
            transfer.key = self._key(transfer.key)
            transfer.source = self._site_or_none(transfer.source) if transfer.source >= 0 else -1
            transfer.estimate_s = known_time(transfer.estimate_s)
            transfer.failed_sources = self._sites_left(transfer.failed_sources)
            transfers.by_id[transfer.id] = transfers.by_key[transfer.key] = transfer
        for job in placed_jobs:
            placed = job.placed
            placed.transfers = transfers.needed(placed)
            placed.transfers_open = sum(not transfer.done for transfer in placed.transfers.values())

    def _load_claims(self) -> None:
        """Load the claims. What is promised and earmarked at each site follows from claims and jobs."""
        ledger = self._ledger
        sites = ledger.sites.sites
        for claim in self._claims:
            if self._site_or_none(claim.site) < 0:  # it is fenced, and has left the grid with its site
                self._left.add(claim.token)
                continue
            job = ledger.jobs.get(claim.job_id) or ledger.ended[claim.job_id]
            claim.bind(job)
            claim.due_at = known_time(claim.due_at)
            claim.placed_at, claim.held_at = known_time(claim.placed_at), known_time(claim.held_at)
            claim.site = self._site(claim.site)
            ledger.claims[claim.token] = claim
            ledger.claims_of.setdefault(job.id, {})[claim.token] = claim
            sites[claim.site].claims[claim.token] = claim
            sites[claim.site].ours += claim.processors
            if not claim.given_up and job.state not in ENDED:
                job.placed.claims[claim.component] = claim
        earmarked: list[Counter[JobId]] = [Counter() for _ in sites]
        for job in ledger.jobs.values():
            if job.state not in IN_CLAIMING_QUEUE:
                continue
            placed = job.placed
            for component, (index, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
                if component in job.earmarks:
                    sites[index].earmarked += size
                    earmarked[index][job.id] += size
                elif placed.claims[component] is None:
                    sites[index].promised += size
        for site, waiting in zip(sites, earmarked, strict=True):  # the record of the site has their order
            in_order = [number for number in site.waiters if number in waiting]
            site.waiters = {number: waiting[number] for number in dict.fromkeys([*in_order, *waiting])}
        self._load_availability()

    def _load_availability(self) -> None:
        """Load who holds what until when. Records of a scheduler without plans lack that for claims."""
        ledger, availability = self._ledger, self._ledger.sites.availability
        if availability is None:
            return
        availability.now = ledger.now
        for claim in ledger.claims.values():
            if claim.due_at == 0.0 and not self.same_grid:
                begun_at = ledger.now if claim.job.started_at is None else claim.job.started_at
                claim.due_at = begun_at + ledger.planned_s(claim.job)
                if claim.job.placement is not None:
                    claim.job.placement.hold_until = claim.due_at
            availability.note(claim)
        for job in ledger.jobs.values():
            if job.state in IN_CLAIMING_QUEUE:
                placed = job.placed
                for component, (index, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
                    if placed.claims[component] is None:
                        availability.hold(index, job.id, size, placed.hold_until)
        for index in range(len(ledger.names)):
            ledger.sites.hold_for_others(index)

    # -------------------------------------------------------------------------- what was measured, and files

    def _load_usual_runs(self) -> None:
        ledger = self._ledger
        ledger.runs_noted = self._counters.runs_noted
        for key, run in self._reader.usual_runs():
            (ledger.last_named_runs if key[1] else ledger.last_runs)[key] = run

    def _load_forecasts(self) -> None:
        forecasts = self._ledger.forecasts
        forecasts.measured = self._counters.links_measured
        for series in self._reader.links():
            pair = self._sites_left((series.source, series.target))
            if len(pair) == 2:
                series.source, series.target = pair
                forecasts.put(series)
        if self.same_grid and self._counters.probes is not None:
            forecasts.probe_cursor, forecasts.probe_at = self._counters.probes

    def _load_files(self) -> None:
        sites = self._ledger.sites
        for name, (size_bytes, holders) in self._reader.files().items():
            left = self._sites_left(holders)
            if left:
                sites.view.files[name] = FileAt(size_bytes, tuple(sorted(left)))
            else:
                sites.view.files.pop(name, None)
            sites.note_file(name)

    def _load_links(self) -> None:
        """Load what jobs ask of links; it follows from their places on this grid's network."""
        ledger, counters = self._ledger, self._counters
        for job in ledger.jobs.values():
            if job.placement is not None and job.state not in GIVEN_BACK:
                ledger.links.put(job)
        learned = ledger.links.learned
        learned.measured = counters.applications_measured
        for known in self._reader.applications():
            learned.put(known)
        ledger.links.observations = counters.observations
        ledger.sites.view.observed_bisection_bit_s = counters.observed_bisection_bit_s

    # --------------------------------------------------------------------------------- queues and alarms

    def _load_queues(self) -> None:
        ledger, counters = self._ledger, self._counters
        queues = self._reader.queues()
        high, low = self._queue(queues.get(HIGH), high=True), self._queue(queues.get(LOW), high=False)
        ledger.high, ledger.low = high, low
        waiting = [job for job in ledger.jobs.values() if job.state is JobState.WAITING]
        for queue, scans_so_far in zip((high, low), counters.scans_so_far, strict=True):
            # With another scan interval the scans are counted differently; no job gains or loses a try by that.
            shift = ledger.scans.so_far(queue, ledger.now) - scans_so_far
            here = [job for job in waiting if job.high is queue.high]
            queue.resting = {job.id: job for job in here if job.position < 0}
            in_line = sorted((job for job in here if job.position >= 0), key=lambda job: job.position)
            queue.standing.restores(in_line)
            for job in in_line:
                phase = job.waiting
                phase.entered_scan += shift
                phase.joined_after_scan = min(phase.joined_after_scan, queue.scans)
                if phase.exhausted_at_scan is not None:
                    phase.exhausted_at_scan += shift
                queue.stand(job)
        for job in ledger.jobs.values():
            if isinstance(job.phase, AwaitsClaims):
                ledger.claiming.stand(job, job.phase.claim_at, job.phase.claim_sequence)
        ledger.claiming.sequence = counters.claiming_sequence

    def _queue(self, queue: PlacementQueue | None, *, high: bool) -> PlacementQueue:
        if queue is None:  # waiting jobs stand in order of their remaining positions, and are tried again
            queue = PlacementQueue(high=high, untried=True, seen=[(-1, self._ledger.sites.seen_now())])
            queue.next_position = 1 + max((job.position for job in self._jobs), default=-1)
        queue.every_event = self._ledger.scans.every_event
        queue.by_arrival = self._ledger.plans_made
        self._ledger.order_for(queue)
        queue.scan_due_at = known_time(queue.scan_due_at)
        queue.seen = [(position, self._seen(seen)) for position, seen in queue.seen]
        return queue

    def _load_alarms(self) -> None:
        """Load the alarms; each owner has its own."""
        ledger = self._ledger

        def put(timer: Timer, whom: Whom) -> None:
            timer.at = known_time(timer.at)
            ledger.timers.put(timer, whom)

        for job in ledger.jobs.values():
            if job.timer is not None:
                put(job.timer, job.id)
        for claim in ledger.claims.values():
            if claim.timer is not None:
                put(claim.timer, claim.token)
        for transfer in ledger.transfers.by_key.values():
            if transfer.timer is not None:
                put(transfer.timer, transfer.id)
        for index, site in enumerate(ledger.sites.sites):
            if site.cooling is not None:
                put(site.cooling, index)


# ----------------------------------------------------------------------------------- on another grid


def _fit_to_grid(ledger: Ledger) -> None:
    """Adapt the ledger to a grid other than that of the records: what its parameters determine is planned anew."""
    interval_s = ledger.parameters.check_interval_s
    for job in ledger.jobs.values():
        if job.state is not JobState.RUNNING or job.joining:
            continue
        if interval_s is None:
            job.stop_timer()
        elif job.timer is None:
            job.timer = ledger.timers.set(ledger.now + interval_s, Alarm.LOOK_AFTER, job.id)


def _nothing_is_left_at_missing_sites(
    names: Sequence[SiteName],
    here: Sequence[int],
    jobs: Sequence[Job],
    claims: Sequence[ComponentClaim],
    transfers: Sequence[FileTransfer],
) -> None:
    """Require the sites of everything that is held, promised or on its way; report the first missing one.

    What is fenced at a lost site counts for nothing, and may leave with it.
    """
    live = [job for job in jobs if job.state not in ENDED]
    for number, name in enumerate(names):
        if here[number] >= 0:
            continue
        found: tuple[tuple[str, Sequence[int | str]], ...] = (
            ("components", [claim.token for claim in claims if claim.site == number and not claim.fenced]),
            (
                "jobs placed there",
                [job.id for job in live if job.placement is not None and number in job.placed.spots.sites],
            ),
            ("transfers", [each.id for each in transfers if _needs_site(each, number)]),
            ("jobs that name it", [job.id for job in live if _names_site(job, name)]),
        )
        left = [f"{what} ({_some(ids)})" for what, ids in found if ids]
        if left:
            raise RecordsError(
                f"the grid does not have the site {name!r} any more, but there are still {', '.join(left)}",
                "put the site back into the grid file, drain it, and take it out when nothing is left there; "
                "or cancel these jobs first; or, if it never comes back, put it back and declare it lost (koala site "
                f"lost {name})",
            )


def _needs_site(transfer: FileTransfer, number: int) -> bool:
    return transfer.key[2] == number or (transfer.source == number and not transfer.done)


def _names_site(job: Job, name: SiteName) -> bool:
    request = job.request
    return request.home == name or any(component.site == name for component in request.components)


def _some(ids: Sequence[int | str]) -> str:
    more = len(ids) - NAMED_IN_ERROR
    shown = ", ".join(map(str, ids[:NAMED_IN_ERROR]))
    return f"{shown} and {more} more" if more > 0 else shown
