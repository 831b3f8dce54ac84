"""From the submission to the placement: tries, scans, limits, and the two queues.

Between scans nothing happens; what the tests count is what a scheduler that scanned at every turn would count.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core import JobState, Scheduler
from koala.core.state.queues.due import ScanClock
from koala.model.facts import JobEnded, JobPlaced
from koala.model.messages import JobOutcome, JobSubmitted, ReleaseBarrier, SiteReported, StartComponent, Tick
from koala.model.request import Request
from koala.policies import Catalogue, UnknownPolicyError
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_clean, kind, make_grid, part


def test_a_job_that_fits_is_placed_and_claimed_when_it_is_submitted() -> None:
    """waiting -> placed -> starting"""
    driver = CoreDriver({"a": 10, "b": 8})
    placed, *starts = driver.submit(ask(6, 5))
    assert placed == JobPlaced(job=1, places=(("a", 6), ("b", 5)))
    assert [msgspec.structs.astuple(start) for start in starts] == [
        (1, "1.1", "a", 6, 0, 0, 2, (), 0.0, 660.0, 1, (), None, None, None, ()),
        (1, "1.2", "b", 5, 1, 1, 2, (), 0.0, 660.0, 1, (), None, None, None, ()),
    ]
    assert kind(starts, StartComponent) == starts
    assert driver.state(1) is JobState.STARTING
    assert (driver.idle("a"), driver.idle("b")) == (4, 3)


def test_the_life_of_a_job_without_trouble() -> None:
    """waiting -> placed -> starting -> running -> done"""
    driver = CoreDriver({"a": 10, "b": 8})
    driver.submit(ask(6, 5))
    driver.wait_until(10.0)
    driver.ready("1.1")
    driver.wait_until(12.0)
    assert driver.ready("1.2") == [ReleaseBarrier(job=1, tokens=("1.1", "1.2"))]
    driver.wait_until(100.0)
    assert driver.end("1.2") == []
    driver.wait_until(110.0)
    assert driver.end("1.1") == [
        JobEnded(
            job=1,
            outcome=JobOutcome.DONE,
            reason="",
            submitted_at=0.0,
            placed_at=0.0,
            started_at=12.0,
            ended_at=110.0,
            first_start_estimate=0.0,
            last_start_estimate=0.0,
            places=(("a", 6), ("b", 5)),
            placement_tries=1,
            claiming_tries=1,
            runs=1,
            failures=0,
            preemptions=0,
            wasted_processor_s=132.0,  # 11 processors wait for 12 s
        )
    ]
    assert_clean(driver.ledger)


def test_the_parts_of_a_flexible_job_are_told_apart_by_their_part() -> None:
    driver = CoreDriver({"a": 18, "b": 15, "c": 12})
    starts = kind(driver.submit(ask_total(24)), StartComponent)
    assert [(start.site, start.processors, start.component, start.part, start.parts) for start in starts] == [
        ("a", 18, 0, 0, 2),
        ("b", 6, 0, 1, 2),
    ]


def test_a_failed_try_puts_the_job_at_the_tail_of_its_queue() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    for size in (5, 3, 4):
        assert kind(driver.submit(ask(size)), JobPlaced) == []
    assert [job.id for job in driver.ledger.low] == [2, 3, 4]
    assert all(driver.state(job) is JobState.WAITING for job in (2, 3, 4))


def test_a_waiting_job_is_tried_again_at_its_queues_next_scan_and_not_before() -> None:
    """Scans every 4 s in rounds of two high and one low: the low queue is scanned at 12, 24, 36."""
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(8))
    driver.submit(ask(5))
    driver.wait_until(13.0)
    driver.end(*tokens)
    assert kind(driver.wait_until(23.9), JobPlaced) == []
    assert kind(driver.wait_until(24.0), JobPlaced) == [JobPlaced(job=2, places=(("a", 5),))]
    assert driver.job(2).placed_at == 24.0


def test_a_newcomer_that_fits_passes_those_who_wait() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.submit(ask(5))
    assert kind(driver.submit(ask(2)), JobPlaced) == [JobPlaced(job=3, places=(("a", 2),))]


def test_the_high_queue_is_scanned_s_times_for_each_scan_of_the_low_one() -> None:
    """Every scan finds one processor more: which queue gets it shows whose turn it was."""
    driver = CoreDriver({"a": 20}, scan_interval_s=1.0, high_scans_per_low_scan=3)
    driver.report("a", others=20)
    for number in range(24):
        driver.submit(ask(1, high=number % 2 == 0))
    turns = []
    for second in range(1, 13):
        driver.wait_until(second - 0.5)
        driver.report("a", others=20 - second)
        placed = kind(driver.wait_until(float(second)), JobPlaced)
        turns += ["high" if driver.job(record.job).high else "low" for record in placed]
    assert turns == ["high", "high", "high", "low"] * 3


@pytest.mark.parametrize("scan_interval_s", [0.0, 4.0])
def test_when_both_queues_are_scanned_the_high_one_comes_first(scan_interval_s: float) -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=scan_interval_s)
    tokens = driver.run(ask(10))
    driver.submit(ask(10))
    driver.submit(ask(10, high=True))
    driver.end(*tokens)
    driver.wait_until(30.0)
    assert driver.state(3) is JobState.STARTING
    assert driver.state(2) is JobState.WAITING


# ---------------------------------------------------------------------------------------- counting tries


def test_tries_count_every_scan_that_was_due_also_those_that_were_left_out() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.wait_until(1.0)
    driver.submit(ask(5))
    driver.submit(ask(5, high=True))
    driver.send(Tick(at=25.0))
    low, high = driver.scheduler.explain(2), driver.scheduler.explain(3)
    assert low is not None
    assert high is not None
    assert low.placement_tries == 1 + len([12, 24])
    assert high.placement_tries == 1 + len([4, 8, 16, 20])


@settings(max_examples=60, deadline=None)
@given(
    interval_s=st.sampled_from([1.0, 0.1, 4.0]),
    high_scans=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["high", "low", "free", "fill"])), max_size=12),
)
def test_tries_are_those_of_a_scheduler_that_scans_at_every_turn(
    interval_s: float, high_scans: int, steps: list[tuple[int, str]]
) -> None:
    """Jobs of two sizes on one site whose other users come and go between the scans."""
    driver = CoreDriver({"a": 6}, scan_interval_s=interval_s, high_scans_per_low_scan=high_scans)
    clock = ScanClock(interval_s, high_scans)
    driver.report("a", others=6)
    entered: dict[int, int] = {}
    quarter = 0
    for gap, what in steps:
        quarter += gap
        driver.wait_until((quarter + 0.5) * interval_s / 4)
        if what in ("high", "low"):
            high = what == "high"
            driver.submit(ask(4, high=high))
            job = len(entered) + 1
            entered[job] = clock.count(high, driver.now)
        else:
            driver.report("a", others=3 if what == "free" else 6)
    for job, count in entered.items():
        explanation = driver.scheduler.explain(job)
        assert explanation is not None
        assert explanation.placement_tries == 1 + clock.count(driver.job(job).high, driver.now) - count


def test_tries_are_counted_up_to_the_scan_that_placed_the_job() -> None:
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(8))
    driver.submit(ask(5))
    driver.wait_until(25.0)
    driver.end(*tokens)
    driver.wait_until(36.0)
    driver.ready("2.1")
    driver.end("2.1")
    assert driver.ended(2).placement_tries == 1 + len([12, 24, 36])


def test_a_job_fails_when_its_tries_are_used_up() -> None:
    """waiting -> failed"""
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    driver.submit(ask(5, placement_tries_max=3))
    assert kind(driver.wait_until(23.0), JobEnded) == []
    (record,) = kind(driver.wait_until(24.0), JobEnded)
    assert (record.outcome, record.placement_tries, record.ended_at) == (JobOutcome.FAILED, 3, 24.0)
    assert record.reason == "no place was found in 3 tries"
    assert (record.placed_at, record.started_at, record.first_start_estimate, record.places) == (None, None, None, ())


def test_a_job_may_still_be_placed_by_its_last_try() -> None:
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(8))
    driver.submit(ask(5, placement_tries_max=3))
    driver.wait_until(23.0)
    driver.end(*tokens)
    assert kind(driver.wait_until(24.0), JobPlaced) == [JobPlaced(job=2, places=(("a", 5),))]


def test_one_try_means_now_or_never() -> None:
    driver = CoreDriver({"a": 10}, placement_tries_max=1)
    (record,) = kind(driver.submit(ask(11)), JobEnded)
    assert (record.outcome, record.placement_tries, record.reason) == (
        JobOutcome.FAILED,
        1,
        "no place was found in 1 try",
    )
    assert_clean(driver.ledger)


def test_a_jobs_own_limit_goes_before_the_grids() -> None:
    driver = CoreDriver({"a": 10}, placement_tries_max=1)
    driver.submit(ask(11, placement_tries_max=2))
    assert driver.state(1) is JobState.WAITING
    driver.wait_until(12.0)
    assert driver.ended(1).placement_tries == 2


def test_a_job_that_returns_in_the_instant_of_a_scan_has_that_scan_counted_as_a_try() -> None:
    """The claim is given up at 12, when the low queue is scanned for job 2 and job 1 finds a place on b.

    waiting -> placed -> waiting -> placed
    """
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (12.0, ("store",))})
    driver.report("b", others=10)
    driver.submit(ask(part(10, None, "f")))
    driver.report("a", others=10)
    driver.submit(ask(part(10, "a")))
    driver.wait_until(11.9)
    driver.report("b", others=0)
    assert kind(driver.wait_until(12.0), JobPlaced) == [JobPlaced(job=1, places=(("b", 10),))]
    assert driver.job(1).placement_tries == 2


def test_a_job_that_returns_in_the_instant_of_a_scan_is_tried_in_it_whoever_else_waits() -> None:
    """As above, but nobody else waits, so that no scan was planned at 12.

    waiting -> placed -> waiting -> placed
    """
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (12.0, ("store",))})
    driver.report("b", others=10)
    driver.submit(ask(part(10, None, "f")))
    driver.report("a", others=10)
    driver.wait_until(11.9)
    driver.report("b", others=0)
    assert kind(driver.wait_until(12.0), JobPlaced) == [JobPlaced(job=1, places=(("b", 10),))]


# ------------------------------------------------------------------------------------ scans at every event


def test_with_an_interval_of_0_a_waiting_job_is_tried_as_soon_as_something_could_help() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    tokens = driver.run(ask(8))
    driver.submit(ask(5))
    driver.wait_until(7.25)
    driver.end(*tokens)
    driver.settle()
    assert driver.job(2).placed_at == 7.25


def test_with_an_interval_of_0_nothing_else_counts_as_a_try() -> None:
    driver = CoreDriver({"a": 10, "b": 2}, scan_interval_s=0.0)
    tokens = driver.run(ask(8))
    driver.submit(ask(5))
    driver.wait_until(50.0)
    driver.report("a", others=1)
    driver.settle()
    driver.submit(ask(part(2, "b")))
    driver.send(Tick(at=60.0))
    driver.ready("3.1")
    driver.settle()
    assert explained_tries(driver, 2) == 1
    driver.report("a", others=0)
    driver.settle()
    assert explained_tries(driver, 2) == 2
    driver.end(*tokens)
    driver.settle()
    assert driver.job(2).placement_tries == 3


def test_with_an_interval_of_0_a_claim_by_another_job_is_no_try() -> None:
    """With placed processors held, the claim itself frees nothing."""
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (40.0, ("store",))}, scan_interval_s=0.0, hold_placed=True)
    driver.submit(ask(part(8, "a", "f")))
    driver.submit(ask(part(5, "a")))
    driver.wait_until(35.0)
    assert driver.state(1) is JobState.STARTING
    assert explained_tries(driver, 2) == 1


def explained_tries(driver: CoreDriver, job: int) -> int:
    explanation = driver.scheduler.explain(job)
    assert explanation is not None
    return explanation.placement_tries


MODEST = """
from koala.policies import policy

@policy("modest")
def modest(idle, sizes, left, chosen):
    if idle[0] > 5:
        return 0
    chosen[0] = 0
    left[0] -= sizes[0]
    return -1
"""


def test_a_scan_also_finds_the_job_that_fits_because_less_is_idle() -> None:
    """The policy refuses while six are idle and places while five are: a job that trying every one at every scan
    would place must not wait until more is idle."""
    catalogue = Catalogue.builtin()
    catalogue.add_from_source(MODEST, "modest.py")
    driver = CoreDriver({"a": 6}, catalogue=catalogue)
    driver.submit(ask(2, policy="modest"))
    assert driver.state(1) is JobState.WAITING
    driver.submit(ask(part(1, "a")))
    driver.wait_until(12.0)
    assert driver.state(1) is JobState.STARTING


# ------------------------------------------------------------------------------------------ wrong requests


@pytest.mark.parametrize(
    ("request_", "said"),
    [(ask(1, policy="best"), "best"), (ask(part(1, "nowhere")), "nowhere"), (ask(1, part(1, "aa")), "aa")],
)
def test_a_request_that_names_what_does_not_exist_fails_at_once(request_: Request, said: str) -> None:
    """waiting -> failed"""
    driver = CoreDriver({"a": 10})
    (record,) = kind(driver.submit(request_), JobEnded)
    assert record.outcome is JobOutcome.FAILED
    assert said in record.reason
    assert_clean(driver.ledger)


def test_a_policy_that_answers_wrongly_fails_the_job_and_not_the_scheduler() -> None:
    catalogue = Catalogue.builtin()
    catalogue.add_from_source(GREEDY, "greedy.py")
    driver = CoreDriver({"a": 4}, catalogue=catalogue)
    tokens = driver.run(ask(2))
    driver.submit(ask(3, policy="greedy"))
    assert driver.state(2) is JobState.WAITING
    driver.end(*tokens)
    driver.wait_until(12.0)
    record = driver.ended(2)
    assert (record.outcome, record.placement_tries) == (JobOutcome.FAILED, 2)
    assert "greedy" in record.reason
    assert_clean(driver.ledger)


GREEDY = """
from koala.policies import policy

@policy("greedy")
def greedy(idle, sizes, left, chosen):
    if idle[0] < 4:
        return 0
    chosen[0] = 99
    return -1
"""


def test_an_unknown_default_policy_is_refused_before_any_job() -> None:
    with pytest.raises(UnknownPolicyError):
        Scheduler(make_grid({"a": 1}, policy="best"))


def test_a_submission_that_comes_twice_is_one_job() -> None:
    driver = CoreDriver({"a": 10})
    event = JobSubmitted(at=0.0, job=1, request=ask(3))
    assert len(kind(driver.send(event), StartComponent)) == 1
    assert driver.send(event) == []
    driver.ready("1.1")
    driver.end("1.1")
    assert driver.send(event) == []


def test_reports_of_sites_that_the_grid_does_not_have_change_nothing() -> None:
    driver = CoreDriver({"a": 10})
    assert driver.send(SiteReported(at=0.0, site="z", processors=5, others=1)) == []
    assert driver.idle("a") == 10


def test_with_an_interval_of_0_the_tries_of_a_job_do_not_depend_on_who_else_waits() -> None:
    outcomes = []
    for company in (False, True):
        driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
        driver.report("a", others=10)
        driver.submit(ask(8, placement_tries_max=5))
        if company:
            driver.submit(ask(2))
        for idle in range(1, 5):
            driver.report("a", others=10 - idle)
            driver.settle()
        outcomes.append(driver.ended(1).reason)
    assert outcomes == ["no place was found in 5 tries"] * 2
