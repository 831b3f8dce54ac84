"""A sentence for every message of the journal."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from koala.model.dependency import Dependency
from koala.model.facts import (
    AnyStoryFact,
    ElementMade,
    FileArrived,
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
)
from koala.model.outputs import JobOutput, MadeOutput
from koala.model.request import Component, Priority, Request
from koala.model.task_graph import SpawnedTasks
from koala.words.facts import STORY_KINDS, sentence
from koala.words.phrases import NAMES_MAX, TEXT_CHARACTERS_MAX

FIRST, SECOND = "7.1", "7.2"
REQUEST = Request(components=(Component(processors=3), Component(processors=1)), name="heat")
ENDED = JobEnded(
    job=7,
    outcome=JobOutcome.DONE,
    reason="",
    submitted_at=1.0,
    placed_at=1.0,
    started_at=2.0,
    ended_at=9.0,
    first_start_estimate=1.0,
    last_start_estimate=1.0,
    places=(("A", 3), ("B", 1)),
    placement_tries=1,
    claiming_tries=1,
    runs=1,
    failures=0,
    preemptions=0,
)

EXAMPLES: list[tuple[Any, str]] = [
    (JobSubmitted(at=1, job=7, request=REQUEST), "job 7 (heat) was submitted: non-fixed request for 4 processors"),
    (CancelAsked(at=1, job=7), "the cancellation of job 7 was requested"),
    (JobQuarantined(at=1, job=7, reason="a defect"), "job 7 goes into quarantine: a defect"),
    (RequeueAsked(at=1, job=7), "job 7 is to leave quarantine"),
    (RequeueAsked(at=1, job=7, hold=True), "job 7 is to leave quarantine and to be held"),
    (ComponentAccepted(at=1, token=FIRST), "component 7.1 waits in the queue of its site"),
    (ComponentReady(at=1, token=FIRST), "component 7.1 waits at the barrier"),
    (ComponentStarting(at=1, token=FIRST), "component 7.1 has its processors and starts"),
    (ComponentRunning(at=1, token=FIRST), "component 7.1 runs its application"),
    (ComponentEnded(at=1, token=FIRST, outcome=Outcome.DONE, exit_code=0), "component 7.1 ended with success"),
    (
        ComponentEnded(at=1, token=FIRST, outcome=Outcome.FAILED, exit_code=3, reason="it said no"),
        "component 7.1 failed with exit code 3: it said no",
    ),
    (
        ComponentEnded(at=1, token=FIRST, outcome=Outcome.FAILED, exit_code=7, reason="exit code 7"),
        "component 7.1 failed with exit code 7",
    ),
    (
        ComponentEnded(at=1, token=FIRST, outcome=Outcome.FAILED, exit_code=127, stderr_line="./solver: not found"),
        "component 7.1 failed with exit code 127; stderr: ./solver: not found",
    ),
    (
        ComponentEnded(at=1, token=FIRST, outcome=Outcome.FAILED, exit_code=127, nodes=("n1", "n2")),
        "component 7.1 failed with exit code 127 on nodes n1, n2",
    ),
    (ComponentEnded(at=1, token=FIRST, outcome=Outcome.ABORTED), "component 7.1 was aborted"),
    (TransferEnded(at=1, transfer="t2", ok=True), "transfer t2 arrived"),
    (TransferEnded(at=1, transfer="t2", ok=False, reason="no room"), "transfer t2 broke: no room"),
    (FileChanged(at=1, file="in", size_bytes=1, replicas=("A", "B")), "the file in (1 byte) is at A, B"),
    (FileChanged(at=1, file="in", size_bytes=1, replicas=()), "the file in was forgotten"),
    (
        SiteMachines(at=1, site="delft", machines=((2, 1500.0, 0.0), (6, 1500.0, 0.5))),
        "the machines of delft: 2 of 1500 MFlop/s, load 0%, 6 of 1500 MFlop/s, load 50%",
    ),
    (SiteMachines(at=1, site="delft"), "the machines of delft: as declared"),
    (SiteReported(at=1, site="A", processors=8, others=2), "A has 8 processors; others hold 2"),
    (SiteSilent(at=1, site="A", reason="timeout"), "A does not answer: timeout"),
    (SiteSilent(at=1, site="A", reason="no partition", answers=True), "A cannot be used: no partition"),
    (SiteLost(at=1, site="A", reason="fire"), "A is declared lost: fire; its jobs start again elsewhere"),
    (SiteDrained(at=1, site="A", by="anna", reason="disk"), "A is drained by anna: disk; nothing new goes there"),
    (SiteResumed(at=1, site="A"), "A is used again and its errors are forgotten"),
    (Tick(at=1), "time has passed"),
    (
        StartComponent(job=7, token=SECOND, site="B", processors=1, component=1, part=1, parts=2),
        "component 1 of job 7 claims 1 processor at B as 7.2",
    ),
    (AskCheckpoint(site="B", token=SECOND), "component 7.2 at B is asked to save its state"),
    (AbortComponent(site="B", token=SECOND), "component 7.2 at B must end"),
    (
        CollectOutputs(job=7, token=SECOND, site="B", part=1, outputs=(JobOutput(path="r"), JobOutput(path="logs/"))),
        "the outputs of component 7.2 at B are collected: r, logs/",
    ),
    (
        OutputsCollected(at=1, job=7, token=SECOND, outputs=(MadeOutput(path="r", size_bytes=1, checksum=""),)),
        "component 7.2 made r",
    ),
    (OutputsCollected(at=1, job=7, token=SECOND), "component 7.2 made no output"),
    (
        OutputsCollected(at=1, job=7, token=SECOND, problem="no room"),
        "the outputs of component 7.2 are lost: no room",
    ),
    (
        OutputRegistered(
            job=7,
            part=0,
            file="jobs/7/r",
            output=MadeOutput(path="r", size_bytes=1, checksum=""),
            sites=("A", "B"),
        ),
        "the output jobs/7/r of job 7 (1 byte) is at A, B",
    ),
    (
        CheckpointBrought(at=0.0, token=SECOND, source="A", size_bytes=7),
        "component 7.2 continues from a checkpoint made at A",
    ),
    (CheckpointBrought(at=0.0, token=SECOND, reason="A is gone"), "component 7.2 begins anew: A is gone"),
    (ReleaseBarrier(job=7, tokens=("7.1", "7.2")), "the barrier of job 7 opens for 7.1, 7.2"),
    (
        StartTransfer(transfer="t1", file="in", source="A", target="B", size_bytes=9),
        "transfer t1 brings the file in from A to B (9 bytes)",
    ),
    (
        StartTransfer(transfer="t1", file="in", source="A", target="B", size_bytes=4, chunk=(5, 4)),
        "transfer t1 brings a chunk of the file in from A to B (4 bytes)",
    ),
    (CancelTransfer(transfer="t1"), "transfer t1 is not needed any more"),
    (ProbeLink(source="A", target="B"), "the link from A to B is probed"),
    (
        LinkProbed(at=1, source="A", target="B", latency_s=0.02, bytes_per_s=12.5e6),
        "the link from A to B was probed: 100 Mbit/s, 20 ms",
    ),
    (
        LinkProbed(at=1, source="A", target="B", reason="no route"),
        "the link from A to B could not be probed: no route",
    ),
    (
        TrafficMeasured(at=1, token=FIRST, elapsed_s=4.0, sent_bit_s=2e6, received_bit_s=1.5e6),
        "component 7.1 sends 2 Mbit/s to other sites, and receives 1.5 Mbit/s",
    ),
    (
        TrafficMeasured(at=1, token=FIRST, reason="no ss there"),
        "the traffic of component 7.1 to other sites is not measured: no ss there",
    ),
    (AskSite(site="A", tokens=("7.1",)), "A is asked about 7.1"),
    (JobPlaced(job=7, places=(("A", 3), ("B", 1))), "job 7 is placed: 3 on A, 1 on B"),
    (JobRequeued(job=7, reason="preempted"), "job 7 returns to its placement queue: preempted"),
    (HoldAsked(at=1, job=7), "job 7 is to be held"),
    (UnholdAsked(at=1, job=7, by="anna"), "the hold of job 7 is ended by anna"),
    (HoldAsked(at=1, job=7, by="anna", reason="disk"), "job 7 is to be held, as anna asked: disk"),
    (CancelAsked(at=1, job=7, by="anna", reason="disk"), "the cancellation of job 7 was requested by anna: disk"),
    (RestartAsked(at=1, job=7), "job 7 is to go back to its queue"),
    (RestartAsked(at=1, job=7, hold=True), "job 7 is to go back to its queue and to be held"),
    (
        ChangeAsked(at=1, job=7, walltime_s=90.0, priority=Priority.HIGH),
        "job 7 is to have a walltime of 90 s and high priority",
    ),
    (
        SpawnAsked(at=1, job=7, tasks=SpawnedTasks.of({"e": 1.0, "f": 2.0}, [("e", "a", 1.0)])),
        "job 7 is to get the tasks e, f",
    ),
    (TasksSpawned(job=7, tasks=("e",), places=(("A", 1),)), "job 7 gets the task e: 1 on A"),
    (TasksSpawned(job=7, tasks=("e",), reason="it is done"), "job 7 does not get the task e: it is done"),
    (
        JobHeld(job=7, held=True, held_by=" by anna", waits_for=(Dependency(job=3),), begins_at=9.0),
        (
            "job 7 is kept back: it waits for job 3 to be done; it waits for its time (begin_at); "
            "it is held by anna; koala job release ends the hold"
        ),
    ),
    (ElementMade(job=9, array=7, index=3), "element 3 of array 7 is job 9"),
    (JobUnheld(job=7), "nothing keeps job 7 back any more"),
    (SiteDistrusted(site="A", reason="5 errors in a row"), "A is not trusted for a while: 5 errors in a row"),
    (FileArrived(job=7, file="in", site="A"), "job 7: file in arrived on A"),
    (ENDED, "job 7 is done"),
    (msgspec.structs.replace(ENDED, outcome=JobOutcome.FAILED, reason="no place"), "job 7 failed: no place"),
    (msgspec.structs.replace(ENDED, outcome=JobOutcome.CANCELLED, reason="cancelled"), "job 7 is cancelled"),
]


@pytest.mark.parametrize(("body", "words"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_each_message_is_told_in_a_sentence(body: Any, words: str) -> None:
    assert sentence(body) == words


def test_no_message_is_without_a_sentence() -> None:
    told = {type(body) for body, _ in EXAMPLES}
    of_stories = {*get_args(AnyStoryFact)}
    assert told == {*get_args(AnyEvent), *get_args(TurnEntry)} - of_stories | {FileArrived}
    assert {kind.__name__ for kind in of_stories} <= STORY_KINDS


@pytest.mark.parametrize("outcome", Outcome)
def test_every_way_to_end_has_its_words(outcome: Outcome) -> None:
    assert sentence(ComponentEnded(at=1, token=FIRST, outcome=outcome)).startswith("component 7.1 ")


def test_a_sentence_stays_short_however_long_its_parts_are() -> None:
    many = ReleaseBarrier(job=7, tokens=tuple(f"7.{number}" for number in range(1_000)))
    assert sentence(many).endswith(f" and {1_000 - NAMES_MAX} more")
    long = SiteSilent(at=1, site="A", reason="x" * 100_000)
    assert len(sentence(long)) < TEXT_CHARACTERS_MAX + 50
