"""A real Grid Engine cell for tests: qmaster and one execution daemon in a directory of their own, on loopback.

``grid_engine_cell()`` runs one and stops it at the end; without Grid Engine it skips the test, or fails it where the
environment variable CI is set. Both daemons stay children of the test run and die with it. The queue ``all.q`` and
the parallel environment ``mpi`` have ``SLOTS`` slots.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.pauses import BATCH_LEAST_S, pause_s

PACKAGES = "gridengine-master gridengine-exec gridengine-client"
PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
CELL = "koala"
SLOTS = 4
WAIT_S = 120.0
# Pairs of neighbouring ports are taken from here on.
PORTS = range(21500, 21998, 2)

_BOOTSTRAP = {
    "default_domain": "none",
    "ignore_fqdn": "true",
    "spooling_method": "classic",
    "spooling_lib": "libspoolc",
    "security_mode": "none",
    "listener_threads": "2",
    "worker_threads": "2",
    "scheduler_threads": "1",
}
_CONFIGURATION = {
    "min_uid": "0",
    "min_gid": "0",
    "mailer": "/bin/true",
    "load_report_time": "00:00:02",
    "max_unheard": "00:00:30",
    "shell_start_mode": "posix_compliant",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
}
_SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "max_reservation": "32",
}
_QUEUE = {
    "qname": "all.q",
    "hostlist": "@allhosts",
    "load_thresholds": "NONE",
    "pe_list": "mpi",
    "rerun": "FALSE",
    "slots": str(SLOTS),
    "shell": "/bin/sh",
}
_PARALLEL_ENVIRONMENT = {
    "pe_name": "mpi",
    "slots": "999",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "start_proc_args": "NONE",
    "stop_proc_args": "NONE",
    "allocation_rule": "$fill_up",
    "control_slaves": "TRUE",
    "job_is_first_task": "FALSE",
    "urgency_slots": "min",
    "accounting_summary": "TRUE",
    "qsort_args": "NONE",
}
_HOST = {
    "load_scaling": "NONE",
    "complex_values": f"slots={SLOTS}",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "projects": "NONE",
    "xprojects": "NONE",
    "usage_scaling": "NONE",
    "report_variables": "NONE",
}


def _table(values: dict[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _changed(text: str, values: dict[str, str]) -> str:
    """Return a table as Grid Engine prints it, with other values; its long lines are joined."""
    joined = text.replace("\\\n", " ")
    lines = [line.split(None, 1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return _table({line[0]: line[1].strip() if len(line) > 1 else "NONE" for line in lines} | values)


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class GridEngineCell:
    """A cell that runs from ``start`` to ``stop``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = socket.gethostname().split(".")[0]
        port = _free_ports()
        self.environment = {
            # Debian's commands in /usr/bin are scripts that start a compiler before the command itself.
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "SGE_ROOT": str(root),
            "SGE_CELL": CELL,
            "SGE_CLUSTER_NAME": CELL,
            "SGE_QMASTER_PORT": str(port),
            "SGE_EXECD_PORT": str(port + 1),
        }
        self._qmaster: subprocess.Popen[bytes] | None = None
        self._execd: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the directories and the first spool."""
        # The daemons keep their rights only to files that all may read.
        self.root.chmod(0o755)
        architecture = subprocess.run([SHARED / "util" / "arch"], capture_output=True, text=True).stdout.strip()
        common = self.root / CELL / "common"
        for directory in (common, self._spool / "qmaster", self._spool / "execd", self._temporary):
            directory.mkdir(parents=True)
        self._temporary.chmod(0o1777)  # of jobs of all users
        (self.root / "util").symlink_to(SHARED / "util")
        for name in ("bin", "lib", "utilbin"):
            (self.root / name).mkdir()
            (self.root / name / architecture).symlink_to(PROGRAMS)
        bootstrap = _BOOTSTRAP | {
            "admin_user": getpass.getuser(),
            "spooling_params": f"{common};{self._spool / 'qmaster'}",
            "binary_path": str(self.root / "bin"),
            "qmaster_spool_dir": str(self._spool / "qmaster"),
        }
        (common / "act_qmaster").write_text(f"{self.host}\n")
        # This machine must have only one name, whatever the resolver says about loopback.
        (common / "host_aliases").write_text(f"{self.host} localhost\n")
        (common / "cluster_name").write_text(f"{CELL}\n")
        (common / "bootstrap").write_text(_table(bootstrap))
        self._fill_spool(common)

    def _fill_spool(self, common: Path) -> None:
        configuration = self.root / "configuration"
        default = (SHARED / "default-configuration").read_text()
        values = _CONFIGURATION | {"execd_spool_dir": str(self._spool / "execd")}
        configuration.write_text(_changed(default, values))
        resources = SHARED / "util" / "resources"
        self.run(PROGRAMS / "spoolinit", "classic", "libspoolc", f"{common};{self._spool / 'qmaster'}", "init")
        self.run(PROGRAMS / "spooldefaults", "configuration", configuration)
        self.run(PROGRAMS / "spooldefaults", "complexes", resources / "centry")
        self.run(PROGRAMS / "spooldefaults", "usersets", resources / "usersets")
        self.run(PROGRAMS / "spooldefaults", "managers", getpass.getuser())

    def configure(self) -> None:
        """Configure the host, its queue and its parallel environment; the scheduler runs every second."""
        self.run("qconf", "-as", self.host)
        self._configure("-Ae", _table({"hostname": self.host} | _HOST))
        self._configure("-Ahgrp", _table({"group_name": "@allhosts", "hostlist": self.host}))
        self._configure("-Ap", _table(_PARALLEL_ENVIRONMENT))
        self._configure("-Aq", _changed(self.run("qconf", "-sq"), _QUEUE | {"tmpdir": str(self._temporary)}))
        self._configure("-Msconf", _changed(self.run("qconf", "-ssconf"), _SCHEDULER))

    def _configure(self, option: str, text: str) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.root) as file:
            file.write(text)
            file.flush()
            self.run("qconf", option, file.name)

    def start_qmaster(self) -> None:
        """Start qmaster; return when it answers. Like all daemons here it dies with the thread that starts it."""
        self._qmaster = self._daemon("sge_qmaster")
        self.wait(lambda: self.call("qconf", "-sh").returncode == 0, "qmaster does not answer")

    def start_execd(self) -> None:
        """Start the execution daemon; return when the queue accepts jobs."""
        self._execd = self._daemon("sge_execd")
        self.wait(lambda: re.search(rf"/{SLOTS} +[0-9]", self.run("qstat", "-f")) is not None, "no load is reported")

    def stop_execd(self) -> None:
        """Stop it after the end of all jobs, which it remembers. A restarted one greets a new qmaster at once; one
        that runs on, after half a minute."""
        assert self._execd is not None
        children = ("ps", "-o", "pid=", "--ppid", str(self._execd.pid))
        self.wait(lambda: not self.call(*children).stdout.strip(), "it has not seen that jobs ended")
        self._kill(self._execd)
        self._execd = None

    def stop_qmaster(self) -> None:
        """Kill it as if its machine had gone: an orderly end takes many seconds. Acknowledged data stays."""
        self._kill(self._qmaster)
        self._qmaster = None

    def clear(self) -> None:
        """Remove all jobs and reservations."""
        if self.is_empty:
            return
        self.call("qrdel", "-u", "*")
        self.call("qdel", "-u", "*")
        self.wait(lambda: self.is_empty, "jobs stay")

    def stop(self) -> None:
        """End everything, the jobs first."""
        try:
            if self._execd is not None and self._qmaster is not None:
                self.clear()
        finally:
            self._kill(self._execd)
            self.stop_qmaster()

    def _daemon(self, name: str) -> subprocess.Popen[bytes]:
        # Jobs inherit this, so it is as bare as on a real node. Without SGE_ND the daemons would move to the
        # background.
        environment = self.environment | {"SGE_ND": "1"}
        with (self.root / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [PROGRAMS / name],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    def _kill(self, daemon: subprocess.Popen[bytes] | None) -> None:
        if daemon is not None:
            daemon.kill()
            daemon.wait()

    def full_environment(self) -> dict[str, str]:
        """Return the environment of this test run, with the cell's own variables and no others of Grid Engine."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("SGE_")}
        return others | self.environment

    def call(
        self, *words: str | Path, user: str | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one command in the cell; as root also for another user."""
        as_user = [] if user is None else ["runuser", "-u", user, "--"]
        # Debian's maintainer scripts put wrappers in front; the spool programs need their library beside them.
        environment = self.full_environment() | {"LD_LIBRARY_PATH": str(PROGRAMS)}
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(
            [*as_user, *words], env=environment, cwd="/", capture_output=True, text=True, timeout=WAIT_S, **given
        )

    def run(self, *words: str | Path, user: str | None = None, stdin: str | None = None) -> str:
        """Return the output of a command, which must succeed."""
        done = self.call(*words, user=user, stdin=stdin)
        assert done.returncode == 0, f"{words} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait(self, condition: Callable[[], bool], complaint: str) -> None:
        """Wait until a condition holds."""
        began = time.monotonic()
        while not condition():
            waited_s = time.monotonic() - began
            assert waited_s < WAIT_S, complaint
            time.sleep(pause_s(waited_s, BATCH_LEAST_S))

    @property
    def is_empty(self) -> bool:
        """Return True if there is neither a job nor a reservation."""
        return not self.run("qstat", "-u", "*").strip() and not self.run("qrstat", "-u", "*").strip()

    @property
    def unused_port(self) -> int:
        """Return a port where nobody answers."""
        return _free_ports()

    @property
    def _temporary(self) -> Path:
        """Return the place of jobs' directories, which are named by job numbers: a common place would let one cell
        remove those of another."""
        return self.root / "tmp"

    @property
    def _spool(self) -> Path:
        return self.root / "spool"


def _free_ports() -> int:
    start = os.getpid() % len(PORTS)
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        with contextlib.ExitStack() as stack:
            try:
                for each in (port, port + 1):
                    one = stack.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("", each))
            except OSError:
                continue
            return port
    raise AssertionError(f"no two free ports in {PORTS}")


def _missing() -> str:
    absent = [name for name in ("sge_qmaster", "sge_execd") if not (PROGRAMS / name).exists()]
    absent += [name for name in ("qsub", "qstat", "qconf") if shutil.which(name) is None]
    return f"{', '.join(absent)} missing; apt-get install {PACKAGES}" if absent else ""


@contextlib.contextmanager
def grid_engine_cell() -> Iterator[GridEngineCell]:
    """Run a cell during the block."""
    missing = _missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing}: CI tests everything")
    if missing:
        pytest.skip(missing)
    root = Path(tempfile.mkdtemp(prefix="koala-ge-", dir="/tmp"))
    cell = GridEngineCell(root)
    try:
        cell.create()
        cell.start_qmaster()
        cell.configure()
        cell.start_execd()
        yield cell
    finally:
        cell.stop()
        shutil.rmtree(root, ignore_errors=True)
