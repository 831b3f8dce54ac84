"""Transfers: latency, then an equal share of the link, exact to the second; and what breaks or stops them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import AnswerFaults, Grid, GridSimulation, Link, Links, PairLink
from koala.model.messages import CancelTransfer
from koala.simulator.world.links import FairLink, LinkTransfer
from tests.support.hand_driven import HandDriven, grid, site

MEGABYTE = 1_000_000


def linked(*, latency_s: float = 0.0, answers: AnswerFaults | None = None) -> Grid:
    """Three sites; 8 Mbit/s everywhere, a megabyte each second, but 80 Mbit/s between a and c."""
    return Grid(
        sites=(site("a", 4), site("b", 4), site("c", 4)),
        links=Links(
            default=Link(bandwidth_mbit_s=8.0, latency_s=latency_s),
            pairs=(PairLink(between=("c", "a"), bandwidth_mbit_s=80.0, latency_s=0.0),),
        ),
        simulation=GridSimulation() if answers is None else GridSimulation(answers=answers),
    )


def test_a_transfer_takes_its_latency_and_then_its_bytes() -> None:
    hands = HandDriven(linked(latency_s=2.0))
    hands.transfer("t", "a", "b", 10 * MEGABYTE)
    assert hands.heard(100) == ["12 arrived t"]


def test_a_pair_with_its_own_link_uses_it_in_both_directions() -> None:
    hands = HandDriven(linked())
    hands.transfer("there", "a", "c", 10 * MEGABYTE)
    hands.until(50)
    hands.transfer("back", "c", "a", 10 * MEGABYTE)
    assert hands.heard(100) == ["51 arrived back"]


def test_two_transfers_on_one_link_share_it_and_the_survivor_speeds_up() -> None:
    # From 0 to 4 the first alone moves 4 MB; then both move half a megabyte a second. The second needs 12 s for
    # its 6 MB, until 16; the first has 20 - 4 - 6 = 10 MB left then and goes on alone until 26.
    hands = HandDriven(linked())
    hands.transfer("first", "a", "b", 20 * MEGABYTE)
    hands.until(4)
    hands.transfer("second", "b", "a", 6 * MEGABYTE)
    assert hands.heard(100) == ["16 arrived second", "26 arrived first"]


def test_transfers_on_different_links_do_not_meet() -> None:
    hands = HandDriven(linked())
    hands.transfer("ab", "a", "b", 10 * MEGABYTE)
    hands.transfer("bc", "b", "c", 10 * MEGABYTE)
    assert hands.heard(100) == ["10 arrived ab", "10 arrived bc"]


def test_a_cancelled_transfer_says_nothing_and_frees_its_share() -> None:
    hands = HandDriven(linked())
    hands.transfer("stopped", "a", "b", 20 * MEGABYTE)
    hands.transfer("kept", "a", "b", 10 * MEGABYTE)
    hands.until(4)
    hands.world.perform(CancelTransfer(transfer="stopped"), hands.now)
    assert hands.heard(100) == ["12 arrived kept"]


def test_a_transfer_cancelled_within_its_latency_never_flows() -> None:
    hands = HandDriven(linked(latency_s=5.0))
    hands.transfer("t", "a", "b", MEGABYTE)
    hands.world.perform(CancelTransfer(transfer="t"), hands.now)
    assert hands.heard(100) == []


def test_nothing_to_move_arrives_at_once() -> None:
    hands = HandDriven(linked(latency_s=5.0))
    hands.transfer("here", "a", "a", MEGABYTE)
    hands.transfer("empty", "a", "b", 0)
    assert hands.heard(1) == ["0 arrived here", "0 arrived empty"]


def test_starting_a_transfer_again_moves_nothing_twice_and_repeats_its_end() -> None:
    hands = HandDriven(linked())
    hands.transfer("t", "a", "b", 10 * MEGABYTE)
    hands.until(5)
    hands.transfer("t", "a", "b", 10 * MEGABYTE)
    assert hands.heard(20) == ["10 arrived t"]
    hands.transfer("t", "a", "b", 10 * MEGABYTE)
    assert hands.heard(50) == ["20 arrived t"]


def test_a_transfer_may_break_on_its_way() -> None:
    hands = HandDriven(linked(answers=AnswerFaults(transfer_break=1.0)))
    hands.transfer("t", "a", "b", 10 * MEGABYTE)
    (end,) = hands.heard(100)
    assert end.endswith("broken t")
    assert 0 <= float(end.split()[0]) < 10


def test_an_outage_breaks_the_transfers_of_its_site_and_refuses_new_ones() -> None:
    hands = HandDriven(
        grid(site("a", 4), site("b", 4, outages=((5.0, 10.0),)), site("c", 4)),
    )
    hands.transfer("to b", "a", "b", 10**9)
    hands.transfer("to c", "a", "c", 10**8)
    assert hands.heard(6) == ["5 b silent", "5 broken to b"]
    hands.transfer("again", "b", "a", 10**9)
    assert hands.heard(9) == ["6 broken again", "8.005 arrived to c"]


FLOWS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(FLOWS)
def test_a_busy_link_moves_exactly_its_bandwidth(flows: list[tuple[int, int]]) -> None:
    """The last of several overlapping transfers ends when a link that is never idle has moved all their bytes."""
    link = FairLink(8.0, 0.0)
    waiting = sorted((float(at), float(size) * MEGABYTE) for at, size in flows)
    expected, moved_until = 0.0, 0.0
    for at, size in waiting:
        moved_until = max(moved_until, at) + size / MEGABYTE
        expected = moved_until
    now = 0.0
    ended = 0
    while ended < len(flows):
        delivery = link.next_delivery_at(now)
        if waiting and (delivery is None or waiting[0][0] < delivery):
            at, size = waiting.pop(0)
            now = at
            link.join(LinkTransfer("t", link, "a", "b", size, False), now)
        else:
            assert delivery is not None
            now = delivery
            ended += len(link.deliver(now))
    assert now == pytest.approx(expected)
    assert link.active == 0


def test_where_messages_go_astray_a_cancelled_transfer_never_starts_again() -> None:
    hands = HandDriven(linked(answers=AnswerFaults(transfer_break=1e-9)))
    hands.world.perform(CancelTransfer(transfer="stopped"), hands.now)
    hands.transfer("stopped", "a", "b", 20 * MEGABYTE)
    assert hands.heard(200) == []


def test_where_messages_are_reliable_nothing_of_a_cancelled_transfer_is_kept() -> None:
    hands = HandDriven(linked())
    for number in range(50):
        hands.transfer(f"t{number}", "a", "b", 1)
        hands.until(float(number + 1))
        hands.world.perform(CancelTransfer(transfer=f"t{number}"), hands.now)
    assert not hands.world.transfers._ended
    assert not hands.world.transfers.active
