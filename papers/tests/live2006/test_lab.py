"""The parts of the live experiment that need real batch systems: local users' jobs, the lab with its daemon, and what
is measured there, from single jobs to the numbers of the report."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.lab_making import as_root, options_in

from koala.client import Client
from koala.descriptions import read_grid
from koala.lab import Lab, WideAreaLink
from koala.model.grid import Background
from koala.study.live import LabSize, LiveGrid, live_grid
from koala_papers.live2005.runs import FileWorkload, run_live, simulated
from koala_papers.live2006 import runs
from koala_papers.live2006.findings import Live2006Findings, LiveRun
from koala_papers.live2006.load import JOB_NAME, LoadController
from koala_papers.live2006.model import PAPERS_SCHEDULER, fitted, predicted
from koala_papers.live2006.runs import SolverProblem, WorkloadDraw, calibrated, run_policy

WAIT_S = 120.0
SITES = ("alpha", "beta", "gamma")
SIZE = LabSize(nodes=1, processors_per_node=8, slots=8, first_port=26_700, rate_mbit_s=100.0, delay_ms=2.0)
# Beside it a job of two processors finds room at every site.
BACKGROUND = Background(user_load=0.1, user_size_mean=1.0, user_execution_mean_s=3.0, band_low=0.25, band_high=0.25)
PROBLEM = SolverProblem(size=16, laplace_iterations=5, heat_iterations=5)
DRAWN = WorkloadDraw(jobs=2, interarrival_s=0.5, seed=1)
# Of each kind of measurement as few as there can be.
FEW = {"APPLICATIONS": ("laplace",), "SIZES": {2: (2,)}, "COMPONENTS": (1, 2), "STARTS": 2, "PAUSE_S": 0.2}
KIND = "laplace/2"

pytestmark = as_root


@pytest.fixture(scope="module", autouse=True)
def few_jobs() -> Iterator[None]:
    """The experiment in small."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items():
            patch.setattr(runs, name, value)
        yield


@pytest.fixture(scope="module")
def live() -> Iterator[LiveGrid]:
    """A lab with its daemon, of which nothing stays. Skips where a program is missing; fails where CI is set."""
    free = options_in(Path("/lab"), wan=WideAreaLink(rate_mbit_s=SIZE.rate_mbit_s, delay_s=0.0))
    with live_grid(SIZE._replace(first_port=free.first_port), PAPERS_SCHEDULER) as found:
        yield found
    assert not found.lab.plan.directory.exists(), "nothing stays"


@pytest.fixture(scope="module")
def measured(live: LiveGrid, few_jobs: None) -> dict[str, Any]:
    """The workload under one policy."""
    return asyncio.run(run_policy(live, "FCM", DRAWN, PROBLEM, BACKGROUND))


def local_jobs(lab: Lab, site: str) -> list[str]:
    """The local users' jobs that a batch system itself lists, ended ones left out."""
    words = ["qstat", "-u", "*"] if site == "gamma" else ["squeue", "--noheader", "--format=%i %.20j %t"]
    answer = lab.run(site, *words)
    assert answer.code == 0, answer
    # qstat shows the first ten characters of a name.
    return [line for line in answer.stdout.splitlines() if JOB_NAME[:10] in line and not line.endswith(" CG")]


def test_a_policy_is_measured_with_local_users_beside_it(live: LiveGrid, measured: dict[str, Any]) -> None:
    assert measured["outcomes"] == {"done": 2}
    assert set(measured["local_load"]) == set(SITES)
    assert all(0.25 <= share <= 0.75 for share in measured["local_load"].values())
    with Client(live.server) as client:
        types = [job.job_type for job in client.each_job() if job.name == "laplace"]
    assert len(types) >= 2
    assert set(types) == {"mpi"}


def test_jobs_of_two_priorities_with_files_are_measured_and_simulated(live: LiveGrid) -> None:
    """The experiment of 2005, whose lab is this one; each job brings a file to the site that lacks it."""
    workload = FileWorkload(jobs=2, interarrival_s=0.2, files=2, file_mb=0.05, execution_s=0.4, seed=3)
    found = asyncio.run(run_live(live, workload, None))
    assert (found["outcomes"], found["not_completed"]) == ({"done": 2}, 0)
    assert sum(cell["jobs"] for cell in found["cells"].values()) == 2
    assert (found["taken_out"], found["broken"], found["hit"]) == ({}, 0, 0)
    assert simulated(live.grid, workload, 0.5)["outcomes"] == {"done": 2}


def test_local_users_hold_every_site_in_its_band_and_leave_nothing(live: LiveGrid) -> None:
    asyncio.run(held(live.lab))


async def held(lab: Lab) -> None:
    """Each site's own listing shows a load in the band while it is held, and none afterwards."""
    grid = read_grid(lab.grid_file.read_text(encoding="utf-8"), "grid.yaml")
    controller = LoadController(lab, grid, BACKGROUND, seed=2)
    async with controller.holding():
        for site in SITES:
            assert len(local_jobs(lab, site)) >= 1
    ends_at = time.monotonic() + WAIT_S
    while any(local_jobs(lab, site) for site in SITES):
        assert time.monotonic() < ends_at, [local_jobs(lab, site) for site in SITES]
        await asyncio.sleep(0.2)


def test_a_simulation_follows_from_single_jobs_and_the_report_compares_it_with_the_runs(
    live: LiveGrid, measured: dict[str, Any]
) -> None:
    """Single jobs at two of the sites, one under Slurm and one under Grid Engine; which has the one that is on one
    cluster alone is the seed's turn."""
    two = live._replace(grid=msgspec.structs.replace(live.grid, sites=live.grid.sites[1:]))
    calibration = calibrated(two, PROBLEM, BACKGROUND, seed=1, stolen_percent_max=100.0)
    sets = {"gamma", "beta+gamma"}
    assert set(calibration["executions"]) == {f"{KIND}/{sites}" for sites in sets}
    # Two starts each of one and of two components, and the single jobs.
    assert Counter(len(places) for places, _ in calibration["overheads"]) == {1: 2 + 1, 2: 2 + 1}
    beside = Counter({sites: len(seconds) for sites, seconds in calibration["pairs"].items()})
    assert list(beside.elements()) == [f"{KIND}/beta+gamma"] * 2
    times_s = [
        *calibration["executions"].values(),
        *(seconds for _, seconds in calibration["overheads"]),
        *(seconds for pairs in calibration["pairs"].values() for seconds, _ in pairs),
    ]
    assert min(times_s) > 0.0
    assert all(0.0 <= share <= 1.0 for pairs in calibration["pairs"].values() for _, share in pairs)

    model = fitted([calibration])
    assert set(model.startups) == {"beta", "gamma"}
    assert model.times == {KIND: {sites: calibration["executions"][f"{KIND}/{sites}"] for sites in sorted(sets)}}
    simulated = predicted(model, two.grid, "FCM", DRAWN, BACKGROUND, runs=2)
    assert [each["outcomes"] for each in simulated] == [{"done": 2}] * 2

    assert [tries for _, tries in calibration["host"]] == [1] * (4 + 2 + 1), "one of each measurement was enough"
    run = LiveRun("FCM", DRAWN.seed, measured | {"host": [(0.0, 1)]}, simulated)
    findings = Live2006Findings([run], [calibration], model, agree_percent=15.0, stolen_percent_max=5.0)
    numbers = findings.as_json()
    response = numbers["policies"]["FCM"]["response_s"]
    assert response["live"]["mean"] == measured["means"]["response_s"]
    assert response["difference_percent"] == pytest.approx(
        100.0 * (response["simulated"]["mean"] / response["live"]["mean"] - 1.0)
    )
    assert list(numbers["execution_by_clusters"]) == [KIND]
    assert list(numbers["execution_by_clusters"][KIND]) == list(numbers["overhead_by_components"]) == ["1", "2"]
    assert all(f"s at {site} (spread" in findings.notes()[0] for site in model.startups)
