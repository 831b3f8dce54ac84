"""What happened, in sentences: the one table of words for the entries of the journal and for those of a job's story.

A sentence of the journal names the job, and needs only the entry itself (``sentence``). An entry of a story is about
the job whose story it is, and has the reasons of decisions (``told``). Both of one happening stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from koala.core.story import StoryEntry
from koala.model.dependency import Condition
from koala.model.errors import Fault
from koala.model.facts import (
    ElementMade,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobRequeued,
    JobUnheld,
    OutputRegistered,
    SiteDistrusted,
    TasksSpawned,
    TurnEntry,
)
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    AskCheckpoint,
    AskSite,
    CancelAsked,
    CancelTransfer,
    ChangeAsked,
    CheckpointBrought,
    CollectOutputs,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    FileChanged,
    HoldAsked,
    JobOutcome,
    JobQuarantined,
    JobSubmitted,
    LinkProbed,
    Outcome,
    OutputsCollected,
    ProbeLink,
    ReleaseBarrier,
    RequeueAsked,
    RestartAsked,
    SiteDrained,
    SiteLost,
    SiteMachines,
    SiteReported,
    SiteResumed,
    SiteSilent,
    SpawnAsked,
    StartComponent,
    StartTransfer,
    Tick,
    TrafficMeasured,
    TransferEnded,
    UnholdAsked,
    Wish,
)
from koala.model.network import BIT_S_PER_MBIT_S, bandwidth_text, latency_text
from koala.words.phrases import because, counted, cut, first_named, jobs, long_time, nodes, sizes_on, tasks
from koala.words.standing import kept_back

_BYTES_PER_S_PER_MBIT_S = 125_000.0

_ENDINGS: dict[Outcome, str] = {
    Outcome.DONE: "ended with success",
    Outcome.FAILED: "failed",
    Outcome.SITE_FAILED: "was broken by its site",
    Outcome.TIMED_OUT: "ran longer than its walltime",
    Outcome.ABORTED: "was aborted",
    Outcome.REFUSED: "was refused by its site",
    Outcome.ABSENT: "is unknown to its site and will never start",
    Outcome.UNSUITABLE: "asks for what its site will never run",
}
_HAS_COME = {
    Condition.DONE: "job {} is done",
    Condition.ENDED: "job {} has ended",
    Condition.STARTED: "job {} has started",
    Condition.FAILED: "job {} failed",
}


def sentence(body: AnyEvent | TurnEntry) -> str:
    """An entry of the journal in one sentence without its full stop."""
    return _WORDS[type(body)](body)


def told(entry: StoryEntry) -> str:
    """An entry of a job's story in one sentence without its full stop."""
    return _WORDS[entry.what](*entry.details)


# ------------------------------------------------------------------------------- a job in its queue and out of it


def _asks(kind: str, what: str) -> str:
    return f"{kind} request for {what}"


def _submitted(body: JobSubmitted) -> str:
    request = body.request
    return f"job {body.job} ({cut(request.name)}) was submitted: {_asks(request.kind, request.in_words)}"


def _refused(idle: Sequence[tuple[str, int]], shape: str | None, room: Sequence[tuple[str, int]] = ()) -> str:
    seen = f"idle{'' if shape is None else ' processors'}: {_by_site(idle)}"
    if room:
        seen += f"; room for tasks of {shape}: {_by_site(room)}"
    return f"no place found ({seen}); it waits in its placement queue"


def _by_site(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts)


def _placed(sites: Sequence[str], sizes: Sequence[int | str], transfer_s: float) -> str:
    files = f"; its files take about {transfer_s:.0f} s" if transfer_s > 0 else ""
    return f"placed: {_where(sites, sizes)}{files}"


def _where(sites: Sequence[str], sizes: Sequence[int | str]) -> str:
    return ", ".join(sizes_on(zip(sizes, sites, strict=True)))


def _job_placed(body: JobPlaced) -> str:
    return f"job {body.job} is placed: {_first_places(body.places)}"


def _first_places(places: Sequence[tuple[str, int]]) -> str:
    return first_named(sizes_on((size, site) for site, size in places))


def _believed_link(link: Sequence[Any]) -> str:
    source, target, bytes_per_s, predictor, rates, latency_s, latency_predictor, latencies = link
    rate = f"{bandwidth_text(bytes_per_s * 8 / 1e6)} ({_why_believed(predictor, rates)})"
    latency = f"{latency_text(latency_s)} ({_why_believed(latency_predictor, latencies)})"
    return f"{source} to {target} {rate}, {latency}"


def _why_believed(predictor: str, measurements: int) -> str:
    return f"{predictor}, {measurements} measured" if predictor else "as the grid file says"


def _job_held(body: JobHeld) -> str:
    waits_for = [(each.condition, each.job) for each in body.waits_for]
    told = kept_back(body.held, waits_for, body.begins_at is not None, body.more, cut(body.held_by))
    return f"job {body.job} is kept back: {told}"


def _change_asked(body: ChangeAsked) -> str:
    changes = [] if body.walltime_s is None else [f"a walltime of {body.walltime_s:g} s"]
    changes += [] if body.priority is None else [f"{body.priority} priority"]
    return f"job {body.job} is to have {' and '.join(changes) or 'what it has'}{_as_asked(body)}"


def _as_asked(body: Wish) -> str:
    """Who wanted it, and why."""
    return (f", as {body.by} asked" if body.by else "") + because(body.reason)


def _tasks_spawned(body: TasksSpawned) -> str:
    if body.reason:
        return f"job {body.job} does not get the {cut(tasks(body.tasks))}{because(body.reason)}"
    return f"job {body.job} gets the {cut(tasks(body.tasks))}: {_first_places(body.places)}"


def _ended(state: str, reason: str) -> str:
    """How it ended and why; a reason that begins with the state says both."""
    if reason.startswith(state):
        return reason
    return f"{state}: {reason}" if reason else state


def _job_ended(body: JobEnded) -> str:
    outcome, reason = body.outcome, cut(body.reason)
    if outcome is JobOutcome.FAILED:
        return f"job {body.job} failed{because(reason)}"
    says_more = outcome is JobOutcome.CANCELLED and reason.startswith(outcome)
    return f"job {body.job} is {_ended(str(outcome), reason if says_more else '')}"


# --------------------------------------------------------------------------------- components and files


def _component_ended(body: ComponentEnded) -> str:
    code = "" if body.exit_code is None or body.outcome is Outcome.DONE else f" with exit code {body.exit_code}"
    reason = "" if code.endswith(f" {body.reason}") else body.reason  # many sites say the exit code once more
    where = f" on {cut(nodes(body.nodes))}" if body.nodes else ""
    said = f"; stderr: {cut(body.stderr_line)}" if body.stderr_line else ""
    broke = "broke" if body.fault is Fault.OURS else _ENDINGS[body.outcome]
    return f"component {body.token} {broke}{code}{where}{_whose(body.fault)}{because(reason)}{said}"


def _whose(fault: Fault | None) -> str:
    """Whose a failure is, where that is known and not the site's, of which the sentence tells."""
    return "" if fault is None or fault is Fault.SITE else f", {fault.in_words}"


def _start_component(body: StartComponent) -> str:
    size = counted(body.processors, "processor")
    return f"component {body.part} of job {body.job} claims {size} at {body.site} as {body.token}"


def _goes_on_from(component: int, source: str | None, size_bytes: int, reason: str) -> str:
    told = (
        f"component {component} begins anew, without a checkpoint"
        if source is None
        else f"component {component} goes on from its checkpoint of {size_bytes} bytes, made on {source}"
    )
    return f"{told}; {reason}" if reason else told


def _checkpoint_brought(body: CheckpointBrought) -> str:
    told = "begins anew" if body.source is None else f"goes on from a checkpoint made at {body.source}"
    return f"component {body.token} {told}{because(body.reason)}"


def _outputs_collected(body: OutputsCollected) -> str:
    if body.problem:
        return f"the outputs of component {body.token} cannot be had{because(body.problem)}"
    return f"component {body.token} made {cut(first_named([each.path for each in body.outputs])) or 'no output'}"


def _transfer_ended(body: TransferEnded) -> str:
    if body.ok:
        return f"transfer {body.transfer} arrived"
    return f"transfer {body.transfer} broke{_whose(body.fault)}{because(body.reason)}"


def _file_changed(body: FileChanged) -> str:
    if body.time_is_over:
        return f"the time of the file {cut(body.file)} is over"
    if not body.replicas:
        return f"the file {cut(body.file)} was forgotten{body.by_whom}"
    return f"the file {cut(body.file)} ({counted(body.size_bytes, 'byte')}) is at {first_named(body.replicas)}"


def _start_transfer(body: StartTransfer) -> str:
    piece = "the file" if body.chunk is None else "a chunk of the file"
    size = counted(body.size_bytes, "byte")
    return f"transfer {body.transfer} brings {piece} {cut(body.file)} from {body.source} to {body.target} ({size})"


# ------------------------------------------------------------------------------------------ sites and links


def _avoids(sites: Sequence[str], closed: Sequence[str]) -> str:
    """``closed`` are those of the sites that have too few nodes left for it."""
    failed = [site for site in sites if site not in closed]
    reasons = [f"{', '.join(failed)}, where a run of it failed"] if failed else []
    if closed:
        reasons.append(f"{', '.join(closed)}, where its program failed on nodes and too few others are left for it")
    if not reasons:
        return "it may go to every site again, also where it failed"
    return f"it avoids {'; and '.join(reasons)}, while there is another way"


def _probed(body: LinkProbed) -> str:
    link = f"the link from {body.source} to {body.target}"
    if body.reason:
        return f"{link} could not be probed{because(body.reason)}"
    told = [] if body.bytes_per_s is None else [bandwidth_text(body.bytes_per_s / _BYTES_PER_S_PER_MBIT_S)]
    told += [] if body.latency_s is None else [latency_text(body.latency_s)]
    return f"{link} was probed: {first_named(told)}"


def _traffic(body: TrafficMeasured) -> str:
    if body.reason:
        return f"what component {body.token} sends to other sites is not measured{because(body.reason)}"
    sent, received = (bandwidth_text(bit_s / BIT_S_PER_MBIT_S) for bit_s in (body.sent_bit_s, body.received_bit_s))
    return f"component {body.token} sends {sent} to other sites, and receives {received}"


# ------------------------------------------------------------------------------------------------ the table

_WORDS: dict[type[Any] | str, Callable[..., str]] = {
    # A job comes, and waits for its turn.
    JobSubmitted: _submitted,
    "submitted": lambda kind, what: f"submitted: {_asks(kind, what)}",
    ElementMade: lambda body: f"element {body.index} of array {body.array} is job {body.job}",
    "element_of": lambda index, array: f"it is element {index} of array {array}",
    "element_cancelled": lambda number, asked_by: (
        f"its element, job {number}, was cancelled before it was made{asked_by}"
    ),
    JobHeld: _job_held,
    "kept_back": lambda *what: f"kept back: {kept_back(*what)}",
    HoldAsked: lambda body: f"job {body.job} is to be held{_as_asked(body)}",
    "held": lambda asked_by: f"held{asked_by}",
    UnholdAsked: lambda body: f"job {body.job} is let go{body.by_whom}",
    "unheld": lambda asked_by: f"let go{asked_by}",
    "has_come": lambda condition, other: f"what it waited for has come: {_HAS_COME[condition].format(other)}",
    "its_time": lambda: "its time has come (begin_at)",
    JobUnheld: lambda body: f"nothing keeps job {body.job} back any more",
    "let_go": lambda: "nothing keeps it back any more: it stands in line",
    ChangeAsked: _change_asked,
    "walltime_changed": lambda walltime_s, asked_by: f"its walltime is changed to {walltime_s:g} s{asked_by}",
    "priority_changed": lambda priority, asked_by: f"its priority is changed to {priority}{asked_by}",
    # It finds places, or none.
    "refused": _refused,
    "kept_for_plans": lambda: (
        "enough is idle for it, and kept for the plans of jobs that come before it; it waits in its placement queue"
    ),
    "closed_to_guests": lambda sites: (
        f"it is a guest's: it must not run under the account of the daemon, at {', '.join(sites)}"
    ),
    "without_images": lambda sites: f"it runs in a container image, which cannot be run at {', '.join(sites)}",
    "without_program": lambda program, sites: f"it requires {program}, which is not provided at {', '.join(sites)}",
    "planned": lambda within_s, sites, sizes: (
        f"planned: it starts within {long_time(within_s)}, if all keep to their walltimes: {_where(sites, sizes)}"
    ),
    "put_off": lambda before, at, why: f"its plan is put off by {long_time(at - before)}: {why}",
    "plan_lost": lambda why: f"its plan is given up, as nobody knows when it could start: {why}",
    JobPlaced: _job_placed,
    "placed": _placed,
    "believed_links": lambda links: f"by what is believed of links: {'; '.join(map(_believed_link, links))}",
    "preempts_for_places": lambda victims, lost_s: (
        f"it found no places, and preempts {jobs(victims)} for them: {lost_s:.0f} s of processor time are lost"
    ),
    "preempted_for_places": lambda by: f"preempted by high-priority job {by}, which found no places",
    # Its files come.
    StartTransfer: _start_transfer,
    TransferEnded: _transfer_ended,
    "file_arrived": lambda file, site: f"file {file} arrived on {site}",
    "transfer_broke": lambda file, source, site, reason: (
        f"the transfer of {file} from {source} to {site} broke: {reason}"
    ),
    CancelTransfer: lambda body: f"transfer {body.transfer} is not needed any more",
    FileChanged: _file_changed,
    "file_gone": lambda file, by: f"the input file {file} was forgotten{by}",
    # It is claimed.
    "claims_early": lambda within_s: (
        f"its plan is near: it claims its places, and keeps them for at most {within_s:.0f} s (hold_budget)"
    ),
    "too_few_startable": lambda: "too few components could start now; it is claimed later",
    "moved": lambda component, before, site: (
        f"component {component} moved from {before}, where it could not start, to {site}"
    ),
    "preempts": lambda component, site, victims: f"component {component} preempts {jobs(victims)} on {site}",
    "preempted": lambda by, site: f"preempted on {site} by high-priority job {by}",
    StartComponent: _start_component,
    "claimed": lambda: "all components are claimed; it starts when all have come to the barrier",
    ComponentAccepted: lambda body: f"component {body.token} waits in the queue of its site",
    ComponentStarting: lambda body: f"component {body.token} has its processors and starts",
    ComponentReady: lambda body: f"component {body.token} waits at the barrier",
    "not_taken": lambda component, site, reason: f"{site} did not take component {component}: {reason}",
    "unsuitable": lambda component, site, reason: f"{site} will never run component {component}: {reason}",
    # It runs.
    ReleaseBarrier: lambda body: f"the barrier of job {body.job} opens for {first_named(body.tokens)}",
    "started": lambda: "the barrier opened: all components started together",
    ComponentRunning: lambda body: f"component {body.token} runs its application",
    CheckpointBrought: _checkpoint_brought,
    "goes_on_from": _goes_on_from,
    TrafficMeasured: _traffic,
    "traffic": lambda bit_s: f"measured: it sends {bandwidth_text(bit_s / BIT_S_PER_MBIT_S)} between its sites",
    SpawnAsked: lambda body: f"job {body.job} is to get the {cut(tasks(body.tasks.names))}{_as_asked(body)}",
    TasksSpawned: _tasks_spawned,
    "spawns": lambda names, sites, sizes: f"spawned {tasks(names)}; {_placed(sites, sizes, 0.0)}",
    "spawn_begins": lambda names: f"the spawned {tasks(names)} began",
    "spawn_refused": lambda names, reason: f"did not spawn {tasks(names)}: {reason}",
    "spawn_withdrawn": lambda names, reason: f"the spawned {tasks(names)} never began, and left it: {reason}",
    # What it made is collected.
    CollectOutputs: lambda body: (
        f"the outputs of component {body.token} at {body.site} are collected: "
        f"{cut(first_named([each.path for each in body.outputs]))}"
    ),
    "collecting": lambda sites: f"every component is done; what it made is collected on {', '.join(sites)}",
    OutputsCollected: _outputs_collected,
    "collected": lambda component, site, files, size_bytes: (
        f"component {component} on {site} made {counted(files, 'output')} of {size_bytes:,} bytes, registered there"
    ),
    OutputRegistered: lambda body: (
        f"the output {cut(body.file)} of job {body.job} ({counted(body.output.size_bytes, 'byte')}) is at "
        f"{first_named(body.sites)}"
    ),
    # A run ends early.
    ComponentEnded: _component_ended,
    "component_failed": lambda component, site, reason: f"component {component} failed on {site}: {reason}",
    AskCheckpoint: lambda body: f"component {body.token} at {body.site} is asked to save its state",
    "asked_to_save": lambda components, grace_s: (
        f"{components} {'component is' if components == 1 else 'components are'} asked to save, and may run for "
        f"{grace_s:g} s more (grace)"
    ),
    AbortComponent: lambda body: f"component {body.token} at {body.site} must end",
    "to_blame": lambda why: (
        f"the job itself is to blame, as {why}: that counts as a failure of its application now, not of the site"
    ),
    "alone": lambda site: (
        f"only jobs of its user fail at {site}, and those of others start: the site keeps its trust"
    ),
    "not_on_nodes": lambda site, names: f"not on {nodes(names)} at {site}, where it failed",
    "all_nodes": lambda site, this_time: (
        f"it may run on every node of {site} {'this time' if this_time else 'again'}, also where it "
        f"failed: there {'is' if this_time else 'was'} no other way"
    ),
    "avoids": _avoids,
    RestartAsked: lambda body: (
        f"job {body.job} is to go back to its queue{' and to be held' if body.hold else ''}{_as_asked(body)}"
    ),
    JobRequeued: lambda body: f"job {body.job} returns to its placement queue{because(body.reason)}",
    "returned": lambda reason: f"back to its placement queue: {reason}",
    "rests": lambda rest_s: f"it rests for {rest_s:g} s before it is placed again",
    # It is over, or set aside.
    CancelAsked: lambda body: f"the end of job {body.job} was asked for{body.by_whom}",
    JobEnded: _job_ended,
    "ended": lambda state, reason: _ended(str(state), reason),
    JobQuarantined: lambda body: f"job {body.job} goes into quarantine{because(body.reason)}",
    "quarantined": lambda reason: f"set aside: {reason}",
    "not_given_back": lambda error: f"something of what it held could not be given back in order: {error}",
    RequeueAsked: lambda body: (
        f"job {body.job} is to leave quarantine{' and to be held' if body.hold else ''}{_as_asked(body)}"
    ),
    "requeued": lambda asked_by: f"put back into its placement queue{asked_by}",
    "left_out": lambda lines: f"... {lines} lines of a long story are left out ...",
    # Sites and links.
    SiteReported: lambda body: (
        f"{body.site} has {counted(body.processors, 'processor')}, of which others hold {body.others}"
    ),
    SiteMachines: lambda body: (
        f"the machines of {body.site}: "
        + (", ".join(f"{n} of {p:.0f} MFlop/s, load {load:.0%}" for n, p, load in body.machines) or "as declared")
    ),
    SiteSilent: lambda body: (
        f"{body.site} {'cannot be used' if body.answers else 'does not answer'}{because(body.reason)}"
    ),
    AskSite: lambda body: f"{body.site} is asked about {first_named(body.tokens)}",
    SiteDistrusted: lambda body: _distrusted(body.site, cut(body.reason)),
    "distrusted": lambda site, why: _distrusted(site, why),
    "site_back": lambda site: f"{site} is trusted again",
    SiteLost: lambda body: f"{body.site} is declared lost{body.by_whom}; its jobs start again elsewhere",
    "site_lost": lambda site, reason: f"{site}, where a component of it is, is lost: {reason}",
    SiteDrained: lambda body: f"{body.site} is drained{body.by_whom}; nothing new goes there",
    SiteResumed: lambda body: f"{body.site} is used again and its errors are forgotten{_as_asked(body)}",
    ProbeLink: lambda body: f"the link from {body.source} to {body.target} is probed",
    LinkProbed: _probed,
    Tick: lambda _: "time has passed",
}


def _distrusted(site: str, why: str) -> str:
    return f"{site} is not trusted for a while{': ' if why else ''}{why}"
