"""One run of the simulator for an experiment: the variation of the workload, and the done jobs in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koala.descriptions.workload.form import GENERATED_JOBS_MAX, GeneratorText, RequestKind, WorkloadFile
from koala.simulator import JobRow, Result
from koala.simulator.result import DONE

# The means in every study.
MEANS = ("queue_s", "overhead_s", "wait_s", "execution_s", "response_s", "clusters")


def varied(
    file: WorkloadFile,
    *,
    jobs: int | None = None,
    jobs_max: int = GENERATED_JOBS_MAX,
    interarrival_s: float | None = None,
    request: RequestKind | None = None,
    keep_fixed: bool = False,
) -> WorkloadFile:
    """Return the workload with this many jobs of each generator, this time between two, and requests of another kind.

    Under a seed the jobs are the same for every kind; with ``keep_fixed`` those on named sites stay there. No
    generator draws more than ``jobs_max``. A given time between two is the mean of an exponential distribution.

    >>> from koala.simulator import example_workload
    >>> from koala.study import varied
    >>> varied(example_workload("koala2006-w1"), jobs=10).text.generate[0].jobs
    10
    """

    def changed(each: GeneratorText) -> GeneratorText:
        update: dict[str, object] = {"jobs": min(jobs_max, each.jobs if jobs is None else jobs)}
        if interarrival_s is not None:
            update["interarrival_s"] = type(each.interarrival_s)(exponential=interarrival_s)
        if request is not None and not (keep_fixed and each.request is RequestKind.FIXED):
            update["request"] = request
        return each.model_copy(update=update)

    generate = tuple(changed(each) for each in file.text.generate)
    return WorkloadFile(file.text.model_copy(update={"generate": generate}), file.requests)


def done_rows(result: Result) -> list[JobRow]:
    """Return the jobs that were done.

    >>> from koala.simulator import example_grid, example_workload, simulate
    >>> from koala.study import done_rows
    >>> result = simulate(example_grid("das2"), example_workload("koala2006-w1"), policy="CM")
    >>> len(done_rows(result))
    200
    """
    return [row for row in result.rows() if row.outcome == DONE]


def number(row: JobRow, name: str) -> float:
    """Return a number of a done job, for which all numbers are known.

    >>> from koala.simulator import example_grid, example_workload, simulate
    >>> from koala.study import done_rows, number
    >>> result = simulate(example_grid("das2"), example_workload("koala2006-w1"), policy="CM")
    >>> number(done_rows(result)[0], "clusters")
    1.0
    """
    value = getattr(row, name)
    assert isinstance(value, int | float), f"job {row.job} was done and has no {name}"
    return float(value)


def means(done: Sequence[JobRow], names: Iterable[str] = MEANS) -> dict[str, float]:
    """Return the means over jobs that were done; empty without any.

    >>> from koala.simulator import example_grid, example_workload, simulate
    >>> from koala.study import done_rows, means
    >>> result = simulate(example_grid("das2"), example_workload("koala2006-w1"), policy="CM")
    >>> sorted(means(done_rows(result), ["wait_s", "clusters"]))
    ['clusters', 'wait_s']
    """
    return {name: sum(number(row, name) for row in done) / len(done) for name in names} if done else {}
