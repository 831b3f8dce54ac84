"""Components of several nodes: who runs where, what fails, and that nothing stays behind. MPI is the real MPICH."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koala.model.launch import ADDRESSES, NO_NODES, NODES, SITE
from koala.model.request import Application, JobType
from tests.support.live_sites import all_gone, processes_of
from tests.support.noded import Noded, release
from tests.support.paths import SUPPORT
from tests.support.ports import free_port
from tests.support.real_programs import real_program

BIN = str(Path(sys.executable).parent)
# Two components of two nodes: ranks 0 and 1 at a0, 2 at a1, 3 at b0, 4 and 5 at b1.
SHARES = ((("a0", 2), ("a1", 1)), (("b0", 1), ("b1", 2)))
# Or fewer, where one rank at a second node is to fail: rank 1 is alone at a1, rank 3 is at b1 beside rank 4.
SMALL = ((("a0", 1), ("a1", 1)), (("b0", 1), ("b1", 2)))

WHERE = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
mine = os.environ["KOALA_COMPONENT"], os.environ.get("TEST_NODE", "own"), os.environ["KOALA_FIRST_RANK"]
print(world.rank, world.allreduce(world.rank), *mine, os.environ["KOALA_NODE_PROCESSORS"], flush=True)
"""
# Who is not the one waits for it.
FAIL = "from mpi4py import MPI; import sys; sys.exit(5 if MPI.COMM_WORLD.rank == {} else 0)"
STOP = "from mpi4py import MPI; import time; MPI.COMM_WORLD.Abort(6) if MPI.COMM_WORLD.rank == {} else time.sleep(60)"
# A rank that leaves without MPI_Finalize, which mpiexec alone would wait for.
DESERT = (
    "from mpi4py import MPI; import os, time; r = MPI.COMM_WORLD.rank; os._exit(9) if r == {} else time.sleep(60)"
)
HANG = (
    "from mpi4py import MPI; import time, pathlib; pathlib.Path(f'on{MPI.COMM_WORLD.rank}').touch(); time.sleep(60)"
)

Make = Callable[..., list[Noded]]
Shares = tuple[tuple[tuple[str, int], ...], ...]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes the components of a job and begins their scripts."""
    made: list[Noded] = []

    def components(application: Application, job_type: JobType, shares: Shares, **fields: object) -> list[Noded]:
        search_path = (BIN,) if job_type is JobType.MPI else ()
        for part, nodes in enumerate(shares):
            home = tmp_path / f"site{part}/components/1.{part}"
            each = Noded(home, part, len(shares), application, job_type=job_type, search_path=search_path)
            made.append(each)
            each.start(*nodes, **fields)  # type: ignore[arg-type]
        return made

    yield components
    for each in made:
        each.stop()


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of one POSIX shell under the name sh."""
    (tmp_path / "sh").symlink_to(real_program(request.param))
    return str(tmp_path / "sh")


def mpi(make: Make, program: str, shares: Shares = SHARES, **fields: str) -> tuple[Noded, Noded]:
    """Two components of two nodes each, whose ranks have begun or are about to."""
    application = Application(executable=sys.executable, arguments=("-c", program))
    first, second = make(application, JobType.MPI, shares, **fields)
    release(JobType.MPI, [first, second])
    return first, second


# -------------------------------------------------------------------------------------------------- MPI


def test_ranks_of_all_nodes_of_two_components_are_one_world(make: Make, shell: str, tmp_path: Path) -> None:
    first, second = mpi(make, WHERE, shell=shell)
    assert (first.ended(), second.ended()) == ("exited 0", "exited 0")
    own = "2,1;1,2"
    assert sorted(first.text("stdout").splitlines()) == [
        f"0 15 0 own 0 {own}",
        f"1 15 0 own 0 {own}",
        f"2 15 0 a1 0 {own}",
        f"3 15 1 own 3 {own}",
        f"4 15 1 b1 3 {own}",
        f"5 15 1 b1 3 {own}",
    ]
    assert not processes_of(tmp_path)


@pytest.mark.parametrize("rank", [1, 3], ids=["of the first component", "of the second"])
@pytest.mark.parametrize(("program", "code"), [(FAIL, 5), (STOP, 6)], ids=["fails", "aborts the world"])
def test_a_rank_on_a_second_node_decides_the_exit_code_of_the_world(
    make: Make, tmp_path: Path, program: str, code: int, rank: int
) -> None:
    first, second = mpi(make, program.format(rank), SMALL)
    assert first.ended() == f"exited {code}"
    # What the scheduler does when a component has failed.
    second.put("abort", b"{}")
    second.terminate()
    second.ended()
    assert all_gone(tmp_path)


@pytest.mark.parametrize("part", [0, 1])
def test_a_rank_that_leaves_a_second_node_without_finalizing_fails_its_component(
    make: Make, tmp_path: Path, part: int
) -> None:
    components = mpi(make, DESERT.format((1, 3)[part]), SMALL)
    assert components[part].ended() == "exited 9"
    components[1 - part].put("abort", b"{}")
    components[1 - part].terminate()
    components[1 - part].ended()
    assert all_gone(tmp_path)


@pytest.mark.parametrize("part", [0, 1])
def test_a_signal_to_the_script_ends_the_proxies_of_all_nodes(
    make: Make, shell: str, tmp_path: Path, part: int
) -> None:
    components = mpi(make, HANG, shell=shell)
    for rank in range(6):
        components[rank // 3].appears(f"workspace/on{rank}")
    components[part].terminate()
    assert components[part].ended().startswith("exited ")
    # Its processes are gone, also those of the node that the signal did not reach.
    assert not processes_of(components[part].home.parent)
    components[1 - part].terminate()
    components[1 - part].ended()
    assert all_gone(tmp_path)


def test_a_node_that_cannot_be_reached_fails_the_component(make: Make, tmp_path: Path) -> None:
    application = Application(executable=sys.executable, arguments=("-c", WHERE))
    (only,) = make(
        application, JobType.MPI, ((("a0", 1), ("a1", 1)),), site="koala_nodes() { printf '%s\\n' 'a0 1' 'a1 1'; }\n"
    )
    release(JobType.MPI, [only])
    assert only.ended() == "exited 126"
    assert "how to reach node a1" in only.text("stderr")
    assert not processes_of(tmp_path)


# --------------------------------------------------------------------------------------------- torchrun


def test_every_node_is_a_node_of_torchrun(make: Make, shell: str) -> None:
    program = Application(executable=sys.executable, arguments=(str(SUPPORT / "rendezvous.py"),))
    first, second = make(program, JobType.TORCHRUN, ((("a0", 2), ("a1", 3)), (("b0", 1),)), shell=shell)
    release(JobType.TORCHRUN, [first, second], free_port())
    assert (first.ended(), second.ended()) == ("exited 0", "exited 0"), first.text("stderr")
    assert sorted(first.text("stdout").splitlines()) == [f"koala-1 node {rank} of 3: 6" for rank in range(2)]
    assert second.text("stdout") == "koala-1 node 2 of 3: 6\n"


WORKER = """
ranks="$NODE_RANK $PET_NODE_RANK $NPROC_PER_NODE $PET_NPROC_PER_NODE"
echo "$ranks ${TEST_NODE-own} $TEST_SITE $(cat)" >>"$KOALA_HOME/said"
"""


def test_a_worker_learns_its_own_numbers_and_the_first_node_reads_the_input(make: Make) -> None:
    application = Application(script=WORKER, stdin="input", environment=(("NODE_RANK", "7"),))
    (only,) = make(application, JobType.TORCHRUN, ((("a0", 1), ("a1", 2)),))
    only.appears("ready")
    only.put("workspace/input", b"read")
    release(JobType.TORCHRUN, [only])
    assert only.ended() == "exited 0", only.text("stderr")
    assert sorted(only.text("said").splitlines()) == ["0 0 1 1 own sourced read", "1 1 2 2 a1 sourced "]


@pytest.mark.parametrize("place", [0, 1])
def test_the_first_worker_that_fails_ends_those_of_the_other_nodes(make: Make, tmp_path: Path, place: int) -> None:
    script = f'if [ "$NODE_RANK" = {place} ]; then exit 3; fi\nexec sleep 60'
    (only,) = make(Application(script=script), JobType.TORCHRUN, ((("a0", 1), ("a1", 1), ("a2", 1)),))
    release(JobType.TORCHRUN, [only])
    assert only.ended() == "exited 3"
    assert not processes_of(tmp_path)


def test_what_workers_of_all_nodes_used_is_told_together(make: Make) -> None:
    script = f"""#!{sys.executable}
import glob, os, time
held = b"x" * (64 << 20)
while time.process_time() < 0.3:
    pass
def largest():
    words = [open(each).read().split() for each in glob.glob(os.environ["KOALA_HOME"] + "/.memory-*")]
    return sorted(int(each[0]) if each else 0 for each in words)[-2:]
while len(largest()) < 2 or largest()[0] < 65536:
    time.sleep(0.02)
"""
    (only,) = make(Application(script=script), JobType.TORCHRUN, ((("a0", 1), ("a1", 1)),))
    release(JobType.TORCHRUN, [only])
    assert only.ended() == "exited 0", only.text("stderr")
    milliseconds, kib = map(int, only.text("usage").split())
    assert milliseconds >= 600
    assert kib >= 2 * 65536


@pytest.mark.parametrize("job_type", [JobType.PLAIN, JobType.TORCHRUN])
def test_what_was_used_is_not_known_where_a_node_does_not_tell(make: Make, job_type: JobType) -> None:
    """Of a plain application nobody sees the other nodes; of the others one whose disk is full tells nothing."""
    script = 'rm -rf "$KOALA_HOME/.usage-1"; mkdir "$KOALA_HOME/.usage-1"'
    (only,) = make(Application(script=script), job_type, ((("a0", 1), ("a1", 1)),))
    release(job_type, [only])
    only.ended()
    assert only.text("usage") == "- -\n"


def test_a_worker_that_does_not_listen_is_ended_by_force(make: Make, tmp_path: Path) -> None:
    script = 'trap "" TERM\n: >"$KOALA_HOME/on$NODE_RANK"\nexec sleep 60'
    (only,) = make(Application(script=script), JobType.TORCHRUN, ((("a0", 1), ("a1", 1)),))
    release(JobType.TORCHRUN, [only])
    only.appears("on0")
    only.appears("on1")
    only.terminate()
    assert only.ended() == "exited 143"
    assert not processes_of(tmp_path)


# ------------------------------------------------------------------------------------- what is told of nodes


def test_a_plain_program_runs_once_on_the_first_node(make: Make) -> None:
    (only,) = make(
        Application(script='echo "${TEST_NODE-own} $TEST_SITE $KOALA_NODES"'),
        JobType.PLAIN,
        ((("a0", 1), ("a1", 1)),),
    )
    release(JobType.PLAIN, [only])
    assert only.ended() == "exited 0"
    assert only.text("stdout") == "own sourced 127.0.0.1,a1\n"


def test_a_component_without_a_site_file_has_this_node_alone(make: Make) -> None:
    (only,) = make(Application(script="exit 0"), JobType.PLAIN, ((),))
    assert not (only.home / SITE).exists()
    only.appears("ready")
    name = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    assert only.text(NODES) == f"{name} 1\n"
    told = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False)
    assert only.text(ADDRESSES).split() == (told.stdout.split() if told.returncode == 0 else [])


@pytest.mark.parametrize("body", ["return 1", ":", "echo a0 1; exit 3"])
def test_a_site_that_does_not_tell_its_nodes_fails_the_component_before_the_barrier(make: Make, body: str) -> None:
    (only,) = make(Application(script="exit 0"), JobType.PLAIN, ((),), site=f"koala_nodes() {{ {body}; }}\n")
    assert only.ended() == NO_NODES
    assert not (only.home / "ready").exists()
    assert "which nodes this component has" in only.text("log")
