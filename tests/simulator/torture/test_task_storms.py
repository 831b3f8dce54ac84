"""Storms in which every total to be divided is a job of tasks: the scheduler keeps its promises for them too."""

from __future__ import annotations

import random

import msgspec
import pytest

from koala.model.messages import SiteMachines
from koala.model.request import Request
from koala.simulator.torture.spawning import POLICIES, of_tasks
from koala.simulator.torture.storms import Storm, draw_storm
from koala.simulator.torture.torture import weather

SEEDS = 8


def with_tasks(storm: Storm) -> Storm:
    """The storm with every total that is none of tasks yet as one."""
    rng = random.Random(storm.seed)

    def turned(request: Request) -> Request:
        if not request.is_total or request.is_shaped or request.tasks is not None:
            return request
        return of_tasks(rng, request)

    arrivals = tuple(each._replace(request=turned(each.request)) for each in storm.arrivals)
    return msgspec.structs.replace(storm, arrivals=arrivals, operators=storm.operators + measured(storm, rng))


def measured(storm: Storm, rng: random.Random) -> tuple[SiteMachines, ...]:
    """In some storms others load machines so that no task fits there, until the storm is over."""
    heal_at_s = storm.grid.simulation.heal_at_s or 0.0
    events = []
    for site in storm.grid.sites:
        if rng.random() < 0.4:
            power, load = rng.choice((500.0, 5_000.0)), rng.choice((0.0, 0.5, 1.0))
            machines = ((1, power, 0.0), (site.processors, power, load))
            events.append(SiteMachines(at=rng.uniform(0.0, heal_at_s), site=site.name, machines=machines))
            events.append(SiteMachines(at=heal_at_s, site=site.name))
    return tuple(events)


@pytest.fixture(scope="module")
def storms() -> list[Storm]:
    return [with_tasks(draw_storm(seed)) for seed in range(SEEDS)]


def test_the_storms_have_jobs_of_tasks_under_every_policy(storms: list[Storm]) -> None:
    drawn = [arrival.request for storm in storms for arrival in storm.arrivals if arrival.request.tasks is not None]
    assert len(drawn) > SEEDS
    assert {request.policy for request in drawn} == set(POLICIES)


def test_every_promise_is_kept_for_jobs_of_tasks(storms: list[Storm]) -> None:
    broken = {storm.seed: told.detail for storm in storms if (told := weather(storm)).broken}
    assert broken == {}
