"""Files on their way: shared, tried again elsewhere, given up, cancelled, and what is learnt of the links."""

from __future__ import annotations

from typing import Any

import pytest

from koala.core import JobState
from koala.core.state.network.predictors import TELLING_S
from koala.model.facts import JobEnded, JobPlaced, JobRequeued, OutputRegistered, TurnEntry
from koala.model.job_array import ArraySpec
from koala.model.messages import (
    AbortComponent,
    CancelTransfer,
    FileChanged,
    HoldAsked,
    JobOutcome,
    JobSubmitted,
    Outcome,
    OutputsCollected,
    StartTransfer,
)
from koala.model.outputs import JobOutput, MadeOutput
from koala.model.request import Component, InputFile, InputMode, Request
from tests.support.core_driver import (
    BYTES_PER_S,
    CoreDriver,
    ask,
    ask_total,
    assert_clean,
    assert_ledger_balances,
    kind,
    part,
    seconds,
)

SITES = {"a": 10, "b": 10, "store": 1, "spare": 1}


def files_driver(transfer_s: float = 100.0, *replicas: str, **parameters: Any) -> CoreDriver:
    return CoreDriver(SITES, files={"f": (transfer_s, replicas or ("store",))}, **parameters)


def test_a_transfer_starts_with_the_placement() -> None:
    driver = files_driver()
    (transfer,) = kind(driver.submit(ask(part(5, "a", "f"))), StartTransfer)
    assert (transfer.file, transfer.source, transfer.target) == ("f", "store", "a")
    assert (transfer.size_bytes, transfer.chunk) == (seconds(100.0), None)


def test_the_components_of_a_job_at_one_site_share_one_transfer() -> None:
    driver = files_driver()
    transfers = kind(driver.submit(ask(part(5, "a", "f"), part(5, "a", "f"), part(5, "b", "f"))), StartTransfer)
    assert [transfer.target for transfer in transfers] == ["a", "b"]


def test_jobs_at_one_site_share_one_transfer_and_the_second_waits_only_for_the_rest() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(60.0)
    assert kind(driver.submit(ask(part(5, "a", "f"))), StartTransfer) == []
    assert driver.job(2).start_estimate == 100.0
    assert driver.job(2).awaiting_claims.claim_at == 60.0 + 0.75 * 40.0


def test_a_job_that_finds_its_file_brought_already_claims_at_once() -> None:
    """waiting -> placed -> starting"""
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(60.0)
    driver.end_transfer("t1")
    driver.submit(ask(part(5, "a", "f")))
    assert driver.state(2) is JobState.STARTING


def test_a_transfer_is_cancelled_when_the_last_job_that_needs_it_leaves() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.submit(ask(part(5, "a", "f")))
    assert kind(driver.cancel(1), CancelTransfer) == []
    assert kind(driver.cancel(2), CancelTransfer) == [CancelTransfer(transfer="t1")]
    assert_clean(driver.ledger)


def test_what_a_transfer_brought_is_kept_until_the_job_ends_and_then_deleted() -> None:
    """placed -> starting -> running -> done"""
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(100.0)
    driver.end_transfer("t1")
    driver.ready("1.1")
    assert driver.all(CancelTransfer) == []
    assert kind(driver.end("1.1"), CancelTransfer) == [CancelTransfer(transfer="t1")]
    assert_clean(driver.ledger)


def test_chunks_are_brought_one_by_one_and_add_up_to_the_file() -> None:
    driver = files_driver(90.0)
    chunk = InputMode.CHUNK
    transfers = kind(driver.submit(ask(part(3, "a", "f", mode=chunk), part(6, "a", "f", mode=chunk))), StartTransfer)
    third = seconds(30.0)
    assert [(transfer.target, transfer.size_bytes, transfer.chunk) for transfer in transfers] == [
        ("a", third, (0, third)),
        ("a", 2 * third, (third, 2 * third)),
    ]
    assert driver.job(1).start_estimate == 90.0  # one after the other over the same link


def test_files_from_different_sources_come_side_by_side() -> None:
    driver = CoreDriver(
        {"a": 10, "one": 1, "two": 1}, files={"f": (90.0, ("one",)), "g": (60.0, ("two",)), "h": (20.0, ("two",))}
    )
    driver.submit(ask(part(3, "a", "f", "g", "h")))
    assert driver.job(1).start_estimate == 90.0


def test_a_chunk_is_not_shared_with_the_whole_file_of_another_job() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.submit(ask(part(5, "a", "f", mode=InputMode.CHUNK)))
    assert [transfer.chunk for transfer in driver.all(StartTransfer)] == [None, (0, seconds(100.0))]


def test_the_parts_of_a_flexible_job_get_their_share_of_a_chunked_file() -> None:
    driver = CoreDriver({"a": 6, "b": 3, "store": 1}, files={"f": (90.0, ("store",))})
    transfers = kind(driver.submit(ask_total(9, "f", mode=InputMode.CHUNK)), StartTransfer)
    assert [(transfer.target, transfer.size_bytes) for transfer in transfers] == [
        ("a", seconds(60.0)),
        ("b", seconds(30.0)),
    ]


# ---------------------------------------------------------------------------------- when a transfer breaks


def test_a_broken_transfer_is_tried_again_from_another_replica() -> None:
    driver = files_driver(100.0, "store", "spare")
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(10.0)
    (again,) = kind(driver.end_transfer("t1", ok=False, reason="disk full"), StartTransfer)
    assert (again.source, again.target, again.transfer) == ("spare", "a", "t2")
    assert driver.state(1) is JobState.PLACED
    driver.wait_until(100.0)
    driver.end_transfer("t2")
    driver.ready("1.1")
    assert driver.state(1) is JobState.RUNNING


def test_the_only_replica_is_tried_again_when_no_other_is_left() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    (again,) = kind(driver.end_transfer("t1", ok=False), StartTransfer)
    assert again.source == "store"


def test_after_the_limit_of_tries_every_job_that_needs_the_file_returns() -> None:
    """placed -> waiting"""
    driver = files_driver(transfer_tries_max=3)
    driver.submit(ask(part(5, "a", "f")))
    driver.submit(ask(part(5, "a", "f")))
    for transfer in ("t1", "t2"):
        assert kind(driver.end_transfer(transfer, ok=False), JobRequeued) == []
    commands = driver.end_transfer("t3", ok=False, reason="disk full")
    assert [record.job for record in kind(commands, JobRequeued)] == [1, 2]
    assert kind(commands, JobRequeued)[0].reason == "file f could not be brought to a: disk full"
    assert (driver.state(1), driver.state(2)) == (JobState.WAITING, JobState.WAITING)
    assert_ledger_balances(driver.ledger)


def test_tries_start_anew_with_the_next_placement() -> None:
    driver = files_driver(transfer_tries_max=1)
    driver.submit(ask(part(5, "a", "f")))
    driver.end_transfer("t1", ok=False)
    driver.wait_until(12.0)
    assert driver.state(1) is JobState.PLACED
    assert len(driver.transfers()) == 2


def test_a_file_that_breaks_when_the_components_are_at_the_barrier_aborts_them() -> None:
    """starting -> waiting"""
    driver = files_driver(transfer_tries_max=1)
    driver.submit(ask(part(5, "a", "f"), part(5, "b", "f")))
    driver.wait_until(76.0)
    driver.ready("1.1", "1.2")
    driver.end_transfer("t1", ok=False)
    assert driver.state(1) is JobState.WAITING
    driver.end("1.1", "1.2", outcome=Outcome.ABORTED)
    assert_ledger_balances(driver.ledger)


def test_a_file_whose_last_replica_is_forgotten_meanwhile_returns_the_job() -> None:
    """placed -> waiting"""
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.send(FileChanged(at=1.0, file="f", size_bytes=0, replicas=()))
    driver.end_transfer("t1", ok=False)
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)


def test_answers_about_old_transfers_change_nothing() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.end_transfer("t1", ok=False)
    assert driver.end_transfer("t1") == driver.end_transfer("t1", ok=False) == driver.end_transfer("t9") == []
    driver.end_transfer("t2")
    assert driver.end_transfer("t2", ok=False) == driver.end_transfer("t2") == []
    driver.wait_until(75.0)
    driver.ready("1.1")
    assert driver.state(1) is JobState.RUNNING


def test_a_transfer_that_takes_far_too_long_is_cancelled_and_tried_elsewhere() -> None:
    driver = files_driver(100.0, "store", "spare", transfer_patience=2.0, barrier_timeout_s=1000.0)
    driver.submit(ask(part(5, "a", "f")))
    assert kind(driver.wait_until(199.9), CancelTransfer) == []
    commands = driver.wait_until(200.0)
    assert kind(commands, CancelTransfer) == [CancelTransfer(transfer="t1")]
    assert [transfer.source for transfer in kind(commands, StartTransfer)] == ["spare"]


def test_no_transfer_is_overdue_before_the_answer_timeout() -> None:
    driver = files_driver(1.0, answer_timeout_s=60.0, transfer_patience=2.0)
    driver.submit(ask(part(5, "a", "f")))
    assert kind(driver.wait_until(59.9), CancelTransfer) == []
    assert len(kind(driver.wait_until(60.0), CancelTransfer)) == 1


# --------------------------------------------------------------------------------------- what is learnt


@pytest.mark.parametrize("took_s", [50.0, 200.0])
def test_an_observed_transfer_corrects_the_next_estimate_of_its_link_both_ways(took_s: float) -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(took_s)
    driver.end_transfer("t1")
    driver.cancel(1)
    driver.submit(ask(part(5, "a", "f")))
    believed = seconds(100.0) / took_s
    job = driver.job(2)
    assert job.placed_at is not None
    assert job.start_estimate is not None
    assert job.start_estimate - job.placed_at == pytest.approx(seconds(100.0) / believed)
    view = driver.ledger.sites.view
    a, store = view.index["a"], view.index["store"]
    assert view.bytes_per_s[a][store] == view.bytes_per_s[store][a] == pytest.approx(believed)
    assert view.bytes_per_s[view.index["b"]][store] == BYTES_PER_S


def test_a_tiny_transfer_says_nothing_of_the_bandwidth_however_long_it_took() -> None:
    driver = files_driver(340 / BYTES_PER_S)
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(5.0)
    driver.end_transfer("t1")
    view = driver.ledger.sites.view
    believed = view.bytes_per_s[view.index["store"]][view.index["a"]]
    assert believed == BYTES_PER_S


def test_a_transfer_that_was_soon_over_says_less_than_one_that_took_long() -> None:
    believed = []
    for took_s in (TELLING_S / 10, TELLING_S, 10 * TELLING_S):
        driver = files_driver(2 * took_s)  # the link is seen to be twice as fast as it is said to be
        driver.submit(ask(part(5, "a", "f")))
        driver.wait_until(took_s)
        driver.end_transfer("t1")
        view = driver.ledger.sites.view
        believed.append(view.bytes_per_s[view.index["store"]][view.index["a"]] / BYTES_PER_S)
    assert believed == [pytest.approx(1.1), pytest.approx(2.0), pytest.approx(2.0)]


def test_a_transfer_that_arrives_in_no_time_teaches_nothing() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.end_transfer("t1")
    view = driver.ledger.sites.view
    assert view.bytes_per_s[view.index["store"]][view.index["a"]] == BYTES_PER_S


# ------------------------------------------------------------------------------------- the catalogue


def test_a_job_whose_file_nobody_has_waits_until_a_replica_is_registered() -> None:
    """waiting -> placed"""
    driver = files_driver()
    driver.submit(ask(part(5, "a", "g")))
    assert driver.state(1) is JobState.WAITING
    driver.wait_until(5.0)
    driver.send(FileChanged(at=5.0, file="g", size_bytes=seconds(10.0), replicas=("b", "b", "elsewhere")))
    driver.wait_until(12.0)
    assert driver.job(1).start_estimate == 22.0
    assert [(transfer.source, transfer.target) for transfer in driver.all(StartTransfer)] == [("b", "a")]


def test_a_forgotten_file_places_nobody_any_more() -> None:
    driver = files_driver()
    driver.send(FileChanged(at=0.0, file="f", size_bytes=0, replicas=()))
    assert kind(driver.submit(ask(part(5, "a", "f"))), JobPlaced) == []


def test_a_new_replica_at_the_site_itself_makes_the_transfer_needless() -> None:
    driver = files_driver()
    driver.send(FileChanged(at=0.0, file="f", size_bytes=seconds(100.0), replicas=("store", "a")))
    assert kind(driver.submit(ask(part(5, "a", "f"))), StartTransfer) == []
    assert driver.state(1) is JobState.STARTING


def test_an_empty_file_takes_no_time_but_is_brought_all_the_same() -> None:
    """placed -> starting -> running"""
    driver = files_driver(0.0)
    commands = driver.submit(ask(part(5, "a", "f")))
    assert len(kind(commands, StartTransfer)) == 1
    driver.ready("1.1")
    assert driver.state(1) is JobState.STARTING
    driver.end_transfer("t1")
    assert driver.state(1) is JobState.RUNNING


def test_a_job_that_joins_a_late_transfer_does_not_take_it_for_there() -> None:
    driver = files_driver()
    driver.submit(ask(part(5, "a", "f")))
    driver.wait_until(130.0)
    driver.submit(ask(part(2, "a", "f")))
    assert driver.job(2).start_estimate == 160.0  # as late again as it is by now
    assert driver.state(2) is JobState.PLACED


OUT = "jobs/1/out"


def reading_out(**more: Any) -> Request:
    return ask(Component(processors=1, input_files=(InputFile(name=OUT),)), **more)


def forget_out(driver: CoreDriver) -> list[TurnEntry]:
    return driver.send(FileChanged(at=driver.now, file=OUT, size_bytes=7, replicas=(), by="anna")) + driver.settle()


def with_out() -> CoreDriver:
    """Job 1 is over, and what it made is at a."""
    driver = CoreDriver({"a": 2, "b": 2}, scan_interval_s=0.0)
    (token,) = driver.run(ask(Component(processors=1, outputs=(JobOutput(path="out"),), site="a")))
    driver.end(token)
    made = MadeOutput(path="out", size_bytes=7, checksum="0" * 64)
    driver.send(OutputsCollected(at=driver.now, job=1, token=token, outputs=(made,)))
    return driver


def test_jobs_that_wait_for_an_output_that_was_forgotten_end_and_name_it() -> None:
    """waiting -> cancelled, held -> cancelled"""
    driver = with_out()
    driver.run(ask(Component(processors=2), Component(processors=2)))
    driver.submit(reading_out())
    driver.submit(reading_out())
    driver.send(HoldAsked(at=driver.now, job=4))
    ended = {each.job: each for each in kind(forget_out(driver), JobEnded)}
    assert set(ended) == {3, 4}
    for each in ended.values():
        assert each.outcome is JobOutcome.CANCELLED
        assert OUT in each.reason
    assert not driver.ledger.readers
    told = driver.send(JobSubmitted(at=driver.now, job=5, request=reading_out()))
    assert [each.job for each in kind(told, JobEnded)] == [5]
    assert_ledger_balances(driver.ledger)


def test_a_job_with_places_loses_them_when_its_file_is_forgotten_before_it_starts() -> None:
    """starting -> waiting -> cancelled, and of a file that may come back starting -> waiting"""
    driver = with_out()
    driver.submit(reading_out())
    assert driver.state(2) is JobState.STARTING
    told = forget_out(driver)
    assert [each.reason for each in kind(told, JobRequeued)] == [f"file {OUT} was forgotten by anna"]
    assert [each.job for each in kind(told, JobEnded)] == [2]
    assert len(kind(told, AbortComponent)) == 1
    driver.send(FileChanged(at=driver.now, file="words", size_bytes=7, replicas=("a",)))
    driver.submit(ask(Component(processors=1, input_files=(InputFile(name="words"),), site="a")))
    assert driver.state(3) is JobState.STARTING
    told = driver.send(FileChanged(at=driver.now, file="words", size_bytes=7, replicas=()))
    driver.end(*(each.token for each in kind(told, AbortComponent)), outcome=Outcome.ABORTED)
    assert driver.state(3) is JobState.WAITING
    driver.send(FileChanged(at=driver.now, file="words", size_bytes=7, replicas=("b",)))
    driver.pass_time(60.0)
    assert driver.state(3) is not JobState.WAITING


def test_a_job_that_runs_goes_on_without_the_file_and_ends_when_it_would_have_to_start_again() -> None:
    """running -> running, running -> unwinding -> cancelled"""
    driver = with_out()
    tokens = driver.run(reading_out())
    assert forget_out(driver)[1:] == []
    assert driver.state(2) is JobState.RUNNING
    told = driver.end(*tokens, outcome=Outcome.FAILED) + driver.settle()
    assert [(each.job, each.outcome) for each in kind(told, JobEnded)] == [(2, JobOutcome.CANCELLED)]


def test_elements_of_an_array_whose_input_was_forgotten_end_as_they_are_made() -> None:
    driver = with_out()
    driver.submit(reading_out(array=ArraySpec(ranges=((0, 199, 1),))))
    started = [job for job in driver.ledger.jobs.values() if job.state is JobState.STARTING]
    assert started
    forget_out(driver)
    for _ in range(20):
        driver.settle()
    assert not driver.ledger.jobs
    assert not driver.ledger.readers
    assert_ledger_balances(driver.ledger)


def test_an_output_whose_time_is_over_stays_while_a_job_is_to_read_it() -> None:
    driver = with_out()
    (token,) = driver.run(reading_out())
    over = FileChanged(at=driver.now, file=OUT, size_bytes=7, replicas=(), time_is_over=True)
    driver.send(over)
    assert OUT in driver.ledger.sites.view.files
    driver.end(token)
    driver.send(over)
    assert OUT not in driver.ledger.sites.view.files


@pytest.mark.parametrize(("own_s", "grids_s", "kept_s"), [(None, None, None), (None, 9.0, 9.0), (5.0, 9.0, 5.0)])
def test_how_long_an_output_is_kept_is_what_its_job_says_or_else_the_grid(
    own_s: float | None, grids_s: float | None, kept_s: float | None
) -> None:
    driver = CoreDriver({"a": 2}, scan_interval_s=0.0, keep_outputs_for_s=grids_s)
    making = ask(Component(processors=1, outputs=(JobOutput(path="out"),)), keep_outputs_for_s=own_s)
    (token,) = driver.run(making)
    driver.end(token)
    made = MadeOutput(path="out", size_bytes=7, checksum="0" * 64)
    told = driver.send(OutputsCollected(at=driver.now, job=1, token=token, outputs=(made,)))
    (registered,) = kind(told, OutputRegistered)
    assert registered.kept_until == (None if kept_s is None else driver.now + kept_s)
