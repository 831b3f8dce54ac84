"""Processor time gained by claiming late (PGT) and wasted before the start (PWT), and GPU time used, counted by job
and by site.

The file ``f`` is at ``store`` and takes 100 s to anywhere else: a job that is placed at 0 is claimed at 75.
"""

from __future__ import annotations

import msgspec
import pytest

from koala.core import JobState
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.facts import JobEnded
from koala.model.messages import (
    AbortComponent,
    CancelAsked,
    Outcome,
    RestartAsked,
    SiteLost,
    SiteReported,
    SiteSilent,
    StartComponent,
    StartTransfer,
)
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds
from koala.model.request import Application, Component, Request
from tests.support.core_driver import CoreDriver, ask, kind, part


def claiming_driver() -> CoreDriver:
    return CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})


def counted(driver: CoreDriver, site: str) -> tuple[float, float]:
    belief = driver.ledger.sites.sites[driver.ledger.index[site]]
    return belief.gained_processor_s, belief.wasted_processor_s


def of_job(driver: CoreDriver, job: int = 1) -> tuple[float, float]:
    return driver.job(job).gained_processor_s, driver.job(job).wasted_processor_s


def test_what_is_held_late_is_gained_and_what_waits_at_the_barrier_is_wasted() -> None:
    """The example of the pages: 10 processors that are claimed at 75 s and start at 100 s."""
    driver = claiming_driver()
    (transfer,) = kind(driver.submit(ask(part(10, "a", "f"))), StartTransfer)
    (start,) = kind(driver.wait_until(75.0), StartComponent)
    driver.ready(start.token)
    driver.wait_until(100.0)
    assert of_job(driver) == (0.0, 0.0)  # counted when the wait is over
    driver.end_transfer(transfer.transfer)
    assert driver.state(1) is JobState.RUNNING
    assert of_job(driver) == counted(driver, "a") == (750.0, 250.0)
    driver.wait_until(500.0)
    (ended,) = kind(driver.end(start.token), JobEnded)
    assert (ended.gained_processor_s, ended.wasted_processor_s) == (750.0, 250.0)
    assert driver.scheduler.explain(1).gained_processor_s == 750.0  # type: ignore[union-attr]


def test_a_component_that_waits_in_its_sites_own_queue_holds_nothing_yet() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, queue_patience_s=None)
    first, second = (start.token for start in kind(driver.submit(ask(4, 6)), StartComponent))
    driver.accept(first)
    driver.wait_until(20.0)
    driver.starting(first)
    driver.wait_until(23.0)
    driver.ready(first)
    driver.ready(second)
    assert of_job(driver) == (6 * 20.0, 6 * 3.0 + 4 * 23.0) or of_job(driver) == (4 * 20.0, 4 * 3.0 + 6 * 23.0)


def test_a_claim_that_is_given_up_wastes_what_it_held_until_then() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, barrier_timeout_s=60.0)
    first, _ = (start.token for start in kind(driver.submit(ask(part(4, "a"), part(6, "b"))), StartComponent))
    driver.ready(first)
    driver.wait_until(60.0)
    assert driver.job(1).runs == 0
    assert counted(driver, "a") == (0.0, 240.0)
    assert counted(driver, "b") == (0.0, 360.0)
    driver.end(first, outcome=Outcome.ABORTED)
    assert counted(driver, "a") == (0.0, 240.0)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ABSENT, Outcome.UNSUITABLE])
def test_what_a_site_never_took_wastes_nothing(outcome: Outcome) -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    (start,) = kind(driver.submit(ask(4)), StartComponent)
    driver.wait_until(5.0)
    driver.end(start.token, outcome=outcome)
    assert counted(driver, start.site) == (0.0, 0.0)


def test_a_run_that_breaks_counts_by_neither() -> None:
    driver = CoreDriver({"a": 10})
    (token,) = driver.run(ask(4))
    driver.wait_until(50.0)
    driver.end(token, outcome=Outcome.SITE_FAILED)
    assert of_job(driver)[1] == 0.0


def test_what_is_held_at_a_site_that_is_lost_counts_until_then_and_not_again() -> None:
    driver = CoreDriver({"a": 10, "b": 10})
    first, second = (start.token for start in kind(driver.submit(ask(part(4, "a"), part(6, "b"))), StartComponent))
    driver.ready(first)
    driver.wait_until(5.0)
    driver.send(SiteLost(at=5.0, site="a"))
    assert counted(driver, "a") == (0.0, 20.0)
    driver.wait_until(50.0)
    driver.end(first, outcome=Outcome.ABORTED)
    driver.end(second, outcome=Outcome.ABORTED)
    assert counted(driver, "a") == (0.0, 20.0)


# ------------------------------------------------------------------------------------------------------ GPU time


def gpu_driver() -> CoreDriver:
    """Two sites of eight processors and four GPUs each."""
    driver = CoreDriver({"a": 8, "b": 8})
    nodes = (NodeClass(1, NodeSize(8, 0, (("", 4),)), NodeSize(8, 0, (("", 4),))),)
    for site in ("a", "b"):
        driver.send(SiteReported(at=0.0, site=site, processors=8, others=0, nodes=nodes))
    return driver


def with_gpus(tasks: int, site: str) -> Component:
    """Tasks of two processors and one GPU."""
    application = Application(processors_per_task=2)
    return Component(processors=2 * tasks, site=site, application=application, needs=TaskNeeds(gpus=1))


def gpu_s(driver: CoreDriver) -> list[float]:
    return [site.gpu_s for site in driver.ledger.sites]


def test_gpu_time_is_that_of_each_component_while_it_ran() -> None:
    driver = gpu_driver()
    first, second = driver.run(Request(components=(with_gpus(3, "a"), with_gpus(1, "b"))))
    driver.wait_until(driver.now + 100.0)
    driver.end(first)
    assert gpu_s(driver) == [300.0, 0.0]
    driver.wait_until(driver.now + 50.0)
    (ended,) = kind(driver.end(second), JobEnded)
    assert (ended.gpu_s, gpu_s(driver)) == (450.0, [300.0, 150.0])


def test_gpu_time_of_a_run_that_is_ended_counts_until_then_and_not_again() -> None:
    driver = gpu_driver()
    first, second = driver.run(Request(components=(with_gpus(3, "a"), with_gpus(1, "b"))))
    driver.wait_until(driver.now + 100.0)
    driver.end(first, outcome=Outcome.SITE_FAILED)
    assert gpu_s(driver) == [300.0, 100.0]
    driver.wait_until(driver.now + 30.0)
    driver.end(second, outcome=Outcome.ABORTED)
    assert gpu_s(driver) == [300.0, 100.0]


def test_a_job_without_gpus_uses_no_gpu_time() -> None:
    driver = gpu_driver()
    (token,) = driver.run(ask(4))
    driver.wait_until(driver.now + 10.0)
    (ended,) = kind(driver.end(token), JobEnded)
    assert ended.gpu_s == 0.0


def saving_driver() -> tuple[CoreDriver, tuple[str, str]]:
    """A job that ran for 100 s and was asked to save, for which it has 60 s, 20 s ago."""
    driver = gpu_driver()
    checkpoint = Checkpoint(signal=CheckpointSignal.USR1, grace_s=60.0)
    first, second = driver.run(Request(components=(with_gpus(3, "a"), with_gpus(1, "b")), checkpoint=checkpoint))
    driver.wait_until(driver.now + 100.0)
    driver.send(RestartAsked(at=driver.now, job=1))
    driver.wait_until(driver.now + 20.0)
    assert gpu_s(driver) == [0.0, 0.0]
    return driver, (first, second)


def test_gpu_time_counts_while_a_component_saves_until_it_ends_or_its_grace_is_over() -> None:
    driver, (first, second) = saving_driver()
    driver.end(first, exit_code=0)
    assert gpu_s(driver) == [360.0, 0.0]
    driver.wait_until(driver.now + 45.0)
    assert gpu_s(driver) == [360.0, 160.0]
    driver.end(second, outcome=Outcome.ABORTED)
    assert (driver.job(1).gpu_s, gpu_s(driver)) == (520.0, [360.0, 160.0])


def test_a_job_that_is_cancelled_while_it_saves_is_ended_at_once_and_its_gpu_time_counts_until_then() -> None:
    driver, tokens = saving_driver()
    commands = driver.send(CancelAsked(at=driver.now, job=1))
    assert [each.token for each in kind(commands, AbortComponent)] == list(tokens)
    (ended,) = kind(commands, JobEnded)
    assert (ended.gpu_s, gpu_s(driver)) == (480.0, [360.0, 120.0])
    driver.wait_until(driver.now + 5.0)
    driver.end(*tokens, outcome=Outcome.ABORTED)
    assert gpu_s(driver) == [360.0, 120.0]


def test_gpu_time_at_a_site_that_is_lost_while_a_component_saves_counts_until_then_and_not_again() -> None:
    driver, (first, second) = saving_driver()
    driver.send(SiteLost(at=driver.now, site="a"))
    assert gpu_s(driver) == [360.0, 0.0]
    driver.wait_until(driver.now + 50.0)
    driver.end(first, second, outcome=Outcome.ABORTED)
    assert gpu_s(driver) == [360.0, 160.0]


def test_gpu_time_of_a_run_at_a_lost_site_does_not_count_again_when_the_site_answers() -> None:
    driver = gpu_driver()
    (token,) = driver.run(Request(components=(msgspec.structs.replace(with_gpus(3, "a"), site=None),)))
    ((lost, _),) = driver.job(1).places
    driver.send(SiteSilent(at=driver.now, site=lost, reason="no answer"))
    driver.wait_until(driver.now + 100.0)
    driver.send(SiteLost(at=driver.now, site=lost))
    driver.wait_until(driver.now + 30.0)
    driver.ready(*driver.tokens(1))
    assert driver.state(1) is JobState.RUNNING
    driver.wait_until(driver.now + 10.0)
    driver.send(SiteReported(at=driver.now, site=lost, processors=8, others=0))
    driver.end(token, outcome=Outcome.ABORTED)
    assert sorted(gpu_s(driver)) == [0.0, 300.0]
