"""Tasks that come to a running job: near their partners, at once or not at all, and in every later run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koala.core import JobState
from koala.core.tasks import spawning
from koala.core.tasks.spawning import SpawnRefusal
from koala.model.facts import StoryFact, TasksSpawned, TurnEntry
from koala.model.messages import (
    AbortComponent,
    ComponentReady,
    JobOutcome,
    Outcome,
    ReleaseBarrier,
    SiteLost,
    SpawnAsked,
    StartComponent,
)
from koala.model.request import Flexibility, JobType, Request
from koala.model.task_graph import SpawnedTasks, TaskGraph
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of

GRAPH = TaskGraph.of({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, [("a", "b", 9.0), ("c", "d", 9.0)], 800.0)
SITES = {"C1": 4, "C2": 4, "C3": 8}


def job(**fields: object) -> Request:
    """a and b at one site, c and d at another: each cluster has two tasks."""
    request = ask(part(4), flexible=Flexibility(), tasks=GRAPH, task_clusters=((0, 1), (2, 3)), policy="WASE-whole")
    return msgspec.structs.replace(request, **fields)


def running(sites: dict[str, int] | None = None, request: Request | None = None, **parameters: Any) -> CoreDriver:
    """Job 1 runs: a and b on C1, c and d beside them or, where C1 has two processors, on C2."""
    driver = CoreDriver(SITES if sites is None else sites, **parameters)
    driver.run(job() if request is None else request)
    assert driver.state(1) is JobState.RUNNING
    return driver


def spawn(driver: CoreDriver, *edges: tuple[str, str, float], **rcr: float) -> list[TurnEntry]:
    return driver.send(SpawnAsked(at=driver.now, job=1, tasks=SpawnedTasks.of(rcr, edges)))


def starts(commands: list[TurnEntry]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(each.site, each.part, each.tasks) for each in kind(commands, StartComponent)]


def tokens(commands: list[TurnEntry]) -> list[str]:
    return [each.token for each in kind(commands, StartComponent)]


def refused(commands: list[TurnEntry]) -> str:
    (told,) = kind(commands, TasksSpawned)
    assert commands == [told]
    return told.reason


def test_spawned_tasks_go_to_the_sites_of_those_that_they_exchange_with() -> None:
    driver = running({"C1": 3, "C2": 3, "C3": 8})
    assert starts([command for _, command in driver.log]) == [("C1", 0, ("a", "b")), ("C2", 1, ("c", "d"))]
    commands = spawn(driver, ("d", "e", 5.0), ("f", "a", 5.0), e=1.0, f=1.0)
    assert starts(commands) == [("C2", 2, ("e",)), ("C1", 3, ("f",))]
    assert [(each.run, each.parts, each.component) for each in kind(commands, StartComponent)] == [(1, 4, 0)] * 2
    assert kind(commands, TasksSpawned) == [TasksSpawned(job=1, tasks=("e", "f"), places=(("C2", 1), ("C1", 1)))]
    assert driver.ledger.jobs[1].places == (("C1", 2), ("C2", 2), ("C2", 1), ("C1", 1))
    assert_ledger_balances(driver.ledger)


def test_they_begin_together_and_the_job_ends_with_the_last_of_all() -> None:
    driver = running({"C1": 3, "C2": 3, "C3": 8})
    old = [each.token for each in driver.all(StartComponent)]
    new = tokens(spawn(driver, ("d", "e", 5.0), ("f", "a", 5.0), e=1.0, f=1.0))
    driver.pass_time(10.0)
    assert not kind(driver.ready(new[0]), ReleaseBarrier), "the other is not there yet"
    (release,) = kind(driver.ready(new[1]), ReleaseBarrier)
    assert release.tokens == tuple(new)
    driver.end(*old, new[0])
    assert driver.state(1) is JobState.RUNNING
    driver.end(new[1])
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert "spawned tasks e, f; placed: 1 on C2, 1 on C1" in driver.story(1)
    assert "the spawned tasks e, f began" in driver.story(1)
    assert_clean(driver.ledger)


def test_a_task_without_room_beside_its_partner_goes_near() -> None:
    driver = running({"C1": 2, "C2": 2, "C3": 8})
    assert starts(spawn(driver, ("e", "a", 5.0), e=1.0)) == [("C3", 2, ("e",))]


def test_a_release_that_a_component_did_not_hear_is_repeated() -> None:
    driver = running()
    (token,) = tokens(spawn(driver, ("e", "a", 5.0), e=1.0))
    driver.ready(token)
    (again,) = kind(driver.send(ComponentReady(at=driver.now, token=token)), ReleaseBarrier)
    assert again.tokens == (token,)


def test_a_failed_run_starts_again_with_the_spawned_tasks() -> None:
    driver = running()
    driver.ready(*tokens(spawn(driver, ("e", "a", 5.0), e=1.0)))
    live = [each.token for each in driver.all(StartComponent)]
    commands = driver.end(live[0], outcome=Outcome.FAILED)
    commands += driver.end(*live[1:], outcome=Outcome.ABORTED)
    commands += driver.pass_time(60.0)
    again = kind(commands, StartComponent)
    assert sorted(task for each in again for task in each.tasks) == ["a", "b", "c", "d", "e"]
    assert {each.run for each in again} == {2}
    driver.ready(*[each.token for each in again])
    assert starts(spawn(driver, ("f", "e", 5.0), f=1.0))[0][2] == ("f",)


def test_the_failure_of_a_spawned_task_that_began_ends_the_run() -> None:
    driver = running()
    (token,) = tokens(spawn(driver, ("e", "a", 5.0), e=1.0))
    driver.ready(token)
    driver.end(token, outcome=Outcome.FAILED, exit_code=3)
    assert driver.state(1) is JobState.UNWINDING


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT, Outcome.SITE_FAILED, Outcome.UNSUITABLE])
def test_what_fails_before_it_begins_is_withdrawn_and_the_run_goes_on(outcome: Outcome) -> None:
    driver = running({"C1": 3, "C2": 3, "C3": 8})
    new = tokens(spawn(driver, ("d", "e", 5.0), ("f", "a", 5.0), e=1.0, f=1.0))
    driver.ready(new[0])
    commands = driver.end(new[1], outcome=outcome, reason="no room")
    assert kind(commands, AbortComponent) == [AbortComponent(site="C2", token=new[0])]
    assert kind(commands, TasksSpawned) == [
        TasksSpawned(job=1, tasks=("e", "f"), reason="C1 did not start them: no room")
    ]
    driver.end(new[0], outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.RUNNING
    assert driver.ledger.jobs[1].places == (("C1", 2), ("C2", 2))
    assert_ledger_balances(driver.ledger)
    assert starts(spawn(driver, ("e", "d", 5.0), e=1.0)) == [("C2", 2, ("e",))], "its name is free again"


def test_what_is_not_at_the_barrier_in_time_is_withdrawn() -> None:
    driver = running(barrier_timeout_s=50.0, answer_timeout_s=20.0)
    old = [each.token for each in driver.all(StartComponent)]
    (token,) = tokens(spawn(driver, ("e", "a", 5.0), e=1.0))
    driver.end(*old)
    assert driver.state(1) is JobState.RUNNING, "it waits for the tasks that are on their way"
    commands = driver.pass_time(51.0)
    assert kind(commands, AbortComponent)[0].token == token
    assert driver.ended(1).outcome is JobOutcome.DONE
    driver.end(token, outcome=Outcome.ABORTED)
    assert_clean(driver.ledger)


def test_a_lost_site_takes_only_tasks_that_have_not_begun() -> None:
    driver = running({"C1": 2, "C2": 2, "C3": 8})
    spawn(driver, ("e", "a", 5.0), e=1.0)
    (told,) = kind(driver.send(SiteLost(at=driver.now, site="C3")), TasksSpawned)
    assert told.reason.startswith("C3 is lost")
    assert driver.state(1) is JobState.RUNNING
    assert "were withdrawn before they began: C3 is lost" in " ".join(driver.story(1))


def test_the_same_goes_on_after_a_restart() -> None:
    driver = running()
    (first,) = tokens(spawn(driver, ("e", "a", 5.0), e=1.0))
    driver.ready(first)
    (second,) = tokens(spawn(driver, ("f", "e", 5.0), f=2.0 / 3))
    written = records_of(driver.scheduler)
    again = scheduler_of(driver.scheduler.grid, None, written)
    assert records_of(again) == written
    assert again.ledger.jobs[1].request == driver.ledger.jobs[1].request
    event = ComponentReady(at=driver.now, token=second)
    answered = [each for each in again.handle(event).entries if not isinstance(each, StoryFact)]
    assert answered == driver.send(event)


def test_other_jobs_do_not_get_tasks() -> None:
    driver = CoreDriver(SITES)
    driver.submit(ask(2))
    assert refused(spawn(driver, e=1.0)).startswith("it is no job of tasks")
    driver = CoreDriver(SITES)
    driver.submit(job())
    told = "it is starting, and tasks are spawned into a job that runs; spawn them when it does"
    assert refused(spawn(driver, e=1.0)) == told
    assert driver.send(SpawnAsked(at=0.0, job=9, tasks=SpawnedTasks.of({"e": 1.0}))) == []


def test_a_refusal_says_what_is_wrong_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = running({"C1": 2, "C2": 3})

    def why_not(job: int, *edges: tuple[str, str, float], **rcr: float) -> SpawnRefusal:
        found = driver.scheduler.why_not_spawned(job, SpawnedTasks.of(rcr, edges))
        assert found is not None
        return found

    before = records_of(driver.scheduler)
    assert why_not(1, a=1.0).reason.startswith("task a: there is one already")
    assert why_not(1, ("e", "x", 1.0), e=1.0).reason.startswith("edge e - x: there is no task 'x'")
    assert why_not(1, e=1.0, f=1.0) == SpawnRefusal(
        "the 2 tasks take a processor each, and 1 is idle for them (C2 1): 1 is missing; "
        "spawn them when more is idle, or fewer of them",
        lacks_places=True,
    )
    strong = why_not(1, e=9.0)
    assert strong.lacks_places
    assert strong.reason.startswith(
        "task e found no machine: it needs 7200 MFlop/s, and the most that any has left is"
    )
    assert strong.reason.endswith("spawn them when more is idle, or lower their rcr")
    assert records_of(driver.scheduler) == before
    spawn(driver, e=1.0)
    assert why_not(1, f=1.0) == SpawnRefusal("e is on its way; spawn more when it has begun")
    assert why_not(7, f=1.0).reason.startswith("it has ended")
    driver = running()
    monkeypatch.setattr(spawning, "SPAWNS_MAX", 0)
    assert refused(spawn(driver, e=1.0)).endswith("(SPAWNS_MAX)")


def test_a_world_of_processes_does_not_grow_and_files_are_shared_out_once() -> None:
    driver = running(request=job(job_type=JobType.MPI))
    assert "one mpi world" in refused(spawn(driver, e=1.0))
    driver = CoreDriver(SITES, files={"film": (0.0, ("C1", "C2", "C3"))})
    driver.run(job(components=(part(4, None, "film"),)))
    assert "input files" in refused(spawn(driver, e=1.0))


def test_spawned_tasks_put_no_plan_off() -> None:
    """Job 2 is planned for all of C3 when job 3 ends: until then nothing that ends later may go there."""
    driver = CoreDriver({"C1": 4, "C3": 8}, plan_depth=1, default_walltime_s=1000.0, scan_interval_s=0.0)
    driver.run(job())
    driver.run(ask(part(5, "C3"), walltime_s=100.0))
    driver.submit(ask(part(8, "C3"), walltime_s=100.0))
    driver.settle()
    assert driver.ledger.jobs[3].plan_at is not None
    assert "none is idle for it" in refused(spawn(driver, ("e", "a", 1.0), e=1.0))


@pytest.mark.parametrize("after_s", [0.1, 0.3, 33.3, 66.7])
def test_a_spawned_task_ends_no_later_than_its_job_is_due_to(after_s: float) -> None:
    """Also by rounding: a plan may count on that very moment."""
    driver = running(request=job(walltime_s=99.9))
    begun = driver.ledger.jobs[1].started_at
    assert begun is not None
    driver.pass_time(after_s)
    (start,) = kind(spawn(driver, ("e", "a", 5.0), e=1.0), StartComponent)
    assert start.walltime_s is not None
    assert begun + 99.8 < driver.now + start.walltime_s < begun + 99.9


def test_the_same_tasks_asked_for_twice_are_answered_twice_and_spawned_once() -> None:
    driver = running()
    commands = spawn(driver, ("e", "a", 5.0), e=1.0)
    (told,) = kind(commands, TasksSpawned)
    assert spawn(driver, ("e", "a", 5.0), e=1.0) == [told]
    driver.ready(*tokens(commands))
    assert spawn(driver, ("e", "a", 5.0), e=1.0) == [told]
    assert len(driver.ledger.jobs[1].spawned) == 1


def test_a_spawned_task_that_is_done_before_its_barrier_ends_nothing_else() -> None:
    driver = running({"C1": 3, "C2": 3, "C3": 8})
    old = [each.token for each in driver.all(StartComponent)]
    new = tokens(spawn(driver, ("d", "e", 5.0), ("f", "a", 5.0), e=1.0, f=1.0))
    commands = driver.end(new[0])
    assert kind(commands, TasksSpawned)[0].reason == "C2 did not start them: done"
    driver.end(new[1], outcome=Outcome.ABORTED)
    driver.end(old[0])
    assert driver.state(1) is JobState.RUNNING, "the other still runs"
    driver.end(old[1])
    assert driver.ended(1).outcome is JobOutcome.DONE
    assert_clean(driver.ledger)


def test_a_site_that_does_not_suit_spawned_tasks_is_not_chosen_again() -> None:
    driver = running({"C1": 3, "C2": 4, "C3": 8})
    first = spawn(driver, ("e", "a", 5.0), e=1.0)
    assert starts(first)[0][0] == "C1"
    driver.end(*tokens(first), outcome=Outcome.UNSUITABLE, reason="too long for its queue")
    assert driver.ledger.jobs[1].barred == {"C1": "too long for its queue"}
    assert starts(spawn(driver, ("e", "a", 5.0), e=1.0))[0][0] != "C1"
    written = records_of(driver.scheduler)
    again = scheduler_of(driver.scheduler.grid, None, written)
    restored, live = again.ledger.jobs[1].demand, driver.ledger.jobs[1].demand
    assert restored is not None
    assert live is not None
    assert restored.barred == live.barred == (0,)


def test_the_only_site_of_a_job_stays_open_to_it() -> None:
    driver = running({"C1": 5})
    first = spawn(driver, ("e", "a", 5.0), e=1.0)
    driver.end(*tokens(first), outcome=Outcome.UNSUITABLE, reason="too long for its queue")
    assert driver.ledger.jobs[1].barred == {}, "else no later run has a place"


def test_what_is_refused_is_not_remembered() -> None:
    driver = running({"C1": 4})
    for number in range(3):
        assert driver.scheduler.why_not_spawned(1, SpawnedTasks.of({f"e{number}": 1.0}))
    assert len(driver.scheduler._placement._demands) == 1, "that of the job itself"


def test_too_many_tasks_and_edges_are_refused_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at(*_: object) -> Request:
        raise AssertionError

    driver = running()
    monkeypatch.setattr(spawning, "with_spawned", looked_at)
    monkeypatch.setattr(spawning, "SPAWN_EDGES_MAX", 1)
    assert "(SPAWN_EDGES_MAX)" in refused(spawn(driver, ("e", "a", 1.0), ("e", "b", 1.0), e=1.0))
    monkeypatch.setattr(spawning, "JOB_TASKS_MAX", 4)
    assert "(JOB_TASKS_MAX)" in refused(spawn(driver, e=1.0))
    monkeypatch.setattr(spawning, "JOB_TASKS_MAX", 5)
    monkeypatch.setattr(spawning, "JOB_EDGES_MAX", 2)
    assert "(JOB_EDGES_MAX)" in refused(spawn(driver, ("e", "a", 1.0), e=1.0))
