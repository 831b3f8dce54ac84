"""A job's story in words, and the explanation of where it stands. Reads what the core remembers; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from koala.core.lifecycle import ENDED, MEANING, JobState
from koala.core.refusals import PLANS_NAMED_MAX, held_back, is_held_back, refusal_of
from koala.core.state.checkpoints import CheckpointStatus, checkpoint_status, grace_s, is_saving
from koala.core.state.encoded import known_time
from koala.core.state.expected_starts import ExpectedStart
from koala.core.state.forecasts import BelievedLink
from koala.core.state.job import ComponentPhase, Job
from koala.core.state.link_use import sent_between_sites_bit_s
from koala.core.state.queues import PlacementQueue
from koala.core.state.sites import Sites
from koala.model.dependency import Condition, in_words
from koala.model.job_array import ElementCounts
from koala.model.messages import JobCounts, JobOutcome
from koala.model.network import BIT_S_PER_MBIT_S, bandwidth_text, latency_text
from koala.model.nodes import TaskShape
from koala.model.request import JobId, Refusal, SiteName
from koala.policies.interface import Spots

# An entry that is words already: it was told when the sites had other numbers.
TOLD = "told"
# Why a job keeps off a site while it can go elsewhere.
_FEW_NODES = "has too few nodes left for its program, which failed on others there; it goes elsewhere while it can"
_FAILED_THERE = "is avoided, since a run of it failed there; it goes elsewhere while it can"
# Of how many jobs that another waits for each is named.
WAITED_FOR_NAMED_MAX = 5
# What an array is told of its next element.
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
# So many tasks of those that were spawned together are named.
TASKS_TOLD_MAX = 8


class StoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: when, and what was decided and why."""

    at: float
    text: str


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """When and where a job that cannot start now is to start, if all keep to their walltimes."""

    job: JobId
    expected_at: float
    expected_sites: tuple[SiteName, ...]


class WaitedFor(msgspec.Struct, frozen=True, kw_only=True):
    """What a job waits for before it is tried: that this becomes of that job."""

    job: JobId
    condition: Condition


class Unmeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A site where nothing was measured, and why."""

    site: SiteName
    reason: str


class JobTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a job at several sites sends between them, in all: as it declares, as it was measured until so long after
    its start, and as it is believed when other jobs are placed; ``belief`` says by what (declared, learned, measured,
    unknown). None where it is not known. ``unmeasured`` are sites where nothing was measured, and why."""

    declared_mbit_s: float | None
    measured_mbit_s: float | None
    measured_until_s: float | None
    believed_mbit_s: float
    belief: str
    unmeasured: tuple[Unmeasured, ...] = ()


class JobExplanation(JobCounts, frozen=True, kw_only=True):
    """Where a job stands and why.

    Of an array ``next_element`` is the first of its elements that waits: what is said of places, plans and the queue
    is then true of that.

    ``refusal`` is what its last placement try said of every site; ``place_in_line`` counts from 1. Both are
    None for a job that is not waiting. ``elements_before`` are elements of arrays that are no jobs yet, and have
    their turn before it. ``expected_at`` and ``expected_sites`` are when and where it is likely to
    start, if it has a plan; ``latest_at`` is when if every job uses its whole walltime, ``ends_before`` are jobs that
    end before. ``planned_before`` are the first plans of jobs that rank before it, where they keep what is idle. A
    job that is ``held`` by somebody, ``waits_for`` others or has not come to its time (``begins_at``) is not tried
    yet. ``traffic`` is what one at several sites sends between them, ``checkpoint`` what is known of what it saved.
    """

    job: JobId
    state: JobState
    meaning: str
    since: float
    next_element: JobId | None = None
    waiting_since: float | None
    place_in_line: int | None
    elements_before: int = 0
    refusal: Refusal | None
    expected_at: float | None = None
    expected_sites: tuple[SiteName, ...] = ()
    latest_at: float | None = None
    ends_before: tuple[JobId, ...] = ()
    planned_before: tuple[JobPlan, ...] = ()
    held: bool = False
    waits_for: tuple[WaitedFor, ...] = ()
    begins_at: float | None = None
    places: tuple[tuple[SiteName, int], ...]
    traffic: JobTraffic | None = None
    checkpoint: CheckpointStatus | None = None
    story: tuple[StoryEntry, ...]


def tell(job: Job, names: Sequence[SiteName]) -> tuple[StoryEntry, ...]:
    """The whole story, from the submission on."""
    request = job.described
    first = StoryEntry(at=job.submitted_at, text=f"submitted: {request.kind} request for {request.in_words}")
    return (first, *(StoryEntry(at=entry[0], text=words(job, entry, names)) for entry in job.story))


def words(job: Job, entry: Sequence[Any], names: Sequence[SiteName]) -> str:
    """One entry of the job's story in words."""
    told_at, what, *details = entry
    if what == TOLD:
        return str(details[0])
    if what == "planned":
        details[0] -= told_at
    if what == "refused":
        assert job.refused is not None, "the job remembers what its first try saw"
        shape = next((part.shape for part in job.request.components if part.shape is not None), None)
        details = [job.refused[0], shape, *details]
    if what in _WITH_SIZES and job.request.is_shaped:
        sizes = details[_WITH_SIZES[what]]
        details[_WITH_SIZES[what]] = [job.request.part_in_words(part, size) for part, size in enumerate(sizes)]
    return _WORDS[what](names, *details)


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
    """Where the job stands at the time ``now``; ``planned`` are the jobs whose plans it must not put off,
    ``expected`` says when it is likely to start, ``preempting`` why it preempts nobody for its places. The ``closed``
    sites have too few nodes left for it."""
    waiting = job.state is JobState.WAITING
    refusal = None
    kept_for: Sequence[Job] = ()
    if waiting and job.demand is not None:
        seen = queue.last_refused(job)
        if seen is not None:
            if planned and is_held_back(job.demand, seen, sites):
                refusal, kept_for = held_back(job.demand, [each.id for each in planned]), planned[:PLANS_NAMED_MAX]
            else:
                avoided = {site: _FEW_NODES if site in closed else _FAILED_THERE for site in job.avoiding}
                refusal = refusal_of(job.demand, seen, sites, preempting, avoided)
    names = sites.view.names
    story = tell(job, names)
    return JobExplanation(
        job=job.id,
        state=job.state,
        meaning=_meaning(job, sites) + _silence(job, sites),
        since=_since(job, story),
        waiting_since=job.waiting_since if waiting else None,
        place_in_line=queue.place_in_line(job) if waiting else None,
        elements_before=elements_before if waiting else 0,
        refusal=refusal,
        expected_at=None if expected is None else expected.at,
        expected_sites=() if expected is None else _site_names(expected.spots, names),
        latest_at=expected.latest_at if expected is not None else job.plan_at if waiting else None,
        ends_before=() if expected is None else expected.ends_before,
        planned_before=tuple(
            JobPlan(job=each.id, expected_at=each.plan_at, expected_sites=_site_names(each.plan_spots, names))
            for each in kept_for
            if each.plan_at is not None and each.plan_spots is not None
        ),
        held=job.held,
        waits_for=tuple(WaitedFor(job=other, condition=condition) for condition, other in job.waits_for),
        begins_at=job.begins_at,
        places=job.places,
        traffic=job_traffic(job, names),
        checkpoint=checkpoint_status(job, now),
        story=story,
        **dict(zip(JobCounts.__struct_fields__, job.counts(), strict=True)) | {"placement_tries": placement_tries},
    )


def explain_array(array: JobExplanation, element: JobExplanation) -> JobExplanation:
    """An array whose next element is this one."""
    shared = {name: getattr(element, name) for name in _OF_NEXT_ELEMENT}
    return msgspec.structs.replace(array, next_element=element.job, **shared)


def _since(job: Job, story: Sequence[StoryEntry]) -> float:
    """When it came into its state."""
    times = {
        JobState.WAITING: job.waiting_since,
        JobState.PLACED: job.placed_at,
        JobState.RUNNING: job.started_at,
        **dict.fromkeys(ENDED, job.ended_at),
    }
    at = times.get(job.state)
    return story[-1].at if at is None else at


def job_traffic(job: Job, names: Sequence[SiteName]) -> JobTraffic | None:
    """What is known of what it sends between its sites; None for a job that does not run, or runs at one site."""
    runs = job.state is JobState.RUNNING
    if not runs or job.spots is None or job.demand is None or len(set(job.spots.sites)) == 1:
        return None
    declared_bit_s = job.demand.traffic.per_processor_bit_s
    believed_bit_s = declared_bit_s if job.believed_bit_s is None else job.believed_bit_s

    def mbit_s(own_bit_s: float) -> float:
        return round(sent_between_sites_bit_s(job, own_bit_s) / BIT_S_PER_MBIT_S, 3)

    return JobTraffic(
        declared_mbit_s=mbit_s(declared_bit_s) if job.request.communication is not None else None,
        measured_mbit_s=None if job.measured_bit_s is None else mbit_s(job.measured_bit_s),
        measured_until_s=max((until_s for _, until_s in job.sent.values()), default=None),
        believed_mbit_s=mbit_s(believed_bit_s),
        belief=job.belief or ("declared" if declared_bit_s else "unknown"),
        unmeasured=tuple(
            Unmeasured(site=names[site], reason=job.unmeasured.get(component, "it has not reported yet"))
            for component, site in enumerate(job.spots.sites)
            if component not in job.sent
        ),
    )


def _site_names(spots: Spots, names: Sequence[SiteName]) -> tuple[SiteName, ...]:
    """The sites of these places, each once."""
    return tuple(dict.fromkeys(names[site] for site in spots.sites))


def _silence(job: Job, sites: Sites) -> str:
    """What is to be said of sites that hold something of the job and do not answer."""
    claims = [claim for claim in job.claims if claim is not None]
    held = dict.fromkeys(claim.site for claim in claims if claim.token in sites.sites[claim.site].claims)
    silent = [sites.sites[index].name for index in held if sites.sites[index].silent_since is not None]
    if not silent or job.state in ENDED:
        return ""
    they, do, hold = ("they", "do", "hold") if len(silent) > 1 else ("it", "does", "holds")
    return f"; {_and(silent)} {do} not answer: what {they} {hold} of the job is not known until {they} {do}"


def _meaning(job: Job, sites: Sites) -> str:
    """What its state means; of one that failed, why it did, and of one that starts, for whom it waits."""
    names = sites.view.names
    if job.state is JobState.FAILED:
        _, what, *details = job.story[-1]
        if what == "ended" and details[1]:
            return str(details[1])
    if job.state is JobState.UNFOLDING:
        return _unfolding(job)
    if job.state is JobState.HELD and job.made:
        return f"no more of its elements are made: {kept_back_by(job)}; {_unfolding(job)}"
    if job.state is JobState.HELD:
        return f"not tried yet: {kept_back_by(job)}"
    if job.state is JobState.QUARANTINED:
        return (
            f"{_reason_of_quarantine(job)}. It holds nothing and is not tried; everything else goes on. Cancel it "
            f"(koala job cancel {job.id}), or put it back once the cause is mended, as after an upgrade "
            f"(koala job requeue {job.id})"
        )
    if job.state is JobState.COLLECTING:
        return _collecting(job, names)
    savers = [claim for claim in job.claims if claim is not None and is_saving(claim)]
    if job.state is JobState.UNWINDING and savers:
        where = ", ".join(dict.fromkeys(names[claim.site] for claim in savers))
        return (
            f"it was asked to save its state, and has {grace_s(savers[0]):g} s for it (grace); still saving: "
            f"{len(savers)} of {len(job.claims)} components, on {where}. What still runs then is ended, and the job "
            "goes back to its placement queue"
        )
    late = [claim for claim in job.claims if claim is not None and claim.phase < ComponentPhase.READY]
    if job.state is JobState.STARTING and late:
        where = ", ".join(f"{claim.processors} on {names[claim.site]}" for claim in late)
        reported = len(job.claims) - len(late)
        told = f"every component is claimed, and {reported} of {len(job.claims)} wait at the barrier; not there yet: "
        if all(sites.sites[claim.site].silent_since is not None for claim in late):
            return f"{told}{where}"
        kept_off = list(dict.fromkeys(names[claim.site] for claim in late if claim.kept_off))
        nodes = "; it is kept off nodes of {} where its program failed, and may run on all nodes after that"
        return (
            f"{told}{where}. A cluster starts them when its own queue lets it; one that waits behind other users is "
            "claimed where there is room (queue_patience_s), and if all takes too long (barrier_timeout_s), the job "
            f"goes back to its placement queue{nodes.format(_and(kept_off)) if kept_off else ''}"
        )
    return MEANING[job.state]


def _collecting(job: Job, names: Sequence[SiteName]) -> str:
    assert job.spots is not None
    left = [
        names[job.spots.sites[component]] for component in sorted(job.workspaces) if component not in job.collected
    ]
    return f"{MEANING[job.state]}; not told yet by: {', '.join(dict.fromkeys(left))}"


def _unfolding(array: Job) -> str:
    counts, spec = element_counts(array), array.spec
    assert counts is not None
    assert spec is not None
    told = [f"{count} {what}" for what, count in _told_counts(counts) if count]
    words = f"an array of {counts.size} elements ({counts.indices}), each a job of its own: {', '.join(told)}"
    if spec.limit is not None and array.elements_live >= spec.limit and not array.all_made:
        words += f"; no more than {spec.limit} are under way at a time (%{spec.limit})"
    return words


def _told_counts(counts: ElementCounts) -> list[tuple[str, int]]:
    return [(what, getattr(counts, what)) for what in ("waiting", "running", "done", "failed", "cancelled")]


def element_counts(array: Job) -> ElementCounts | None:
    """How the elements of an array stand; None for any other job."""
    spec = array.spec
    if spec is None:
        return None
    ended = array.not_done_as
    failed, cancelled = ended[str(JobOutcome.FAILED)], ended[str(JobOutcome.CANCELLED)]
    running = 0 if array.state in ENDED else array.elements_running
    over = array.made - array.elements_live  # some of those that are not done were not to be made
    done = over - (failed + cancelled - array.not_made)
    if array.state is JobState.CANCELLED:
        cancelled = spec.size - done - failed
    return ElementCounts(
        indices=str(spec),
        size=spec.size,
        waiting=spec.size - running - done - failed - cancelled,
        running=running,
        done=done,
        failed=failed,
        cancelled=cancelled,
    )


def kept_back_by(job: Job) -> str:
    """Why a job is not tried yet, in words."""
    return kept_back(job.held, job.waits_for, job.begins_at is not None, held_by=job.held_by)


def kept_back(
    held: bool,
    waits_for: Sequence[tuple[Condition, JobId]],
    has_a_time: bool,
    more: int = 0,
    held_by: str = "",
) -> str:
    """The same of what is known of it."""
    shown = [in_words(condition, other) for condition, other in waits_for[:WAITED_FOR_NAMED_MAX]]
    more += max(0, len(waits_for) - WAITED_FOR_NAMED_MAX)
    if more:
        shown.append(f"{more} more")
    reasons = [f"it waits for {_and(shown)}"] if shown else []
    if has_a_time:
        reasons.append("it waits for its time (begin_at)")
    if held:
        reasons.append(f"it is held{held_by}; koala job release lets it go")
    return "; ".join(reasons)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _reason_of_quarantine(job: Job) -> str:
    for _, what, *details in reversed(job.story):
        if what == "quarantined":
            return str(details[0])
    return MEANING[job.state]


def _refused(
    names: Sequence[SiteName], idle: tuple[int, ...], shape: TaskShape | None, room: Sequence[int] = ()
) -> str:
    of = "" if shape is None else " processors"
    seen = f"idle{of}: {_by_site(names, idle)}"
    if room:
        seen += f"; room for tasks of {shape}: {_by_site(names, room)}"
    return f"no place found ({seen}); it waits in its placement queue"


def _by_site(names: Sequence[SiteName], counts: Sequence[int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))


def _placed(
    names: Sequence[SiteName], sites: Sequence[int], sizes: Sequence[int | str], transfer_s: float | None
) -> str:
    where = ", ".join(f"{size} on {names[site]}" for site, size in zip(sites, sizes, strict=True))
    takes_s = known_time(transfer_s)
    files = f"; its files take about {takes_s:.0f} s" if takes_s > 0 else ""
    return f"placed: {where}{files}"


def _believed_links(names: Sequence[SiteName], links: Sequence[BelievedLink]) -> str:
    return f"by what is believed of links: {'; '.join(_believed_link(names, link) for link in links)}"


def _believed_link(names: Sequence[SiteName], link: BelievedLink) -> str:
    source, target, bytes_per_s, predictor, rates, latency_s, latency_predictor, latencies = link
    rate = f"{bandwidth_text(bytes_per_s * 8 / 1e6)} ({_why_believed(predictor, rates)})"
    latency = f"{latency_text(latency_s)} ({_why_believed(latency_predictor, latencies)})"
    return f"{names[source]} to {names[target]} {rate}, {latency}"


def _why_believed(predictor: str, measurements: int) -> str:
    if not predictor:
        return "as the grid file says"
    return f"{predictor}, {measurements} measured"


def _planned(names: Sequence[SiteName], within_s: float, sites: Sequence[int], sizes: Sequence[int | str]) -> str:
    where = ", ".join(f"{size} on {names[site]}" for site, size in zip(sites, sizes, strict=True))
    return f"planned: it starts within {_long(within_s)}, if all keep to their walltimes: {where}"


def _long(seconds: float) -> str:
    """A time that may be long, in words: ``95 s``, ``12 min``, ``23 h 59 min``."""
    if seconds < 600.0:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _avoids(sites: Sequence[SiteName], closed: Sequence[SiteName]) -> str:
    """``closed`` are those of the sites that have too few nodes left for it."""
    failed = [site for site in sites if site not in closed]
    reasons = [f"{', '.join(failed)}, where a run of it failed"] if failed else []
    if closed:
        reasons.append(f"{', '.join(closed)}, where its program failed on nodes and too few others are left for it")
    if not reasons:
        return "it may go to every site again, also where it failed"
    return f"it avoids {'; and '.join(reasons)}, while there is another way"


def _goes_on_from(component: int, source: SiteName | None, size_bytes: int, reason: str) -> str:
    told = (
        f"component {component} begins anew, without a checkpoint"
        if source is None
        else f"component {component} goes on from its checkpoint of {size_bytes} bytes, made on {source}"
    )
    return f"{told}; {reason}" if reason else told


_HAS_COME = {
    Condition.DONE: "job {} is done",
    Condition.ENDED: "job {} has ended",
    Condition.STARTED: "job {} has started",
    Condition.FAILED: "job {} failed",
}
# Where entries have the processors of each part.
_WITH_SIZES = {"placed": 1, "planned": 2}
_WORDS: dict[str, Callable[..., str]] = {
    "refused": _refused,
    "kept_for_plans": lambda _: (
        "enough is idle for it, and kept for the plans of jobs that come before it; it waits in its placement queue"
    ),
    "placed": _placed,
    "believed_links": _believed_links,
    "planned": _planned,
    "put_off": lambda _, before, at, why: f"its plan is put off by {_long(at - before)}: {why}",
    "plan_lost": lambda _, why: f"its plan is given up, as nobody knows when it could start: {why}",
    "file_arrived": lambda names, file, site: f"file {file} arrived on {names[site]}",
    "file_gone": lambda _, file, by: f"the input file {file} was forgotten{by}",
    "transfer_broke": lambda names, file, source, site, reason: (
        f"the transfer of {file} from {names[source]} to {names[site]} broke: {reason}"
    ),
    "too_few_startable": lambda _: "too few components could start now; it is claimed later",
    "moved": lambda names, component, before, site: (
        f"component {component} moved from {names[before]}, where it could not start, to {names[site]}"
    ),
    "preempts": lambda names, component, site, victims: (
        f"component {component} preempts {_jobs(victims)} on {names[site]}"
    ),
    "preempted": lambda names, by, site: f"preempted on {names[site]} by high-priority job {by}",
    "preempts_for_places": lambda _, victims, lost_s: (
        f"it found no places, and preempts {_jobs(victims)} for them: {lost_s:.0f} s of processor time are lost"
    ),
    "preempted_for_places": lambda _, by: f"preempted by high-priority job {by}, which found no places",
    "claims_early": lambda _, within_s: (
        f"its plan is near: it claims its places, and keeps them for at most {within_s:.0f} s (hold_budget)"
    ),
    "claimed": lambda _: "all components are claimed; it starts when all have come to the barrier",
    "not_taken": lambda names, component, site, reason: f"{names[site]} did not take component {component}: {reason}",
    "unsuitable": lambda names, component, site, reason: (
        f"{names[site]} will never run component {component}: {reason}"
    ),
    "closed_to_guests": lambda names, sites: (
        f"it is a guest's: it must not run under the account of the daemon, at {', '.join(names[at] for at in sites)}"
    ),
    "without_images": lambda names, sites: (
        f"it runs in a container image, which cannot be run at {', '.join(names[at] for at in sites)}"
    ),
    "without_program": lambda names, program, sites: (
        f"it requires {program}, which is not provided at {', '.join(names[at] for at in sites)}"
    ),
    "goes_on_from": lambda _, component, source, size_bytes, reason: _goes_on_from(
        component, source, size_bytes, reason
    ),
    "asked_to_save": lambda _, components, grace_s: (
        f"{components} {'component is' if components == 1 else 'components are'} asked to save, and may run for "
        f"{grace_s:g} s more (grace)"
    ),
    "spawns": lambda names, tasks, sites, sizes: f"spawned {_tasks(tasks)}; {_placed(names, sites, sizes, 0.0)}",
    "spawn_begins": lambda _, tasks: f"the spawned {_tasks(tasks)} began",
    "spawn_refused": lambda _, tasks, reason: f"did not spawn {_tasks(tasks)}: {reason}",
    "spawn_withdrawn": lambda _, tasks, reason: f"the spawned {_tasks(tasks)} never began, and left it: {reason}",
    "started": lambda _: "the barrier opened: all components started together",
    "traffic": lambda _, bit_s: f"measured: it sends {bandwidth_text(bit_s / BIT_S_PER_MBIT_S)} between its sites",
    "collecting": lambda names, sites: (
        f"every component is done; what it made is collected on {', '.join(names[site] for site in sites)}"
    ),
    "collected": lambda names, component, site, files, size_bytes: (
        f"component {component} on {names[site]} made {files} {'output' if files == 1 else 'outputs'} of "
        f"{size_bytes:,} bytes, registered there"
    ),
    "component_failed": lambda names, component, site, reason: (
        f"component {component} failed on {names[site]}: {reason}"
    ),
    "to_blame": lambda _, why: (
        f"the job itself is to blame, as {why}: that counts as a failure of its application now, not of the site"
    ),
    "alone": lambda names, site: (
        f"only jobs of its user fail at {names[site]}, and those of others start: the site keeps its trust"
    ),
    "site_lost": lambda names, site, reason: f"{names[site]}, where a component of it is, is lost: {reason}",
    "distrusted": lambda names, site, why: f"{names[site]} is not trusted for a while: {why}",
    "site_back": lambda names, site: f"{names[site]} is trusted again",
    "rests": lambda _, rest_s: f"it rests for {rest_s:g} s before it is placed again",
    "avoids": lambda _, sites, closed: _avoids(sites, closed),
    "not_on_nodes": lambda names, site, nodes: (
        f"not on {'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes)} at {names[site]}, where it failed"
    ),
    "all_nodes": lambda names, site, this_time: (
        f"it may run on every node of {names[site]} {'this time' if this_time else 'again'}, also where it "
        f"failed: there {'is' if this_time else 'was'} no other way"
    ),
    "kept_back": lambda _, *what: f"kept back: {kept_back(*what)}",
    "has_come": lambda _, condition, other: f"what it waited for has come: {_HAS_COME[condition].format(other)}",
    "its_time": lambda _: "its time has come (begin_at)",
    "element_of": lambda _, index, array: f"it is element {index} of array {array}",
    "element_cancelled": lambda _, number, asked_by: (
        f"its element, job {number}, was cancelled before it was made{asked_by}"
    ),
    "held": lambda _, asked_by: f"held{asked_by}",
    "unheld": lambda _, asked_by: f"let go{asked_by}",
    "walltime_changed": lambda _, walltime_s, asked_by: f"its walltime is changed to {walltime_s:g} s{asked_by}",
    "priority_changed": lambda _, priority, asked_by: f"its priority is changed to {priority}{asked_by}",
    "let_go": lambda _: "nothing keeps it back any more: it stands in line",
    "left_out": lambda _, lines: f"... {lines} lines of a long story are left out ...",
    "returned": lambda _, reason: f"back to its placement queue: {reason}",
    "quarantined": lambda _, reason: f"set aside: {reason}",
    "not_given_back": lambda _, error: f"something of what it held could not be given back in order: {error}",
    "requeued": lambda _, asked_by: f"put back into its placement queue{asked_by}",
    "ended": lambda _, state, reason: _ended(str(state), reason),
}


def _ended(state: str, reason: str) -> str:
    """How it ended and why; a reason that begins with the state says both."""
    if reason.startswith(state):
        return reason
    return f"{state}: {reason}" if reason else state


def _tasks(tasks: Sequence[str]) -> str:
    more = len(tasks) - TASKS_TOLD_MAX
    told = ", ".join(tasks[:TASKS_TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{'task' if len(tasks) == 1 else 'tasks'} {told}"


def _jobs(ids: tuple[int, ...]) -> str:
    if not ids:
        return "nobody more"
    return f"{'job' if len(ids) == 1 else 'jobs'} {', '.join(map(str, ids))}"
