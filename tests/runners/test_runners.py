"""What each runner tells the components, and how the proxies that hydra prints become mail."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.launch import MAIL_BYTES_MAX, LaunchError, NodeShare, Peer
from koala.model.messages import Outcome
from koala.model.request import Application, JobType
from koala.runners import go_for, proxy_mail, rendezvous_port
from koala.runners.mpi import HydraOutputError, parse_proxies
from koala.runners.plain import RENDEZVOUS_PORT_FIRST, RENDEZVOUS_PORTS, tasks_of_nodes
from tests.support.live_sites import launch, opened
from tests.support.paths import SUPPORT
from tests.support.ports import free_port

PEERS = (
    Peer(part=0, host="a1", processors=3, nodes=(NodeShare("a1", 2), NodeShare("a2", 1))),
    Peer(part=1, host="b1", processors=1),
)
COMMAND = "/opt/mpich/bin/hydra_pmi_proxy --control-port 127.0.0.1:39363 --rmk user --launcher manual --proxy-id"
# As mpiexec of MPICH 5.0 prints it, with the blank at the end of each command.
RECORDED = f"HYDRA_LAUNCH: {COMMAND} 0 \nHYDRA_LAUNCH: {COMMAND} 1 \nHYDRA_LAUNCH_END\n"
# As the first component's script sends it.
SENT = "KOALA_MPI_HOSTS=component0-0:3,component1-0:1\n" + RECORDED


def told(job_type: JobType, part: int) -> dict[str, str]:
    return dict(go_for(job_type, 12, PEERS, 4711)[part].environment)


@pytest.mark.parametrize("job_type", list(JobType))
def test_every_runner_tells_who_the_others_are_and_where_to_meet(job_type: JobType) -> None:
    assert {name: value for name, value in told(job_type, 1).items() if not name.startswith("KOALA_MPI")}.items() >= {
        "KOALA_JOB": "12",
        "KOALA_COMPONENT": "1",
        "KOALA_COMPONENTS": "2",
        "KOALA_PROCESSORS": "1",
        "KOALA_PROCESSORS_ALL": "3,1",
        "KOALA_FIRST_RANK": "3",
        "KOALA_NODES": "a1,a2;b1",
        "KOALA_NODE_PROCESSORS": "2,1;1",
        "KOALA_RENDEZVOUS": "a1:4711",
    }.items()


def test_the_mpi_runner_deals_out_ranks_in_the_order_of_components_and_nodes() -> None:
    assert told(JobType.MPI, 0)["KOALA_MPI_HOSTS"] == "component0-0:2,component0-1:1,component1-0:1"
    assert told(JobType.MPI, 0)["KOALA_MPI_RANKS"] == "4"
    assert told(JobType.MPI, 1)["KOALA_MPI_ADDRESS"] == "a1"


def test_tasks_of_several_processors_are_that_many_fewer_ranks_and_workers() -> None:
    peers = (
        Peer(part=0, host="a1", processors=6, processors_per_task=3),
        Peer(part=1, host="b1", processors=4),
    )
    first, second = (dict(go.environment) for go in go_for(JobType.MPI, 12, peers, 4711))
    assert (first["KOALA_MPI_HOSTS"], first["KOALA_MPI_RANKS"]) == ("component0-0:2,component1-0:4", "6")
    assert (second["KOALA_FIRST_RANK"], second["KOALA_PROCESSORS_ALL"]) == ("2", "6,4")
    assert (first["KOALA_PROCESSORS_PER_TASK"], second["KOALA_PROCESSORS_PER_TASK"]) == ("3", "1")
    first, second = (dict(go.environment) for go in go_for(JobType.TORCHRUN, 12, peers, 4711))
    assert (first["NPROC_PER_NODE"], second["PET_NPROC_PER_NODE"], second["WORLD_SIZE"]) == ("2", "4", "6")


@pytest.mark.parametrize("per_task", [0, 4])
def test_a_peer_has_whole_tasks(per_task: int) -> None:
    with pytest.raises(LaunchError, match="processors_per_task"):
        Peer(part=0, host="a", processors=6, processors_per_task=per_task)


def on(processors: int, per_task: int, *shares: int) -> Peer:
    nodes = tuple(NodeShare(f"n{number}", share) for number, share in enumerate(shares))
    return Peer(part=0, host="n0", processors=processors, nodes=nodes, processors_per_task=per_task)


@pytest.mark.parametrize(
    ("peer", "tasks"),
    [
        (on(7, 1, 4, 3), (4, 3)),
        (on(6, 2, 4, 2), (2, 1)),
        (on(6, 2, 3, 3), (2, 1)),  # two single processors are a task only together
        (on(8, 4, 3, 2, 3), (1, 0, 1)),
        (on(8, 4, 1, 7), (1, 1)),  # the first node has one, whatever it takes
        (on(4, 1, 8, 8), (4, 0)),  # of whole nodes only what was asked for is used
        (Peer(part=0, host="n0", processors=5), (5,)),
    ],
)
def test_a_node_gets_the_tasks_that_its_processors_are(peer: Peer, tasks: tuple[int, ...]) -> None:
    assert tasks_of_nodes(peer) == tasks


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 6), st.data())
def test_tasks_are_all_dealt_out_and_no_node_is_crowded_by_more_than_one(
    shares: list[int], per_task: int, data: st.DataObject
) -> None:
    whole = sum(shares) // per_task
    if whole == 0:
        return
    tasks = data.draw(st.integers(1, whole))
    dealt = tasks_of_nodes(on(tasks * per_task, per_task, *shares))
    assert sum(dealt) == tasks
    assert dealt[0] >= 1
    assert min(dealt) >= 0
    assert all(mine <= share // per_task + 1 for mine, share in zip(dealt, shares, strict=True))


@pytest.mark.parametrize(
    ("shares", "named"), [((2, 1), "have 3 processors together, and it needs 4"), ((4, 0), "n1")]
)
def test_nodes_that_cannot_hold_the_component_are_refused(shares: tuple[int, ...], named: str) -> None:
    with pytest.raises(LaunchError, match=named):
        on(4, 1, *shares)


def test_torchrun_needs_no_options() -> None:
    second = told(JobType.TORCHRUN, 1)
    assert second["MASTER_ADDR"] == second["PET_MASTER_ADDR"] == "a1"
    assert (second["NODE_RANK"], second["NNODES"], second["WORLD_SIZE"]) == ("2", "3", "4")
    assert "KOALA_TORCHRUN_WORKERS" not in second
    first = told(JobType.TORCHRUN, 0)
    assert (first["NODE_RANK"], first["NPROC_PER_NODE"], first["KOALA_TORCHRUN_WORKERS"]) == ("0", "2", "2,1")
    assert second["PET_NPROC_PER_NODE"] == second["NPROC_PER_NODE"] == "1"
    assert second["PET_RDZV_ENDPOINT"] == "a1:4711"
    assert second["RDZV_ID"] == told(JobType.TORCHRUN, 0)["RDZV_ID"]


def test_a_rendezvous_port_stays_below_those_that_the_system_gives_out() -> None:
    ports = {rendezvous_port(job) for job in (0, 1, 9_999, 10_000, 123_456_789)}
    assert min(ports) >= RENDEZVOUS_PORT_FIRST
    assert max(ports) < RENDEZVOUS_PORT_FIRST + RENDEZVOUS_PORTS <= 32_768


def test_an_address_of_version_6_is_bracketed() -> None:
    (go,) = go_for(JobType.PLAIN, 1, [Peer(part=0, host="fe80::1", processors=1)], 80)
    assert dict(go.environment)["KOALA_RENDEZVOUS"] == "[fe80::1]:80"


@pytest.mark.parametrize("peers", [[], [PEERS[1]], [PEERS[1], PEERS[0]], [PEERS[0], PEERS[0]]])
def test_peers_that_are_not_the_whole_job_are_refused(peers: list[Peer]) -> None:
    with pytest.raises(LaunchError, match="every component of the job once"):
        go_for(JobType.PLAIN, 1, peers)


@pytest.mark.parametrize("host", ["", "a b", "$(x)", "-x", "a\n"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(LaunchError, match="host"):
        Peer(part=0, host=host, processors=1)


# ------------------------------------------------------------------------------------------------ hydra


def test_recorded_output_of_mpiexec_becomes_one_command_for_each_component() -> None:
    commands = parse_proxies("a warning of somebody\n" + RECORDED + "output of the program\n")
    assert [command[-1] for command in commands] == ["0", "1"]
    assert commands[0][0] == "/opt/mpich/bin/hydra_pmi_proxy"
    first, second = proxy_mail(SENT.encode(), components=2)
    assert first.decode().split("\n")[:3] == ["0", "/opt/mpich/bin/hydra_pmi_proxy", "--control-port"]
    assert second.startswith(b"0\n/opt/")
    assert second.endswith(b"--proxy-id\n1\n\n")


def test_a_component_gets_the_proxies_of_all_its_nodes() -> None:
    hosts = "KOALA_MPI_HOSTS=component0-0:2,component0-2:2,component1-0:3"
    printed = "".join(f"HYDRA_LAUNCH: /p --proxy-id {number}\n" for number in (2, 0, 1))
    letters = proxy_mail(f"{hosts}\n{printed}HYDRA_LAUNCH_END\n".encode(), components=2)
    assert letters == (b"0\n/p\n--proxy-id\n0\n\n2\n/p\n--proxy-id\n1\n\n", b"0\n/p\n--proxy-id\n2\n\n")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no HYDRA_LAUNCH_END"),
        (RECORDED.replace("HYDRA_LAUNCH_END", ""), "no HYDRA_LAUNCH_END"),
        ("HYDRA_LAUNCH: \nHYDRA_LAUNCH_END\n", "--proxy-id"),
        (RECORDED.replace("id 1", "id 0"), "twice"),
        (RECORDED.replace("id 1", "id 2"), "not one of each"),
        (RECORDED.replace("id 1", "id 9999999"), "--proxy-id"),
        (RECORDED.replace("user", "$(touch hacked)"), "cannot be part"),
        (RECORDED.replace("/opt", "opt"), "not the path"),
        ("x" * (MAIL_BYTES_MAX + 1), "MAIL_BYTES_MAX"),
    ],
)
def test_what_hydra_did_not_print_is_refused(text: str, named: str) -> None:
    with pytest.raises(HydraOutputError, match=named):
        parse_proxies(text)


@pytest.mark.parametrize(
    ("hosts", "named"),
    [
        ("KOALA_MPI_HOSTS=component0-0:2,component0-1:1,component1-0:1", "2 proxies for 3 nodes"),
        ("KOALA_MPI_HOSTS=component0-0:3,component0-1:1", "all 2 components"),
        ("KOALA_MPI_HOSTS=component0-0:3,component2-0:1", "all 2 components"),
        ("KOALA_MPI_HOSTS=component0-0:3,component1-x:1", "does not begin with the nodes"),
        ("KOALA_MPI_HOSTS=", "does not begin with the nodes"),
        ("component0-0:3,component1-0:1", "does not begin with the nodes"),
        ("a warning of somebody", "does not begin with the nodes"),
    ],
)
def test_proxies_that_are_not_those_of_all_nodes_are_refused(hosts: str, named: str) -> None:
    with pytest.raises(HydraOutputError, match=named):
        proxy_mail(f"{hosts}\n{RECORDED}".encode(), components=2)


@given(st.binary(max_size=200) | st.text("HYDRA_LAUNCH: END\n/-proxyid01", max_size=200).map(str.encode))
def test_garbage_never_becomes_mail_or_a_stack_trace(data: bytes) -> None:
    with pytest.raises(HydraOutputError):
        proxy_mail(data, components=1)


# --------------------------------------------------------------------------------------------- torchrun


def test_two_components_find_each_other_by_the_variables_of_torchrun(tmp_path: Path) -> None:
    program = Application(executable=sys.executable, arguments=(str(SUPPORT / "rendezvous.py"),))
    port = free_port()
    peers = [Peer(part=part, host="127.0.0.1", processors=3 - part) for part in range(2)]
    goes = go_for(JobType.TORCHRUN, 1, peers, port)

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
            for part, watcher in enumerate((one, two)):
                await watcher.start(launch(f"1.{part}", program, part=part, parts=2, job_type=JobType.TORCHRUN))
            for part, watcher in enumerate((one, two)):
                await watcher.ready(f"1.{part}")
                assert await watcher.site.nodes(f"1.{part}") == (NodeShare("127.0.0.1", 1),)
                await watcher.site.release(f"1.{part}", goes[part])
            for part, watcher in enumerate((one, two)):
                assert (await watcher.ended(f"1.{part}")).outcome is Outcome.DONE
                assert await watcher.stdout(f"1.{part}") == f"koala-1 node {part} of 2: 5\n"

    asyncio.run(scenario())
