"""The records of the core: which there are, what each holds, and how it is encoded.

A record is one part of the core's state in JSON, under a kind and a key. Together the records are everything that
decides what the core will do next. Whoever keeps them writes those that have changed with the event that changed
them, and makes a scheduler of all of them after a restart.

What grows with the components of a job, or the elements of an array, stands in records of its own, so that an
event costs what it changes: its places and the long memory of a job in ``places``, what its components have sent and
made in ``run``, how elements ended in ``elements``.
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
# The format of the records; those of another one are refused.
FORMAT = 2
# How many elements of an array share one record of how they ended.
ELEMENTS_IN_BLOCK = 1_000
# The number of a job has no more digits.
NUMBER_DIGITS_MAX = 18


class Kind(enum.StrEnum):
    """What a record is about, and by what it is found."""

    SCHEDULER = "scheduler"  # the counters, without a key
    SITE = "site"  # by its name
    QUEUE = "queue"  # "high" or "low"
    JOB = "job"  # by its number
    PLACES = "places"  # of a job
    RUN = "run"  # of a job
    ELEMENTS = "elements"  # of an array: those of a block that are not done, by "JOB.BLOCK"
    CLAIM = "claim"  # by its token
    TRANSFER = "transfer"  # by its file, piece and site
    LINK = "link"  # by the sites that it goes from and to
    APPLICATION = "application"  # by the name of its jobs
    USUAL_RUN = "usual_run"  # by the user, and the name of the jobs
    FILE = "file"  # by its name


# What is about one job: the key is its number, or begins with it.
OF_JOBS = frozenset({Kind.JOB, Kind.PLACES, Kind.RUN, Kind.ELEMENTS, Kind.CLAIM})


class Record(NamedTuple):
    """One record; without a body it is gone."""

    kind: Kind
    key: str
    body: bytes | None


class SchedulerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counters of a scheduler, and what is about no single job or site.

    - ``grid``: the digest of the grid, ``sites`` their names by the numbers that other records have of them;
    - ``scans_so_far``: the scans of the high and the low queue, as they are counted at ``now``;
    - ``live``: how many jobs and claims there are: where fewer are left, somebody took some out;
    - ``observations``: how many jobs make up the observed mean of bandwidths;
    - ``probes``: which link is looked at next for a probe, and when; None where there are none;
    - ``dependency_events``: jobs that have started or ended and whose dependents have not all been notified; of the
      first job those up to ``last_notified`` have;
    - ``preempted_at``: when jobs were preempted for places of others, within the last hour;
    - ``kept_early``: what jobs keep, or kept lately, before the times of their plans: job, processors, since, until.

    When the scheduler is due is not here: after a load the driver sends a ``Tick`` first.
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


# What of a job, of its places and of its run stands in other records.
_ELSEWHERE_OF_JOB = frozenset({"checkpoint_runs", "went_on_from", "spawned"})
_ELSEWHERE_OF_ELEMENTS = frozenset({"not_done"})
_ELSEWHERE_OF_PLACES = frozenset({"spots", "places", "needs"})
_OF_RUN = ("collected", "sent", "unmeasured", "workspaces")
_ELSEWHERE_OF_PHASE = frozenset({*_OF_RUN, "placement"})

_encode = msgspec.json.Encoder().encode


def encode(value: Any) -> bytes:
    """Return a value in JSON. Half surrogates, as in the names of files that are no text, are written as escapes."""
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
    """Return what the record of a job holds."""
    found: dict[str, Any] = sparse(job, _ELSEWHERE_OF_JOB)
    if job.unfolds is not None:
        found["unfolds"] = sparse(job.unfolds, _ELSEWHERE_OF_ELEMENTS)
    found["state"] = job.state
    found["phase"] = phase = sparse(job.phase, _ELSEWHERE_OF_PHASE)
    if job.placement is not None:
        phase["placement"] = sparse(job.placement, _ELSEWHERE_OF_PLACES)
    return found


def places_fields(job: Job) -> dict[str, Any]:
    """Return what the record of its places holds: empty for a job that has none, and no long memory."""
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
    """Return what the record of its run holds: empty where no component has sent, left or made anything."""
    return {name: value for name in _OF_RUN if (value := getattr(job.phase, name, None))}


def elements_fields(job: Job, block: int) -> dict[int, str]:
    """Return what the record of a block of elements holds: how those ended that are not done."""
    if job.unfolds is None or not job.unfolds.not_done:
        return {}
    not_done = job.unfolds.not_done
    positions = range(block * ELEMENTS_IN_BLOCK, (block + 1) * ELEMENTS_IN_BLOCK)
    return {position: not_done[position] for position in positions if position in not_done}


def joined(
    job: dict[str, Any], places: dict[str, Any], run: dict[str, Any], elements: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a job of those of its records; the sites of its places are numbered by the caller."""
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
    """Return the job whose number a key is, or begins with as a token does; None for any other key."""
    number = key.partition(".")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS_MAX else None


def transfer_key(key: tuple[str, tuple[int, int] | None, int]) -> str:
    """Return the key of the record of a transfer."""
    return encode(key).decode()


def pair_key(pair: tuple[str, str]) -> str:
    """Return the key of a record that is found by two names."""
    return encode(pair).decode()
