"""What the core says of a job when somebody asks: where it stands, why, and its whole story in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import pytest

from koala.core import JobExplanation, JobState, Scheduler
from koala.core.refusals import SHUT_SITES_TRIED_MAX
from koala.core.state.ledger import ENDED_KEPT
from koala.model.api import Place
from koala.model.checkpoint import Checkpoint
from koala.model.dependency import Dependency
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
    NodesAllowed,
    NotGivenBack,
    OutputsAwaited,
    PlanLost,
    PlanPutOff,
    Preempts,
    SitesAvoided,
    SitesClosed,
    SiteTrusted,
    SpawnBegan,
    TasksSpawned,
    TrafficKnown,
    TransferBroke,
    TransfersExpected,
)
from koala.model.grid import Containers, ContainerTool, Preemption
from koala.model.job_array import read_array
from koala.model.messages import (
    AbortComponent,
    ChangeAsked,
    CheckpointBrought,
    ComponentEnded,
    FileChanged,
    HoldAsked,
    JobQuarantined,
    JobSubmitted,
    LinkProbed,
    Outcome,
    OutputsCollected,
    ReleaseBarrier,
    RequeueAsked,
    RestartAsked,
    SiteDrained,
    SiteLost,
    SiteSilent,
    SpawnAsked,
    StartComponent,
    Tick,
    TrafficMeasured,
    UnholdAsked,
)
from koala.model.outputs import JobOutput, MadeOutput
from koala.model.request import Application, Component, Flexibility, Priority
from koala.model.task_graph import SpawnedTasks, TaskGraph
from koala.words.facts import _WORDS
from koala.words.standing import MEANING, meaning
from tests.support.core_driver import CoreDriver, ask, ask_total, kind, part


def explain(driver: CoreDriver, job: int) -> JobExplanation:
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    return explanation


# ------------------------------------------------------------------------------------------- waiting


def test_a_waiting_job_is_explained_by_its_refusal_its_tries_and_its_place_in_line() -> None:
    driver = CoreDriver({"a": 10, "b": 6})
    driver.run(ask(part(8, "a")))
    driver.submit(ask(9))
    driver.wait_until(3.0)
    driver.submit(ask(7))
    driver.send(Tick(at=25.0))
    said = explain(driver, 3)
    assert (said.job, said.state, meaning(said)) == (3, JobState.WAITING, MEANING[JobState.WAITING])
    assert (said.waiting_since, said.place_in_line, said.placement_tries) == (3.0, 2, 3)
    assert (said.claiming_tries, said.places) == (0, [])
    assert said.refusal is not None
    assert [(lack.site, lack.wanted, lack.idle, lack.missing) for lack in said.refusal.shortages] == [
        ("a", 7, 2, 5),
        ("b", 7, 6, 1),
    ]
    assert not said.refusal.permanent


def test_a_job_that_no_site_can_ever_hold_is_told_so() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(11))
    said = explain(driver, 1)
    assert said.refusal is not None
    assert said.refusal.permanent


def test_a_refusal_tells_what_the_last_scan_saw_and_not_what_is_idle_now() -> None:
    driver = CoreDriver({"a": 10})
    driver.report("a", others=8)
    driver.submit(ask(5))
    driver.report("a", others=6)
    driver.wait_until(12.0)
    driver.report("a", others=9)
    said = explain(driver, 1)
    assert said.refusal is not None
    assert [lack.idle for lack in said.refusal.shortages] == [4]


def test_a_job_that_was_passed_in_a_scan_is_refused_by_what_those_before_it_left() -> None:
    """10 processors become idle, the first in line takes them all: the second has seen none of them."""
    driver = CoreDriver({"a": 10})
    driver.report("a", others=10)
    driver.submit(ask(10))
    driver.submit(ask(4))
    driver.wait_until(5.0)
    driver.report("a", others=0)
    driver.wait_until(12.0)
    assert driver.state(1) is JobState.STARTING
    said = explain(driver, 2)
    assert said.refusal is not None
    assert [(lack.idle, lack.missing) for lack in said.refusal.shortages] == [(0, 4)]


def test_a_newcomer_is_refused_by_its_own_try_and_not_by_the_scan_before_it() -> None:
    """Both jobs ask for the same; the scan saw 4 idle on each site, the later submission 2 and 4."""
    driver = CoreDriver({"a": 10, "b": 10})
    driver.report("a", others=10)
    driver.report("b", others=10)
    driver.submit(ask(3, 3, 2))
    driver.report("a", others=6)
    driver.report("b", others=6)
    driver.wait_until(13.0)
    first = explain(driver, 1)
    assert first.refusal is not None
    assert [lack.idle for lack in first.refusal.shortages] == [4, 4]
    driver.submit(ask(part(2, "a")))
    driver.submit(ask(3, 3, 2))
    said = explain(driver, 3)
    assert "idle: a 2, b 4" in driver.story(3)[-1]
    assert said.refusal is not None
    assert [lack.idle for lack in said.refusal.shortages] == [2, 4]


def test_a_returned_job_that_has_not_been_tried_since_still_has_an_explanation() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.wait_until(1.0)
    driver.end("1.1", outcome=Outcome.SITE_FAILED)
    said = explain(driver, 1)
    assert (said.state, said.waiting_since, said.place_in_line) == (JobState.WAITING, 1.0, 1)


# ------------------------------------------------------------------------------- placed, running, ended


def test_a_running_job_is_explained_by_its_places() -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    driver.wait_until(2.0)
    driver.run(ask(8, 9))
    said = explain(driver, 1)
    places = [Place(site="b", processors=8), Place(site="a", processors=9)]
    assert (said.state, said.places) == (JobState.RUNNING, places)
    assert (said.refusal, said.place_in_line, said.waiting_since) == (None, None, None)
    assert driver.story(1)[0] == "submitted: non-fixed request for 17 processors"
    assert driver.story(1)[-1] == "the barrier opened: all components started together"


def test_an_ended_job_is_explained_by_its_outcome() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.wait_until(9.0)
    driver.end("1.1", outcome=Outcome.TIMED_OUT)
    said = explain(driver, 1)
    assert (said.state, meaning(said)) == (JobState.FAILED, "it ran longer than its walltime on a")
    assert driver.story(1)[-1] == "failed: it ran longer than its walltime on a"


def test_a_job_that_is_done_needs_no_reason() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.end("1.1")
    assert driver.story(1)[-1] == "done"


def test_nothing_is_known_of_a_job_that_never_was() -> None:
    assert CoreDriver({"a": 10}).scheduler.explain(1) is None


def test_the_stories_of_the_last_ended_jobs_are_kept_and_older_ones_forgotten() -> None:
    driver = CoreDriver({"a": 10}, placement_tries_max=1)
    for _ in range(ENDED_KEPT + 1):
        assert len(kind(driver.submit(ask(11)), JobEnded)) == 1
    assert driver.scheduler.explain(1) is None
    assert driver.scheduler.explain(2) is not None
    assert driver.scheduler.explain(ENDED_KEPT + 1) is not None


# ---------------------------------------------------------------------------------------- every word


def files_driver() -> CoreDriver:
    return CoreDriver({"a": 10, "near": 10, "far": 1}, files={"f": (100.0, ("far",))}, cooldown_s=10.0)


def story_of_a_failure() -> list[str]:
    driver = CoreDriver({"a": 10})
    driver.report("a", others=1)
    driver.submit(ask(10))
    driver.report("a", others=0)
    driver.wait_until(12.0)
    driver.ready("1.1")
    driver.wait_until(13.0)
    driver.end("1.1", outcome=Outcome.SITE_FAILED, reason="a node died")
    driver.cancel(1)
    return driver.story(1)


def story_of_a_checkpoint() -> list[str]:
    driver = CoreDriver({"a": 10})
    (token,) = driver.run(ask(10, checkpoint=Checkpoint(grace_s=60.0)))
    driver.send(CheckpointBrought(at=0.0, token=token, source="b", size_bytes=1024))
    driver.send(RestartAsked(at=0.0, job=1))
    return driver.story(1)


def story_of_a_broken_file() -> list[str]:
    driver = files_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.end_transfer("t1", ok=False, reason="disk full")
    driver.wait_until(10.0)
    driver.end_transfer("t2")
    return driver.story(1)


def story_of_a_file_that_is_gone() -> list[str]:
    driver = files_driver()
    driver.submit(ask(part(10, "a", "f")))
    driver.send(FileChanged(at=driver.now, file="f", size_bytes=0, replicas=(), by="anna"))
    return driver.story(1)


def story_of_a_move() -> list[str]:
    driver = CoreDriver({"a": 10, "far": 1, "near": 10}, files={"f": (100.0, ("far", "near"))})
    driver.report("near", others=10)
    driver.submit(ask(part(10, None, "f")))
    driver.report("a", others=10)
    driver.report("near", others=0)
    driver.wait_until(76.0)
    driver.end("1.1", outcome=Outcome.REFUSED, reason="queue closed")
    return driver.story(1)


def story_of_a_measured_link() -> list[str]:
    """Its file takes 50 s instead of 100 s the first time."""
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(10, "a", "f")))
    driver.wait_until(50.0)
    driver.end_transfer("t1")
    driver.cancel(1)
    driver.submit(ask(part(10, "a", "f")))
    assert not any("believed" in line for line in driver.story(1)), "nothing was measured before"
    return driver.story(2)


def story_of_a_site_that_will_not() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9})
    driver.submit(ask(5))
    driver.end("1.1", outcome=Outcome.UNSUITABLE, reason="too long")
    return driver.story(1)


def story_of_an_atomic_claim() -> list[str]:
    driver = CoreDriver({"a": 10, "far": 1}, files={"f": (100.0, ("far",))}, claim_threshold=1.0)
    driver.submit(ask(part(10, "a", "f")))
    driver.report("a", others=1)
    driver.wait_until(76.0)
    return driver.story(1)


def preemption() -> CoreDriver:
    driver = files_driver()
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.run(ask(part(5, "a")))
    driver.run(ask(part(5, "a")))
    driver.wait_until(76.0)
    return driver


def preemption_for_places() -> CoreDriver:
    driver = CoreDriver({"a": 10}, preemption=Preemption.PLACES)
    driver.run(ask(10))
    driver.submit(ask(10, high=True))
    return driver


def story_of_an_early_claim() -> list[str]:
    driver = CoreDriver({"a": 5, "b": 5}, plan_depth=1, hold_budget=1.0, hold_budget_per_job=1.0)
    driver.run(ask(part(5, "b"), walltime_s=100.0))
    driver.submit(ask(part(5, "a"), part(5, "b")))
    return driver.story(2)


def story_of_a_probe() -> list[str]:
    driver = files_driver()
    for _ in range(5):
        driver.send(SiteSilent(at=0.0, site="a", reason="no route"))
    driver.report("a", others=0)
    driver.submit(ask(part(10, "a")))
    driver.wait_until(12.0)
    driver.ready("1.1")
    driver.end("1.1")
    return driver.story(1)


def story_of_a_plan() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(10, walltime_s=100.0))
    driver.submit(ask(part(10, "a"), part(10, "b")))
    driver.settle()
    driver.wait_until(300.0)  # nobody ends
    driver.send(SiteDrained(at=300.0, site="b"))
    driver.wait_until(900.0)
    return driver.story(2)


def story_of_a_job_behind_a_plan() -> list[str]:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(5, walltime_s=100.0))
    driver.submit(ask(10))
    driver.submit(ask(5, walltime_s=200.0))
    return driver.story(3)


def story_of_a_loss() -> list[str]:
    driver = CoreDriver({"a": 10})
    driver.run(ask(10))
    driver.send(SiteLost(at=driver.now, site="a"))
    return driver.story(1)


def story_of_a_guest() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9})
    sites = [msgspec.structs.replace(site, own_account=site.name == "b") for site in driver.scheduler.grid.sites]
    grid = msgspec.structs.replace(driver.scheduler.grid, sites=tuple(sites))
    driver.scheduler = Scheduler(grid, recorded=True)
    driver.ledger = driver.scheduler.ledger
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(5), guest=True))
    return driver.story(1)


def story_of_an_image() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9})
    first, second = driver.scheduler.grid.sites
    with_images = msgspec.structs.replace(second, containers=Containers(tool=ContainerTool.APPTAINER))
    driver.scheduler = Scheduler(
        msgspec.structs.replace(driver.scheduler.grid, sites=(first, with_images)), recorded=True
    )
    driver.ledger = driver.scheduler.ledger
    request = msgspec.structs.replace(
        ask(5), components=(Component(processors=5, application=Application(executable="x", image="i")),)
    )
    driver.send(JobSubmitted(at=0.0, job=1, request=request))
    return driver.story(1)


def story_of_a_launch_program() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9})
    first, second = driver.scheduler.grid.sites
    provides = msgspec.structs.replace(second, provides=("srun",))
    driver.scheduler = Scheduler(
        msgspec.structs.replace(driver.scheduler.grid, sites=(first, provides)), recorded=True
    )
    driver.ledger = driver.scheduler.ledger
    application = Application(script="srun x", requires=("srun",))
    request = msgspec.structs.replace(ask(5), components=(Component(processors=5, application=application),))
    driver.send(JobSubmitted(at=0.0, job=1, request=request))
    return driver.story(1)


def story_of_a_bad_job() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9}, error_threshold=1, scan_interval_s=0.0)
    driver.submit(ask(5))
    for _ in range(2):
        driver.pass_time(70.0)
        tokens = driver.tokens(1)
        driver.ready(*tokens)
        driver.end(*tokens, outcome=Outcome.SITE_FAILED, reason="its directory was removed")
    return driver.story(1)


def array_on_one_processor() -> CoreDriver:
    driver = CoreDriver({"a": 1})
    driver.submit(ask(1, array=read_array("5-9%1")))
    driver.cancel(4)
    return driver


def story_of_an_array() -> list[str]:
    return array_on_one_processor().story(1)


def story_of_an_element() -> list[str]:
    return array_on_one_processor().story(2)


def story_of_a_held_job() -> list[str]:
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(5))
    request = ask(5, after=(Dependency(job=1),), begin_at=10.0)
    driver.send(JobSubmitted(at=driver.now, job=2, request=request, owner="bert"))
    driver.send(HoldAsked(at=driver.now, job=2, by="anna", reason="disk change"))
    driver.send(ChangeAsked(at=driver.now, job=2, by="bert", walltime_s=90.0, priority=Priority.HIGH))
    driver.end(*tokens)
    driver.wait_until(10.0)
    driver.send(UnholdAsked(at=driver.now, job=2, by="anna"))
    return driver.story(2)


def story_of_a_restart() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 9}, restart_rest_s=5.0)
    driver.run(ask(5))
    driver.end(*driver.tokens(1), outcome=Outcome.FAILED, exit_code=1)
    return driver.story(1)


def story_of_a_bad_node() -> list[str]:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, barrier_timeout_s=30.0)
    driver.run(ask(5))
    driver.end(*driver.tokens(1), outcome=Outcome.FAILED, exit_code=127, nodes=("a1",))
    driver.pass_time(100.0)
    return driver.story(1)


def story_of_a_bad_site() -> list[str]:
    driver = CoreDriver({"bad": 10, "good": 9}, scan_interval_s=0.0)
    for job, owner in enumerate(("ann", "bob"), start=1):
        driver.send(JobSubmitted(at=driver.now, job=job, request=ask(5), owner=owner))
        for outcome, exit_code in ((Outcome.FAILED, 127), (Outcome.DONE, 0)):
            driver.pass_time(2.0)
            driver.ready(*driver.tokens(job))
            driver.end(*driver.tokens(job), outcome=outcome, exit_code=exit_code)
    return driver.story(2)


def story_of_a_user_who_fails_alone() -> list[str]:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1)
    for job, owner in enumerate(("bob", "ann"), start=1):
        driver.send(JobSubmitted(at=driver.now, job=job, request=ask(5), owner=owner))
        if owner == "bob":
            driver.ready(*driver.tokens(job))
    driver.end(*driver.tokens(2), outcome=Outcome.REFUSED, fault=Fault.SITE, reason="no such account")
    return driver.story(2)


def story_of_spawned_tasks() -> list[str]:
    driver = CoreDriver({"a": 10})
    graph = TaskGraph.of({"x": 1.0, "y": 1.0}, [("x", "y", 1.0)], 1.0)
    driver.run(ask(2, flexible=Flexibility(), tasks=graph))
    for names, rcr in (("e", 1.0), ("e", 2.0), ("fg", 1.0)):
        tasks = SpawnedTasks.of(dict.fromkeys(names, rcr))
        started = kind(driver.send(SpawnAsked(at=driver.now, job=1, tasks=tasks)), StartComponent)
        if names == "e":
            driver.ready(*[each.token for each in started])
    driver.end(*[each.token for each in started], outcome=Outcome.REFUSED, reason="queue closed")
    return driver.story(1)


def story_of_outputs() -> list[str]:
    driver = CoreDriver({"a": 10})
    component = Component(processors=5, outputs=(JobOutput(path="result.h5"),))
    (token,) = driver.run(ask(component))
    driver.end(token)
    made = MadeOutput(path="result.h5", size_bytes=1_234, checksum="0" * 64)
    driver.send(OutputsCollected(at=driver.now, job=1, token=token, outputs=(made,)))
    return driver.story(1)


def story_of_a_quarantine() -> list[str]:
    driver = CoreDriver({"a": 10})
    driver.run(ask(5))
    with mock.patch.object(driver.scheduler._ending, "_leave_links", side_effect=ArithmeticError("five")):
        driver.send(JobQuarantined(at=driver.now, job=1, reason="an error inside Koala"))
    driver.end(*driver.ledger.claims, outcome=Outcome.ABORTED)
    driver.send(RequeueAsked(at=driver.now, job=1))
    return driver.story(1)


def story_of_a_measured_job() -> list[str]:
    driver = CoreDriver({"a": 10, "b": 10})
    tokens = driver.run(ask(part(4, "a"), part(4, "b")))
    driver.send(TrafficMeasured(at=driver.now, token=tokens[0], elapsed_s=2.0, sent_bit_s=3e6, received_bit_s=1e6))
    return driver.story(1)


def story_of_a_defect() -> list[str]:
    driver = CoreDriver({"a": 10})
    driver.send(JobSubmitted(at=0.0, job=1, request=ask(5), defect="an error inside Koala"))
    return driver.story(1)


TOLD: list[tuple[type[Any], Callable[[], list[str]], str]] = [
    (TrafficKnown, story_of_a_measured_job, "measured: it sends 6 Mbit/s between its sites"),
    (JobRefused, story_of_a_failure, "no place found (idle: a 9); it waits in its placement queue"),
    (KeptForPlans, story_of_a_job_behind_a_plan, "enough is idle for it, but kept for the plans of jobs"),
    (JobPlaced, story_of_a_broken_file, "placed: 10 on a"),
    (TransfersExpected, story_of_a_broken_file, "its files take about 100 s"),
    (JobPlanned, story_of_a_plan, "planned: it starts within 100 s, if all keep to their walltimes"),
    (PlanPutOff, story_of_a_plan, "its plan is put off by 120 s: jobs at a run longer than expected"),
    (
        TransfersExpected,
        story_of_a_measured_link,
        "link forecasts: store to a 16 Mbit/s (last value, 1 measured), 0 ms (as the grid file says)",
    ),
    (PlanLost, story_of_a_plan, "its start cannot be predicted: jobs at a run longer than expected; b is drained"),
    (InputForgotten, story_of_a_file_that_is_gone, "the input file f was forgotten by anna"),
    (FileArrived, story_of_a_broken_file, "file f arrived on a"),
    (TransferBroke, story_of_a_broken_file, "the transfer of f from far to a broke: disk full"),
    (ClaimPutOff, story_of_an_atomic_claim, "too few components could start now; it is claimed later"),
    (ComponentMoved, story_of_a_move, "component 0 moved from a, where it could not start, to near"),
    (Preempts, lambda: preemption().story(1), "component 0 preempts jobs 3, 2 on a"),
    (
        JobRequeued,
        lambda: preemption().story(2),
        "back to its placement queue: preempted by high-priority job 1 on a",
    ),
    (
        ClaimsEarly,
        story_of_an_early_claim,
        "its plan is near: it claims its places, and keeps them for at most 400 s (hold_budget)",
    ),
    (
        Preempts,
        lambda: preemption_for_places().story(2),
        "it found no places, and preempts job 1 for them: 0 s of processor time are lost",
    ),
    (
        JobRequeued,
        lambda: preemption_for_places().story(1),
        "preempted by high-priority job 2, which found no places",
    ),
    (StartComponent, story_of_a_failure, "all components are claimed; it starts when all have come to the barrier"),
    (ComponentEnded, story_of_a_move, "near did not take component 0: queue closed"),
    (ComponentEnded, story_of_a_site_that_will_not, "a will never run component 0: too long"),
    (SitesClosed, story_of_an_image, "closed to it: a, which cannot run its image"),
    (SitesClosed, story_of_a_launch_program, "closed to it: a, which cannot provide srun"),
    (
        SitesClosed,
        story_of_a_guest,
        "closed to it: a, which would run it under the account of the daemon, and it is a guest's",
    ),
    (CheckpointBrought, story_of_a_checkpoint, "component 0 continues from its checkpoint of 1024 bytes, made on b"),
    (AskedToSave, story_of_a_checkpoint, "1 component is asked to save, and may run for 60 s more (grace)"),
    (TasksSpawned, story_of_spawned_tasks, "spawned task e; placed: 1 on a"),
    (SpawnBegan, story_of_spawned_tasks, "the spawned task e began"),
    (TasksSpawned, story_of_spawned_tasks, "did not spawn task e: task e: there is one already"),
    (
        TasksSpawned,
        story_of_spawned_tasks,
        "the spawned tasks f, g were withdrawn before they began: a did not start them: queue closed",
    ),
    (ReleaseBarrier, story_of_a_failure, "the barrier opened: all components started together"),
    (OutputsAwaited, story_of_outputs, "every component is done; its outputs are collected on a"),
    (OutputsCollected, story_of_outputs, "component 0 on a made 1 output of 1,234 bytes"),
    (ComponentEnded, story_of_a_failure, "component 0 failed on a: a node died"),
    (Blamed, story_of_a_bad_job, "the job itself is to blame, as it broke a component on a and on b"),
    (JobHeld, story_of_a_held_job, "kept back: it waits for job 1 to be done; it waits for its time (begin_at)"),
    (DependencyCame, story_of_a_held_job, "a dependency is satisfied: job 1 is done"),
    (ElementMade, story_of_an_element, "it is element 5 of array 1"),
    (ElementCancelled, story_of_an_array, "its element, job 4, was cancelled before it was made"),
    (BeginTimeCame, story_of_a_held_job, "its time has come (begin_at)"),
    (JobHeld, story_of_a_held_job, "held by anna: disk change"),
    (UnholdAsked, story_of_a_held_job, "hold ended by anna"),
    (JobUnheld, story_of_a_held_job, "nothing keeps it back any more: it stands in line"),
    (
        ChangeAsked,
        story_of_a_held_job,
        "its walltime is changed to 90 s and its priority is changed to high by its owner",
    ),
    (JobRests, story_of_a_restart, "it rests for 5 s before it is placed again"),
    (SitesAvoided, story_of_a_restart, "it avoids a, where a run of it failed, while other sites have room"),
    (StartComponent, story_of_a_bad_node, "not on node a1 at a, where it failed"),
    (NodesAllowed, story_of_a_bad_node, "it may run on every node of a again, even where it failed"),
    (
        FailsAlone,
        story_of_a_user_who_fails_alone,
        "only jobs of its user fail at a, and those of others start: the site keeps its trust",
    ),
    (JobRequeued, story_of_a_loss, "back to its placement queue: a is lost: an operator declared it lost"),
    (
        DistrustProved,
        story_of_a_bad_site,
        "bad is not trusted for a while: failures here of applications that did well elsewhere",
    ),
    (SiteTrusted, story_of_a_probe, "a is trusted again"),
    (JobRequeued, story_of_a_failure, "back to its placement queue: component 0 failed on a: a node died"),
    (JobQuarantined, story_of_a_quarantine, "set aside: an error inside Koala"),
    (NotGivenBack, story_of_a_quarantine, "could not be given back properly: ArithmeticError('five')"),
    (JobRequeued, story_of_a_quarantine, "back to its placement queue: put back from quarantine"),
    (JobEnded, story_of_a_failure, "cancelled"),
    (JobSubmitted, story_of_a_defect, "set aside: an error inside Koala"),
]


@pytest.mark.parametrize(("arrange", "text"), [pytest.param(*each[1:], id=each[2]) for each in TOLD])
def test_every_decision_is_told_in_words(arrange: Callable[[], list[str]], text: str) -> None:
    story = arrange()
    assert any(text in line for line in story), "\n".join(story)


def test_no_decision_is_left_out() -> None:
    told = {kind for kind, words in _WORDS.items() if words.story is not None}
    assert told - {AbortComponent} == {kind for kind, _, _ in TOLD}


def test_a_policy_that_goes_by_the_network_tells_what_it_believed_of_the_links_that_it_combined() -> None:
    driver = CoreDriver({"a": 10, "b": 10, "c": 10})
    for target, latency_s in (("b", 0.050), ("c", 0.001)):
        driver.send(
            LinkProbed(at=1.0, source="a", target=target, latency_s=latency_s, bytes_per_s=2e6, size_bytes=8_000_000)
        )
    driver.submit(ask(8, 8, policy="NCM"))
    driver.submit(ask(1, policy="NCM"))
    (told,) = [line for line in driver.story(1) if "link forecasts" in line]
    assert told.endswith(": a to c 16 Mbit/s (last value, 1 measured), 1 ms (last value, 1 measured)")
    assert not any("link forecasts" in line for line in driver.story(2)), "it is at one site"


def test_the_story_is_told_in_the_order_of_time() -> None:
    driver = preemption()
    for job in (1, 2, 3):
        times = [line.at for line in driver.told(job)]
        assert times == sorted(times)


# ------------------------------------------------------------------------- more than idle processors


def cures(driver: CoreDriver, job: int) -> tuple[str, dict[str, str]]:
    """What would help the waiting job, and what would help at each site."""
    refusal = explain(driver, job).refusal
    assert refusal is not None
    return refusal.cure, {short.site: short.cure for short in refusal.shortages}


def test_a_drained_site_that_would_take_the_job_is_named_as_what_stands_in_its_way() -> None:
    driver = CoreDriver({"paris": 4, "berlin": 8})
    driver.send(SiteDrained(at=0.0, site="berlin"))
    driver.submit(ask(3, 3))
    cure, at_sites = cures(driver, 1)
    assert cure == "resuming berlin, which is drained"
    assert at_sites["berlin"] == "berlin is drained; resume it"
    assert at_sites["paris"] == "none: paris never offers more than 4"


def test_what_would_help_without_the_drained_site_is_told_too() -> None:
    driver = CoreDriver({"paris": 4, "berlin": 8})
    driver.run(ask(part(3, "paris")))
    driver.send(SiteDrained(at=0.0, site="berlin"))
    driver.submit(ask(2))
    cure, at_sites = cures(driver, 2)
    assert cure.startswith("resuming berlin, which is drained, or 1 more idle processor on paris")
    assert at_sites == {"paris": "1 more idle processor on paris", "berlin": "berlin is drained; resume it"}


def test_a_drained_site_that_is_full_must_be_resumed_and_have_room() -> None:
    driver = CoreDriver({"paris": 1, "berlin": 8})
    driver.run(ask(part(8, "berlin")))
    driver.send(SiteDrained(at=0.0, site="berlin"))
    driver.submit(ask(5))
    cure, _ = cures(driver, 2)
    assert cure.startswith("resuming berlin, which is drained, and then 5 more idle processors on berlin")


def test_a_job_that_can_never_fit_is_not_sent_to_a_drained_site() -> None:
    driver = CoreDriver({"paris": 4, "berlin": 8})
    driver.send(SiteDrained(at=0.0, site="berlin"))
    driver.submit(ask(9))
    cure, at_sites = cures(driver, 1)
    assert "berlin" not in cure
    assert at_sites["berlin"] == "none: berlin never offers more than 8"


def test_a_site_that_is_not_trusted_says_so_until_it_is_tried_again() -> None:
    driver = CoreDriver({"a": 8}, error_threshold=2, cooldown_s=50.0)
    for _ in range(2):
        driver.send(SiteSilent(at=driver.now, site="a", reason="no answer"))
    driver.report("a", others=0)
    driver.submit(ask(3))
    driver.submit(ask(2))
    cure, at_sites = cures(driver, 1)
    assert cure == "resuming a, which is not trusted after errors"
    assert at_sites == {
        "a": "a is not trusted after 2 errors in a row; it is tried again after its cool-down, or resume it"
    }
    driver.pass_time(70.0)
    assert driver.state(1) is JobState.STARTING
    assert cures(driver, 2)[1] == {
        "a": "a is tried out with one job; it is used again when that ends well, or resume it"
    }


def test_of_many_sites_that_are_kept_out_so_many_are_named() -> None:
    driver = CoreDriver({f"s{number}": 2 for number in range(SHUT_SITES_TRIED_MAX + 2)})
    for site in list(driver.ledger.index):
        driver.send(SiteDrained(at=0.0, site=site))
    driver.submit(ask(2, 2))
    cure, _ = cures(driver, 1)
    assert f"s{SHUT_SITES_TRIED_MAX - 1} and 2 more, which are drained or not trusted" in cure
    assert f"s{SHUT_SITES_TRIED_MAX}," not in cure


def test_a_waiting_job_of_high_priority_is_told_when_it_may_preempt() -> None:
    driver = CoreDriver({"a": 8})
    driver.run(ask(6))
    driver.submit(ask(4, high=True))
    assert "it preempts jobs of low priority only once it has places" in cures(driver, 2)[0]
    driver.submit(ask(4))
    assert "preempts" not in cures(driver, 3)[0]


def test_a_job_that_starts_is_explained_by_the_components_that_it_waits_for() -> None:
    driver = CoreDriver({"a": 8, "b": 8})
    driver.submit(ask(part(2, "a"), part(3, "b"), part(4, "b")))
    driver.ready("1.1")
    said = meaning(explain(driver, 1))
    assert "1 of 3 wait at the barrier; not there yet: 3 on b, 4 on b." in said
    assert "goes back to its placement queue" in said
    driver.ready("1.2", "1.3")
    assert meaning(explain(driver, 1)) == MEANING[JobState.RUNNING]


def test_a_job_that_failed_is_explained_by_why() -> None:
    driver = CoreDriver({"a": 8})
    driver.run(ask(2, restarts_max=0))
    driver.end("1.1", outcome=Outcome.FAILED, exit_code=7)
    assert meaning(explain(driver, 1)) == "component 0 failed on a with exit code 7, and it may not be restarted"


def test_a_flexible_job_that_names_no_policy_is_divided_where_the_grids_policy_does_not() -> None:
    driver = CoreDriver({"a": 5, "b": 4}, policy="WF")
    total = msgspec.structs.replace(ask_total(9), policy=None)
    placed = kind(driver.submit(total), JobPlaced)
    assert placed == [JobPlaced(job=1, places=(("a", 5), ("b", 4)))]


def test_a_flexible_job_that_names_a_policy_which_does_not_divide_is_told_of_one_that_does() -> None:
    driver = CoreDriver({"a": 5, "b": 4})
    driver.submit(msgspec.structs.replace(ask_total(9), policy="WF"))
    assert cures(driver, 1)[0] == "let the policy FCM divide the total: that would place it now"
