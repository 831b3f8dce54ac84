"""The workload of the mini-grid experiments: jobs that arrive at the clusters, with sizes, times and bandwidths.

Every kind of draw has its own stream under the seed, by cluster, so that arrivals, sizes and times are the same with
any traffic and any placement policy. Jobs are created as arrays, millions of them in a moment.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from koala.model.network import BIT_S_PER_MBIT_S, bisection_factor
from koala.model.request import CUBE_DIMENSIONS_MAX, Pattern

if TYPE_CHECKING:
    from numpy import float64, int8, int32
    from numpy.random import Generator
    from numpy.typing import NDArray

# The streams of the draws under a seed; each has one for each cluster, except those of the jobs' traffic.
_ARRIVALS, _SIZES, _TIMES, _BANDWIDTHS, _PATTERNS = range(5)
# The largest size that fits into the arrays.
_SIZE_MOST = 2**31 - 1


class MiniGridWorkloadError(ValueError):
    """A workload that cannot be drawn: the message says which argument is wrong and what to give instead."""

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


@dataclasses.dataclass(frozen=True, slots=True)
class MiniGridJobs:
    """Jobs by their number, in the order of their submission.

    - ``size`` in processors, ``home`` the index of the cluster where the job arrives (-1: none);
    - ``work_s``: its time on one cluster, with the ``share`` of communication;
    - ``per_processor_bit_s``, ``pattern`` (the numbers of ``koala.model.network``) and ``dimensions`` (of a cube)
      describe its traffic when it is on several.

    The last four have one element for each job, or one for all.

    >>> from koala.simulator import mini_grid_workload
    >>> jobs = mini_grid_workload(clusters=2, jobs_per_cluster=100)
    >>> sorted(set(jobs.home.tolist()))
    [0, 1]
    """

    submit_s: NDArray[float64]
    size: NDArray[int32]
    home: NDArray[int32]
    work_s: NDArray[float64]
    share: NDArray[float64]
    per_processor_bit_s: NDArray[float64]
    pattern: NDArray[int8]
    dimensions: NDArray[int8]

    def __len__(self) -> int:
        return len(self.submit_s)


def mini_grid_workload(
    clusters: int = 4,
    jobs_per_cluster: int = 400_000,
    bsbw_mbit_s: float | tuple[float, float] = 300.0,
    seed: int = 1,
    *,
    sizes: tuple[int, int] = (10, 50),
    interarrival_s: float = 150.0,
    whole_gaps: bool = False,
    execution_s: float = 450.0,
    share: float = 0.3,
    patterns: Mapping[Pattern, float] | None = None,
    dimensions: int = 2,
) -> MiniGridJobs:
    """Return jobs that arrive at every cluster as a Poisson stream; the defaults are the paper's.

    Sizes are uniform from the first to the second number, both included, execution times exponential. The bisection
    bandwidth of a job is one number for all, or uniform between two. ``patterns`` gives their weights; without them
    all processors talk to all. With ``whole_gaps`` the times between two jobs of a cluster are truncated to whole
    seconds, as by a clock without fractions: half a second less on average. Raises ``MiniGridWorkloadError`` about
    the first invalid argument.

    >>> from koala.simulator import mini_grid_workload
    >>> len(mini_grid_workload(clusters=2, jobs_per_cluster=100, seed=1))
    200
    """
    _check("clusters", clusters, 1, what="1 cluster or more")
    _check("jobs_per_cluster", jobs_per_cluster, what="0 jobs or more")
    _check("seed", seed, what="0 or more")
    _check_range("sizes", sizes, 1, _SIZE_MOST, what=f"1 to {_SIZE_MOST} processors")
    bandwidths = bsbw_mbit_s if isinstance(bsbw_mbit_s, tuple) else (bsbw_mbit_s, bsbw_mbit_s)
    _check_range("bsbw_mbit_s", bandwidths, what="0 Mbit/s or more")
    _check("interarrival_s", interarrival_s, what="seconds, 0 or more")
    _check("execution_s", execution_s, what="seconds, 0 or more")
    _check("share", share, 0, 1, what="a fraction of the work, 0 to 1")
    _check("dimensions", dimensions, 1, CUBE_DIMENSIONS_MAX, what=f"1 to {CUBE_DIMENSIONS_MAX}")
    _check_weights(patterns)
    import numpy

    def stream(*key: int) -> Generator:
        return numpy.random.default_rng(numpy.random.SeedSequence(seed, spawn_key=key))

    count = clusters * jobs_per_cluster
    submit_s = numpy.empty(count)
    size = numpy.empty(count, numpy.int32)
    work_s = numpy.empty(count)
    for cluster in range(clusters):
        own = slice(cluster * jobs_per_cluster, (cluster + 1) * jobs_per_cluster)
        gaps_s = stream(_ARRIVALS, cluster).exponential(interarrival_s, jobs_per_cluster)
        if whole_gaps:
            numpy.floor(gaps_s, out=gaps_s)
        numpy.cumsum(gaps_s, out=submit_s[own])
        size[own] = stream(_SIZES, cluster).integers(sizes[0], sizes[1], jobs_per_cluster, numpy.int32, endpoint=True)
        work_s[own] = stream(_TIMES, cluster).exponential(execution_s, jobs_per_cluster)
    order = numpy.argsort(submit_s, kind="stable")
    submit_s, size, work_s = submit_s[order], size[order], work_s[order]
    home = (order // jobs_per_cluster).astype(numpy.int32)
    del order
    pattern = _patterns(patterns, count, stream(_PATTERNS))
    bandwidth_bit_s = _bandwidths_bit_s(bsbw_mbit_s, count, stream(_BANDWIDTHS))
    return MiniGridJobs(
        submit_s=submit_s,
        size=size,
        home=home,
        work_s=work_s,
        share=numpy.array([share]),
        per_processor_bit_s=per_processor_bandwidths(bandwidth_bit_s, size, pattern, dimensions),
        pattern=pattern,
        dimensions=numpy.array([dimensions], numpy.int8),
    )


def _check(name: str, value: float, least: float = 0, most: float = math.inf, *, what: str) -> None:
    """Raise an error about an argument that is outside these bounds, or not a finite number."""
    if not (least <= value <= most and math.isfinite(value)):
        raise MiniGridWorkloadError(f"{name} is {value}; give {what}")


def _check_range(
    name: str, pair: tuple[float, float], least: float = 0, most: float = math.inf, *, what: str
) -> None:
    for value in pair:
        _check(name, value, least, most, what=what)
    if pair[0] > pair[1]:
        raise MiniGridWorkloadError(f"{name} is from {pair[0]} to {pair[1]}; give the smaller number first")


def _check_weights(patterns: Mapping[Pattern, float] | None) -> None:
    if patterns is None:
        return
    for pattern, weight in patterns.items():
        _check(f"the weight of {pattern} in patterns", weight, what="0 or more")
    if not sum(patterns.values()) > 0:
        raise MiniGridWorkloadError("patterns has no pattern with a weight above 0; give one, or leave patterns out")


def per_processor_bandwidths(
    bisection_bit_s: NDArray[float64], size: NDArray[int32], pattern: NDArray[int8], dimensions: int
) -> NDArray[float64]:
    """Return what each processor sends, by job, so that the jobs have these bisection bandwidths; 0 for silent jobs.

    ``bisection_bit_s`` and ``pattern`` have one element for each job, or one for all.
    """
    import numpy

    per_processor_bit_s = numpy.zeros(len(size))
    for kind in numpy.unique(pattern):
        factors = numpy.zeros(int(size.max(initial=0)) + 1)
        for processors in numpy.unique(size):
            factors[processors] = bisection_factor(int(kind), dimensions, int(processors))
        factor = factors[size]
        numpy.divide(bisection_bit_s, factor, out=per_processor_bit_s, where=(pattern == kind) & (factor > 0.0))
    return per_processor_bit_s


def _bandwidths_bit_s(mbit_s: float | tuple[float, float], count: int, stream: Generator) -> NDArray[float64]:
    import numpy

    if isinstance(mbit_s, tuple):
        return stream.uniform(mbit_s[0] * BIT_S_PER_MBIT_S, mbit_s[1] * BIT_S_PER_MBIT_S, count)
    return numpy.array([float(mbit_s * BIT_S_PER_MBIT_S)])


def _patterns(weights: Mapping[Pattern, float] | None, count: int, stream: Generator) -> NDArray[int8]:
    import numpy

    if weights is None or len(weights) == 1:
        only = Pattern.ALL_TO_ALL if weights is None else next(iter(weights))
        return numpy.array([only.number], numpy.int8)
    numbers = numpy.array([pattern.number for pattern in weights], numpy.int8)
    total = sum(weights.values())
    drawn = stream.choice(len(numbers), count, p=[weight / total for weight in weights.values()])
    return numbers[drawn]
