"""What a link of the wide area does to packets, without any device: rate, delay, queue and loss."""

from __future__ import annotations

import struct
from random import Random

import pytest

from koala.lab.network.emulator import QUEUE_S, EmulatedLink, segment_bytes, size_on_link


def emulated(rate_mbit_s: float = 8.0, delay_s: float = 0.0, loss: float = 0.0) -> EmulatedLink:
    link = {"rate_mbit_s": rate_mbit_s, "delay_s": delay_s, "loss": loss}
    return EmulatedLink(link, out=0, random=Random(7))


def test_packets_leave_one_after_the_other_at_the_rate_of_the_link_and_arrive_after_its_delay() -> None:
    # 8 Mbit/s carry 1,000 bytes in a millisecond.
    link = emulated(delay_s=0.010)
    for name in (b"a", b"b", b"c"):
        link.take(name, 1_000, now=5.0)
    assert [due for due, _ in link.waiting] == pytest.approx([5.011, 5.012, 5.013])
    assert list(link.arrived(5.0109)) == []
    assert list(link.arrived(5.0121)) == [b"a", b"b"]
    assert list(link.arrived(6.0)) == [b"c"]
    assert link.forwarded == 3


def test_a_link_that_was_idle_owes_nothing() -> None:
    link = emulated()
    link.take(b"a", 1_000, now=1.0)
    link.take(b"b", 1_000, now=9.0)
    assert [due for due, _ in link.waiting] == pytest.approx([1.001, 9.001])


def test_a_full_queue_drops_what_comes_and_takes_more_when_it_has_drained() -> None:
    link = emulated()
    for _ in range(500):
        link.take(b"x", 1_000, now=0.0)
    assert len(link.waiting) == pytest.approx(QUEUE_S * 1_000, abs=1)
    assert link.dropped == 500 - len(link.waiting)
    dropped = link.dropped
    link.take(b"y", 1_000, now=QUEUE_S / 2)
    assert link.dropped == dropped


def test_a_lossy_link_drops_about_that_share_and_the_others_pass() -> None:
    link = emulated(loss=0.25)
    for number in range(4_000):
        link.take(b"x", 1_000, now=number / 1_000)
    assert link.dropped == pytest.approx(1_000, abs=120)
    assert link.dropped + len(link.waiting) == 4_000


def test_several_segments_are_handed_over_at_once_only_on_fast_links_without_loss() -> None:
    def of(*links: tuple[float, float]) -> int:
        return segment_bytes([{"rate_mbit_s": rate, "loss": loss} for rate, loss in links])

    assert of((100.0, 0.0)) == 12_500  # a millisecond's worth
    assert of((10_000.0, 0.0)) == 65_536
    assert of((100.0, 0.0), (1.0, 0.0)) == 0
    assert of((1_000.0, 0.001)) == 0
    assert of() == 0


def packet(payload_bytes: int, segment: int) -> bytes:
    """A TCP packet of IPv4 with 52 bytes of headers, behind the header of the device."""
    device = struct.pack("=BBHHHH", 1, 1 if segment else 0, 52, segment, 20, 16)
    ip = bytes([0x45]) + bytes(19)
    tcp = bytes(12) + bytes([8 << 4]) + bytes(19)
    return device + ip + tcp + bytes(payload_bytes)


def test_a_heap_of_segments_takes_the_room_of_packets_of_their_own() -> None:
    assert size_on_link(packet(1_000, 0)) == 1_052
    assert size_on_link(packet(1_448, 1_448)) == 1_500
    assert size_on_link(packet(2 * 1_448 + 1, 1_448)) == 2 * 1_448 + 1 + 3 * 52


@pytest.mark.parametrize("length", range(30, 60))
def test_a_packet_that_is_cut_short_has_the_size_that_it_has(length: int) -> None:
    assert size_on_link(packet(0, 1_448)[:length]) == length - 10
