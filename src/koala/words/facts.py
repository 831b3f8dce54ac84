"""Events, commands and facts in sentences: the one table of words for the entries of the journal, and for the stories
of jobs, which consist of them.

A sentence of the journal names the job, and needs only the entry itself (``sentence``). In a story the entry is about
the story's job, and depends on the lines before it (``in_story``). The two sentences of an entry stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from koala.model.dependency import Condition
from koala.model.errors import Fault
from koala.model.facts import (
    AskedToSave,
    BeginTimeCame,
    Blamed,
    ClaimPutOff,
    ClaimsEarly,
    ComponentMoved,
    DependencyCame,
    DistrustProved,
    ElementCancelled,
    ElementMade,
    FailsAlone,
    FileArrived,
    InputForgotten,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobPlanned,
    JobRefused,
    JobRequeued,
    JobRests,
    JobUnheld,
    KeptForPlans,
    LinkBelief,
    NodesAllowed,
    NotGivenBack,
    OutputRegistered,
    OutputsAwaited,
    PlanLost,
    PlanPutOff,
    Preempts,
    SiteDistrusted,
    SitesAvoided,
    SitesClosed,
    SiteTrusted,
    SpawnBegan,
    StoryFact,
    TasksSpawned,
    TrafficKnown,
    TransferBroke,
    TransfersExpected,
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
    Token,
    TrafficMeasured,
    TransferEnded,
    UnholdAsked,
    Wish,
)
from koala.model.network import BIT_S_PER_MBIT_S, bandwidth_text, latency_text
from koala.model.request import Request
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
    Outcome.UNSUITABLE: "asks for something that its site will never run",
}
_HAS_COME = {
    Condition.DONE: "job {} is done",
    Condition.ENDED: "job {} has ended",
    Condition.STARTED: "job {} has started",
    Condition.FAILED: "job {} failed",
}


class JobSoFar:
    """The state of a job after the earlier lines of its story, and its request, if that is known."""

    def __init__(self, request: Request | None = None, owner: str = "") -> None:
        self.request = request
        self.owner = owner
        self.claims: dict[int, StartComponent] = {}  # claims that have not ended, by component
        self.done: dict[Token, StartComponent] = {}  # components of this run that returned success
        self.begun = False  # True if the barrier of this run has opened
        self.held: bool | None = None  # True if somebody holds it; None if it is not kept back
        self.spawned: tuple[str, ...] = ()  # tasks that are on their way

    def over(self) -> None:
        """Note that the run is over, or its places are lost."""
        self.claims, self.done, self.begun, self.held, self.spawned = {}, {}, False, None, ()

    def claim(self, token: Token) -> StartComponent | None:
        """Return the claim with this token that has not ended."""
        return next((claim for claim in self.claims.values() if claim.token == token), None)

    def where(self, places: Iterable[tuple[str, int]]) -> str:
        """Format the sizes of the job's parts and their sites."""
        request = self.request
        if request is None or not request.is_shaped:
            return ", ".join(sizes_on((size, site) for site, size in places))
        return ", ".join(
            sizes_on((request.part_in_words(part, size), site) for part, (site, size) in enumerate(places))
        )


def sentence(body: AnyEvent | TurnEntry) -> str:
    """Return an entry of the journal in one sentence without its full stop."""
    words = _WORDS[type(body)]
    if words.journal is not None:
        return words.journal(body)
    assert words.story is not None, "an entry has words"
    assert isinstance(body, StoryFact), "any other entry has a sentence for the journal"
    return f"job {body.job}: {cut(words.story(body, JobSoFar()) or '')}"


def in_story(body: AnyEvent | TurnEntry, job: JobSoFar) -> str | None:
    """Return an entry about the job as one sentence of its story, without a full stop; None if it adds nothing to the
    others."""
    words = _WORDS[type(body)].story
    return None if words is None else words(body, job)


# ------------------------------------------------------------------------------- a job in its queue and out of it


def _asks(kind: str, what: str) -> str:
    return f"{kind} request for {what}"


def _submitted(body: JobSubmitted) -> str:
    request = body.request
    return f"job {body.job} ({cut(request.name)}) was submitted: {_asks(request.kind, request.in_words)}"


def _refused(body: JobRefused, _: JobSoFar) -> str:
    seen = f"idle{' processors' if body.shape else ''}: {_by_site(body.idle)}"
    if body.room:
        seen += f"; room for tasks of {body.shape}: {_by_site(body.room)}"
    return f"no place found ({seen}); it waits in its placement queue"


def _by_site(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts)


def _placed(body: JobPlaced, job: JobSoFar) -> str:
    job.over()
    return f"placed: {job.where(body.places)}"


def _planned(body: JobPlanned, job: JobSoFar) -> str:
    return (
        f"planned: it starts within {long_time(body.within_s)}, if all keep to their walltimes: "
        f"{job.where(body.places)}"
    )


def _job_placed(body: JobPlaced) -> str:
    return f"job {body.job} is placed: {_first_places(body.places)}"


def _first_places(places: Sequence[tuple[str, int]]) -> str:
    return first_named(sizes_on((size, site) for site, size in places))


def _transfers_expected(body: TransfersExpected, _: JobSoFar) -> str:
    told = [f"its files take about {body.transfer_s:.0f} s"] if body.transfer_s > 0 else []
    if body.links:
        told.append(f"link forecasts: {'; '.join(map(_believed_link, body.links))}")
    return "; ".join(told)


def _believed_link(link: LinkBelief) -> str:
    rate = f"{bandwidth_text(link.bytes_per_s * 8 / 1e6)} ({_why_believed(link.rate_predictor, link.rates)})"
    why = _why_believed(link.latency_predictor, link.latencies)
    return f"{link.source} to {link.target} {rate}, {latency_text(link.latency_s)} ({why})"


def _why_believed(predictor: str, measurements: int) -> str:
    return f"{predictor}, {measurements} measured" if predictor else "as the grid file says"


def _job_held(body: JobHeld) -> str:
    return f"job {body.job} is kept back: {_what_keeps_back(body, cut(body.held_by))}"


def _kept_back(body: JobHeld, job: JobSoFar) -> str | None:
    """Return the sentence only once, because each dependency that is satisfied has a line of its own."""
    told, job.held = job.held is not None and job.held >= body.held, body.held
    return None if told else f"kept back: {_what_keeps_back(body, body.held_by)}"


def _what_keeps_back(body: JobHeld, held_by: str) -> str:
    waits_for = [(each.condition, each.job) for each in body.waits_for]
    return kept_back(body.held, waits_for, body.begins_at is not None, body.more, held_by)


def _unheld(_: JobUnheld, job: JobSoFar) -> str:
    job.held = None
    return "nothing keeps it back any more: it stands in line"


def _changed(body: ChangeAsked, job: JobSoFar) -> str:
    changes = [] if body.walltime_s is None else [f"its walltime is changed to {body.walltime_s:g} s"]
    changes += [] if body.priority is None else [f"its priority is changed to {body.priority}"]
    return f"{' and '.join(changes) or 'nothing is changed'}{body.asked_by(job.owner)}"


def _change_asked(body: ChangeAsked) -> str:
    changes = [] if body.walltime_s is None else [f"a walltime of {body.walltime_s:g} s"]
    changes += [] if body.priority is None else [f"{body.priority} priority"]
    return f"job {body.job} is to have {' and '.join(changes) or 'what it has'}{_as_asked(body)}"


def _as_asked(body: Wish) -> str:
    """Format who asked for it, and why."""
    return (f", as {body.by} asked" if body.by else "") + because(body.reason)


def _tasks_spawned(body: TasksSpawned) -> str:
    if body.reason:
        return f"job {body.job} does not get the {cut(tasks(body.tasks))}{because(body.reason)}"
    return f"job {body.job} gets the {cut(tasks(body.tasks))}: {_first_places(body.places)}"


def _spawned(body: TasksSpawned, job: JobSoFar) -> str:
    withdrawn, names = body.tasks == job.spawned, tasks(body.tasks)
    job.spawned = () if body.reason else body.tasks
    if not body.reason:
        return f"spawned {names}; placed: {', '.join(sizes_on((size, site) for site, size in body.places))}"
    if withdrawn:
        return f"the spawned {names} were withdrawn before they began: {body.reason}"
    return f"did not spawn {names}: {body.reason}"


def _spawn_began(body: SpawnBegan, job: JobSoFar) -> str:
    job.spawned = ()
    return f"the spawned {tasks(body.tasks)} began"


def _returned(body: JobRequeued, job: JobSoFar) -> str:
    job.over()
    return f"back to its placement queue: {body.reason}"


def _preempts(body: Preempts, _: JobSoFar) -> str:
    if body.component is not None:
        return f"component {body.component} preempts {jobs(body.victims)} on {body.site}"
    lost = f"{body.lost_s:.0f} s of processor time are lost"
    return f"it found no places, and preempts {jobs(body.victims)} for them: {lost}"


def _ended(state: str, reason: str) -> str:
    """Format how a job ended and why; a reason that begins with the state says both."""
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
    reason = "" if code.endswith(f" {body.reason}") else body.reason  # many sites repeat the exit code
    where = f" on {cut(nodes(body.nodes))}" if body.nodes else ""
    said = f"; stderr: {cut(body.stderr_line)}" if body.stderr_line else ""
    broke = "broke" if body.fault is Fault.OURS else _ENDINGS[body.outcome]
    return f"component {body.token} {broke}{code}{where}{_whose(body.fault)}{because(reason)}{said}"


def _whose(fault: Fault | None) -> str:
    """Format who caused a failure; empty if unknown, or if it is the site, which the sentence names already."""
    return "" if fault is None or fault is Fault.SITE else f", {fault.in_words}"


def _start_component(body: StartComponent) -> str:
    size = counted(body.processors, "processor")
    return f"component {body.part} of job {body.job} claims {size} at {body.site} as {body.token}"


def _claimed(body: StartComponent, job: JobSoFar) -> str | None:
    job.claims[body.part] = body
    told = [f"not on {nodes(body.exclude_nodes)} at {body.site}, where it failed"] if body.exclude_nodes else []
    if len(job.claims) == body.parts and not job.begun:
        told.append("all components are claimed; it starts when all have come to the barrier")
    return "; ".join(told) or None


def _aborted(body: AbortComponent, job: JobSoFar) -> None:
    """Forget the claim: the site's report on its end is no news any more."""
    claim = job.claim(body.token)
    if claim is not None:
        del job.claims[claim.part]


def _started(_: ReleaseBarrier, job: JobSoFar) -> str | None:
    """Return the sentence only once: the command may be repeated, and spawned tasks receive it, too."""
    before, job.begun = job.begun, True
    return None if before else "the barrier opened: all components started together"


def _component_failed(body: ComponentEnded, job: JobSoFar) -> str | None:
    claim = job.claim(body.token)
    if claim is None:
        return None
    del job.claims[claim.part]
    if body.outcome is Outcome.DONE:
        job.done[body.token] = claim
        return None
    part, site, reason = claim.part, claim.site, body.reason or str(body.outcome)
    if body.outcome is Outcome.UNSUITABLE and not job.begun:
        return f"{site} will never run component {part}: {reason}"
    if body.outcome in (Outcome.REFUSED, Outcome.ABSENT) and not job.begun:
        return f"{site} did not take component {part}: {reason}"
    if body.outcome is Outcome.FAILED and (body.fault is None or not body.fault.is_own):
        code = "" if body.exit_code is None else f" with exit code {body.exit_code}"
        reason = f"the application ended{code}"
    said = f"; stderr: {body.stderr_line}" if body.stderr_line else ""
    return f"component {part} failed on {site}: {reason}{said}"


def _goes_on_from(body: CheckpointBrought, job: JobSoFar) -> str | None:
    claim = job.claim(body.token)
    if claim is None:
        return None
    told = (
        f"component {claim.part} begins anew, without a checkpoint"
        if body.source is None
        else f"component {claim.part} continues from its checkpoint of {body.size_bytes} bytes, made on {body.source}"
    )
    return f"{told}; {body.reason}" if body.reason else told


def _collected(body: OutputsCollected, job: JobSoFar) -> str | None:
    claim = job.done.pop(body.token, None)
    if claim is None or not body.outputs:
        return None
    made = f"{counted(len(body.outputs), 'output')} of {sum(each.size_bytes for each in body.outputs):,} bytes"
    return f"component {claim.part} on {claim.site} made {made}"


def _checkpoint_brought(body: CheckpointBrought) -> str:
    told = "begins anew" if body.source is None else f"continues from a checkpoint made at {body.source}"
    return f"component {body.token} {told}{because(body.reason)}"


def _outputs_collected(body: OutputsCollected) -> str:
    if body.problem:
        return f"the outputs of component {body.token} are lost{because(body.problem)}"
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


def _avoids(body: SitesAvoided, _: JobSoFar) -> str:
    failed = [site for site in body.sites if site not in body.closed]
    reasons = [f"{', '.join(failed)}, where a run of it failed"] if failed else []
    if body.closed:
        too_few = "where its program failed on nodes and too few others are left for it"
        reasons.append(f"{', '.join(body.closed)}, {too_few}")
    if not reasons:
        return "it may go to every site again, even where it failed"
    return f"it avoids {'; and '.join(reasons)}, while other sites have room"


def _probed(body: LinkProbed) -> str:
    link = f"the link from {body.source} to {body.target}"
    if body.reason:
        return f"{link} could not be probed{because(body.reason)}"
    told = [] if body.bytes_per_s is None else [bandwidth_text(body.bytes_per_s / _BYTES_PER_S_PER_MBIT_S)]
    told += [] if body.latency_s is None else [latency_text(body.latency_s)]
    return f"{link} was probed: {first_named(told)}"


def _traffic(body: TrafficMeasured) -> str:
    if body.reason:
        return f"the traffic of component {body.token} to other sites is not measured{because(body.reason)}"
    sent, received = (bandwidth_text(bit_s / BIT_S_PER_MBIT_S) for bit_s in (body.sent_bit_s, body.received_bit_s))
    return f"component {body.token} sends {sent} to other sites, and receives {received}"


# ------------------------------------------------------------------------------------------------ the table


class _Words(NamedTuple):
    """The sentences of one type of entry: in the journal, and in the story of its job."""

    journal: Callable[[Any], str] | None = None
    story: Callable[[Any, JobSoFar], str | None] | None = None


_WORDS: dict[type[Any], _Words] = {
    # A job comes, and waits for its turn.
    JobSubmitted: _Words(_submitted, lambda body, _: f"set aside: {body.defect}" if body.defect else None),
    ElementMade: _Words(
        lambda body: f"element {body.index} of array {body.array} is job {body.job}",
        lambda body, _: f"it is element {body.index} of array {body.array}",
    ),
    ElementCancelled: _Words(
        story=lambda body, _: f"its element, job {body.element}, was cancelled before it was made{body.by}"
    ),
    JobHeld: _Words(_job_held, _kept_back),
    HoldAsked: _Words(lambda body: f"job {body.job} is to be held{_as_asked(body)}"),
    UnholdAsked: _Words(
        lambda body: f"the hold of job {body.job} is ended{body.by_whom}",
        lambda body, job: f"hold ended{body.asked_by(job.owner)}",
    ),
    DependencyCame: _Words(
        story=lambda body, _: f"a dependency is satisfied: {_HAS_COME[body.condition].format(body.other)}"
    ),
    BeginTimeCame: _Words(story=lambda *_: "its time has come (begin_at)"),
    JobUnheld: _Words(lambda body: f"nothing keeps job {body.job} back any more", _unheld),
    ChangeAsked: _Words(_change_asked, _changed),
    # It finds places, or none.
    JobRefused: _Words(story=_refused),
    KeptForPlans: _Words(
        story=lambda *_: (
            "enough is idle for it, but kept for the plans of jobs before it; it waits in its placement queue"
        )
    ),
    SitesClosed: _Words(story=lambda body, _: f"closed to it: {', '.join(body.sites)}, which {body.reason}"),
    JobPlanned: _Words(story=_planned),
    PlanPutOff: _Words(story=lambda body, _: f"its plan is put off by {long_time(body.by_s)}: {body.reason}"),
    PlanLost: _Words(
        story=lambda body, _: f"its plan is given up, because its start cannot be predicted: {body.reason}"
    ),
    JobPlaced: _Words(_job_placed, _placed),
    TransfersExpected: _Words(story=_transfers_expected),
    # Its files come.
    StartTransfer: _Words(_start_transfer),
    TransferEnded: _Words(_transfer_ended),
    FileArrived: _Words(story=lambda body, _: f"file {body.file} arrived on {body.site}"),
    TransferBroke: _Words(
        story=lambda body, _: f"the transfer of {body.file} from {body.source} to {body.target} broke: {body.reason}"
    ),
    CancelTransfer: _Words(lambda body: f"transfer {body.transfer} is not needed any more"),
    FileChanged: _Words(_file_changed),
    InputForgotten: _Words(story=lambda body, _: f"the input file {body.file} was forgotten{body.by}"),
    # It is claimed.
    ClaimsEarly: _Words(
        story=lambda body, _: (
            f"its plan is near: it claims its places, and keeps them for at most {body.within_s:.0f} s (hold_budget)"
        )
    ),
    ClaimPutOff: _Words(story=lambda *_: "too few components could start now; it is claimed later"),
    ComponentMoved: _Words(
        story=lambda body, _: (
            f"component {body.component} moved from {body.source}, where it could not start, to {body.target}"
        )
    ),
    Preempts: _Words(story=_preempts),
    StartComponent: _Words(_start_component, _claimed),
    ComponentAccepted: _Words(lambda body: f"component {body.token} waits in the queue of its site"),
    ComponentStarting: _Words(lambda body: f"component {body.token} has its processors and starts"),
    ComponentReady: _Words(lambda body: f"component {body.token} waits at the barrier"),
    # It runs.
    ReleaseBarrier: _Words(
        lambda body: f"the barrier of job {body.job} opens for {first_named(body.tokens)}", _started
    ),
    ComponentRunning: _Words(lambda body: f"component {body.token} runs its application"),
    CheckpointBrought: _Words(_checkpoint_brought, _goes_on_from),
    TrafficMeasured: _Words(_traffic),
    TrafficKnown: _Words(
        story=lambda body, _: f"measured: it sends {bandwidth_text(body.bit_s / BIT_S_PER_MBIT_S)} between its sites"
    ),
    SpawnAsked: _Words(lambda body: f"job {body.job} is to get the {cut(tasks(body.tasks.names))}{_as_asked(body)}"),
    TasksSpawned: _Words(_tasks_spawned, _spawned),
    SpawnBegan: _Words(story=_spawn_began),
    # What it made is collected.
    OutputsAwaited: _Words(
        story=lambda body, _: f"every component is done; its outputs are collected on {', '.join(body.sites)}"
    ),
    CollectOutputs: _Words(
        lambda body: (
            f"the outputs of component {body.token} at {body.site} are collected: "
            f"{cut(first_named([each.path for each in body.outputs]))}"
        )
    ),
    OutputsCollected: _Words(_outputs_collected, _collected),
    OutputRegistered: _Words(
        lambda body: (
            f"the output {cut(body.file)} of job {body.job} ({counted(body.output.size_bytes, 'byte')}) is at "
            f"{first_named(body.sites)}"
        )
    ),
    # A run ends early.
    ComponentEnded: _Words(_component_ended, _component_failed),
    AskCheckpoint: _Words(lambda body: f"component {body.token} at {body.site} is asked to save its state"),
    AskedToSave: _Words(
        story=lambda body, _: (
            f"{body.components} {'component is' if body.components == 1 else 'components are'} asked to save, and "
            f"may run for {body.grace_s:g} s more (grace)"
        )
    ),
    AbortComponent: _Words(lambda body: f"component {body.token} at {body.site} must end", _aborted),
    Blamed: _Words(
        story=lambda body, _: (
            f"the job itself is to blame, as {body.reason}: that counts as a failure of its application now, not of "
            "the site"
        )
    ),
    FailsAlone: _Words(
        story=lambda body, _: (
            f"only jobs of its user fail at {body.site}, and those of others start: the site keeps its trust"
        )
    ),
    NodesAllowed: _Words(
        story=lambda body, _: (
            f"it may run on every node of {body.site} {'this time' if body.once else 'again'}, even where it "
            f"failed: there {'is' if body.once else 'was'} no other way"
        )
    ),
    SitesAvoided: _Words(story=_avoids),
    RestartAsked: _Words(
        lambda body: (
            f"job {body.job} is to go back to its queue{' and to be held' if body.hold else ''}{_as_asked(body)}"
        )
    ),
    JobRequeued: _Words(
        lambda body: f"job {body.job} returns to its placement queue{because(body.reason)}", _returned
    ),
    JobRests: _Words(story=lambda body, _: f"it rests for {body.rest_s:g} s before it is placed again"),
    # It is over, or set aside.
    CancelAsked: _Words(lambda body: f"the cancellation of job {body.job} was requested{body.by_whom}"),
    JobEnded: _Words(_job_ended, lambda body, _: _ended(str(body.outcome), body.reason)),
    JobQuarantined: _Words(
        lambda body: f"job {body.job} goes into quarantine{because(body.reason)}",
        lambda body, _: f"set aside: {body.reason}",
    ),
    NotGivenBack: _Words(
        story=lambda body, _: f"something that it held could not be given back properly: {body.error}"
    ),
    RequeueAsked: _Words(
        lambda body: f"job {body.job} is to leave quarantine{' and to be held' if body.hold else ''}{_as_asked(body)}"
    ),
    # Sites and links.
    SiteReported: _Words(
        lambda body: f"{body.site} has {counted(body.processors, 'processor')}; others hold {body.others}"
    ),
    SiteMachines: _Words(
        lambda body: (
            f"the machines of {body.site}: "
            + (", ".join(f"{n} of {p:.0f} MFlop/s, load {load:.0%}" for n, p, load in body.machines) or "as declared")
        )
    ),
    SiteSilent: _Words(
        lambda body: f"{body.site} {'cannot be used' if body.answers else 'does not answer'}{because(body.reason)}"
    ),
    AskSite: _Words(lambda body: f"{body.site} is asked about {first_named(body.tokens)}"),
    SiteDistrusted: _Words(lambda body: _distrusted(body.site, cut(body.reason))),
    DistrustProved: _Words(story=lambda body, _: _distrusted(body.site, body.reason)),
    SiteTrusted: _Words(story=lambda body, _: f"{body.site} is trusted again"),
    SiteLost: _Words(lambda body: f"{body.site} is declared lost{body.by_whom}; its jobs start again elsewhere"),
    SiteDrained: _Words(lambda body: f"{body.site} is drained{body.by_whom}; nothing new goes there"),
    SiteResumed: _Words(lambda body: f"{body.site} is used again and its errors are forgotten{_as_asked(body)}"),
    ProbeLink: _Words(lambda body: f"the link from {body.source} to {body.target} is probed"),
    LinkProbed: _Words(_probed),
    Tick: _Words(lambda _: "time has passed"),
}
# The types of entries that appear in stories.
STORY_KINDS = frozenset(kind.__name__ for kind, words in _WORDS.items() if words.story is not None)


def _distrusted(site: str, why: str) -> str:
    return f"{site} is not trusted for a while{': ' if why else ''}{why}"
