"""What a replay submits: which jobs sleep, which run, when they come, and what is left out and told."""

from __future__ import annotations

import pytest

from koala.descriptions import read_job, write_job_yaml
from koala.model.grid import Grid, Site
from koala.model.request import Application, Communication, Component, Flexibility, InputFile, JobType, Request
from koala.simulator import simulate
from koala.simulator.workloads.workload import Arrival, single_component
from koala.study.replay.plan import REPLAYED_JOBS_MAX, Program, ReplayError, ReplaySettings, first_jobs, plan_replay

GRID = Grid(name="two", sites=(Site(name="a", processors=8), Site(name="b", processors=4)))


def job(*sizes: int, application: Application | None = None, **fields: object) -> Request:
    application = application or Application(executable="heat")
    components = tuple(Component(processors=size, application=application) for size in sizes)
    return Request(components=components, **fields)  # type: ignore[arg-type]


def test_a_job_with_only_a_run_time_sleeps_for_it_divided_by_the_speed_and_so_do_the_gaps() -> None:
    arrivals = [Arrival(100.0, single_component(2), 60.0), Arrival(130.0, single_component(1), 0.0)]
    made = plan_replay("w", arrivals, GRID, ReplaySettings(speed=10.0))
    assert [each.at_s for each in made.jobs] == [0.0, 3.0]
    assert [each.request.components[0].application for each in made.jobs] == [
        Application(executable="sleep", arguments=("6.000",)),
        Application(executable="sleep", arguments=("0.001",)),
    ]
    assert [each.arrival.execution_s for each in made.jobs] == [6.0, 0.001]


@pytest.mark.parametrize(
    "application",
    [
        Application(script="echo hello\n"),
        Application(executable="/opt/heat"),
        Application(executable="heat", arguments=("--size", "64")),
    ],
)
def test_a_job_with_an_application_of_its_own_runs_that_at_any_speed(application: Application) -> None:
    made = plan_replay("w", [Arrival(0.0, job(2, application=application), 60.0)], GRID, ReplaySettings(speed=10.0))
    assert made.jobs[0].request.components[0].application == application
    assert made.jobs[0].arrival.execution_s == 60.0
    assert not made.notes


def test_a_program_can_be_given_for_the_name_of_an_application() -> None:
    real = Application(executable="/opt/heat", arguments=("--iterations", "20"))
    settings = ReplaySettings(programs={"heat": lambda _: Program(real, JobType.MPI)})
    arrival = Arrival(0.0, job(2, 2), 9.0, per_extra_cluster=0.5)
    made = plan_replay("w", [arrival], GRID, settings)
    assert made.jobs[0].request.job_type is JobType.MPI
    assert {each.application for each in made.jobs[0].request.components} == {real}
    assert made.jobs[0].arrival.per_extra_cluster == 0.5, "what really runs is slowed down, and so is its model"


def test_what_sleeping_cannot_show_is_told_once_for_all_jobs_and_left_out_of_the_simulation() -> None:
    talking = job(2, 2, communication=Communication(bisection_mbit_s=50.0))
    arrivals = [Arrival(float(at), talking, 5.0, per_extra_cluster=0.5) for at in range(3)]
    made = plan_replay("w", arrivals, GRID, ReplaySettings())
    assert made.notes == [
        "3 jobs would be slowed down by combining clusters: they sleep as long as on one",
        "3 jobs would communicate: they sleep, and the links between their sites carry nothing",
    ]
    rows = list(simulate(GRID, made.simulated()).rows())
    assert [row.execution_s for row in rows] == pytest.approx([5.0, 5.0, 5.0])


def test_input_files_that_only_a_simulation_has_are_left_out_and_told() -> None:
    component = Component(processors=1, input_files=(InputFile(name="here"), InputFile(name="nowhere")))
    made = plan_replay(
        "w", [Arrival(0.0, Request(components=(component,)), 1.0)], GRID, ReplaySettings(files={"here"})
    )
    assert [file.name for file in made.jobs[0].request.components[0].input_files] == ["here"]
    assert "1 job would read input files" in made.notes[0]


def test_jobs_that_no_idle_grid_could_hold_are_left_out_with_the_reason() -> None:
    total = job(13, flexible=Flexibility())
    requests = [job(9), job(5, 5), total, job(12, flexible=Flexibility()), job(8, 4)]
    made = plan_replay(
        "w", [Arrival(float(at), request, 1.0) for at, request in enumerate(requests)], GRID, ReplaySettings()
    )
    assert [(each.name, each.reason) for each in made.too_large] == [
        (1, "a component has 9 processors and the largest site has 8"),
        (3, "the sites have 12 processors in all"),
    ]
    assert [each.name for each in made.jobs] == [2, 4, 5]


def test_a_component_for_a_site_is_measured_against_that_site() -> None:
    request = Request(components=(Component(processors=5, site="b"),))
    made = plan_replay("w", [Arrival(0.0, request, 1.0)], GRID, ReplaySettings())
    assert made.too_large[0].reason == "a component has 5 processors and b has 4"


def test_a_policy_is_for_the_jobs_that_name_none() -> None:
    arrivals = [Arrival(0.0, job(1), 1.0), Arrival(0.0, job(1, policy="CM"), 1.0)]
    made = plan_replay("w", arrivals, GRID, ReplaySettings(policy="LSF"))
    assert [each.request.policy for each in made.jobs] == ["LSF", "CM"]


def test_the_description_of_a_replayed_job_is_read_as_the_same_job() -> None:
    made = plan_replay("w", [Arrival(0.0, job(2, 3, name="pair"), 1.5)], GRID, ReplaySettings(policy="CM"))
    request = made.jobs[0].request
    assert read_job(write_job_yaml(request), "replay.yaml") == request


def test_a_replay_of_nothing_and_one_of_too_much_are_refused() -> None:
    with pytest.raises(ReplayError, match="no jobs"):
        plan_replay("w", [], GRID, ReplaySettings())
    endless = (Arrival(0.0, single_component(1), 1.0) for _ in iter(int, 1))
    with pytest.raises(ReplayError, match="REPLAYED_JOBS_MAX") as caught:
        plan_replay("w", first_jobs(endless, None), GRID, ReplaySettings())
    assert f"{REPLAYED_JOBS_MAX:,}" in caught.value.for_user()
