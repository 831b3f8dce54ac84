"""What running jobs are measured to send: counted on links in the place of what they declare, and learned by name."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from koala.core.state.network import learned_traffic
from koala.core.state.network.learned_traffic import LEARNED_FORGOTTEN_S, LEARNED_JOBS_MAX, LearnedTraffic
from koala.model.api import TrafficInfo
from koala.model.facts import JobPlaced
from koala.model.grid import Network
from koala.model.messages import Outcome, Tick, TrafficMeasured
from koala.model.request import Communication, Component, Flexibility, JobType, Request
from tests.support.core_driver import CoreDriver, ask, assert_clean, make_grid, part
from tests.support.core_records import records_of, scheduler_of

MBIT = 1_000_000
SITES = {"a": 10, "b": 10, "c": 10}
NETWORK = Network(uplink_mbit_s=100.0)
TALK = Communication(bisection_mbit_s=40.0)


def make_driver() -> CoreDriver:
    return CoreDriver(SITES, network=NETWORK, scan_interval_s=0.0)


def halves(name: str = "solver", communication: Communication | None = TALK, **fields: Any) -> Request:
    """Four processors here and four there, which exchange the bisection bandwidth."""
    return ask(part(4, "a"), part(4, "b"), name=name, communication=communication, **fields)


def measure(driver: CoreDriver, token: str, mbit_s: float, *, after_s: float = 2.0, **fields: Any) -> None:
    bit_s = mbit_s * MBIT
    driver.send(
        TrafficMeasured(
            at=driver.now, token=token, elapsed_s=after_s, **{"sent_bit_s": bit_s, "received_bit_s": bit_s} | fields
        )
    )


def on_links(driver: CoreDriver) -> list[float]:
    return [round(bit_s / MBIT, 3) for bit_s in driver.ledger.sites.view.link_demand_bit_s]


def traffic(driver: CoreDriver, job: int) -> TrafficInfo:
    found = driver.scheduler.explain(job)
    assert found is not None
    assert found.traffic is not None
    assert found.traffic == driver.scheduler.traffic(job)
    return found.traffic


def test_a_running_job_loads_links_by_what_is_measured() -> None:
    driver = make_driver()
    first, second = driver.run(halves())
    assert on_links(driver) == [40.0, 40.0, 0.0]
    measure(driver, first, 10.0)
    assert on_links(driver) == [10.0, 10.0, 0.0]
    measure(driver, second, 14.0)
    assert on_links(driver) == [12.0, 12.0, 0.0]
    told = traffic(driver, 1)
    assert (told.declared_mbit_s, told.measured_mbit_s, told.believed_mbit_s) == (80.0, 24.0, 24.0)
    assert (told.belief, told.unmeasured) == ("measured", [])
    driver.end(first, second)
    assert_clean(driver.ledger)


def test_the_larger_direction_counts() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    measure(driver, tokens[0], 10.0, received_bit_s=30.0 * MBIT)
    assert on_links(driver) == [30.0, 30.0, 0.0]


def test_a_job_that_declares_nothing_loads_links_once_it_is_measured() -> None:
    driver = make_driver()
    tokens = driver.run(halves(communication=None))
    assert on_links(driver) == [0.0, 0.0, 0.0]
    assert traffic(driver, 1).belief == "unknown"
    measure(driver, tokens[0], 25.0)
    assert on_links(driver) == [25.0, 25.0, 0.0]
    told = traffic(driver, 1)
    assert (told.declared_mbit_s, told.believed_mbit_s) == (None, 50.0)


def test_a_late_report_or_one_that_comes_twice_changes_nothing() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    measure(driver, tokens[0], 10.0, after_s=8.0)
    measure(driver, tokens[0], 20.0, after_s=4.0)
    measure(driver, tokens[0], 20.0, after_s=8.0)
    assert on_links(driver) == [10.0, 10.0, 0.0]
    measure(driver, tokens[0], 20.0, after_s=16.0)
    assert on_links(driver) == [20.0, 20.0, 0.0]
    measure(driver, "99.1", 50.0)
    driver.end(*tokens)
    measure(driver, tokens[0], 50.0, after_s=32.0)
    assert_clean(driver.ledger)


def test_what_could_not_be_measured_is_said_and_what_was_declared_counts() -> None:
    driver = make_driver()
    tokens = driver.run(halves(job_type=JobType.MPI))
    measure(driver, tokens[0], 0.0, reason="ss is missing there")
    assert on_links(driver) == [40.0, 40.0, 0.0]
    told = traffic(driver, 1)
    assert (told.belief, told.measured_mbit_s) == ("declared", None)
    reasons = {each.site: each.reason for each in told.unmeasured}
    assert reasons == {"a": "ss is missing there", "b": "it has not reported yet"}
    measure(driver, tokens[1], 10.0)
    assert [each.site for each in traffic(driver, 1).unmeasured] == ["a"]


def test_jobs_of_any_type_are_measured() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    assert traffic(driver, 1).unmeasured[0].reason == "it has not reported yet"
    measure(driver, tokens[0], 10.0)
    measure(driver, tokens[1], 10.0)
    assert traffic(driver, 1).belief == "measured"


def test_on_a_full_link_no_less_is_believed_than_before() -> None:
    """Two jobs want 80 of 100 Mbit/s each, and get 50: neither sends less by itself."""
    driver = make_driver()
    loud = Communication(bisection_mbit_s=80.0)
    jobs = [driver.run(halves(communication=loud)), driver.run(halves(communication=loud))]
    for tokens in jobs:
        for token in tokens:
            measure(driver, token, 50.0)
    assert on_links(driver) == [160.0, 160.0, 0.0]
    told = traffic(driver, 1)
    assert (told.measured_mbit_s, told.believed_mbit_s) == (100.0, 160.0)
    for token in jobs[0]:  # both send less than the link would carry
        measure(driver, token, 20.0, after_s=4.0)
    measure(driver, jobs[1][0], 30.0, after_s=4.0)
    measure(driver, jobs[1][1], 30.0, after_s=4.0)
    assert on_links(driver)[0] < 80.0


def test_a_job_that_waits_for_links_is_placed_when_others_send_less_than_they_declare() -> None:
    driver = make_driver()
    loud = Communication(bisection_mbit_s=95.0)
    tokens = driver.run(halves(communication=loud))
    driver.submit(ask(part(8, "c")))
    total = Request(
        components=(Component(processors=10),),
        flexible=Flexibility(),
        policy="B1(lslt=0.9)",
        communication=Communication(bisection_mbit_s=10.0),
    )
    driver.submit(total)
    placed = [each.job for each in driver.all(JobPlaced)]
    assert 3 not in placed
    measure(driver, tokens[0], 5.0)
    measure(driver, tokens[1], 5.0)
    driver.settle()
    assert 3 in [each.job for each in driver.all(JobPlaced)]


# --------------------------------------------------------------------------------------- learned by name


def b5(name: str) -> Request:
    return Request(components=(Component(processors=14),), flexible=Flexibility(), policy="B5", name=name)


def test_what_one_job_of_a_name_sends_is_believed_of_the_next() -> None:
    driver = make_driver()
    tokens = driver.run(halves("solver", None))
    measure(driver, tokens[0], 25.0)
    driver.end(*tokens)
    driver.run(halves("solver", None))
    assert on_links(driver) == [25.0, 25.0, 0.0]
    assert traffic(driver, 2).belief == "learned"
    driver.run(ask(part(1, "a"), part(1, "b"), name="other"))
    assert on_links(driver) == [25.0, 25.0, 0.0]


def test_b5_goes_by_the_name_of_a_job_where_it_was_measured() -> None:
    """Of what a solver sends no link takes a part, with a reserve; heat sends next to nothing."""
    driver = make_driver()
    tokens = driver.run(halves("solver", None))
    measure(driver, tokens[0], 95.0)
    driver.end(*tokens)
    driver.run(halves("heat", None))
    measure(driver, driver.tokens(2)[0], 0.001)
    driver.end(*driver.tokens(2))
    view = driver.ledger.sites.view
    assert view.believed_bisection_bit_s("solver") == pytest.approx(95 * MBIT)
    assert view.believed_bisection_bit_s("heat") == pytest.approx(1_000)
    assert view.believed_bisection_bit_s("unheard") == view.observed_bisection_bit_s
    driver.submit(b5("solver"))
    driver.submit(b5("heat"))
    driver.settle()
    assert [each.job for each in driver.all(JobPlaced)] == [1, 2, 4]


def test_a_job_without_a_name_of_its_own_teaches_nothing() -> None:
    driver = make_driver()
    tokens = driver.run(halves("job", None))
    measure(driver, tokens[0], 25.0)
    assert driver.ledger.links.learned.applications == {}


def test_measured_jobs_make_up_the_mean_of_what_was_observed_each_once() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    view = driver.ledger.sites.view
    assert view.observed_bisection_bit_s == 40 * MBIT
    for count, mbit_s in enumerate((10.0, 20.0), start=1):
        for token in tokens:
            measure(driver, token, mbit_s, after_s=2.0**count)
    assert view.observed_bisection_bit_s == pytest.approx(20 * MBIT)
    assert driver.ledger.links.observations == 1


def test_only_the_last_jobs_of_a_name_count() -> None:
    learned = LearnedTraffic({})
    for job in range(LEARNED_JOBS_MAX + 2):
        learned.learn("solver", job, float(job), now=float(job))
    learned.learn("solver", LEARNED_JOBS_MAX + 1, 100.0, now=50.0)
    kept = [*map(float, range(2, LEARNED_JOBS_MAX + 1)), 100.0]
    assert learned.believed == {"solver": sum(kept) / len(kept)}


def test_the_name_that_was_measured_longest_ago_is_forgotten_first() -> None:
    learned = LearnedTraffic({})
    with mock.patch.object(learned_traffic, "APPLICATIONS_LEARNED_MAX", 2):
        for at, name in enumerate(("a", "b", "a", "c")):
            learned.learn(name, at, 1.0, now=float(at))
    assert list(learned.believed) == ["a", "c"]


def test_what_was_learned_is_forgotten_by_age() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    measure(driver, tokens[0], 10.0)
    driver.end(*tokens)
    assert "solver" in driver.ledger.sites.view.learned_bisection_bit_s
    driver.send(Tick(at=driver.now + LEARNED_FORGOTTEN_S))
    assert driver.ledger.sites.view.learned_bisection_bit_s == {}


def test_a_restart_remembers_what_was_measured_and_learned() -> None:
    driver = make_driver()
    tokens = driver.run(halves())
    measure(driver, tokens[0], 10.0)
    driver.run(halves("late", None))
    measure(driver, driver.tokens(2)[1], 0.0, reason="no ss")
    text = records_of(driver.scheduler)
    grid = make_grid(SITES, network=NETWORK, scan_interval_s=0.0)
    again = scheduler_of(grid, None, text)
    assert records_of(again) == text
    assert again.traffic(1) == driver.scheduler.traffic(1)
    assert again.traffic(2) == driver.scheduler.traffic(2)
    assert again.ledger.sites.view.learned_bisection_bit_s == {"solver": 10 * MBIT}
    assert again.ledger.sites.view.link_demand_bit_s == driver.ledger.sites.view.link_demand_bit_s


def test_a_run_that_failed_says_nothing_of_the_next_one() -> None:
    driver = make_driver()
    tokens = driver.run(halves(restarts_max=3))
    measure(driver, tokens[0], 10.0)
    driver.end(tokens[0], outcome=Outcome.SITE_FAILED)
    driver.end(tokens[1], outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.job(1).placement is None
    driver.pass_time(70.0)
    driver.ready(*driver.tokens(1))
    assert driver.job(1).placed.measured_bit_s is None
    assert driver.job(1).running.sent == {}
