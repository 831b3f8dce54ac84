"""The whole way over ssh: a daemon that sees nothing of its clusters' files and has only their login hosts.

The hosts are one sshd on loopback. Where this user may, the daemon gets an empty directory in place of the clusters'
own, so that anything done there without ssh fails.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.lab import Lab
from tests.support.live_daemon import until
from tests.support.paths import SUPPORT
from tests.support.real_grid import SITES, WAIT_S, RealGrid, has_the_right_answer, laplace, real_grid, waits_for
from tests.support.ssh_server import SshServer, ssh_server

# The account at this one knows the other hosts; those at the others know nobody.
KNOWING = "gamma"
PATH = "/usr/lib/gridengine:/usr/local/bin:/usr/bin:/bin"
DATA_BYTES = 20_000_000
EVERYWHERE = "".join(f"- {{processors: 2, site: {site}}}\n" for site in SITES)


class FarGrid:
    """Three clusters behind ssh. ``homes`` holds their work directories, ``said`` what ssh was called with at the
    site that knows the others' hosts."""

    def __init__(self, grid: RealGrid, server: SshServer, homes: Path, said: Path) -> None:
        self.grid = grid
        self.server = server
        self.homes = homes
        self.said = said

    def notes(self, name: str) -> Path:
        """A file at the clusters that applications write into."""
        return self.homes / name

    def noted(self, name: str) -> list[str]:
        """What they wrote, sorted."""
        path = self.notes(name)
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def submit_waiting(self, name: str) -> int:
        """Submit a job everywhere whose components note their start and, once it may go on, their end."""
        log = self.notes(name)
        return self.grid.submit(
            "application:\n  script: |\n"
            f"    echo start $KOALA_COMPONENT >>{log}; {waits_for(self._gate(name))}\n"
            f"    echo end $KOALA_COMPONENT >>{log}\n"
            f"components:\n{EVERYWHERE}"
        )

    def go_on(self, name: str) -> None:
        """Let the components of a job come to their end."""
        self._gate(name).touch()

    def _gate(self, name: str) -> Path:
        return self.homes / f"{name}-gate"

    def runs_everywhere(self, job: int, name: str) -> None:
        """Wait until all its components run."""
        self.grid.in_state(job, "running")
        until(lambda: len(self.noted(name)) == len(SITES), f"all components of {name} have started", WAIT_S)

    def ran_once(self, job: int, name: str) -> None:
        """It ended well, in one run, of which every component ran once."""
        found = self.grid.done(job)
        assert found.runs == 1, self.grid.story(job)
        assert self.noted(name) == ["end 0", "end 1", "end 2", "start 0", "start 1", "start 2"]
        self.grid.nothing_is_held()


def can_hide(directory: Path) -> bool:
    """Whether this user can hide a directory from a process."""
    words = ("unshare", "--mount", "mount", "-t", "tmpfs", "none", str(directory))
    return shutil.which("unshare") is not None and subprocess.run(words, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def far(the_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarGrid]:
    """A daemon for all tests here, and the way to its clusters."""
    homes, directory = tmp_path_factory.mktemp("homes"), tmp_path_factory.mktemp("far")
    said = homes / "said"
    with ssh_server(directory / "ssh", [f"{site}-login" for site in SITES]) as server:
        sites: dict[str, Any] = {
            site: {
                "ssh": f"{site}-login",
                "work_directory": str(homes / site),
                "environment": {"PATH": f"{server.knowing(said)}:{PATH}" if site == KNOWING else PATH},
                "search_path": [str(Path(sys.executable).parent)],
            }
            for site in SITES
        }
        with real_grid(
            the_lab,
            directory,
            sites=sites,
            environment={"KOALA_SSH_CONFIG": str(server.config), "HIDDEN": str(homes)},
            program=SUPPORT / "hidden_koala.py" if can_hide(homes) else None,
            barrier_timeout_s=30,
            answer_timeout_s=20,
            cooldown_s=5,
        ) as grid:
            yield FarGrid(grid, server, homes, said)


@pytest.fixture(autouse=True)
def _idle_after(far: FarGrid) -> Iterator[None]:
    yield
    far.grid.clear()


def test_a_job_is_coallocated_over_ssh_and_its_output_comes_back(far: FarGrid) -> None:
    job = far.grid.submit(
        "application:\n  script: |\n    echo $KOALA_COMPONENT at ${SLURM_CLUSTER_NAME:-$SGE_CELL}; pwd -P\n"
        "    echo oh >&2\n"
        f"components:\n{EVERYWHERE}"
    )
    far.grid.done(job)
    for part, site in enumerate(SITES):
        said, where = far.grid.printed(job, part).splitlines()
        assert said == f"{part} at {site}"
        assert Path(where).is_relative_to(far.homes / site / "components")
        assert far.grid.client.output(job, part=part, stream="stderr").text == "oh\n"
    assert len({each.released_at for each in far.grid.last_run(job)}) == 1, "all start at one moment"
    far.grid.nothing_is_held()


def test_the_daemon_does_without_the_clusters_files(far: FarGrid) -> None:
    """It has put nothing where they are, as far as it can see, and the clusters have all of it."""
    if not can_hide(far.homes):
        pytest.skip("this user cannot hide a directory from a process; root can")
    assert list(Path(f"/proc/{far.grid.daemon.pid}/root{far.homes}").iterdir()) == []
    assert {path.name for path in far.homes.iterdir()} >= set(SITES)


def test_an_mpi_job_has_one_world_over_two_clusters_behind_ssh_and_the_right_answer(far: FarGrid) -> None:
    job = far.grid.submit(laplace(24, "1e-2", alpha=2, gamma=1))
    far.grid.done(job)
    printed = far.grid.printed(job)
    assert "with 2 + 1 processes" in printed
    assert has_the_right_answer(printed), printed


@pytest.mark.parametrize("target", [KNOWING, "beta"])
def test_a_file_is_brought_from_a_cluster_to_another(far: FarGrid, target: str, tmp_path: Path) -> None:
    """By rsync where the target's account reaches the source's host, or else through the daemon's machine."""
    name = f"data-{target}"
    content = random.Random(target).randbytes(DATA_BYTES)
    (tmp_path / name).write_bytes(content)
    far.grid.client.register(name, "alpha", path=str(tmp_path / name))
    far.said.write_text("")
    job = far.grid.submit(
        f"input_files: [{name}]\napplication: {{script: sha256sum <{name}}}\n"
        f"components: [{{processors: 1, site: {target}}}]\n"
    )
    found = far.grid.done(job)
    assert [(each.target, each.ok) for each in found.transfers] == [(target, True)]
    assert far.grid.printed(job).split()[0] == hashlib.sha256(content).hexdigest()
    assert ("rsync --server" in far.said.read_text()) == (target == KNOWING)


def test_a_program_travels_over_ssh(far: FarGrid, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "I came to $KOALA_COMPONENT"\n')
    program.chmod(0o755)
    text = f"application: {{executable: ./program}}\ncomponents:\n{EVERYWHERE}"
    job = far.grid.client.submit(text, files=[program]).job.id
    far.grid.done(job)
    assert [far.grid.printed(job, part) for part in range(len(SITES))] == [
        f"I came to {part}\n" for part in range(len(SITES))
    ]


def test_a_daemon_that_is_killed_finds_its_components_again(far: FarGrid) -> None:
    job = far.submit_waiting("killed")
    far.runs_everywhere(job, "killed")
    far.grid.daemon.kill()
    far.grid.daemon.start()
    far.go_on("killed")
    far.ran_once(job, "killed")


def test_connections_that_are_cut_for_a_while_lose_nothing(far: FarGrid) -> None:
    running = far.submit_waiting("cut")
    far.runs_everywhere(running, "cut")
    starting = far.submit_waiting("cut-at-its-start")
    far.server.stop()
    try:
        until(lambda: all(site.silent_reason for site in far.grid.client.sites()), "all clusters are silent")
        far.go_on("cut")
        until(lambda: len(far.noted("cut")) == 6, "the application goes on and ends all the same")
        assert far.grid.client.job(running).state == "running", "silence is not an end"
    finally:
        far.server.start()
    far.go_on("cut-at-its-start")
    far.ran_once(running, "cut")
    far.ran_once(starting, "cut-at-its-start")


def test_a_job_is_cancelled_over_ssh(far: FarGrid) -> None:
    job = far.submit_waiting("cancelled")
    far.runs_everywhere(job, "cancelled")
    far.grid.client.cancel(job)
    assert far.grid.ended(job).state == "cancelled"
    far.grid.nothing_is_held()
    assert not any(line.startswith("end") for line in far.noted("cancelled"))
