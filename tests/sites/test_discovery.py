"""What is found at a host: the text that looks, run by a real shell over programs that answer as real ones do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.sites.batch.discovery import (
    QUEUES_TOLD_MAX,
    RESOLVE_S,
    ClusterNode,
    DiscoveryError,
    FoundClusters,
    FoundQueue,
    discovery_script,
    parse_discovery,
)
from koala.sites.batch.systems import SYSTEMS
from koala.sites.remote_shell import RemoteShell

DISCOVERIES = {name: each.parts().discovery for name, each in SYSTEMS.items()}
SINFO = "printf '%s\\n' 'low|up|0/8/0/8' 'main*|up|2/6/0/8' 'down|down|0/0/64/64' 'empty|up|0/0/0/0'"
SCONTROL = "printf '%s\\n' 'ClusterName             = alpha' 'SlurmctldHost[0]        = head(10.0.0.1)'"
SUMMARY = """cat << 'END'
CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE
--------------------------------------------------------------------------------
all.q                             1.83      1      0      5      6      0      0
long.q                            -NA-      0      0      0     12      0     12
END"""
QCONF = """case $1 in
-spl) printf '%s\\n' smp mpi ;;
-sql) printf '%s\\n' all.q long.q ;;
-sp) case $2 in mpi) echo 'control_slaves     TRUE' ;; *) echo 'control_slaves     FALSE' ;; esac ;;
-sq) case $2 in all.q) echo 'pe_list               smp mpi' ;; *) echo 'pe_list               NONE' ;; esac ;;
esac"""


def put(directory: Path, **programs: str) -> Path:
    """Programs that run these texts."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        program = directory / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return directory


def look(path: str, home: Path) -> FoundClusters:
    """What the text finds with these programs, in this home; a login there knows no others, unless it says so."""
    profile = home / ".profile"
    if not profile.exists():
        profile.write_text(f"export PATH={path}\n")

    async def run() -> str:
        commands = RemoteShell(environment={"PATH": path, "HOME": str(home)})
        answer = await commands.run(discovery_script(DISCOVERIES), timeout_s=120)
        return answer.stdout.decode()

    return parse_discovery(asyncio.run(run()), DISCOVERIES)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The programs of every system, and no batch system, whatever is installed here."""
    directory = put(tmp_path / "tools")
    for name in ("sh", "sed", "cat", "tr", "date"):
        (directory / name).symlink_to(f"/bin/{name}")
    return directory


def test_slurm_is_found_with_the_partitions_that_are_up(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", sbatch="exit 1", sinfo=SINFO, scontrol=SCONTROL)
    (cluster,) = look(f"{programs}:{tools}", tmp_path).clusters
    assert (cluster.kind, cluster.name, cluster.environment) == ("slurm", "alpha", ())
    assert cluster.identity == "slurm alpha head(10.0.0.1)"
    assert cluster.queues == (
        FoundQueue(name="low", processors=8),
        FoundQueue(name="main", processors=8, is_default=True),
    )
    assert cluster.queue.name == "main"


def test_grid_engine_is_found_with_the_parallel_environments_of_its_queues(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", qsub="exit 1", qstat=SUMMARY, qconf=QCONF)
    (cluster,) = look(f"{programs}:{tools}", tmp_path).clusters
    assert (cluster.kind, cluster.name) == ("grid_engine", "default")
    assert cluster.queues == (
        FoundQueue(
            name="all.q", processors=6, own=(("parallel_environment", "mpi"),), remark="the queue also offers smp"
        ),
        FoundQueue(name="long.q", processors=12),
    )


def test_nodes_are_found_with_their_addresses_as_the_host_knows_them(tmp_path: Path, tools: Path) -> None:
    listed = "printf '%s\\n' 'main|n1|10.0.0.1' 'low|n9|10.0.0.9' 'main|n2|gone'"
    nodes = f"case $* in *%o*) {listed} ;; *) {SINFO} ;; esac"
    hosts = f"case $1 in -sel) echo e1; echo e2; exit ;; esac\n{QCONF}"
    answers = '10.*) echo "$2 STREAM"; echo "$2 RAW" ;; e1) echo 10.0.1.1 STREAM ;; e2) echo fe80::1 ;; *) exit 2 ;;'
    getent = f"case $2 in {answers} esac"
    programs = put(
        tmp_path / "bin", sbatch="", sinfo=nodes, scontrol="", qsub="", qstat=SUMMARY, qconf=hosts, getent=getent
    )
    slurm, grid_engine = look(f"{programs}:{tools}", tmp_path).clusters
    assert slurm.nodes == (ClusterNode("n1", "10.0.0.1"), ClusterNode("n2", None))
    assert grid_engine.nodes == (ClusterNode("e1", "10.0.1.1"), ClusterNode("e2", None))


def test_a_cluster_whose_nodes_take_long_to_look_up_is_found_without_them(tmp_path: Path, tools: Path) -> None:
    """Those that were looked up in time would be taken for all."""
    listed = "printf '%s\\n' 'main|n1|10.0.0.1' 'main|n2|10.0.0.2' 'main|n3|10.0.0.3'"
    clock = f"cat {tmp_path}/now"
    getent = f'echo "$2 STREAM"; echo {RESOLVE_S} >{tmp_path}/now'
    (tmp_path / "now").write_text("0")
    programs = put(
        tmp_path / "bin", sbatch="", sinfo=f"case $* in *%o*) {listed} ;; *) {SINFO} ;; esac", scontrol="",
        getent=getent, date=clock,
    )  # fmt: skip
    (cluster,) = look(f"{programs}:{tools}", tmp_path).clusters
    assert (cluster.queue.name, cluster.nodes) == ("main", ())


def test_both_may_be_at_one_host(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", sbatch="", sinfo=SINFO, scontrol="", qsub="", qstat=SUMMARY, qconf=QCONF)
    kinds = [cluster.kind for cluster in look(f"{programs}:{tools}", tmp_path).clusters]
    assert kinds == ["slurm", "grid_engine"]


def test_programs_that_only_a_login_finds_are_found_with_its_environment(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", sbatch="", sinfo=f'[ "$SLURM_CONF" = /x/slurm.conf ] && {SINFO}', scontrol="")
    home = put(tmp_path / "home")
    (home / ".profile").write_text(
        f"echo welcome\nexport PATH={programs}:{tools} SLURM_CONF=/x/slurm.conf SGE_ROOT=/not/for/slurm\n"
    )
    (cluster,) = look(str(tools), home).clusters
    assert cluster.queue.name == "main"
    assert cluster.environment == (("PATH", f"{programs}:{tools}"), ("SLURM_CONF", "/x/slurm.conf"))


def test_a_batch_system_that_does_not_answer_is_told_with_its_last_words(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", sbatch="", sinfo="echo 'no controller' >&2; echo 'at all' >&2; exit 1")
    assert look(f"{programs}:{tools}", tmp_path) == FoundClusters((), ("slurm is there, but: at all",))


def test_a_host_with_another_batch_system_has_neither(tmp_path: Path, tools: Path) -> None:
    programs = put(tmp_path / "bin", qsub="", qstat="echo PBS")
    assert look(f"{programs}:{tools}", tmp_path) == FoundClusters()


def test_of_many_queues_the_first_are_told(tmp_path: Path, tools: Path) -> None:
    many = 'for n in 1 2 3 4 5 6 7 8 9 10; do for m in 1 2 3 4 5 6 7; do echo "q$n-$m|up|0/1/0/1"; done; done'
    programs = put(tmp_path / "bin", sbatch="", sinfo=many, scontrol="")
    (cluster,) = look(f"{programs}:{tools}", tmp_path).clusters
    assert len(cluster.queues) == QUEUES_TOLD_MAX


@pytest.mark.parametrize(
    "printed", ["", "Hi, you have authenticated, but there is no shell access.\n", "koala-found"]
)
def test_a_host_that_runs_no_commands_is_no_answer(printed: str) -> None:
    with pytest.raises(DiscoveryError):
        parse_discovery(printed, DISCOVERIES)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    f"{kind}-{what}"
                    for kind in ("slurm", "grid_engine")
                    for what in ("queue", "name", "master", "environment", "offers", "silent")
                ]
                + ["koala-login", ""]
            ),
            st.text("ab.|/0123456789 *\u0661up", max_size=30),
        ),
        max_size=8,
    )
)
def test_whatever_is_printed_is_read_or_left_out(lines: list[tuple[str, str]]) -> None:
    found = parse_discovery("noise\nkoala-found\n" + "".join(f"{key} {value}\n" for key, value in lines), DISCOVERIES)
    for cluster in found.clusters:
        assert all(queue.processors > 0 for queue in cluster.queues)
