"""What each runner tells the components, and how the proxies that hydra prints become mail."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_sites import launch, opened

from koala.launching import MAIL_BYTES_MAX, LaunchError, Peer
from koala.messages import Outcome
from koala.model import Application, JobType
from koala.runners import go_for, proxy_mail, rendezvous_port
from koala.runners.mpi import HydraOutputError, parse_proxies
from koala.runners.plain import RENDEZVOUS_PORT_FIRST, RENDEZVOUS_PORTS

PEERS = (
    Peer(part=0, host="a1", processors=3, nodes=("a1", "a2")),
    Peer(part=1, host="b1", processors=1),
)
COMMAND = "/opt/mpich/bin/hydra_pmi_proxy --control-port 127.0.0.1:39363 --rmk user --launcher manual --proxy-id"
# As mpiexec of MPICH 5.0 prints it, with the blank at the end of each command.
RECORDED = f"HYDRA_LAUNCH: {COMMAND} 0 \nHYDRA_LAUNCH: {COMMAND} 1 \nHYDRA_LAUNCH_END\n"


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
        "KOALA_RENDEZVOUS": "a1:4711",
    }.items()


def test_the_mpi_runner_deals_out_ranks_in_the_order_of_the_components() -> None:
    assert told(JobType.MPI, 0)["KOALA_MPI_HOSTS"] == "component0:3,component1:1"
    assert told(JobType.MPI, 0)["KOALA_MPI_RANKS"] == "4"
    assert told(JobType.MPI, 1)["KOALA_MPI_ADDRESS"] == "a1"


def test_tasks_of_several_processors_are_that_many_fewer_ranks_and_workers() -> None:
    peers = (
        Peer(part=0, host="a1", processors=6, processors_per_task=3),
        Peer(part=1, host="b1", processors=4),
    )
    first, second = (dict(go.environment) for go in go_for(JobType.MPI, 12, peers, 4711))
    assert (first["KOALA_MPI_HOSTS"], first["KOALA_MPI_RANKS"]) == ("component0:2,component1:4", "6")
    assert (second["KOALA_FIRST_RANK"], second["KOALA_PROCESSORS_ALL"]) == ("2", "6,4")
    assert (first["KOALA_PROCESSORS_PER_TASK"], second["KOALA_PROCESSORS_PER_TASK"]) == ("3", "1")
    first, second = (dict(go.environment) for go in go_for(JobType.TORCHRUN, 12, peers, 4711))
    assert (first["NPROC_PER_NODE"], second["PET_NPROC_PER_NODE"], second["WORLD_SIZE"]) == ("2", "4", "6")


@pytest.mark.parametrize("per_task", [0, 4])
def test_a_peer_has_whole_tasks(per_task: int) -> None:
    with pytest.raises(LaunchError, match="processors_per_task"):
        Peer(part=0, host="a", processors=6, processors_per_task=per_task)


def test_torchrun_needs_no_options() -> None:
    second = told(JobType.TORCHRUN, 1)
    assert second["MASTER_ADDR"] == second["PET_MASTER_ADDR"] == "a1"
    assert (second["NODE_RANK"], second["NNODES"], second["WORLD_SIZE"]) == ("1", "2", "4")
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
    first, second = proxy_mail(RECORDED.encode(), parts=2)
    assert first.decode().split("\n")[:2] == ["/opt/mpich/bin/hydra_pmi_proxy", "--control-port"]
    assert second.endswith(b"--proxy-id\n1\n")


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


def test_a_number_of_proxies_that_is_not_the_number_of_components_is_refused() -> None:
    with pytest.raises(HydraOutputError, match="2 proxies for 3 components"):
        proxy_mail(RECORDED.encode(), parts=3)


@given(st.binary(max_size=200) | st.text("HYDRA_LAUNCH: END\n/-proxyid01", max_size=200).map(str.encode))
def test_garbage_never_becomes_mail_or_a_stack_trace(data: bytes) -> None:
    with pytest.raises(HydraOutputError):
        proxy_mail(data, parts=1)


# --------------------------------------------------------------------------------------------- torchrun


def test_two_components_find_each_other_by_the_variables_of_torchrun(tmp_path: Path) -> None:
    program = Application(executable=sys.executable, arguments=(str(Path(__file__).parent / "rendezvous.py"),))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    peers = [Peer(part=part, host="127.0.0.1", processors=3 - part) for part in range(2)]
    goes = go_for(JobType.TORCHRUN, 1, peers, port)

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
            for part, watcher in enumerate((one, two)):
                await watcher.start(launch(f"1.{part}", program, part=part, parts=2, job_type=JobType.TORCHRUN))
            for part, watcher in enumerate((one, two)):
                await watcher.ready(f"1.{part}")
                assert await watcher.site.nodes(f"1.{part}") == ("127.0.0.1",)
                await watcher.site.release(f"1.{part}", goes[part])
            for part, watcher in enumerate((one, two)):
                assert (await watcher.ended(f"1.{part}")).outcome is Outcome.DONE
                assert await watcher.stdout(f"1.{part}") == f"koala-1 node {part} of 2: 5\n"

    asyncio.run(scenario())
