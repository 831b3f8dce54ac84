"""What is told of starts: files count, the right jobs are named, and a job that is not submitted learns as much."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koala.core.state.expected_starts import ExpectedStart
from koala.core.state.ledger import LAST_RUNS_NAMES_MAX
from koala.model.grid import Estimates
from koala.model.job_array import read_array
from koala.model.messages import JobSubmitted
from koala.model.request import Request
from koala.policies import Catalogue
from koala.policies.interface import Spots, compile_demand
from tests.support.core_driver import CoreDriver, ask, ask_total, make_grid, part
from tests.support.core_records import records_of, scheduler_of

FILE_S = 30.0


def told(driver: CoreDriver, job: int) -> tuple[float | None, float | None, tuple[int, ...]]:
    found = driver.scheduler.explain(job)
    assert found is not None
    return found.expected_at, found.latest_at, tuple(found.ends_before)


def preview(driver: CoreDriver, request: Request, owner: str = "") -> ExpectedStart | None:
    demand = compile_demand(request, Catalogue.builtin().choose(request, "WF"), driver.ledger.sites.view.index)
    return driver.scheduler.expected_start_of_new(demand, request, owner)


def with_a_file(**parameters: Any) -> CoreDriver:
    """All of a is held until 100 s; the file f takes half a minute from the store to it."""
    driver = CoreDriver(
        {"a": 10, "store": 1}, files={"f": (FILE_S, ("store",))}, scan_interval_s=0.0, plan_depth=1, **parameters
    )
    driver.run(ask(10, walltime_s=100.0))
    driver.settle()
    return driver


def test_a_told_start_counts_the_files_that_have_to_be_brought() -> None:
    driver = with_a_file()
    driver.submit(ask(part(10, "a", "f"), walltime_s=50.0))
    assert told(driver, 2) == (100.0 + FILE_S, 100.0 + FILE_S, (1,))
    assert driver.job(2).plan_at == 100.0  # then its files begin to come
    driver.end(*driver.tokens(1))
    driver.settle()
    assert driver.job(2).start_estimate == driver.ledger.now + FILE_S  # as was told, had it been 100 s


def test_a_job_behind_one_with_files_is_told_of_them_too() -> None:
    driver = with_a_file()
    driver.scheduler._placement.plans.depth = 2
    driver.submit(ask(part(10, "a", "f"), walltime_s=50.0))
    driver.submit(ask(10, walltime_s=10.0))
    assert told(driver, 3)[0] == 100.0 + FILE_S + 50.0
    assert told(driver, 3)[2] == (2,)


def test_files_that_come_before_the_plan_as_the_job_claims_early_put_nothing_off() -> None:
    driver = with_a_file(hold_budget=1.0, hold_budget_per_job=1.0, hold_ahead_s=60.0)
    driver.submit(ask(part(10, "a", "f"), walltime_s=50.0))
    assert told(driver, 2)[0] == 100.0
    assert told(driver, 2)[1] == 100.0 + FILE_S  # at the latest, if it cannot be paid for


@pytest.mark.parametrize("depth", [2, 4])
def test_a_job_is_not_told_to_wait_for_those_who_make_room_for_others(depth: int) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=depth)
    driver.run(ask(10, walltime_s=100.0))
    driver.submit(ask(10, walltime_s=50.0))
    driver.submit(ask(10, walltime_s=50.0))
    assert told(driver, 2) == (100.0, 100.0, (1,))
    assert told(driver, 3) == (150.0, 150.0, (2,))


def test_jobs_without_whose_end_it_would_start_as_well_are_not_named() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(2, walltime_s=20.0))
    driver.run(ask(5, walltime_s=50.0))
    driver.submit(ask(7))
    assert told(driver, 3) == (50.0, 50.0, (2,))  # three are idle, and five more are enough
    driver.cancel(3)
    driver.submit(ask(10))
    assert told(driver, 4) == (50.0, 50.0, (1, 2))


def test_jobs_of_local_users_are_waited_for_without_a_name() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(5, walltime_s=50.0))
    driver.report("a", others=5)
    driver.submit(ask(5))
    assert told(driver, 2)[2] == (1,)


# ------------------------------------------------------------------------------------- a job to come


def test_a_job_to_come_is_told_what_it_would_be_told_once_it_is_there() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=2)
    driver.run(ask(10, walltime_s=100.0))
    driver.submit(replace(ask_total(20), walltime_s=60.0))
    before = records_of(driver.scheduler)
    request = replace(ask_total(15), walltime_s=10.0)
    found = preview(driver, request)
    assert found is not None
    assert records_of(driver.scheduler) == before
    driver.submit(request)
    assert told(driver, 3) == (found.at, found.latest_at, found.ends_before) == (160.0, 160.0, (2,))


def test_a_job_to_come_that_would_have_no_plan_is_told_no_time() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(10, walltime_s=100.0))
    driver.submit(ask(10))
    assert preview(driver, ask(10)) is None  # as many jobs of its queue have plans as shall have
    assert preview(driver, ask(10, high=True)) is not None
    unplanned = CoreDriver({"a": 10}, scan_interval_s=0.0)
    unplanned.run(ask(10, walltime_s=100.0))
    assert preview(unplanned, ask(10)) is None


# --------------------------------------------------------------------------------- runs of the same name


def after_named_runs(estimates: Estimates = Estimates.WALLTIME) -> CoreDriver:
    """Runs of `long` took 400 s, later ones of `short` 20 s; one more of `long` runs on all of a."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1, estimates=estimates)
    for name, took_s in (("long", 400.0), ("short", 20.0), ("short", 20.0)):
        tokens = driver.run(ask(10, walltime_s=1_000.0, name=name))
        driver.wait_until(driver.ledger.now + took_s)
        driver.end(*tokens)
        driver.settle()
    driver.run(ask(10, walltime_s=1_000.0, name="long"))
    return driver


@pytest.mark.parametrize("estimates", list(Estimates))
def test_what_is_expected_goes_by_runs_of_the_same_name_before_those_of_the_user(estimates: Estimates) -> None:
    driver = after_named_runs(estimates)
    begun = driver.ledger.now
    driver.submit(ask(10, name="other"))
    assert told(driver, 5)[0] == begun + 400.0
    assert [driver.ledger.usual_s("", name) for name in ("long", "short", "other", "job")] == [
        400.0,
        20.0,
        20.0,
        20.0,
    ]
    assert driver.ledger.usual_s("somebody else", "long") is None


def test_runs_of_a_name_survive_a_restart_and_are_remembered_for_so_many_names() -> None:
    driver = after_named_runs()
    ledger = scheduler_of(
        make_grid({"a": 10}, scan_interval_s=0.0, plan_depth=1), None, records_of(driver.scheduler)
    ).ledger
    assert ledger.usual_s("", "long") == 400.0
    for number in range(LAST_RUNS_NAMES_MAX):
        ledger.note_run("", 1.0, f"name {number}")
    assert len(ledger.last_named_runs) == LAST_RUNS_NAMES_MAX
    assert ledger.usual_s("", "long") == 1.0  # it is forgotten: those of the user count


def test_a_job_that_has_not_come_to_its_barrier_is_believed_to_take_as_long_as_usual_too() -> None:
    driver = after_named_runs()
    driver.end(*driver.tokens(4))
    driver.settle()
    begun = driver.ledger.now
    driver.submit(ask(10, walltime_s=1_000.0, name="short"))
    driver.submit(ask(10))
    assert driver.job(5).started_at is None
    assert told(driver, 6)[:2] == (begun + 20.0, begun + 1_000.0)


def test_a_start_by_the_plan_is_told_where_its_places_are() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(10, walltime_s=100.0))
    found = preview(driver, replace(ask_total(20), walltime_s=60.0))
    assert found is not None
    assert found.spots == Spots((0, 1), (10, 10))


def test_a_job_whose_plan_an_element_puts_off_does_not_fall_behind_later_ones() -> None:
    """The last element of the array becomes a job at 60 s and takes what job 7 was to have at 120 s; job 8, as wide
    as the site, has its plan for 200 s."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=8)
    driver.run(ask(5, walltime_s=90.0))
    driver.submit(ask(5, walltime_s=60.0, array=read_array("1-4")))
    driver.ready(*driver.tokens(3))
    for number, request in ((7, ask(5, walltime_s=80.0)), (8, ask(10, walltime_s=200.0))):
        driver.send(JobSubmitted(at=driver.now, job=number, request=request))
    assert (driver.job(7).plan_at, driver.job(8).plan_at) == (120.0, 200.0)
    assert told(driver, 7)[1] == 150.0
    driver.wait_until(60.0)
    driver.end(*driver.tokens(3))
    driver.settle()
    assert [driver.job(number).plan_at for number in (5, 6, 7, 8)] == [90.0, 120.0, 150.0, 230.0]
