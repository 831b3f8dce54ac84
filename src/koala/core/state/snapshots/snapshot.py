"""The snapshot of the core: everything that decides what it will do next, as values that turn into JSON and back.

A snapshot is a header and one encoded value for each site, queue, job, claim, transfer and timer. The values are the
objects of the ledger as msgspec encodes them, so there is nothing to keep in step here; each can be stored by itself.
A scheduler that is made from a snapshot (``koala.core.restore``) goes on exactly like the one that it was taken of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from koala.core.state.encoded import INFINITY, Time
from koala.core.state.forecasts import LinkForecasts
from koala.core.state.learned_traffic import LearnedApplication
from koala.core.state.ledger import Ledger
from koala.model.grid import Grid
from koala.model.messages import EndedJob
from koala.model.request import FileName, JobId, Request

# The format below; a snapshot of another one is refused.
FORMAT = 2
# Between so many jobs whoever has the snapshot taken may do something else.
STEP_JOBS = 500
# So many requests are encoded at once.
ENCODED_REQUESTS = 500

# A site, a queue, a job, a claim, a transfer, a timer or a link, encoded.
Value: TypeAlias = msgspec.Raw


class SnapshotError(ValueError):
    """A snapshot that cannot be read, or that does not go with the grid or the policies; nothing has been changed."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure

    def for_user(self) -> str:
        """What is wrong, and what to do."""
        return f"{self.problem}; {self.cure}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything, at one moment between two events. Sites are numbered as in ``sites``; timers are in their order.

    - ``grid``: the digest of the grid that it was taken on;
    - ``last_removed``: a job that was taken out of the record before it was in any snapshot: its number is used up;
    - ``scans_so_far``: the scans of the high and the low queue, as they were counted then;
    - ``observations``: how many jobs make up the observed mean of bandwidths;
    - ``jobs``: the live ones, and those that have ended while a site still holds a component of them;
      ``requests`` are what they ask for, in the same order;
    - ``links``: what was measured from one site to another, the one that was measured last at the end;
    - ``probes``: which link is looked at next for a probe, and when; None where there are none;
    - ``files``: those whose replicas are not as the grid says: size in bytes, sites;
    - ``learned``: what jobs of a name were measured to send, the one that was measured last at the end;
    - ``turned``: jobs that have started or ended, which those who wait for them are not all told yet; of the first
      those up to the job ``turned_told`` are;
    - ``last_runs``: by user, how long the last runs took, the user that was seen last at the end;
      ``last_named_runs`` the same by user and name of the jobs;
    - ``preempted_at``: when jobs were preempted for places of others, within the last hour;
    - ``kept_early``: what jobs keep, or kept lately, before the times of their plans: job, processors, since, until.

    When the scheduler is due is not here: whoever restores one sends a ``Tick`` first.
    """

    version: int
    grid: str
    now: float
    last_job: JobId
    helped: int
    changed: int
    scans_so_far: tuple[int, int]
    claiming_sequence: int
    transfers_started: int
    observations: int
    observed_bisection_bit_s: float
    sites: tuple[Value, ...]
    queues: tuple[Value, Value]
    jobs: tuple[Value, ...]
    claims: tuple[Value, ...]
    transfers: tuple[Value, ...]
    timers: tuple[Value, ...]
    links: tuple[Value, ...]
    files: dict[FileName, tuple[int, tuple[int, ...]]]
    last_removed: JobId = -1
    requests: tuple[Request, ...] = ()
    probes: tuple[int, Time] | None = None
    last_runs: dict[str, tuple[float, ...]] = {}
    last_named_runs: dict[str, tuple[float, ...]] = {}
    preempted_at: tuple[float, ...] = ()
    learned: tuple[LearnedApplication, ...] = ()
    turned: tuple[EndedJob, ...] = ()
    turned_told: JobId = 0
    kept_early: tuple[tuple[JobId, int, float, float], ...] = ()


class _Version(msgspec.Struct):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)
_version_decoder = msgspec.json.Decoder(_Version)


def grid_digest(grid: Grid) -> str:
    """Tells grids apart: equal for equal grids only."""
    return hashlib.sha256(msgspec.json.encode(grid)).hexdigest()


def take_snapshot(
    ledger: Ledger, *, grid: str, last_job: JobId, last_removed: JobId
) -> Generator[None, None, Snapshot]:
    """The snapshot as of the last event. It is a value: what the ledger does later does not change it.

    It is taken in short steps, and no event may be handled before the last one. Requests never change, so that they
    are left to be encoded later.
    """
    gone = {claim.job_id: claim.job for claim in ledger.claims.values() if claim.job_id not in ledger.jobs}
    jobs: list[Value] = []
    requests: list[Request] = []
    for number, job in enumerate((*ledger.jobs.values(), *gone.values()), start=1):
        jobs.append(_value(job))
        requests.append(job.described)
        if number % STEP_JOBS == 0:
            yield
    claims = _values(ledger.claims.values())
    yield
    files = ledger.sites.view.files
    told = {name: files.get(name) for name in ledger.sites.files_told}
    return Snapshot(
        version=FORMAT,
        grid=grid,
        now=ledger.now,
        last_job=last_job,
        last_removed=last_removed,
        helped=ledger.sites.gains,
        changed=ledger.sites.generation,
        scans_so_far=(ledger.scans_so_far(ledger.high), ledger.scans_so_far(ledger.low)),
        claiming_sequence=ledger.claiming.sequence,
        transfers_started=ledger.transfers.sequence,
        observations=ledger.links.observations,
        observed_bisection_bit_s=ledger.sites.view.observed_bisection_bit_s,
        sites=_values(ledger.sites),
        queues=(_value(ledger.high), _value(ledger.low)),
        jobs=tuple(jobs),
        claims=claims,
        transfers=_values(ledger.transfers.by_key.values()),
        timers=_values([(timer.at, timer.what, timer.whom) for timer in ledger.timers.all()]),
        links=_values(ledger.forecasts.series.values()),
        files={name: (0, ()) if file is None else (file.size_bytes, file.holders) for name, file in told.items()},
        requests=tuple(requests),
        probes=_probes(ledger.forecasts),
        last_runs=dict(ledger.last_runs),
        last_named_runs=dict(ledger.last_named_runs),
        preempted_at=tuple(ledger.preempted_at),
        learned=tuple(each.copied() for each in ledger.links.learned.applications.values()),
        turned=tuple(ledger.dependency_events),
        turned_told=ledger.last_notified,
        kept_early=tuple(ledger.kept_early),
    )


def _probes(forecasts: LinkForecasts) -> tuple[int, Time] | None:
    if forecasts.probe_at == INFINITY:
        return None
    return forecasts.probe_cursor, forecasts.probe_at


def _value(part: object) -> Value:
    return msgspec.Raw(_encoder.encode(part))


def _values(parts: Iterable[object]) -> tuple[Value, ...]:
    return tuple([_value(part) for part in parts])


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as JSON; equal ones give equal bytes.

    Requests are encoded some at a time, so that other threads of the interpreter have their turn in between.
    """
    requests = snapshot.requests
    rest = _encoder.encode(msgspec.structs.replace(snapshot, requests=()))
    if not requests:
        return rest
    steps = range(0, len(requests), ENCODED_REQUESTS)
    encoded = b",".join([_encoder.encode(requests[start : start + ENCODED_REQUESTS])[1:-1] for start in steps])
    # Defaults are left out, so that the rest does not name the requests.
    return b'%b,"requests":[%b]}' % (rest[:-1], encoded)


def decode_snapshot(text: bytes | str) -> Snapshot:
    """A snapshot from its JSON, exactly as it was. Raises SnapshotError for what is none, or of another format."""
    try:
        version = _version_decoder.decode(text).version
        check_version(version)
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise damaged(str(error)) from error


# ------------------------------------------------------------------------------------------------ in parts

# The lists of a snapshot whose values are encoded already.
_VALUES = ("sites", "queues", "jobs", "claims", "transfers", "timers", "links")
_NO_QUEUES = (msgspec.Raw(b"null"), msgspec.Raw(b"null"))
_FILE = msgspec.json.Decoder(tuple[FileName, int, tuple[int, ...]])


class _Numbered(msgspec.Struct):
    id: JobId


_numbered_decoder = msgspec.json.Decoder(_Numbered)


def split_snapshot(snapshot: Snapshot) -> tuple[bytes, dict[str, list[bytes]]]:
    """A short header, and by section its values, in JSON. Requests are left out: whoever keeps the snapshot keeps
    them by job, as they never change."""
    sections = {name: [bytes(value) for value in getattr(snapshot, name)] for name in _VALUES}
    sections["files"] = [_encoder.encode((name, *file)) for name, file in snapshot.files.items()]
    empty: dict[str, tuple[()]] = dict.fromkeys(_VALUES, ()) | {"requests": ()}
    header = msgspec.structs.replace(snapshot, **empty | {"queues": _NO_QUEUES, "files": {}})
    return _encoder.encode(header), sections


def job_numbers(sections: Mapping[str, Sequence[bytes]]) -> list[JobId]:
    """The jobs of a split snapshot, in order: their requests go with it."""
    try:
        return [_numbered_decoder.decode(value).id for value in sections["jobs"]]
    except (msgspec.MsgspecError, LookupError) as error:
        raise damaged(str(error)) from error


def join_snapshot(header: bytes, sections: Mapping[str, Sequence[bytes]], requests: Iterable[Request]) -> Snapshot:
    """The snapshot that was split, with the requests of its jobs in their order. Raises SnapshotError."""
    try:
        check_version(_version_decoder.decode(header).version)
        values = {name: tuple([msgspec.Raw(value) for value in sections[name]]) for name in _VALUES}
        files = [_FILE.decode(value) for value in sections["files"]]
        return msgspec.structs.replace(
            _decoder.decode(header),
            **values,
            files={name: (size_bytes, holders) for name, size_bytes, holders in files},
            requests=tuple(requests),
        )
    except (msgspec.MsgspecError, LookupError) as error:
        raise damaged(str(error)) from error


def check_version(version: int) -> None:
    if version != FORMAT:
        raise SnapshotError(
            f"the snapshot of the scheduler has the format {version}, and this Koala reads the format {FORMAT}",
            "start the Koala that wrote it",
        )


def damaged(problem: str) -> SnapshotError:
    return SnapshotError(
        f"the snapshot of the scheduler is damaged: {problem}", "put back a copy of the state that was made before"
    )
