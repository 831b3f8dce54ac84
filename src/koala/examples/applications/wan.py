"""Emulated distance between clusters, so that one machine can show what several clusters would cost.

A message is held back for the latency and for its bytes over the bandwidth. Messages do not slow each other down: the
links of this emulation are never saturated.
"""

from __future__ import annotations

from dataclasses import dataclass

_BITS_PER_BYTE = 8


@dataclass(frozen=True)
class WanEmulation:
    """How far clusters are apart. Without a bandwidth only the latency counts."""

    latency_ms: float = 0.0
    bandwidth_mbit_s: float | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether any message is held back at all."""
        return self.latency_ms > 0 or self.bandwidth_mbit_s is not None

    def delay_s(self, size_bytes: int) -> float:
        """How long after it was sent a message of this size may be used in another cluster."""
        delay_s = self.latency_ms / 1e3
        if self.bandwidth_mbit_s is not None:
            delay_s += size_bytes * _BITS_PER_BYTE / (self.bandwidth_mbit_s * 1e6)
        return delay_s

    def __str__(self) -> str:
        speed = "any bandwidth" if self.bandwidth_mbit_s is None else f"{self.bandwidth_mbit_s:g} Mbit/s"
        return f"{self.latency_ms:g} ms, {speed}"
