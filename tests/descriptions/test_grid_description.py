"""Grid files become exactly the grids that they describe."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_grid
from koala.descriptions.fields import size_bytes
from koala.model.grid import (
    PLAN_DEPTH_DEFAULT,
    SCAN_INTERVAL_S_DEFAULT,
    AnswerFaults,
    Background,
    BandOver,
    BatchSettings,
    Grid,
    GridSimulation,
    Link,
    LinkGroup,
    Links,
    LocalScheduler,
    Network,
    PairLink,
    Preemption,
    Route,
    SchedulerParameters,
    Site,
    SiteFaults,
    SiteSimulation,
    Startup,
    StoredFile,
)
from koala.sites.batch.systems import SYSTEMS
from tests.support.description_samples import GRID_YAML


def test_a_full_grid_is_read_field_by_field() -> None:
    assert read_grid(GRID_YAML, "grid.yaml") == Grid(
        name="DAS-2",
        sites=(
            Site(
                name="vu",
                processors=144,
                quota=0.9,
                kind="slurm",
                file_server="gsiftp://fs.vu",
                uplink_mbit_s=622.0,
                batch=BatchSettings(work_directory="~/koala/vu"),
                provides=SYSTEMS["slurm"].programs,
            ),
            Site(
                name="delft",
                processors=64,
                simulation=SiteSimulation(
                    local_scheduler=LocalScheduler.EASY,
                    background=Background(user_load=0.2, band_low=0.1, band_high=0.3, seed=7),
                    faults=SiteFaults(
                        component_failure=0.01,
                        outages=((10.0, 20.0), (30.5, 40.0)),
                        mean_time_between_outages_s=3600.0,
                    ),
                    startup=Startup(base_s=9.0, jitter=0.5),
                ),
            ),
            Site(name="2024", processors=2),
        ),
        links=Links(
            default=Link(bandwidth_mbit_s=200.0, latency_s=0.004),
            pairs=(
                PairLink(between=("vu", "delft"), bandwidth_mbit_s=622.0, latency_s=0.002),
                PairLink(between=("2024", "vu"), bandwidth_mbit_s=200.0, latency_s=0.001),
            ),
        ),
        network=Network(
            uplink_mbit_s=1000.0,
            groups=(LinkGroup(name="west", uplink_mbit_s=155.5, members=("vu", "delft")),),
            links=(("sea", 45.0),),
            routes=(Route(between=("vu", "2024"), over=("sea",)),),
        ),
        files=(
            StoredFile(name="mesh.dat", size_bytes=4_000_000_000, replicas=("vu", "delft")),
            StoredFile(name="small.dat", size_bytes=17, replicas=("2024",)),
        ),
        scheduler=SchedulerParameters(
            policy="CF",
            scan_interval_s=0.0,
            hold_placed=True,
            check_interval_s=None,
            restarts_max=None,
            order="round-robin",
            plan_depth=PLAN_DEPTH_DEFAULT,
            preemption=Preemption.PLACES,
        ),
        simulation=GridSimulation(
            startup=Startup(base_s=5.0, per_component_s=2.0, load_factor=0.5, jitter=0.1),
            answers=AnswerFaults(late=0.1, twice=0.05, never=0.01, transfer_break=0.02),
            report_interval_s=30.0,
            background_band=BandOver.GRID,
            heal_at_s=5000.0,
        ),
    )


def test_what_a_grid_leaves_out_has_the_defaults_of_the_model_but_for_scans_plans_and_preemption() -> None:
    text = "sites: {a: {processors: 1}, b: {processors: 2, simulation: {background: {}}}}"
    assert read_grid(text, "grid.yaml") == Grid(
        sites=(
            Site(name="a", processors=1),
            Site(name="b", processors=2, simulation=SiteSimulation(background=Background())),
        ),
        scheduler=SchedulerParameters(
            scan_interval_s=SCAN_INTERVAL_S_DEFAULT,
            order="round-robin",
            plan_depth=PLAN_DEPTH_DEFAULT,
            preemption=Preemption.PLACES,
        ),
    )


@pytest.mark.parametrize(
    ("scheduler", "problem"),
    [
        ("order: easy, plan_depth: 3", "order: easy keeps room for the first job alone, and plan_depth is 3"),
        ("order: Easy, plan_depth: 0", "write order: fcfs"),
        ("order: sjf, ageing_half_s: 60", "goes with first come, first served alone"),
        ("order: a b", "order"),
    ],
)
def test_orders_and_what_does_not_go_with_them(scheduler: str, problem: str) -> None:
    with pytest.raises(DescriptionError) as error:
        read_grid(f"sites: {{a: {{processors: 1}}}}\nscheduler: {{{scheduler}}}\n", "grid.yaml")
    assert problem in str(error.value)


def test_easy_has_one_plan() -> None:
    grid = read_grid("sites: {a: {processors: 1}}\nscheduler: {order: easy}\n", "grid.yaml")
    assert (grid.scheduler.order, grid.scheduler.plan_depth) == ("easy", 1)
    assert (grid.scheduler.with_plans(3).order, grid.scheduler.with_plans(1).order) == ("fcfs", "easy")


def test_every_parameter_of_the_scheduler_can_be_written() -> None:
    other = {
        "policy": "CM",
        "scan_interval_s": 1.0,
        "high_scans_per_low_scan": 3,
        "claim_fraction": 1.0,
        "claim_fraction_step": 0.25,
        "claim_fraction_min": 0.5,
        "claim_threshold": 1.0,
        "error_threshold": 1,
        "cooldown_s": 0.0,
        "barrier_timeout_s": 1.0,
        "queue_patience_s": 1.5,
        "answer_timeout_s": 2.0,
        "check_interval_s": 3.0,
        "lost_after_s": 900.0,
        "probe_every_s": 120.0,
        "transfer_tries_max": 1,
        "transfer_patience": 1.0,
        "hold_placed": True,
        "placement_tries_max": 4,
        "claiming_tries_max": 5,
        "restarts_max": 0,
        "restart_rest_s": 9.0,
        "keep_for_s": 86_400.0,
        "keep_outputs_for_s": 172_800.0,
        "output_bytes_max": 5_000_000_000,
        "collect_s_max": 60.0,
        "avoid_failed_s": 60.0,
        "site_restarts_max": 7,
        "order": "FCFS",
        "order_patience_s": 3_600.0,
        "plan_depth": 3,
        "default_walltime_s": 600.0,
        "estimates": "last-two",
        "ageing_half_s": 7_200.0,
        "preemption": Preemption.CLAIMING_ONLY,
        "preempts_per_job_max": 1,
        "preempts_per_hour_max": 2,
        "preempted_per_job_max": 3,
        "hold_budget": 0.25,
        "hold_budget_per_job": 0.125,
        "hold_window_s": 3_600.0,
        "hold_ahead_s": 60.0,
    }
    assert set(other) == set(SchedulerParameters.__struct_fields__)
    lines = "\n".join(f"  {key}: {value}" for key, value in other.items())
    grid = read_grid(f"sites: {{a: {{processors: 1}}}}\nscheduler:\n{lines}\n", "grid.yaml")
    assert {key: getattr(grid.scheduler, key) for key in other} == other


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0 B", 0),
        ("17 B", 17),
        ("4 GB", 4 * 10**9),
        ("4GB", 4 * 10**9),
        ("4 GiB", 4 * 2**30),
        ("1.5 kB", 1500),
        ("0.5 KiB", 512),
        ("2 TB", 2 * 10**12),
        ("1 PiB", 2**50),
        ("0.1 KiB", None),
        ("4 Gb", None),
        ("4 gb", None),
        ("4", None),
        ("GB", None),
        ("-1 GB", None),
    ],
)
def test_sizes_have_decimal_or_binary_units(text: str, size: int | None) -> None:
    assert size_bytes(text) == size
