"""The lab with real Slurm and real Grid Engine: it comes up, runs jobs, is found again, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.lab import Lab, LabError, LabFailedError, LabIsUpError, down, find, status, up
from koala.lab.grid_engine import cell
from koala.sites import processes
from tests.support.lab_making import mentioning, options_in, output, submit, wait_for

# Starts a daemon of its own that leaves the job's session, then waits for ever.
RESTLESS = "setsid sh -c 'sleep 1000' & sleep 1000"


# koala lab up, which waits for ever where Grid Engine would be started: its lab is never complete.
UP_HALFWAY = """
import sys, threading
from koala.cli import koala
from koala.lab.grid_engine import cell
cell.start = lambda *_: threading.Event().wait()
koala(["lab", "up", *sys.argv[1:]])
"""


def kill_daemon(lab: Lab, name: str) -> None:
    [process] = [each.process for each in lab.record.daemons if each.name == name]
    os.kill(process.pid, signal.SIGKILL)
    wait_for(f"{name} has died", lambda: not processes.is_alive(process))


@pytest.mark.parametrize(
    ("site", "width"), [("alpha", ("-n", "3")), ("beta", ("-n", "8")), ("gamma", ("-pe", "mpi", "3"))]
)
def test_every_site_runs_jobs_of_this_user(lab: Lab, site: str, width: tuple[str, ...]) -> None:
    submit(lab, site, "echo ran at $SLURM_CLUSTER_NAME$SGE_CELL with $SLURM_NTASKS$NSLOTS as $(id -un)", *width)
    expected = f"ran at {site} with {width[-1]} as {lab.plan.user}\n"
    wait_for("the job's output", lambda: expected in output(lab, site))


def test_a_step_of_a_job_runs_on_several_nodes(lab: Lab) -> None:
    submit(lab, "beta", "srun --mpi=none sh -c 'echo step on $SLURMD_NODENAME'", "-N", "2", "-n", "2")
    wait_for("both steps", lambda: all(f"step on beta{node}\n" in output(lab, "beta") for node in (1, 2)))


def test_a_job_of_the_low_partition_makes_way_for_one_of_the_main_one(lab: Lab) -> None:
    low = submit(lab, "alpha", "sleep 1000", "-p", "low", "-n", "8", "--no-requeue")
    wait_for("the low job runs", lambda: f"{low} RUNNING" in lab.run("alpha", "squeue", "-ho", "%i %T").stdout)
    submit(lab, "alpha", "echo made way", "-n", "8")
    wait_for("the main job's output", lambda: "made way\n" in output(lab, "alpha"))
    assert "JobState=PREEMPTED" in lab.run("alpha", "scontrol", "show", "job", low).stdout


def test_the_status_tells_every_site(lab: Lab) -> None:
    seen = status(lab)
    assert seen.up
    assert [(site.name, site.up, site.dead, site.processors) for site in seen.sites] == [
        ("alpha", True, (), 8),
        ("beta", True, (), 8),
        ("gamma", True, (), 8),
    ]
    assert seen.sites[0].batch_system.startswith("Slurm ")
    assert seen.sites[2].batch_system.startswith("Grid Engine ")


def test_the_command_line_shows_the_status_as_a_table_and_as_json(lab: Lab) -> None:
    directory = str(lab.plan.directory)
    table = CliRunner().invoke(koala, ["lab", "status", "--directory", directory])
    assert table.exit_code == 0, table.output
    assert str(lab.grid_file) in table.output
    assert [line.split()[0] for line in table.output.splitlines()[1:4]] == ["alpha", "beta", "gamma"]
    shown = CliRunner().invoke(koala, ["lab", "status", "--directory", directory, "--json"])
    assert [site["name"] for site in json.loads(shown.stdout)["sites"]] == ["alpha", "beta", "gamma"]


def test_a_lab_that_is_up_is_not_brought_up_again(lab: Lab) -> None:
    before, directory = lab.record.daemons, lab.plan.directory
    with pytest.raises(LabIsUpError) as refused:
        up(lab.plan.options)
    assert refused.value.same
    words = ["lab", "up", "--directory", str(directory), "--first-port", str(lab.plan.options.first_port)]
    again = CliRunner().invoke(koala, words)
    assert (again.exit_code, "is up already" in again.output) == (0, True), again.output
    shown = CliRunner().invoke(koala, [*words, "--json"])
    assert json.loads(shown.stdout)["grid_file"] == str(lab.grid_file)
    other = CliRunner().invoke(koala, [*words, "--nodes", "3"])
    assert other.exit_code == 2
    assert f"with another --nodes; take it down first with: koala lab down --directory {directory}" in other.output
    found = find(lab.plan.directory)
    assert found is not None
    assert found.record.daemons == before


@pytest.mark.parametrize(
    ("site", "asked", "answered"),
    [("alpha", ["squeue", "--noheader", "--format=%i", "--me"], 0), ("gamma", ["sh", "-c", "qstat && exit 7"], 7)],
)
def test_a_command_is_run_as_by_a_user_of_a_site(lab: Lab, site: str, asked: list[str], answered: int) -> None:
    words = [sys.executable, "-m", "koala", "lab", "run", "--directory", str(lab.plan.directory), site, *asked]
    astray = {**os.environ, "SLURM_CONF": "/nowhere", "SGE_ROOT": "/nowhere"}
    done = subprocess.run(words, env=astray, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (answered, "")


def test_a_command_that_is_not_there_and_a_site_that_is_not_there_are_named(lab: Lab) -> None:
    words = ["lab", "run", "--directory", str(lab.plan.directory)]
    missing = CliRunner().invoke(koala, [*words, "alpha", "no-such-program"])
    assert (missing.exit_code, "no-such-program: No such file" in missing.output) == (2, True), missing.output
    elsewhere = CliRunner().invoke(koala, [*words, "delta", "true"])
    assert (elsewhere.exit_code, "it has alpha, beta, gamma" in elsewhere.output) == (2, True), elsewhere.output


def test_a_port_in_use_is_named_with_the_option_that_changes_it(lab: Lab, directory: Path) -> None:
    words = ["lab", "up", "--directory", str(directory), "--first-port", str(lab.plan.options.first_port + 2)]
    refused = CliRunner().invoke(koala, words)
    assert refused.exit_code == 2
    assert f"port {lab.plan.options.first_port + 2}, for alpha, is in use" in refused.output
    assert "--first-port" in refused.output
    assert not directory.exists()


def test_slurm_listens_on_loopback_alone(lab: Lab) -> None:
    if lab.plan.loopback is None:
        pytest.skip("this machine's name stands for an address of a network")
    with socket.socket() as taken:
        # Another address of the loopback is free, which it would not be if Slurm listened at all addresses.
        taken.bind(("127.9.9.9", lab.plan.site("alpha").port))


def test_a_controller_that_is_stopped_comes_back_with_its_jobs(lab: Lab) -> None:
    job = submit(lab, "alpha", "sleep 1000")
    wait_for("the job runs", lambda: f"{job} RUNNING" in lab.run("alpha", "squeue", "-ho", "%i %T").stdout)
    lab.stop_controller("alpha")
    assert lab.run("beta", "scontrol", "ping").stdout.count("is UP") == 1
    seen = status(lab)
    assert not seen.up
    assert [(site.up, site.dead) for site in seen.sites] == [(False, ("alpha-slurmctld",)), (True, ()), (True, ())]
    lab.start_controller("alpha")
    assert f"{job} RUNNING" in lab.run("alpha", "squeue", "-ho", "%i %T").stdout
    lab.run("alpha", "scancel", job)
    assert status(lab).up


def test_daemons_that_were_killed_are_started_again_by_up(lab: Lab) -> None:
    for name in ("munged", "beta2-slurmd", "gamma-qmaster", "gamma-execd"):
        kill_daemon(lab, name)
    words = ["--directory", str(lab.plan.directory)]
    seen = CliRunner().invoke(koala, ["lab", "status", *words])
    assert seen.exit_code == 1
    assert "gamma-qmaster" in seen.output
    assert "koala lab up starts them again" in seen.output
    said: list[str] = []
    revived = up(lab.plan.options, said.append)
    assert len(said) == 4
    assert status(revived).up
    submit(revived, "gamma", "echo runs again")
    wait_for("the job's output", lambda: "runs again\n" in output(revived, "gamma"))
    submit(revived, "beta", "echo runs again", "-w", "beta2")
    wait_for("the job's output", lambda: "runs again\n" in output(revived, "beta"))


def test_down_ends_daemons_and_jobs_and_leaves_nothing(directory: Path) -> None:
    lab = up(options_in(directory, sites=("alpha", "gamma")))
    for site in ("alpha", "gamma"):
        submit(lab, site, RESTLESS)
    wait_for("the jobs' own daemons", lambda: len(_sleepers(directory)) == 4)
    done = CliRunner().invoke(koala, ["lab", "down", "--directory", str(directory)])
    assert done.exit_code == 0, done.output
    assert mentioning(directory) == []
    assert not directory.exists()
    again = CliRunner().invoke(koala, ["lab", "down", "--directory", str(directory)])
    assert (again.exit_code, again.output) == (0, f"There is no lab in {directory}.\n")
    assert CliRunner().invoke(koala, ["lab", "status", "--directory", str(directory)]).exit_code == 1


def _sleepers(directory: Path) -> list[str]:
    return [each for each in mentioning(directory) if "sleep" in each]


def test_down_does_not_end_a_shell_that_only_points_at_the_lab(directory: Path) -> None:
    lab = up(options_in(directory, sites=("beta",)))
    environment = {**os.environ, **lab.environment("beta")}
    with subprocess.Popen(["sleep", "1000"], env=environment, cwd=lab.plan.site("beta").work) as mine:
        down(directory)
        assert mine.poll() is None
        mine.kill()


def test_files_that_are_kept_are_removed_by_the_next_up(directory: Path) -> None:
    options = options_in(directory, sites=("alpha",))
    old = up(options)
    (old.plan.site("alpha").work / "result").touch()
    down(directory, keep=True)
    assert mentioning(directory) == []
    assert (old.plan.site("alpha").work / "result").exists()
    seen = CliRunner().invoke(koala, ["lab", "status", "--directory", str(directory)])
    assert (seen.exit_code, "is down; koala lab up makes a new one" in seen.output) == (1, True), seen.output
    assert not (up(options).plan.site("alpha").work / "result").exists()


def test_an_up_that_fails_halfway_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*args: object) -> None:
        wait_for("Slurm runs", lambda: any("slurmd" in each for each in mentioning(directory)))
        raise LabFailedError("gamma: broken for this test")

    options = options_in(directory, sites=("alpha", "gamma"))
    monkeypatch.setattr(cell, "start", fail)
    with pytest.raises(LabFailedError, match="broken for this test"):
        up(options)
    assert mentioning(directory) == []
    assert not directory.exists()


def test_what_a_killed_up_has_started_is_found_and_ended(directory: Path) -> None:
    port = options_in(directory, sites=("alpha", "gamma")).first_port
    words = ["--directory", str(directory), "--sites", "alpha,gamma", "--first-port", str(port)]
    with subprocess.Popen([sys.executable, "-c", UP_HALFWAY, *words], stdout=subprocess.DEVNULL) as starting:
        try:
            wait_for("Slurm runs", lambda: any("slurmd" in each for each in mentioning(directory)))
        finally:
            starting.kill()  # it never ends by itself
    seen = CliRunner().invoke(koala, ["lab", "status", "--directory", str(directory)])
    assert seen.exit_code == 1
    assert "its start was interrupted; koala lab down removes it" in seen.output
    down(directory)
    assert mentioning(directory) == []
    assert not directory.exists()


def test_a_directory_with_something_else_in_it_is_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "precious").touch()
    with pytest.raises(LabError, match="it contains something other than a lab"):
        up(options_in(directory))
    assert [each.name for each in directory.iterdir()] == ["precious"]
