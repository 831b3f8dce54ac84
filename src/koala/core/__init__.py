"""All decisions of the scheduler, without clock, I/O or threads: ``Scheduler.handle(event) -> Turn``."""

from koala.core.life.states import JobState
from koala.core.records.reading import DamagedRecord, KnownJob, RecordsError
from koala.core.records.record import Kind, Record
from koala.core.scheduler import HandlingError, Scheduler
from koala.core.standing import JobExplanation

__all__ = [
    "DamagedRecord",
    "HandlingError",
    "JobExplanation",
    "JobState",
    "Kind",
    "KnownJob",
    "Record",
    "RecordsError",
    "Scheduler",
]
