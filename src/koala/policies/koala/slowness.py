"""The factor by which a link slows a communicating application down, relative to a reference link.

Predictions (the network-aware policies) and the simulator share one model: what lengthens an execution over several
clusters consists of a share that goes with 1 / bandwidth, a share that goes with latency, and a rest that no link
changes. The grid and ``koala.policies.view`` define the links.
"""

from __future__ import annotations

from math import inf

from koala.model.grid import Links

BYTES_PER_S_PER_MBIT_S = 125_000.0
# An application's slow-down by each further cluster is stated for this link: the default link of a grid.
REFERENCE_BYTES_PER_S = Links().default.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S
REFERENCE_LATENCY_S = Links().default.latency_s
# What a policy assumes of a job with unknown shares: bandwidth and latency count alike.
ASSUMED_BANDWIDTH_SHARE = 0.5
ASSUMED_LATENCY_SHARE = 0.5


def link_slowness(bytes_per_s: float, latency_s: float, bandwidth_share: float, latency_share: float) -> float:
    """Return the factor between the slow-down over this link and that over the reference link, which has exactly 1.

    The shares are fractions that add up to 1 at most; with both 0 every link has 1. Never below 0; infinite over a
    link that moves nothing, if bandwidth counts at all.
    """
    if bandwidth_share > 0.0 and bytes_per_s <= 0.0:
        return inf
    slowness = 1.0 + latency_share * (latency_s / REFERENCE_LATENCY_S - 1.0)
    if bandwidth_share > 0.0:
        slowness += bandwidth_share * (REFERENCE_BYTES_PER_S / bytes_per_s - 1.0)
    return max(0.0, slowness)
