"""The parts of the live experiment that need real batch systems: local users' jobs, and the lab with its daemon."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from koala.client import Client
from koala.descriptions import read_grid
from koala.experiments.live2006_lab import Size, live_grid, options_for
from koala.experiments.live2006_load import JOB_NAME, LoadController
from koala.experiments.live2006_runs import Drawn, Problem, run_policy
from koala.grid import Background
from koala.lab import Lab, LabError, requirements
from koala.lab.lab import plan_of

WAIT_S = 30.0
FIRST_PORT = 24_700
SIZE = Size(nodes=1, processors_per_node=4, slots=4, first_port=FIRST_PORT, rate_mbit_s=100.0, delay_ms=2.0)
BACKGROUND = Background(user_load=0.3, user_size_mean=1.0, user_execution_mean_s=3.0, band_low=0.25, band_high=0.5)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are for root"),
    pytest.mark.xdist_group("real-grid"),
]


@pytest.fixture(autouse=True)
def programs() -> None:
    """Skip where a program is missing; fail where the variable CI is set."""
    try:
        requirements.check_programs(plan_of(options_for(SIZE, Path("/lab"))))
    except LabError as error:
        if os.environ.get("CI"):
            pytest.fail(error.for_user())
        pytest.skip(error.for_user())


def local_jobs(lab: Lab, site: str) -> list[str]:
    """The local users' jobs that a batch system itself lists, ended ones left out."""
    words = ["qstat", "-u", "*"] if site == "gamma" else ["squeue", "--noheader", "--format=%i %.20j %t"]
    answer = lab.run(site, *words)
    assert answer.code == 0, answer
    # qstat shows the first ten characters of a name.
    return [line for line in answer.stdout.splitlines() if JOB_NAME[:10] in line and not line.endswith(" CG")]


def test_a_policy_is_measured_with_local_users_beside_it_and_nothing_stays() -> None:
    problem = Problem(size=16, laplace_iterations=5, heat_iterations=5)
    drawn = Drawn(jobs=2, interarrival_s=0.5, seed=1)
    with live_grid(SIZE) as live:
        measured = run_policy(live, "FCM", drawn, problem, BACKGROUND)
        assert measured["outcomes"] == {"done": 2}
        assert set(measured["local_load"]) == {"alpha", "beta", "gamma"}
        assert all(0.25 <= share <= 0.75 for share in measured["local_load"].values())
        asyncio.run(held(live.lab))
        with Client(live.server) as client:
            assert {job.job_type for job in client.each_job()} == {"mpi"}
        directory = live.lab.plan.directory
    assert not directory.exists()


async def held(lab: Lab) -> None:
    """Each site's own listing shows a load in the band while it is held, and none afterwards."""
    grid = read_grid(lab.grid_file.read_text(encoding="utf-8"), "grid.yaml")
    controller = LoadController(lab, grid, BACKGROUND, seed=2)
    async with controller.holding():
        for site in ("alpha", "beta", "gamma"):
            assert len(local_jobs(lab, site)) >= 1
    ends_at = time.monotonic() + WAIT_S
    while any(local_jobs(lab, site) for site in ("alpha", "beta", "gamma")):
        assert time.monotonic() < ends_at, [local_jobs(lab, site) for site in ("alpha", "beta", "gamma")]
        await asyncio.sleep(0.2)
