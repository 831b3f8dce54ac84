"""Claims by reservation on real clusters: processors are kept for a time to come, and are others' until then."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from koala.lab import Lab
from tests.support.live_daemon import until
from tests.support.real_grid import PROCESSORS, SITES, SLURM_SITES, RealGrid, real_grid

# The job runs at these two; its file is at beta.
SOON_BYTES, LATE_BYTES = 40_000_000, 450_000_000
# Where there are no reservations it comes in 4 s.
SOONER_BYTES = 10_000_000
# The one file comes in 16 s, the other in 180 s: Grid Engine lets nobody have processors that are reserved for less
# than a minute after the end of his job, and Slurm's shortest job is one of a minute.
MBIT_S = 20
SOON_S = 8 * SOON_BYTES / (MBIT_S * 1e6)
PARTS = ("alpha", "gamma")
# What is reserved for later wastes nothing until then, so that it is claimed at once.
AT_ONCE: dict[str, Any] = {"claim_fraction": 0.05, "claim_fraction_min": 0.05}
# All that the jobs of a grid hold may be kept, from minutes before the time of a plan on.
HOLDS: dict[str, Any] = {"hold_budget": 1.0, "hold_budget_per_job": 1.0, "hold_ahead_s": 600.0}
WIDE = "walltime: 1m\napplication: {script: 'true'}\ncomponents:\n" + "".join(
    f"- {{processors: {PROCESSORS - 2}, site: {site}}}\n" for site in SLURM_SITES
)
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def job_with(file: str) -> str:
    """A job that waits for a file."""
    return (
        f"walltime: 1m\ninput_files: [{file}]\napplication: {{script: wc -c <{file}}}\n"
        "components:\n- {processors: 6, site: alpha}\n- {processors: 6, site: gamma}\n"
    )


def small_job(site: str) -> str:
    """A job of two processors that ends with its walltime."""
    return f"walltime: 4m\napplication: {{script: sleep 600}}\ncomponents: [{{processors: 2, site: {site}}}]\n"


@pytest.fixture(scope="module")
def shared_booking(the_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGrid]:
    """A daemon that claims by reservation, between sites with slow links."""
    directory = tmp_path_factory.mktemp("booking")
    sites = {site: {"claims": "reservation"} for site in SITES}
    with real_grid(the_lab, directory, MBIT_S, sites=sites, **AT_ONCE) as grid:
        grid.register(directory / "soon", SOON_BYTES, "beta")
        grid.register(directory / "late", LATE_BYTES, "beta")
        yield grid


@pytest.fixture
def booking(shared_booking: RealGrid) -> Iterator[RealGrid]:
    """The same, idle before and after."""
    yield shared_booking
    shared_booking.clear()


def reserved(grid: RealGrid) -> dict[str, datetime]:
    """When each site's reservation begins, once every site has one."""
    until(lambda: all(grid.reservations(site) for site in PARTS), "both sites have a reservation")
    return {site: next(iter(grid.reservations(site).values())) for site in PARTS}


def test_a_job_that_waits_for_its_file_starts_in_reservations_when_it_comes(booking: RealGrid) -> None:
    job = booking.submit(job_with("soon"))
    begins = reserved(booking)
    assert not any(booking.is_running(site, number) for site in PARTS for number in booking.ours(site))
    submitted_at = booking.done(job).submitted_at
    for each in booking.last_run(job):
        assert begins[each.site].timestamp() > submitted_at + SOON_S / 2, "it begins about when the file comes"
        assert each.ready_at is not None
        assert each.ready_at >= begins[each.site].timestamp(), "nothing is held before its time"
        assert booking.printed(job, each.part).strip() == str(SOON_BYTES)
    booking.nothing_is_held()
    assert not any(booking.reservations(site) for site in SITES)


def test_local_users_have_the_processors_until_then_and_a_cancelled_job_leaves_no_reservation(
    booking: RealGrid,
) -> None:
    """Also when the daemon that made the reservations was killed."""
    job = booking.submit(job_with("late"))
    begins = reserved(booking)
    for site in PARTS:
        assert begins[site].timestamp() > time.time() + 60, "there is time for a local job of a minute"
        number = booking.local_job(site, PROCESSORS, 60, limit_s=60)
        until(lambda site=site, number=number: booking.is_running(site, number), f"a local job runs at {site}")  # type: ignore[misc]
    assert [each.ready_at for each in booking.client.job(job).components] == [None, None]
    booking.daemon.kill()
    booking.daemon.start()
    assert all(booking.reservations(site) for site in PARTS), "a restart gives nothing up"
    booking.client.cancel(job)
    assert booking.ended(job).state == "cancelled"
    until(lambda: not any(booking.reservations(site) for site in SITES), "the reservations are given back")


def test_a_wide_job_reserves_for_the_time_of_its_plan_and_gives_back_when_it_is_cancelled(
    the_lab: Lab, tmp_path: Path
) -> None:
    """It waits for a job of ours at each cluster, beside one of a local user. Both go on beyond the time of the plan
    as Slurm sees it: the one since its limit there is later than its walltime, the other as it came later."""
    sites = {site: {"claims": "reservation"} for site in SITES}
    with real_grid(the_lab, tmp_path, sites=sites, plan_depth=1, **HOLDS) as grid:
        ours = [grid.submit(small_job(site)) for site in SLURM_SITES]
        for job in ours:
            grid.in_state(job, "running")
        for site in SLURM_SITES:
            number = grid.local_job(site, 2, 600, limit_s=240)
            until(lambda site=site, number=number: grid.is_running(site, number), f"a local job runs at {site}")  # type: ignore[misc]
            until(lambda site=site: grid.client.probe(site).others == 2, "Koala hears of the local user's job")  # type: ignore[misc]
        wide = grid.submit(WIDE)
        until(lambda: all(grid.reservations(site) for site in SLURM_SITES), "both clusters have a reservation")
        for site in SLURM_SITES:
            (begins,) = grid.reservations(site).values()
            assert begins.timestamp() > time.time() + 60, "there is time for a local job of a minute"
            late, short = grid.local_job(site, 4, 600, limit_s=600), grid.local_job(site, 2, 60, limit_s=60)
            until(lambda site=site, short=short: grid.is_running(site, short), "who ends before it starts")  # type: ignore[misc]
            assert not grid.is_running(site, late), "who would end after it has to wait"
        assert [each.ready_at for each in grid.client.job(wide).components] == [None, None]
        grid.client.cancel(wide)
        assert grid.ended(wide).state == "cancelled"
        until(lambda: not any(grid.reservations(site) for site in SITES), "the reservations are given back")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user whom the batch systems do not trust")
def test_where_the_operator_allows_no_reservation_the_barrier_does(the_lab: Lab, tmp_path: Path) -> None:
    """Neither Slurm nor Grid Engine lets anybody reserve."""
    homes = Path(tempfile.mkdtemp(prefix="koala-nobody-"))  # pytest's own directories are closed to others
    homes.chmod(0o777)
    sites = {
        site: {"claims": "reservation", "through": AS_NOBODY, "work_directory": str(homes / site)} for site in PARTS
    }
    try:
        with real_grid(the_lab, tmp_path, MBIT_S, sites=sites, **AT_ONCE) as grid:
            grid.register(tmp_path / "soon", SOONER_BYTES, "beta")
            job = grid.submit(job_with("soon"))
            until(lambda: all(grid.ours(site) for site in PARTS), "both components are submitted")
            assert not any(grid.reservations(site) for site in PARTS)
            grid.done(job)
            assert [grid.printed(job, part).strip() for part in range(2)] == [str(SOONER_BYTES)] * 2
            assert all(each.ready_at is not None for each in grid.last_run(job))
            grid.nothing_is_held()
    finally:
        shutil.rmtree(homes)
