"""Jobs over Slurm and Grid Engine together: placed, claimed, started at one moment, ended, killed, cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.lab import Lab
from tests.support.live_daemon import until
from tests.support.real_grid import (
    PROCESSORS,
    SITES,
    WAIT_S,
    RealGrid,
    has_the_right_answer,
    laplace,
    real_grid,
    waits_for,
)

SAY = """
application:
  script: |
    cluster=${SLURM_CLUSTER_NAME:-${SGE_CELL:-nowhere}}
    echo "$KOALA_COMPONENT of $KOALA_COMPONENTS with $KOALA_PROCESSORS at $cluster"
"""
SLEEP = """
application:
  executable: sleep
  arguments: ["%s"]
"""


def test_a_fixed_job_runs_where_it_was_told_on_three_clusters(grid: RealGrid) -> None:
    job = grid.submit(
        f"{SAY}components:\n- {{processors: 3, site: gamma}}\n- {{processors: 2, site: alpha}}\n"
        "- {processors: 4, site: beta}\n"
    )
    grid.done(job)
    told = [grid.printed(job, part).strip() for part in range(3)]
    assert told == ["0 of 3 with 3 at gamma", "1 of 3 with 2 at alpha", "2 of 3 with 4 at beta"]
    assert len({each.released_at for each in grid.last_run(job)}) == 1, "all start at one moment"
    grid.nothing_is_held()


def test_a_non_fixed_job_is_spread_where_its_components_fit(grid: RealGrid) -> None:
    job = grid.submit(
        f"{SAY}policy: WF\ncomponents:\n- {{processors: 6}}\n- {{processors: 6}}\n- {{processors: 6}}\n"
    )
    grid.done(job)
    assert sorted(each.site for each in grid.last_run(job)) == sorted(SITES)


def test_a_flexible_job_is_divided_over_as_few_clusters_as_have_it(grid: RealGrid) -> None:
    job = grid.submit(f"{SAY}policy: FCM\nflexible: {{processors: 14}}\n")
    grid.done(job)
    run = grid.last_run(job)
    assert sum(each.processors for each in run) == 14
    assert len(run) == 2
    assert max(each.processors for each in run) <= PROCESSORS


def test_one_mpi_job_has_one_world_over_three_clusters_and_the_right_answer(grid: RealGrid) -> None:
    job = grid.submit(laplace(24, "1e-2", alpha=2, beta=2, gamma=2))
    grid.done(job)
    printed = grid.printed(job)
    assert "laplace, 24 x 24 points" in printed
    assert "3, with 2 + 2 + 2 processes" in printed
    assert has_the_right_answer(printed), printed
    grid.nothing_is_held()


def test_a_component_over_several_nodes_has_its_ranks_on_all_of_them(grid: RealGrid) -> None:
    """Five processors of a cluster of nodes of four."""
    job = grid.submit(laplace(24, "1e-2", alpha=5, gamma=1))
    grid.done(job)
    printed = grid.printed(job)
    assert "with 5 + 1 processes" in printed
    assert has_the_right_answer(printed), printed


@pytest.mark.parametrize("site", ["alpha", "gamma"])
def test_a_component_that_an_operator_kills_restarts_the_whole_job(grid: RealGrid, site: str, tmp_path: Path) -> None:
    """Its first run does not end by itself."""
    gate = tmp_path / "gate"
    job = grid.submit(
        f"limits: {{restarts: 3}}\napplication:\n  script: |\n    {waits_for(gate)}; echo finished\n"
        "components:\n- {processors: 2, site: alpha}\n- {processors: 2, site: beta}\n- {processors: 2, site: gamma}\n"
    )
    grid.in_state(job, "running")
    grid.cancel_as_operator(site, *grid.ours(site))

    def is_killed() -> bool:
        found = grid.client.job(job).components
        return any(each.ended_at is not None for each in found if each.run == 1 and each.site == site)

    until(is_killed, f"the component at {site} has ended", WAIT_S)
    gate.touch()
    found = grid.done(job)
    assert found.runs == 2, grid.story(job)
    first = [each for each in found.components if each.run == 1]
    killed = [each for each in first if each.site == site]
    assert killed[0].outcome in ("site_failed", "failed"), grid.story(job)
    assert killed[0].reason
    assert [grid.printed(job, part).strip() for part in range(3)] == ["finished"] * 3
    grid.nothing_is_held()


def test_a_low_job_makes_room_for_a_high_one_and_runs_again(the_lab: Lab, tmp_path: Path) -> None:
    """The high job's file is on its way when the low job takes the processors that it was placed on. The low job does
    not end by itself before the high one has."""
    gate = tmp_path / "gate"
    with real_grid(the_lab, tmp_path, mbit_s=40, hold_placed=False) as grid:
        grid.register(tmp_path / "data", 40_000_000, "beta")
        high = grid.submit(
            f"priority: high\ninput_files: [data]\n{SLEEP % 1}"
            "components:\n- {processors: 6, site: alpha}\n- {processors: 6, site: gamma}\n"
        )
        grid.in_state(high, "placed")
        low = grid.submit(
            f"priority: low\napplication:\n  script: |\n    {waits_for(gate)}\n"
            "components:\n- {processors: 8, site: alpha}\n- {processors: 8, site: beta}\n"
        )
        assert grid.done(high).preemptions == 0
        gate.touch()
        assert grid.done(low).preemptions == 1, grid.story(low)
        grid.nothing_is_held()


def test_a_job_is_cancelled_while_it_waits_and_while_it_runs(grid: RealGrid) -> None:
    everywhere = (
        "components:\n- {processors: 8, site: alpha}\n- {processors: 8, site: beta}\n- {processors: 8, site: gamma}\n"
    )
    running = grid.submit(f"{SLEEP % 600}{everywhere}")
    waiting = grid.submit(f"{SLEEP % 600}{everywhere}")
    grid.in_state(running, "running")
    grid.client.cancel(waiting)
    assert grid.ended(waiting).state == "cancelled"
    grid.client.cancel(running)
    assert grid.ended(running).state == "cancelled"
    grid.nothing_is_held()


def test_a_job_is_cancelled_while_its_file_comes_and_at_the_barrier(the_lab: Lab, tmp_path: Path) -> None:
    """Its processors are claimed long before its file is there, so that it waits at the barrier for it."""
    text = (
        f"input_files: [data]\n{SLEEP % 600}components:\n- {{processors: 6, site: alpha}}\n"
        "- {processors: 6, site: gamma}\n"
    )
    with real_grid(the_lab, tmp_path, mbit_s=20, claim_fraction=0.25) as grid:
        grid.register(tmp_path / "data", 60_000_000, "beta")
        placed = grid.submit(text)
        grid.in_state(placed, "placed")
        assert not any(grid.ours(site) for site in SITES), "nothing is claimed yet"
        grid.client.cancel(placed)
        assert grid.ended(placed).state == "cancelled"
        claimed = grid.submit(text)
        until(lambda: bool(grid.ours("alpha") and grid.ours("gamma")), "both clusters hold a component")
        assert grid.client.job(claimed).state in ("claiming", "starting")
        grid.client.cancel(claimed)
        assert grid.ended(claimed).runs == 0, grid.story(claimed)
        grid.nothing_is_held()
        until(lambda: not grid.client.overview().transfers, "no file is on its way")
