"""Where a job stands, as data: ``koala.words`` puts it into words. Reads the core's state; decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from koala.core.life.collecting import Collecting
from koala.core.life.component import ComponentPhase
from koala.core.life.job import Job
from koala.core.life.running import Running
from koala.core.life.states import ENDED, JobState
from koala.core.refusals import PLANS_NAMED_MAX, held_back, is_held_back, refusal_of
from koala.core.state.checkpoints import checkpoint_status, grace_s, is_saving
from koala.core.state.expected_starts import ExpectedStart
from koala.core.state.network.link_use import sent_between_sites_bit_s
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.sites import Sites
from koala.model.api import (
    ElementCountsInfo,
    JobSituation,
    Place,
    PlanInfo,
    TrafficInfo,
    UnmeasuredInfo,
    WaitedForInfo,
)
from koala.model.messages import JobCounts, JobOutcome
from koala.model.network import BIT_S_PER_MBIT_S
from koala.model.request import SiteName
from koala.policies.interface import Spots

# The fields that an array shows of its next element.
_OF_NEXT_ELEMENT = (
    "waiting_since",
    "place_in_line",
    "elements_before",
    "refusal",
    "expected_at",
    "expected_sites",
    "latest_at",
    "ends_before",
    "planned_before",
    "placement_tries",
)


class JobStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a job's state; only those that belong to the state are present.

    ``reason``: why it failed or was set aside; ``held_by``: who holds it and why, in words. An array has the
    ``elements``, and the ``limit`` of live elements if it is reached. ``not_collected``: sites that have not reported
    their outputs yet. ``saving_at``: the sites of components that save their state, out of ``components`` in all,
    within ``grace_s``. ``not_there``: the components that have not come to the barrier, as (processors, site);
    ``kept_off``: sites there that must start them on other nodes. ``silent``: sites that hold something of it and do
    not answer.
    """

    reason: str = ""
    held_by: str = ""
    elements: ElementCountsInfo | None = None
    limit: int | None = None
    not_collected: tuple[SiteName, ...] = ()
    components: int = 0
    saving_at: tuple[SiteName, ...] = ()
    grace_s: float = 0.0
    not_there: tuple[tuple[int, SiteName], ...] = ()
    kept_off: tuple[SiteName, ...] = ()
    silent: tuple[SiteName, ...] = ()


class JobExplanation(JobSituation, frozen=True, kw_only=True):
    """Where a job stands and why: ``standing`` has details of its state, ``story`` has the decisions."""

    state: JobState
    standing: JobStanding


def explain(
    job: Job,
    queue: PlacementQueue,
    sites: Sites,
    placement_tries: int,
    planned: Sequence[Job] = (),
    expected: ExpectedStart | None = None,
    preempting: str = "",
    *,
    elements_before: int = 0,
    now: float = 0.0,
    closed: Collection[SiteName] = (),
) -> JobExplanation:
    """Return where the job stands at the time ``now``.

    ``planned`` are the jobs whose plans it must not put off, ``expected`` is its likely start, ``preempting``
    explains why it preempts nobody for its places. The ``closed`` sites have too few nodes left for it.
    """
    waiting = job.state is JobState.WAITING
    refusal = None
    kept_for: Sequence[Job] = ()
    if waiting and job.asks is not None:
        seen = queue.last_refused(job)
        if seen is not None:
            if planned and is_held_back(job.demand, seen, sites):
                refusal, kept_for = held_back(job.demand, [each.id for each in planned]), planned[:PLANS_NAMED_MAX]
            else:
                avoided = {site: site in closed for site in job.avoiding}
                refusal = refusal_of(job.demand, seen, sites, preempting, avoided, submitter=job.submitter)
    names = sites.view.names
    return JobExplanation(
        job=job.id,
        state=job.state,
        standing=_standing(job, sites),
        waiting_since=job.waiting_since if waiting else None,
        place_in_line=queue.place_in_line(job) if waiting else None,
        elements_before=elements_before if waiting else 0,
        refusal=refusal,
        expected_at=None if expected is None else expected.at,
        expected_sites=[] if expected is None else _site_names(expected.spots, names),
        latest_at=expected.latest_at if expected is not None else job.plan_at if waiting else None,
        ends_before=[] if expected is None else [*expected.ends_before],
        planned_before=[
            PlanInfo(job=each.id, expected_at=each.plan.at, expected_sites=_site_names(each.plan.spots, names))
            for each in kept_for
            if each.plan is not None
        ],
        held=job.held,
        waits_for=[WaitedForInfo(job=other, condition=condition) for condition, other in job.waits_for],
        begins_at=job.begins_at,
        places=[Place(site=site, processors=processors) for site, processors in job.places],
        traffic=job_traffic(job, names),
        checkpoint=checkpoint_status(job, now),
        **dict(zip(JobCounts.__struct_fields__, job.counts(), strict=True)) | {"placement_tries": placement_tries},
    )


def explain_array(array: JobExplanation, element: JobExplanation) -> JobExplanation:
    """Return the explanation of an array whose next element is this one."""
    shared = {name: getattr(element, name) for name in _OF_NEXT_ELEMENT}
    return msgspec.structs.replace(array, next_element=element.job, **shared)


def job_traffic(job: Job, names: Sequence[SiteName]) -> TrafficInfo | None:
    """Return what the job sends between its sites; None if it does not run, or runs at one site."""
    run = job.phase
    if not isinstance(run, Running) or job.asks is None or len(set(run.placement.spots.sites)) == 1:
        return None
    declared_bit_s = job.demand.traffic.per_processor_bit_s
    believed_bit_s = declared_bit_s if job.placed.believed_bit_s is None else job.placed.believed_bit_s

    def mbit_s(own_bit_s: float) -> float:
        return round(sent_between_sites_bit_s(job, own_bit_s) / BIT_S_PER_MBIT_S, 3)

    return TrafficInfo(
        declared_mbit_s=mbit_s(declared_bit_s) if job.request.communication is not None else None,
        measured_mbit_s=None if job.placed.measured_bit_s is None else mbit_s(job.placed.measured_bit_s),
        measured_until_s=max((until_s for _, until_s in run.sent.values()), default=None),
        believed_mbit_s=mbit_s(believed_bit_s),
        belief=job.placed.belief or ("declared" if declared_bit_s else "unknown"),
        unmeasured=[
            UnmeasuredInfo(site=names[site], reason=run.unmeasured.get(component, "it has not reported yet"))
            for component, site in enumerate(job.placed.spots.sites)
            if component not in run.sent
        ],
    )


def _site_names(spots: Spots, names: Sequence[SiteName]) -> list[SiteName]:
    """Return the sites of these places, each once."""
    return [*dict.fromkeys(names[site] for site in spots.sites)]


def _standing(job: Job, sites: Sites) -> JobStanding:
    """Return the details of its state."""
    names, claims = sites.view.names, job.claims
    held = dict.fromkeys(claim.site for claim in claims if claim.token in sites.sites[claim.site].claims)
    known: dict[str, Any] = {}
    if job.state not in ENDED:
        known["silent"] = tuple([names[each] for each in held if sites.sites[each].silent_since is not None])
    if job.state in (JobState.FAILED, JobState.QUARANTINED):
        known["reason"] = job.why
    elif isinstance(job.phase, Collecting):
        phase, sites_of = job.phase, job.placed.spots.sites
        left = [sites_of[each] for each in sorted(phase.workspaces) if each not in phase.collected]
        known["not_collected"] = tuple(dict.fromkeys(names[site] for site in left))
    elif job.state is JobState.UNWINDING:
        savers = [claim for claim in claims if is_saving(claim)]
        if savers:
            known["saving_at"], known["grace_s"] = tuple([names[each.site] for each in savers]), grace_s(savers[0])
    elif job.state is JobState.STARTING:
        late = [claim for claim in claims if claim.phase < ComponentPhase.READY]
        known["not_there"] = tuple([(claim.processors, names[claim.site]) for claim in late])
        known["kept_off"] = tuple(dict.fromkeys(names[claim.site] for claim in late if claim.kept_off))
    if job.state is JobState.UNFOLDING or (
        job.state is JobState.HELD and job.unfolds is not None and job.unfolds.made
    ):
        known["elements"] = element_counts(job)
        if job.elements.at_limit and not job.elements.all_made:
            known["limit"] = job.elements.spec.limit
    return JobStanding(held_by=job.held_by, components=len(job.places), **known)


def element_counts(array: Job) -> ElementCountsInfo | None:
    """Return the counts of the elements of an array; None for any other job."""
    elements = array.unfolds
    if elements is None:
        return None
    spec, ended = elements.spec, elements.not_done_as
    failed, cancelled = ended[str(JobOutcome.FAILED)], ended[str(JobOutcome.CANCELLED)]
    running = 0 if array.state in ENDED else elements.running
    over = elements.made - elements.live  # some of the elements that are not done were never to be made
    done = over - (failed + cancelled - elements.not_made)
    if array.state is JobState.CANCELLED:
        cancelled = spec.size - done - failed
    return ElementCountsInfo(
        indices=str(spec),
        size=spec.size,
        waiting=spec.size - running - done - failed - cancelled,
        running=running,
        done=done,
        failed=failed,
        cancelled=cancelled,
    )
