"""From a snapshot to the ledger of a new scheduler: what follows from the stored values is worked out again.

On the grid that the snapshot was taken on, the scheduler goes on exactly as before. On another one sites are found by
name, parameters are the new grid's, and every waiting job is tried again; a site may only be missing when nothing is
left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from koala.core.lifecycle import ENDED, GIVEN_BACK, IN_CLAIMING_QUEUE, JobState
from koala.core.placement import JobPlacing
from koala.core.state.encoded import INFINITY, Time, known_time
from koala.core.state.follow_ups import Work
from koala.core.state.forecasts import LinkSeries
from koala.core.state.job import ComponentClaim, FileTransfer, Job, JobPlaces, Seen, TransferKey
from koala.core.state.ledger import Ledger
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.site_belief import SiteBelief
from koala.core.state.snapshots.snapshot import Snapshot, SnapshotError, Value, check_version, damaged
from koala.core.state.timers import OF_CLAIMS, Alarm, Whom
from koala.core.story import named, story_of
from koala.model.messages import EndedJob, JobOutcome, Token
from koala.model.request import SiteName
from koala.policies import UnknownPolicyError
from koala.policies.interface import FileAt, Spots

# How many of a kind are named in an error before the rest is only counted.
NAMED_IN_ERROR = 5

AnyKey = TypeVar("AnyKey", int, str)
AnyValue = TypeVar("AnyValue")

_decode_site = msgspec.json.Decoder(SiteBelief).decode
_decode_queue = msgspec.json.Decoder(PlacementQueue).decode
_decode_job = msgspec.json.Decoder(Job).decode
_decode_claim = msgspec.json.Decoder(ComponentClaim).decode
_decode_transfer = msgspec.json.Decoder(FileTransfer).decode
_decode_series = msgspec.json.Decoder(LinkSeries).decode
_decode_timer = msgspec.json.Decoder(tuple[Time, Alarm, Whom]).decode


def restore(snapshot: Snapshot, ledger: Ledger, placing: JobPlacing, *, same_grid: bool) -> None:
    """Fill the ledger of a scheduler that has not seen any event.

    Raises SnapshotError where the grid lacks a site at which something is left, where the catalogue lacks a policy
    that a job asks for, and where the snapshot contradicts itself.
    """
    check_version(snapshot.version)
    try:
        _Restoring(snapshot, ledger, placing, same_grid=same_grid).run()
    except SnapshotError:
        raise
    except (msgspec.MsgspecError, AssertionError, LookupError, TypeError, ValueError) as error:
        # Values of the right form may still contradict each other in ways for which there is no check of their own.
        raise damaged(f"its values do not go together ({type(error).__name__}: {error})") from error
    if not same_grid:
        _fit_to_grid(ledger)


class _Restoring:
    def __init__(self, snapshot: Snapshot, ledger: Ledger, placing: JobPlacing, *, same_grid: bool) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._placing = placing
        self._same_grid = same_grid
        self._beliefs = [_decode_site(value) for value in snapshot.sites]
        self._jobs = [_decode_job(value) for value in snapshot.jobs]
        self._claims = [_decode_claim(value) for value in snapshot.claims]
        self._transfers = [_decode_transfer(value) for value in snapshot.transfers]
        self._names = [belief.name for belief in self._beliefs]
        self._same_sites = self._names == ledger.names
        # By the number of a site in the snapshot its index in this grid; -1 for one that is missing.
        self._here = [ledger.index.get(name, -1) for name in self._names]
        self._left: set[Token] = set()  # components that have left with their sites
        self._seen_once: dict[Seen, Seen] = {}  # many jobs were refused on the very same idle processors

    def run(self) -> None:
        snapshot, ledger = self._snapshot, self._ledger
        for job, request in zip(self._jobs, snapshot.requests, strict=True):
            job.bind(request, ledger.states)
        _nothing_is_left_at_missing_sites(self._names, self._here, self._jobs, self._claims, self._transfers)
        ledger.now = snapshot.now
        self._placing.last_job = snapshot.last_job
        self._placing.last_removed = snapshot.last_removed
        self._ledger.last_runs = dict(snapshot.last_runs)
        self._ledger.last_named_runs = dict(snapshot.last_named_runs)
        self._ledger.preempted_at = list(snapshot.preempted_at)
        self._ledger.kept_early = list(snapshot.kept_early)
        for belief, index in zip(self._beliefs, self._here, strict=True):
            if index >= 0:
                ledger.sites.put(index, belief)
        self._restore_files()
        for job in self._jobs:
            self._restore_job(job)
        for job in ledger.jobs.values():
            if job.array in ledger.arrays:
                job.join_array(ledger.arrays[job.array])
        over = {each.job for each in snapshot.turned if each.outcome is not None}
        for became in snapshot.turned:
            first = became is snapshot.turned[0]
            ledger.follow_ups.add(Work.NOTIFY_DEPENDENTS, became, snapshot.turned_told if first else None)
        for other in ledger.dependents:
            if other not in ledger.jobs and other not in over and ledger.array_of(other) is None:
                gone = EndedJob(job=other, outcome=JobOutcome.CANCELLED, started=False)  # an operator took it out
                ledger.note_dependency(gone)
        for job in ledger.jobs.values():
            if job.array and job.array not in ledger.arrays:
                ledger.follow_ups.add(Work.CANCEL_ELEMENTS, job.array)
        self._restore_transfers()
        self._restore_forecasts()
        self._restore_claims()
        self._restore_queues()
        for value in snapshot.timers:
            at, what, whom = _decode_timer(value)
            self._restore_timer(known_time(at), what, whom)
        self._restore_links()
        # Between events nothing is due of an array but what its timer tells; one that lacks it would wait for ever.
        for array in ledger.arrays.values():
            if array.state is JobState.UNFOLDING and array.timer is None:
                ledger.follow_ups.add(Work.UNFOLD, array.id)
        changes = 0 if self._same_grid else 1  # on another grid there may be more for those who wait
        ledger.sites.restored(snapshot.changed + changes, gains=snapshot.helped + changes)

    def _site(self, number: int) -> int:
        """The index of a site that must be there."""
        index = self._site_or_none(number)
        assert index >= 0, "nothing is left at a missing site"
        return index

    def _site_or_none(self, number: int) -> int:
        """The index of a site, -1 where the grid has it no more."""
        if not 0 <= number < len(self._here):
            raise damaged(f"there is no site with the number {number}")
        return self._here[number]

    def _sites_left(self, numbers: Iterable[int]) -> list[int]:
        """The indexes of those that the grid still has."""
        return [index for index in map(self._site_or_none, numbers) if index >= 0]

    def _seen(self, seen: Seen) -> Seen:
        """What a try saw, by the sites of this grid; of new sites and of the links of another grid it saw nothing."""
        idle, link_demand_bit_s = seen
        if len(idle) != len(self._names):
            raise damaged(f"of {len(self._names)} sites {len(idle)} have idle processors")
        if (
            link_demand_bit_s
            and self._same_grid
            and len(link_demand_bit_s) != len(self._ledger.sites.view.wiring.names)
        ):
            raise damaged("what was on the links is of another network")
        if not self._same_sites:
            idle_of = dict(zip(self._names, idle, strict=True))
            idle = tuple([idle_of.get(name, 0) for name in self._ledger.names])
        found = idle, link_demand_bit_s if self._same_grid else ()
        return self._seen_once.setdefault(found, found)

    # ----------------------------------------------------------------------------------------- jobs

    def _restore_job(self, job: Job) -> None:
        if not self._same_sites:
            # The story speaks of the sites by their old numbers, and from now on by their names.
            _, *story = story_of(job, self._names)
            pairs = zip(job.story, story, strict=True)
            job.story = [entry if entry[1] == "left_out" else named(now) for entry, now in pairs]
        if job.refused is not None:
            job.refused = self._seen(job.refused)
        elif any(entry[1] == "refused" for entry in job.story):
            raise damaged(f"what job {job.id} saw at its first try is missing")
        if job.placed_at is not None:
            job.start_estimate = known_time(job.start_estimate)
            job.first_start_estimate = known_time(job.first_start_estimate)
        if job.plan is not None:
            self._restore_plan(job)
        if job.placement is not None:
            self._restore_places(job, job.placement)
        if job.state in ENDED:
            self._ledger.ended[job.id] = job
            return
        self._ledger.add(job)
        for _, other in job.waits_for:
            self._ledger.dependents.setdefault(other, {})[job.id] = None
        if not self._same_grid:  # another grid may have what the sites of this one would not run
            job.barred = {}
            job.avoided = {}
            job.avoiding = ()
            job.failed_nodes = {}
        if job.avoided or job.avoiding:
            self._ledger.avoiders[job.id] = None
        if job.state is not JobState.QUARANTINED:  # its demand may be what cannot be had
            self._restore_demand(job)

    def _restore_places(self, job: Job, placed: JobPlaces) -> None:
        placed.start_at = known_time(placed.start_at)
        placed.deadline = known_time(placed.deadline)
        placed.hold_until = known_time(placed.hold_until)
        placed.claim_at = known_time(placed.claim_at)
        sites, sizes, tasks = placed.spots
        if not len(sites) == len(sizes) == len(placed.places) or len(tasks) not in (0, len(sites)):
            raise damaged(f"the places of job {job.id} do not go together")
        if job.state in ENDED:
            if not self._same_sites:
                placed.spots = Spots((), ())  # their names tell where it was
            return
        placed.spots = placed.spots._replace(sites=tuple([self._site(number) for number in sites]))
        placed.earmarks = {_within(component, sites): placed.spots.sites[component] for component in placed.earmarks}
        placed.needs = [tuple([self._key(key) for key in keys]) for keys in placed.needs]

    def _restore_plan(self, job: Job) -> None:
        """On another grid it is planned anew."""
        if self._same_grid and job.state is JobState.WAITING:
            self._ledger.planned[job.id] = job
        else:
            job.plan = None

    def _restore_demand(self, job: Job) -> None:
        try:
            job.asks = self._placing.demand_for(job)
        except UnknownPolicyError as error:
            raise SnapshotError(
                f"job {job.id} ({job.request.name}) asks for the policy {error.name!r}, which is not known any more",
                "start with the file or package that has the policy, or cancel the job there first",
            ) from error
        if job.barred:
            job.asks = job.demand.barring(self._ledger.index[site] for site in job.barred)
        if job.avoiding:
            job.asks = job.demand.barring(self._ledger.index[site] for site in job.avoiding)

    # ------------------------------------------------------------------- claims, transfers and files

    def _key(self, key: TransferKey) -> TransferKey:
        file, chunk, site = key
        return file, chunk, self._site(site)

    def _restore_transfers(self) -> None:
        ledger, transfers = self._ledger, self._ledger.transfers
        transfers.sequence = self._snapshot.transfers_started
        for transfer in self._transfers:
            transfer.key = self._key(transfer.key)
            transfer.source = self._site_or_none(transfer.source) if transfer.source >= 0 else -1
            if transfer.source < 0 and not transfer.done:
                raise damaged(f"the transfer {transfer.id} is under way from nowhere")
            transfer.estimate_s = known_time(transfer.estimate_s)
            transfer.failed_sources = self._sites_left(transfer.failed_sources)
            for job_id in transfer.jobs:
                _known(ledger.jobs, job_id, "job")
            transfers.by_id[transfer.id] = transfers.by_key[transfer.key] = transfer
        for job in ledger.jobs.values():
            placed = job.placement
            if placed is None:
                continue
            placed.transfers = transfers.needed(placed)
            placed.transfers_open = sum(not transfer.done for transfer in placed.transfers.values())
            if any(job.id not in transfer.jobs for transfer in placed.transfers.values()):
                raise damaged(f"a transfer for job {job.id} does not name it")

    def _restore_forecasts(self) -> None:
        forecasts = self._ledger.forecasts
        for value in self._snapshot.links:
            series = _decode_series(value)
            pair = self._sites_left((series.source, series.target))
            if len(pair) == 2:
                series.source, series.target = pair
                forecasts.put(series)
        if self._same_grid and self._snapshot.probes is not None:
            forecasts.probe_cursor, forecasts.probe_at = self._snapshot.probes

    def _restore_files(self) -> None:
        sites = self._ledger.sites
        for name, (size_bytes, holders) in self._snapshot.files.items():
            left = self._sites_left(holders)
            if left:
                sites.view.files[name] = FileAt(size_bytes, tuple(sorted(left)))
            else:
                sites.view.files.pop(name, None)
            sites.files_told[name] = None

    def _restore_claims(self) -> None:
        """The claims, and what is promised and earmarked at each site: that follows from claims and jobs."""
        ledger = self._ledger
        sites = ledger.sites.sites
        for claim in self._claims:
            if self._site_or_none(claim.site) < 0:  # it is fenced, and has left the grid with its site
                self._left.add(claim.token)
                continue
            job = ledger.jobs.get(claim.job_id) or _known(ledger.ended, claim.job_id, "job")
            claim.bind(job)
            claim.due_at = known_time(claim.due_at)
            claim.placed_at, claim.held_at = known_time(claim.placed_at), known_time(claim.held_at)
            claim.site = self._site(claim.site)
            ledger.claims[claim.token] = claim
            sites[claim.site].claims[claim.token] = claim
            sites[claim.site].ours += claim.processors
            if not claim.given_up and job.state not in ENDED:
                job.placed.claims[_within(claim.component, job.placed.claims)] = claim
        for job in ledger.jobs.values():
            if job.state not in IN_CLAIMING_QUEUE:
                continue
            placed = job.placed
            for component, (index, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
                if component in placed.earmarks:
                    sites[index].earmarked += size
                elif placed.claims[component] is None:
                    sites[index].promised += size
        self._restore_availability()
        for site in sites:
            for job_id in site.waiters:
                _known(ledger.jobs, job_id, "job")
            if sum(site.waiters.values()) != site.earmarked:
                raise damaged(f"what is earmarked at {site.name} is not what jobs wait for there")

    def _restore_availability(self) -> None:
        """Who holds what until when. A snapshot of a scheduler that made no plans does not say so of claims."""
        ledger, availability = self._ledger, self._ledger.sites.availability
        if availability is None:
            return
        availability.now = ledger.now
        for claim in ledger.claims.values():
            if claim.due_at == 0.0 and not self._same_grid:
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
        for index, site in enumerate(ledger.sites):
            site.releases = [(known_time(at), processors) for at, processors in site.releases]
            site.releases_told = [(known_time(at), processors) for at, processors in site.releases_told]
            ledger.sites.hold_for_others(index)

    def _restore_links(self) -> None:
        """What jobs ask of links follows from their places, on this grid's network."""
        ledger, snapshot = self._ledger, self._snapshot
        for job in ledger.jobs.values():
            if job.placement is not None and job.state not in GIVEN_BACK:
                ledger.links.put(job)
        for known in snapshot.learned:
            ledger.links.learned.put(known)
        ledger.links.observations = snapshot.observations
        ledger.sites.view.observed_bisection_bit_s = snapshot.observed_bisection_bit_s

    # --------------------------------------------------------------------------- queues and timers

    def _restore_queues(self) -> None:
        ledger, snapshot = self._ledger, self._snapshot
        ledger.high, ledger.low = high, low = self._queue(snapshot.queues[0]), self._queue(snapshot.queues[1])
        high.high, low.high = True, False
        waiting = [job for job in ledger.jobs.values() if job.state is JobState.WAITING]
        for queue, scans_so_far in zip((high, low), snapshot.scans_so_far, strict=True):
            # With another scan interval the scans are counted otherwise; nobody gains or loses a try by that.
            shift = ledger.scans_so_far(queue) - scans_so_far
            here = [job for job in waiting if job.high is queue.high]
            queue.resting = {job.id: job for job in here if job.position < 0}
            in_line = sorted((job for job in here if job.position >= 0), key=lambda job: job.position)
            queue.standing.restores(in_line)
            for job in in_line:
                job.entered_scan += shift
                if job.exhausted_at_scan is not None:
                    job.exhausted_at_scan += shift
                queue.stand(job)
        for job in ledger.jobs.values():
            if job.state in IN_CLAIMING_QUEUE:
                ledger.claiming.stand(job, job.placed.claim_at, job.placed.claim_sequence)
        ledger.claiming.sequence = snapshot.claiming_sequence

    def _queue(self, value: Value) -> PlacementQueue:
        queue = _decode_queue(value)
        queue.every_event = self._ledger.scans_every_event
        queue.by_arrival = self._ledger.plans_made
        self._ledger.order_for(queue)
        queue.scan_due_at = known_time(queue.scan_due_at)
        queue.seen = [(position, self._seen(seen)) for position, seen in queue.seen]
        return queue

    def _restore_timer(self, at: float, what: Alarm, whom: Whom) -> None:
        ledger = self._ledger
        if what is Alarm.COOLED_DOWN:
            index = self._site_or_none(int(whom))
            if index >= 0:
                ledger.sites.sites[index].cooling = ledger.timers.set(at, what, index)
            return
        owner: Job | ComponentClaim | FileTransfer
        if what in OF_CLAIMS:
            if whom in self._left:
                return
            owner = _known(ledger.claims, str(whom), "component")
        elif what is Alarm.TRANSFER_OVERDUE:
            owner = _known(ledger.transfers.by_id, str(whom), "transfer")
        else:
            owner = _known(ledger.jobs, int(whom), "job")
        owner.timer = ledger.timers.set(at, what, whom)


def _known(mapping: Mapping[AnyKey, AnyValue], key: AnyKey, what: str) -> AnyValue:
    found = mapping.get(key)
    if found is None:
        raise damaged(f"it speaks of the {what} {key}, which is not in it")
    return found


def _within(component: int, components: Sequence[object]) -> int:
    if not 0 <= component < len(components):
        raise damaged(f"there is no component {component} among {len(components)}")
    return component


# ----------------------------------------------------------------------------------- on another grid


def _fit_to_grid(ledger: Ledger) -> None:
    """The grid is not the one that the snapshot was taken on: what was planned by its parameters is planned anew."""
    for queue in (ledger.high, ledger.low):
        queue.scan_due_at = INFINITY
        queue.untried = queue.size > 0
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
    """Whatever is held, promised or on its way must have its site in the grid; the first that lacks is told. What is
    fenced at a lost site counts for nothing, and may leave with it."""
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
            raise SnapshotError(
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
