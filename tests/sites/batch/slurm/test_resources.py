"""What our jobs ask for beside processors, what that leaves of a Slurm node, and how the cluster is asked for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import BatchSettings
from koala.sites.batch.slurm.listing import listing_script
from koala.sites.batch.slurm.options import (
    Features,
    RequestedResources,
    Sharing,
    features_of,
    megabytes,
    requested_by,
)
from koala.sites.batch.slurm.resources import ClusterResources, MemoryNeed, parse_resources, processors_within
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchListing


def settings(*options: str, **fields: Any) -> BatchSettings:
    return BatchSettings(work_directory="/w", submit_options=options, **fields)


UNKNOWN = RequestedResources(memory_is_known=False)

# ---------------------------------------------------------------------------------------------- options of a site


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4000", 4000), ("4000M", 4000), ("4G", 4096), ("4g", 4096), ("4GB", 4096), ("1T", 1048576), ("0", 0),
        ("1K", 1), ("2048K", 2), ("2049k", 3),
        ("", None), ("UNLIMITED", None), ("-1", None), ("4.5G", None), ("4X", None), ("٣", None), ("9" * 30, None),
    ],
)  # fmt: skip
def test_sizes_of_memory(text: str, size: int | None) -> None:
    assert megabytes(text) == size


@pytest.mark.parametrize(
    ("text", "names", "one_will_do"),
    [
        ("big", ("big",), False),
        ("big&fast", ("big", "fast"), False),
        ("big|fast|old", ("big", "fast", "old"), True),
        *[(text, (), False) for text in ("", "[a|b]", "a&b|c", "!a", "a*2", "(a|b)&c", "a,b", "a&", "|", "a b")],
    ],
)
def test_features_that_nodes_must_have(text: str, names: tuple[str, ...], one_will_do: bool) -> None:
    assert features_of(text) == Features(names, one_will_do)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), RequestedResources()),
        (("--mem=4G",), RequestedResources(node_mb=4096)),
        (("--mem", "4G"), RequestedResources(node_mb=4096)),
        (("--mem=0",), RequestedResources(node_mb=0)),
        (("--mem-per-cpu=1G", "--qos=q"), RequestedResources(processor_mb=1024)),
        (("--mem-per-cpu", "1G", "--mem-per-cpu=2G"), RequestedResources(processor_mb=2048)),
        (("--mem-per-cpu=0",), RequestedResources(node_mb=0)),
        (("--mem=lots",), UNKNOWN),
        (("--mem-per-cpu=4.5G",), UNKNOWN),
        (("--mem",), UNKNOWN),
        (("--mem-per-gpu=8G",), UNKNOWN),
        (("--mem-per-gpu", "8G", "--mem=4G"), UNKNOWN),
        (("--mem-per-c=1000",), UNKNOWN),
        (("--mem-per-cp", "1000"), UNKNOWN),
        (("--memory=4G", "--mem-bind=local"), RequestedResources()),
        *[
            (options, RequestedResources(has_gpus=True))
            for options in (
                ("--gpus=1",), ("--gpus", "1"), ("-G1",), ("-G", "1"), ("--gpus-per-node=2",), ("--gres=gpu:a100:1",),
                ("--gres", "nvme,gpu"), ("--tres-per-task=gres/gpu:1",),
            )
        ],
        (("--gres=nvme:1",), RequestedResources()),
        (("-C", "a"), RequestedResources(features=Features(("a",)))),
        (("-Ca&b",), RequestedResources(features=Features(("a", "b")))),
        (("--constraint=a|b",), RequestedResources(features=Features(("a", "b"), one_will_do=True))),
        (("--exclusive",), RequestedResources(sharing=Sharing.NOBODY)),
        (("--exclusive=exclusive",), RequestedResources(sharing=Sharing.NOBODY)),
        (("--exclusive=Exclusive",), RequestedResources(sharing=Sharing.NOBODY)),
        (("--exclusive=user",), RequestedResources(sharing=Sharing.OWN_USER)),
        (("--exclusive=mcs",), RequestedResources()),
    ],
)  # fmt: skip
def test_what_options_ask_for(options: tuple[str, ...], asked: RequestedResources) -> None:
    assert requested_by(settings(*options)) == asked


def test_variables_ask_where_options_do_not() -> None:
    variables = {
        "SBATCH_MEM_PER_NODE": "2G",
        "SBATCH_CONSTRAINT": "a",
        "SBATCH_EXCLUSIVE": "user",
    }
    by_variables = RequestedResources(node_mb=2048, features=Features(("a",)), sharing=Sharing.OWN_USER)
    assert requested_by(settings(environment=tuple(variables.items()))) == by_variables
    options = ("--mem-per-cpu=5", "-C", "b", "--exclusive")
    by_options = RequestedResources(processor_mb=5, features=Features(("b",)), sharing=Sharing.NOBODY)
    assert requested_by(settings(*options, environment=tuple(variables.items()))) == by_options


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"SBATCH_MEM_PER_GPU": "8G"}, UNKNOWN),
        ({"SBATCH_MEM_PER_NODE": "lots"}, UNKNOWN),
        ({"SBATCH_MEM_PER_CPU": "0"}, RequestedResources(node_mb=0)),
        ({"SBATCH_EXCLUSIVE": "EXCLUSIVE"}, RequestedResources(sharing=Sharing.NOBODY)),
        ({"SBATCH_GPUS": "1"}, RequestedResources(has_gpus=True)),
        ({"SBATCH_GPUS_PER_NODE": "1"}, RequestedResources(has_gpus=True)),
        ({"SBATCH_GRES": "gpu:1"}, RequestedResources(has_gpus=True)),
        ({"SBATCH_GRES": "nvme"}, RequestedResources()),
    ],
)
def test_what_variables_ask_for(variables: dict[str, str], asked: RequestedResources) -> None:
    assert requested_by(settings(environment=tuple(variables.items()))) == asked


def test_memory_of_an_option_goes_before_a_variable_that_is_not_understood() -> None:
    variables = (("SBATCH_MEM_PER_GPU", "8G"), ("SBATCH_MEM_PER_NODE", "lots"))
    assert requested_by(settings("--mem=10", environment=variables)) == RequestedResources(node_mb=10)


# ----------------------------------------------------------------------------------------------- what it leaves


@pytest.mark.parametrize(
    ("need", "processors", "free_mb", "left"),
    [
        (MemoryNeed(processor_mb=1000), 4, 3900, 3),
        (MemoryNeed(processor_mb=1000), 4, 9000, 4),
        (MemoryNeed(processor_mb=5000), 4, 4000, 0),
        (MemoryNeed(processor_mb=0), 4, 0, 4),
        (MemoryNeed(node_mb=3900), 4, 3900, 4),
        (MemoryNeed(node_mb=3901), 4, 3900, 0),
        (MemoryNeed(node_mb=0), 4, 9000, 4),
        (MemoryNeed(node_mb=0), 4, 8999, 0),
        (MemoryNeed(processor_mb=1500, most_mb=1000), 3, 3000, 1),  # two for each
        (MemoryNeed(processor_mb=1500, most_mb=1000), 4, 2999, 1),
        (MemoryNeed(processor_mb=1000, most_mb=1000), 4, 4000, 4),
        (MemoryNeed(node_mb=2500, most_mb=1000), 3, 2500, 3),
        (MemoryNeed(node_mb=2500, most_mb=1000), 2, 2500, 0),  # it takes three
    ],
)
def test_processors_of_a_node_of_9000_mb(need: MemoryNeed, processors: int, free_mb: int, left: int) -> None:
    assert processors_within(need, processors, free_mb, 9000) == left


def test_whole_cores_and_whole_nodes() -> None:
    need = MemoryNeed(processor_mb=500)
    assert processors_within(need, 8, 3600, 3600) == 7
    assert processors_within(need, 8, 3600, 3600, unit=2) == 6
    assert processors_within(need, 8, 3600, 3600, is_whole=True) == 0
    assert processors_within(need, 7, 3600, 3600, is_whole=True) == 7


sizes = st.integers(0, 10_000)


@given(st.builds(MemoryNeed, sizes | st.none(), sizes, sizes | st.none()), sizes, sizes, sizes, st.integers(1, 8))
def test_no_node_gives_more_than_it_has(need: MemoryNeed, processors: int, free: int, taken: int, unit: int) -> None:
    left = processors_within(need, processors, free, free + taken, unit=unit)
    assert 0 <= left <= processors
    assert need.processor_mb is None or left * need.processor_mb <= free
    more = processors_within(need, processors, free + 1000, free + taken + 1000, unit=unit)
    assert need.processor_mb is None or more >= left


SHARED = "configuration SelectTypeParameters=CR_CORE_MEMORY"


def needed(*lines: str, asked: RequestedResources | None = None, partition: str = "main") -> MemoryNeed | None:
    return parse_resources(lines, asked or RequestedResources()).need(partition)


def test_the_option_goes_before_the_partition_and_that_before_the_cluster() -> None:
    cluster = "configuration DefMemPerCPU=500"
    of_main = "partition PartitionName=main DefMemPerNode=3000 MaxMemPerCPU=800"
    unlimited = "partition PartitionName=main DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED"
    assert needed(SHARED) == MemoryNeed(None, 0, None, "as no default is set")
    assert needed(SHARED, cluster) == MemoryNeed(500, None, None, "DefMemPerCPU of the cluster")
    assert needed(SHARED, cluster, unlimited) == MemoryNeed(500, None, None, "DefMemPerCPU of the cluster")
    assert needed(SHARED, cluster, of_main) == MemoryNeed(None, 3000, 800, "DefMemPerNode of the partition main")
    assert needed(SHARED, cluster, of_main, partition="low") == MemoryNeed(
        500, None, None, "DefMemPerCPU of the cluster"
    )
    asked = RequestedResources(processor_mb=7)
    assert needed(SHARED, cluster, of_main, asked=asked) == MemoryNeed(7, None, 800, "as --mem-per-cpu says")
    assert needed(SHARED, cluster, "configuration MaxMemPerCPU=9", asked=RequestedResources(node_mb=0)) == MemoryNeed(
        None, 0, 9, "as --mem=0 says"
    )


def test_who_asks_in_a_way_that_is_not_understood_has_no_processor_taken_away_for_memory() -> None:
    full = "node NodeName=n1 RealMemory=9000 AllocMem=8999"
    gpus = RequestedResources(has_gpus=True)
    for asked in (UNKNOWN, gpus):
        assert needed(SHARED, asked=asked) is None
        assert parse_resources([SHARED, full], asked).processors("n1", "main", 4, 2) == 4
    assert parse_resources([SHARED, full], RequestedResources()).processors("n1", "main", 4, 2) == 0
    default = "configuration DefMemPerCPU=500"
    assert needed(SHARED, default, asked=UNKNOWN) is None
    assert needed(SHARED, default, asked=gpus) == MemoryNeed(500, None, None, "DefMemPerCPU of the cluster")


def test_the_most_for_a_processor_is_the_cluster_s_only_where_the_partition_has_no_limit() -> None:
    cluster = "configuration MaxMemPerCPU=1000"

    def most(limits: str) -> int | None:
        need = needed(SHARED, cluster, f"partition PartitionName=main {limits}")
        return None if need is None else need.most_mb

    assert most("MaxMemPerNode=64000") is None
    assert most("MaxMemPerNode=UNLIMITED") == most("") == 1000
    assert most("MaxMemPerCPU=800") == 800


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        ("CR_CORE_MEMORY", 2),
        ("CR_LLN,CR_Socket_Memory", 2),
        ("CR_CPU_MEMORY", 3),
        ("CR_CPU_MEMORY,CR_CORE_DEFAULT_DIST_BLOCK", 3),
    ],
)
def test_whole_cores_are_given_where_cores_or_sockets_are_selected(selection: str, left: int) -> None:
    node = "node NodeName=n1 RealMemory=3500 AllocMem=0 CPUTot=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2"
    resources = parse_resources(
        [f"configuration SelectTypeParameters={selection}", node], RequestedResources(processor_mb=1000)
    )
    assert resources.processors("n1", "main", 8, 0) == left


@pytest.mark.parametrize(
    ("cores", "left"),
    [
        ("CPUTot=4 Sockets=1 CoresPerSocket=2", 0),
        ("CPUTot=4 Sockets=1 CoresPerSocket=4", 1),
        ("CPUTot=4 Sockets=2 CoresPerSocket=2", 1),
        ("Sockets=1 CoresPerSocket=2", 1),
        ("CPUTot=4 CoresPerSocket=2", 1),
        ("CPUTot=4 Sockets=1", 1),
    ],
)
def test_threads_count_only_where_they_are_processors(cores: str, left: int) -> None:
    node = f"node NodeName=n1 RealMemory=4000 AllocMem=0 ThreadsPerCore=2 {cores}"
    assert (
        parse_resources([SHARED, node], RequestedResources(processor_mb=3000)).processors("n1", "main", 4, 0) == left
    )


@pytest.mark.parametrize("selection", ["CR_CPU", "CR_CORE,CR_LLN", "NONE", "", "OTHER_MEMORY"])
def test_memory_counts_only_where_it_is_shared_out(selection: str) -> None:
    assert needed(f"configuration SelectTypeParameters={selection}", asked=RequestedResources(node_mb=10**6)) is None


@pytest.mark.parametrize("selection", ["CR_CPU_MEMORY", "CR_Core_Memory", "CR_CORE_MEMORY,CR_LLN", "CR_MEMORY"])
def test_memory_is_shared_out(selection: str) -> None:
    assert needed(f"configuration SelectTypeParameters={selection}") is not None


def test_the_first_of_two_fields_counts() -> None:
    """Operators' comments come last."""
    resources = parse_resources(
        ["node NodeName=n1 RealMemory=9000 AllocMem=1 Reason=RealMemory=7 AllocMem=8"], RequestedResources()
    )
    assert (resources.nodes["n1"].whole_mb, resources.nodes["n1"].taken_mb) == (9000, 1)


def test_a_node_that_is_not_told_of_is_taken_as_it_is() -> None:
    assert parse_resources([SHARED], RequestedResources(node_mb=10**6)).processors("n1", "main", 4, 2) == 4
    assert (
        parse_resources([SHARED, "node NodeName=n1 RealMemory=?"], RequestedResources(node_mb=9)).processors(
            "n1", "main", 4, 2
        )
        == 4
    )
    assert ClusterResources().processors("n1", "main", 4, 2) == 4


def test_a_node_that_another_has_to_itself_is_not_ours() -> None:
    def left(owner: str, used: int, sharing: Sharing = Sharing.ANYBODY) -> int:
        return parse_resources(
            ["user me", f"node NodeName=n1 Owner={owner}"], RequestedResources(sharing=sharing)
        ).processors("n1", "main", 4, used)

    assert [left(owner, 1) for owner in ("N/A", "me(7)", "you(8)")] == [4, 4, 0]
    assert [left(owner, 1, Sharing.OWN_USER) for owner in ("N/A", "me(7)", "you(8)")] == [0, 4, 0]
    assert [left("N/A", used, Sharing.NOBODY) for used in (0, 1)] == [4, 0]


WORDS = st.sampled_from(
    ["user", "node", "partition", "configuration", "NodeName=n1", "RealMemory=9", "AllocMem=x", "MemSpecLimit=99",
     "ThreadsPerCore=0", "CPUTot=8", "Sockets=1", "CoresPerSocket=0",
     "SelectTypeParameters=CR_CORE_MEMORY", "DefMemPerCPU=2", "MaxMemPerCPU=0", "Owner=", "=",
     "PartitionName=main", "ActiveFeatures=a,,b", "ActiveFeatures="]
)  # fmt: skip
GARBAGE = st.lists(st.lists(WORDS | st.text(max_size=9), max_size=8).map(" ".join), max_size=8)


@given(GARBAGE, st.lists(WORDS | st.text(max_size=9) | st.sampled_from(["--mem", "-C", "--exclusive"]), max_size=5))
def test_garbage_takes_no_listing_away(lines: list[str], options: list[str]) -> None:
    resources = parse_resources(lines, requested_by(settings(*options)))
    assert 0 <= resources.processors("n1", "main", 4, 2) <= 4
    assert 0 <= resources.processors_of_empty("n1", "main", 6) <= 6


# ---------------------------------------------------------------------------------------------------- in a listing

CLUSTER = """\
koala nodes
n1|mixed|2/6/0/8|main*|up|infinite
n2|idle|0/8/0/8|main*|up|infinite
koala waiting
{waiting}koala quota
koala resources
user me
configuration SelectTypeParameters=CR_CPU_MEMORY
node NodeName=n1 RealMemory=9000 AllocMem=7000 ActiveFeatures=big,fast
node NodeName=n2 RealMemory=9000 AllocMem=0 ActiveFeatures=(null)
koala jobs
{jobs}"""


def listed(*options: str, jobs: str = "", waiting: str = "") -> BatchListing:
    return SlurmSystem(settings(*options)).parse_listing(CLUSTER.format(jobs=jobs, waiting=waiting))


@pytest.mark.parametrize(
    ("options", "there", "idle"),
    [
        ((), 16, 8),
        (("--mem-per-cpu=1000",), 16, 10),
        (("--mem-per-cpu=2000",), 8, 5),
        (("--mem=2001",), 16, 8),
        (("-C", "big", "--mem=10"), 8, 6),
        (("-C", "none", "--mem=10"), 0, 0),
        (("--exclusive", "--mem=10"), 16, 8),
    ],
)
def test_idle_processors_by_what_jobs_ask_for(options: tuple[str, ...], there: int, idle: int) -> None:
    told = listed(*options)
    assert (told.processors, told.processors - told.others) == (there, idle)


def test_what_waits_ahead_takes_of_those_that_we_could_get() -> None:
    assert listed("--mem-per-cpu=1000", waiting="7|4|main|Priority\n").others == 6 + 4


def test_what_waits_ahead_takes_what_is_idle_also_where_our_jobs_could_not_get_as_much() -> None:
    printed = (
        "koala nodes\nn1|mixed|0/8/0/8|main*|up|infinite\nkoala waiting\n7|6|main|None\nkoala quota\n"
        "koala resources\nuser me\nconfiguration SelectTypeParameters=CR_CPU_MEMORY\n"
        "node NodeName=n1 RealMemory=9000 AllocMem=4000\nkoala jobs\n"
    )
    told = SlurmSystem(settings("--mem-per-cpu=1000")).parse_listing(printed)
    assert told.processors - told.others == 2
    told = SlurmSystem(settings("--mem-per-cpu=1000")).parse_listing(printed.replace("7|6|main|None\n", ""))
    assert told.processors - told.others == 5


def test_ours_that_hold_more_than_they_asked_for_leave_the_rest_idle() -> None:
    """A job of one processor got two, as it asks for the memory of two."""
    ours = "job 7|RUNNING|2|main|t|a|q|None|koala-1.1-ab\n"
    limit = "partition PartitionName=main MaxMemPerCPU=500\nkoala jobs"
    printed = CLUSTER.format(jobs=ours, waiting="").replace("koala jobs", limit).replace("=7000", "=1000")
    told = SlurmSystem(settings("--mem-per-cpu=1000")).parse_listing(printed)
    assert told.processors - told.others - 2 == 3 + 4
    whole = listed("--mem=10", "--exclusive", jobs=ours)
    assert (whole.processors, whole.processors - whole.others - 2) == (16, 8)


def test_what_is_kept_for_slurm_itself_is_not_for_jobs() -> None:
    node = "node NodeName=n1 RealMemory=4000 AllocMem=1000 MemSpecLimit=400"
    resources = parse_resources([SHARED, node], RequestedResources(processor_mb=900))
    assert (resources.processors("n1", "main", 8, 1), resources.processors_of_empty("n1", "main", 9)) == (2, 4)
    assert parse_resources([SHARED, node], RequestedResources(node_mb=3601)).processors_of_empty("n1", "main", 9) == 0


# ------------------------------------------------------------------------------------------------ how it is asked

NODES = (
    "NodeName=n1 CPUAlloc=0 CPUTot=8 Sockets=1 CoresPerSocket=4 "
    "AvailableFeatures=a ActiveFeatures=a OS=Linux #1 SMP  RealMemory=4000 AllocMem=7 "
    "ThreadsPerCore=2 Owner=N/A Partitions=low,main  Reason=AllocMem=9 Partitions=far\n"
    "NodeName=n9 RealMemory=4000 AllocMem=7 Partitions=far,mainly\n"
)
PARTITIONS = "PartitionName=main Nodes=n1 DefMemPerCPU=9 MaxMemPerNode=UNLIMITED\nPartitionName=far DefMemPerCPU=8\n"


def printed(tmp_path: Path, selection: str, *options: str, **fields: Any) -> list[str]:
    """The lines that the text prints on a cluster that shares out this."""
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "partitions").write_text(PARTITIONS)
    (tmp_path / "scontrol").write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f"*config) printf 'DefMemPerNode = 5\\nOther = x\\nSelectTypeParameters   = {selection}\\n' ;;\n"
        f"*partition) cat '{tmp_path}/partitions' ;;\n*node) cat '{tmp_path}/nodes' ;;\nesac\n"
    )
    (tmp_path / "scontrol").chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-e"],
        input=listing_script(settings(*options, **fields), "koala_resources"),
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()


CONFIGURATION = ["configuration DefMemPerNode=5", "configuration SelectTypeParameters=CR_CPU_MEMORY"]
OURS = [
    "partition PartitionName=main DefMemPerCPU=9 MaxMemPerNode=UNLIMITED",
    (
        "node NodeName=n1 CPUAlloc=0 CPUTot=8 Sockets=1 CoresPerSocket=4 ActiveFeatures=a RealMemory=4000 AllocMem=7 "
        "ThreadsPerCore=2 Owner=N/A"
    ),
]


def test_where_memory_is_shared_out_a_few_fields_are_printed_of_what_is_ours(tmp_path: Path) -> None:
    assert printed(tmp_path, "CR_CPU_MEMORY", queue="main")[1:] == CONFIGURATION + OURS
    everything = printed(tmp_path, "CR_CPU_MEMORY")
    assert {*OURS, "node NodeName=n9 RealMemory=4000 AllocMem=7"} < set(everything)
    assert not any("n9" in line for line in printed(tmp_path, "CR_CPU_MEMORY", queue="low,main"))


def test_where_nothing_depends_on_nodes_they_are_not_asked_for(tmp_path: Path) -> None:
    assert printed(tmp_path, "CR_CPU") == []
    assert printed(tmp_path, "CR_CPU", "--mem=4G", "--exclusive", "-C", "[a|b]") == []
    for options in (("-C", "a"), ("--exclusive=user",)):
        assert OURS[1] in printed(tmp_path, "CR_CPU", *options, queue="main")
