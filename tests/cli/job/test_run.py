"""Jobs that are made of a command, against a real daemon: koala run, and koala submit --wrap."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.cli.job.commands import CommandOptions, wrapped_job
from koala.descriptions import read_job
from tests.support.live_cli import Shell, Terminal
from tests.support.live_daemon import Daemon, running_daemon, until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
def shell(daemon: Daemon) -> Shell:
    return Shell(daemon.server)


def test_a_command_runs_on_the_grid_as_if_it_ran_here(shell: Shell) -> None:
    ran = shell("run", "--", "sh", "-c", 'echo "out $1"; echo "wrong" >&2; exit 7', "sh", "--help", code=7)
    assert ran.stdout == "out --help\n"
    assert ran.stderr.startswith("wrong\n")
    assert "exit code 7" in ran.stderr
    assert "it may not be restarted" in ran.stderr
    done = shell("run", "echo", "-n", "fine")
    assert (done.stdout, done.stderr) == ("fine", "")


def test_output_of_a_command_comes_while_it_runs_and_ctrl_c_cancels_its_job(daemon: Daemon, tmp_path: Path) -> None:
    with Terminal(daemon, "run", "--name", "mine", "--", "sh", "-c", "echo begun; exec sleep 1000") as terminal:
        terminal.until("begun")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        job = next(each for each in daemon.client.each_job() if each.name == "mine")
        assert f"Job {job.id} is cancelled." in terminal.shown
    until(lambda: daemon.client.job(job.id).state == "cancelled", "the job is cancelled")


def test_a_program_that_is_named_by_a_relative_path_travels_with_its_job(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "solver").write_text('#!/bin/sh\ncat "$1"\n')
    (tmp_path / "build" / "solver").chmod(0o755)
    (tmp_path / "mesh.dat").write_text("a mesh\n")
    assert shell("run", "--with", "mesh.dat", "--", "build/solver", "mesh.dat").stdout == "a mesh\n"
    assert "build/none: there is no such file here" in shell("run", "--", "build/none", code=2).stderr


def test_why_a_command_waits_is_told_while_it_waits(daemon: Daemon) -> None:
    with Terminal(daemon, "run", "-n", "500", "--", "true") as terminal:
        terminal.until("can never fit")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130


def test_what_a_command_asks_for_is_what_its_job_asks_for(shell: Shell, daemon: Daemon) -> None:
    options = ("--walltime", "10m", "-n", "2", "--name", "mine")
    told = shell("submit", "--wrap", "echo one; echo two | tr t T", *options, "--wait").stdout
    job = next(each for each in daemon.client.each_job() if each.name == "mine" and each.state == "done")
    assert f"Submitted job {job.id} (mine, 2 processors)." in told
    assert daemon.client.job(job.id).walltime_s == 600
    assert shell("job", "logs", str(job.id)).stdout == "one\nTwo\n"
    shell("submit", "--wrap", "/bin/echo fine", "--wait")
    assert next(iter(daemon.client.each_job())).name == "echo"


def test_a_name_is_kept_whole_and_that_of_a_long_program_is_cut() -> None:
    named, unnamed = (CommandOptions(None, None, name, None) for name in ("n" * 60, None))
    assert read_job(wrapped_job("true", named), "job.yaml").name == "n" * 60
    assert read_job(wrapped_job("p" * 60, unnamed), "job.yaml").name == "p" * 40


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("submit",), "there is no job"),
        (("submit", "hello", "--wrap", "true"), "leave out JOB, or --wrap"),
        (("submit", "--wrap", " "), "--wrap: it is empty"),
        (("submit", "hello", "-n", "2"), "--processors is for --wrap"),
        (("submit", "--wrap", "true", "--walltime", "soon"), "walltime"),
        (("run", "--walltime", "soon", "--", "true"), "walltime"),
        (("run",), "COMMAND"),
    ],
)
def test_wrong_use_is_refused_with_what_to_write(shell: Shell, arguments: tuple[str, ...], told: str) -> None:
    assert told in shell(*arguments, code=2).stderr
