"""Reads records: a record that cannot be read, or contradicts the rest, is set aside with its job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from koala.core.encoded import names_of
from koala.core.life.component import ComponentClaim
from koala.core.life.job import PHASES, Job
from koala.core.life.places import FileTransfer
from koala.core.life.quarantined import Quarantined
from koala.core.life.states import ENDED, JobState
from koala.core.life.waiting import Seen, Waiting
from koala.core.records.invariants import JobInRecords, contradiction
from koala.core.records.record import FORMAT, HIGH, Kind, SchedulerRecord, job_of_key, joined, pair_key, transfer_key
from koala.core.state.ledger import Ledger
from koala.core.state.network.forecasts import LinkSeries
from koala.core.state.network.learned_traffic import LearnedApplication
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.site_belief import SiteBelief
from koala.core.timers import Alarm
from koala.model.dependency import Condition, Dependency
from koala.model.request import JobId, Request, SiteName

_ENDED = frozenset(str(state) for state in ENDED)
_STARTED = frozenset(map(str, (JobState.RUNNING, JobState.UNWINDING, JobState.COLLECTING)))

AnyRecord = TypeVar("AnyRecord")

_decode_counters = msgspec.json.Decoder(SchedulerRecord).decode
_decode_site = msgspec.json.Decoder(SiteBelief).decode
_decode_queue = msgspec.json.Decoder(PlacementQueue).decode
_decode_claim = msgspec.json.Decoder(ComponentClaim).decode
_decode_transfer = msgspec.json.Decoder(FileTransfer).decode
_decode_series = msgspec.json.Decoder(LinkSeries).decode
_decode_application = msgspec.json.Decoder(LearnedApplication).decode
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode
_decode_file = msgspec.json.Decoder(tuple[int, tuple[int, ...]]).decode
_decode_run = msgspec.json.Decoder(tuple[int, tuple[float, ...]]).decode
_decode_pair = msgspec.json.Decoder(tuple[str, str]).decode

# Errors that show that a text is no valid record.
UNREADABLE = (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError)


class RecordsError(ValueError):
    """The records do not make a scheduler: they cannot be read, or do not match the grid or the policies."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure

    def for_user(self) -> str:
        """Return what is wrong, and what to do."""
        return f"{self.problem}; {self.cure}"


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver keeps of a job beside its record; it replaces a damaged record when the job is set aside."""

    request: Request
    owner: str = ""
    submitted_at: float = 0.0
    state: str = ""  # as callers see it, if they do
    array: JobId = 0
    index: int | None = None


class DamagedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was set aside, with its job if it belongs to one."""

    kind: Kind
    key: str
    problem: str
    job: JobId | None = None


class RecordReader:
    """The records of one scheduler by their kinds. ``damaged`` are the records set aside so far."""

    def __init__(
        self,
        records: Mapping[Kind, Mapping[str, bytes]],
        known: Mapping[JobId, KnownJob],
        ledger: Ledger,
        grid: str,
    ) -> None:
        self._records = records
        self._known = known
        self._ledger = ledger
        self.damaged: list[DamagedRecord] = []
        self._blocks: dict[str, list[bytes]] = {}  # by array
        for key in sorted(records[Kind.ELEMENTS], key=lambda key: (len(key), key)):
            self._blocks.setdefault(key.partition(".")[0], []).append(records[Kind.ELEMENTS][key])
        try:
            self.counters = _decode_counters(records[Kind.SCHEDULER][""])
        except UNREADABLE as error:
            raise damaged(f"its counters cannot be read ({error})") from error
        if self.counters.version != FORMAT:
            raise RecordsError(
                f"the records of the scheduler have the format {self.counters.version}, and this Koala reads the "
                f"format {FORMAT}",
                "start the Koala that wrote them",
            )
        self.same_grid = self.counters.grid == grid
        self.names: tuple[SiteName, ...] = self.counters.sites
        self._number = {name: number for number, name in enumerate(self.names)}
        self.jobs: list[Job] = []
        self.claims: list[ComponentClaim] = []
        self.transfers: list[FileTransfer] = []

    def sites(self) -> dict[SiteName, SiteBelief]:
        """Return the belief about each site."""
        return dict(self._decoded(Kind.SITE, self._site_of))

    def queues(self) -> dict[str, PlacementQueue]:
        """Return the placement queues without their jobs, as far as their records are whole."""
        return dict(self._decoded(Kind.QUEUE, self._queue_of))

    def links(self) -> list[LinkSeries]:
        """Return the measurements of links, the latest last."""
        return sorted((found for _, found in self._decoded(Kind.LINK, self._series_of)), key=lambda each: each.number)

    def applications(self) -> list[LearnedApplication]:
        """Return the measurements of jobs by their names, the latest last."""
        found = (known for _, known in self._decoded(Kind.APPLICATION, _application_of))
        return sorted(found, key=lambda known: known.number)

    def usual_runs(self) -> list[tuple[tuple[str, str], tuple[int, tuple[float, ...]]]]:
        """Return the last run times of users, the latest last."""
        found = (run for _, run in self._decoded(Kind.USUAL_RUN, _usual_run_of))
        return sorted(found, key=lambda each: each[1][0])

    def files(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return the files whose replicas differ from the grid file: their sizes and sites."""
        return dict(self._decoded(Kind.FILE, self._file_of))

    def read_jobs(self) -> None:
        """Read the records of jobs; an unreadable or contradictory record is set aside with its job."""
        records = self._records
        of_jobs: dict[JobId, JobInRecords] = {}
        self.transfers = [transfer for _, transfer in self._decoded(Kind.TRANSFER, self._transfer_of)]
        self.transfers.sort(key=_number_of)
        transfers = {transfer.key for transfer in self.transfers}
        for key, job in self._decoded(Kind.JOB, self._job_of):
            of_jobs[int(key)] = JobInRecords(job, len(self.names), transfers)
        for token, claim in self._decoded(Kind.CLAIM, _claim_of):
            owner = of_jobs.get(claim.job_id)
            if owner is None:
                self._set_aside(Kind.CLAIM, token, f"there is no record of its job {claim.job_id}", claim.job_id)
            else:
                owner.claims.append(claim)
        for number, found in of_jobs.items():
            problem, shown = contradiction(found), self._known[number].state
            if not problem and shown and shown != found.job.state:
                problem = f"it is {found.job.state}, and shown as {shown}"
            if problem:
                self._set_aside(Kind.JOB, str(number), problem, number)
        for number in self._known.keys() - of_jobs.keys() - self._out():
            self._set_aside(Kind.JOB, str(number), "its record is missing", number)
        beside = (job_of_key(key) for kind in (Kind.PLACES, Kind.RUN) for key in records[kind])
        for other in {job for job in beside if job is not None} - of_jobs.keys() - self._out():
            self._set_aside(Kind.PLACES, str(other), "there is no record of the job itself", other)
        out = self._out()
        for number, found in of_jobs.items():
            if number not in out:
                self.jobs.append(found.job)
                self.claims += found.claims
        self.jobs += [
            self._replaced(number)
            for number in sorted(out & self._known.keys())
            if self._known[number].state not in _ENDED
        ]
        self.jobs.sort(key=lambda job: job.number)
        self.claims.sort(key=lambda claim: claim.number)

    def _out(self) -> set[JobId]:
        """Return the jobs that are set aside."""
        return {each.job for each in self.damaged if each.job is not None}

    def _decoded(self, kind: Kind, decode: Callable[[str, bytes], AnyRecord]) -> Iterator[tuple[str, AnyRecord]]:
        """Yield the readable records of a kind with their keys; the others are set aside."""
        for key, body in self._records[kind].items():
            try:
                found = decode(key, body)
            except UNREADABLE as error:
                job = job_of_key(key) if kind in (Kind.JOB, Kind.CLAIM) else None
                self._set_aside(kind, key, f"it cannot be read: {error}", job)
            else:
                yield key, found

    def _job_of(self, key: str, body: bytes) -> Job:
        """Return a job from its records, linked to its request."""
        number = int(key)
        fields = _decode_fields(body)
        places, run = (_decode_fields(self._records[kind].get(key, b"{}")) for kind in (Kind.PLACES, Kind.RUN))
        elements: dict[str, Any] = {}
        for block in self._blocks.get(key, ()):
            elements |= _decode_fields(block)
        fields = joined(fields, places, run, elements)
        state, own = JobState(fields.pop("state")), fields.pop("phase")
        job = msgspec.convert(fields, Job, str_keys=True)
        if not own.keys() <= names_of(PHASES[state]):
            raise ValueError(f"it is {state}, and has {', '.join(sorted(own.keys() - names_of(PHASES[state])))}")
        job.restore(msgspec.convert(own, PHASES[state], str_keys=True))
        if job.id != number:
            raise ValueError(f"it is about job {job.id}")
        if job.placement is not None:
            sites = tuple([self._number[name] for name, _ in job.placement.places])
            job.placement.spots = job.placement.spots._replace(sites=sites)
            job.placement.claims = [None] * len(sites)
        described = self._known.get(number)
        if described is None:
            raise ValueError("nobody knows what the job asks for")
        if job.unfolds is not None and (job.array or described.request.array is None):
            raise ValueError("it has elements, and is no array")
        job.bind(described.request, self._ledger.states, self._ledger.changes)
        if isinstance(job.phase, Waiting) and job.phase.refused is not None:
            self._check_seen(job.phase.refused)
        if job.plan is not None:
            self._check_sites(*job.plan.spots.sites)
        named = {*job.barred, *job.avoided, *job.avoiding, *job.failed_nodes}
        if self.same_grid and not named <= self._number.keys():
            raise ValueError("it stays away from a site that there is not")
        return job

    def _transfer_of(self, key: str, body: bytes) -> FileTransfer:
        transfer = _decode_transfer(body)
        if transfer_key(transfer.key) != key:
            raise ValueError(f"it is about {transfer_key(transfer.key)}")
        self._check_sites(transfer.key[2], *transfer.failed_sources)
        if transfer.source >= 0 or not transfer.done:
            self._check_sites(transfer.source)
        if _number_of(transfer) < 1:
            raise ValueError(f"{transfer.id!r} is no number of a transfer")
        if not transfer.done and (transfer.timer is None or transfer.timer.what is not Alarm.TRANSFER_OVERDUE):
            raise ValueError("it is under way, and nothing looks after it")
        return transfer

    def _site_of(self, key: str, body: bytes) -> SiteBelief:
        belief = _decode_site(body)
        if belief.name != key:
            raise ValueError(f"it is about {belief.name!r}")
        return belief

    def _series_of(self, key: str, body: bytes) -> LinkSeries:
        series = _decode_series(body)
        self._check_sites(series.source, series.target)
        if pair_key((self.names[series.source], self.names[series.target])) != key:
            raise ValueError("it is about another link")
        return series

    def _queue_of(self, key: str, body: bytes) -> PlacementQueue:
        queue = _decode_queue(body)
        for _, seen in queue.seen:
            self._check_seen(seen)
        positions = [position for position, _ in queue.seen]
        if (
            queue.high is not (key == HIGH)
            or positions != sorted(set(positions))
            or bool(queue.scans) > bool(positions)
        ):
            raise ValueError("its scans do not go together")
        return queue

    def _file_of(self, key: str, body: bytes) -> tuple[int, tuple[int, ...]]:
        size_bytes, holders = _decode_file(body)
        self._check_sites(*holders)
        return size_bytes, holders

    def _check_sites(self, *numbers: int) -> None:
        for number in numbers:
            if not 0 <= number < len(self.names):
                raise ValueError(f"there is no site {number}: there are {len(self.names)}")

    def _check_seen(self, seen: Seen) -> None:
        """Check that what a try saw matches the sites, and the links if these are the same."""
        idle, link_demand_bit_s = seen
        links = len(self._ledger.sites.view.wiring.names)
        if len(idle) != len(self.names):
            raise ValueError(f"a try saw {len(idle)} of {len(self.names)} sites")
        if self.same_grid and len(link_demand_bit_s) not in (0, links):
            raise ValueError(f"a try saw {len(link_demand_bit_s)} of {links} links")

    def _set_aside(self, kind: Kind, key: str, problem: str, job: JobId | None = None) -> None:
        self.damaged.append(DamagedRecord(kind=kind, key=key, problem=problem, job=job))

    def _replaced(self, number: JobId) -> Job:
        """Return a replacement for a job with a damaged record: it holds nothing, and awaits an operator."""
        ledger, known = self._ledger, self._known[number]
        fraction, now = ledger.parameters.claim_fraction, self.counters.now
        job = Job(number, known.submitted_at, claim_fraction=fraction, waiting_since=now)
        job.array, job.index, job.submitter = known.array, known.index, known.owner
        job.guest = self._is_guest(number)
        job.starts = self._starts_of(number)
        if not job.array:
            job.waits_for = [(each.condition, each.job) for each in known.request.after if self._is_to_come(each)]
        job.bind(known.request, ledger.states, ledger.changes)
        problem = next(each.problem for each in self.damaged if each.job == number)
        job.restore(Quarantined(f"its record is damaged: {problem}"))
        return job

    def _is_to_come(self, dependency: Dependency) -> bool:
        """True if the outcome that another job waits for is still open."""
        other = self._known.get(dependency.job)
        if other is None or other.state in _ENDED:
            return False
        return dependency.condition is not Condition.STARTED or other.state not in _STARTED

    def _is_guest(self, number: JobId) -> bool:
        """Return True if the job must keep away from sites that are closed to guests, also if that is unknown."""
        try:
            return bool(_decode_fields(self._records[Kind.JOB][str(number)]).get("guest", False))
        except UNREADABLE:
            return True

    def _starts_of(self, number: JobId) -> int:
        """Return the highest start number of the job in any record."""
        tokens = (token for token in self._records[Kind.CLAIM] if token.startswith(f"{number}."))
        return max([int(start) for token in tokens if (start := token.rpartition(".")[2]).isdecimal()], default=0)


def _claim_of(key: str, body: bytes) -> ComponentClaim:
    claim = _decode_claim(body)
    start = claim.token.removeprefix(f"{claim.job_id}.")
    if claim.token != key or start == claim.token or not (start.isascii() and start.isdecimal()):
        raise ValueError(f"it is about {claim.token} of job {claim.job_id}")
    return claim


def _application_of(_: str, body: bytes) -> LearnedApplication:
    return _decode_application(body)


def _usual_run_of(key: str, body: bytes) -> tuple[tuple[str, str], tuple[int, tuple[float, ...]]]:
    return _decode_pair(key), _decode_run(body)


def _number_of(transfer: FileTransfer) -> int:
    return int(transfer.id.removeprefix("t"))


def damaged(problem: str) -> RecordsError:
    return RecordsError(f"the record of the scheduler is damaged: {problem}", "restore the database from a backup")
