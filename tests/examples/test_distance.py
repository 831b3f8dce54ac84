"""Emulated distance: what is held back and for how long at least; sums over clusters; gentle waiting."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from koala.examples.applications.clusters import ProcessClusters, WanEmulation
from koala.examples.applications.world import Array, _Transit
from tests.support.mpi_crew import MpiCrew

if TYPE_CHECKING:
    from mpi4py import MPI

LATENCY_MS = 4.0
# A number, and the time at which the message was sent.
OVERHEAD_BYTES = 8

# One process of a world in clusters; what it puts into `told` is printed by the first one.
WORLD = """
import json, sys, time
import numpy as np
from koala.examples.applications.clusters import ProcessClusters
from koala.examples.applications.clusters import WanEmulation
from koala.examples.applications.world import Parcel, MpiWorld
world = MpiWorld(comm, ProcessClusters({clusters}), WanEmulation({wan}))
told = None
{program}
if world.rank == 0:
    print(json.dumps(told))
"""


def in_world(crew: MpiCrew, program: str, clusters: tuple[int, ...], wan: str = "") -> object:
    text = WORLD.format(program=program, clusters=clusters, wan=wan)
    done = crew.execute(text, sum(clusters))
    assert done.code == 0, done.err
    return cast("object", json.loads(done.out))


def test_the_delay_is_latency_and_bytes_over_bandwidth() -> None:
    assert WanEmulation(10.0, 100.0).delay_s(1_250_000) == pytest.approx(0.010 + 0.100)
    assert WanEmulation(10.0).delay_s(1_250_000) == pytest.approx(0.010)
    assert WanEmulation().delay_s(1_250_000) == 0.0


class _Here:
    """A request of a message that has come."""

    def Test(self) -> bool:  # noqa: N802 - MPI's own name
        return True


def test_a_message_is_held_back_from_the_time_it_was_sent_and_not_from_when_it_is_looked_for() -> None:
    def transit(sent_at: float) -> tuple[_Transit, Array]:
        into = np.zeros(2)
        wire = np.array([sent_at, 1.0, 2.0])
        return _Transit(cast("MPI.Request", _Here()), wire, 100.0, into), into

    just_sent, untouched = transit(time.monotonic())
    wait_s = just_sent.wait_s()
    assert wait_s is not None
    assert 0.0 < wait_s <= 100.0
    assert not untouched.any()
    long_sent, filled = transit(time.monotonic() - 101.0)
    assert long_sent.wait_s() == 0.0
    assert filled.tolist() == [1.0, 2.0]


def test_messages_inside_a_cluster_are_not_held_back(crew: MpiCrew) -> None:
    program = """
peer = {0: 1, 1: 0}.get(world.rank)
if peer is not None:
    heard = np.zeros(3)
    for turn in range(50):
        world.exchange([Parcel(peer, np.full(3, turn + world.rank))], [Parcel(peer, heard)])
    told = heard.tolist()
"""
    # The distance is as long as the test may take at the most: a single delay would be seen.
    assert in_world(crew, program, (2, 1), "60_000.0") == [50.0] * 3


def test_every_message_to_another_cluster_takes_its_time(crew: MpiCrew) -> None:
    program = """
turns, values = 20, np.zeros(1249)
began_at = time.monotonic()
for turn in range(turns):
    if world.rank == 0:
        world.exchange([Parcel(1, values)], [])
        world.exchange([], [Parcel(1, values)])
    else:
        world.exchange([], [Parcel(0, values)])
        world.exchange([Parcel(0, values)], [])
spent = world.clock.read()
told = [time.monotonic() - began_at, spent.across_s, spent.inside_s, world.messages_across, world.bytes_across]
"""
    told_ = in_world(crew, program, (1, 1), "4.0, 10.0")
    assert isinstance(told_, list)
    elapsed_s, across_s, inside_s, messages, sent_bytes = told_
    delay_s = 0.004 + 10_000 * 8 / 10e6
    assert elapsed_s >= 40 * delay_s
    # The first process waits for the answers, and so for both ways.
    assert across_s >= 20 * delay_s
    assert inside_s < across_s
    assert (messages, sent_bytes) == (20, 200_000)


@pytest.mark.parametrize("groups", ["1,1", "2,2", "1,1,1,1"])
def test_a_run_takes_at_least_one_delay_for_each_exchange_between_clusters(crew: MpiCrew, groups: str) -> None:
    iterations, size = 30, 16
    processes = sum(map(int, groups.split(",")))
    done = crew.told(
        "laplace",
        *("--size", str(size), "--tolerance", "0", "--iterations-max", str(iterations)),
        *("--groups", groups, "--wan-latency-ms", str(LATENCY_MS), "--wan-bandwidth-mbit-s", "10"),
        processes=processes,
    )
    columns = int(done["pattern"].split(" x ")[1])
    row = size // columns if processes == 4 else size
    delay_s = LATENCY_MS / 1e3 + (row * 8 + OVERHEAD_BYTES) * 8 / 10e6
    exchanges = 2 * iterations
    pairs_apart = {"1,1": 1, "2,2": 2, "1,1,1,1": 4}[groups]
    assert done["messages_across"] == 2 * pairs_apart * exchanges
    assert done["bytes_across"] == done["messages_across"] * (row * 8 + OVERHEAD_BYTES)
    assert done["seconds"]["elapsed_s"] >= exchanges * delay_s


def test_the_parts_of_the_time_are_no_more_than_the_whole(crew: MpiCrew) -> None:
    seconds = crew.told(
        "poisson", "--size", "32", "--tolerance", "1e-3", "--groups", "2,2", "--wan-latency-ms", "0.2", processes=4
    )["seconds"]
    parts = seconds["computing_s"] + seconds["inside_s"] + seconds["across_s"]
    assert 0 < parts <= seconds["elapsed_s"] * (1 + 1e-9)
    assert min(seconds.values()) > 0


# ------------------------------------------------------------------------------------- clusters and sums


def test_ranks_are_dealt_out_to_the_clusters_in_order() -> None:
    clusters = ProcessClusters((2, 1, 3))
    assert [clusters.cluster_of(rank) for rank in range(6)] == [0, 0, 1, 2, 2, 2]
    assert clusters.leaders() == [0, 2, 3]
    assert clusters.are_apart(1, 2)
    assert not clusters.are_apart(3, 5)


def test_sums_and_maxima_are_the_same_in_all_processes(crew: MpiCrew) -> None:
    program = """
mine = [world.sum_all(world.rank, 1.0), world.largest_of_all(-world.rank, world.rank)]
told = comm.allgather(mine)
"""
    assert in_world(crew, program, (1, 2, 3)) == [[[15.0, 6.0], [0.0, 5.0]]] * 6


def test_two_messages_of_a_cluster_cross_the_distance_for_a_sum(crew: MpiCrew) -> None:
    program = """
world.sum_all(1.0)
sent = comm.allgather(world.messages_across)
told = sent
"""
    assert in_world(crew, program, (2, 2, 2)) == [2, 0, 1, 0, 1, 0]


def test_a_process_that_waits_leaves_the_processor_to_others(crew: MpiCrew) -> None:
    program = """
comm.barrier()
if world.rank == 1:
    time.sleep(2.0)
values = np.zeros(1)
busy_s = time.process_time()
world.exchange([Parcel(0, values)] if world.rank else [], [] if world.rank else [Parcel(1, values)])
told = time.process_time() - busy_s
"""
    busy_s = in_world(crew, program, (2,))
    assert isinstance(busy_s, float)
    assert busy_s < 1.0, "less than half of the two seconds for which it waits at most"


def test_distance_is_not_emulated_between_machines_whose_clocks_differ(crew: MpiCrew) -> None:
    program = """
from unittest import mock
from koala.examples.applications import world as module
from koala.examples.applications.errors import ApplicationError
with mock.patch.object(module, "_clock_identity", lambda: f"machine {comm.rank}"):
    try:
        MpiWorld(comm, ProcessClusters((1, 1)), WanEmulation(1.0))
    except ApplicationError as error:
        told = error.for_user()
"""
    told_ = in_world(crew, program, (1, 1))
    assert isinstance(told_, str)
    assert "run on several machines" in told_
    assert "leave the options out" in told_
