"""The records of the core: their kinds, contents and encoding.

A record is one part of the core's state in JSON, under a kind and a key. Together the records are everything that
decides what the core will do next. A driver that keeps them writes the changed records with the event that changed
them, and makes a scheduler of all records after a restart.

Data that grows with the components of a job, or the elements of an array, has records of its own, so that an event
costs what it changes: ``places`` holds the places and the long memory of a job, ``run`` what its components have sent
and produced, and ``elements`` how elements ended.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import msgspec

from koala.core.encoded import Time, sparse
from koala.core.life.job import Job
from koala.model.messages import EndedJob
from koala.model.request import JobId, SiteName

# The keys of the two queues.
HIGH, LOW = "high", "low"
# The format of the records; records of any other format are refused.
FORMAT = 2
# This many elements of an array share one record of their outcomes.
ELEMENTS_IN_BLOCK = 1_000
# A job number has at most this many digits.
NUMBER_DIGITS_MAX = 18


class Kind(enum.StrEnum):
    """The subject of a record, and its key."""

    SCHEDULER = "scheduler"  # the counters, without a key
    SITE = "site"  # by its name
    QUEUE = "queue"  # "high" or "low"
    JOB = "job"  # by its number
    PLACES = "places"  # of a job
    RUN = "run"  # of a job
    ELEMENTS = "elements"  # of an array: the elements of a block that are not done, by "JOB.BLOCK"
    CLAIM = "claim"  # by its token
    TRANSFER = "transfer"  # by its file, piece and site
    LINK = "link"  # by its source and target sites
    APPLICATION = "application"  # by the name of its jobs
    USUAL_RUN = "usual_run"  # by the user and the name of the jobs
    FILE = "file"  # by its name


# Records about one job: the key is its number, or begins with it.
OF_JOBS = frozenset({Kind.JOB, Kind.PLACES, Kind.RUN, Kind.ELEMENTS, Kind.CLAIM})


class Record(NamedTuple):
    """One record; a record without a body is gone."""

    kind: Kind
    key: str
    body: bytes | None


class SchedulerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counters of a scheduler, and its state that belongs to no single job or site.

    - ``grid``: the digest of the grid; ``sites``: the site names by their numbers in other records;
    - ``scans_so_far``: the scans of the high and the low queue, as counted at ``now``;
    - ``live``: the number of jobs and claims: if fewer are left, somebody took some out;
    - ``observations``: the number of jobs in the observed mean of bandwidths;
    - ``probes``: the link to examine next for a probe, and when; None if there are no probes;
    - ``dependency_events``: jobs that have started or ended and whose dependents have not all been notified; the
      dependents of the first job up to ``last_notified`` have been;
    - ``preempted_at``: when jobs were preempted for the places of others, within the last hour;
    - ``kept_early``: what jobs keep, or kept lately, before their planned starts: job, processors, since, until.

    The next due time is not here: after a load the driver sends a ``Tick`` first.
    """

    version: int
    grid: str
    sites: tuple[SiteName, ...]
    now: float
    last_job: JobId
    generation: int
    gained_at: int
    scans_so_far: tuple[int, int]
    claiming_sequence: int
    transfers_started: int
    alarms_set: int
    jobs_known: int
    claims_made: int
    live: tuple[int, int]
    observations: int = 0
    observed_bisection_bit_s: float = 0.0
    links_measured: int = 0
    applications_measured: int = 0
    runs_noted: int = 0
    probes: tuple[int, Time] | None = None
    preempted_at: tuple[float, ...] = ()
    dependency_events: tuple[EndedJob, ...] = ()
    last_notified: JobId = 0
    kept_early: tuple[tuple[JobId, int, float, float], ...] = ()


# The fields of a job, its places and its run that are in other records.
_ELSEWHERE_OF_JOB = frozenset({"checkpoint_runs", "went_on_from", "spawned"})
_ELSEWHERE_OF_ELEMENTS = frozenset({"not_done"})
_ELSEWHERE_OF_PLACES = frozenset({"spots", "places", "needs"})
_OF_RUN = ("collected", "sent", "unmeasured", "workspaces")
_ELSEWHERE_OF_PHASE = frozenset({*_OF_RUN, "placement"})

_encode = msgspec.json.Encoder().encode


def encode(value: Any) -> bytes:
    """Return a value in JSON. Half surrogates, as in file names that are not valid text, are written as escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_readable(msgspec.to_builtins(value, str_keys=True)))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(each) for key, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list | tuple) else value


def job_fields(job: Job) -> dict[str, Any]:
    """Return the contents of a job's record."""
    found: dict[str, Any] = sparse(job, _ELSEWHERE_OF_JOB)
    if job.unfolds is not None:
        found["unfolds"] = sparse(job.unfolds, _ELSEWHERE_OF_ELEMENTS)
    found["state"] = job.state
    found["phase"] = phase = sparse(job.phase, _ELSEWHERE_OF_PHASE)
    if job.placement is not None:
        phase["placement"] = sparse(job.placement, _ELSEWHERE_OF_PLACES)
    return found


def places_fields(job: Job) -> dict[str, Any]:
    """Return the contents of the record of its places: empty for a job without places and long memory."""
    found: dict[str, Any] = {
        name: value for name in ("checkpoint_runs", "went_on_from", "spawned") if (value := getattr(job, name))
    }
    placed = job.placement
    if placed is not None:
        found["places"] = placed.places
        if placed.spots.tasks:
            found["tasks"] = placed.spots.tasks
        if placed.needs:
            found["needs"] = placed.needs
    return found


def run_fields(job: Job) -> dict[str, Any]:
    """Return the contents of the record of its run: empty if no component has sent, left or produced anything."""
    return {name: value for name in _OF_RUN if (value := getattr(job.phase, name, None))}


def elements_fields(job: Job, block: int) -> dict[int, str]:
    """Return the contents of the record of a block of elements: the outcomes of those that are not done."""
    if job.unfolds is None or not job.unfolds.not_done:
        return {}
    not_done = job.unfolds.not_done
    positions = range(block * ELEMENTS_IN_BLOCK, (block + 1) * ELEMENTS_IN_BLOCK)
    return {position: not_done[position] for position in positions if position in not_done}


def joined(
    job: dict[str, Any], places: dict[str, Any], run: dict[str, Any], elements: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a job, joined from its records; the caller numbers the sites of its places."""
    if elements:
        job["unfolds"]["not_done"] = elements
    for name in ("checkpoint_runs", "went_on_from", "spawned"):
        if name in places:
            job[name] = places[name]
    phase = job["phase"]
    phase.update(run)
    placement = phase.get("placement")
    if placement is not None:
        placement["places"] = places["places"]
        placement["spots"] = ((), [size for _, size in places["places"]], places.get("tasks", ()))
        if "needs" in places:
            placement["needs"] = places["needs"]
    return job


def job_of_key(key: str) -> JobId | None:
    """Return the job whose number the key is, or begins with as a token does; None for any other key."""
    number = key.partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS_MAX else None


def transfer_key(key: tuple[str, tuple[int, int] | None, int]) -> str:
    """Return the key of the record of a transfer."""
    return encode(key).decode()


def pair_key(pair: tuple[str, str]) -> str:
    """Return the key of a record that is found by two names."""
    return encode(pair).decode()
