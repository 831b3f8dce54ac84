"""The live experiment without a lab: its model, what it simulates, what it concludes, and its load controller's
decisions. What needs the lab is in ``test_lab``."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from statistics import fmean
from typing import Any

import msgspec
import pytest

from koala.lab import LabSystem
from koala.model.grid import Background, Grid, Site, Startup
from koala.model.request import JobType
from koala.simulator import Workload, simulate
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import Arrival, single_component
from koala.simulator.world.background import SiteBackground, users_stream
from koala.simulator.world.site import SimulatedSite
from koala.study import live
from koala.study.frame.experiment import FinishedUnit, Unit
from koala_papers.koala2006.study import POLICIES
from koala_papers.live2006 import model as fitting
from koala_papers.live2006.load import Band, LoadError, SiteLoad, cancellation, submission, submitted_id
from koala_papers.live2006.model import (
    SimulationModel,
    crowded_factors,
    fitted,
    fitted_startups,
    longest_startup_s,
    measured_s,
    predicted,
    simulated_grid,
    timed,
)
from koala_papers.live2006.runs import SIZES, WorkloadDraw, _single_jobs, arrivals, programs
from koala_papers.live2006.study import Live2006, Live2006Parameters

GRID = Grid(name="lab", sites=tuple(Site(name=name, processors=8, kind=LabSystem.SLURM) for name in ("a", "b", "c")))
DRAWN = WorkloadDraw(jobs=30, interarrival_s=5.0, seed=4)
# By application and processors, the time on one cluster and what each further one adds to it.
TRUTH = {"laplace/4": (2.0, 1.5), "laplace/6": (3.0, 1.0), "heat/4": (4.0, 0.5), "heat/6": (5.0, 0.25)}

SETS = ("a", "b", "c", "a+b", "a+c", "b+c", "a+b+c")


def calibration(*, slower: float = 1.0) -> dict[str, Any]:
    """What would be measured if the truth were of the model's form."""
    executions = {
        f"{key}/{sites}": slower * one_s * (1 + beta * sites.count("+"))
        for key, (one_s, beta) in TRUTH.items()
        for sites in SETS
    }
    # Beside one that computes all the time, as a job on one cluster does, a job takes a fifth longer on one cluster,
    # and a tenth longer on two.
    pairs = {}
    for key in TRUTH:
        one_s, two_s = executions[f"{key}/a"], executions[f"{key}/a+b"]
        pairs[f"{key}/a"] = [(one_s * 1.2, 1.0), (one_s * 1.05, 0.25)]
        pairs[f"{key}/a+b"] = [(two_s * (1 + 0.1 * one_s / two_s), 1.0)] * 2
    overheads = [[list(sites), 0.5 + 0.2 * (len(sites) - 1)] for sites in ("a", "b", "c", "ab", "bca", "abca")]
    return {"executions": executions, "overheads": overheads, "pairs": pairs, "host": [(2.0, 1), (6.0, 3)]}


def test_the_model_finds_what_the_measurements_were_made_with() -> None:
    model = fitted([calibration(slower=0.9), calibration(slower=1.1)])
    for key, (one_s, beta) in TRUTH.items():
        assert list(model.forms[key].by_size.values()) == pytest.approx([one_s])
        assert model.forms[key].beta == pytest.approx(beta)
    assert list(model.startups) == ["a", "b", "c"]
    for startup in model.startups.values():
        found = (startup.base_s, startup.per_component_s, startup.jitter)
        assert found == pytest.approx((0.5, 0.2, 0.0), abs=1e-6)
    assert (model.crowding_one, model.crowding_several) == pytest.approx((0.2, 0.1))


def test_a_job_takes_longer_by_the_time_that_others_share_with_it() -> None:
    model = msgspec.structs.replace(fitted([calibration()]), crowding_one=0.5, crowding_several=0.25)
    job = Arrival(0.0, single_component(4, "laplace"), 10.0)
    first = next(iter(simulate(GRID, Workload.from_arrivals([job])).rows()))
    rows = [
        first._replace(
            job=number,
            started=start,
            finished=end,
            execution_s=end - start,
            clusters=len(sites),
            sites="+".join(sites),
        )
        for number, start, end, sites in ((1, 0.0, 10.0, "a"), (2, 5.0, 25.0, "bc"), (3, 20.0, 30.0, "c"))
    ]
    # The first shares half of its time with the second, which computes in one of 2.5 s on two clusters; the second
    # shares a quarter with each of two that compute all the time; the third is as the first.
    assert crowded_factors(model, rows) == pytest.approx([1 + 0.5 * 0.5 / 2.5, 1 + 0.25 * 0.5, 1 + 0.5 * 0.5 / 2.5])


def test_a_simulated_job_takes_the_time_that_was_measured_on_its_clusters() -> None:
    bent = calibration()
    bent["executions"] |= {f"{key}/{sites}": 1.0 + len(sites) ** 2 for key in TRUTH for sites in SETS}
    bent["pairs"] = {}
    model, background = fitted([bent]), Background(user_load=0.0, band_low=0.0, band_high=0.0)
    alone = WorkloadDraw(jobs=1, interarrival_s=5.0, seed=4)
    spread = len(arrivals(GRID, alone, "WF")[0].request.components)
    assert spread > 1
    for policy, clusters in (("WF", spread), ("FCM", 1)):
        (found,) = predicted(model, GRID, policy, alone, background, 1)
        assert found["clusters"] == {str(clusters): 1}
        assert found["means"]["execution_s"] == pytest.approx(1.0 + (2 * clusters - 1) ** 2)


def test_a_site_that_is_slow_to_start_and_to_end_is_so_in_a_simulation_too() -> None:
    """FCM takes the first of equally idle sites. In which order sites are taken makes no other set of them."""
    slow = calibration()
    for key in TRUTH:
        slow["executions"][f"{key}/a"] += 50.0
    background, alone = (
        Background(user_load=0.0, band_low=0.0, band_high=0.0),
        WorkloadDraw(jobs=1, interarrival_s=5, seed=4),
    )
    (quick,), (late,) = (
        predicted(fitted([each]), GRID, "FCM", alone, background, 1) for each in (calibration(), slow)
    )
    assert late["means"]["execution_s"] == pytest.approx(quick["means"]["execution_s"] + 50.0)
    row = next(iter(simulate(GRID, Workload.from_arrivals([Arrival(0.0, single_component(4, "heat"), 1.0)])).rows()))
    assert measured_s(fitted([slow]), row._replace(sites="b+a", clusters=2)) == slow["executions"]["heat/4/a+b"]


def test_a_start_up_that_does_not_grow_gets_no_slope_below_zero_and_its_spread_as_jitter() -> None:
    alone = [(["a"], 1.2), (["a"], 0.8), (["b"], 0.3)]
    startups = fitted_startups([*alone, (["a", "b"], 0.7)])
    # The standard deviation at the first site is 0.2; a uniform factor of +-0.346 has the same.
    assert startups["a"].base_s == pytest.approx(1.0)
    assert startups["a"].jitter == pytest.approx(0.346, abs=0.001)
    assert (startups["b"].base_s, startups["b"].jitter) == pytest.approx((0.3, 0.0))
    assert {startup.per_component_s for startup in startups.values()} == {0.0}


def test_what_jobs_of_several_components_take_beyond_the_longest_is_for_each_further_one() -> None:
    """The first site takes 1 s and the others 0.3 s. Three components take 0.4 s more than the longest of them."""
    measured = [(["a"], 1.0), (["b"], 0.3), (["c"], 0.3), (["a", "b", "c"], 1.4), (["c", "b", "b"], 0.7)]
    startups = fitted_startups(measured)
    assert [startup.per_component_s for startup in startups.values()] == pytest.approx([0.2] * 3, abs=1e-6)
    for places, seconds in measured:
        assert longest_startup_s(startups, places) == pytest.approx(seconds, abs=1e-6)


def test_the_mean_of_the_longest_start_up_is_that_of_draws() -> None:
    startups = {"a": Startup(base_s=1.0, jitter=0.5), "b": Startup(base_s=0.8, per_component_s=0.1, jitter=0.9)}
    rng = random.Random(7)
    drawn = [
        max(rng.uniform(0.5, 1.5), *(rng.uniform(0.1 * middle, 1.9 * middle) for middle in (1.0, 1.0)))
        for _ in range(40_000)
    ]
    assert longest_startup_s(startups, ["a", "b", "b"]) == pytest.approx(fmean(drawn), rel=0.01)


def test_a_job_of_one_component_starts_in_a_simulation_as_fast_as_its_site_did_live() -> None:
    slow = calibration()
    slow["overheads"] = [[["a"], 3.0], [["b"], 0.2], [["c"], 0.2]]
    background = Background(user_load=0.0, band_low=0.0, band_high=0.0)
    alone = WorkloadDraw(jobs=1, interarrival_s=5.0, seed=4)
    (found,) = predicted(fitted([slow]), GRID, "FCM", alone, background, 1)
    assert found["sites"] == {"a": 1}
    assert found["means"]["overhead_s"] == pytest.approx(3.0)


def test_all_policies_get_the_same_jobs_and_fcm_only_their_totals() -> None:
    by_policy = {policy: arrivals(GRID, DRAWN, policy) for policy in POLICIES}
    described = {
        policy: [(each.at_s, each.request.name, each.request.processors) for each in jobs]
        for policy, jobs in by_policy.items()
    }
    assert described["WF"] == described["CM"] == described["FCM"]
    assert all(each.request.is_total for each in by_policy["FCM"])
    assert {len(each.request.components) for each in by_policy["WF"] if each.request.processors == 6} == set(SIZES[6])


def test_the_jobs_run_the_real_solvers_as_mpi() -> None:
    problem = Live2006Parameters().problem
    request = arrivals(GRID, DRAWN, "WF")[0].request
    for name, program in programs(problem).items():
        made = program(request)
        assert made.job_type is JobType.MPI
        assert f"koala.examples.applications.{name}" in made.application.arguments


def test_the_simulation_gets_the_lab_with_its_users_and_the_times_of_the_model() -> None:
    model = fitted([calibration()])
    background = Background(user_load=0.1)
    grid = simulated_grid(GRID, model.startups, background)
    assert all(site.simulation.background == background for site in grid.sites)
    assert {site.name: site.simulation.startup for site in grid.sites} == model.startups
    for job in timed(model, arrivals(GRID, DRAWN, "CM")):
        one_s, beta = TRUTH[f"{job.request.name}/{job.request.processors}"]
        assert (job.execution_s, job.per_extra_cluster) == pytest.approx((one_s, beta))


def finished(parameters: Live2006Parameters, truth: SimulationModel, factor: float = 1.0) -> list[FinishedUnit]:
    """Results as of a lab that does what a simulation with this model does, but for a factor in all times."""
    shared = msgspec.to_builtins(parameters)
    grid = {"grid": msgspec.to_builtins(GRID)}
    found = []
    for seed in (1, 2, 3):
        calibrated = {**grid, **calibration()}
        found.append(FinishedUnit(Unit(label="", work={"seed": seed, "policy": None, **shared}), calibrated))
        drawn = WorkloadDraw(jobs=parameters.jobs, interarrival_s=parameters.interarrival_s, seed=seed)
        for policy in POLICIES:
            live = dict(predicted(truth, GRID, policy, drawn, parameters.background, 1)[0])
            live["means"] = {name: factor * value for name, value in live["means"].items()}
            live |= {"lag_s": 0.01, "wasted_share": 0.02, "local_load": {"a": 0.15}, "host": [(1.0, 2)]}
            found.append(
                FinishedUnit(Unit(label="", work={"seed": seed, "policy": policy, **shared}), {**grid, **live})
            )
    return found


KNOWN: dict[str, Any] = {}


@pytest.fixture
def predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports on the same draws compare them with the same simulations."""

    def remembered(*asked: Any) -> Any:
        key = repr(asked)
        if key not in KNOWN:
            KNOWN[key] = predicted(*asked)
        return deepcopy(KNOWN[key])

    monkeypatch.setattr(fitting, "predicted", remembered)


@pytest.mark.usefixtures("predicted_once")
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.5, False)])
def test_the_report_says_whether_the_simulation_agrees_with_what_was_measured(factor: float, holds: bool) -> None:
    parameters = Live2006Parameters(jobs=12, simulations=5, user_load=0.0)
    concluded = Live2006().conclude(parameters, finished(parameters, fitted([calibration()]), factor))
    agreement = concluded.claims[0]
    assert agreement.id == "L1"
    assert (agreement.verdict == "holds") is holds
    assert set(agreement.evidence["means_within"].values()) == {holds}
    figures = re.findall(r"(WF|CM|FCM) ([+-]\d+\.\d) %", agreement.why)
    assert [policy for policy, _ in figures][-3:] == ["WF", "CM", "FCM"]
    for policy in POLICIES:
        response = concluded.results["policies"][policy]["response_s"]
        assert response["difference_percent"] == pytest.approx(
            100 * (response["simulated"]["mean"] / response["live"]["mean"] - 1)
        )


def test_the_report_tells_how_far_the_host_disturbed_the_measurements() -> None:
    """Three seeds, each with two measurements of single jobs and one for every policy."""
    parameters = Live2006Parameters(jobs=4, simulations=2)
    concluded = Live2006().conclude(parameters, finished(parameters, fitted([calibration()])))
    assert concluded.notes[-1] == (
        "The host withheld 2.2 % of the processor time on average. Of 15 measurements 12 were made again for more "
        "than 10 %, and 0 stayed above it, with 6.0 % at most."
    )


def test_the_figures_of_the_paper_are_drawn_from_what_was_measured() -> None:
    parameters = Live2006Parameters(jobs=6, simulations=2)
    concluded = Live2006().conclude(parameters, finished(parameters, fitted([calibration()])))
    assert [each.name for each in concluded.figures] == [
        "response",
        "execution-by-clusters",
        "overhead-by-components",
    ]
    for picture in concluded.figures:
        assert picture.draw().axes
    by_claim = {claim.id: claim for claim in concluded.claims}
    assert "figure 5" in by_claim["L4"].text
    assert "figure 8" in by_claim["L5"].text
    assert "start-up 0.50 s at a (spread 0.00), 0.50 s at b" in concluded.notes[0]
    assert "and 0.20 s for each further component" in concluded.notes[0]
    assert all(sum(shares.values()) == pytest.approx(1.0) for shares in concluded.results["sites"]["WF"].values())


def test_predictions_differ_by_draws_of_start_up_times_alone_and_are_the_same_again() -> None:
    spread = calibration()
    spread["overheads"] += [[["a"], 0.1], [["b"], 0.9]]
    model, background = fitted([spread]), Live2006Parameters().background
    first = predicted(model, GRID, "WF", DRAWN, background, 3)
    assert first == predicted(model, GRID, "WF", DRAWN, background, 3)
    assert len({each["log_sha256"] for each in first}) == 3
    steady = predicted(fitted([calibration()]), GRID, "WF", DRAWN, background, 3)
    assert len({each["log_sha256"] for each in steady}) == 1


def test_users_come_live_when_they_do_in_the_simulation_and_stay_as_long() -> None:
    background = Live2006Parameters().background
    simulated = SiteBackground(SimulatedSite(GRID.sites[0]), background, users_stream(4, "a"))
    at, jobs = 0.0, []
    while (at := at + simulated.next_gap_s()) < 500.0:
        jobs.append((at, simulated.next_job().walltime_s))
    assert len(jobs) > 5
    site = SiteLoad("a", LabSystem.SLURM, "q", 8, background, users_stream(4, "a"))
    site.open(0.0)
    assert site.due_users(499.0) == [run_s for at, run_s in jobs if at <= 499.0]


def test_policies_take_turns_and_single_jobs_come_before_or_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "check_machine", lambda _: None)
    experiment = Live2006()
    units = experiment.units(Live2006Parameters(), 7, 2)
    assert [(unit.work["seed"], unit.work["policy"]) for unit in units] == [
        *((7, policy) for policy in (None, "WF", "CM", "FCM")),
        *((8, policy) for policy in ("CM", "FCM", "WF", None)),
    ]
    # What only the conclusion uses does not make measurements useless.
    again = experiment.units(Live2006Parameters(agree_percent=5.0, simulations=3), 7, 2)
    assert [unit.work for unit in again] == [unit.work for unit in units]
    more = experiment.units(Live2006Parameters(jobs=20, interarrival_s=3.0), 7, 2)
    kept = {unit.label for unit, other in zip(units, more, strict=True) if unit.work == other.work}
    assert kept == {"single jobs, seed 7", "single jobs, seed 8"}, "they do not depend on the workload"
    fewer = experiment.units(Live2006Parameters(calibrations=1), 7, 2)
    assert [unit.work for unit in fewer] == [unit.work for unit in units[:-1]]


def test_single_jobs_see_every_set_of_clusters_in_as_many_seeds_as_there_are_sites() -> None:
    seen: dict[tuple[str, int], set[frozenset[str]]] = {}
    for seed in (5, 6, 7):
        for request in _single_jobs(GRID, seed):
            sites = frozenset(component.site or "" for component in request.components)
            seen.setdefault((request.name, request.processors), set()).add(sites)
    assert len(seen) == len(TRUTH)
    assert all(sets == {frozenset(each.split("+")) for each in SETS} for sets in seen.values())


def test_pairs_on_clusters_where_nothing_ran_alone_say_nothing_of_crowding() -> None:
    lacking = calibration()
    for key in TRUTH:
        del lacking["executions"][f"{key}/a+b"]
    model = fitted([lacking])
    assert (model.crowding_one, model.crowding_several) == pytest.approx((0.2, 0.0))


# ---------------------------------------------------------------------------------------------- other users


@pytest.mark.parametrize(
    ("users", "dummies", "wanted"),
    [(0, 0, 2), (1, 0, 1), (1, 2, 2), (3, 0, 0), (3, 2, 1), (5, 1, 0), (2, 2, 2)],
)
def test_dummies_are_added_below_the_band_and_ended_above_it(users: int, dummies: int, wanted: int) -> None:
    assert Band(low=2, high=4).wanted_dummies(users, dummies) == wanted


def test_the_band_of_a_site_is_the_simulators() -> None:
    background = Background(band_low=0.07, band_high=0.2)
    assert Band.of(background, 100) == Band(7, 20)
    assert Band.of(background, 8) == Band(1, 1)


def test_users_come_as_often_and_stay_as_long_as_their_load_says() -> None:
    background = Background(user_load=0.25, user_execution_mean_s=20.0)
    site = SiteLoad(
        name="a", kind=LabSystem.SLURM, queue="q", processors=8, background=background, rng=stream(1, "users", "a")
    )
    site.open(0.0)
    runs_s = [run_s for now in range(1, 20_001) for run_s in site.due_users(float(now))]
    # Two processors on average, for as long as they were looked at.
    assert sum(runs_s) / 20_000 == pytest.approx(2.0, rel=0.1)


def test_local_jobs_are_submitted_and_ended_with_the_programs_of_each_batch_system() -> None:
    words, script = submission(LabSystem.SLURM, "main", 2.5)
    assert words[0] == "sbatch"
    assert "--partition=main" in words
    assert script.endswith("exec sleep 2.500\n")
    words, _ = submission(LabSystem.GRID_ENGINE, "all.q", 2.5)
    assert words[:2] == ["qsub", "-terse"]
    assert cancellation(LabSystem.SLURM, "7") == ["scancel", "7"]
    assert cancellation(LabSystem.GRID_ENGINE, "7") == ["qdel", "7"]
    assert submitted_id("a", "17;cluster\n") == "17"
    with pytest.raises(LoadError, match=r"a: .*no number"):
        submitted_id("a", "Submitted batch job 7\n")
