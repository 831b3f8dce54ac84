"""A real grid for tests: two Slurm clusters and a Grid Engine cell of a lab, under a real daemon.

The batch systems themselves report what they hold, never Koala's own tables. Without their programs the tests are
skipped, or fail where the environment variable CI is set.

A failing test shows the state of its grid. What it leaves behind is reported with its name and ended by force, so
that the next test finds idle clusters.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from koala import lab
from koala.client import Client
from koala.model.api import ComponentRun, JobDetail
from tests.support.lab_making import at_free_ports
from tests.support.live_daemon import Daemon, running_daemon, until

_logger = logging.getLogger(__name__)

SITES = ("alpha", "beta", "gamma")
SLURM_SITES = ("alpha", "beta")
# For each site.
PROCESSORS = 8
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "qsub": "gridengine-client",
    "sge_qmaster": "gridengine-master",
    "sge_execd": "gridengine-exec",
    "globus-gridftp-server": "globus-gridftp-server-progs",
    "globus-url-copy": "globus-gass-copy-progs",
}
WAIT_S = 180.0
# At most this many of the newest journal entries are shown when a test fails.
JOURNAL_SHOWN = 80
_DAEMONS = itertools.count(1)


def require_programs() -> None:
    """Skip, or fail in CI, if a batch system is not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/lib/gridengine"
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})
    if missing:
        words = f"real batch systems are missing; install them with: apt-get install {' '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)


@contextlib.contextmanager
def running_lab(**options: object) -> Iterator[lab.Lab]:
    """Run a lab during the block; nothing of it stays."""
    require_programs()
    directory = Path(tempfile.mkdtemp(prefix="koala-lab-"))
    directory.chmod(0o755)  # root's file servers run as nobody
    try:
        found = lab.up(at_free_ports(lab.LabOptions(directory=directory / "lab", **options)))  # type: ignore[arg-type]
        try:
            yield found
        finally:
            found.down()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def laplace(size: int, tolerance: str, **processors: int) -> str:
    """Return an MPI job that solves Laplace's equation with these processors at each site, and compares the result
    with the solution of a single process."""
    components = "".join(f"- {{processors: {count}, site: {site}}}\n" for site, count in processors.items())
    return (
        "type: mpi\napplication:\n  executable: python3\n  arguments: [-m, koala.examples.applications.laplace, "
        f'--verify, --size, "{size}", --tolerance, "{tolerance}"]\ncomponents:\n{components}'
    )


def waits_for(gate: Path) -> str:
    """Return words of a script that waits until a test makes this file, however slow the machine is."""
    return f"until [ -e '{gate}' ]; do sleep 0.3; done"


def has_the_right_answer(printed: str) -> bool:
    """Return True if the job found the solution of a single process, bit by bit; otherwise it prints NOT equal."""
    return re.search(r"^ +verified +equal to the serial solution$", printed, re.MULTILINE) is not None


class RealGrid:
    """A lab, a daemon on it, and the things that tests do with them repeatedly."""

    def __init__(self, lab: lab.Lab, daemon: Daemon, work_directories: Mapping[str, str]) -> None:
        self.lab = lab
        self.daemon = daemon
        self._work_directories = work_directories

    @property
    def client(self) -> Client:
        """The daemon's client, which notes the test that uses it."""
        return self.daemon.client

    # --------------------------------------------------------------------------------------------- jobs

    def submit(self, text: str) -> int:
        """Submit a job in YAML; return its id."""
        return self.client.submit(text).job.id

    def ended(self, job: int, wait_s: float = WAIT_S) -> JobDetail:
        """Return the job once it has ended."""
        summary = self.client.wait_ended(job, wait_s)
        assert summary.ended_at is not None, self.story(job)
        return self.client.job(job)

    def done(self, job: int, wait_s: float = WAIT_S) -> JobDetail:
        """Return the ended job, which must be done."""
        found = self.ended(job, wait_s)
        assert found.state == "done", self.story(job)
        return found

    def in_state(self, job: int, *states: str) -> None:
        """Wait until the job is in one of these states."""
        until(lambda: self.client.job(job).state in states, f"job {job} is {' or '.join(states)}", WAIT_S)

    def last_run(self, job: int) -> list[ComponentRun]:
        """Return the components of the job's last run, in order of their parts."""
        found = self.client.job(job)
        last = [each for each in found.components if each.run == found.runs and each.outcome == "done"]
        return sorted(last, key=lambda each: each.part)

    def printed(self, job: int, part: int = 0) -> str:
        """Return the output of a component of the last run."""
        return self.client.output(job, part=part).text

    def told(self, job: int) -> list[str]:
        """Return the story of a job, line by line, as ``koala job explain`` prints it."""
        return [line.text for line in self.client.explain(job).story]

    def story(self, job: int) -> str:
        """Return the history of a job, for a test that fails."""
        found = self.client.job(job)
        lines = [f"job {job} is {found.state}: {found.reason}"]
        lines += [
            f"  {each.token} part {each.part} at {each.site}: {each.outcome} {each.reason}"
            for each in found.components
        ]
        return "\n".join(lines)

    def state(self) -> str:
        """Return the present state for a test that fails: sites, jobs, the newest journal entries, and the batch
        systems' own listings."""

        def journal() -> list[str]:
            newest = deque(self.client.each_entry(), maxlen=JOURNAL_SHOWN)
            return [f"{each.at:.3f} {each.kind} {each.text}" for each in newest]

        def sites() -> list[str]:
            return [
                f"{each.name}: {each.trust}, {each.ours} ours, {each.others} others, {each.idle} idle; {each.problem}"
                for each in self.client.sites()
            ]

        def jobs() -> list[str]:
            return [self.story(job.id) for job in self.client.each_job() if job.ended_at is None]

        def queue(site: str) -> list[str]:
            return [f"{number} {name}" for number, name in self.queued(site).items()]

        def out(site: str) -> list[str]:
            return [f"{node}: {reason}" for node, reason in self.nodes_out(site).items()]

        parts: dict[str, Callable[[], list[str]]] = {"sites": sites, "jobs": jobs, "journal": journal}
        parts |= {f"queue of {site}": partial(queue, site) for site in SITES}
        parts |= {f"nodes out at {site}": partial(out, site) for site in SLURM_SITES}
        lines = [f"last used by {self.daemon.used_by}"]
        for title, look in parts.items():
            try:
                lines += [f"{title}:", *(f"  {line}" for line in look())]
            except Exception as error:  # the rest is worth the more
                lines.append(f"{title}: {error!r}")
        return "\n".join(lines)

    # -------------------------------------------------------------------------------------------- files

    def register(self, path: Path, size_bytes: int, *sites: str) -> None:
        """Make a file of zeros, and register it under its own name with a replica at each of these sites."""
        with path.open("wb") as file:
            file.truncate(size_bytes)
        for site in sites:
            self.client.register(path.name, site, path=str(path))

    # ------------------------------------------------------------------------------ the batch systems' own words

    def queued(self, site: str) -> dict[str, str]:
        """Return the jobs that a batch system holds, by id, with their names, from its own listing."""
        if site in SLURM_SITES:
            answer = self.lab.run(site, "squeue", "-a", "-h", "-o", "%A|%j")
            assert answer.code == 0, answer.stderr
            rows = [line.split("|", 1) for line in answer.stdout.splitlines() if line]
            return {row[0]: row[1] for row in rows}
        answer = self.lab.run(site, "qstat", "-u", "*", "-xml", "-r")
        assert answer.code == 0, answer.stderr
        jobs = ElementTree.fromstring(answer.stdout).iter("job_list")  # noqa: S314 - our own cell wrote it
        return {job.findtext("JB_job_number", ""): job.findtext("full_job_name", "") for job in jobs}

    def ours(self, site: str) -> list[str]:
        """Return the ids of Koala's jobs at a site."""
        return [number for number, name in self.queued(site).items() if name.startswith("koala-")]

    def cancel_as_operator(self, site: str, *ids: str) -> None:
        """End jobs with the batch system's own command, behind Koala's back."""
        self.lab.run(site, "scancel" if site in SLURM_SITES else "qdel", *ids)

    def local_job(self, site: str, processors: int, seconds: float, limit_s: int | None = None) -> str:
        """Submit a job of the site's own users, which Koala does not know; return its id. Slurm's limits are whole
        minutes."""
        self.daemon.note_use()
        script = f"#!/bin/sh\nsleep {seconds}\n"
        if site in SLURM_SITES:
            words = ["sbatch", "--parsable", "-n", str(processors), "-J", "local-user", "-o", "/dev/null"]
            words += [] if limit_s is None else [f"--time={math.ceil(limit_s / 60)}"]
        else:
            words = ["qsub", "-terse", "-S", "/bin/sh", "-N", "local-user", "-j", "y", "-o", "/dev/null"]
            words += ["-pe", "mpi", str(processors)]
            words += [] if limit_s is None else ["-l", f"h_rt={limit_s}"]
        answer = self.lab.run(site, *words, text=script)
        assert answer.code == 0, answer.stderr
        found = re.match(r"\d+", answer.stdout)
        assert found is not None, answer.stdout
        return found[0]

    def is_running(self, site: str, number: str) -> bool:
        """Return True if a job holds processors."""
        if site in SLURM_SITES:
            return self.lab.run(site, "squeue", "-h", "-j", number, "-o", "%T").stdout.strip() == "RUNNING"
        answer = self.lab.run(site, "qstat", "-u", "*", "-s", "r")
        return any(line.split()[:1] == [number] for line in answer.stdout.splitlines())

    def reservations(self, site: str) -> dict[str, datetime]:
        """Return the start of each of Koala's reservations at a site, from its batch system."""
        if site in SLURM_SITES:
            answer = self.lab.run(site, "scontrol", "show", "reservation", "-o")
            rows = [
                dict(word.split("=", 1) for word in line.split() if "=" in word)
                for line in answer.stdout.splitlines()
            ]
            found = {row["ReservationName"]: row["StartTime"] for row in rows if "ReservationName" in row}
        else:
            answer = self.lab.run(site, "qrstat", "-u", "*", "-xml")
            summaries = ElementTree.fromstring(answer.stdout).iter("ar_summary")  # noqa: S314 - our own cell wrote it
            found = {each.findtext("name", ""): each.findtext("start_time", "") for each in summaries}
        assert answer.code == 0, answer.stderr
        ours = {name: text for name, text in found.items() if name.startswith("koala_")}
        return {name: datetime.fromisoformat(text) for name, text in ours.items()}

    def nothing_is_held(self) -> None:
        """Wait until Koala believes that it holds nothing, and no batch system holds anything of it."""
        self._koala_holds_nothing()
        until(lambda: not any(self.ours(site) for site in SITES), "no claim stays behind at any cluster", WAIT_S)

    def _koala_holds_nothing(self) -> None:
        until(lambda: not any(site.ours for site in self.client.sites()), "Koala holds nothing", WAIT_S)

    def clear(self) -> None:
        """Cancel whatever a test has left, at Koala and at the clusters, and wait until all is idle. What does not
        end is an error that names the test, and is ended by force."""
        try:
            self._clear()
        except Exception as error:
            left = self.state()
            self.sweep()
            raise AssertionError(f"{self.daemon.used_by} left behind what does not go: {error}\n{left}") from error

    def sweep(self) -> None:
        """End the jobs of this daemon at the clusters, behind its back."""
        for site in SITES:
            left = self._own(site)
            if left:
                self.cancel_as_operator(site, *left)
                until(
                    partial(self._has_no_own, site), f"jobs left at {site} by {self.daemon.used_by} are ended", WAIT_S
                )

    def _own(self, site: str) -> list[str]:
        """Return the ids of this daemon's jobs at a site; other daemons of the lab have work directories of their
        own."""
        mark = Path(self._work_directories[site]) / "mark"
        ours = f"-{mark.read_text()}" if mark.exists() else None
        return [number for number, name in self.queued(site).items() if ours is not None and name.endswith(ours)]

    def _has_no_own(self, site: str) -> bool:
        return not self._own(site)

    def nodes_out(self, site: str) -> dict[str, str]:
        """Return the nodes that Slurm itself has taken out, with the reasons, such as a job that did not start in
        time."""
        answer = self.lab.run(site, "sinfo", "-h", "-N", "-R", "-o", "%N|%E")
        return dict(line.strip().split("|", 1) for line in answer.stdout.splitlines() if "|" in line)

    def _put_nodes_back(self) -> None:
        for site in SLURM_SITES:
            for node, reason in self.nodes_out(site).items():
                _logger.warning("Slurm had taken node %s of %s out: %s", node, site, reason)
                self.lab.run(site, "scontrol", "update", f"nodename={node}", "state=resume")

    def _clear(self) -> None:
        for job in self.client.each_job(states=["waiting", "placed", "claiming", "starting", "running"]):
            self.client.cancel(job.id)
        for site in SITES:
            local = [number for number, name in self.queued(site).items() if not name.startswith("koala-")]
            if local:
                self.cancel_as_operator(site, *local)
        self._koala_holds_nothing()
        until(lambda: not any(self.queued(site) for site in SITES), "the clusters are idle", WAIT_S)
        self._put_nodes_back()
        for site in SITES:
            self.client.resume(site)
        until(lambda: all(self.client.probe(site).idle == PROCESSORS for site in SITES), "all is free", WAIT_S)


@contextlib.contextmanager
def real_grid(
    lab: lab.Lab,
    directory: Path,
    mbit_s: float = 10_000.0,
    *,
    gridftp: bool = False,
    sites: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
    program: Path | None = None,
    **scheduler: object,
) -> Iterator[RealGrid]:
    """Run a daemon on a lab during the block, with links of this speed and these parameters of the scheduler. Files
    are copied at that speed, or go from server to server as fast as possible. ``sites`` has further fields for each
    site; ``environment`` and ``program`` are as for ``running_daemon``."""
    grid = yaml.safe_load(lab.grid_file.read_text(encoding="utf-8"))
    grid["links"]["default"]["bandwidth_mbit_s"] = mbit_s
    grid["scheduler"].update(scheduler)
    number = next(_DAEMONS)
    for name, site in grid["sites"].items():
        # A daemon has the work directories for itself.
        site["work_directory"] += f"-{number}"
        if not gridftp:
            site.pop("file_server", None)
        for key, value in (sites or {}).get(name, {}).items():
            site[key] = {**site.get(key, {}), **value} if isinstance(value, dict) else value
    text = yaml.safe_dump(grid, sort_keys=False)
    found: RealGrid | None = None
    try:
        with running_daemon(directory, grid=text, environment=environment, program=program) as daemon:
            found = RealGrid(lab, daemon, {name: site["work_directory"] for name, site in grid["sites"].items()})
            try:
                until(
                    lambda: all(site.reported_at for site in daemon.client.sites()), "all sites have reported", WAIT_S
                )
                yield found
            except Exception as error:
                error.add_note(found.state())
                raise
            found.clear()
    finally:
        if found is not None:
            found.sweep()
