"""The wide area between the sites of a lab: a program that forwards packets from namespace to namespace.

Every site has a TUN device. A packet that leaves it is delayed as long as the link between the two sites takes, and
then written to the other device. The emulator runs as a separate program, and so uses only the standard library. An
``EmulatedLink`` uses no clock and no device; ``main`` is the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

READY = "ready"  # this file shows that packets flow
MTU_BYTES = 1_500
# The longest time that a link queues packets before it drops some, as routers do.
QUEUE_S = 0.1
# About the longest time that a packet occupies a link, so that others can come in between.
BURST_S = 0.001
PACKETS_PER_TURN_MAX = 64

_DEVICE_FILE = "/dev/net/tun"
_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_OFFLOAD_CHECKSUM_AND_TCP4 = 0x01 | 0x02

# Every packet has a header of the device in front: whether it contains several segments, and of what size.
_HEADER = struct.Struct("=BBHHHH")
_HEADER_BYTES = _HEADER.size
_LARGE_BYTES = 65_536 + _HEADER_BYTES
_PLAIN_BYTES = MTU_BYTES + _HEADER_BYTES


class EmulatedLink:
    """One direction between two sites: a queue in front of a link with a rate, a delay and a loss."""

    __slots__ = ("_bytes_s", "_delay_s", "_free_at", "_loss", "_random", "dropped", "forwarded", "out", "waiting")

    def __init__(self, link: Mapping[str, float], out: int, random: Random) -> None:
        self._bytes_s = link["rate_mbit_s"] * 1e6 / 8
        self._delay_s = link["delay_s"]
        self._loss = link["loss"]
        self._random = random
        self._free_at = 0.0
        self.out = out  # the device at its end
        self.waiting: deque[tuple[float, bytes]] = deque()  # with the arrival times, in order
        self.forwarded = 0
        self.dropped = 0

    def take(self, packet: bytes, size_bytes: int, now: float) -> None:
        """Put a packet on the link, or drop it: by chance, or because the queue is full."""
        free_at = self._free_at
        if free_at < now:
            free_at = now
        if free_at - now > QUEUE_S or (self._loss and self._random.random() < self._loss):
            self.dropped += 1
            return
        self._free_at = free_at = free_at + size_bytes / self._bytes_s
        self.waiting.append((free_at + self._delay_s, packet))

    def arrived(self, now: float) -> Iterator[bytes]:
        """Take off the packets that have arrived at its end."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= now:
            self.forwarded += 1
            yield waiting.popleft()[1]


def segment_bytes(links: Iterable[Mapping[str, float]]) -> int:
    """Return how many bytes a site may hand over at once, given its links; 0 for one packet at a time.

    Only with several segments of a TCP stream at once can this program keep up with fast links. On slow links such a
    burst would hold up others, and where packets are lost each must be separate.
    """
    slowest = min((link["rate_mbit_s"] for link in links), default=0.0)
    if any(link["loss"] for link in links) or not slowest:
        return 0
    size_bytes = int(min(slowest * 1e6 / 8 * BURST_S, 65_536))
    return size_bytes if size_bytes >= 2 * MTU_BYTES else 0


def size_on_link(packet: bytes) -> int:
    """Return the bytes that a packet takes on a link, where each of its segments has its own headers."""
    size_bytes = len(packet) - _HEADER_BYTES
    _, kind, _, segment, _, _ = _HEADER.unpack_from(packet)
    if not kind or not segment:
        return size_bytes
    ip_bytes = (packet[_HEADER_BYTES] & 0x0F) * 4
    tcp_at = _HEADER_BYTES + ip_bytes + 12
    if tcp_at >= len(packet):
        return size_bytes
    headers = ip_bytes + (packet[tcp_at] >> 4) * 4
    segments: int = -(-(size_bytes - headers) // segment)
    return size_bytes + max(0, segments - 1) * headers


def forward(devices: Mapping[int, int], links: Mapping[tuple[int, int], EmulatedLink], read_bytes: int) -> None:
    """Forward packets for ever. ``devices`` are by site number, ``links`` by the numbers of both sites, from and to.

    A site's number is the third byte of its addresses. Packets to unknown addresses are dropped.
    """
    number_of = {device: number for number, device in devices.items()}
    watched = list(number_of)
    every = list(links.values())
    clock, read, write, wait = time.monotonic, os.read, os.write, select.select
    to_third = _HEADER_BYTES + 18
    while True:
        earliest = min((link.waiting[0][0] for link in every if link.waiting), default=None)
        readable, _, _ = wait(watched, (), (), None if earliest is None else max(0.0, earliest - clock()))
        for device in readable:
            number = number_of[device]
            for _ in range(PACKETS_PER_TURN_MAX):
                try:
                    packet = read(device, read_bytes)
                except BlockingIOError:
                    break
                if len(packet) < to_third + 2 or packet[_HEADER_BYTES] >> 4 != 4:
                    continue
                link = links.get((number, packet[to_third]))
                if link is not None:
                    link.take(packet, size_on_link(packet), clock())
        now = clock()
        for link in every:
            for packet in link.arrived(now):
                try:
                    write(link.out, packet)
                except OSError:  # the other side accepts no more; lost packets are sent again
                    link.dropped += 1


def open_device(namespace: str, device: str, *, several: bool) -> int:
    """Return the TUN device of a namespace, opened for non-blocking reads and writes."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(_NAMESPACES / namespace, os.O_RDONLY)
    try:
        _enter(libc, there)
        descriptor = os.open(_DEVICE_FILE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", device.encode(), flags))
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _OFFLOAD_CHECKSUM_AND_TCP4 if several else 0)
        _enter(libc, home)
    finally:
        os.close(home)
        os.close(there)
    return descriptor


def _enter(libc: Any, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def main(text: str) -> None:
    """Forward packets by these settings: JSON with ``device``, ``sites`` (namespace by number) and ``links``."""
    settings = json.loads(text)
    namespaces = {int(number): name for number, name in settings["sites"].items()}
    links: dict[tuple[int, int], dict[str, float]] = {
        (one, other): link
        for link in settings["links"]
        for one, other in (link["between"], reversed(link["between"]))
    }
    sizes = {
        number: segment_bytes([link for ends, link in links.items() if ends[0] == number]) for number in namespaces
    }
    devices = {
        number: open_device(name, settings["device"], several=sizes[number] > 0)
        for number, name in namespaces.items()
    }
    random = Random(settings["seed"])
    emulated = {ends: EmulatedLink(link, devices[ends[1]], random) for ends, link in links.items()}
    # Jobs of the lab use all processors; a link that waited for them would not have the requested properties.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.freeze()
    gc.disable()
    Path(READY).touch()
    forward(devices, emulated, _LARGE_BYTES if any(sizes.values()) else _PLAIN_BYTES)


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text(encoding="utf-8"))
