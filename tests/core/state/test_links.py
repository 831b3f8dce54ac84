"""What jobs ask of links: booked with their places, given back when they leave, and seen by those that wait."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState, Kind, Scheduler
from koala.model.facts import JobPlaced
from koala.model.grid import Network
from koala.model.messages import JobSubmitted, Outcome, StartComponent, Tick
from koala.model.request import Communication, Component, Flexibility, Request
from koala.simulator.torture.restarts import bodies_of, difference
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, make_grid, part
from tests.support.core_records import records_of, scheduler_of

MBIT = 1_000_000
SITES = {"a": 10, "b": 10, "c": 10}
NETWORK = Network(uplink_mbit_s=100.0)
TALK = Communication(bisection_mbit_s=100.0)


def make_driver() -> CoreDriver:
    return CoreDriver(SITES, network=NETWORK, scan_interval_s=0.0)


def total(processors: int, policy: str = "B1", home: str | None = None, mbit_s: float = 100.0) -> Request:
    """A total that talks all-to-all when it is divided."""
    return Request(
        components=(Component(processors=processors),),
        flexible=Flexibility(),
        policy=policy,
        home=home,
        communication=Communication(bisection_mbit_s=mbit_s),
    )


def on_links(driver: CoreDriver) -> list[int]:
    return driver.ledger.sites.view.link_demand_bit_s


def places(driver: CoreDriver, job: int) -> tuple[tuple[str, int], ...]:
    (placed,) = [each for each in driver.all(JobPlaced) if each.job == job]
    return placed.places


# -------------------------------------------------------------------------------------------- demand


def test_a_divided_job_loads_the_links_of_its_sites_from_its_placement_to_its_end() -> None:
    """The two halves of a job exchange its bisection bandwidth."""
    driver = make_driver()
    driver.submit(ask(part(4, "a"), part(4, "c"), communication=TALK))
    assert on_links(driver) == [100 * MBIT, 0, 100 * MBIT]
    tokens = driver.tokens(1)
    driver.ready(*tokens)
    assert on_links(driver) == [100 * MBIT, 0, 100 * MBIT]
    driver.end(tokens[0])
    assert on_links(driver) == [100 * MBIT, 0, 100 * MBIT]
    driver.end(tokens[1])
    assert_clean(driver.ledger)


def test_a_third_of_a_job_loads_its_link_with_what_leaves_it() -> None:
    """Of 9 processors that talk all-to-all, 3 exchange 3 * 6 / 8 of the bandwidth of one with the others."""
    driver = make_driver()
    driver.submit(
        ask(part(3, "a"), part(3, "b"), part(3, "c"), communication=Communication(per_processor_mbit_s=8.0))
    )
    assert on_links(driver) == [18 * MBIT] * 3


@pytest.mark.parametrize("request_", [ask(part(4, "a"), part(4, "b")), total(8), ask(8, communication=TALK)])
def test_a_job_that_says_nothing_or_stays_on_one_site_loads_nothing(request_: Request) -> None:
    driver = make_driver()
    driver.submit(request_)
    assert on_links(driver) == [0, 0, 0]


def test_two_components_on_one_site_do_not_load_its_link() -> None:
    driver = make_driver()
    driver.submit(ask(part(4, "a"), part(4, "a"), communication=TALK))
    assert on_links(driver) == [0, 0, 0]


def test_a_cancelled_job_and_one_that_goes_back_to_its_queue_give_their_bandwidth_back_at_once() -> None:
    driver = make_driver()
    for outcome in (None, Outcome.SITE_FAILED):
        tokens = driver.run(ask(part(4, "a"), part(4, "c"), communication=TALK))
        assert on_links(driver) != [0, 0, 0]
        if outcome is None:
            driver.cancel(1)
        else:
            driver.end(tokens[0], outcome=outcome)
        assert on_links(driver) == [0, 0, 0]
        assert_ledger_balances(driver.ledger)


def test_a_component_that_moves_before_it_is_claimed_takes_its_traffic_along() -> None:
    driver = CoreDriver(SITES, files={"f": (30.0, ("b",))}, network=NETWORK)
    driver.submit(ask(part(4, "a", "f"), 4, communication=TALK))
    assert places(driver, 1) == (("a", 4), ("b", 4))
    assert on_links(driver) == [100 * MBIT, 100 * MBIT, 0]
    driver.report("b", others=10)
    driver.pass_time(25.0)
    assert driver.job(1).places == (("a", 4), ("c", 4))
    assert on_links(driver) == [100 * MBIT, 0, 100 * MBIT]
    assert_ledger_balances(driver.ledger)


# -------------------------------------------------------------------------------------------- placing


def test_a_saturated_link_keeps_a_job_waiting_that_is_placed_when_the_link_is_free_again() -> None:
    driver = make_driver()
    first = driver.run(ask(part(4, "a"), part(4, "b"), communication=Communication(bisection_mbit_s=100.0)))
    driver.submit(total(14))  # needs more than one site, and two of three links are full
    assert not [each for each in driver.all(JobPlaced) if each.job == 2]
    driver.settle()
    driver.end(*first)
    commands = driver.settle()
    assert [each.job for each in kind(commands, JobPlaced)] == [2]
    assert places(driver, 2) == (("a", 10), ("b", 4))


def test_what_comes_free_on_links_counts_as_help_beside_what_comes_free_on_sites() -> None:
    driver = CoreDriver({"a": 1, "b": 1, "c": 10, "d": 10}, network=NETWORK, scan_interval_s=0.0)
    first = driver.run(ask(part(1, "a"), part(1, "c"), communication=TALK))
    driver.submit(total(14))
    before = driver.ledger.sites.generation
    driver.end(*first)
    assert driver.ledger.sites.gained_at == before + 3  # two sites, and the links
    assert [each.job for each in kind(driver.settle(), JobPlaced)] == [2]


def test_home_comes_first_then_the_tightest_site_then_a_division() -> None:
    driver = make_driver()
    driver.submit(total(6, home="b"))
    driver.submit(total(5, home="b"))
    driver.submit(total(5, home="c"))
    driver.submit(total(12, home="a"))
    assert [places(driver, job) for job in (1, 2, 3)] == [(("b", 6),), (("a", 5),), (("c", 5),)]
    assert sum(size for _, size in places(driver, 4)) == 12


def test_a_home_that_the_grid_does_not_have_fails_the_job_with_the_names_there_are() -> None:
    driver = make_driver()
    driver.submit(total(6, home="z"))
    assert "'z'" in driver.ended(1).reason
    assert "a, b, c" in driver.ended(1).reason


def test_a_refusal_tells_what_was_on_the_links_when_the_job_was_tried() -> None:
    driver = make_driver()
    first = driver.run(ask(part(4, "a"), part(4, "b"), communication=TALK))
    driver.submit(total(14))
    told = driver.scheduler.explain(2)
    assert told is not None
    assert told.refusal is not None
    driver.end(*first)  # the scan comes at the end of the instant: what was refused is still what it was
    assert on_links(driver) == [0, 0, 0]
    later = driver.scheduler.explain(2)
    assert later is not None
    assert later.refusal == told.refusal


# ------------------------------------------------------------------------------------- observations


def test_every_divided_job_that_starts_counts_once_in_the_observed_bandwidth() -> None:
    driver = make_driver()
    view = driver.ledger.sites.view
    driver.submit(total(12, mbit_s=40.0))
    assert view.observed_bisection_bit_s == pytest.approx(40 * MBIT)
    driver.submit(total(12, mbit_s=20.0))
    assert view.observed_bisection_bit_s == pytest.approx(30 * MBIT)
    driver.submit(total(2, mbit_s=80.0))
    assert view.observed_bisection_bit_s == pytest.approx(30 * MBIT)
    assert driver.ledger.links.observations == 2
    driver.ready(*driver.tokens(1))
    assert driver.ledger.links.observations == 2


def test_a_job_that_waits_for_files_is_observed_when_it_is_claimed() -> None:
    driver = CoreDriver(SITES, files={"f": (30.0, ("b",))}, network=NETWORK)
    driver.submit(ask(part(4, "a", "f"), part(4, "c", "f"), communication=TALK))
    assert on_links(driver) == [100 * MBIT, 0, 100 * MBIT]
    assert driver.ledger.links.observations == 0
    driver.pass_time(31.0)
    assert kind((command for _, command in driver.log), StartComponent)
    assert driver.ledger.links.observations == 1


# ---------------------------------------------------------------------------------------------- records


def restarted(driver: CoreDriver, network: Network | None = NETWORK) -> Scheduler:
    grid = make_grid(SITES, network=network, scan_interval_s=0.0)
    return scheduler_of(grid, None, records_of(driver.scheduler))


def test_a_restart_keeps_demands_observations_and_what_refused_jobs_saw() -> None:
    driver = make_driver()
    driver.run(ask(part(4, "a"), part(4, "b"), communication=TALK))
    driver.submit(total(14))
    again = restarted(driver)
    assert again.ledger.sites.view.link_demand_bit_s == on_links(driver)
    assert again.ledger.links.observations == 1
    assert again.ledger.sites.view.observed_bisection_bit_s == driver.ledger.sites.view.observed_bisection_bit_s
    assert again.explain(2) == driver.scheduler.explain(2)
    assert not difference(bodies_of(driver.scheduler), bodies_of(again), "before", "after")


def test_on_a_grid_with_other_links_the_demand_is_worked_out_anew_and_the_waiting_are_tried_again() -> None:
    driver = make_driver()
    driver.run(ask(part(4, "a"), part(4, "b"), communication=TALK))
    driver.submit(total(14))
    again = restarted(driver, Network(uplink_mbit_s=1_000.0))
    assert_ledger_balances(again.ledger)
    assert again.explain(2) is not None
    commands = [*again.handle(Tick(at=driver.now)).entries, *again.handle(Tick(at=driver.now)).entries]
    assert [each.job for each in kind(commands, JobPlaced)] == [2]


def test_a_job_that_saw_another_network_than_its_own_is_set_aside_and_the_others_go_on() -> None:
    driver = make_driver()
    driver.run(ask(part(4, "a"), part(4, "b"), communication=TALK))
    driver.submit(total(14))
    kept = records_of(driver.scheduler)
    job = msgspec.json.decode(kept.bodies[Kind.JOB, "2"])
    idle, load = job["phase"]["refused"]
    job["phase"]["refused"] = idle, load[1:]
    kept.bodies[Kind.JOB, "2"] = msgspec.json.encode(job)
    again = scheduler_of(driver.scheduler.grid, None, kept)
    assert [(each.job, each.problem) for each in again.damaged] == [(2, "it cannot be read: a try saw 2 of 3 links")]
    assert again.ledger.jobs[1].state is JobState.RUNNING
    assert again.explain(2) is not None


def test_a_request_that_communicates_goes_through_json_unchanged() -> None:
    event = JobSubmitted(at=0.0, job=1, request=total(5, home="a"))
    assert msgspec.json.decode(msgspec.json.encode(event), type=JobSubmitted) == event
