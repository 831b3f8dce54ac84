"""A component that failed on a node keeps its job off it, and its user's program once that does well on others."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from koala.core.failures.program import program_of
from koala.core.state.blame import (
    ACCUSATIONS_KEPT_MAX,
    NODE_ACCUSATIONS_KEPT_MAX,
    Accusation,
    NodeAccusation,
    SiteRecord,
    accuser_of,
)
from koala.model.messages import JobSubmitted, Outcome, SiteResumed, StartComponent, Tick
from koala.model.nodes import EXCLUDED_NODES_MAX
from koala.model.request import Application, Component, Request
from tests.support.core_driver import CoreDriver, ask, assert_ledger_balances, part
from tests.support.core_records import records_of, scheduler_of


def _grid(**parameters: Any) -> CoreDriver:
    return CoreDriver({"a": 10}, scan_interval_s=0.0, check_interval_s=None, **parameters)


def _submit(driver: CoreDriver, owner: str = "ann", program: str = "solve", **fields: Any) -> int:
    job = max(driver.scheduler._placement.last_job + 1, 1)
    request = ask(Component(processors=5, application=Application(executable=program)), **fields)
    driver.send(JobSubmitted(at=driver.now, job=job, request=request, owner=owner))
    return job


def _started(driver: CoreDriver, job: int) -> StartComponent:
    driver.pass_time(2.0)
    return [start for start in driver.all(StartComponent) if start.job == job][-1]


def _ends(driver: CoreDriver, job: int, exit_code: int | None, *nodes: str, after_s: float = 5.0) -> None:
    start = _started(driver, job)
    driver.ready(start.token)
    driver.pass_time(after_s)
    outcome = Outcome.FAILED if exit_code else Outcome.DONE
    driver.end(start.token, outcome=outcome, exit_code=exit_code, nodes=nodes)


@pytest.mark.parametrize(
    ("exit_code", "after_s", "nodes", "excluded"),
    [
        (127, 5.0, ("a1",), ("a1",)),
        (126, 5.0, ("a1",), ("a1",)),
        (139, 5.0, ("a1",), ("a1",)),
        (1, 1.0, ("a1",), ("a1",)),  # it failed at once
        (1, 5.0, ("a1",), ()),
        (127, 5.0, ("a1", "a2"), ()),  # nobody knows which
        (127, 5.0, (), ()),
    ],
)
def test_a_job_is_kept_off_the_node_where_it_failed_with_a_sign_of_the_node(
    exit_code: int, after_s: float, nodes: tuple[str, ...], excluded: tuple[str, ...]
) -> None:
    driver = _grid()
    job = _submit(driver)
    _ends(driver, job, exit_code, *nodes, after_s=after_s)
    assert _started(driver, job).exclude_nodes == excluded
    assert ("not on node a1 at a, where it failed" in "\n".join(driver.story(job))) is bool(excluded)


def test_nodes_are_excluded_for_so_long_and_so_many_of_them() -> None:
    driver = _grid(avoid_failed_s=1_000.0, restart_rest_s=0.0)
    job = _submit(driver, restarts_max=100)
    names = [f"a{number}" for number in range(EXCLUDED_NODES_MAX + 2)]
    for name in names:
        _ends(driver, job, 127, name)
    assert _started(driver, job).exclude_nodes == tuple(names[2:])
    driver.pass_time(5.0)
    _ends(driver, job, 1, after_s=1_000.0)
    assert _started(driver, job).exclude_nodes == ()
    assert driver.job(job).failed_nodes == {}


def test_without_a_memory_of_failures_no_node_is_excluded() -> None:
    driver = _grid(avoid_failed_s=0.0)
    job = _submit(driver)
    _ends(driver, job, 127, "a1")
    assert _started(driver, job).exclude_nodes == ()


def test_a_job_on_several_sites_excludes_a_node_only_for_a_program_that_is_not_there() -> None:
    for exit_code, excluded in ((127, ("a1",)), (139, ())):
        driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0)
        tokens = driver.run(ask(part(5, "a"), part(5, "b")))
        driver.pass_time(5.0)
        driver.end(tokens[0], outcome=Outcome.FAILED, exit_code=exit_code, nodes=("a1",))
        driver.end(tokens[1], outcome=Outcome.ABORTED)
        driver.pass_time(2.0)
        assert [start.exclude_nodes for start in driver.all(StartComponent)[2:]] == [excluded, ()]


@pytest.mark.parametrize("exit_code", [1, 127])
def test_the_users_program_is_kept_off_a_node_once_it_did_well_on_another(exit_code: int) -> None:
    driver = _grid()
    job = _submit(driver)
    _ends(driver, job, exit_code, "a1")
    assert _started(driver, _submit(driver)).exclude_nodes == ()
    _ends(driver, job, 0, "a2")
    assert _started(driver, _submit(driver)).exclude_nodes == ("a1",)
    assert_ledger_balances(driver.ledger)


def test_others_and_other_programs_are_not_kept_off_it() -> None:
    driver = _grid()
    job = _submit(driver)
    _ends(driver, job, 127, "a1")
    _ends(driver, job, 0, "a2")
    assert _started(driver, _submit(driver, owner="bob")).exclude_nodes == ()
    assert _started(driver, _submit(driver, program="other")).exclude_nodes == ()


@pytest.mark.parametrize("nodes", [("a1",), ()])
def test_a_program_that_does_well_on_the_node_or_nobody_knows_where_proves_nothing(nodes: tuple[str, ...]) -> None:
    driver = _grid()
    job = _submit(driver)
    _ends(driver, job, 1, "a1")
    _ends(driver, job, 0, *nodes)
    assert _started(driver, _submit(driver)).exclude_nodes == ()


def test_a_program_that_does_well_at_another_site_proves_it_and_an_operator_clears_it() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, scan_interval_s=0.0, check_interval_s=None)
    job = _submit(driver)
    _ends(driver, job, 1, "a1")
    _ends(driver, job, 0)
    second = _submit(driver)
    assert _started(driver, second).exclude_nodes == ("a1",)
    _ends(driver, second, 0, "a2")
    driver.send(SiteResumed(at=driver.now, site="a"))
    assert _started(driver, _submit(driver)).exclude_nodes == ()


def test_a_job_that_finds_no_room_on_other_nodes_may_use_all_again() -> None:
    driver = _grid(barrier_timeout_s=30.0)
    job = _submit(driver)
    _ends(driver, job, 127, "a1")
    assert _started(driver, job).exclude_nodes == ("a1",)
    driver.pass_time(60.0)
    driver.end(*driver.ledger.claims, outcome=Outcome.ABORTED)
    assert _started(driver, job).exclude_nodes == ()


def test_a_site_that_does_not_run_it_on_other_nodes_is_not_barred() -> None:
    driver = _grid()
    job = _submit(driver)
    _ends(driver, job, 127, "a1")
    driver.end(_started(driver, job).token, outcome=Outcome.UNSUITABLE, reason="no such nodes")
    assert _started(driver, job).exclude_nodes == ()
    assert driver.job(job).barred == {}


def test_it_survives_a_restart() -> None:
    driver = _grid(restart_rest_s=50.0)
    job = _submit(driver)
    _ends(driver, job, 127, "a1")
    driver.scheduler = scheduler_of(driver.scheduler.grid, None, records_of(driver.scheduler))
    driver.ledger = driver.scheduler.ledger
    driver.send(Tick(at=driver.now))
    driver.pass_time(60.0)
    assert _started(driver, job).exclude_nodes == ("a1",)


def test_what_is_held_against_nodes_has_a_bound() -> None:
    record = SiteRecord()
    for number in range(NODE_ACCUSATIONS_KEPT_MAX + 1):
        record.accuse_node(NodeAccusation(f"n{number}", "ann", "p", 0.0, 1, "w"))
    assert [record.nodes[0].node, len(record.nodes)] == ["n1", NODE_ACCUSATIONS_KEPT_MAX]
    assert msgspec.json.decode(msgspec.json.encode(record), type=SiteRecord).nodes[0].node == "n1"


def test_many_programs_of_one_user_make_nothing_forgotten_that_others_programs_met() -> None:
    record = SiteRecord()
    record.accuse_node(NodeAccusation("n1", "ann", "p", 0.0, 1, "w"))
    record.accuse(accuser_of("ann", "solver"), Accusation(0.0, 1, 1, "w", "how"))
    for number in range(3 * NODE_ACCUSATIONS_KEPT_MAX):
        record.accuse_node(NodeAccusation("n1", "mallory", f"p{number}", 1.0, 2, "w"))
        record.accuse(accuser_of("mallory", f"p{number}"), Accusation(1.0, 2, 1, "w", "how"))
    assert len(record.nodes) == NODE_ACCUSATIONS_KEPT_MAX
    assert len(record.accusations) == ACCUSATIONS_KEPT_MAX
    assert record.nodes[0].owner == "ann"
    assert next(iter(record.accusations)) == accuser_of("ann", "solver")


def test_the_programs_that_are_known_take_little_memory_however_long_they_are() -> None:
    tracemalloc.start()
    for number in range(50):
        application = Application(script=f"# {number}" + "x" * 1_000_000)
        request = Request(components=(Component(processors=1, application=application),))
        assert program_of(request, request.components[0]).digest
        del application, request
    assert tracemalloc.get_traced_memory()[0] < 10_000_000
    tracemalloc.stop()
