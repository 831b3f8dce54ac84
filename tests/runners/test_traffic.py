"""What the ranks of an MPI job send between sites: counted in a real world over two embedded ones, and parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.model.messages import Outcome
from koala.runners.traffic import TrafficReport, is_traffic_mail, parse_traffic
from tests.support.mpi_world import TOKENS, World, in_world

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


def reports(world: World, part: int) -> list[bytes]:
    return [mail.data for mail in world.sites[part].mail if is_traffic_mail(mail.name)]


def test_what_ranks_send_to_another_site_is_counted_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.start(CHATTER)
        await world.release()
        for part, watcher in enumerate(world.sites):
            await watcher.until(lambda part=part: len(reports(world, part)) >= 2)  # type: ignore[misc]
        (tmp_path / "a/components/1.1/workspace/stop").touch()
        assert [end.outcome for end in await world.ends()] == [Outcome.DONE] * 2
        across = int(await world.sites[0].stdout(TOKENS[0]))
        for part in range(2):
            told = [line.decode().split() for line in reports(world, part)]
            sent, received = (sum(int(words[place]) for words in told) for place in (2, 3))
            # What is exchanged inside the first site is twenty times as much.
            assert 0 < sent < 2 * across, told
            assert 0 < received < 2 * across, told
            measured = parse_traffic(reports(world, part)[-1])
            assert measured.reason == ""
            assert measured.sent_bit_s > 0

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


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (b"4.00 2.00 500000 250000 3\n", TrafficReport(4.0, 2_000_000.0, 1_000_000.0)),
        (b"4.00 0.00 500000 250000 3", TrafficReport(reason="what its script reported makes no sense")),
        (b"-4 2 5 2 3", TrafficReport(reason="what its script reported makes no sense")),
        (b"\xff" * 9_999, TrafficReport(reason="what its script reported makes no sense")),
        (b"nan inf 1 1 1", TrafficReport(reason="what its script reported makes no sense")),
        (b"missing\n", TrafficReport(reason="it needs ss (iproute2), awk and ps on the nodes there")),
        (b"unmeasured\n", TrafficReport(reason="ss or ps did not answer on a node there")),
    ],
)
def test_a_report_is_parsed_whatever_stands_in_it(text: bytes, report: TrafficReport) -> None:
    assert parse_traffic(text) == report


@pytest.mark.parametrize("name", ["traffic-1", "traffic-001", "traffic", "proxies", "traffic-0a"])
def test_mail_of_another_name_is_no_report(name: str) -> None:
    assert not is_traffic_mail(name)
