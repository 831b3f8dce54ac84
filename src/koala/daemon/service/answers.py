"""Turns rows, the core's ledger and journal entries into the forms of the API.

Pure functions; ``koala.daemon.service.service`` decides who may see what.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from koala.core.failures.exclusions import Exclusion
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.probing import why_not_probed
from koala.core.standing import JobExplanation
from koala.core.state.expected_starts import ExpectedStart
from koala.core.state.ledger import Ledger
from koala.core.state.network.forecasts import LinkForecasts
from koala.core.state.network.predictors import Forecast, Measurement
from koala.core.state.site_belief import SiteBelief, Trust
from koala.daemon.perform.interface import SiteTrouble
from koala.files import CatalogueEntry
from koala.mapping.site_lans import region_of
from koala.model.api import (
    CheckpointInfo,
    ComponentRun,
    DryRun,
    DryRunFile,
    DryRunPlace,
    ExcludedNode,
    Explanation,
    FileInfo,
    GpuCount,
    JobOnLinks,
    JobSummary,
    JournalEntry,
    LinkHistory,
    LinkInfo,
    LinkMeasurement,
    LinkQuantity,
    LinkState,
    MachineInfo,
    NetworkInfo,
    Place,
    PlanInfo,
    ReplicaInfo,
    TaskInfo,
    UsageInfo,
)
from koala.model.grid import Grid, Link
from koala.model.messages import JobSubmitted
from koala.model.nodes import PoolCount, TaskShape
from koala.model.request import Placement, Request
from koala.policies.interface import View
from koala.policies.tasks.wase import SiteLans
from koala.policies.view import BYTES_PER_S_PER_MBIT_S, LinkRows
from koala.store.rows import JournalRow, StoredJob
from koala.words.explanations import in_words
from koala.words.facts import sentence
from koala.words.standing import MEANING

# With more sites than this an overview lists only links that the grid names; others have the default.
SITES_ALL_LINKED_MAX = 64
# At most this many kinds of machines of one site are listed.
MACHINES_TOLD_MAX = 64
OTHERS_ERROR = "a component of another user failed there; operators see how"


# ------------------------------------------------------------------------------------------------ jobs


def job_summary(row: StoredJob, ledger: Ledger, place_in_line: int | None = None) -> JobSummary:
    """Return a job as a list shows it."""
    return JobSummary.of(row, **as_of_now(row, ledger, place_in_line))


def as_of_now(row: StoredJob, ledger: Ledger, place_in_line: int | None) -> dict[str, Any]:
    """Return the fields of a job that are not on record, or in another form. The core knows when a held job may
    begin."""
    held = ledger.jobs.get(row.id) if row.state == JobState.HELD else None
    return {
        "places": _places(row),
        "standing": standing(row),
        "place_in_line": place_in_line,
        "begins_at": None if held is None else held.begins_at,
    }


def task_infos(request: Request) -> list[TaskInfo]:
    """Return what each component's tasks hold."""
    shapes = [(component.processors, component.shape or TaskShape()) for component in request.components]
    return [TaskInfo.of(shape, tasks=processors // shape.processors) for processors, shape in shapes]


def asked_in_words(row: StoredJob, request: Request) -> str:
    """Describe what the job requests, including the tasks spawned since."""
    spawned = row.processors - request.processors  # one for each
    return request.in_words + (f", and {spawned} for spawned tasks" if spawned > 0 else "")


def last_checkpoint(row: StoredJob, known: CheckpointInfo | None) -> CheckpointInfo | None:
    """Return what is known of a job's checkpoints, or was when it ended."""
    return known or msgspec.convert((row.explanation or {}).get("checkpoint"), CheckpointInfo | None)


def standing(row: StoredJob) -> str:
    """Return the state of a job for people: an array runs or waits as its elements do."""
    if row.state != JobState.UNFOLDING or row.elements is None:
        return row.state
    return str(JobState.RUNNING if row.elements.running else JobState.WAITING)


def _places(row: StoredJob) -> list[Place]:
    return [Place(site=site, processors=processors) for site, processors in row.places]


def usage_info(runs: Iterable[ComponentRun], asked_memory_bytes: int) -> UsageInfo | None:
    """Return the usage of a job's components; None before the first of them has ended."""
    ended = [each for each in runs if each.held_processor_s is not None]
    if not ended:
        return None
    measured = [each for each in ended if each.processor_s is not None]
    used_s = sum(each.processor_s or 0.0 for each in measured)
    held_s = sum(each.held_processor_s or 0.0 for each in measured)
    peaks: dict[int, int | None] = {}
    for each in ended:
        before = peaks.get(each.run, 0)
        known = before is not None and each.peak_memory_bytes is not None
        peaks[each.run] = (before or 0) + (each.peak_memory_bytes or 0) if known else None
    return UsageInfo(
        components=len(ended),
        measured=len(measured),
        processor_s=used_s if measured else None,
        held_processor_s=held_s,
        efficiency=used_s / held_s if measured and held_s > 0 else None,
        peak_memory_bytes=max((peak for peak in peaks.values() if peak is not None), default=None),
        asked_memory_bytes=asked_memory_bytes,
    )


def places_in_line(ledger: Ledger, jobs: Iterable[int]) -> dict[int, int]:
    """Return the place of each of these jobs in its placement queue, counted from 1, if it waits; resting jobs share
    the last one. Costs at most one pass over a queue, and little for a few jobs."""
    places: dict[int, int] = {}
    known = [job for number in jobs if (job := ledger.jobs.get(number)) is not None]
    waiting = [job for job in known if job.state is JobState.WAITING]
    for queue in (ledger.high, ledger.low):
        here = [job for job in waiting if ledger.queue_of(job) is queue]
        if len(here) * queue.kinds <= len(queue):
            places |= {job.id: queue.place_in_line(job) for job in here}
        elif here:
            every = {job.id: min(place, queue.size + 1) for place, job in enumerate(queue, start=1)}
            places |= {job.id: every[job.id] for job in here}
    return places


def explanation(
    known: JobExplanation, since: float, queue_length: int | None, now: float, more: str = ""
) -> Explanation:
    """Return where a job stands, as the core explains it. Expected times are never in the past, although the core's
    time is the last event's."""
    fields = in_words(known, more) | {"since": since, "queue_length": queue_length}
    for each in (fields, *fields["planned_before"]):
        for name in {"expected_at", "latest_at"} & each.keys():
            each[name] = _not_before(now, each[name])
    return msgspec.convert(fields, Explanation)


def _not_before(now: float, at: float | None) -> float | None:
    return None if at is None else max(at, now)


def visible_to(user: str | None, found: Explanation, jobs: Mapping[int, Job]) -> Explanation:
    """Return the explanation without jobs of users other than this one, None for a user who sees all: plans before
    the job keep only their times."""
    if user is None:
        return found
    own = {each for each in found.named_jobs if each in jobs and jobs[each].submitter == user}
    shown = [
        plan if plan.job in own else PlanInfo(job=None, expected_at=plan.expected_at, expected_sites=[])
        for plan in found.planned_before
    ]
    ends_before = [job for job in found.ends_before if job in own]
    return msgspec.structs.replace(found, planned_before=shown, ends_before=ends_before)


def bare_explanation(row: StoredJob) -> Explanation:
    """Return what can be said of a job that the core no longer knows."""
    meaning = row.reason if row.state == JobState.FAILED and row.reason else MEANING[JobState(row.state)]
    return Explanation.of(row, job=row.id, meaning=meaning, places=_places(row))


def dry_run(placement: Placement) -> DryRun:
    """Return where a job would go."""
    return DryRun(
        policy=placement.policy,
        expected_sites=[*placement.sites],
        places=[
            DryRunPlace.of(
                component,
                component=component.index,
                files=[DryRunFile.of(source, source=source.site) for source in component.sources],
            )
            for component in placement.components
        ],
    )


def without_start(answer: DryRun) -> DryRun:
    """Return the answer without a start: something keeps the job back, for an unknown time."""
    return msgspec.structs.replace(
        answer, expected_at=None, expected_sites=[], latest_at=None, ends_before=[], place_in_line=None
    )


def with_expected_start(
    answer: DryRun, expected: ExpectedStart, ledger: Ledger, user: str | None, now: float
) -> DryRun:
    """Return the answer with the expected start, which is not before now. Of the jobs that end before it, it names
    those of the user, for None all."""
    ends_before = [
        number
        for number in expected.ends_before
        if (job := ledger.jobs.get(number)) is not None and (user is None or job.submitter == user)
    ]
    return msgspec.structs.replace(
        answer,
        expected_at=_not_before(now, expected.at),
        expected_sites=[*dict.fromkeys(ledger.names[site] for site in expected.spots.sites)],
        latest_at=_not_before(now, expected.latest_at),
        ends_before=ends_before,
    )


# ------------------------------------------------------------------------------------------------ the grid


def accusations(belief: SiteBelief, visible: Collection[int]) -> list[str]:
    """Return the failures of applications that count against the site, of the jobs that the caller may see."""
    return [each.what for each in belief.record.accusations.values() if each.job in visible]


def excluded_nodes(exclusions: Iterable[Exclusion], caller: str, *, sees_all: bool) -> list[ExcludedNode]:
    """Return the nodes that programs are kept off: the caller's, or all."""
    found = ((each, each.accusation) for each in exclusions)
    return [
        ExcludedNode.of(accusation, program=accusation.name, reason=each.reason, until=each.until, closes=each.closes)
        for each, accusation in found
        if sees_all or accusation.owner == caller
    ]


def trouble(silence: SiteTrouble | None) -> dict[str, Any]:
    """Return since when and why the site cannot be used: it is silent, or it answers and its set-up has changed."""
    if silence is None or silence.answers:
        return {"silent_since": None, "misconfigured": "" if silence is None else silence.reason}
    return {"silent_since": silence.since, "silent_reason": silence.reason}


def beside_processors(whole: PoolCount, free: PoolCount) -> dict[str, Any]:
    """Return the GPUs and the memory of a site."""
    counts = [(kind, total, free.gpus.get(kind, 0)) for kind, total in whole.gpus.items() if total]
    return {
        "gpus": [GpuCount(kind=kind, total=total, idle=idle) for kind, total, idle in counts],
        "memory_bytes": whole.memory_bytes,
        "memory_idle_bytes": free.memory_bytes,
    }


def as_lan(lans: SiteLans, name: str) -> dict[str, Any]:
    """Return a site as jobs of tasks see it."""
    index = lans.index[name]
    classes, measured = lans.classes(index)
    man, wan, uplink_mbit_s = region_of(lans.seen, index)
    machines = [MachineInfo.of(each, measured=measured) for each in classes[:MACHINES_TOLD_MAX]]
    uplink = uplink_mbit_s if math.isfinite(uplink_mbit_s) else None
    return {"machines": machines, "man": man, "wan": wan, "uplink_mbit_s": uplink}


def last_error_for(caller: str, belief: SiteBelief, *, sees_all: bool) -> str:
    """Return the last error of a site; another user's component is reported without details."""
    if not belief.errors or not belief.last_error:
        return ""
    if sees_all or belief.last_error_of in ("", caller):
        return belief.last_error
    return OTHERS_ERROR


def site_problem(belief: SiteBelief, silence: SiteTrouble | None, *, sees_all: bool, caller: str = "") -> str:
    """Describe what is wrong with a site now, and what to do; empty if nothing is. Only those who see all get jobs
    named."""
    name = belief.name
    if belief.lost:
        fenced = sum(claim.fenced for claim in belief.claims.values())
        ours = "1 component" if fenced == 1 else f"{fenced} components"
        left = f" and has ended {ours} of ours" if fenced else ""
        return f"{name} is lost: {belief.lost}; it is used again once it answers{left}"
    if silence is not None and silence.answers:
        return f"{name} cannot be used: {silence.reason}"
    if silence is not None:
        words = f"{name} does not answer: {silence.reason}; koala site check {name} shows more"
        held = any(not claim.aborting for claim in belief.claims.values())
        return f"{words}; if it is gone for good, koala site lost {name} starts its jobs elsewhere" if held else words
    if belief.trust is not Trust.USABLE:
        record = belief.record
        why = record.distrusted if sees_all else record.distrusted_in_short
        why = why or (f"{belief.errors} errors" if belief.errors > 1 else "an error")
        error = last_error_for(caller, belief, sees_all=sees_all)
        last = f", the last: {error}" if error else ""
        cure = "it is tried again after a pause (cooldown_s), or at once after"
        if belief.trust is Trust.PROBING:
            cure = "one job tries it now; others go there when that ends well, or after"
        return f"{name} is not trusted: {why}{last}; {cure} koala site resume {name}"
    if belief.spared:
        error = last_error_for(caller, belief, sees_all=sees_all)
        last = f", the last: {error}" if error else ""
        return f"jobs of one user fail at {name}{last}; other users' jobs start there, so it stays in use"
    return ""


def link_infos(grid: Grid, view: View) -> list[LinkInfo]:
    """Return every link between two sites; in a large grid only those that differ from the default one."""
    named: dict[tuple[str, str], Link] = {}
    for pair in grid.links.pairs:
        one, other = sorted(pair.between, key=view.index.__getitem__)
        named[one, other] = Link(bandwidth_mbit_s=pair.bandwidth_mbit_s, latency_s=pair.latency_s)
    names = view.names
    if len(names) <= SITES_ALL_LINKED_MAX:
        between = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    else:
        between = sorted(named)
    return [_link_info(pair, named.get(pair, grid.links.default), view) for pair in between]


def _link_info(between: tuple[str, str], link: Link, view: View) -> LinkInfo:
    source, target = view.index[between[0]], view.index[between[1]]
    believed_mbit_s = view.bytes_per_s.at(source, target) / BYTES_PER_S_PER_MBIT_S
    return LinkInfo.of(link, between=between, believed_mbit_s=believed_mbit_s)


# ---------------------------------------------------------------------------------------- the network


def network_info(grid: Grid, forecasts: LinkForecasts, now: float, jobs: list[JobOnLinks]) -> NetworkInfo:
    """Return what is believed of the links, in the order of the grid file, and these jobs that use them."""
    names = forecasts.view.names
    count = len(names)
    pairs: Iterable[tuple[int, int]]
    if count <= SITES_ALL_LINKED_MAX:
        pairs = ((source, target) for source in range(count) for target in range(count) if source != target)
    else:
        index = forecasts.view.index
        named = {(index[pair.between[0]], index[pair.between[1]]) for pair in grid.links.pairs}
        known = named | set(forecasts.series)
        pairs = sorted(known | {(target, source) for source, target in known})
    return NetworkInfo(
        now=now,
        sites=list(names),
        default_bandwidth_mbit_s=grid.links.default.bandwidth_mbit_s,
        default_latency_s=grid.links.default.latency_s,
        links=[_link_state(grid, forecasts, pair) for pair in pairs],
        jobs=jobs,
    )


def link_history(grid: Grid, forecasts: LinkForecasts, source: str, target: str, now: float) -> LinkHistory:
    """Return one direction of a link between two sites of the grid."""
    pair = forecasts.view.index[source], forecasts.view.index[target]
    series = forecasts.series.get(pair)
    return LinkHistory(
        now=now,
        link=_link_state(grid, forecasts, pair),
        bandwidth_mbit_s=[] if series is None else _measurements(series.bandwidth, BYTES_PER_S_PER_MBIT_S),
        latency_s=[] if series is None else _measurements(series.latency, 1.0),
    )


def _measurements(measured: Iterable[Measurement], unit: float) -> list[LinkMeasurement]:
    return [LinkMeasurement.of(each, value=each.value / unit) for each in measured]


def _link_state(grid: Grid, forecasts: LinkForecasts, pair: tuple[int, int]) -> LinkState:
    view, series = forecasts.view, forecasts.series.get(pair)
    bandwidth = () if series is None else series.bandwidth
    latency = () if series is None else series.latency
    return LinkState(
        source=view.names[pair[0]],
        target=view.names[pair[1]],
        bandwidth_mbit_s=_quantity(view.bytes_per_s, forecasts.bandwidth, pair, bandwidth, BYTES_PER_S_PER_MBIT_S),
        latency_s=_quantity(view.latency_s, forecasts.latency, pair, latency, 1.0),
        not_probed=why_not_probed(grid, grid.sites[pair[0]], grid.sites[pair[1]]),
        probed_at=None if series is None else series.probed_at,
        probe_failure="" if series is None else series.failure,
        probe_failures=0 if series is None else series.failures,
    )


def _quantity(
    rows: LinkRows,
    forecasts: Mapping[tuple[int, int], Forecast],
    pair: tuple[int, int],
    measured: Sequence[Measurement],
    unit: float,
) -> LinkQuantity:
    own, back = forecasts.get(pair), forecasts.get((pair[1], pair[0]))
    forecast = own or back
    last = measured[-1] if measured else None
    return LinkQuantity(
        declared=rows.declared(*pair) / unit,
        believed=rows.at(*pair) / unit,
        origin="declared" if forecast is None else "way back" if own is None else "forecast",
        predictor="" if forecast is None else forecast.predictor,
        error=0.0 if forecast is None else forecast.error / unit,
        measurements=len(measured),
        measured=None if last is None else last.value / unit,
        measured_at=None if last is None else last.at,
        measured_by="" if last is None else last.by,
    )


# ------------------------------------------------------------------------------------ files and journal


def file_info(entry: CatalogueEntry) -> FileInfo:
    """Return a file of the replica catalogue."""
    return FileInfo.of(entry, replicas=[ReplicaInfo.of(each) for each in entry.replicas])


def journal_entry(entry: JournalRow) -> JournalEntry:
    """Return an entry of the journal with its sentence.

    A submission has its request only in outline: the whole may be large, and the job itself shows it.
    """
    body = entry.body
    if isinstance(body, JobSubmitted):
        request = body.request
        outline = {"name": request.name, "kind": request.kind, "processors": request.processors}
        data: dict[str, Any] = {"event": entry.what, "at": body.at, "job": body.job, "request": outline}
        if body.defect:
            data["defect"] = body.defect
    else:
        data = msgspec.to_builtins(body)
    return JournalEntry.of(entry, text=sentence(body), data=data)
