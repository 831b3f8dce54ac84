"""What a request must be like to be startable, and what a site is given of it."""

from __future__ import annotations

import msgspec
import pytest

from koala.daemon.launches import check_launch, launch_for
from koala.descriptions.grid.batch import WORK_DIRECTORY_BYTES_MAX
from koala.model.grid import BatchSettings, Site, SiteKind
from koala.model.launch import (
    BARRIER_TIMEOUT_DEFAULT_S,
    JOB_PATH_BYTES_MAX,
    TOKEN_CHARACTERS_MAX,
    WORK,
    LaunchError,
)
from koala.model.messages import StartComponent
from koala.model.request import Application, Component, InputFile, Request
from koala.sites.component_directory import COMPONENTS
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


def writing(name: str = "job", **paths: str) -> Request:
    application = msgspec.structs.replace(Application(script="exit 0"), **paths)
    return Request(components=(Component(processors=1, application=application),), name=name)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (writing("..", stdout="%x/out"), "stdout: '%x/out' .*: '../out' climbs out"),
        (writing(".", stderr="%x%x/x"), "stderr: '%x%x/x' .*: '../x' climbs out"),
        (writing("..", stdin="a/%x/%x/in"), "stdin: .* climbs out"),
        (writing("..", stdout="%x/out", directory="/data"), "climbs out"),
        (writing("é" * 126, stdout="%x.%j"), "NAME_BYTES_MAX"),
        (writing("x" * 250, stdout="/".join(["%x"] * 9)), "JOB_PATH_BYTES_MAX"),
    ],
    ids=["up", "up in two", "input", "in a directory", "a long name", "a long path"],
)
def test_a_stream_that_leads_away_once_it_is_filled_in_is_refused_when_the_job_is_read(
    request_: Request, words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        check_launch(request_)


def test_a_stream_that_is_named_after_an_ordinary_job_passes() -> None:
    check_launch(writing("..a", stdout="%x/%j.out", stderr="%x-%A_%a.err"))


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        (reading(InputFile(name="x", path="é" * 128)), "NAME_BYTES_MAX"),
        (reading(InputFile(name="a/" + "é" * 128)), "NAME_BYTES_MAX"),
        (reading(InputFile(name="x", path="d/" * 1_024 + "x")), "JOB_PATH_BYTES_MAX"),
        (writing(stdout="é" * 128), "NAME_BYTES_MAX"),
        (writing(directory="x" * 256), "NAME_BYTES_MAX"),
        (writing(directory="d/" * 600, stderr="e/" * 600 + "x"), "JOB_PATH_BYTES_MAX"),
        (writing(stdin="/" + "d/" * 1_024), "JOB_PATH_BYTES_MAX"),
    ],
    ids=["path", "name", "long path", "stream", "directory", "stream in a directory", "absolute"],
)
def test_a_path_that_no_file_system_takes_is_refused_with_the_limit(request_: Request, limit: str) -> None:
    with pytest.raises(LaunchError, match=limit):
        check_launch(request_)


def test_paths_up_to_the_limits_in_bytes_pass() -> None:
    check_launch(reading(InputFile(name="x", path="é" * 127)))
    check_launch(reading(InputFile(name="x", path="d/" * 1_023 + "xy")))


def test_the_longest_path_of_a_job_fits_below_the_longest_work_directory() -> None:
    between = len(f"/{COMPONENTS}/{WORK}/") + TOKEN_CHARACTERS_MAX
    # What is left is for the home directory that a '~' stands for.
    assert WORK_DIRECTORY_BYTES_MAX + between + JOB_PATH_BYTES_MAX + 512 <= 4_095


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
        kind = SiteKind.LOCAL if batch is None else "slurm"
        site = Site(name="a", processors=1, kind=kind, batch=batch)
        return launch_for(COMMAND, a_request(), site).search_path

    assert searched(None) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", through=("nice",))) == ("/here/bin",)
    assert searched(BatchSettings(work_directory="/w", ssh="elsewhere")) == ()


@pytest.mark.parametrize(
    ("application", "starts_steps"),
    [
        (Application(script="srun hostname", requires=("srun",)), True),
        (Application(script="srun hostname"), False),
        (Application(executable="/bin/qrsh"), True),
        (Application(executable="/bin/true"), False),
    ],
)
def test_an_application_that_calls_the_launcher_of_a_batch_system_starts_steps(
    application: Application, starts_steps: bool
) -> None:
    request = Request(components=(Component(processors=1, application=application),))
    command = StartComponent(job=1, component=0, token="1.1", site="a", processors=1, part=0, parts=1)  # noqa: S106
    assert launch_for(command, request, HERE).starts_steps == starts_steps
