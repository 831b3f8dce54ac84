"""What a request must be like to be startable, and how long its components wait for one another."""

from __future__ import annotations

import math

import pytest

from koala.core.state.job import FileTransfer, Job
from koala.daemon.launches import barrier_patience_s, check_launch, launch_for
from koala.model.grid import BatchSettings, SchedulerParameters, Site, SiteKind
from koala.model.launch import BARRIER_TIMEOUT_S_MAX, LaunchError
from koala.model.messages import StartComponent
from koala.model.request import Application, Component, InputFile, Request
from tests.support.engine_world import a_request

HERE = Site(name="a", processors=1, kind=SiteKind.LOCAL)
COMMAND = StartComponent(job=1, token="1.1", site="a", processors=1, component=0, part=0, parts=1)  # noqa: S106


def reading(*files: InputFile) -> Request:
    return a_request(reads=files)


def test_a_plain_request_passes() -> None:
    check_launch(a_request(sizes=(1, 2)))
    check_launch(reading(InputFile(name="a/b"), InputFile(name="a/c"), InputFile(name="/abs", path="d")))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(components=(Component(processors=1),)), "nothing to run"),
        (a_request("a\0b"), "NUL"),
        (reading(InputFile(name="/etc/passwd")), "give it another path"),
        (reading(InputFile(name="x", path="../x")), "climbs out"),
        (reading(InputFile(name="x", path="a/..")), "names no file"),
        (reading(InputFile(name="x"), InputFile(name="y", path="./x")), "as does 'x'"),
        (reading(InputFile(name="x"), InputFile(name="x/y")), "below 'x'"),
    ],
    ids=["no program", "NUL", "absolute", "climbing", "no file", "twice", "below a file"],
)
def test_what_could_not_be_started_is_refused_with_the_reason(request_: Request, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        check_launch(request_)


def test_the_refusal_names_the_component() -> None:
    good = Component(processors=1, application=Application(script="exit 0"))
    with pytest.raises(LaunchError, match="component 1: application"):
        check_launch(Request(components=(good, Component(processors=1))))


def job_of(request: Request) -> Job:
    job = Job.submitted(1, request, 100.0, 0.75)
    job.start_estimate = 130.0
    return job


def test_a_component_waits_at_the_barrier_longer_than_the_core_ever_does() -> None:
    parameters = SchedulerParameters(barrier_timeout_s=300.0, answer_timeout_s=60.0)
    job = job_of(a_request())
    # The last claim may come a barrier timeout after the start estimate, and the others then have another one.
    assert barrier_patience_s(job, parameters, 100.0) >= 30.0 + 2 * 300.0
    transfer = FileTransfer(("data", None, 0), 1)
    transfer.estimate_s = 30.0
    job.transfers = {transfer.key: transfer}
    tries = parameters.transfer_tries_max * parameters.transfer_patience * 30.0
    assert barrier_patience_s(job, parameters, 100.0) >= 30.0 + 2 * 300.0 + tries


def test_the_wait_at_the_barrier_has_a_limit_that_a_launch_can_carry() -> None:
    parameters = SchedulerParameters(barrier_timeout_s=1e9)
    launch = launch_for(COMMAND, job_of(a_request()), HERE, parameters, 100.0)
    assert launch.barrier_timeout_s == BARRIER_TIMEOUT_S_MAX


def test_a_site_is_told_when_the_job_is_planned_to_start() -> None:
    job = job_of(a_request())
    assert launch_for(COMMAND, job, HERE, SchedulerParameters(), 100.0).begin_at == 130.0
    for never in (None, math.inf):
        job.start_estimate = never
        assert launch_for(COMMAND, job, HERE, SchedulerParameters(barrier_timeout_s=1.0), 100.0).begin_at is None


def test_programs_of_this_machine_are_looked_for_only_where_commands_run_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koala.daemon.launches.search_path", lambda: ("/here/bin",))

    def searched(batch: BatchSettings | None) -> tuple[str, ...]:
        kind = SiteKind.LOCAL if batch is None else SiteKind.SLURM
        site = Site(name="a", processors=1, kind=kind, batch=batch)
        return launch_for(COMMAND, job_of(a_request()), site, SchedulerParameters(), 100.0).search_path

    assert searched(None) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", through=("nice",))) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", ssh="elsewhere")) == ()
