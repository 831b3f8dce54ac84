"""``koala site check`` and ``koala grid init`` on real Slurm, real Grid Engine and a real sshd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.errors import EXIT_INTERRUPTED
from koala.cli.site.check import PATIENCE_S_MAX
from koala.daemon.grid_sites import owner_of
from koala.descriptions import read_grid
from tests.support.file_servers import GridFtpServer, SshServer, needed, ssh_server, until
from tests.support.grid_engine_cell import SLOTS, GridEngineCell, grid_engine_cell
from tests.support.slurm_cluster import SlurmCluster, slurm_cluster

WAIT_S = 120.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=2, cpus=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cell() -> Iterator[GridEngineCell]:
    with grid_engine_cell() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    with ssh_server() as found:
        yield found


def written(directory: Path, environment: dict[str, str], **keys: Any) -> Path:
    """A grid file with the site alpha."""
    site = {"work_directory": str(directory / "work"), "environment": environment, **keys}
    grid = directory / "grid.yaml"
    grid.write_text(json.dumps({"sites": {"alpha": site}}))
    return grid


def checked(
    directory: Path, environment: dict[str, str], *options: str, code: int = 0, **keys: Any
) -> dict[str, dict[str, Any]]:
    """What a check of a site with these keys finds, by step; it must end with this exit code."""
    grid = written(directory, environment, **keys)
    result = koala_says("site", "check", "alpha", "--grid", str(grid), "--json", *options)
    assert result.exit_code == code, result.output
    answer = json.loads(result.stdout)
    assert answer["usable"] == (code == 0)
    return {step["step"]: step for step in answer["steps"]}


def koala_says(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(koala, list(words))


def results(found: dict[str, dict[str, Any]], *without: str) -> set[str]:
    return {step["result"] for name, step in found.items() if name not in without}


def free_processors(cluster: SlurmCluster) -> int:
    """Waits until what is over has given its processors back."""
    total = len(cluster.nodes) * cluster.cpus
    end = time.monotonic() + WAIT_S
    while True:
        allocated = int(cluster.run("sinfo", "-h", "-p", "main", "-o", "%C").split("/")[0])
        if allocated == 0:
            return total
        assert time.monotonic() < end, cluster.run("squeue")
        time.sleep(0.1)


def koala_jobs(cluster: SlurmCluster) -> list[str]:
    """Those of a check that hold or want processors; what is being ended is seen for a moment longer."""
    listed = cluster.run("squeue", "-h", "-t", "PD,R,CF", "-o", "%j").split()
    return [name for name in listed if name.startswith("koala-")]


def nothing_is_left(directory: Path) -> bool:
    return not list((directory / "work").iterdir())


# ---------------------------------------------------------------------------------------------------- Slurm


def test_a_slurm_site_passes_its_tiny_job_runs_and_it_grants_a_reservation(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"kind": "slurm", "processors": 4, "queue": "main", "claims": "reservation"}
    found = checked(tmp_path, slurm.environment, "--run", **keys)
    assert results(found, "mpiexec") == {"passed"}
    assert slurm.run("sinfo", "-V").split()[-1] in found["controller"]["found"]
    assert " ran on n" in found["job"]["found"]
    assert nothing_is_left(tmp_path)
    assert koala_jobs(slurm) == []
    assert "reservation" in found
    assert "ReservationName" not in slurm.run("scontrol", "show", "reservation", "-o")


def test_a_slurm_site_over_ssh_passes(slurm: SlurmCluster, server: SshServer, tmp_path: Path) -> None:
    config = str(server.config)
    keys: dict[str, Any] = {"kind": "slurm", "processors": 4, "ssh": "west"}
    found = checked(tmp_path, slurm.environment, "--run", "--ssh-config", config, **keys)
    assert results(found, "mpiexec") == {"passed"}
    assert "west answers; a round trip takes" in found["connection"]["found"]
    assert found["files"]["found"] == "rsync is here and there"


def test_sites_whose_nodes_do_not_know_each_others_names_are_told_so(slurm: SlurmCluster, tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    common = {"kind": "slurm", "processors": 1, "queue": "main", "environment": slurm.environment}
    sites = {
        name: {**common, "work_directory": str(tmp_path / name), **keys}
        for name, keys in {"alpha": {"host": "127.0.0.1"}, "beta": {"host": "nowhere.invalid"}}.items()
    }
    grid.write_text(json.dumps({"sites": sites}))
    result = koala_says("site", "check", "--grid", str(grid), "--json", "--run")
    assert result.exit_code == 0, result.output
    alpha, beta = json.loads(result.stdout)
    ((to_beta,), (to_alpha,)) = alpha["reaches"], beta["reaches"]
    assert (to_beta["site"], to_beta["result"]) == ("beta", "warned")
    assert "of alpha does not know the name nowhere.invalid of a node of beta" in to_beta["found"]
    assert "write 'host: ADDRESS' for beta" in to_beta["advice"]
    assert (to_alpha["site"], to_alpha["result"]) == ("alpha", "passed")
    assert "of beta reaches 127.0.0.1 at port" in to_alpha["found"]
    assert not [*(tmp_path / "alpha").iterdir(), *(tmp_path / "beta").iterdir()]


def test_a_file_server_answers_and_its_client_is_found(slurm: SlurmCluster, tmp_path: Path) -> None:
    needed("globus-gridftp-server", "globus-gridftp-server-progs")
    needed("globus-url-copy", "globus-gass-copy-progs")
    server = GridFtpServer(tmp_path / "served")
    try:
        server.start()
        found = checked(tmp_path, slurm.environment, kind="slurm", processors=4, file_server=server.url)
    finally:
        server.stop()
    assert found["files"]["found"].startswith(f"{server.url} answers; globus-url-copy is there; for sites without")
    assert found["files"]["found"].endswith("this machine sees its files")


def test_what_the_grid_file_has_wrong_of_slurm_is_told(slurm: SlurmCluster, tmp_path: Path) -> None:
    environment = slurm.environment
    found = checked(tmp_path, environment, code=1, kind="slurm", processors=4, queue="huge")
    assert found["queue"]["result"] == "failed"
    assert "there are low, main" in found["queue"]["advice"]
    assert found["submission"]["result"] == "skipped"

    found = checked(tmp_path, environment, code=1, kind="slurm", processors=5)
    assert "5 are described, but the queue has 4" in found["processors"]["found"]
    assert found["submission"]["result"] == "passed"

    found = checked(tmp_path, environment, code=1, kind="slurm", processors=4, submit_options=["--constraint=gold"])
    assert "Invalid feature" in found["submission"]["found"]

    found = checked(tmp_path, {"SLURM_CONF": "/not/there"}, code=1, kind="slurm", processors=4)
    assert found["controller"]["result"] == "failed"
    assert "SLURM_CONF is /not/there" in found["controller"]["found"]
    assert "environment: {SLURM_CONF: ...}" in found["controller"]["advice"]
    assert koala_jobs(slurm) == []


def test_a_tiny_job_that_finds_no_processors_is_cancelled(slurm: SlurmCluster, tmp_path: Path) -> None:
    local = slurm.submit("-n", str(free_processors(slurm)), "-p", "main")
    try:
        found = checked(
            tmp_path, slurm.environment, "--run", "--patience", "3", code=0, kind="slurm", processors=4, queue="main"
        )
        assert found["job"]["result"] == "warned"
        assert "had to wait" in found["job"]["found"]
        assert koala_jobs(slurm) == []
        assert nothing_is_left(tmp_path)
    finally:
        slurm.run("scancel", local)


def test_an_interrupted_check_leaves_no_job_behind(slurm: SlurmCluster, tmp_path: Path) -> None:
    local = slurm.submit("-n", str(free_processors(slurm)), "-p", "main")
    grid = written(tmp_path, slurm.environment, kind="slurm", processors=4, queue="main")
    words = [sys.executable, "-m", "koala", "site", "check", "alpha", "--grid", str(grid), "--run"]
    check = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until(lambda: koala_jobs(slurm))
        check.send_signal(signal.SIGINT)
        said, _ = check.communicate(timeout=WAIT_S)
        assert check.returncode == EXIT_INTERRUPTED, said
        assert koala_jobs(slurm) == []
        assert nothing_is_left(tmp_path)
    finally:
        check.kill()
        check.wait()
        slurm.run("scancel", local)


def test_a_work_directory_of_another_koala_is_told_and_only_that_one_passes(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"kind": "slurm", "processors": 4}
    assert "nobody uses" in checked(tmp_path, slurm.environment, **keys)["owner"]["found"]
    name = owner_of(tmp_path / "state", "alpha")
    (tmp_path / "work" / "owner").write_text(name)
    found = checked(tmp_path, slurm.environment, code=1, **keys)
    assert found["owner"]["result"] == "failed"
    assert name in found["owner"]["found"]
    assert results(found, "owner", "mpiexec", "job") == {"passed"}
    checked(tmp_path, slurm.environment, "--state", str(tmp_path / "state"), **keys)


def test_a_controller_that_is_down_is_told(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.stop_controller()
    try:
        found = checked(tmp_path, slurm.environment, code=1, kind="slurm", processors=4)
    finally:
        slurm.start_controller()
    assert found["controller"]["result"] == "failed"
    assert {found[step]["result"] for step in ("queue", "processors", "submission")} == {"skipped"}
    assert found["work directory"]["result"] == "passed"


# ---------------------------------------------------------------------------------------------- Grid Engine


def test_a_grid_engine_site_passes_its_tiny_job_runs_and_it_grants_a_reservation(
    cell: GridEngineCell, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"kind": "grid_engine", "processors": SLOTS, "queue": "all.q"}
    keys |= {"parallel_environment": "mpi", "claims": "reservation"}
    found = checked(tmp_path, cell.environment, "--run", **keys)
    assert results(found, "mpiexec") == {"passed"}
    assert f"ran on {cell.host}" in found["job"]["found"]
    assert nothing_is_left(tmp_path)
    cell.wait(lambda: "koala-" not in cell.run("qstat", "-u", "*"), "the tiny job stays")
    assert "reservation" in found
    assert cell.run("qrstat", "-u", "*").strip() == ""


def test_what_the_grid_file_has_wrong_of_grid_engine_is_told(cell: GridEngineCell, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"kind": "grid_engine", "processors": SLOTS}
    found = checked(tmp_path, cell.environment, code=1, **keys, parallel_environment="nope")
    assert found["parallel environment"]["result"] == "failed"
    assert "there are mpi" in found["parallel environment"]["advice"]

    found = checked(tmp_path, cell.environment, code=1, **keys, queue="huge.q")
    assert "there are all.q" in found["queue"]["advice"]

    found = checked(tmp_path, cell.environment, code=1, **keys, submit_options=["-l", "arch=none"])
    assert found["submission"]["result"] == "failed"
    assert "refused" in found["submission"]["found"]

    found = checked(tmp_path, {**cell.environment, "SGE_QMASTER_PORT": "1"}, code=1, **keys)
    assert "port 1" in found["controller"]["found"]
    assert cell.run("qstat", "-u", "*").strip() == ""


# ------------------------------------------------------------------------------------------------- the table


def test_the_table_fits_the_terminal_and_says_what_to_do(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "sites: {far: {kind: slurm, processors: 8, ssh: nowhere.invalid}, here: {kind: local, processors: 1}}"
    )
    result = koala_says("site", "check", "far", "--grid", str(grid), "--ssh-config", os.devnull)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    signs = [line[0] for line in lines if not line.startswith(" ")]
    assert signs[:3] == ["\N{CHECK MARK}", "\N{BALLOT X}", "\N{EN DASH}"]
    assert any("to do: " in line for line in lines)
    assert lines[-1] == "far cannot be used yet: 1 thing to fix."

    result = koala_says("site", "check", "here", "--grid", str(grid))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "here can be used.")


def test_several_sites_are_checked_in_one_go_and_without_a_name_all_of_them(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        """sites:
  far: {kind: slurm, ssh: nowhere.invalid, processors: 8}
  here: {kind: local, processors: 1}
  there: {kind: local, processors: 1}
"""
    )
    words = ("site", "check", "--grid", str(grid), "--ssh-config", os.devnull)
    everywhere = koala_says(*words)
    assert everywhere.exit_code == 1
    verdicts = [line for line in everywhere.stdout.splitlines() if " can" in line and line.endswith(".")]
    assert verdicts == ["far cannot be used yet: 1 thing to fix.", "here can be used.", "there can be used."]
    two = koala_says(*words, "there", "here", "--json")
    assert two.exit_code == 0
    assert [(each["site"], each["usable"]) for each in json.loads(two.stdout)] == [("there", True), ("here", True)]
    assert json.loads(koala_says(*words, "here", "--json").stdout)["site"] == "here"


def test_a_site_that_the_grid_file_does_not_name_is_wrong_use(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("sites: {alpha: {processors: 8}}")
    result = koala_says("site", "check", "alhpa", "--grid", str(grid))
    assert result.exit_code == 2
    assert "did you mean 'alpha'?" in result.output


def test_patience_has_a_limit(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("sites: {here: {kind: local, processors: 1}}")
    words = ("site", "check", "here", "--grid", str(grid), "--patience")
    assert koala_says(*words, f"{PATIENCE_S_MAX}").exit_code == 0
    assert koala_says(*words, f"{PATIENCE_S_MAX + 1}").exit_code == 2


# ------------------------------------------------------------------------------------------------- grid init


def test_real_clusters_here_and_over_ssh_become_a_grid_file(
    slurm: SlurmCluster,
    cell: GridEngineCell,
    server: SshServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in cell.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    # Whoever logs in by this key finds the Slurm cluster, as users of a cluster do.
    key = server.root / "user.pub"
    plain = key.read_text()
    key.write_text(
        f'command="SLURM_CONF={slurm.environment["SLURM_CONF"]} sh -c \\"$SSH_ORIGINAL_COMMAND\\"" {plain}'
    )
    config = tmp_path / "config"
    config.write_text(f"Include {server.config}\nHost shut\n  HostName 127.0.0.1\n  Port 1\n")
    out = tmp_path / "grid.yaml"
    try:
        result = koala_says("grid", "init", "--out", str(out), "--ssh-config", str(config))
    finally:
        key.write_text(plain)
    assert result.exit_code == 0, result.output
    text = out.read_text()
    sites = {site.name: site for site in read_grid(text, str(out)).sites}
    assert {name: (site.kind, site.processors) for name, site in sites.items()} == {
        cell.environment["SGE_CELL"]: ("grid_engine", SLOTS),
        "west": ("slurm", 4),
    }
    here, west = sites[cell.environment["SGE_CELL"]].batch, sites["west"].batch
    assert here is not None
    assert west is not None
    assert (here.queue, here.own, here.ssh) == ("all.q", (("parallel_environment", "mpi"),), None)
    assert dict(here.environment)["SGE_ROOT"] == cell.environment["SGE_ROOT"]
    assert (west.queue, west.ssh) == ("main", "west")
    # No host knows its nodes by their names, and their address leads each host to itself.
    assert (west.host, west.network) == (None, None)
    assert "# host: ADDRESS, or network: ADDRESS/BITS" in text
    assert "#   east: the same slurm cluster as west" in text
    assert "#   shut: " in text
    assert "refused" in text
