"""Bad wishes get a sentence, once, and no stack trace; limits hold; what cannot be printed is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.examples.applications.alternate import Alternate
from koala.examples.applications.clusters import ProcessClusters, clusters_from
from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.heat import Heat
from koala.examples.applications.laplace import Laplace
from koala.examples.applications.options import (
    BANDWIDTH_MBIT_S_MAX,
    BANDWIDTH_MBIT_S_MIN,
    ITERATIONS_MAX,
    LATENCY_MS_MAX,
    SIZE_MAX,
)
from koala.examples.applications.poisson import Poisson
from koala.examples.applications.program import Solver
from koala.examples.applications.program import run as run_here
from tests.support.application_runs import comm_of_one, python, run, told
from tests.support.mpi_crew import MpiCrew


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--size 0", "--size: '0' is not a whole number from 1 to 16384"),
        ("--size many", "'many' is not a whole number"),
        ("--size", "--size: expected one argument"),
        ("--tolerance nan", "--tolerance: 'nan' is not a number from 0 to 1"),
        ("--iterations-max -3", "'-3' is not a whole number"),
        ("--siz 3", "unrecognized arguments: --siz 3"),
        ("extra", "unrecognized arguments: extra"),
        ("--groups 1,,1", "--groups: '1,,1' is not the processes of each cluster, such as 4,4"),
        ("--groups 1,0", "--groups: '1,0' is not"),
        ("--groups 2,2", "--groups 2,2: that is 4 processes, and 1 run; give sizes that add up to 1"),
        ("--grid 2x2", "--grid 2x2: that is 4 processes, and 1 run"),
        ("--grid wide", "--grid 'wide': give rows and columns of processes, such as 2x4"),
        ("--wan-latency-ms -1", "--wan-latency-ms: '-1' is not a number from 0 to 60000"),
        ("--wan-bandwidth-mbit-s 0", "--wan-bandwidth-mbit-s: '0' is not a number"),
    ],
)
def test_a_bad_argument_is_named_with_what_to_do(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(Laplace, arguments.split(), comm_of_one()) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize(
    ("application", "times"),
    [(Laplace, "--iterations-max"), (Poisson, "--iterations-max"), (Heat, "--steps"), (Alternate, "--steps")],
)
def test_every_iteration_rests_as_long_as_asked(
    application: type[Solver], times: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests_s: list[float] = []
    monkeypatch.setattr("koala.examples.applications.world.time.sleep", rests_s.append)
    everything = ["--tolerance", "0"] if times == "--iterations-max" else []
    wishes = ["--size", "8", "--work-ms", "20", times, "3", *everything]
    assert run_here(application, wishes, comm_of_one()) == 0
    assert rests_s == [0.02] * 3


@pytest.mark.parametrize("arguments", ["--size none", "--size 1", "--groups 9"])
def test_of_many_processes_one_complains(crew: MpiCrew, arguments: str) -> None:
    done = crew.run("poisson", *arguments.split(), processes=4)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert arguments.split()[0] in done.err


def test_whoever_started_the_processes_hears_one_complaint_and_gets_the_exit_code() -> None:
    done = run("poisson", "--size", "none", processes=2)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "--size" in done.err


@pytest.mark.parametrize("application", ["laplace", "heat", "poisson"])
def test_help_is_printed_once_and_names_the_options(crew: MpiCrew, application: str) -> None:
    done = crew.run(application, "--help", processes=2)
    assert done.code == 0
    assert done.out.count("usage:") == 1
    for option in ("--size", "--verify", "--json", "--groups", "--wan-latency-ms", "--wan-bandwidth-mbit-s"):
        assert option in done.out


@pytest.mark.parametrize(
    ("application", "option", "least", "most"),
    [
        (Laplace, "--size", 1, SIZE_MAX),
        (Laplace, "--iterations-max", 1, ITERATIONS_MAX),
        (Heat, "--steps", 1, ITERATIONS_MAX),
        (Heat, "--wan-latency-ms", 0, LATENCY_MS_MAX),
        (Heat, "--wan-bandwidth-mbit-s", BANDWIDTH_MBIT_S_MIN, BANDWIDTH_MBIT_S_MAX),
    ],
)
def test_a_limit_can_be_reached_and_not_passed(
    application: type[Laplace] | type[Heat], option: str, least: float, most: float
) -> None:
    for value in (least, most):
        options = application.parser().parse_args([option, str(value)])
        assert value in vars(options).values()
    for value in (least - 1, most + 1):
        with pytest.raises(ApplicationError, match=option):
            application.parser().parse_args([option, str(value)])


def test_the_clusters_are_those_that_koala_tells_unless_the_option_says_otherwise() -> None:
    koala = {"KOALA_PROCESSORS_ALL": "5,3"}
    assert clusters_from(None, koala, 8) == ProcessClusters((5, 3))
    assert clusters_from((4, 4), koala, 8) == ProcessClusters((4, 4))
    assert clusters_from(None, {}, 8) == ProcessClusters((8,))


def test_what_koala_tells_reaches_a_run() -> None:
    assert told("heat", "--size", "9", processes=2, environment={"KOALA_PROCESSORS_ALL": "1,1"})["clusters"] == [1, 1]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1,1", "KOALA_PROCESSORS_ALL 1,1: that is 2 processes, and 1 run; write 'type: mpi' in the job"),
        ("two", "KOALA_PROCESSORS_ALL 'two': it must be the processes of each cluster, such as 4,4"),
    ],
)
def test_a_world_that_is_not_the_one_koala_told_of_is_refused_with_advice(
    value: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOALA_PROCESSORS_ALL", value)
    assert run_here(Heat, [], comm_of_one()) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_missing_library_is_told_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['mpi4py'] = None")
    done = run("laplace", environment={"PYTHONPATH": str(tmp_path)})
    assert done.code == 1
    assert "install koala-scheduler[mpi]" in done.err
    assert "Traceback" not in done.err


def test_an_importer_gets_the_exception_for_a_missing_library() -> None:
    program = "import sys; sys.modules['numpy'] = None\ntry:\n import koala.examples.applications\n"
    done = python("-c", program + "except ImportError:\n print('as always')")
    assert (done.code, done.out) == (0, "as always\n")


def test_a_result_that_cannot_be_printed_is_a_failure_of_all() -> None:
    program = (
        "import os, sys\n"
        "if os.environ.get('PMI_RANK') == '0':\n"
        "    os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
        "from koala.examples.applications.heat import Heat\n"
        "from koala.examples.applications.program import run\n"
        "sys.exit(run(Heat, ['--size', '9']))\n"
    )
    done = python("-c", program, processes=2)
    assert done.code == 1
    assert "the result cannot be printed: No space left on device" in done.err
    assert "Traceback" not in done.err
