"""Jobs over time as rows of bars: the phases of a job, a component or a file, from when to when.

Pure functions from the API's forms to positions in percent; templates draw them.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from koala.daemon.dashboard.axis import Axis
from koala.daemon.dashboard.words import amount, counted, duration
from koala.model.api import ComponentRun, ElementCountsInfo, JobDetail, TransferInfo
from koala.model.job_array import element_tail

ROWS_MAX = 100
_ARROW = "\N{RIGHTWARDS ARROW}"


class TimelinePhase(enum.StrEnum):
    """The current phase. If several apply at the same time, a job's row shows the last of this list."""

    QUEUE = "queue"
    TRANSFER = "transfer"
    BARRIER = "barrier"
    RUNNING = "running"


PHASE_MEANING = {
    TimelinePhase.QUEUE: "waits in a queue",
    TimelinePhase.TRANSFER: "files are on their way",
    TimelinePhase.BARRIER: "claimed, waits at the barrier",
    TimelinePhase.RUNNING: "runs",
}


class Stretch(msgspec.Struct, frozen=True):
    """A phase from one moment to another."""

    phase: TimelinePhase
    from_at: float
    to_at: float


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch as it is drawn: its left edge and its width in percent of the axis, and its title."""

    phase: TimelinePhase
    left: float
    width: float
    title: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a timeline, with the ``state`` of its job and a ``detail``. ``end`` is where its bars end for good,
    or None. ``tail`` is the end of the label of an array's element, which must not be cut off."""

    key: str
    label: str
    detail: str
    bars: tuple[Bar, ...]
    job: int | None = None
    state: str = ""
    end: float | None = None
    tail: str = ""


def job_stretches(job: JobDetail, now: float) -> list[Stretch]:
    """Return a job's phases one after another, without gap or overlap, from its submission to its end or to now."""
    until = max(job.submitted_at, now if job.ended_at is None else job.ended_at)
    if job.elements is not None:
        return _array_stretches(job, until)
    layers: dict[TimelinePhase, list[tuple[float, float]]] = {
        TimelinePhase.QUEUE: [(job.submitted_at, until)],
        TimelinePhase.TRANSFER: [(each.started_at, _or(each.ended_at, until)) for each in job.transfers],
        TimelinePhase.BARRIER: [],
        TimelinePhase.RUNNING: [],
    }
    for component in job.components:
        for stretch in component_stretches(component, until):
            layers[stretch.phase].append((stretch.from_at, stretch.to_at))
    edges = {job.submitted_at, until}
    for spans in layers.values():
        edges.update(min(max(edge, job.submitted_at), until) for span in spans for edge in span)
    merged = {phase: _merged(spans) for phase, spans in layers.items()}
    stretches: list[Stretch] = []
    ordered = sorted(edges)
    for from_at, to_at in itertools.pairwise(ordered):
        phase = next(each for each in reversed(TimelinePhase) if _covers(merged[each], from_at, to_at))
        if stretches and stretches[-1].phase is phase:
            from_at = stretches.pop().from_at
        stretches.append(Stretch(phase, from_at, to_at))
    return stretches


def _array_stretches(job: JobDetail, until: float) -> list[Stretch]:
    """Return the phases of an array, which waits until the first of its elements has started."""
    begun = until if job.started_at is None else min(job.started_at, until)
    found = (
        Stretch(TimelinePhase.QUEUE, job.submitted_at, begun),
        Stretch(TimelinePhase.RUNNING, begun, until),
    )
    return [each for each in found if each.to_at > each.from_at]


def component_stretches(component: ComponentRun, now: float) -> list[Stretch]:
    """Return the phases of one claim of a component: in the queue of its site, at the barrier, then running."""
    ended_at = max(component.claimed_at, _or(component.ended_at, now))
    opened_at = min(ended_at, max(component.claimed_at, _or(component.released_at, ended_at)))
    arrived_at = component.ready_at
    if arrived_at is None:
        arrived_at = opened_at if component.released_at is None else component.claimed_at
    arrived_at = min(opened_at, max(component.claimed_at, arrived_at))
    stretches = [
        Stretch(TimelinePhase.QUEUE, component.claimed_at, arrived_at),
        Stretch(TimelinePhase.BARRIER, arrived_at, opened_at),
    ]
    if component.released_at is not None:
        stretches.append(Stretch(TimelinePhase.RUNNING, opened_at, ended_at))
    return [each for each in stretches if each.to_at > each.from_at]


def job_row(job: JobDetail, axis: Axis, now: float) -> Row:
    """Return a whole job in one line."""
    ended = job.ended_at is not None and axis.from_at <= job.ended_at <= axis.to_at
    return Row(
        key=f"job-{job.id}",
        label=f"{job.id} {job.name}",
        detail="" if job.elements is None else _progress(job.elements),
        bars=bars(job_stretches(job, now), axis),
        job=job.id,
        state=job.standing or job.state,
        end=axis.percent(job.ended_at) if ended and job.ended_at is not None else None,
        tail=element_tail(job.name, job.array_index),
    )


def _progress(elements: ElementCountsInfo) -> str:
    """Describe the progress of an array."""
    ended = elements.done + elements.failed + elements.cancelled
    return f"{ended:,} of {elements.size:,} ended"


def component_rows(job: JobDetail, axis: Axis, now: float) -> list[Row]:
    """Return a line for each component and site it was at, then one for each file and site it went to."""
    until = now if job.ended_at is None else job.ended_at
    claims: dict[tuple[int, str], list[ComponentRun]] = {}
    for component in sorted(job.components, key=lambda each: (each.part, each.claimed_at)):
        claims.setdefault((component.part, component.site), []).append(component)
    rows = [
        Row(
            key=f"component-{part}-{site}",
            label=f"component {part}",
            detail=f"{runs[-1].processors} on {site}",
            bars=bars((each for run in runs for each in component_stretches(run, until)), axis),
        )
        for (part, site), runs in claims.items()
    ]
    return rows[:ROWS_MAX] + _transfer_rows(job.transfers, axis, until)


def _transfer_rows(transfers: Sequence[TransferInfo], axis: Axis, until: float) -> list[Row]:
    by_route: dict[tuple[str, str], list[TransferInfo]] = {}
    for transfer in sorted(transfers, key=lambda each: each.started_at):
        by_route.setdefault((transfer.file, transfer.target), []).append(transfer)
    return [
        Row(
            key=f"file-{file}-{target}",
            label=file,
            detail=f"{moves[-1].source} {_ARROW} {target}, {amount(moves[-1].size_bytes)}",
            bars=bars(
                (Stretch(TimelinePhase.TRANSFER, each.started_at, _or(each.ended_at, until)) for each in moves), axis
            ),
        )
        for (file, target), moves in list(by_route.items())[:ROWS_MAX]
    ]


def rows_at_site(jobs: Iterable[JobDetail], site: str, axis: Axis, now: float) -> list[Row]:
    """Return what the jobs did at one site, a line for each component there."""
    rows = []
    for job in jobs:
        here = [each for each in job.components if each.site == site]
        for part in sorted({each.part for each in here}):
            runs = [each for each in here if each.part == part]
            drawn = bars((each for run in runs for each in component_stretches(run, now)), axis)
            if drawn:
                size = counted(runs[-1].processors, "processor")
                size = size if len(here) == len(runs) else f"component {part}, {size}"
                rows.append(
                    Row(
                        key=f"job-{job.id}-{part}",
                        label=f"{job.id} {job.name}",
                        detail=size,
                        bars=drawn,
                        job=job.id,
                        state=job.standing or job.state,
                        tail=element_tail(job.name, job.array_index),
                    )
                )
    return rows[:ROWS_MAX]


def bars(stretches: Iterable[Stretch], axis: Axis) -> tuple[Bar, ...]:
    """Return the stretches that are visible on the axis; each is as wide as its share of the axis' time."""
    drawn = []
    for each in stretches:
        left, right = axis.percent(each.from_at), axis.percent(each.to_at)
        if right > left:
            title = f"{PHASE_MEANING[each.phase]}: {duration(each.to_at - each.from_at)}"
            drawn.append(Bar(phase=each.phase, left=left, width=round(right - left, 3), title=title))
    return tuple(drawn)


def told(row: Row) -> str:
    """Describe the row in words, for readers who do not see it."""
    phases = "; ".join(bar.title for bar in row.bars) or "nothing in this stretch of time"
    return f"{', '.join(filter(None, (row.label, row.state, row.detail)))}: {phases}"


def _or(at: float | None, otherwise: float) -> float:
    return otherwise if at is None else at


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for from_at, to_at in sorted(spans):
        if merged and from_at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], to_at))
        else:
            merged.append((from_at, to_at))
    return merged


def _covers(spans: Sequence[tuple[float, float]], from_at: float, to_at: float) -> bool:
    return any(begins <= from_at and to_at <= ends for begins, ends in spans)
