"""The programs of the batch system for tests, in one file: it does what its name says.

A cluster is the directory ``$SPOOL_ROOT``: ``cluster.json`` says what it has, ``jobs/ID.json`` what became of a job.
Jobs start in the order in which they came, as soon as their processors are idle; no daemon is needed for that, since
whoever submits or ends looks who is next.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.argv[0]).name
LOOK_S = 0.02
# A job that is deleted gets SIGKILL so long after SIGTERM.
KILL_AFTER_S = 1.0


class Cluster:
    """The files of a cluster, while nobody else changes them."""

    def __init__(self) -> None:
        self.root = Path(os.environ.get("SPOOL_ROOT", "/nonexistent"))
        if not (self.root / "cluster.json").exists():
            sys.exit(f"spool: there is no cluster in {self.root}")
        self.what = json.loads((self.root / "cluster.json").read_text())

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def jobs(self) -> list[dict[str, Any]]:
        paths = sorted((self.root / "jobs").glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in paths]

    def save(self, job: dict[str, Any]) -> None:
        new = self.root / "jobs" / f"{job['id']}.new"
        new.write_text(json.dumps(job))
        new.rename(new.with_suffix(".json"))

    def held(self) -> int:
        return sum(job["processors"] for job in self.jobs() if job["state"] in ("running", "ending"))

    def start_next(self) -> None:
        for job in self.jobs():
            if job["state"] != "pending":
                continue
            if job["processors"] > self.what["processors"] - self.held():
                return
            self.save(job | {"state": "running"})
            command = [sys.executable, __file__, "run", str(job["id"])]
            subprocess.Popen(
                command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd="/",
            )  # fmt: skip

    def job(self, number: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "jobs" / f"{number}.json").read_text())
        return found


def spsub(cluster: Cluster) -> None:
    """Submit a job, and print its number."""
    parser = argparse.ArgumentParser()
    for name in ("name", "queue", "class", "home", "log"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--processors", type=int)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("script")
    asked = vars(parser.parse_args())
    if asked["queue"] not in (None, cluster.what["queue"]):
        sys.exit(f"spool: there is no queue {asked['queue']}")
    if asked["processors"] > cluster.what["processors"]:
        sys.exit(f"spool: too many processors: {asked['processors']}")
    if asked.pop("check"):
        return
    with cluster.alone():
        number = 1 + len(cluster.jobs())
        cluster.save(asked | {"id": number, "state": "pending", "code": None, "at": time.time()})
        cluster.start_next()
    sys.stdout.write(f"{number}\n")


def spstat(cluster: Cluster) -> None:
    """Print all jobs, or with -q the queues, or with -n the nodes."""
    words = sys.argv[1:]
    with cluster.alone():
        processors = cluster.what["processors"]
        if words == ["-q"]:
            said = f"{cluster.what['queue']} {processors}"
        elif words == ["-n"]:
            said = f"{os.uname().nodename} {processors} {cluster.held()} {os.getloadavg()[0]}"
        else:
            said = json.dumps({"processors": processors, "jobs": cluster.jobs()})
    sys.stdout.write(f"{said}\n")


def spdel(cluster: Cluster) -> None:
    """End all jobs of a name."""
    with cluster.alone():
        for job in cluster.jobs():
            if job["name"] == sys.argv[1] and job["state"] in ("pending", "running"):
                cluster.save(job | {"state": "cancelled" if job["state"] == "pending" else "ending"})
        cluster.start_next()


def run(cluster: Cluster) -> None:
    """Run a job to its end."""
    job = cluster.job(sys.argv[2])
    with Path(job["log"]).open("ab") as log:
        child = subprocess.Popen(
            ["sh", job["script"]],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=job["home"],
            env=os.environ | {"SPOOL_PROCESSORS": str(job["processors"]), "SPOOL_CLASS": job["class"] or ""},
        )  # fmt: skip
    told_at = None
    while child.poll() is None:
        if cluster.job(sys.argv[2])["state"] == "ending":
            now = time.monotonic()
            told_at = told_at or now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL if now - told_at > KILL_AFTER_S else signal.SIGTERM)
        time.sleep(LOOK_S)
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    with cluster.alone():
        job = cluster.job(sys.argv[2])
        cluster.save(job | {"state": "cancelled" if job["state"] == "ending" else "done", "code": code})
        cluster.start_next()


if __name__ == "__main__":
    command = run if sys.argv[1:2] == ["run"] else {"spsub": spsub, "spstat": spstat, "spdel": spdel}[PROGRAM]
    command(Cluster())
