"""A sentence for every entry of the journal: what happened, or what was decided, in words for people.

The sentences only read the entry itself. A job's story, with the reasons of its decisions, is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from koala.model.dependency import in_words
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

_BYTES_PER_S_PER_MBIT_S = 125_000.0
# A sentence names at most so many things of one kind; the rest are counted.
NAMES_MAX = 8
# A user's text in a sentence is cut beyond this.
TEXT_CHARACTERS_MAX = 200

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


def sentence(body: AnyEvent | TurnEntry) -> str:
    """What the message says, in one sentence without its full stop."""
    return _WORDS[type(body)](body)


def _submitted(body: JobSubmitted) -> str:
    request = body.request
    asked = f"{request.kind} request for {request.in_words}"
    return f"job {body.job} ({_cut(request.name)}) was submitted: {asked}"


def _ended(body: ComponentEnded) -> str:
    code = "" if body.exit_code is None or body.outcome is Outcome.DONE else f" with exit code {body.exit_code}"
    reason = "" if code.endswith(f" {body.reason}") else body.reason  # many sites say the exit code once more
    where = f" on {'node' if len(body.nodes) == 1 else 'nodes'} {_cut(', '.join(body.nodes))}" if body.nodes else ""
    said = f"; stderr: {_cut(body.stderr_line)}" if body.stderr_line else ""
    broke = "broke" if body.fault is Fault.OURS else _ENDINGS[body.outcome]
    return f"component {body.token} {broke}{code}{where}{_whose(body.fault)}{_because(reason)}{said}"


def _whose(fault: Fault | None) -> str:
    """Whose a failure is, where that is known and not the site's, of which the sentence tells."""
    return "" if fault is None or fault is Fault.SITE else f", {fault.in_words}"


def _transfer_ended(body: TransferEnded) -> str:
    if body.ok:
        return f"transfer {body.transfer} arrived"
    return f"transfer {body.transfer} broke{_whose(body.fault)}{_because(body.reason)}"


def _file_changed(body: FileChanged) -> str:
    if not body.replicas:
        return f"the file {_cut(body.file)} was forgotten{body.by_whom}"
    return f"the file {_cut(body.file)} ({_counted(body.size_bytes, 'byte')}) is at {_names(body.replicas)}"


def _start_component(body: StartComponent) -> str:
    size = _counted(body.processors, "processor")
    return f"component {body.part} of job {body.job} claims {size} at {body.site} as {body.token}"


def _start_transfer(body: StartTransfer) -> str:
    piece = "the file" if body.chunk is None else "a chunk of the file"
    size = _counted(body.size_bytes, "byte")
    return f"transfer {body.transfer} brings {piece} {_cut(body.file)} from {body.source} to {body.target} ({size})"


def _probed(body: LinkProbed) -> str:
    link = f"the link from {body.source} to {body.target}"
    if body.reason:
        return f"{link} could not be probed{_because(body.reason)}"
    told = [] if body.bytes_per_s is None else [bandwidth_text(body.bytes_per_s / _BYTES_PER_S_PER_MBIT_S)]
    told += [] if body.latency_s is None else [latency_text(body.latency_s)]
    return f"{link} was probed: {_names(told)}"


def _traffic(body: TrafficMeasured) -> str:
    if body.reason:
        return f"what component {body.token} sends to other sites is not measured{_because(body.reason)}"
    sent, received = (bandwidth_text(bit_s / BIT_S_PER_MBIT_S) for bit_s in (body.sent_bit_s, body.received_bit_s))
    return f"component {body.token} sends {sent} to other sites, and receives {received}"


def _job_placed(body: JobPlaced) -> str:
    return f"job {body.job} is placed: {_names([f'{size} on {site}' for site, size in body.places])}"


def _change_asked(body: ChangeAsked) -> str:
    changes = [] if body.walltime_s is None else [f"a walltime of {body.walltime_s:g} s"]
    changes += [] if body.priority is None else [f"{body.priority} priority"]
    return f"job {body.job} is to have {' and '.join(changes) or 'what it has'}{_as_asked(body)}"


def _as_asked(body: Wish) -> str:
    """Who wanted it, and why."""
    return (f", as {body.by} asked" if body.by else "") + _because(body.reason)


def _tasks(names: Sequence[str]) -> str:
    return f"the {'task' if len(names) == 1 else 'tasks'} {_cut(_names(names))}"


def _tasks_spawned(body: TasksSpawned) -> str:
    if body.reason:
        return f"job {body.job} does not get {_tasks(body.tasks)}{_because(body.reason)}"
    places = _names([f"{size} on {site}" for site, size in body.places])
    return f"job {body.job} gets {_tasks(body.tasks)}: {places}"


def _job_held(body: JobHeld) -> str:
    reasons = [f"it waits for {in_words(each.condition, each.job)}" for each in body.waits_for[:NAMES_MAX]]
    reasons += ["it waits for more"] if body.more or len(body.waits_for) > NAMES_MAX else []
    reasons += [] if body.begins_at is None else ["it waits for its time"]
    reasons += [f"it is held{_cut(body.held_by)}"] if body.held else []
    return f"job {body.job} is kept back: {'; '.join(reasons)}"


def _job_ended(body: JobEnded) -> str:
    if body.outcome is JobOutcome.FAILED:
        return f"job {body.job} failed{_because(body.reason)}"
    if body.outcome is JobOutcome.CANCELLED and body.reason.startswith(body.outcome):
        return f"job {body.job} is {_cut(body.reason)}"
    return f"job {body.job} is {body.outcome}"


def _checkpoint_brought(body: CheckpointBrought) -> str:
    told = "begins anew" if body.source is None else f"goes on from a checkpoint made at {body.source}"
    return f"component {body.token} {told}{_because(body.reason)}"


_WORDS: dict[type[Any], Callable[[Any], str]] = {
    JobSubmitted: _submitted,
    CancelAsked: lambda body: f"the end of job {body.job} was asked for{body.by_whom}",
    JobQuarantined: lambda body: f"job {body.job} goes into quarantine{_because(body.reason)}",
    RequeueAsked: lambda body: (
        f"job {body.job} is to leave quarantine{' and to be held' if body.hold else ''}{_as_asked(body)}"
    ),
    HoldAsked: lambda body: f"job {body.job} is to be held{_as_asked(body)}",
    UnholdAsked: lambda body: f"job {body.job} is let go{body.by_whom}",
    RestartAsked: lambda body: (
        f"job {body.job} is to go back to its queue{' and to be held' if body.hold else ''}{_as_asked(body)}"
    ),
    ChangeAsked: _change_asked,
    SpawnAsked: lambda body: f"job {body.job} is to get {_tasks(body.tasks.names)}{_as_asked(body)}",
    TasksSpawned: _tasks_spawned,
    ElementMade: lambda body: f"element {body.index} of array {body.array} is job {body.job}",
    JobHeld: _job_held,
    JobUnheld: lambda body: f"nothing keeps job {body.job} back any more",
    ComponentAccepted: lambda body: f"component {body.token} waits in the queue of its site",
    ComponentStarting: lambda body: f"component {body.token} has its processors and starts",
    ComponentReady: lambda body: f"component {body.token} waits at the barrier",
    ComponentRunning: lambda body: f"component {body.token} runs its application",
    ComponentEnded: _ended,
    CheckpointBrought: _checkpoint_brought,
    TransferEnded: _transfer_ended,
    FileChanged: _file_changed,
    SiteReported: lambda body: (
        f"{body.site} has {_counted(body.processors, 'processor')}, of which others hold {body.others}"
    ),
    SiteMachines: lambda body: (
        f"the machines of {body.site}: "
        + (", ".join(f"{n} of {p:.0f} MFlop/s, load {load:.0%}" for n, p, load in body.machines) or "as declared")
    ),
    SiteSilent: lambda body: (
        f"{body.site} {'cannot be used' if body.answers else 'does not answer'}{_because(body.reason)}"
    ),
    LinkProbed: _probed,
    TrafficMeasured: _traffic,
    SiteLost: lambda body: f"{body.site} is declared lost{body.by_whom}; its jobs start again elsewhere",
    SiteDrained: lambda body: f"{body.site} is drained{body.by_whom}; nothing new goes there",
    SiteResumed: lambda body: f"{body.site} is used again and its errors are forgotten{_as_asked(body)}",
    Tick: lambda _: "time has passed",
    StartComponent: _start_component,
    AskCheckpoint: lambda body: f"component {body.token} at {body.site} is asked to save its state",
    AbortComponent: lambda body: f"component {body.token} at {body.site} must end",
    ReleaseBarrier: lambda body: f"the barrier of job {body.job} opens for {_names(body.tokens)}",
    CollectOutputs: lambda body: (
        f"the outputs of component {body.token} at {body.site} are collected: "
        f"{_cut(_names([each.path for each in body.outputs]))}"
    ),
    OutputsCollected: lambda body: (
        f"the outputs of component {body.token} cannot be had{_because(body.problem)}"
        if body.problem
        else f"component {body.token} made {_cut(_names([each.path for each in body.outputs])) or 'no output'}"
    ),
    OutputRegistered: lambda body: (
        f"the output {_cut(body.file)} of job {body.job} ({_counted(body.output.size_bytes, 'byte')}) is at "
        f"{_names(body.sites)}"
    ),
    StartTransfer: _start_transfer,
    ProbeLink: lambda body: f"the link from {body.source} to {body.target} is probed",
    CancelTransfer: lambda body: f"transfer {body.transfer} is not needed any more",
    AskSite: lambda body: f"{body.site} is asked about {_names(body.tokens)}",
    JobPlaced: _job_placed,
    JobRequeued: lambda body: f"job {body.job} returns to its placement queue{_because(body.reason)}",
    SiteDistrusted: lambda body: f"{body.site} is not trusted for a while{_because(body.reason)}",
    JobEnded: _job_ended,
}


def _because(reason: str) -> str:
    return f": {_cut(reason)}" if reason else ""


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 3] + "..."
