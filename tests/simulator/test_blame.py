"""Whose fault a failure is, on drawn histories: bad sites are found within a few jobs, bad programs cost nobody."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from koala.core import Scheduler
from koala.model.facts import SiteDistrusted
from koala.model.grid import Grid, SchedulerParameters, Site, SiteFaults, SiteSimulation
from koala.model.messages import ComponentEnded, Outcome
from koala.model.request import Application, Component, Request
from koala.simulator.workloads.workload import Arrival, Workload
from koala.simulator.world.world import World

# A bad site is found within so many jobs that fail there, where some users run some programs each.
FOUND_WITHIN_JOBS = 12
NOWHERE = SiteFaults(bad_nodes=1_000)  # nothing runs there: exit code 127
FAILING = SiteFaults(application_failure=1.0)  # everything fails there in the end: exit code 1


def _grid(faults: Mapping[str, SiteFaults], processors: int = 8) -> Grid:
    return Grid(
        sites=tuple(
            Site(name=name, processors=processors, simulation=SiteSimulation(faults=each))
            for name, each in faults.items()
        ),
        scheduler=SchedulerParameters(scan_interval_s=0.0, restart_rest_s=1.0, cooldown_s=1e6, restarts_max=4),
    )


def _jobs(rng: random.Random, count: int, *, owners: int, bad: bool = False) -> list[Arrival]:
    """Jobs of drawn users and programs, long enough apart for each to be over when the next one comes."""
    return [
        Arrival(
            index * 1_000.0,
            Request(
                components=(
                    Component(processors=1, application=Application(executable=f"program-{rng.randint(1, 3)}")),
                )
            ),
            100.0,
            owner=f"user-{rng.randint(1, owners)}",
            breaks=rng.choice((1, 126, 127, 139)) if bad else 0,
        )
        for index in range(count)
    ]


def _history(grid: Grid, arrivals: list[Arrival], seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """How many runs failed at each site, and how many had when it lost its trust."""
    world, scheduler = World(grid, Workload.from_arrivals(arrivals), seed), Scheduler(grid)
    failed = dict.fromkeys((site.name for site in grid.sites), 0)
    lost: dict[str, int] = {}
    while (event := world.next(scheduler.due_at)) is not None:
        if isinstance(event, ComponentEnded) and event.outcome is Outcome.FAILED:
            failed[scheduler.ledger.names[scheduler.ledger.claims[event.token].site]] += 1
        for command in scheduler.handle(event).entries:
            world.perform(command, event.at)
            if isinstance(command, SiteDistrusted):
                lost[command.site] = failed[command.site]
        if len(scheduler.ledger.jobs) == 0 and world.submitted == len(arrivals):
            break
    return failed, lost


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "faults",
    [
        {"bad": NOWHERE, "good": SiteFaults(), "fine": SiteFaults()},
        {"bad": FAILING, "good": SiteFaults()},
        {"bad": NOWHERE, "worse": FAILING, "worst": NOWHERE, "good": SiteFaults()},
    ],
)
def test_bad_sites_are_found_within_a_few_jobs_and_do_not_hide_each_other(
    faults: dict[str, SiteFaults], seed: int
) -> None:
    _, lost = _history(_grid(faults), _jobs(random.Random(seed), 40, owners=3), seed)
    assert set(lost) == {name for name, each in faults.items() if each != SiteFaults()}
    assert max(lost.values()) <= FOUND_WITHIN_JOBS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("owners", [1, 4])
def test_bad_programs_cost_no_site_its_trust(owners: int, seed: int) -> None:
    grid = _grid(dict.fromkeys(("a", "b", "c"), SiteFaults()))
    rng = random.Random(seed)
    good, bad = _jobs(rng, 20, owners=owners), _jobs(rng, 20, owners=owners, bad=True)
    # Bad programs have names of their own: the same one that is bad today and good tomorrow is a flaky one.
    bad = [
        each._replace(
            at_s=each.at_s + 500.0,
            request=Request(components=(Component(processors=1, application=Application(executable="bad")),)),
        )
        for each in bad
    ]
    failed, lost = _history(grid, sorted(good + bad), seed)
    assert sum(failed.values()) >= 20 * 3
    assert lost == {}


def test_a_sweep_of_one_program_that_one_site_lacks_does_not_take_the_site_out() -> None:
    arrivals = [each._replace(owner="ann") for each in _jobs(random.Random(0), 20, owners=1)]
    request = Request(components=(Component(processors=1, application=Application(executable="sweep")),))
    failed, lost = _history(
        _grid({"bad": NOWHERE, "good": SiteFaults()}), [each._replace(request=request) for each in arrivals], 0
    )
    assert failed["bad"] == 20
    assert lost == {}


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_touches_a_bad_node_fails_there_once_and_does_well_on_the_others(seed: int) -> None:
    """The bad one is the first, where all jobs go, or another, where none does."""
    grid = _grid({"half": SiteFaults(bad_nodes=1, node_processors=4)})
    failed, lost = _history(grid, _jobs(random.Random(1), 1, owners=1), seed)
    assert failed["half"] in (0, 1)
    assert lost == {}


def test_a_sweep_learns_of_a_bad_node_once() -> None:
    request = Request(components=(Component(processors=1, application=Application(executable="sweep")),))
    arrivals = [each._replace(owner="ann", request=request) for each in _jobs(random.Random(0), 3, owners=1)]
    grid = _grid({"half": SiteFaults(bad_nodes=1, node_processors=4)})
    assert {_history(grid, arrivals, seed)[0]["half"] for seed in range(8)} == {0, 1}
