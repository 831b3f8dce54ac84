"""Jobs that save their state: they are asked before they are ended, and go on from what former runs left."""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState
from koala.core.state.checkpoints import CHECKPOINT_RUNS_MAX, work_lost_s
from koala.model.api import CheckpointInfo, SavedCheckpointInfo
from koala.model.checkpoint import Checkpoint, CheckpointSignal, CheckpointSource
from koala.model.messages import (
    AbortComponent,
    AskCheckpoint,
    CancelAsked,
    CheckpointBrought,
    Outcome,
    ReleaseBarrier,
    RestartAsked,
    SiteLost,
)
from koala.model.request import Request
from koala.words.standing import MEANING, meaning
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_clean, assert_ledger_balances, kind, part

SAVES = Checkpoint(signal=CheckpointSignal.USR1, grace_s=60.0)


def requeue(driver: CoreDriver, job: int = 1) -> None:
    driver.send(RestartAsked(at=driver.ledger.now, job=job))


def run_again(driver: CoreDriver, job: int = 1) -> ReleaseBarrier:
    """A job that runs is requeued, lets go, and starts again."""
    requeue(driver, job)
    driver.end(*driver.tokens(job), outcome=Outcome.ABORTED)
    driver.pass_time(30.0)
    driver.ready(*driver.tokens(job))
    return driver.all(ReleaseBarrier)[-1]


def test_a_requeued_job_is_asked_to_save_and_holds_its_processors_until_its_grace_is_over() -> None:
    """running -> unwinding -> waiting"""
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(4, 4, checkpoint=SAVES))
    requeue(driver)
    assert [each.token for each in driver.all(AskCheckpoint)] == tokens
    assert driver.all(AbortComponent) == []
    assert (driver.state(1), driver.idle("a")) == (JobState.UNWINDING, 2)
    driver.end(tokens[0], exit_code=0)
    assert kind(driver.wait_until(59.9), AbortComponent) == []
    assert driver.idle("a") == 6
    assert [each.token for each in kind(driver.wait_until(60.0), AbortComponent)] == [tokens[1]]
    driver.end(tokens[1], outcome=Outcome.ABORTED)
    assert_ledger_balances(driver.ledger)
    assert driver.job(1).failures == 0


def test_a_preempted_job_is_asked_to_save_and_the_claim_waits_for_it() -> None:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(10, "a", "f"), high=True))
    (token,) = driver.run(ask(part(10, "a"), checkpoint=SAVES))
    driver.wait_until(75.0)
    assert [each.token for each in driver.all(AskCheckpoint)] == [token]
    assert driver.state(1) is JobState.PLACED
    driver.wait_until(80.0)
    driver.end(token, exit_code=0)
    assert driver.state(1) is JobState.STARTING


@pytest.mark.parametrize("end", ["cancel", "failure"])
def test_a_job_that_is_cancelled_or_broken_is_not_asked(end: str) -> None:
    driver = CoreDriver({"a": 10})
    tokens = driver.run(ask(4, 4, checkpoint=SAVES))
    if end == "cancel":
        driver.send(CancelAsked(at=0.0, job=1))
    else:
        driver.end(tokens[0], outcome=Outcome.SITE_FAILED)
    assert driver.all(AskCheckpoint) == []
    assert driver.all(AbortComponent)


def test_a_job_before_its_barrier_and_one_without_grace_are_not_asked() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(4, checkpoint=SAVES))
    requeue(driver)
    driver.send(CancelAsked(at=0.0, job=1))
    driver.run(ask(4, checkpoint=Checkpoint(every_s=10.0)))
    requeue(driver, 2)
    assert driver.all(AskCheckpoint) == []


def test_each_component_goes_on_from_its_own_of_former_runs_the_last_first() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, restart_rest_s=0.0)
    first = driver.run(ask(4, 4, checkpoint=SAVES))
    assert driver.all(ReleaseBarrier)[-1].checkpoints == ((), ())
    sites = [name for name, _ in driver.job(1).places]
    run_again(driver)
    second = driver.tokens(1)
    release = run_again(driver)
    assert [[source.token for source in sources] for sources in release.checkpoints] == [
        [second[0], first[0]],
        [second[1], first[1]],
    ]
    assert release.checkpoints[0][-1] == CheckpointSource(site=sites[0], token=first[0])


@pytest.mark.parametrize(
    "request_",
    [ask(4, 4, checkpoint=Checkpoint(shared=True)), msgspec.structs.replace(ask_total(8), checkpoint=SAVES)],
)
def test_components_that_share_one_go_on_from_that_of_the_first(request_: Request) -> None:
    driver = CoreDriver({"a": 4, "b": 4}, restart_rest_s=0.0)
    first = driver.run(request_)
    release = run_again(driver)
    assert [sources[0].token for sources in release.checkpoints] == [first[0], first[0]]


def test_what_a_component_at_a_lost_site_is_writing_is_not_used() -> None:
    driver = CoreDriver({"a": 4, "b": 4}, restart_rest_s=0.0)
    driver.run(ask(4, checkpoint=SAVES))
    site = driver.job(1).places[0][0]
    driver.send(SiteLost(at=0.0, site=site))
    driver.pass_time(30.0)
    driver.ready(*driver.tokens(1))
    assert driver.all(ReleaseBarrier)[-1].checkpoints == ((),)
    assert driver.all(AskCheckpoint) == []


def test_no_more_runs_are_remembered_than_may_be() -> None:
    driver = CoreDriver({"a": 4}, restart_rest_s=0.0)
    driver.run(ask(4, checkpoint=SAVES))
    for _ in range(CHECKPOINT_RUNS_MAX + 3):
        release = run_again(driver)
    assert len(release.checkpoints[0]) == CHECKPOINT_RUNS_MAX - 1
    driver.end(*driver.tokens(1))
    assert_clean(driver.ledger)


def test_it_is_told_from_what_a_job_went_on_and_what_its_end_would_cost() -> None:
    driver = CoreDriver({"a": 4}, restart_rest_s=0.0)
    (first,) = driver.run(ask(4, checkpoint=Checkpoint(every_s=10.0)))
    driver.end(first, outcome=Outcome.SITE_FAILED)
    driver.pass_time(30.0)
    (second,) = driver.tokens(1)
    driver.ready(second)
    driver.send(CheckpointBrought(at=1.0, token=second, source="b", size_bytes=7, saved_by=first, saved_at=0.5))
    status = driver.scheduler.checkpoint(1, driver.ledger.now + 25.0)
    assert status == CheckpointInfo(
        saved=[SavedCheckpointInfo(component=0, run=1, site="b", size_bytes=7, saved_at=0.5)], work_lost_s=5.0
    )
    driver.send(CheckpointBrought(at=1.0, token=second, source="b", size_bytes=7, saved_by="unknown"))
    status = driver.scheduler.checkpoint(1, driver.ledger.now)
    assert status is not None
    assert status.saved[0].run == 0
    driver.end(second)
    told = driver.scheduler.explain(1)
    assert told is not None
    assert told.checkpoint is not None
    assert (told.checkpoint.saved, told.checkpoint.work_lost_s) == (status.saved, None)
    assert driver.scheduler.checkpoint(2, 0.0) is None


def test_a_job_that_still_saves_says_so() -> None:
    driver = CoreDriver({"a": 4, "b": 4})
    tokens = driver.run(ask(4, 4, checkpoint=SAVES))
    requeue(driver)
    assert driver.story(1)[-1].endswith("2 components are asked to save, and may run for 60 s more (grace)")
    driver.end(tokens[0], outcome=Outcome.DONE)
    told = driver.scheduler.explain(1)
    assert told is not None
    assert "has 60 s for it (grace); still saving: 1 of 2 components, on b" in meaning(told)
    driver.wait_until(driver.ledger.now + 61.0)
    told = driver.scheduler.explain(1)
    assert told is not None
    assert meaning(told) == MEANING[JobState.UNWINDING]


def test_the_story_tells_what_a_component_goes_on_from() -> None:
    driver = CoreDriver({"a": 4})
    (token,) = driver.run(ask(4, checkpoint=SAVES))
    driver.send(CheckpointBrought(at=1.0, token=token, source="b", size_bytes=1024, reason="c is gone"))
    assert driver.story(1)[-1].endswith(
        "component 0 continues from its checkpoint of 1024 bytes, made on b; c is gone"
    )
    driver.send(CheckpointBrought(at=1.0, token=token))
    assert driver.story(1)[-1].endswith("component 0 begins anew, without a checkpoint")


@pytest.mark.parametrize(
    ("checkpoint", "lost_s"),
    [
        (None, 95.0),
        (Checkpoint(), 95.0),
        (Checkpoint(every_s=30.0), 5.0),
        (SAVES, 0.0),
    ],
)
def test_the_work_that_a_job_would_lose_is_what_it_did_since_its_last_checkpoint(
    checkpoint: Checkpoint | None, lost_s: float
) -> None:
    driver = CoreDriver({"a": 4})
    driver.submit(ask(4, checkpoint=checkpoint))
    assert work_lost_s(driver.job(1), 0.0) == 0.0
    driver.ready(*driver.tokens(1))
    assert work_lost_s(driver.job(1), 95.0) == lost_s
