"""The workload of mini-grids has the distributions asked for, and what jobs send changes nothing else in it."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy
import pytest
from numpy import float64
from numpy.typing import NDArray

from koala.model.network import BIT_S_PER_MBIT_S, bisection_factor
from koala.model.request import Pattern
from koala.simulator.workloads.mini_grid import MiniGridJobs, MiniGridWorkloadError, mini_grid_workload

SENT = ("per_processor_bit_s", "pattern", "dimensions", "share")


def unlike(one: MiniGridJobs, other: MiniGridJobs) -> set[str]:
    """The fields in which two workloads differ."""
    names = [field.name for field in dataclasses.fields(one)]
    return {name for name in names if not numpy.array_equal(getattr(one, name), getattr(other, name))}


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert unlike(mini_grid_workload(4, 100, seed=3), mini_grid_workload(4, 100, seed=3)) == set()
    others = unlike(mini_grid_workload(4, 100, seed=3), mini_grid_workload(4, 100, seed=4))
    assert others == {"submit_s", "size", "home", "work_s", "per_processor_bit_s"}


def test_what_jobs_send_changes_nothing_else() -> None:
    plain = mini_grid_workload(4, 100, 300.0)
    assert unlike(plain, mini_grid_workload(4, 100, 900.0)) == {"per_processor_bit_s"}
    assert unlike(plain, mini_grid_workload(4, 100, (200.0, 900.0))) == {"per_processor_bit_s"}
    patterns = {Pattern.RING: 1.0, Pattern.CUBE: 2.0}
    assert unlike(plain, mini_grid_workload(4, 100, patterns=patterns, dimensions=3, share=0.5)) == set(SENT)


def test_gaps_of_whole_seconds_are_the_same_gaps_cut() -> None:
    drawn, cut = mini_grid_workload(1, 500, seed=3), mini_grid_workload(1, 500, seed=3, whole_gaps=True)
    gaps_s = numpy.floor(numpy.diff(drawn.submit_s, prepend=0.0))
    numpy.testing.assert_array_equal(cut.submit_s, numpy.cumsum(gaps_s))
    numpy.testing.assert_array_equal(cut.work_s, drawn.work_s)
    numpy.testing.assert_array_equal(cut.size, drawn.size)


def test_more_clusters_leave_the_jobs_of_the_others_as_they_are() -> None:
    few, more = mini_grid_workload(2, 50), mini_grid_workload(3, 50)
    for name in ("submit_s", "size", "work_s"):
        for cluster in range(2):
            of_few = getattr(few, name)[few.home == cluster]
            assert of_few.tolist() == getattr(more, name)[more.home == cluster].tolist()


def test_the_distributions_are_the_papers() -> None:
    jobs = mini_grid_workload(4, 50_000)
    assert len(jobs) == 200_000
    assert numpy.all(numpy.diff(jobs.submit_s) >= 0)
    assert numpy.bincount(jobs.home).tolist() == [50_000] * 4
    for cluster in range(4):
        gaps_s = numpy.diff(jobs.submit_s[jobs.home == cluster])
        assert gaps_s.mean() == pytest.approx(150.0, rel=0.02)
        assert gaps_s.std() == pytest.approx(150.0, rel=0.03)
    counts = numpy.bincount(jobs.size)
    assert (counts[:10].sum(), len(counts)) == (0, 51)
    assert counts[10:] / len(jobs) == pytest.approx(1 / 41, rel=0.08)
    assert jobs.work_s.mean() == pytest.approx(450.0, rel=0.01)
    assert numpy.median(jobs.work_s) == pytest.approx(450.0 * numpy.log(2), rel=0.015)
    assert jobs.share.tolist() == [0.3]
    for columns in (jobs.size[:-1] / 1.0, jobs.work_s[:-1]):
        assert abs(numpy.corrcoef(columns, numpy.diff(jobs.submit_s))[0, 1]) < 0.01


def bisections_mbit_s(jobs: MiniGridJobs) -> NDArray[float64]:
    columns = (
        numpy.broadcast_to(column, len(jobs)).tolist() for column in (jobs.pattern, jobs.dimensions, jobs.size)
    )
    factors = [bisection_factor(*row) for row in zip(*columns, strict=True)]
    mbit_s: NDArray[float64] = jobs.per_processor_bit_s * numpy.array(factors) / BIT_S_PER_MBIT_S
    return mbit_s


@pytest.mark.parametrize("pattern", [Pattern.ALL_TO_ALL, Pattern.RING, Pattern.CUBE, Pattern.MASTER_WORKER])
def test_every_job_has_the_bisection_bandwidth_that_was_asked_for(pattern: Pattern) -> None:
    jobs = mini_grid_workload(2, 200, 700.0, patterns={pattern: 1.0}, dimensions=3)
    assert jobs.pattern.tolist() == [pattern.number]
    assert bisections_mbit_s(jobs).tolist() == pytest.approx([700.0] * 400)


def test_bandwidths_are_uniform_between_two_numbers() -> None:
    mbit_s = bisections_mbit_s(mini_grid_workload(4, 5_000, (200.0, 900.0)))
    assert 200.0 <= mbit_s.min() < 201.0
    assert 899.0 < mbit_s.max() <= 900.0 * (1 + 1e-12)
    assert mbit_s.mean() == pytest.approx(550.0, rel=0.01)


def test_patterns_are_drawn_by_weight_and_silent_jobs_send_nothing() -> None:
    weights = {Pattern.ALL_TO_ALL: 1.0, Pattern.RING: 2.0, Pattern.NONE: 1.0}
    jobs = mini_grid_workload(4, 5_000, patterns=weights)
    shares = numpy.bincount(jobs.pattern, minlength=5) / len(jobs)
    assert shares == pytest.approx([0.25, 0.5, 0.0, 0.0, 0.25], abs=0.015)
    assert numpy.array_equal(jobs.per_processor_bit_s == 0.0, jobs.pattern == Pattern.NONE.number)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"clusters": 0}, "clusters is 0; give 1 cluster or more"),
    ({"jobs_per_cluster": -1}, "jobs_per_cluster is -1; give 0 jobs or more"),
    ({"seed": -1}, "seed is -1; give 0 or more"),
    ({"sizes": (50, 10)}, "sizes is from 50 to 10; give the smaller number first"),
    ({"sizes": (0, 10)}, "sizes is 0; give 1 to 2147483647 processors"),
    ({"sizes": (1, 2**31)}, "sizes is 2147483648; give 1 to 2147483647 processors"),
    ({"bsbw_mbit_s": -1.0}, "bsbw_mbit_s is -1.0; give 0 Mbit/s or more"),
    ({"bsbw_mbit_s": (900.0, 200.0)}, "bsbw_mbit_s is from 900.0 to 200.0; give the smaller number first"),
    ({"bsbw_mbit_s": (200.0, math.inf)}, "bsbw_mbit_s is inf; give 0 Mbit/s or more"),
    ({"interarrival_s": -1.0}, "interarrival_s is -1.0; give seconds, 0 or more"),
    ({"execution_s": math.nan}, "execution_s is nan; give seconds, 0 or more"),
    ({"share": 1.5}, "share is 1.5; give a fraction of the work, 0 to 1"),
    ({"dimensions": 9}, "dimensions is 9; give 1 to 8"),
    ({"patterns": {}}, "patterns has no pattern with a weight above 0; give one, or leave patterns out"),
    ({"patterns": {Pattern.RING: 0.0}}, "patterns has no pattern with a weight above 0"),
    ({"patterns": {Pattern.RING: 1.0, Pattern.CUBE: -1.0}}, "the weight of cube in patterns is -1.0; give 0 or more"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[words.split(";")[0] for _, words in WRONG])
def test_an_argument_that_makes_no_workload_is_named_with_what_to_give(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(MiniGridWorkloadError, match=f"^{re.escape(words)}") as caught:
        mini_grid_workload(**{"clusters": 2, "jobs_per_cluster": 3, **arguments})
    assert caught.value.for_user() == str(caught.value)


def test_a_workload_without_jobs_is_one() -> None:
    assert len(mini_grid_workload(2, 0)) == 0
