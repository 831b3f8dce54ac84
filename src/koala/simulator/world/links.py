"""The wide-area links of a simulated grid: concurrent transfers on one link share it equally.

An exact fluid model. A link counts how many bytes it has served to each of its flows since the beginning; a flow that
joins when this is V ends when it reaches V plus its size, however many come and go meanwhile.
"""

from __future__ import annotations

from heapq import heappop, heappush

from koala.model.grid import Grid
from koala.model.request import SiteName
from koala.policies.view import BYTES_PER_S_PER_MBIT_S


class LinkTransfer:
    """One transfer on its way. ``work_bytes`` is what flows before it ends, less than its size if it breaks."""

    __slots__ = ("breaks", "cancelled", "link", "name", "source", "target", "work_bytes")

    def __init__(
        self, name: str, link: FairLink, source: SiteName, target: SiteName, work_bytes: float, breaks: bool
    ) -> None:
        self.name = name
        self.link = link
        self.source = source
        self.target = target
        self.work_bytes = work_bytes
        self.breaks = breaks
        self.cancelled = False


class FairLink:
    """The link between two sites, in both directions together."""

    __slots__ = ("_changed_at", "_flows", "_sequence", "active", "bytes_per_s", "latency_s", "served_bytes", "timer")

    def __init__(self, bandwidth_mbit_s: float, latency_s: float) -> None:
        self.bytes_per_s = bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S
        self.latency_s = latency_s
        self.served_bytes = 0.0  # to each flow, since the beginning
        self.active = 0
        self.timer = 0  # the event heap's number of the next delivery
        self._changed_at = 0.0
        self._flows: list[tuple[float, int, LinkTransfer]] = []
        self._sequence = 0

    def _advance(self, now: float) -> None:
        if self.active and now > self._changed_at:
            self.served_bytes += (now - self._changed_at) * self.bytes_per_s / self.active
        self._changed_at = now

    def join(self, transfer: LinkTransfer, now: float) -> None:
        """Start the flow of a transfer."""
        self._advance(now)
        self._sequence += 1
        heappush(self._flows, (self.served_bytes + transfer.work_bytes, self._sequence, transfer))
        self.active += 1

    def leave(self, transfer: LinkTransfer, now: float) -> bool:
        """Remove a transfer before its end; return True if it was flowing."""
        flowing = any(other is transfer for _, _, other in self._flows)
        if flowing:
            self._advance(now)
            self.active -= 1
            transfer.cancelled = True
            self._drop_cancelled()
        return flowing

    def next_delivery_at(self, now: float) -> float | None:
        """Return when the next transfer ends if nothing joins or leaves before; None without flows."""
        if not self._flows:
            return None
        self._advance(now)
        left_bytes = max(0.0, self._flows[0][0] - self.served_bytes)
        return now + left_bytes * self.active / self.bytes_per_s

    def deliver(self, now: float) -> list[LinkTransfer]:
        """Remove and return what ends now: the next transfer, and any that end together with it."""
        self._changed_at = now
        self.served_bytes = self._flows[0][0]
        done = []
        while self._flows and self._flows[0][0] <= self.served_bytes:
            done.append(heappop(self._flows)[2])
            self.active -= 1
            self._drop_cancelled()
        return done

    def _drop_cancelled(self) -> None:
        while self._flows and self._flows[0][2].cancelled:
            heappop(self._flows)


class LinkTable:
    """Every link of a grid, created at its first use: a grid of many sites has many pairs."""

    __slots__ = ("_default", "_links", "_pairs")

    def __init__(self, grid: Grid) -> None:
        self._default = grid.links.default
        self._pairs = {frozenset(pair.between): pair for pair in grid.links.pairs}
        self._links: dict[frozenset[SiteName], FairLink] = {}

    def between(self, source: SiteName, target: SiteName) -> FairLink:
        """Return the link between two different sites."""
        ends = frozenset((source, target))
        link = self._links.get(ends)
        if link is None:
            given = self._pairs.get(ends, self._default)
            link = self._links[ends] = FairLink(given.bandwidth_mbit_s, given.latency_s)
        return link
