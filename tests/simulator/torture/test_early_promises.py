"""The promises about what is held before the time of a plan are broken by whoever holds too much or too long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from koala.core.life.states import JobState
from koala.simulator.torture.early_promises import GIVEN_BACK, WITHIN, EarlyClaimPromises

# 100 processors and a window of 1,000 s: 20,000 s of processor time for one job and 50,000 s for all.
PARAMETERS = SimpleNamespace(hold_window_s=1_000.0, hold_budget_per_job=0.2, hold_budget=0.5)


def holding(number: int, processors: int, until: float = 1_000_000.0) -> Any:
    claim = SimpleNamespace(processors=processors, aborting=False)
    return SimpleNamespace(id=number, state=JobState.CLAIMING, early_until=until, claims=[claim])


def broken(jobs: list[Any], *times: float) -> list[str]:
    """The promises that were broken by jobs that hold from 0 on, if one looks at these times."""
    found: list[str] = []
    ledger = SimpleNamespace(parameters=PARAMETERS, jobs={job.id: job for job in jobs})
    grid = SimpleNamespace(sites=[SimpleNamespace(processors=60), SimpleNamespace(processors=40)])
    scheduler: Any = SimpleNamespace(ledger=ledger, grid=grid)
    promises = EarlyClaimPromises(scheduler, lambda promise, _: found.append(promise))
    for at in (0.0, *times):
        event: Any = SimpleNamespace(at=at)
        promises.after(event)
    return found


@pytest.mark.parametrize(("times", "found"), [((500.0, 1_000.0), []), ((500.0, 1_000.5), [WITHIN])])
def test_a_job_holds_no_more_than_its_budget(times: tuple[float, ...], found: list[str]) -> None:
    assert broken([holding(1, 20)], *times) == found


@pytest.mark.parametrize(("at", "found"), [(961.0, []), (962.0, [WITHIN])])
def test_all_together_hold_no_more_than_the_budget(at: float, found: list[str]) -> None:
    assert broken([holding(1, 19), holding(2, 19), holding(3, 14)], at) == found


def test_what_was_held_before_the_window_no_longer_counts() -> None:
    assert broken([holding(1, 19)], *(100.0 * step for step in range(1, 60))) == []


def test_what_is_held_is_given_back_in_time() -> None:
    assert broken([holding(1, 1, until=10.0)], 10.0) == []
    assert broken([holding(1, 1, until=10.0)], 10.1) == [GIVEN_BACK]
