"""Starts are told as of the moment of the answer, however long ago the last event was."""

from __future__ import annotations

import pytest

from koala.daemon.service.answers import explanation, with_expected_start
from koala.model.api import DryRun
from tests.support.core_driver import CoreDriver, ask


@pytest.mark.parametrize(("now", "told"), [(40.0, 100.0), (150.0, 150.0)])
def test_no_start_is_told_for_a_time_that_is_over(now: float, told: float) -> None:
    """Job 1 is due to end at 100 s, and nothing happens from its start on; job 3 would put the plan of job 2 off."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, plan_depth=1)
    driver.run(ask(8, walltime_s=100.0))
    for processors in (10, 2):
        driver.submit(ask(processors, walltime_s=500.0))
    planned, behind = (driver.scheduler.explain(job) for job in (2, 3))
    assert planned is not None
    assert behind is not None
    found = explanation(planned, 0.0, 2, now)
    assert (found.expected_at, found.latest_at) == (told, told)
    after = explanation(behind, 0.0, 2, now)
    assert (after.expected_at, [each.expected_at for each in after.planned_before]) == (None, [told])
    expected = driver.scheduler.expected_start(2)
    assert expected is not None
    answer = with_expected_start(DryRun(policy="WF"), expected, driver.ledger, None, now)
    assert (answer.expected_at, answer.latest_at) == (told, told)
