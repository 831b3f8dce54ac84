"""The invariants of the records of one job. Each has a name, which an operator reads beside the record
that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from koala.core.life.collecting import Collecting
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.life.places import TransferKey
from koala.core.life.running import Running
from koala.core.life.states import ENDED, JobState
from koala.core.life.unwinding import Unwinding
from koala.core.timers import OF_CLAIMS, OF_JOBS


@dataclass
class JobInRecords:
    """A job as its records have it, with its claims, and what it may refer to: the known transfers, and the
    number of sites."""

    job: Job
    sites: int
    transfers: Collection[TransferKey]
    claims: list[ComponentClaim] = field(default_factory=list)


def contradiction(records: JobInRecords) -> str:
    """Return the first broken invariant and how it is broken; empty if all hold."""
    for name, check in INVARIANTS.items():
        for broken in check(records):
            return f"{name}: {broken}"
    return ""


def _places_go_together(records: JobInRecords) -> Iterator[str]:
    placed = records.job.placement
    if placed is None:
        return
    parts = len(placed.spots.sizes)
    if len(placed.spots.tasks) not in (0, parts):
        yield f"there are {parts} components, and tasks of {len(placed.spots.tasks)}"
    if len(placed.needs) not in (0, parts):
        yield f"there are {parts} components, and files of {len(placed.needs)}"
    if any(size < 1 for size in placed.spots.sizes):
        yield "a component has no processor"
    for component in records.job.earmarks:
        if not 0 <= component < parts:
            yield f"processors are being freed for component {component} of {parts}"


def _files_are_on_their_way(records: JobInRecords) -> Iterator[str]:
    placed = records.job.placement
    if placed is None or records.job.state in ENDED:
        return
    for keys in placed.needs:
        for key in keys:
            if key not in records.transfers:
                yield f"nobody brings the file {key[0]}"


def _claims_are_of_components(records: JobInRecords) -> Iterator[str]:
    job, seen = records.job, set[int]()
    parts = 0 if job.placement is None else len(job.placement.spots.sizes)
    for claim in records.claims:
        if not 0 <= claim.site < records.sites:
            yield f"{claim.token} is at the site {claim.site} of {records.sites}"
        if int(claim.token.rpartition(".")[2]) > job.starts:
            yield f"{claim.token} is a later start than any"
        if claim.given_up or job.state in ENDED:
            continue
        if not 0 <= claim.component < parts:
            yield f"{claim.token} is the component {claim.component} of {parts}"
        elif claim.component in seen:
            yield f"{claim.token} is another claim of the component {claim.component}"
        seen.add(claim.component)
    if job.state is JobState.STARTING and len(seen) < parts:
        yield f"it is starting, and {len(seen)} of {parts} components are claimed"
    phase = job.phase
    if isinstance(phase, Running | Unwinding) and phase.outstanding > len(seen):
        yield f"{phase.outstanding} components have not ended, and {len(seen)} are claimed"
    if isinstance(phase, Running | Collecting):
        for component in range(parts - job.joining):
            if component not in seen and component not in phase.workspaces and job.request.outputs_of(component):
                yield f"the component {component} is done, and nobody knows where its outputs are"


def _alarms_are_of_their_kind(records: JobInRecords) -> Iterator[str]:
    job = records.job
    if job.timer is not None and job.timer.what not in OF_JOBS:
        yield f"{job.timer.what} is no alarm of a job"
    for claim in records.claims:
        if claim.timer is not None and claim.timer.what not in OF_CLAIMS:
            yield f"{claim.timer.what} is no alarm of a component"


def _array_has_its_elements(records: JobInRecords) -> Iterator[str]:
    job = records.job
    if job.array and job.index is None:
        yield f"it is an element of the array {job.array}, and has no index"
    if job.state is JobState.UNFOLDING and job.unfolds is None:
        yield "its elements are made, and it is no array"
    if job.unfolds is not None and not 0 <= job.unfolds.made <= job.elements.spec.size:
        yield f"of {job.elements.spec.size} elements {job.unfolds.made} were made"


# By name: what must be true, and how it is broken.
INVARIANTS: dict[str, Callable[[JobInRecords], Iterator[str]]] = {
    "its places go together": _places_go_together,
    "its files are on their way": _files_are_on_their_way,
    "its claims are those of its components": _claims_are_of_components,
    "its alarms are of their kind": _alarms_are_of_their_kind,
    "an array has its elements": _array_has_its_elements,
}
