"""Processor time that is kept for components of jobs and used by nobody: at barriers, and in reservations.

Processors are kept for a component from the moment that its job holds them, or that its reservation begins if that is
earlier, until its application ends, or until its reservation is given back if that is later. What of this is not the
application's own time is wasted. When reservations begin and go is asked of the batch systems themselves; the
application tells its own times.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.real_grid import RealGrid

from koala.model.api import ComponentRun, JobDetail
from koala.sites.batch.components import reservation_name

# How often the batch systems' reservations are looked at.
LOOK_S = 0.2
# A script that tells when it began and when it ended.
TIMED_SCRIPT = "date +%s.%N; sleep {seconds}; date +%s.%N"


@dataclass(slots=True)
class Reservation:
    """When it begins, and when it was last seen."""

    begins_at: float
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Processor seconds that were kept, and those of them that were wasted before an application began and after it
    ended; over so many processors. Of so many components some were ``reserved``."""

    kept_s: float
    before_s: float
    after_s: float
    processors: int
    components: int
    reserved: int

    @property
    def percent(self) -> float:
        """The share that was wasted."""
        return 100 * (self.before_s + self.after_s) / self.kept_s

    @property
    def in_words(self) -> str:
        """For how long each processor was kept for nothing."""
        before_s, after_s = self.before_s / self.processors, self.after_s / self.processors
        return f"{before_s:.1f} s before an application and {after_s:.1f} s after it"


@contextlib.contextmanager
def reservations_seen(grid: RealGrid, sites: Sequence[str]) -> Iterator[dict[str, Reservation]]:
    """Koala's reservations that the batch systems show while the block lasts, by name."""
    found: dict[str, Reservation] = {}
    over = threading.Event()

    def look(site: str) -> None:
        while not over.wait(LOOK_S):
            for name, begins in grid.reservations(site).items():
                seen = found.setdefault(name, Reservation(begins.timestamp(), 0.0))
                seen.seen_at = time.time()

    with ThreadPoolExecutor(len(sites)) as pool:
        looks = [pool.submit(look, site) for site in sites]
        try:
            yield found
        finally:
            over.set()
        for each in looks:
            each.result()


def waste_of(grid: RealGrid, jobs: Sequence[JobDetail], reservations: Mapping[str, Reservation]) -> Waste:
    """Over all components of jobs that have ended, also those of starts that came to nothing."""
    by_component = {name.rpartition("_")[0]: each for name, each in reservations.items()}
    kept_s = before_s = after_s = 0.0
    processors = components = reserved = 0
    for job in jobs:
        for component in job.components:
            reservation = by_component.get(reservation_name(component.token))
            since, began, ended, until = _times(component, reservation, _application(grid, job, component))
            kept_s += (until - since) * component.processors
            before_s += (began - since) * component.processors
            after_s += (until - ended) * component.processors
            processors += component.processors
            components += 1
            reserved += reservation is not None
    return Waste(
        kept_s=kept_s,
        before_s=before_s,
        after_s=after_s,
        processors=processors,
        components=components,
        reserved=reserved,
    )


def _times(
    component: ComponentRun, reservation: Reservation | None, application: tuple[float, float] | None
) -> tuple[float, float, float, float]:
    """When its processors began to be kept, when its application began and ended, and when they were kept no more."""
    spans = []
    if component.ready_at is not None and component.ended_at is not None:
        spans.append((component.ready_at, component.ended_at if application is None else application[1]))
    if reservation is not None and reservation.seen_at > reservation.begins_at:
        spans.append((reservation.begins_at, reservation.seen_at))
    if not spans:
        return 0.0, 0.0, 0.0, 0.0
    since, until = min(first for first, _ in spans), max(last for _, last in spans)
    began, ended = application or (until, until)
    return since, began, ended, until


def _application(grid: RealGrid, job: JobDetail, component: ComponentRun) -> tuple[float, float] | None:
    """When its application began and ended, as that tells itself; None where it did not come to that."""
    if component.released_at is None:
        return None
    told = grid.client.output(job.id, part=component.part, run=component.run).text.split()
    return (float(told[0]), float(told[1])) if len(told) == 2 else None
