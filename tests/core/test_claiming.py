"""Incremental claiming: when a placed job is claimed, what a claiming try does, and when it is given up.

The file ``f`` is at ``store`` and takes 100 s to anywhere else, so a job that is placed at 0 has its start at 100.
"""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.core.running import START_REACHED_S
from koala.model.messages import (
    AbortComponent,
    CancelTransfer,
    JobEnded,
    JobOutcome,
    JobRequeued,
    Outcome,
    ReleaseBarrier,
    SiteDrained,
    StartComponent,
    StartTransfer,
)
from tests.support.core_driver import Desk, ask, assert_clean, assert_ledger_balances, kind, part, without_wakes


def claiming_desk(**parameters: Any) -> Desk:
    """Two sites of 10 processors and the store; only components that are pinned to it fit on the store."""
    return Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))}, **parameters)


def claiming_times(desk: Desk, job: int, until: float) -> list[float]:
    """Every claiming time (JCT) that the job is given up to then."""
    times = [desk.job(job).claim_at]
    while times[-1] < until:
        desk.wait_until(times[-1])
        if desk.state(job) not in (JobState.PLACED, JobState.CLAIMING):
            break
        times.append(desk.job(job).claim_at)
    return times


# ---------------------------------------------------------------------------------------- the timeline


def test_the_job_start_time_lies_one_longest_transfer_after_the_placement() -> None:
    """FTT is the largest of the components' estimates, and a component's files come one after the other."""
    desk = Desk(
        {"a": 10, "b": 10, "store": 1},
        files={"f": (40.0, ("store",)), "g": (30.0, ("store",)), "h": (50.0, ("store",))},
    )
    desk.wait_until(7.0)
    desk.submit(ask(part(5, "a", "f", "g"), part(5, "b", "h")))
    job = desk.job(1)
    assert (job.placed_at, job.start_estimate, job.first_start_estimate) == (7.0, 77.0, 77.0)
    assert job.claim_at == 7.0 + 0.75 * 70.0


def test_files_that_are_there_already_take_no_time_and_the_claim_is_made_at_once() -> None:
    """waiting -> placed -> starting"""
    desk = Desk({"a": 10, "store": 4}, files={"f": (100.0, ("store",))})
    commands = desk.submit(ask(part(4, "store", "f")))
    assert [start.site for start in kind(commands, StartComponent)] == ["store"]
    assert kind(commands, StartTransfer) == []
    assert desk.job(1).start_estimate == 0.0


def test_the_claim_waits_until_the_fraction_l_of_the_transfer_has_passed() -> None:
    """waiting -> placed -> starting"""
    desk = claiming_desk()
    assert kind(desk.submit(ask(part(10, "a", "f"))), StartComponent) == []
    assert desk.state(1) is JobState.PLACED
    assert kind(desk.wait_until(74.9), StartComponent) == []
    (start,) = kind(desk.wait_until(75.0), StartComponent)
    assert (start.site, start.processors) == ("a", 10)
    assert desk.state(1) is JobState.STARTING


def test_failed_claims_come_ever_closer_to_the_start_and_below_one_second_is_reached() -> None:
    desk = claiming_desk()
    desk.submit(ask(part(10, "a", "f")))
    desk.report("a", others=1)
    desk.report("b", others=1)
    assert claiming_times(desk, 1, 100.0) == [75.0, 93.75, 98.4375, 100.0]
    assert 100.0 - (98.4375 + 0.75 * (100.0 - 98.4375)) < START_REACHED_S < 100.0 - 98.4375
    desk.wait_until(100.0)
    assert desk.state(1) is JobState.WAITING


def test_at_the_job_start_time_started_components_are_aborted_and_the_job_returns() -> None:
    """waiting -> placed -> claiming -> waiting"""
    desk = claiming_desk()
    desk.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    desk.report("b", others=1)
    desk.wait_until(75.0)
    assert desk.state(1) is JobState.CLAIMING
    assert desk.tokens(1) == ["1.1"]
    desk.ready("1.1")
    assert kind(desk.wait_until(99.9), JobRequeued) == []
    commands = desk.wait_until(100.0)
    assert [(abort.site, abort.token) for abort in kind(commands, AbortComponent)] == [("a", "1.1")]
    (requeued,) = kind(commands, JobRequeued)
    assert requeued.reason == "1 of 2 components unclaimed at the job start time"
    assert {cancel.transfer for cancel in kind(commands, CancelTransfer)} == set(desk.transfers())
    assert desk.state(1) is JobState.WAITING
    assert [job.id for job in desk.ledger.low] == [1]
    assert_ledger_balances(desk.ledger)


def test_each_return_lowers_l_down_to_its_floor_and_the_next_claim_uses_it() -> None:
    """placed -> waiting, again and again"""
    desk = claiming_desk(scan_interval_s=0.0)
    desk.submit(ask(part(10, "a", "f")))
    fractions = []
    for _ in range(6):
        job = desk.job(1)
        assert job.placed_at == desk.now
        fractions.append((job.claim_at - desk.now) / 100.0)
        desk.report("a", others=1)
        desk.wait_until(desk.now + 100.0)
        assert desk.state(1) is JobState.WAITING
        desk.report("a", others=0)
        desk.settle()
    assert fractions == pytest.approx([0.75, 0.625, 0.5, 0.375, 0.25, 0.25])


def test_the_start_delay_is_told_by_the_first_and_the_last_job_start_time() -> None:
    """placed -> waiting -> placed -> starting -> running -> done"""
    desk = claiming_desk()
    desk.submit(ask(part(10, "a", "f")))
    desk.report("a", others=1)
    desk.wait_until(101.0)
    desk.report("a", others=0)
    desk.wait_until(108.0)
    assert desk.job(1).claim_at == 108.0 + 0.625 * 100.0
    desk.wait_until(208.0)
    desk.bring(desk.transfers()[-1])
    desk.ready(*desk.tokens(1))
    desk.wait_until(300.0)
    desk.end(*desk.tokens(1))
    record = desk.ended(1)
    assert (record.first_start_estimate, record.last_start_estimate) == (100.0, 208.0)
    assert (record.placed_at, record.started_at, record.ended_at) == (108.0, 208.0, 300.0)
    assert (record.placement_tries, record.claiming_tries) == (2, 5)
    assert_clean(desk.ledger)


def test_a_preset_fraction_step_and_floor_are_used() -> None:
    desk = claiming_desk(claim_fraction=0.5, claim_fraction_step=0.2, claim_fraction_min=0.45)
    desk.submit(ask(part(10, "a", "f")))
    assert desk.job(1).claim_at == 50.0
    desk.report("a", others=1)
    desk.wait_until(101.0)
    desk.report("a", others=0)
    desk.wait_until(108.0)
    assert desk.job(1).claim_at == pytest.approx(108.0 + 45.0)


# -------------------------------------------------------------------------------------------- limits


def test_claiming_tries_used_up_fail_the_job() -> None:
    """placed -> failed"""
    desk = claiming_desk()
    desk.submit(ask(part(10, "a", "f"), claiming_tries_max=2))
    desk.report("a", others=1)
    assert kind(desk.wait_until(98.0), JobEnded) == []
    (record,) = kind(desk.wait_until(99.0), JobEnded)
    assert (record.outcome, record.claiming_tries) == (JobOutcome.FAILED, 2)
    assert record.reason == "not all components could be claimed in 2 tries"
    assert_clean(desk.ledger)


def test_claiming_tries_are_limited_also_where_no_file_has_to_be_brought() -> None:
    """starting -> waiting -> starting -> waiting -> ... -> failed"""
    desk = Desk({"a": 10}, scan_interval_s=0.0, error_threshold=100)
    desk.submit(ask(10, claiming_tries_max=2))
    for _ in range(4):
        desk.pass_time(1.0)
        if 1 in desk.ledger.jobs:
            desk.end(*desk.tokens(1), outcome=Outcome.REFUSED)
            desk.settle()
    assert 1 not in desk.ledger.jobs
    assert (desk.ended(1).outcome, desk.ended(1).claiming_tries) == (JobOutcome.FAILED, 2)


def test_an_atomic_claim_starts_nothing_while_one_component_cannot_start() -> None:
    """waiting -> placed -> starting"""
    desk = claiming_desk(claim_threshold=1.0)
    desk.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    desk.report("b", others=1)
    assert kind(desk.wait_until(93.0), StartComponent) == []
    assert desk.state(1) is JobState.PLACED
    desk.report("b", others=0)
    assert [start.site for start in kind(desk.wait_until(93.75), StartComponent)] == ["b", "a"]
    assert desk.state(1) is JobState.STARTING


@pytest.mark.parametrize(("threshold", "claimed"), [(0.5, 1), (0.51, 0)])
def test_a_claim_goes_on_when_the_fraction_of_startable_components_reaches_t(threshold: float, claimed: int) -> None:
    desk = claiming_desk(claim_threshold=threshold)
    desk.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    desk.report("b", others=1)
    desk.wait_until(75.0)
    assert len(desk.tokens(1)) == claimed


def test_components_that_were_claimed_before_count_towards_t() -> None:
    """placed -> claiming, and the second claim finds 1 of 2 started already"""
    desk = claiming_desk(claim_threshold=0.5)
    desk.submit(ask(part(6, "a", "f"), part(10, "b", "f")))
    desk.report("b", others=1)
    desk.wait_until(75.0)
    desk.report("a", others=10)
    desk.report("b", others=0)
    desk.wait_until(93.75)
    assert desk.state(1) is JobState.STARTING


# --------------------------------------------------------------------------------- competing claims


def test_placed_processors_are_not_held_by_default_so_another_job_may_take_them() -> None:
    desk = claiming_desk()
    desk.submit(ask(part(10, "a", "f")))
    assert desk.idle("a") == 10
    desk.submit(ask(part(10, "a")))
    assert desk.state(2) is JobState.STARTING


def test_placed_processors_are_held_when_the_grid_says_so() -> None:
    desk = claiming_desk(hold_placed=True)
    desk.submit(ask(part(8, "a", "f")))
    assert desk.idle("a") == 2
    desk.submit(ask(part(3, "a")))
    assert desk.state(2) is JobState.WAITING
    desk.wait_until(75.0)
    assert desk.state(1) is JobState.STARTING
    assert_ledger_balances(desk.ledger)


# -------------------------------------------------------------------------------------- re-placement


def replacement_desk(**parameters: Any) -> Desk:
    """The file is at ``far`` and at ``near``, which has room for the component."""
    return Desk({"a": 10, "far": 1, "near": 10}, files={"f": (100.0, ("far", "near"))}, **parameters)


def test_a_component_that_cannot_start_moves_where_its_file_can_be_in_time() -> None:
    """waiting -> placed -> starting: at 75 only the site that has the file can have it before 100"""
    desk = replacement_desk()
    desk.report("near", others=10)
    desk.submit(ask(part(10, None, "f")))
    assert desk.job(1).places == (("a", 10),)
    desk.report("a", others=10)
    desk.report("near", others=0)
    commands = desk.wait_until(75.0)
    assert [start.site for start in kind(commands, StartComponent)] == ["near"]
    assert [cancel.transfer for cancel in kind(commands, CancelTransfer)] == desk.transfers()
    assert desk.job(1).start_estimate == 100.0
    assert_ledger_balances(desk.ledger)
    assert kind(desk.ready(*desk.tokens(1)), ReleaseBarrier) != []


def test_a_component_stays_where_no_other_transfer_would_end_before_the_start() -> None:
    desk = Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    desk.report("b", others=10)
    desk.submit(ask(part(10, None, "f")))
    desk.report("a", others=10)
    desk.report("b", others=0)
    assert kind(desk.wait_until(99.0), StartComponent) == []
    assert desk.job(1).places == (("a", 10),)


def test_the_transfer_of_a_moved_component_starts_at_once_and_the_old_one_is_cancelled() -> None:
    """Two components: the one with the long file sets the start at 100, the other's short file can still move."""
    desk = Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",)), "g": (20.0, ("store",))})
    desk.submit(ask(part(4, "a", "f"), part(6, None, "g")))
    assert desk.job(1).places == (("a", 4), ("b", 6))
    desk.report("b", others=10)
    commands = desk.wait_until(75.0)
    (moved,) = kind(commands, StartTransfer)
    assert (moved.file, moved.source, moved.target) == ("g", "store", "a")
    (cancelled,) = kind(commands, CancelTransfer)
    assert cancelled.transfer == next(each.transfer for each in desk.all(StartTransfer) if each.target == "b")
    assert {start.site for start in kind(commands, StartComponent)} == {"a"}
    desk.wait_until(95.0)
    desk.ready(*desk.tokens(1))
    desk.bring(moved.transfer)
    assert desk.state(1) is JobState.STARTING
    desk.bring(desk.transfers()[0])
    assert desk.state(1) is JobState.RUNNING
    assert_ledger_balances(desk.ledger)


def test_a_transfer_that_another_component_still_needs_is_not_cancelled_by_a_move() -> None:
    desk = Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",)), "g": (20.0, ("store",))})
    desk.submit(ask(part(8, "a", "f"), part(5, "b", "g"), part(5, None, "g")))
    assert [site for site, _ in desk.job(1).places] == ["a", "b", "b"]
    desk.report("a", others=2, processors=15)
    desk.report("b", others=5)
    commands = desk.wait_until(75.0)
    assert [each.target for each in kind(commands, StartTransfer)] == ["a"]
    assert kind(commands, CancelTransfer) == []
    assert_ledger_balances(desk.ledger)


def test_a_component_whose_site_the_user_chose_is_not_moved() -> None:
    desk = replacement_desk()
    desk.submit(ask(part(10, "a", "f")))
    desk.report("a", others=10)
    assert kind(desk.wait_until(99.0), StartComponent) == []
    assert desk.job(1).places == (("a", 10),)


def test_the_components_of_one_claim_do_not_take_the_same_processors_twice() -> None:
    """Two components are stuck and one site has room for one of them only."""
    desk = Desk({"a": 12, "far": 1, "near": 6}, files={"f": (100.0, ("far", "near"))})
    desk.report("near", others=6)
    desk.submit(ask(part(6, None, "f"), part(6, None, "f")))
    desk.report("a", others=12)
    desk.report("near", others=0)
    assert [start.site for start in kind(desk.wait_until(75.0), StartComponent)] == ["near"]
    assert desk.state(1) is JobState.CLAIMING
    assert_ledger_balances(desk.ledger)


# ------------------------------------------------------------------------- sites that do not take part


@pytest.mark.parametrize("hold_placed", [False, True])
def test_nothing_is_claimed_on_a_site_that_was_drained_after_the_placement(hold_placed: bool) -> None:
    """An operator's word holds for placed jobs too: nothing new goes there."""
    desk = claiming_desk(hold_placed=hold_placed)
    desk.submit(ask(part(10, "a", "f")))
    desk.send(SiteDrained(at=1.0, site="a"))
    assert kind(desk.wait_until(99.0), StartComponent) == []
    desk.wait_until(100.0)
    assert desk.state(1) is JobState.WAITING


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT])
def test_a_component_that_its_site_did_not_take_is_claimed_again_while_there_is_time(outcome: Outcome) -> None:
    """placed -> starting -> claiming -> starting"""
    desk = claiming_desk()
    desk.submit(ask(part(6, "a", "f"), part(6, "b", "f")))
    desk.wait_until(76.0)
    assert without_wakes(desk.end("1.2", outcome=outcome)) == []
    assert desk.state(1) is JobState.CLAIMING
    assert desk.job(1).claim_at == 76.0 + 0.75 * 24.0
    assert_ledger_balances(desk.ledger)
    (start,) = kind(desk.wait_until(94.0), StartComponent)
    assert (start.site, start.part, start.token) == ("b", 1, "1.3")
    assert desk.state(1) is JobState.STARTING
    assert desk.job(1).claim_fraction == 0.75


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT])
def test_after_the_job_start_time_a_component_that_was_not_taken_returns_the_job(outcome: Outcome) -> None:
    """starting -> waiting"""
    desk = claiming_desk()
    desk.submit(ask(part(6, "a", "f"), part(6, "b", "f")))
    desk.wait_until(101.0)
    commands = desk.end("1.2", outcome=outcome, reason="no queue for you")
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1"]
    (requeued,) = kind(commands, JobRequeued)
    assert "no queue for you" in requeued.reason
    assert desk.state(1) is JobState.WAITING
    assert_ledger_balances(desk.ledger)


def test_claims_that_succeeded_do_not_count_against_the_limit() -> None:
    """running -> unwinding -> waiting -> placed -> starting"""
    desk = Desk({"a": 10}, scan_interval_s=0.0)
    desk.run(ask(10, claiming_tries_max=1))
    desk.pass_time(50.0)
    desk.end(*desk.tokens(1), outcome=Outcome.SITE_FAILED)
    desk.settle()
    assert desk.state(1) is JobState.STARTING


def test_a_job_out_of_claiming_tries_fails_at_once_and_not_at_its_next_placement() -> None:
    """placed -> failed"""
    desk = claiming_desk()
    desk.submit(ask(part(10, "a", "f"), claiming_tries_max=1))
    desk.report("a", others=1)
    desk.wait_until(100.0)
    assert desk.ended(1).reason == "not all components could be claimed in 1 try"


def test_a_component_moves_to_a_site_where_the_jobs_own_transfer_has_brought_its_file() -> None:
    """placed -> claiming -> starting"""
    desk = Desk({"a": 20, "b": 16, "store": 1}, files={"f": (100.0, ("store",))})
    desk.submit(ask(part(5, "a", "f"), part(10, None, "f")))
    assert desk.job(1).places == (("a", 5), ("b", 10))
    desk.report("b", others=16)
    desk.bring(desk.transfers()[0])
    desk.wait_until(75.0)
    assert desk.job(1).places == (("a", 5), ("a", 10))
    assert desk.state(1) is JobState.STARTING
