"""On a calm grid no plan is put off and no job starves, and the checks of that see what breaks it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from koala.core.life.job import Job
from koala.core.plans import JobPlans
from koala.core.state.nodes.future_nodes import _SiteLine
from koala.core.state.nodes.guaranteed_places import NodesAtTime
from koala.core.state.nodes.left_by_plans import NodesLeftByPlans
from koala.policies.interface import Spots, try_place
from koala.simulator.torture.calm import draw_calm
from koala.simulator.torture.torture import weather

# Those before are lived through where the page on faults is run.
SEEDS = range(40, 75)
# A planted defect must show within this many grids; of those with shapes, twice as many.
SEEDS_TO_FIND_A_DEFECT = 60


def is_found(promise: str) -> bool:
    """Whether any grid shows it."""
    return any(weather(draw_calm(seed)).broken == promise for seed in range(SEEDS_TO_FIND_A_DEFECT))


def is_found_with_shapes(promise: str) -> bool:
    """Whether a grid with jobs whose tasks have shapes shows it."""
    storms = (draw_calm(seed) for seed in range(2 * SEEDS_TO_FIND_A_DEFECT))
    shaped = (storm for storm in storms if any(arrival.request.is_shaped for arrival in storm.arrivals))
    return any(weather(storm).broken == promise for storm in shaped)


def test_on_calm_grids_every_promise_is_kept_and_many_jobs_have_plans() -> None:
    verdicts = [weather(draw_calm(seed)) for seed in SEEDS]
    assert [(verdict.seed, verdict.detail) for verdict in verdicts if verdict.broken] == []
    assert sum(verdict.happened.get("JobPlanned", 0) for verdict in verdicts) > len(SEEDS)


def test_plans_for_shapes_stand_whoever_ends_early_or_has_several_shapes() -> None:
    for seed in (6, 15, 89, 154):
        assert weather(draw_calm(seed)).detail == ""


def test_plans_for_shapes_stand_where_others_may_claim_early() -> None:
    assert weather(draw_calm(1430)).broken is None  # if jobs with shapes claimed early, one would starve


def test_plans_that_take_all_nodes_for_free_are_found_to_be_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_is_there(self: _SiteLine, time: float) -> NodesAtTime:
        return NodesAtTime(self._whole, (), self._whole)

    monkeypatch.setattr(_SiteLine, "at", nobody_is_there)
    assert is_found_with_shapes("no plan put off")


def test_jobs_that_take_the_nodes_of_a_plan_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their processors are counted, and their memory and GPUs are not."""
    monkeypatch.setattr(NodesLeftByPlans, "_guards_between", lambda *_: {})
    assert is_found_with_shapes("no plan put off")


def test_plans_that_are_made_anew_by_rank_alone_are_found_to_be_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    load = JobPlans._load

    def forget(self: JobPlans, planned: Sequence[Job]) -> None:
        load(self, planned)
        self._all_stand = False
        self._set_reserved([])

    monkeypatch.setattr(JobPlans, "_load", forget)
    assert is_found("no plan put off")


def test_jobs_that_pass_by_the_plans_of_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def whatever_fits(self: JobPlans, job: Job) -> tuple[Spots | None, float | None]:
        spots = try_place(job.demand, self.ledger.sites.view)
        if spots is not None:
            self._starts_now(job)
        return spots, None

    monkeypatch.setattr(JobPlans, "places_now", whatever_fits)
    assert is_found("no plan put off")
