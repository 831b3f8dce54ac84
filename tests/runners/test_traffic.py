"""What jobs send between sites: counted in a real world over two embedded ones, and parsed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala import runners
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.messages import Outcome
from koala.model.request import Application, JobType
from koala.runners.traffic import TrafficReport, is_traffic_mail, parse_traffic
from tests.support.mpi_world import TOKENS, World, in_world
from tests.support.noded import Noded, release
from tests.support.ports import free_port
from tests.support.real_programs import real_program

# Ranks 0 and 3, which are at different sites, exchange little, and ranks 0 and 1, which are not, exchange much, until
# a file says that it is enough. UCX would talk through shared memory.
CHATTER = """
import os
os.environ["UCX_TLS"] = "tcp,self"
from mpi4py import MPI
import pathlib, time
world = MPI.COMM_WORLD
rank, little, much, across, going = world.rank, bytearray(20_000), bytearray(400_000), 0, True
while going:
    if rank in (0, 3):
        world.Sendrecv(little, 3 - rank, recvbuf=bytearray(20_000), source=3 - rank)
        across += 20_000
    if rank in (0, 1):
        world.Sendrecv(much, 1 - rank, recvbuf=bytearray(400_000), source=1 - rank)
    time.sleep(0.05)
    going = world.bcast(not pathlib.Path("stop").exists() if rank == 0 else None)
if rank == 0:
    print(across, flush=True)
"""
QUIET = "from mpi4py import MPI; import pathlib, time\nwhile not pathlib.Path('stop').exists(): time.sleep(0.1)"
# The first process sends to the others, wherever they are, and much more to itself; each stays until a file says that
# it is enough.
SENT, TO_ITSELF = 300_000, 3_000_000
SOCKETS = f"""
import os, pathlib, socket, threading, time
first = os.environ.get("NODE_RANK", os.environ["KOALA_COMPONENT"]) == "0"
others = int(os.environ.get("NNODES", "2")) - 1
host, port = os.environ["KOALA_RENDEZVOUS"].rsplit(":", 1)
kept = []
if first:
    with socket.create_server((host, int(port))) as server:
        kept += [server.accept()[0] for _ in range(others)]
        for each in kept:
            each.sendall(bytes({SENT}))
    with socket.create_server((host, 0)) as server:
        mine = socket.create_connection(server.getsockname())
        kept += [mine, server.accept()[0]]
        threading.Thread(target=mine.sendall, args=[bytes({TO_ITSELF})]).start()
        left = {TO_ITSELF}
        while left:
            left -= len(kept[-1].recv(left))
else:
    while not kept:
        try:
            kept.append(socket.create_connection((host, int(port))))
        except ConnectionRefusedError:
            time.sleep(0.1)
    left = {SENT}
    while left:
        left -= len(kept[0].recv(left))
while not pathlib.Path(os.environ["KOALA_HOME"], "stop").exists():
    time.sleep(0.05)
"""


def reports(world: World, part: int) -> list[bytes]:
    return [mail.data for mail in world.sites[part].mail if is_traffic_mail(mail.name)]


def has_sent(world: World, part: int) -> list[TrafficReport]:
    """The reports that say that the component has sent something."""
    return [told for told in map(parse_traffic, reports(world, part)) if not told.reason and told.sent_bit_s > 0]


def test_what_ranks_send_to_another_site_is_counted_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(CHATTER)
        await world.release()
        for part, watcher in enumerate(world.sites):
            # Before the ranks have met there is nothing to count.
            await watcher.until(lambda part=part: len(has_sent(world, part)) >= 2)  # type: ignore[misc]
        (tmp_path / "a/components/1.1/workspace/stop").touch()
        assert [end.outcome for end in await world.ends()] == [Outcome.DONE] * 2
        across = int(await world.sites[0].stdout(TOKENS[0]))
        for part in range(2):
            told = [line.decode().split() for line in reports(world, part)]
            sent, received = (sum(int(words[place]) for words in told) for place in (2, 3))
            # What is exchanged inside the first site is twenty times as much.
            assert 0 < sent < 2 * across, told
            assert 0 < received < 2 * across, told
            measured = has_sent(world, part)[0]
            assert measured.reason == ""

    in_world(tmp_path, scenario)


def test_ranks_that_do_not_talk_over_tcp_are_said_to_be_unmeasured(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(QUIET)
        await world.release()
        for part, watcher in enumerate(world.sites):
            await watcher.until(lambda part=part: bool(reports(world, part)))  # type: ignore[misc]
        for site in "a/components/1.1", "b/components/1.2":
            (tmp_path / site / "workspace/stop").touch()
        await world.ends()
        for part in range(2):
            assert "no TCP connection" in parse_traffic(reports(world, part)[0]).reason

    in_world(tmp_path, scenario)


def carried(told: list[bytes]) -> tuple[int, int]:
    """Bytes sent and bytes received in these reports."""
    sent, received = (sum(int(data.split()[place]) for data in told) for place in (2, 3))
    return sent, received


# The kernel counts the beginning and the end of a connection too.
A_LITTLE_MORE = 10


@pytest.mark.parametrize("job_type", [JobType.PLAIN, JobType.TORCHRUN])
def test_what_other_applications_send_to_another_site_is_counted_to_the_byte(
    tmp_path: Path, job_type: JobType
) -> None:
    async def scenario(world: World) -> None:
        await world.start(SOCKETS, job_type)
        await world.release(free_port())
        one, two = world.sites
        await one.until(lambda: carried(reports(world, 0))[0] >= SENT)
        await two.until(lambda: carried(reports(world, 1))[1] >= SENT)
        for site in "a/components/1.1", "b/components/1.2":
            (tmp_path / site / "stop").touch()
        assert [end.outcome for end in await world.ends()] == [Outcome.DONE] * 2
        (sent, back), (back_there, received) = carried(reports(world, 0)), carried(reports(world, 1))
        assert SENT <= sent <= SENT + A_LITTLE_MORE
        assert SENT <= received <= SENT + A_LITTLE_MORE
        assert max(back, back_there) <= A_LITTLE_MORE

    in_world(tmp_path, scenario)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[list[Noded]]:
    """Two components of two nodes each; the first process of the job has one for itself."""
    application = Application(executable=sys.executable, arguments=("-c", SOCKETS))
    made = [Noded(tmp_path / f"{part}", part, 2, application, job_type=JobType.TORCHRUN) for part in range(2)]
    yield made
    for each in made:
        (each.home / "stop").touch()
        each.stop()


def told_by(one: Noded) -> list[bytes]:
    return [path.read_bytes() for path in sorted(one.home.glob("outbox/traffic-*"))]


def test_workers_on_several_nodes_are_counted_and_not_what_they_send_inside_their_component(
    crew: list[Noded],
) -> None:
    for each, nodes in zip(crew, ((("a0", 1), ("a1", 1)), (("b0", 1), ("b1", 1))), strict=True):
        each.start(*nodes)
    release(JobType.TORCHRUN, crew, free_port())
    for part, place in (0, 0), (1, 1):
        crew[part].until(lambda part=part, place=place: carried(told_by(crew[part]))[place] >= 2 * SENT)  # type: ignore[misc]
        assert carried(told_by(crew[part]))[place] <= 2 * (SENT + A_LITTLE_MORE)
        assert carried(told_by(crew[part]))[1 - place] <= 2 * A_LITTLE_MORE
    for each in crew:
        (each.home / "stop").touch()
    assert [each.ended() for each in crew] == ["exited 0"] * 2


def test_a_plain_component_of_several_nodes_says_that_they_are_not_all_seen(tmp_path: Path) -> None:
    crew = [Noded(tmp_path / f"{part}", part, 2, Application(script="exit 0")) for part in range(2)]
    for each in crew:
        each.start(("a0", 1), ("a1", 1))
    release(JobType.PLAIN, crew)
    for each in crew:
        assert each.ended() == "exited 0"
        assert "several nodes" in parse_traffic(told_by(each)[0]).reason


# It saves whenever it is asked to, until a file says that it is enough.
SAVES = """
trap ': >"$KOALA_HOME/saved"' TERM
while [ ! -e "$KOALA_HOME/stop" ]; do sleep 0.3; done
"""


def test_an_application_that_saves_on_sigterm_is_counted_on(tmp_path: Path) -> None:
    checkpoint = Checkpoint(every_s=1.0, signal=CheckpointSignal.TERM)
    saves = Noded(tmp_path / "0", 0, 2, Application(script=SAVES), checkpoint=checkpoint)
    other = Noded(tmp_path / "1", 1, 2, Application(script="exit 0"))
    for each in (saves, other):
        each.start(("a0", 1))
    try:
        release(JobType.PLAIN, [saves, other])
        saves.appears("saved")
        before = len(told_by(saves))
        saves.until(lambda: len(told_by(saves)) > before, "a report after it has saved")
        (saves.home / "stop").touch()
        assert [each.ended() for each in (saves, other)] == ["exited 0"] * 2
    finally:
        saves.stop()


def test_connections_to_others_than_the_components_of_the_job_do_not_count(tmp_path: Path) -> None:
    """Such as a database, or a server of files."""
    (tmp_path / ".traffic-node-1").write_text(
        "time 10.00 12.00\n"
        "10.1.0.1:5000 10.2.0.1:6000 1000 10\n"
        "10.1.0.1:5001 10.9.0.1:443 50 90000\n"
        "127.0.0.1:5002 127.0.0.1:8080 7 8\n"
        "fd00::1:5003 fd00::2:6001 500 20\n"
        "whole\n"
    )
    folder = Path(runners.__file__).parent
    words = f"koala_home={shlex.quote(str(tmp_path))}\n. {shlex.quote(str(folder / 'traffic.sh'))}\n"

    def report(peers: str) -> str:
        ask = f"{words}koala_with={shlex.quote(peers)}\nkoala_report_traffic ''"
        return subprocess.run(["sh", "-uc", ask], capture_output=True, text=True, check=True).stdout

    assert report("peer 10.2.0.1\npeer fd00::2") == "2.00 2.00 1500 30 2\n"
    (tmp_path / ".traffic-before").unlink()
    assert report("") == "2.00 2.00 1550 90030 3\n"


# It is to be stopped: by a signal, as no file can be written, or by the file alone, as its signal came too early.
BY_SIGNAL = ("nowhere", "koala_counting both 1\nkoala_stop_counting\n")
BY_FILE = (
    "home",
    """kill() { :; }
printf '' >"$koala_home/.counted-here-$$"
koala_counting both 1
koala_stop_counting
unset -f kill
""",
)


@pytest.mark.parametrize("shell", ["sh", "busybox sh", "bash"])
@pytest.mark.parametrize(("home", "ways"), [BY_SIGNAL, BY_FILE], ids=["signal", "file"])
def test_counting_that_has_hardly_begun_can_be_ended(tmp_path: Path, shell: str, home: str, ways: str) -> None:
    """What else the script has in the background goes on."""
    real_program(shell.split()[0])
    (tmp_path / "home").mkdir()
    folder = Path(runners.__file__).parent
    words = (
        f"koala_home={shlex.quote(str(tmp_path / home))} koala_host=here koala_components=2\n"
        f". {shlex.quote(str(folder / 'beside.sh'))}\n"
        f". {shlex.quote(str(folder / 'traffic.sh'))}\n"
        "koala_follow_traffic() { koala_counted_s=0; koala_sleep_until 600; }\n"
        "trap : TERM\n"
        "sleep 600 & beside=$!\n"
        f"{ways}"
        "kill -KILL $beside && echo ended\n"
    )
    done = subprocess.run([*shell.split(), "-uc", words], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "ended\n"


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (b"4.00 2.00 500000 250000 3\n", TrafficReport(4.0, 2_000_000.0, 1_000_000.0)),
        (b"4.00 0.00 500000 250000 3", TrafficReport(reason="what its script reported makes no sense")),
        (b"-4 2 5 2 3", TrafficReport(reason="what its script reported makes no sense")),
        (b"\xff" * 9_999, TrafficReport(reason="what its script reported makes no sense")),
        (b"nan inf 1 1 1", TrafficReport(reason="what its script reported makes no sense")),
        (b"missing\n", TrafficReport(reason="it needs ss (iproute2), awk and ps on the nodes there")),
        (
            b"several\n",
            TrafficReport(
                reason="a plain job has several nodes there, and its processes on nodes other than the first are not "
                "seen"
            ),
        ),
        (b"unmeasured\n", TrafficReport(reason="ss or ps did not answer on a node there")),
    ],
)
def test_a_report_is_parsed_whatever_stands_in_it(text: bytes, report: TrafficReport) -> None:
    assert parse_traffic(text) == report


@pytest.mark.parametrize("name", ["traffic-1", "traffic-001", "traffic", "proxies", "traffic-0a"])
def test_mail_of_another_name_is_no_report(name: str) -> None:
    assert not is_traffic_mail(name)
