"""A real Slurm cluster with accounting for tests: a lab's cluster, with a MariaDB server and slurmdbd beside it.

Jobs belong to an ordinary user without special rights; root is the operator. Without the programs the tests are
skipped, or fail where the environment variable CI is set.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala import lab
from koala.lab import programs
from koala.lab.options import PORTS
from koala.lab.plan import LOOPBACK
from koala.lab.slurm import cluster_files
from koala.model.grid import BatchSettings
from tests.support.lab_making import at_free_ports

SITE = "alpha"
USER, COLLEAGUE = "nobody", "daemon"
PROCESSORS = 8
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "mariadb-admin": "mariadb-client",
}
# The controller forgets jobs this soon after their end; it checks for such jobs every half minute at most.
MIN_JOB_AGE_S = 2
WAIT_S = 120.0
_DATABASE_USER = "mysql"


def require_programs() -> None:
    """Skip, or fail in CI, if a program is not installed."""
    missing = sorted({package for program, package in PROGRAMS.items() if programs.find(program) is None})
    if missing:
        words = f"Slurm with accounting is missing; install it with: apt-get install {' '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    if os.geteuid() != 0:
        pytest.skip("only root can be the operator of a cluster and submit jobs as an ordinary user")


class AccountedCluster:
    """A cluster of two nodes with four processors each, whose controller enforces limits."""

    def __init__(self, running: lab.Lab, directory: Path) -> None:
        self.lab = running
        self.directory = directory

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its commands."""
        return self.lab.environment(SITE)

    def settings(self, **fields: object) -> BatchSettings:
        """Return settings for a site of the ordinary user."""
        values = {
            "work_directory": str(self.directory / "work"),
            "environment": tuple(self.environment.items()),
            "through": as_user(USER),
            "host": LOOPBACK,
            **fields,
        }
        return BatchSettings(**values)  # type: ignore[arg-type]

    def run(self, *words: str, user: str | None = None, text: str | None = None) -> str:
        """Return the output of a command that the operator or a user runs; it must succeed."""
        return programs.must_run([*(as_user(user) if user else ()), *words], self.environment, text=text)

    def account(self, *words: str) -> None:
        """Run sacctmgr with these words."""
        self.run("sacctmgr", "--immediate", "--quiet", *words)

    def submit(self, *options: str, user: str = COLLEAGUE, text: str = "exec sleep 600") -> str:
        """Submit a job that Koala does not know; return its id."""
        words = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
        return self.run(*words, user=user, text=f"#!/bin/sh\n{text}\n").strip()

    @contextlib.contextmanager
    def configured(self, line: str) -> Iterator[None]:
        """Add a line to slurm.conf during the block; the controller reads it without a restart."""
        name = line.partition("=")[0]
        configuration = cluster_files.configuration_file(self.lab.plan.site(SITE))
        before = configuration.read_text()
        kept = [each for each in before.splitlines() if not each.startswith(f"{name}=")]
        try:
            _write_whole(configuration, _lines(*kept, line))
            self.run("scontrol", "reconfigure")
            yield
        finally:
            _write_whole(configuration, before)
            self.run("scontrol", "reconfigure")

    def forget_jobs(self, first: int) -> None:
        """Let the controller forget all jobs, and give the next one this number."""
        self.lab.stop_controller(SITE)
        configuration = cluster_files.configuration_file(self.lab.plan.site(SITE))
        for file in (configuration.parent / "state").glob("job_state*"):
            file.unlink()
        _write_whole(configuration, configuration.read_text() + _lines(f"FirstJobId={first}"))
        self.lab.start_controller(SITE)

    def accounted(self, *numbers: str) -> str:
        """Return the names of jobs in the accounts."""
        return self.run(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=JobName", f"--jobs={','.join(numbers)}"
        )

    def clear(self) -> None:
        """End all jobs."""
        self.run("scancel", "--quiet", "--state=PENDING")
        self.run("scancel", "--quiet", "--state=RUNNING")
        idle = programs.wait_until(lambda: not self.run("squeue", "--noheader"), WAIT_S)
        assert idle, "jobs did not end"


def as_user(name: str) -> tuple[str, ...]:
    """Return words in front of a command that an ordinary user runs."""
    return ("setpriv", f"--reuid={name}", "--regid=nogroup", "--clear-groups")


@contextlib.contextmanager
def accounted_cluster() -> Iterator[AccountedCluster]:
    """Run a cluster during the block; nothing of it stays."""
    require_programs()
    directory = Path(tempfile.mkdtemp(prefix="koala-accounts-"))
    try:
        with _accounted_cluster(directory) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _accounted_cluster(directory: Path) -> Iterator[AccountedCluster]:
    """Run a cluster in this directory, which stays."""
    directory.chmod(0o755)
    (directory / "work").mkdir()
    shutil.chown(directory / "work", USER)
    options = lab.LabOptions(directory=directory / "lab", sites=(SITE,), nodes=2, processors_per_node=PROCESSORS // 2)
    options = at_free_ports(options)
    running = lab.up(options)
    try:
        _start_database(running, directory / "database")
        _start_accounting(running, directory, options.first_port + PORTS - 1)
        yield AccountedCluster(running, directory)
    finally:
        running.down()


def _start_database(running: lab.Lab, home: Path) -> None:
    """Start MariaDB without a network; return when it answers."""
    home.mkdir()
    shutil.chown(home, _DATABASE_USER)
    here = (f"--datadir={home}/data", f"--user={_DATABASE_USER}")
    programs.must_run(
        ["mariadb-install-db", "--no-defaults", *here, "--auth-root-authentication-method=normal", "--skip-test-db"]
    )
    small = ("--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0")
    words = [_program("mariadbd"), "--no-defaults", *here, f"--socket={_socket(home)}", "--skip-networking", *small]
    running.daemons.start("mariadbd", words, None)
    ping = ["mariadb-admin", "--no-defaults", f"--socket={_socket(home)}", "--silent", "ping"]
    answers = programs.wait_until(lambda: programs.run(ping).code == 0, WAIT_S)
    assert answers, running.daemons.said("mariadbd")


def _start_accounting(running: lab.Lab, directory: Path, port: int) -> None:
    """Start slurmdbd, and restart the controller with accounting and limits."""
    site = running.plan.site(SITE)
    home = directory / "slurmdbd"
    home.mkdir()
    # slurmdbd looks for its own file beside the one that SLURM_CONF names.
    (home / "slurm.conf").write_text(f"ClusterName={SITE}\nSlurmctldHost={running.plan.host}\n")
    (home / "slurmdbd.conf").touch(mode=0o600)
    (home / "slurmdbd.conf").write_text(_lines(
        "AuthType=auth/munge",
        f"AuthInfo=socket={running.plan.munge_socket}",
        f"DbdHost={running.plan.host}",
        f"DbdAddr={LOOPBACK}",
        f"DbdPort={port}",
        f"SlurmUser={running.plan.user}",
        f"LogFile={home}/log",
        f"PidFile={home}/pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=accounts",
    ))  # fmt: skip
    variables = {"SLURM_CONF": str(home / "slurm.conf"), "MYSQL_UNIX_PORT": _socket(directory / "database")}
    running.daemons.start("slurmdbd", [_program("slurmdbd"), "-D"], None, variables)
    listens = programs.wait_until(lambda: running.daemons.listens("slurmdbd", port), WAIT_S)
    assert listens, running.daemons.said("slurmdbd")
    configuration = cluster_files.configuration_file(site)
    none = "AccountingStorageType=accounting_storage/none\n"
    text = configuration.read_text()
    assert none in text
    _write_whole(configuration, text.replace(none, "") + _lines(
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={LOOPBACK}",
        f"AccountingStoragePort={port}",
        f"AccountingStoragePass={running.plan.munge_socket}",
        "AccountingStorageEnforce=limits,qos",
        f"MinJobAge={MIN_JOB_AGE_S}",
    ))  # fmt: skip
    running.stop_controller(SITE)
    running.start_controller(SITE)


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is never found empty: slurmd reads it some time after the controller, and ends if it is
    empty."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.chmod(path.stat().st_mode)
    new.replace(path)


def _socket(database: Path) -> str:
    return f"{database}/socket"


def _program(name: str) -> str:
    return programs.find(name) or name


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
