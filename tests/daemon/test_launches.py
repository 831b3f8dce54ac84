"""What a request must be like to be startable, and what a site is given of it."""

from __future__ import annotations

import msgspec
import pytest

from koala.daemon.launches import check_launch, launch_for
from koala.model.grid import BatchSettings, Site, SiteKind
from koala.model.launch import BARRIER_TIMEOUT_DEFAULT_S, LaunchError
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


def test_a_site_is_told_when_the_job_is_planned_to_start_and_how_long_to_wait_at_the_barrier() -> None:
    told = msgspec.structs.replace(COMMAND, begin_at=130.0, barrier_timeout_s=700.0)
    launch = launch_for(told, a_request(), HERE)
    assert (launch.begin_at, launch.barrier_timeout_s) == (130.0, 700.0)


def test_a_command_of_a_former_version_waits_as_long_as_is_usual() -> None:
    launch = launch_for(COMMAND, a_request(), HERE)
    assert (launch.begin_at, launch.barrier_timeout_s) == (None, BARRIER_TIMEOUT_DEFAULT_S)


def test_programs_of_this_machine_are_looked_for_only_where_commands_run_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koala.daemon.launches.search_path", lambda: ("/here/bin",))

    def searched(batch: BatchSettings | None) -> tuple[str, ...]:
        kind = SiteKind.LOCAL if batch is None else SiteKind.SLURM
        site = Site(name="a", processors=1, kind=kind, batch=batch)
        return launch_for(COMMAND, a_request(), site).search_path

    assert searched(None) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", through=("nice",))) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", ssh="elsewhere")) == ()
