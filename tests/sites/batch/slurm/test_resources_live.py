"""What Koala takes for idle on a real Slurm that shares out memory: so many start at once, and one more does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchListing, BatchSubmission
from tests.support.pauses import BATCH_LEAST_S, pause_s
from tests.support.slurm_cluster import WAIT_S, SlurmCluster, slurm_cluster

OTHER = "nobody"


@pytest.fixture(scope="module")
def by_processor() -> Iterator[SlurmCluster]:
    """Two nodes of 4 processors and 4000 MB; nothing says what a job gets that asks for no memory."""
    with slurm_cluster(select="CR_CPU_Memory", node="RealMemory=4000", extra=["Licenses=ansys:4"]) as running:
        running.run("scontrol", "update", "nodename=n1", "features=big,fast")
        running.run("scontrol", "update", "nodename=n2", "features=fast")
        yield running


@pytest.fixture(scope="module")
def by_core() -> Iterator[SlurmCluster]:
    """Two nodes of 4 cores with 2 threads each; 3600 MB are for jobs, of which a thread gets 500."""
    node = "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=4000 MemSpecLimit=400"
    with slurm_cluster(select="CR_Core_Memory", cpus=8, node=node, extra=["DefMemPerCPU=500"]) as running:
        yield running


@pytest.fixture(scope="module")
def one_of_two_threads() -> Iterator[SlurmCluster]:
    """Two nodes of 4 cores that could run 2 threads each, of which one counts as a processor."""
    node = "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=4000"
    with slurm_cluster(select="CR_Core_Memory", cpus=4, node=node) as running:
        yield running


class Setting(msgspec.Struct, frozen=True):
    """How it is asked, what the partition says, who is there already, and how many processors are to be idle of how
    many that are there."""

    idle: int
    there: int = 8
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    partition: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    before_user: str | None = None


SMALL = ("-n", "1", "-w", "n1", "--mem=100")
LARGE = ("-n", "1", "-w", "n1", "--mem=1200")
UNSET = ("DefMemPerCPU=0", "MaxMemPerCPU=0")

SETTINGS = {
    "nothing is named, so it is all of a node": Setting(4, before=(SMALL,)),
    "all of a node": Setting(4, options=("--mem=0",), before=(SMALL,)),
    "none for a processor, which is all of a node": Setting(4, options=("--mem-per-cpu=0",), before=(SMALL,)),
    "some of each node": Setting(4, options=("--mem", "3950"), before=(SMALL,)),
    "less of each node": Setting(7, options=("--mem=2000M",), before=(SMALL,)),
    "more for a processor than its share": Setting(4, there=4, options=("--mem-per-cpu=1500",), before=(SMALL,)),
    "by a variable": Setting(4, there=4, environment=(("SBATCH_MEM_PER_CPU", "1500"),), before=(SMALL,)),
    "of the sums of others' memory": Setting(5, options=("--mem-per-cpu=900",), before=(LARGE, LARGE)),
    "the partition's default": Setting(5, partition=("DefMemPerCPU=900",), before=(LARGE, LARGE)),
    "more than one processor may have": Setting(
        3, there=4, options=("--mem-per-cpu=1500",), partition=("MaxMemPerCPU=1000",), before=(LARGE,)
    ),
    "so much of a node that it takes three processors": Setting(
        4, options=("--mem=2500",), partition=("MaxMemPerCPU=1000",), before=(SMALL, SMALL)
    ),
    "a feature": Setting(3, there=4, options=("-C", "big", "--mem=1G"), before=(SMALL,)),
    "two features": Setting(4, there=4, options=("--constraint=big&fast", "--mem=1G")),
    "one of two features": Setting(7, options=("-Cbig|fast", "--mem=1G"), before=(SMALL,)),
    "whole nodes": Setting(4, options=("--exclusive", "--mem=100"), before=(SMALL,)),
    "whole nodes in another word": Setting(4, options=("--exclusive=exclusive", "--mem=100"), before=(SMALL,)),
    "whole nodes with memory for each processor": Setting(
        8, options=("--exclusive", "--mem-per-cpu=1000"), before=()
    ),
    "nodes without others": Setting(4, options=("--exclusive=user", "--mem=100"), before=(SMALL,), before_user=OTHER),
    "nodes of our own": Setting(7, options=("--exclusive=user", "--mem=100"), before=((*SMALL, "--exclusive=user"),)),
    "nodes that another keeps to itself": Setting(
        4, options=("--mem=100",), before=((*SMALL, "--exclusive=user"),), before_user=OTHER
    ),
}

BY_CORE = {
    "the cluster's default, in whole cores": Setting(12, there=12),
    "beside another, in whole cores": Setting(10, there=12, before=(("-n", "1", "-w", "n1"),)),
    "all that is for jobs": Setting(16, there=16, options=("--mem=3600",)),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_so_many_start_at_once_as_are_told_idle_and_one_more_does_not(
    by_processor: SlurmCluster, setting: Setting
) -> None:
    try:
        for change in setting.partition:
            by_processor.run("scontrol", "update", "partitionname=main", change)
        counted_right(by_processor, setting)
    finally:
        by_processor.clear()
        for change in UNSET if setting.partition else ():
            by_processor.run("scontrol", "update", "partitionname=main", change)


@pytest.mark.parametrize("setting", BY_CORE.values(), ids=BY_CORE)
def test_where_cores_are_given_whole_as_many_start_as_are_told_idle(by_core: SlurmCluster, setting: Setting) -> None:
    try:
        counted_right(by_core, setting)
    finally:
        by_core.clear()


def test_a_listing_tells_when_jobs_of_others_reach_their_time_limits(by_processor: SlurmCluster) -> None:
    try:
        before = time.time()
        for words in (["-t", "10"], ["-t", "UNLIMITED"]):
            assert starts(by_processor, by_processor.submit("-p", "main", "-n", "2", "--mem-per-cpu=100", *words))
        ((end_at, processors),) = listed(by_processor).releases
        assert processors == 2
        assert before - 1 <= end_at - 600 <= time.time() + 1
    finally:
        by_processor.clear()


def test_threads_that_are_no_processors_take_no_memory(one_of_two_threads: SlurmCluster) -> None:
    counted_right(one_of_two_threads, Setting(2, there=2, options=("--mem-per-cpu=3000",)))


@pytest.mark.parametrize(
    ("options", "result", "words"),
    [
        ([], "warned", "all memory of each node (as no default is set): it could get 4 of 7 idle processors"),
        (["--mem-per-cpu=1500"], "passed", "1500 MB a processor (as --mem-per-cpu says): it could get 4 of 7 idle"),
        (["--mem=5G"], "warned", "5120 MB on each node (as --mem says): no node has what it asks for"),
    ],
)
def test_a_check_says_what_a_job_asks_for_and_what_that_leaves(
    by_processor: SlurmCluster, tmp_path: Path, options: list[str], result: str, words: str
) -> None:
    try:
        assert starts(by_processor, by_processor.submit("-p", "main", *SMALL))
        site = {"kind": "slurm", "processors": 4, "environment": by_processor.environment, "submit_options": options}
        grid = tmp_path / "grid.yaml"
        grid.write_text(json.dumps({"sites": {"alpha": {**site, "work_directory": str(tmp_path / "work")}}}))
        said = CliRunner().invoke(koala, ["site", "check", "alpha", "--grid", str(grid), "--json"])
        found = {step["step"]: step for step in json.loads(said.stdout)["steps"]}
        assert found["memory"]["result"] == result
        assert words in found["memory"]["found"]
    finally:
        by_processor.clear()


def counted_right(cluster: SlurmCluster, setting: Setting) -> None:
    for words in setting.before:
        number = cluster.submit("-p", "main", *words, user=setting.before_user)
        assert starts(cluster, number)
    told = listed(cluster, submit_options=setting.options, environment=setting.environment)
    assert (told.processors - told.others, told.processors) == (setting.idle, setting.there)
    assert not starts(cluster, submitted(cluster, setting, setting.idle + 1))
    assert starts(cluster, submitted(cluster, setting, setting.idle))
    assert listed(cluster, submit_options=setting.options, environment=setting.environment).others == setting.there


def listed(cluster: SlurmCluster, **fields: Any) -> BatchListing:
    """What Koala sees of the partition."""
    system = SlurmSystem(BatchSettings(work_directory="/w", queue="main", **fields))
    return system.parse_listing(cluster.run("sh", "-c", system.listing()))


def submitted(cluster: SlurmCluster, setting: Setting, processors: int) -> str:
    """A job that asks as those of the site do; its number, or nothing if it is refused."""
    variables = [f"{name}={value}" for name, value in setting.environment]
    words = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "main", f"--ntasks={processors}", "--cpus-per-task=1"]
    return cluster.run("env", *variables, *words, *setting.options, "--wrap", "exec sleep 600", check=False).strip()


def starts(cluster: SlurmCluster, number: str) -> bool:
    """Whether a job starts; one that does not is gone afterwards."""
    began = time.monotonic()
    while number and time.monotonic() < began + WAIT_S:
        state, reason = _state(cluster, number)
        if state == "RUNNING":
            return True
        if reason not in ("None", "Priority"):
            assert reason in ("Resources", "PartitionConfig"), reason
            cluster.run("scancel", number)
            return False
        time.sleep(pause_s(time.monotonic() - began, BATCH_LEAST_S))
    assert not number, "Slurm did not look at it"
    return False


def _state(cluster: SlurmCluster, number: str) -> Sequence[str]:
    return cluster.run("squeue", "-h", "-j", number, "-o", "%T %r").split()


def test_a_component_holds_the_licences_that_it_asks_for(by_processor: SlurmCluster, tmp_path: Path) -> None:
    system = SlurmSystem(BatchSettings(work_directory="/w"))
    (tmp_path / "script").write_text("#!/bin/sh\nexec sleep 600\n")
    launch = Launch(token="1.1-ab", job=1, processors=1, application=Application(executable="x"))  # noqa: S106
    wanted = msgspec.structs.replace(launch, licenses=(("ansys", 3),))
    submission = BatchSubmission(launch=wanted, home=str(tmp_path), script="script", log="log", limit_s=None)
    number = by_processor.run("sh", "-c", system.submit(submission)).strip()
    try:
        assert "Licenses=ansys:3 " in f"{by_processor.run('scontrol', 'show', 'job', number)} "
        until = time.monotonic() + WAIT_S
        while "Used=3 Free=1" not in (shown := by_processor.run("scontrol", "show", "licenses", "ansys")):
            assert time.monotonic() < until, shown
            time.sleep(BATCH_LEAST_S)
    finally:
        by_processor.run("scancel", number)
    unknown = msgspec.structs.replace(submission, launch=msgspec.structs.replace(launch, licenses=(("nosuch", 1),)))
    said = by_processor.run("sh", "-c", f"{{ {system.submit(unknown)} }} 2>&1", check=False)
    why = system.refusal(1, "", said)
    assert why is not None
    assert system.is_for_what_it_asks(why)
