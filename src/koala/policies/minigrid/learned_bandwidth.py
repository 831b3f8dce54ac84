"""B5, believing: as A2, for jobs of unknown bandwidth, which are taken to send what earlier ones were seen to send.

A plain function over numbers that runs as Python and compiles with numba unchanged. Once a co-allocated job runs, its
links show what it demands; what is believed of the next job is for the caller to keep, such as the mean of the
bisection bandwidths seen so far. A belief can be wrong, so that the reserve is larger than where bandwidth is known.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.minigrid.reserve import divide_with_reserve

RESERVE_BELIEVED = 0.6


def believing(
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    believed_bit_s: float,
    threshold: float,
    spare: MutableSequence[int],
    parts: MutableSequence[int],
) -> int:
    """Divide a job that no site holds whole; ``believed_bit_s`` is per processor, and 0 before anything was seen.

    With nothing seen yet a job goes wherever there are idle processors: the first one shows what jobs send. A refused
    job stays refused as with A2 while the belief stays; a lower belief may place it. The other arguments and the
    answer are as of ``divide_with_reserve``.
    """
    return divide_with_reserve(
        idle, total, demand, capacity, believed_bit_s, threshold, RESERVE_BELIEVED, spare, parts
    )
