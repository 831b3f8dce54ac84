"""A small private Slurm cluster for tests: a controller and some nodes on loopback, in the foreground, no munge.

``slurm_cluster()`` runs one and stops it at the end; its daemons end with the test's process. Without Slurm it skips
the test, or fails it where the environment variable CI is set.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.pauses import BATCH_LEAST_S, pause_s
from tests.support.ports import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "srun")
PACKAGES = "slurmctld slurmd slurm-client"
WAIT_S = 120.0

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """Set PR_SET_PDEATHSIG in the child."""
    _libc.prctl(1, signal.SIGTERM)


class SlurmCluster:
    """One cluster below ``root``; ``environment`` is what its client commands need.

    Beside its nodes it has one more, in the partition ``apart``, which ``clear`` leaves alone. ``select`` is the
    resource that is shared out, ``node`` has further fields of each node, and ``extra`` are further lines. ``gpus``
    are the kinds of the GPUs of each node, which ``node`` must list too.
    """

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 2,
        cpus: int = 4,
        select: str = "CR_CPU",
        node: str = "",
        extra: Sequence[str] = (),
        gpus: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.name = "koalatest"
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.cpus = cpus
        self.environment = {"SLURM_CONF": str(root / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._all_nodes = [*self.nodes, "apart1"]
        self._ports = free_ports(nodes + 2)
        for part in ("state", "spool", "log"):
            (root / part).mkdir()
        (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        if gpus:
            self._fake_gpus(gpus)
            extra = ["GresTypes=gpu", *extra]
        (root / "slurm.conf").write_text(self._configuration(select, node, extra))

    def _fake_gpus(self, kinds: Sequence[str]) -> None:
        """Give each node a GPU of each of these kinds, represented by a plain file."""
        lines = []
        for node in self._all_nodes:
            for number, kind in enumerate(kinds):
                file = self.root / f"{node}-gpu{number}"
                file.touch()
                lines.append(f"NodeName={node} Name=gpu Type={kind} File={file}")
        (self.root / "gres.conf").write_text("\n".join(lines) + "\n")

    def _configuration(self, select: str, more: str, extra: Sequence[str]) -> str:
        user, root, host = getpass.getuser(), self.root, socket.gethostname().split(".")[0]
        nodes = [
            f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs={self.cpus} {more}"
            for node, port in zip(self._all_nodes, self._ports[1:], strict=True)
        ]
        partition = f"Nodes={','.join(self.nodes)} MaxTime=INFINITE State=UP"
        lines = [
            f"ClusterName={self.name}",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={self._ports[0]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/none",
            "CredType=cred/none",
            f"StateSaveLocation={root}/state",
            f"SlurmdSpoolDir={root}/spool/%n",
            f"SlurmctldPidFile={root}/slurmctld.pid",
            f"SlurmdPidFile={root}/slurmd-%n.pid",
            f"SlurmctldLogFile={root}/log/slurmctld",
            f"SlurmdLogFile={root}/log/%n",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            "SelectType=select/cons_tres",
            f"SelectTypeParameters={select}",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_continue",
            "PriorityType=priority/basic",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=CANCEL",
            "KillWait=1",
            "SlurmctldTimeout=30",
            "SlurmdTimeout=30",
            "MessageTimeout=5",
            *nodes,
            f"PartitionName=low {partition} PriorityTier=1",
            f"PartitionName=main {partition} PriorityTier=10 PreemptMode=OFF Default=YES",
            "PartitionName=apart Nodes=apart1 MaxTime=INFINITE State=UP",
            *extra,
        ]
        return "\n".join(lines) + "\n"

    # --------------------------------------------------------------------------------------- its daemons

    def start(self) -> None:
        """Start it; return when all nodes are idle."""
        self.start_controller()
        for node in self._all_nodes:
            self._spawn(node, ["slurmd", "-D", "-N", node])
        _until(lambda: self._idle_nodes() == set(self._all_nodes), "the nodes did not come up")

    def start_controller(self) -> None:
        """Start the controller; return when it answers."""
        self._spawn("slurmctld", ["slurmctld", "-D"])
        _until(lambda: "UP" in self.run("scontrol", "ping", check=False), "the controller did not come up")

    def stop_controller(self) -> None:
        """Stop the controller as an operator does; jobs run on."""
        self._end("slurmctld")

    def stop(self) -> None:
        """End all jobs and daemons."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(AssertionError):
                self.clear("main", "low", "apart")
        for name in list(self._daemons):
            self._end(name)

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _idle_nodes(self) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split())

    # ------------------------------------------------------------------------------------------ commands

    def run(self, *command: str, check: bool = True, user: str | None = None) -> str:
        """Return the output of a client command, run by this user or, as root, by another one."""
        words = [*command] if user is None else ["runuser", "-u", user, "--", *command]
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def submit(self, *options: str, text: str = "exec sleep 600", user: str | None = None) -> str:
        """Submit a local user's job; return its id."""
        wrapped = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", text)
        return self.run(*wrapped, user=user).strip()

    def ids_of(self, name: str) -> list[str]:
        """Return the numbers of the unfinished jobs with this prefix in their names, except those apart."""
        lines = self.run("squeue", "-h", "-p", "main,low", "-o", "%A %j").splitlines()
        return [line.split()[0] for line in lines if line.split()[1].startswith(name)]

    def clear(self, *partitions: str) -> None:
        """End all jobs of some partitions, by default all except those apart."""
        names = partitions or ("main", "low")
        for name in names:
            self.run("scancel", "-p", name, check=False)
        _until(lambda: not self.run("squeue", "-h", "-p", ",".join(names), check=False).strip(), "jobs did not end")

    def job_names(self) -> list[str]:
        """Return the names of all unfinished jobs, except those apart."""
        return self.run("squeue", "-h", "-p", "main,low", "-o", "%j").split()


def _until(condition: object, complaint: str) -> None:
    assert callable(condition)
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        assert waited_s < WAIT_S, complaint
        time.sleep(pause_s(waited_s, BATCH_LEAST_S))


@contextlib.contextmanager
def slurm_cluster(
    *,
    nodes: int = 2,
    cpus: int = 4,
    select: str = "CR_CPU",
    node: str = "",
    extra: Sequence[str] = (),
    gpus: Sequence[str] = (),
) -> Iterator[SlurmCluster]:
    """Run a cluster during the block."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        complaint = f"{missing[0]} is missing; install the packages {PACKAGES}"
        if os.environ.get("CI"):
            pytest.fail(complaint)
        pytest.skip(complaint)
    root = Path(tempfile.mkdtemp(prefix="koala-slurm-", dir="/tmp"))
    root.chmod(0o755)
    cluster = SlurmCluster(root, nodes=nodes, cpus=cpus, select=select, node=node, extra=extra, gpus=gpus)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
