"""The live experiment of 2005 without a lab: its jobs and files, the trouble it makes, and what it concludes. What
needs the lab is beside the tests of ``live2006``, which has one."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import msgspec
import pytest

from koala.lab.programs import ProgramResult
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site
from koala.simulator import Workload, simulate
from koala.simulator.report.page_data import PageHold
from koala.simulator.workloads.workload import Arrival, single_component
from koala.study import live
from koala.study.frame.experiment import FinishedUnit, Unit
from koala.study.replay.plan import has_own_application
from koala_papers.koala2005.data import STABLE, UNSTABLE
from koala_papers.live2005.runs import REACHED_S, claims_ahead_s, running, simulated
from koala_papers.live2005.study import BAD_NODE, BREAKING_SITE, OUTAGE_SITE, Live2005, Live2005Parameters
from koala_papers.live2005.trouble import Trouble, TroubleMaker, program

PARAMETERS = Live2005Parameters(jobs=12)
GRID = Grid(
    name="lab",
    sites=tuple(Site(name=name, processors=8, kind="slurm") for name in ("alpha", "beta", "gamma")),
    links=Links(default=Link(bandwidth_mbit_s=8.0, latency_s=0.005)),
    scheduler=SchedulerParameters(policy="CF", scan_interval_s=0.0),
)


def test_files_are_the_papers_a_thousand_times_smaller_and_each_has_two_replicas() -> None:
    arrivals, files = PARAMETERS.workload(1).drawn(GRID)
    assert {file.size_bytes for file in files} == {4_000_000, 8_000_000}
    assert {len(set(file.replicas)) for file in files} == {2}
    assert {str(each.request.priority) for each in arrivals} == {"high", "low"}
    names = {file.name for file in files}
    for each in arrivals:
        (used,) = {file.name for component in each.request.components for file in component.input_files}
        assert used in names
    assert {each.execution_s * each.request.processors for each in arrivals} == {32.0}, "the work is the same"


def test_a_job_runs_as_long_as_it_is_to_and_finds_no_program_on_the_bad_node() -> None:
    arrivals, _ = PARAMETERS.workload(1).drawn(GRID)
    jobs = running(arrivals, BAD_NODE)
    assert all(has_own_application(each.request) for each in jobs)
    for node, code in ((BAD_NODE, 127), ("beta2", 0)):
        script = program(0.0, BAD_NODE)
        ended = subprocess.run(["sh", "-c", script], env={"SLURMD_NODENAME": node}, capture_output=True, check=False)
        assert ended.returncode == code
    assert BAD_NODE not in program(1.0, None)


class PretendedLab:
    """Lists two components of ours and a user's, until the first are ended."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.running = ["7 koala-1-0", "8 local-user", "9 koala-2-1"]

    def run(self, site: str, *words: str) -> ProgramResult:
        self.done.append(f"{site}: {words[0]} {' '.join(words[1:]) if words[0] == 'scancel' else ''}".strip())
        if words[0] == "scancel":
            self.running = [each for each in self.running if each.split()[0] not in words]
        return ProgramResult(0, "\n".join(self.running), "")

    def kill_site(self, site: str) -> None:
        self.done.append(f"{site} is killed")

    def start_site(self, site: str) -> None:
        self.done.append(f"{site} is up")


def test_one_site_breaks_all_of_ours_and_the_other_loses_its_power_and_comes_back() -> None:
    pretended = PretendedLab()
    trouble = Trouble(
        breaking_site=BREAKING_SITE, outage_site=OUTAGE_SITE, outage_at_s=0.01, outage_s=0.01, bad_node=BAD_NODE
    )

    async def jobs_at(site: str) -> list[int]:
        assert site == OUTAGE_SITE
        return [3, 4]

    async def made() -> TroubleMaker:
        maker = TroubleMaker(pretended, trouble, jobs_at)  # type: ignore[arg-type]
        async with maker.going_on():
            while len(maker.seen.broken) < 2:
                await asyncio.sleep(0.01)
        return maker

    seen = asyncio.run(made()).seen
    assert seen.broken == {"7", "9"}
    assert (seen.hit, seen.is_back) == ([3, 4], True)
    assert "alpha: scancel 7 9" in pretended.done
    assert [each for each in pretended.done if each.startswith("beta")] == ["beta is killed", "beta is up"]


def test_claims_are_counted_against_the_job_start_time_where_files_had_to_be_brought() -> None:
    result = simulate(GRID, Workload.from_arrivals([Arrival(0.0, single_component(4, "solver"), 5.0)]))
    (end,) = result.ends
    brought = msgspec.structs.replace(end, placed_at=10.0, last_start_estimate=14.0, started_at=14.2)
    result._ended = [(brought, result._ended[0][1])]
    holds = [
        PageHold(end.job, 0, 4, 13.0, 20.0),
        PageHold(end.job, 1, 4, 14.1, 20.0),
        PageHold(end.job, 0, 4, 2.0, 9.0),  # of a run before
    ]
    assert claims_ahead_s(result, holds) == pytest.approx([1.0, -0.1])
    near = msgspec.structs.replace(brought, last_start_estimate=10.0 + REACHED_S)
    result._ended = [(near, result._ended[0][1])]
    assert claims_ahead_s(result, holds) == [], "nothing was brought"


def finished(**changed: Any) -> list[FinishedUnit]:
    """Results as of a lab that does what the simulation does, and in which all trouble was overcome."""
    found = []
    for seed in (1, 2, 3):
        for system in (UNSTABLE, STABLE):
            run = simulated(GRID, PARAMETERS.workload(seed), PARAMETERS.startup_s)
            live: dict[str, Any] = {
                "claims_ahead_s": [1.0, 2.0],
                "taken_out": {BREAKING_SITE: "5 errors in a row"} if system == UNSTABLE else {},
                "broken": 3,
                "hit": 2,
                "hit_not_done": 0,
                "is_back": True,
                "not_found": 1,
                "transfers": 4,
                "lag_s": 0.01,
                "wasted_share": 0.1,
            }
            result = {"grid": msgspec.to_builtins(GRID), **run, **live, **(changed if seed == 2 else {})}
            found.append(FinishedUnit(Unit(label="", work={"seed": seed, "system": system}), result))
    return found


@pytest.mark.parametrize(
    ("changed", "contrary"),
    [
        ({}, set()),
        ({"not_completed": 1}, {"L9"}),
        ({"taken_out": {}}, {"L10"}),
        ({"hit_not_done": 1}, {"L11"}),
        ({"hit": 0, "hit_not_done": 1}, set()),
        ({"claims_ahead_s": [-5.0] * 3}, set()),
    ],
)
def test_one_run_in_which_it_is_otherwise_is_enough_to_say_so(changed: dict[str, Any], contrary: set[str]) -> None:
    concluded = Live2005().conclude(PARAMETERS, finished(**changed))
    verdicts = {claim.id: str(claim.verdict) for claim in concluded.claims}
    assert list(verdicts) == ["L9", "L10", "L11", "L12", "L13"]
    assert {name for name, verdict in verdicts.items() if verdict == "contrary" and name != "L12"} == contrary
    assert (verdicts["L13"] == "holds") is ("claims_ahead_s" not in changed)


def test_the_report_tells_what_was_predicted_and_draws_priorities_and_claiming() -> None:
    concluded = Live2005().conclude(PARAMETERS, finished())
    assert [each.name for each in concluded.figures] == ["placement", "claiming"]
    for picture in concluded.figures:
        assert picture.draw().axes
    told = concluded.notes[-1]
    assert told.startswith("Means on the stable system: response ")
    live_s, simulated_s, *_ = [float(word) for word in told.split() if word[0].isdigit()]
    assert live_s == simulated_s
    assert "programs not found 1, 1, 1" in concluded.notes[0]
    assert set(concluded.results) == {STABLE, UNSTABLE, "predicted"}


def test_the_systems_take_turns_and_what_only_the_conclusion_uses_measures_nothing_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "check_machine", lambda _: None)
    units = Live2005().units(Live2005Parameters(), 7, 2)
    assert [(unit.work["seed"], unit.work["system"]) for unit in units] == [
        (7, UNSTABLE),
        (7, STABLE),
        (8, STABLE),
        (8, UNSTABLE),
    ]
    assert units == Live2005().units(Live2005Parameters(startup_s=3.0), 7, 2)


def test_the_scheduler_is_the_papers_with_its_l_and_t() -> None:
    scheduler = Live2005Parameters(claim_fraction=0.5, claim_threshold=1.0).scheduler
    assert (scheduler["policy"], scheduler["claim_fraction"], scheduler["claim_threshold"]) == ("CF", 0.5, 1.0)
