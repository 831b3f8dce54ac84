"""Synthetic workloads as traces: a plain Poisson stream, and one that is fitted to a trace by resampling it.

Lublin and Feitelson's model is ``koala.simulator.workloads.lublin``; workload files, which also describe the requests
of the jobs, are ``koala.simulator.workloads.generators``. The same arguments and the same seed give the same trace.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from koala.simulator.traces.reader import Floats, Integers, Trace

DAY_S = 86_400.0
# The day is divided into half hours, as in Lublin and Feitelson's model.
BUCKETS = 48
BUCKET_S = DAY_S / BUCKETS
# A daily cycle requires a trace of at least two days.
CYCLE_DAYS_MIN = 2.0


class SyntheticError(ValueError):
    """A trace that cannot be drawn: the message says which number is wrong and what to give instead.

    >>> from koala.simulator import SyntheticError, lublin
    >>> try:
    ...     lublin(100, seed=1, nodes=1)
    ... except SyntheticError as error:
    ...     print(error)
    a machine of 1 is too small for the model's sizes; give 8 nodes or more
    """

    def for_user(self) -> str:
        """Return the message itself."""
        return str(self)


class DailyCycle:
    """The load of each half hour of a day, as weights with a mean of 1; time 0 is the beginning of the first.

    ``effort`` turns a time into the sum of the weights until then, ``times`` turns sums back into times: a stream of
    arrivals that is uniform in effort follows the cycle in time.
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        self.weights: Floats = np.asarray(weights, dtype=np.float64)
        self.weights = self.weights / self.weights.mean()
        self._sums: Floats = np.concatenate(([0.0], np.cumsum(self.weights))) * BUCKET_S
        self._sums[-1] = DAY_S
        self._edges: Floats = np.arange(BUCKETS + 1, dtype=np.float64) * BUCKET_S

    def effort(self, times_s: Floats) -> Floats:
        """Return the sum of the weights from time 0 to each time; a whole day adds its number of seconds."""
        return _by_day(times_s, self._edges, self._sums)

    def times(self, efforts_s: Floats) -> Floats:
        """Return the inverse of ``effort``."""
        return _by_day(efforts_s, self._sums, self._edges)


def _by_day(values_s: Floats, before_s: Floats, after_s: Floats) -> Floats:
    """Map whole days unchanged, and the rest of each value by interpolation."""
    days_s = np.floor(values_s / DAY_S) * DAY_S
    mapped: Floats = days_s + np.interp(values_s - days_s, before_s, after_s)
    return mapped


def poisson(
    jobs: int, seed: int, *, interarrival_mean_s: float, run_mean_s: float, size_min: int, size_max: int, nodes: int
) -> Trace:
    """Return a trace of a Poisson stream of jobs with exponential run times and uniform sizes; times are whole
    seconds.

    The mini-grid paper's clusters have such streams: sizes 10 to 50, run times of 450 s, one job in 150 s. Needs
    numpy.

    >>> from koala.simulator import poisson
    >>> trace = poisson(1000, 1, interarrival_mean_s=150, run_mean_s=450, size_min=10, size_max=50, nodes=100)
    >>> trace.jobs, round(float(trace.run_s.mean()))
    (1000, 437)
    """
    if not 1 <= size_min <= size_max <= nodes:
        raise SyntheticError(
            f"sizes {size_min} to {size_max} on {nodes} nodes: give a least size of 1 or more, "
            "a greatest one that is not below it, and nodes that hold it"
        )
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(interarrival_mean_s, jobs))
    run_s = np.maximum(1.0, np.round(rng.exponential(run_mean_s, jobs)))
    size = rng.integers(size_min, size_max, jobs, endpoint=True)
    note = (
        f"Poisson, one job in {interarrival_mean_s:g} s; run times exponential, {run_mean_s:g} s; "
        f"sizes uniform, {size_min} to {size_max}; seed {seed}"
    )
    return synthetic_trace("poisson", np.floor(submit_s), run_s, size, run_s, nodes=nodes, note=note)


def fitted(original: Trace, jobs: int, seed: int, *, nodes: int | None = None) -> Trace:
    """Return a new trace that resembles another one, by resampling it; needs numpy.

    - sizes are drawn from those of the trace;
    - run time and estimate are drawn, as a pair, from the jobs of the same size class (1, 2, 3-4, 5-8, ...);
    - gaps between arrivals are drawn from those of the trace, measured in its daily cycle, and follow that cycle.

    Correlations between successive jobs, such as a user's session, are lost. ``nodes`` is by default the trace's; it
    must hold the largest job.

    >>> from koala.simulator import fitted, lublin
    >>> longer = fitted(lublin(500, seed=1), 2000, seed=7)
    >>> longer.jobs, longer.processors
    (2000, 128)
    """
    if original.jobs < 2:
        raise SyntheticError(
            f"{original.name}: it takes 2 jobs or more to draw from, and it has {original.jobs}; give a longer trace"
        )
    largest = int(original.size.max())
    if nodes is not None and nodes < largest:
        raise SyntheticError(
            f"{nodes} nodes: {original.name} has jobs of {largest} processors; give {largest} or more"
        )
    rng = np.random.default_rng(seed)
    cycle = daily_cycle(original.submit_s)
    gaps_s = np.diff(cycle.effort(original.submit_s))
    submit_s = cycle.times(np.cumsum(rng.choice(gaps_s, jobs)) + cycle.effort(original.submit_s[:1]))
    donors = _donors(original.size, rng.integers(0, original.jobs, jobs), rng)
    sizes, pairs = donors
    machine = nodes or original.processors or largest
    note = f"fitted to {original.name}, {original.jobs} jobs; seed {seed}"
    return synthetic_trace(
        f"like {original.name}",
        np.floor(submit_s),
        original.run_s[pairs],
        original.size[sizes],
        original.requested_s[pairs],
        nodes=machine,
        note=note,
        start_unix_s=original.start_unix_s,
    )


def daily_cycle(submit_s: Floats) -> DailyCycle:
    """Return the cycle of a trace's arrivals; flat if the trace is too short to have one.

    Half a job is added to every half hour, so that an empty one still has a chance.
    """
    if submit_s[-1] - submit_s[0] < CYCLE_DAYS_MIN * DAY_S:
        return DailyCycle(np.ones(BUCKETS))
    buckets = ((submit_s % DAY_S) / BUCKET_S).astype(np.int64) % BUCKETS
    return DailyCycle(np.bincount(buckets, minlength=BUCKETS) + 0.5)


def _donors(
    size: Integers, drawn: npt.NDArray[np.int64], rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for every drawn job the row that gives its size, and one of the same class that gives its times."""
    classes = np.ceil(np.log2(size)).astype(np.int64)
    by_class = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[by_class], np.arange(classes.max() + 2))
    wanted = classes[drawn]
    first, count = starts[wanted], starts[wanted + 1] - starts[wanted]
    return drawn, by_class[first + np.floor(rng.random(len(drawn)) * count).astype(np.int64)]


def synthetic_trace(
    name: str,
    submit_s: Floats,
    run_s: Floats,
    size: npt.NDArray[np.integer],
    requested_s: Floats,
    *,
    nodes: int,
    note: str,
    start_unix_s: float | None = None,
) -> Trace:
    """Return columns in order of submission as a trace with a header of its own; ids count from 1."""
    return Trace(
        name=name,
        format="SWF",
        ids=np.arange(1, len(submit_s) + 1, dtype=np.int64),
        submit_s=submit_s,
        run_s=run_s,
        size=size.astype(np.int32),
        requested_s=requested_s,
        header={"Computer": "synthetic", "MaxNodes": str(nodes), "MaxProcs": str(nodes), "Note": note},
        start_unix_s=start_unix_s,
    )
