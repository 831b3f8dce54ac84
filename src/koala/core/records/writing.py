"""Which records have changed since the last write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from koala.core.encoded import INFINITY, sparse
from koala.core.life.job import Job
from koala.core.records.record import (
    ELEMENTS_IN_BLOCK,
    FORMAT,
    HIGH,
    LOW,
    Kind,
    Record,
    SchedulerRecord,
    elements_fields,
    encode,
    job_fields,
    pair_key,
    places_fields,
    run_fields,
    transfer_key,
)
from koala.core.state.ledger import Ledger
from koala.core.state.network.forecasts import LinkForecasts
from koala.model.grid import Grid
from koala.model.messages import Token
from koala.model.request import FileName, JobId


def grid_digest(grid: Grid) -> str:
    """Return a digest that is equal for equal grids only."""
    return hashlib.sha256(msgspec.json.encode(grid)).hexdigest()


class RecordWriter:
    """Makes the records of one ledger."""

    def __init__(self, ledger: Ledger, grid: Grid) -> None:
        self._ledger = ledger
        self._described = grid
        self._written: dict[tuple[Kind, str], bytes] = {}  # queues and counters, as last written

    def changed(self, last_job: JobId) -> list[Record]:
        """Return the records that have changed since the last call."""
        changes = self._ledger.changes
        found = [
            *self._of_jobs(changes.jobs, changes.places, changes.runs),
            *self._elements(changes.elements, changes.jobs),
            *(self._claim(token) for token in changes.claims),
            *(self._transfer(key) for key in changes.transfers),
            *(self._site(index) for index in changes.sites),
            *(self._link(pair) for pair in changes.links),
            *(self._application(name) for name in changes.applications),
            *(self._usual_run(key) for key in changes.usual_runs),
            *(self._file(name) for name in changes.files),
        ]
        changes.clear()
        for record in self._few(last_job):
            assert record.body is not None
            if self._written.get((record.kind, record.key)) != record.body:
                self._written[record.kind, record.key] = record.body
                found.append(record)
        return found

    def all(self, last_job: JobId) -> list[Record]:
        """Return every record, including those already written."""
        ledger = self._ledger
        jobs = dict.fromkeys([*ledger.jobs, *ledger.claims_of])
        found = [
            *self._of_jobs(jobs, jobs, jobs),
            *self._elements(
                (array.id, position) for array in ledger.arrays.values() for position in array.elements.not_done
            ),
            *(self._claim(token) for token in ledger.claims),
            *(self._transfer(key) for key in ledger.transfers.by_key),
            *(self._site(index) for index in range(len(ledger.names))),
            *(self._link(pair) for pair in ledger.forecasts.series),
            *(self._application(name) for name in ledger.links.learned.applications),
            *(self._usual_run(key) for key in (*ledger.last_runs, *ledger.last_named_runs)),
            *(self._file(name) for name in ledger.sites.files_told),
            *self._few(last_job),
        ]
        return [record for record in found if record.body is not None]

    @cached_property
    def _digest(self) -> str:
        return grid_digest(self._described)

    # ------------------------------------------------------------------------------------------- by kind

    def _of_jobs(self, jobs: Iterable[JobId], places: Iterable[JobId], runs: Iterable[JobId]) -> Iterator[Record]:
        for kind, numbers, fields_of in (
            (Kind.JOB, jobs, job_fields),
            (Kind.PLACES, places, places_fields),
            (Kind.RUN, runs, run_fields),
        ):
            for number in numbers:
                job = self._kept(number)
                fields = {} if job is None else fields_of(job)
                yield Record(kind, str(number), encode(fields) if fields else None)

    def _elements(self, not_done: Iterable[tuple[JobId, int]], changed: Iterable[JobId] = ()) -> Iterator[Record]:
        """Yield the blocks of these elements, and all blocks of arrays that have ended."""
        blocks = {(number, position // ELEMENTS_IN_BLOCK): None for number, position in not_done}
        for number in changed:
            array = self._ledger.ended.get(number)
            if array is not None and array.unfolds is not None:
                blocks |= {(number, position // ELEMENTS_IN_BLOCK): None for position in array.elements.not_done}
        for number, block in blocks:
            job = self._ledger.jobs.get(number)
            fields = {} if job is None else elements_fields(job, block)
            yield Record(Kind.ELEMENTS, f"{number}.{block}", encode(fields) if fields else None)

    def _kept(self, number: JobId) -> Job | None:
        """Return a job that has not ended, or whose components a site still holds."""
        job = self._ledger.jobs.get(number)
        if job is None and (claims := self._ledger.claims_of.get(number)):
            job = next(iter(claims.values())).job
        return job

    def _claim(self, token: Token) -> Record:
        claim = self._ledger.claims.get(token)
        return Record(Kind.CLAIM, token, None if claim is None else encode(sparse(claim)))

    def _transfer(self, key: tuple[str, tuple[int, int] | None, int]) -> Record:
        transfer = self._ledger.transfers.by_key.get(key)
        return Record(Kind.TRANSFER, transfer_key(key), None if transfer is None else encode(sparse(transfer)))

    def _site(self, index: int) -> Record:
        site = self._ledger.sites.sites[index]
        return Record(Kind.SITE, site.name, encode(sparse(site)))

    def _link(self, pair: tuple[int, int]) -> Record:
        series = self._ledger.forecasts.series.get(pair)
        names = self._ledger.names
        key = pair_key((names[pair[0]], names[pair[1]]))
        return Record(Kind.LINK, key, None if series is None else encode(series))

    def _application(self, name: str) -> Record:
        known = self._ledger.links.learned.applications.get(name)
        return Record(Kind.APPLICATION, name, None if known is None else encode(known))

    def _usual_run(self, key: tuple[str, str]) -> Record:
        known = (self._ledger.last_named_runs if key[1] else self._ledger.last_runs).get(key)
        return Record(Kind.USUAL_RUN, pair_key(key), None if known is None else encode(known))

    def _file(self, name: FileName) -> Record:
        sites = self._ledger.sites
        if name not in sites.files_told:
            return Record(Kind.FILE, name, None)
        file = sites.view.files.get(name)
        return Record(Kind.FILE, name, encode((0, ()) if file is None else (file.size_bytes, file.holders)))

    def _few(self, last_job: JobId) -> Iterator[Record]:
        """Yield the queues and the counters."""
        ledger, now = self._ledger, self._ledger.now
        for key, queue in ((HIGH, ledger.high), (LOW, ledger.low)):
            yield Record(Kind.QUEUE, key, encode(sparse(queue)))
        counters = SchedulerRecord(
            version=FORMAT,
            grid=self._digest,
            sites=tuple(ledger.names),
            now=now,
            last_job=last_job,
            generation=ledger.sites.generation,
            gained_at=ledger.sites.gained_at,
            scans_so_far=(ledger.scans.so_far(ledger.high, now), ledger.scans.so_far(ledger.low, now)),
            claiming_sequence=ledger.claiming.sequence,
            transfers_started=ledger.transfers.sequence,
            alarms_set=ledger.timers.set_so_far,
            jobs_known=ledger.jobs_known,
            claims_made=ledger.claims_made,
            live=(len(ledger.jobs), len(ledger.claims)),
            observations=ledger.links.observations,
            observed_bisection_bit_s=ledger.sites.view.observed_bisection_bit_s,
            links_measured=ledger.forecasts.measured,
            applications_measured=ledger.links.learned.measured,
            runs_noted=ledger.runs_noted,
            probes=_probes(ledger.forecasts),
            preempted_at=tuple(ledger.preempted_at),
            dependency_events=tuple(ledger.dependency_events),
            last_notified=ledger.last_notified,
            kept_early=tuple(ledger.kept_early),
        )
        yield Record(Kind.SCHEDULER, "", encode(counters))


def _probes(forecasts: LinkForecasts) -> tuple[int, float] | None:
    if forecasts.probe_at == INFINITY:
        return None
    return forecasts.probe_cursor, forecasts.probe_at
