"""A batch system that is registered by one line, as the owner of a grid and its users meet it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sites.batch.spool.cluster import PROCESSORS, SpoolCluster
from tests.support.live_daemon import WAIT_S, running_daemon
from tests.support.paths import child_environment

KOALA = (sys.executable, "-m", "tests.sites.batch.spool.with_spool")


@pytest.fixture
def cluster(tmp_path: Path) -> SpoolCluster:
    return SpoolCluster(tmp_path / "spool")


def told(*words: str, environment: dict[str, str] | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """What ``koala`` says to these words, with this exit code."""
    done = subprocess.run(
        [*KOALA, *words], env={**os.environ, **child_environment(), **(environment or {})},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def grid_of(cluster: SpoolCluster, directory: Path, **keys: str) -> str:
    """A grid file with the cluster as the site alpha."""
    site = {
        "kind": "spool",
        "processors": PROCESSORS,
        "environment": cluster.environment,
        "work_directory": str(directory / "work"),
        **keys,
    }
    return json.dumps({"sites": {"alpha": site}}, indent=1)


def written(directory: Path, text: str) -> str:
    grid = directory / "grid.yaml"
    grid.write_text(text)
    return str(grid)


def test_its_keys_are_in_the_schema_and_a_wrong_one_is_named(cluster: SpoolCluster, tmp_path: Path) -> None:
    site = json.loads(told("schema", "grid").stdout)["$defs"]["SiteText"]["properties"]
    assert "spool" in site["kind"]["enum"]
    assert site["job_class"]["description"] == "under the Spool: the class of jobs, low or high"
    assert "under Slurm or Grid Engine or the Spool" in site["work_directory"]["description"]
    for keys, words in (
        ({"job_klass": "low"}, ("'job_klass' is not a key that is known here", "did you mean 'job_class'?")),
        ({"job_class": "middle"}, ("'middle' is not a class of jobs", "write low or high")),
        ({"memory_complex": "mem"}, ("'memory_complex' is for sites under Grid Engine", "of the kind spool")),
        ({"kind": "slurm", "job_class": "low"}, ("'job_class' is for sites under the Spool", "of the kind slurm")),
        ({"kind": "spoo"}, ("'spoo' is not one of the choices", "'grid_engine' or 'spool'")),
    ):
        grid = written(tmp_path, grid_of(cluster, tmp_path, **keys))
        said = " ".join(told("site", "check", "alpha", "--grid", grid, code=2).stderr.split())
        assert all(word in said for word in words), said


def test_its_clusters_are_found_and_checked(cluster: SpoolCluster, tmp_path: Path) -> None:
    grid = str(tmp_path / "grid.yaml")
    told("grid", "init", "--no-ssh", "--out", grid, environment=cluster.environment)
    text = Path(grid).read_text()
    assert "kind: spool" in text
    assert "job_class: low" in text
    assert f'SPOOL_ROOT: "{cluster.environment["SPOOL_ROOT"]}"' in text
    Path(grid).write_text(text.replace("~/koala/pool", str(tmp_path / "work")))
    answer = json.loads(
        told("site", "check", "pool", "--run", "--json", "--grid", grid, environment=cluster.environment).stdout
    )
    assert answer["kind"] == "spool"
    assert {step["result"] for step in answer["steps"] if step["step"] != "mpiexec"} == {"passed"}


def test_a_job_runs_there_beside_those_of_others(cluster: SpoolCluster, tmp_path: Path) -> None:
    cluster.submit("other", 1, "exec sleep 600", tmp_path)
    text = grid_of(cluster, tmp_path, queue="batch", job_class="high")
    # In place of "python -m koala".
    become = ("sh", "-c", f'shift 3; exec {shlex.join(KOALA)} "$@"', "sh")
    try:
        with running_daemon(tmp_path, grid=text, through=become, environment=child_environment()) as daemon:
            script = "echo $SPOOL_CLASS; [ $SPOOL_PROCESSORS = 3 ]"
            description = {"application": {"script": script}, "components": [{"processors": 3, "site": "alpha"}]}
            job = daemon.client.submit(json.dumps(description), source="job.yaml").job.id
            found = daemon.client.wait_ended(job, timeout_s=WAIT_S)
            assert found.state == "done", daemon.output
            (site,) = daemon.client.sites()
            assert (site.name, site.kind, site.processors) == ("alpha", "spool", PROCESSORS)
    finally:
        cluster.run("spdel", "other")
