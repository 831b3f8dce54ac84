"""Nodes that fail and return in a simulated world, as a trace says: what breaks, what is told, what always holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from koala.core import Scheduler
from koala.model.grid import Background, Grid, LocalScheduler
from koala.model.messages import JobOutcome, SiteReported
from koala.simulator import Workload, simulate
from koala.simulator.traces.failures import read_failure_trace
from koala.simulator.traces.node_mapping import SiteFailures
from koala.simulator.world.local_queue import LocalJob
from koala.simulator.world.site import SimulatedComponent, SimulatedState
from koala.simulator.world.world import World
from tests.support.hand_driven import HandDriven, at_once, grid, job, site
from tests.support.trace_files import write_trace

Nodes = dict[str, tuple[int, list[tuple[float, float]]]]


def failures(folder: Path, nodes: Nodes, where: Grid, end_s: float = 1000.0) -> SiteFailures:
    return SiteFailures(read_failure_trace(write_trace(folder, nodes, end_s=end_s)), where)


class FailingHands(HandDriven):
    """A world with a trace, driven by hand."""

    def __init__(self, folder: Path, where: Grid, nodes: Nodes, *jobs: Any) -> None:
        self.world = World(where, Workload.from_arrivals(jobs), 1, failures(folder, nodes, where))

    def reports(self, at: float) -> list[tuple[float, str, int, int]]:
        told = [event for event in self.until(at) if isinstance(event, SiteReported)]
        return [(event.at, event.site, event.processors, event.others) for event in told]


def test_a_failed_node_breaks_what_runs_on_it_and_nothing_else(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, []), "a/2": (2, [(50.0, 80.0)])}
    hands = FailingHands(tmp_path, grid(site("a", 4)), nodes, job(0.0, 2, 2))
    hands.until(0)
    hands.start("first", "a", 2)
    hands.start("second", "a", 2)
    hands.release("first", "second")
    assert hands.heard(60) == ["0 ready first", "0 ready second", "50 a others 0", "50 site_failed second"]
    assert hands.heard(200) == ["80 a others 0", "100 done first"]


def test_the_site_says_how_many_processors_work_before_what_broke(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, [(50.0, 80.0), (90.0, 95.0)]), "a/2": (3, [(50.0, 70.0)])}
    hands = FailingHands(tmp_path, grid(site("a", 8)), nodes)
    assert hands.reports(200) == [
        (50.0, "a", 3, 0),
        (70.0, "a", 6, 0),
        (80.0, "a", 8, 0),
        (90.0, "a", 6, 0),
        (95.0, "a", 8, 0),
    ]


def test_a_component_over_two_nodes_breaks_once_and_frees_what_works(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, [(50.0, 900.0)]), "a/2": (2, [(60.0, 900.0)]), "a/3": (2, [])}
    hands = FailingHands(tmp_path, grid(site("a", 6)), nodes, job(0.0, 3))
    hands.until(0)
    hands.start("wide", "a", 3)
    hands.release("wide")
    assert hands.heard(70) == ["0 ready wide", "50 a others 0", "50 site_failed wide", "60 a others 0"]
    assert hands.world.sites["a"].idle == 2
    assert hands.world.components.failures == 1


def test_a_component_that_does_not_fit_what_works_waits_for_the_nodes(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, [(0.0, 80.0)]), "a/2": (2, [])}
    hands = FailingHands(tmp_path, grid(site("a", 4)), nodes, job(0.0, 3))
    hands.until(0)
    hands.start("wide", "a", 3)
    assert hands.heard(200) == ["0 accepted wide", "80 a others 0", "80 ready wide"]


def test_a_site_whose_nodes_are_all_down_is_down_as_a_whole(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, [(40.0, 90.0)]), "a/2": (2, [(50.0, 80.0)])}
    hands = FailingHands(tmp_path, grid(site("a", 4), site("b", 4)), nodes, job(0.0, 2))
    hands.until(0)
    hands.start("lost", "a", 2)
    hands.start("later", "a", 2)
    assert hands.heard(45) == ["0 ready lost", "0 ready later", "40 a others 0", "40 site_failed lost"]
    hands.ask("a", "later")
    assert hands.heard(60) == ["45 ready later", "50 a silent"]
    hands.ask("a", "later")
    assert hands.heard(79) == []
    assert hands.reports(200) == [(80.0, "a", 2, 0), (90.0, "a", 4, 0)]


def test_processors_without_a_node_of_the_trace_never_fail(tmp_path: Path) -> None:
    hands = FailingHands(tmp_path, grid(site("a", 4)), {"a/1": (3, [(40.0, 90.0)])})
    assert hands.heard(60) == ["40 a others 0"]
    assert hands.world.sites["a"].processors == 1


def test_an_outage_of_the_grid_file_and_failing_nodes_do_not_disturb_each_other(tmp_path: Path) -> None:
    nodes: Nodes = {"a/1": (2, [(50.0, 300.0)]), "a/2": (2, [(60.0, 70.0), (150.0, 400.0)])}
    hands = FailingHands(tmp_path, grid(site("a", 4, outages=((40.0, 100.0), (140.0, 200.0)))), nodes)
    assert hands.heard(500) == [
        "40 a silent",
        "100 a others 0",
        "140 a silent",
        "300 a others 0",
        "400 a others 0",
    ]
    assert (hands.world.sites["a"].processors, hands.world.sites["a"].idle) == (4, 4)


def test_failing_nodes_take_the_sites_own_users_and_dummies_too(tmp_path: Path) -> None:
    users = Background(user_load=0.0, band_low=0.5, band_high=0.9)
    nodes: Nodes = {"a/1": (5, [(50.0, 80.0)]), "a/2": (3, [(60.0, 80.0)])}
    hands = FailingHands(tmp_path, grid(site("a", 10, background=users)), nodes)
    assert hands.reports(100) == [(0.0, "a", 10, 5), (50.0, "a", 5, 5), (60.0, "a", 2, 2), (80.0, "a", 10, 5)]


# -------------------------------------------------------------------------------------- what always holds


def check_nodes(world: World) -> None:
    """Nothing is held on a node that is down, and every processor is counted once."""
    for each in world.sites.values():
        held = 0
        running = [component for component in each.running if isinstance(component, SimulatedComponent)]
        assert each.nodes is not None
        holders: list[LocalJob | str] = [*each.running, "dummies"]
        for holder in holders:
            shares = each.nodes.held(holder)
            assert all(each.nodes.working[place] for place in shares), f"{each.name}: held on a node that is down"
            wanted = each.dummies if isinstance(holder, str) else holder.processors
            assert sum(shares.values()) == wanted
            held += wanted
        assert held + each.idle == each.processors == each.nodes.processors
        assert sum(component.processors for component in running) == each.ours
        assert each.ours + each.others + each.idle == each.processors
    for component in world.components.components.values():
        if component.state not in (SimulatedState.ENDED, SimulatedState.QUEUED):
            assert component in component.site.running


def drawn_world(folder: Path, seed: int) -> tuple[Grid, Workload, SiteFailures]:
    rng = random.Random(seed)
    users = Background(user_load=0.2, user_size_mean=2.0, user_execution_mean_s=60.0, band_low=0.1, band_high=0.4)
    where = at_once(
        grid(
            site("a", 12, background=users if seed % 2 else None),
            site("b", 9, scheduler=LocalScheduler.EASY),
            site("c", 7, outages=((300.0, 350.0),)),
        )
    )
    nodes: Nodes = {}
    for cluster, count in (("a", 6), ("b", 5), ("c", 3)):
        for number in range(count):
            at_s, downs = 0.0, []
            while (at_s := at_s + rng.expovariate(1 / 200)) < 3000:
                downs.append((round(at_s, 1), round(at_s := at_s + rng.expovariate(1 / 80), 1)))
            nodes[f"{cluster}/{number}"] = (rng.choice((1, 2, 2)), [down for down in downs if down[0] < down[1]])
    jobs = [
        job(
            rng.uniform(0.0, 2500.0),
            *(rng.randint(1, 4) for _ in range(rng.randint(1, 3))),
            execution_s=rng.uniform(5, 150),
        )
        for _ in range(60)
    ]
    return where, Workload.from_arrivals(jobs), failures(folder, nodes, where, end_s=4000.0)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_runs_on_a_node_that_is_down_no_processor_counts_twice_and_all_jobs_finish(
    tmp_path: Path, seed: int
) -> None:
    where, workload, trace = drawn_world(tmp_path, seed)
    world = World(where, workload, seed, trace)
    scheduler = Scheduler(where)
    done = 0
    while (event := world.next(scheduler.due_at, 100_000.0)) is not None and done < workload.jobs:
        commands = scheduler.handle(event).entries
        for command in commands:
            world.perform(command, event.at)
            done += getattr(command, "outcome", None) is JobOutcome.DONE
        check_nodes(world)
    assert done == workload.jobs
    assert world.components.failures > 0
    assert not scheduler.ledger.jobs


def test_the_same_seed_and_trace_give_the_same_log_and_another_trace_another(tmp_path: Path) -> None:
    where, workload, trace = drawn_world(tmp_path, 3)
    with_trace = [simulate(where, workload, seed=3, failures=trace) for _ in range(2)]
    assert with_trace[0].log_sha256 == with_trace[1].log_sha256
    assert with_trace[0].log_sha256 != simulate(where, workload, seed=3).log_sha256
    assert with_trace[0].metrics()["outcomes"] == {"done": 60}


def test_a_job_too_large_for_what_works_is_waited_for_until_the_nodes_return(tmp_path: Path) -> None:
    where = at_once(grid(site("a", 4)))
    days_s = 40 * 86_400.0
    trace = failures(tmp_path, {"a/1": (2, [(0.0, days_s)])}, where, end_s=days_s)
    result = simulate(where, Workload.from_arrivals([job(10.0, 4, execution_s=50.0)]), failures=trace)
    (row,) = result.rows()
    assert (row.outcome, row.started, row.finished) == ("done", days_s, days_s + 50.0)


def test_utilisation_is_of_all_processors_whether_they_work_or_not(tmp_path: Path) -> None:
    where = at_once(grid(site("a", 4)))
    trace = failures(tmp_path, {"a/1": (2, [(0.0, 500.0)])}, where)
    result = simulate(where, Workload.from_arrivals([job(0.0, 2, execution_s=100.0)]), failures=trace)
    assert [(use.processors, use.ours) for use in result.uses] == [(4, 0.5)]
