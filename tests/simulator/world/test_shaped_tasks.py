"""Shaped tasks in simulation: they take turns where their nodes are, and places that the core counts on are there."""

from __future__ import annotations

import random

import pytest

from koala.core import Scheduler
from koala.descriptions import read_grid
from koala.model.facts import JobEnded
from koala.model.messages import ComponentAccepted, JobOutcome, StartComponent
from koala.model.nodes import TaskNeeds
from koala.model.request import Application, Component, Request
from koala.simulator.workloads.workload import Arrival, Workload
from koala.simulator.world.world import World

GRID = """
sites:
  delft:
    processors: 40
    node_classes:
      - {count: 4, processors: 8, memory: 64G, gpus: 2, gpu: a100}
      - {count: 1, processors: 8, memory: 16G, features: [big]}
  vu: {processors: 16, gpus: 1, gpu: v100, memory: 32G}
  leiden: {processors: 32}
scheduler: {scan_interval_s: 0}
"""


def run(arrivals: list[Arrival]) -> tuple[list[tuple[float, object]], list[object]]:
    """All commands with their times, and all events."""
    grid = read_grid(GRID, "grid.yaml")
    world, scheduler = World(grid, Workload([lambda _grid, _seed: iter(arrivals)], len(arrivals)), 1), Scheduler(grid)
    commands: list[tuple[float, object]] = []
    events: list[object] = []
    while (event := world.next(scheduler.due_at)) is not None:
        events.append(event)
        for command in scheduler.handle(event).entries:
            commands.append((event.at, command))
            world.perform(command, event.at)
        for site in world.sites.values():
            assert site.nodes is None or not site.nodes.problems()
    return commands, events


def job(tasks: int, processors: int, **needs: object) -> Request:
    component = Component(
        processors=tasks * processors,
        application=Application(processors_per_task=processors),
        needs=TaskNeeds(**needs),  # type: ignore[arg-type]
    )
    return Request(components=(component,))


def test_jobs_that_need_all_gpus_take_turns() -> None:
    commands, _ = run([Arrival(0.0, job(8, 1, gpus=1, gpu="a100"), 100.0) for _ in range(3)])
    assert [at for at, command in commands if isinstance(command, StartComponent)] == [0.0, 100.0, 200.0]
    assert [command.outcome for _, command in commands if isinstance(command, JobEnded)] == [JobOutcome.DONE] * 3


def test_memory_and_constraints_send_a_job_where_they_are() -> None:
    commands, _ = run(
        [Arrival(0.0, job(1, 1, memory_bytes=48 * 2**30), 10.0), Arrival(0.0, job(2, 4, constraint="big"), 10.0)]
    )
    assert [command.site for _, command in commands if isinstance(command, StartComponent)] == ["delft", "delft"]


@pytest.mark.parametrize("seed", range(6))
def test_places_that_the_core_counts_on_are_there(seed: int) -> None:
    """Without other users no component ever waits in the queue of its site: each gets its nodes at once."""
    rng = random.Random(seed)
    arrivals = []
    at = 0.0
    for _ in range(40):
        at += rng.expovariate(1 / 20.0)
        request = job(
            rng.randint(1, 6),
            rng.choice((1, 2, 4)),
            gpus=rng.choice((0, 0, 1, 2)),
            memory_bytes=rng.choice((0, 2**30, 8 * 2**30)),
            constraint=rng.choice(("", "", "", "big")),
        )
        arrivals.append(Arrival(at, request, rng.uniform(10.0, 200.0)))
    commands, events = run(arrivals)
    assert not [event for event in events if isinstance(event, ComponentAccepted)]
    assert sum(isinstance(command, StartComponent) for _, command in commands) > 20
