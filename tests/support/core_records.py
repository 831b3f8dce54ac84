"""The records of a scheduler as a driver keeps them, and the scheduler that a restart makes of them."""

from __future__ import annotations

from dataclasses import dataclass

from koala.core import KnownJob, Record, Scheduler
from koala.model.grid import Grid
from koala.model.request import JobId
from koala.policies import Catalogue
from koala.simulator.torture.restarts import Bodies, bodies_of, known_jobs


@dataclass
class CoreRecords:
    """All records of a scheduler, and what a driver keeps of its jobs beside them."""

    bodies: Bodies
    known: dict[JobId, KnownJob]


def records_of(scheduler: Scheduler) -> CoreRecords:
    """Take the records of a scheduler."""
    return CoreRecords(bodies_of(scheduler), known_jobs(scheduler))


def scheduler_of(grid: Grid, catalogue: Catalogue | None, kept: CoreRecords) -> Scheduler:
    """Make the scheduler that continues from these records."""
    records = [Record(kind, key, body) for (kind, key), body in kept.bodies.items()]
    return Scheduler.from_records(grid, catalogue, records, kept.known)
