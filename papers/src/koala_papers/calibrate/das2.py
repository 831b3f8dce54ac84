"""From measured costs to the DAS-2: the matrix, the number of iterations and the time of a run there.

The paper of 2006 gives no execution times but a limit of 15 minutes; its figure of them is lost. The paper of 2005
gives those of one solver on the same machines: Poisson, with 36 and 72 processors on up to four clusters, took 30 to
192 s. These two numbers alone determine the run: the matrix and the iterations with which Poisson takes 30 s in its
shortest case, 72 processors of one cluster, and 192 s in its longest, 36 processors in four. Laplace and Heat have
the same matrix and iterations; their times follow from their own costs and messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from koala_papers.calibrate.fit import Costs
from koala_papers.calibrate.patterns import EXCHANGES, pattern_of, wait_s

# The sizes in the paper of 2006.
SIZES = {"laplace": (36, 64), "heat": (36, 64, 72)}
CLUSTERS = (1, 2, 3, 4)
# (processors, clusters) of the shortest and of the longest run of Poisson in 2005.
SHORTEST, LONGEST = (72, 1), (36, 4)
# The range of matrix sides in the search for the run: one row for each of 72 processes, up to 2 GB in all.
SIDE_MIN, SIDE_MAX = 72, 16_384


class Das2(NamedTuple):
    """Known or assumed properties of the machines of the DAS-2."""

    point_s: float
    latency_s: float
    across_bytes_per_s: float
    inside_latency_s: float
    inside_bytes_per_s: float


class Das2Problem(NamedTuple):
    """The computation of a run: ``side`` x ``side`` points, for a number of iterations."""

    side: int
    iterations: int


class ExecutionTimeModel(NamedTuple):
    """Execution times in the form T1(size) * (1 + beta * (clusters - 1))."""

    by_size: dict[int, float]
    beta: float

    def seconds(self, processors: int, clusters: int) -> float:
        """Return the execution time by the form."""
        return self.by_size[processors] * (1.0 + self.beta * (clusters - 1))


class NoProblemError(ValueError):
    """No matrix gives the wanted times with the measured costs."""

    def for_user(self) -> str:
        """Return the error, and what to change."""
        return str(self)


class Prediction:
    """Times on the DAS-2 from the costs measured here.

    A processor of the DAS-2 takes ``Das2.point_s`` for a point of Poisson, and for the other applications the same
    multiple of that as here. The price of calling numpy is left out, since a compiled solver does not pay it, and so
    is that of an exchange inside a cluster, which here is mostly the wait for a core: there each process had one.
    """

    def __init__(self, costs: Mapping[str, Costs], das2: Das2) -> None:
        if costs["poisson"].point_s <= 0.0:
            raise NoProblemError(
                "the measured times are too noisy to tell the cost of a point; measure again, at rest"
            )
        self._costs = costs
        self._das2 = das2
        self._slowness = das2.point_s / costs["poisson"].point_s

    def seconds(self, application: str, problem: Das2Problem, processors: int, clusters: int) -> float:
        """Return the execution time on this many clusters, with as equal shares of the processors as possible."""
        costs, das2 = self._costs[application], self._das2
        pattern = pattern_of(application, problem.side, shares(processors, clusters))
        inside_s = EXCHANGES[application] * (das2.inside_latency_s + pattern.inside_bytes / das2.inside_bytes_per_s)
        computing_s = self._slowness * costs.point_s * pattern.points_most
        dealing_s = 2 * pattern.dealt_inside_bytes / das2.inside_bytes_per_s
        waiting_s = costs.across_factor * wait_s(
            application, pattern, problem.iterations, das2.latency_s, das2.across_bytes_per_s, shared=True
        )
        return problem.iterations * (computing_s + inside_s) + dealing_s + waiting_s

    def problem(self, shortest_s: float, longest_s: float) -> Das2Problem:
        """Return the run of Poisson that spans these times; raise NoProblemError if there is none."""
        low, high = SIDE_MIN, SIDE_MAX
        wanted = longest_s / shortest_s
        if not self._span(high) < wanted < self._span(low):
            raise NoProblemError(
                f"no run of Poisson takes {shortest_s:g} s on {SHORTEST[0]} processors of one cluster and "
                f"{longest_s:g} s on {LONGEST[0]} in {LONGEST[1]}: the second is {self._span(high):.2f} to "
                f"{self._span(low):.0f} times the first; set shortest_s and longest_s so"
            )
        # The more points, the less the messages between clusters weigh, and the closer the two times are.
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._span(middle) > wanted else (low, middle)
        return Das2Problem(high, max(1, round(shortest_s / self._per_iteration_s(high, *SHORTEST))))

    def _span(self, side: int) -> float:
        return self._per_iteration_s(side, *LONGEST) / self._per_iteration_s(side, *SHORTEST)

    def _per_iteration_s(self, side: int, processors: int, clusters: int) -> float:
        # Enough iterations to count the convergence tests, which come every twentieth iteration.
        many = 1_000
        return self.seconds("poisson", Das2Problem(side, many), processors, clusters) / many

    def table(self, problem: Das2Problem) -> dict[str, dict[int, dict[int, float]]]:
        """Return the execution time by application, processors and clusters."""
        return {
            application: {
                processors: {
                    clusters: self.seconds(application, problem, processors, clusters) for clusters in CLUSTERS
                }
                for processors in sizes
            }
            for application, sizes in SIZES.items()
        }


def shares(processors: int, clusters: int) -> tuple[int, ...]:
    """Return the processors of each cluster, as equal as possible."""
    return tuple(processors // clusters + (index < processors % clusters) for index in range(clusters))


def form_of(by_size: Mapping[int, Mapping[int, float]]) -> ExecutionTimeModel:
    """Return the form that comes nearest to these times: T1 unchanged, one beta by least squares of relative
    errors."""
    first = {processors: by_clusters[1] for processors, by_clusters in by_size.items()}
    # (T1 * (1 + beta * (k - 1)) - T) / T is linear in beta: slope * beta - gap.
    terms = [
        (first[processors] * (clusters - 1) / time_s, 1.0 - first[processors] / time_s)
        for processors, by_clusters in by_size.items()
        for clusters, time_s in by_clusters.items()
        if clusters > 1
    ]
    beta = sum(slope * gap for slope, gap in terms) / sum(slope * slope for slope, _ in terms)
    return ExecutionTimeModel(first, max(0.0, beta))


def deviations(form: ExecutionTimeModel, by_size: Mapping[int, Mapping[int, float]]) -> list[float]:
    """Return the excess of the form over the times that it stands for, as shares of them."""
    return [
        form.seconds(processors, clusters) / time_s - 1.0
        for processors, by_clusters in by_size.items()
        for clusters, time_s in by_clusters.items()
    ]


def model_yaml(forms: Mapping[str, ExecutionTimeModel], source: str) -> str:
    """Return the file for the experiments on placement."""
    import yaml

    applications: dict[str, Any] = {
        name: {
            "execution_s": {"by_size": {size: round(time_s, 1) for size, time_s in form.by_size.items()}},
            "per_extra_cluster": round(form.beta, 3),
        }
        for name, form in forms.items()
    }
    return yaml.safe_dump({"source": source, "applications": applications}, sort_keys=False, width=110)
