"""Preemption for places: a high-priority job that finds none takes those of low-priority jobs, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koala.cli.job.graph import preempted
from koala.core import JobState
from koala.core.preemption.places import PREEMPTED_WITHIN_S, SOON_S
from koala.core.preemption.victims import CANDIDATES_MAX, candidates
from koala.daemon.service.submissions import try_out
from koala.model.api import DryRun
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.facts import JobRequeued
from koala.model.grid import Preemption
from koala.model.messages import AbortComponent, Outcome, SiteDrained, SiteReported, Tick
from koala.model.request import Application, Component, Request
from koala.policies import Catalogue
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part
from tests.support.core_records import records_of, scheduler_of


def make_driver(sites: dict[str, int] | None = None, **parameters: Any) -> CoreDriver:
    chosen: dict[str, Any] = {"scan_interval_s": 0.0, "preemption": Preemption.PLACES} | parameters
    return CoreDriver(sites or {"a": 10, "b": 10}, **chosen)


def cure(driver: CoreDriver, job: int) -> str:
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    assert explanation.refusal is not None
    return explanation.refusal.cure


def victims(driver: CoreDriver) -> list[int]:
    return [command.job for command in driver.all(JobRequeued)]


def test_it_starts_when_its_victim_has_let_go_and_the_victim_runs_again_after_it() -> None:
    """high: waiting -> placed -> starting -> running; low: running -> unwinding -> waiting -> running"""
    driver = make_driver()
    low = driver.run(ask(part(10, "a")))
    driver.run(ask(part(10, "b")))
    driver.wait_until(50.0)
    commands = driver.submit(ask(part(10, "a"), high=True))
    assert [abort.token for abort in kind(commands, AbortComponent)] == low
    assert [(each.job, each.reason) for each in kind(commands, JobRequeued)] == [
        (1, "preempted by high-priority job 3, which found no places")
    ]
    assert (driver.state(1), driver.state(3)) == (JobState.UNWINDING, JobState.PLACED)
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(3) is JobState.STARTING
    driver.ready(*driver.tokens(3))
    assert driver.state(3) is JobState.RUNNING
    assert_ledger_balances(driver.ledger)
    assert "it found no places, and preempts job 1 for them: 500 s of processor time are lost" in driver.story(3)
    assert "preempted by high-priority job 3, which found no places" in "\n".join(driver.story(1))
    driver.end(*driver.tokens(3))
    driver.settle()
    driver.ready(*driver.tokens(1)[-1:])
    assert (driver.state(1), driver.job(1).runs, driver.job(1).preemptions) == (JobState.RUNNING, 2, 1)


def test_the_least_work_is_lost() -> None:
    driver = make_driver({"a": 10})
    driver.run(ask(5))
    driver.wait_until(100.0)
    driver.run(ask(5))  # the younger one
    driver.wait_until(120.0)
    driver.submit(ask(5, high=True))
    assert victims(driver) == [2]


def test_a_job_that_saves_when_it_is_asked_to_goes_first_unless_that_takes_too_long() -> None:
    saves = Checkpoint(signal=CheckpointSignal.USR1, grace_s=30.0)
    for grace_s, victim in ((30.0, 1), (600.0, 2)):
        driver = make_driver({"a": 10}, barrier_timeout_s=300.0)
        driver.run(ask(5, checkpoint=replace(saves, grace_s=grace_s)))
        driver.wait_until(100.0)
        driver.run(ask(5))
        driver.wait_until(110.0)
        driver.submit(ask(5, high=True))
        assert victims(driver) == [victim]


def test_one_large_victim_may_cost_less_than_several_small_ones() -> None:
    driver = make_driver({"a": 10})
    for _ in range(5):
        driver.run(ask(1))
    driver.wait_until(100.0)
    driver.run(ask(5))
    driver.wait_until(110.0)
    driver.submit(ask(5, high=True))
    assert victims(driver) == [6]  # 50 s against 550 s


def test_whoever_is_not_needed_is_let_off() -> None:
    driver = make_driver({"a": 10})
    driver.run(ask(8))
    driver.wait_until(10.0)
    driver.run(ask(2))  # the least work is lost with it, and it is of no use
    driver.wait_until(20.0)
    driver.submit(ask(8, high=True))
    assert victims(driver) == [1]


def test_a_job_that_has_not_passed_its_barrier_has_nothing_to_lose() -> None:
    driver = make_driver({"a": 10})
    driver.run(ask(5))
    driver.submit(ask(5))
    driver.wait_until(30.0)
    driver.submit(ask(5, high=True))
    assert victims(driver) == [2]
    assert driver.state(2) is JobState.WAITING


def test_it_takes_what_is_idle_and_preempts_for_the_rest_alone() -> None:
    driver = make_driver()
    low = driver.run(ask(part(6, "a")))
    driver.run(ask(part(4, "a")))
    driver.submit(ask(part(6, "a"), part(10, "b"), high=True))
    assert victims(driver) == [1]
    assert (driver.state(3), [claim is not None for claim in driver.job(3).placed.claims]) == (
        JobState.CLAIMING,
        [False, True],
    )
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(3) is JobState.STARTING


def test_claiming_only_switches_it_off() -> None:
    driver = make_driver(preemption=Preemption.CLAIMING_ONLY)
    driver.run(ask(10))
    driver.run(ask(10))
    driver.submit(ask(10, high=True))
    driver.settle()
    assert (driver.state(3), victims(driver)) == (JobState.WAITING, [])
    assert "only once it has places and cannot claim them (preemption: claiming-only)" in cure(driver, 3)


@pytest.mark.parametrize("high", [True, False])
def test_only_a_high_job_preempts_and_only_low_ones(high: bool) -> None:
    driver = make_driver()
    driver.run(ask(10, high=high))
    driver.run(ask(10, high=high))
    driver.submit(ask(10, high=high))
    driver.settle()
    assert (driver.state(3), victims(driver)) == (JobState.WAITING, [])


def test_one_job_preempts_no_more_than_it_may() -> None:
    driver = make_driver({"a": 10}, preempts_per_job_max=2)
    for _ in range(5):
        driver.run(ask(2))
    driver.submit(ask(6, high=True))
    driver.settle()
    assert (driver.state(6), victims(driver)) == (JobState.WAITING, [])
    assert "no places by preempting up to 2 jobs of low priority" in cure(driver, 6)
    driver.submit(ask(4, high=True))
    assert driver.state(7) is JobState.PLACED
    assert driver.job(7).victims == 2


def test_within_an_hour_no_more_are_preempted_than_may_be_and_then_again() -> None:
    driver = make_driver({"a": 10}, preempts_per_hour_max=1, check_interval_s=None)
    first, _ = driver.run(ask(5)), driver.run(ask(5))
    driver.submit(ask(5, high=True))
    driver.end(*first, outcome=Outcome.ABORTED)
    driver.settle()
    driver.submit(ask(5, high=True))
    driver.settle()
    assert (driver.state(3), driver.state(4)) == (JobState.STARTING, JobState.WAITING)
    assert "1 jobs were preempted within the hour" in cure(driver, 4)
    driver.ready(*driver.tokens(3))
    driver.wait_until(PREEMPTED_WITHIN_S - 1.0)
    assert victims(driver) == [1]
    driver.wait_until(PREEMPTED_WITHIN_S + 1.0)
    assert victims(driver) == [1, 2]


def test_who_was_preempted_as_often_as_may_be_is_left_alone() -> None:
    driver = make_driver({"a": 10}, preempted_per_job_max=1)
    low = driver.run(ask(10))
    driver.wait_until(5.0)
    driver.submit(ask(10, high=True))
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    driver.ready(*driver.tokens(2))
    driver.end(*driver.tokens(2))
    driver.settle()
    driver.ready(*driver.tokens(1)[-1:])
    assert driver.state(1) is JobState.RUNNING
    driver.submit(ask(10, high=True))
    driver.settle()
    assert (driver.state(3), victims(driver)) == (JobState.WAITING, [1])


def test_what_is_being_let_go_already_is_waited_for() -> None:
    driver = make_driver({"a": 10})
    low = driver.run(ask(5))
    driver.run(ask(5))
    driver.cancel(1)
    driver.submit(ask(5, high=True))
    assert victims(driver) == []
    assert "enough is being let go already" in cure(driver, 3)
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(3) is JobState.STARTING


def test_it_waits_its_turn_where_the_plan_of_one_before_it_would_be_put_off() -> None:
    driver = make_driver({"a": 10, "b": 10}, plan_depth=1, preempts_per_job_max=1)
    driver.run(replace(ask(part(10, "a")), walltime_s=100.0))
    driver.run(replace(ask(part(5, "b")), walltime_s=100.0))
    driver.run(replace(ask(part(5, "b")), walltime_s=100.0))
    driver.submit(replace(ask(part(10, "a"), part(10, "b"), high=True), walltime_s=50.0))
    driver.settle()
    assert driver.job(4).plan_at == 100.0
    driver.submit(replace(ask(part(5, "b"), high=True), walltime_s=500.0))
    driver.settle()
    assert (driver.state(5), victims(driver)) == (JobState.WAITING, [])
    driver.submit(replace(ask(part(5, "b"), high=True), walltime_s=90.0))  # over before the plan begins
    driver.settle()
    assert victims(driver) == [2]
    assert driver.job(4).plan_at == 100.0


def test_who_is_planned_to_start_soon_preempts_nobody() -> None:
    driver = make_driver({"a": 10}, plan_depth=1)
    driver.run(replace(ask(10), walltime_s=SOON_S))
    driver.submit(ask(10, high=True))
    driver.settle()
    assert (driver.state(2), victims(driver)) == (JobState.WAITING, [])
    assert "planned to start soon" in cure(driver, 2)


def preview(driver: CoreDriver, request: Request, owner: str = "", *, sees_all: bool = False) -> DryRun:
    return try_out(
        request,
        guest=False,
        catalogue=Catalogue.builtin(),
        default_policy="WF",
        scheduler=driver.scheduler,
        owner=owner,
        sees_all=sees_all,
        now=driver.ledger.now,
    )


def test_a_preview_names_the_victims_and_changes_nothing() -> None:
    driver = make_driver({"a": 10}, plan_depth=1)
    driver.run(replace(ask(6), walltime_s=900.0))
    driver.run(replace(ask(4), walltime_s=900.0))
    driver.send(Tick(at=50.0))
    before = records_of(driver.scheduler)
    told = preview(driver, ask(4, high=True))
    assert (told.preempts, told.lost_processor_s) == ([2], 200.0)
    assert [(place.site, place.processors) for place in told.places] == [("a", 4)]
    low = preview(driver, ask(4))
    assert (low.preempts, low.places) == ([], [])
    assert records_of(driver.scheduler) == before
    driver.submit(ask(4, high=True))
    assert victims(driver) == told.preempts


def test_a_preview_tells_of_jobs_of_others_how_many_there_are_and_no_more() -> None:
    driver = make_driver({"a": 10}, plan_depth=1)
    for number, owner in ((1, "anna"), (2, "bert")):
        driver.run(replace(ask(5), walltime_s=900.0))
        driver.job(number).submitter = owner
        driver.job(number).changed()
    driver.send(Tick(at=50.0))
    told = preview(driver, ask(10, high=True), "anna")
    assert (told.preempts, told.preempts_others, told.lost_processor_s) == ([1], 1, 250.0)
    assert preempted(told) == "job 1 and 1 job of other users"
    none = preview(driver, ask(10, high=True), "eve")
    assert (none.preempts, none.preempts_others, none.lost_processor_s) == ([], 2, 0.0)
    assert preempted(none) == "2 jobs of other users"
    all_of_them = preview(driver, ask(10, high=True), "eve", sees_all=True)
    assert (all_of_them.preempts, all_of_them.preempts_others) == ([1, 2], 0)
    assert all_of_them.lost_processor_s == 500.0
    assert preempted(all_of_them) == "jobs 1 and 2"


def test_a_preview_knows_that_a_job_would_start_soon_and_preempt_nobody() -> None:
    driver = make_driver({"a": 10}, plan_depth=1)
    driver.run(replace(ask(10), walltime_s=SOON_S))
    told = preview(driver, ask(10, high=True))
    assert told.refusal is not None
    assert "planned to start soon" in told.refusal.cure


def test_it_does_not_preempt_where_its_files_are_not() -> None:
    driver = make_driver({"a": 10, "b": 10}, files={"f": (100.0, ("b",))})
    driver.run(ask(part(10, "a")))
    driver.run(ask(part(10, "b")))
    driver.submit(ask(part(10, "a", "f"), high=True))
    driver.settle()
    assert victims(driver) == []
    assert "files would have to be brought" in cure(driver, 3)
    driver.submit(ask(part(10, "b", "f"), high=True))
    assert victims(driver) == [2]


def test_on_one_node_it_is_known_what_comes_free_for_tasks_with_shapes() -> None:
    driver = make_driver({"a": 8})
    driver.run(ask(8))
    driver.submit(ask(Component(processors=4, application=Application(processors_per_task=2)), high=True))
    driver.settle()
    assert victims(driver) == [1]


def test_nobody_is_preempted_at_a_site_that_is_kept_out() -> None:
    driver = make_driver({"a": 10})
    driver.run(ask(10))
    driver.send(SiteDrained(at=driver.ledger.now, site="a"))
    driver.submit(ask(10, high=True))
    driver.settle()
    assert victims(driver) == []


def test_local_users_are_never_preempted() -> None:
    driver = make_driver({"a": 10})
    driver.run(ask(4))
    driver.send(SiteReported(at=driver.ledger.now, site="a", processors=10, others=6))
    driver.submit(ask(6, high=True))
    driver.settle()
    assert victims(driver) == []


def test_a_waiting_job_preempts_at_a_scan_and_a_victim_that_does_not_let_go_costs_no_other() -> None:
    driver = make_driver({"a": 10}, answer_timeout_s=10.0, barrier_timeout_s=60.0)
    driver.send(SiteReported(at=0.0, site="a", processors=10, others=6))
    low = driver.run(ask(4))
    driver.submit(ask(6, high=True))
    driver.settle()
    assert driver.state(2) is JobState.WAITING
    driver.send(SiteReported(at=driver.ledger.now, site="a", processors=10, others=4))
    driver.settle()
    assert (driver.state(2), victims(driver)) == (JobState.PLACED, [1])
    driver.wait_until(100.0)  # its site never says that it has let go
    assert (driver.state(2), victims(driver)) == (JobState.WAITING, [1, 2])
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_no_more_candidates_are_looked_at_than_the_limit() -> None:
    driver = make_driver({"a": CANDIDATES_MAX + 2})
    for _ in range(CANDIDATES_MAX + 1):
        driver.submit(ask(1))
    demand = driver.job(1).demand
    assert demand is not None
    assert len(candidates(driver.ledger, demand, preempted_max=1)) == CANDIDATES_MAX


def test_the_records_keep_who_was_preempted_and_when() -> None:
    driver = make_driver({"a": 10})
    low = driver.run(ask(10))
    driver.wait_until(5.0)
    driver.submit(ask(10, high=True))
    again = scheduler_of(driver.scheduler.grid, Catalogue.builtin(), records_of(driver.scheduler))
    assert (again.ledger.preempted_at, again.ledger.jobs[2].victims) == ([5.0], 1)
    again.handle(Tick(at=5.0 + PREEMPTED_WITHIN_S))
    assert again.ledger.preempted_at == []
    driver.end(*low, outcome=Outcome.ABORTED)
    driver.settle()
    driver.ready(*driver.tokens(2))
    driver.end(*driver.tokens(2))
    driver.settle()
    driver.ready(*driver.tokens(1)[-1:])
    driver.end(*driver.tokens(1)[-1:])
    assert_clean(driver.ledger)
