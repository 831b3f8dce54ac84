"""Processor time gained by claiming late (PGT) and wasted before the start (PWT), and GPU time used, counted by job
and by site.

The file ``f`` is at ``store`` and takes 100 s to anywhere else: a job that is placed at 0 is claimed at 75.
"""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.model.messages import JobEnded, Outcome, SiteLost, SiteReported, StartComponent, StartTransfer
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
