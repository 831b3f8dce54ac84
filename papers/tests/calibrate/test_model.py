"""The cost model: counts that agree with what the real solvers send, a fit that finds costs, times on the DAS-2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.application_runs import require_mpiexec
from tests.support.mpi_crew import MpiCrew

from calibrate.samples import CORES, COSTS, modelled
from koala_papers.calibrate.das2 import (
    CLUSTERS,
    LONGEST,
    SHORTEST,
    Das2,
    Das2Problem,
    ExecutionTimeModel,
    NoProblemError,
    Prediction,
    deviations,
    form_of,
    shares,
)
from koala_papers.calibrate.fit import counts, fitted, least, relative_errors, spread
from koala_papers.calibrate.patterns import EXCHANGES, pattern_of, wait_s
from koala_papers.calibrate.runs import SolverRun

DAS2 = Das2(
    point_s=50e-9, latency_s=0.005, across_bytes_per_s=12.5e6, inside_latency_s=2e-5, inside_bytes_per_s=150e6
)


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MpiCrew]:
    """Four processes for all real runs."""
    require_mpiexec()
    with MpiCrew(tmp_path_factory.mktemp("crew"), 4) as found:
        yield found


def sent_across(crew: MpiCrew, application: str, iterations: int, *options: str) -> dict[str, int]:
    """What a real run on two clusters of two processes sends between them."""
    told = crew.told(application, "--size", "50", "--groups", "2,2", *options, processes=4)
    assert told["iterations"] == iterations
    return {"bytes": told["bytes_across"], "messages": told["messages_across"]}


@pytest.mark.parametrize("application", ["laplace", "poisson"])
def test_the_bytes_counted_are_those_that_a_real_run_sends(crew: MpiCrew, application: str) -> None:
    sent = sent_across(crew, application, 20, "--iterations-max", "20", "--tolerance", "0")
    pattern = pattern_of(application, 50, (2, 2))
    assert sent["bytes"] == 2 * 20 * EXCHANGES[application] * pattern.link_bytes
    assert sent["messages"] == 2 * 20 * EXCHANGES[application] * 2
    assert pattern.link_bytes == 2 * pattern.across_bytes


def test_the_bytes_counted_for_heat_are_those_that_a_real_run_sends_but_for_the_rims(crew: MpiCrew) -> None:
    sent = sent_across(crew, "heat", 20, "--steps", "20")
    pattern = pattern_of("heat", 50, (2, 2))
    dealt_parts = 2
    # The master deals parts out with the points around them, and takes them back without.
    rims = sum((rows + 2) * 52 * 8 - rows * 50 * 8 for rows in (17, 17))
    assert sent["bytes"] == 2 * 20 * pattern.link_bytes + 2 * pattern.dealt_link_bytes + rims
    assert sent["messages"] == 2 * 20 + 2 * dealt_parts


def test_by_counting_a_further_cluster_adds_bytes_and_no_latency() -> None:
    for application in EXCHANGES:
        patterns = [pattern_of(application, 720, shares(36, clusters)) for clusters in CLUSTERS]
        waits = [wait_s(application, pattern, 100, 0.005, 1e12, shared=True) for pattern in patterns]
        assert waits[0] == 0.0
        assert waits[1:] == pytest.approx([waits[1]] * 3, rel=1e-3)
        slow = [wait_s(application, pattern, 100, 0.005, 12.5e6, shared=True) for pattern in patterns]
        assert slow[2] > slow[1]


def test_more_workers_than_cores_take_turns() -> None:
    run = SolverRun(application="laplace", size=60, iterations=10, clusters=(3,))
    assert counts(run, 4)[:2] == (10.0, 10 * 1200.0)
    assert counts(run, 2)[:2] == (20.0, 20 * 1200.0)
    assert counts(run, 1)[:2] == (30.0, 30 * 1200.0)


def test_the_fit_finds_the_costs_behind_the_times() -> None:
    times_s = modelled()
    found = fitted(times_s, CORES)
    for name, costs in COSTS.items():
        assert found[name] == pytest.approx(costs, rel=1e-6)
    assert relative_errors(times_s, found, CORES) == pytest.approx([0.0] * len(times_s), abs=1e-9)


def test_no_cost_is_below_zero() -> None:
    # Runs inside a cluster that take no longer than computing alone, and less: the exchange would cost nothing.
    times_s = {
        run: 0.5 * time_s if len(run.clusters) == 1 and sum(run.clusters) > 1 else time_s
        for run, time_s in modelled().items()
    }
    assert all(cost >= 0.0 for costs in fitted(times_s, CORES).values() for cost in costs)


def test_the_least_time_counts_and_the_spread_is_that_of_the_median() -> None:
    run = SolverRun(application="heat", size=64, iterations=20, clusters=(1,))
    by_seed = [{run: 2.0}, {run: 9.0}, {run: 3.0}]
    assert least(by_seed) == {run: 2.0}
    assert spread(by_seed) == {run: pytest.approx(0.5)}


def test_the_run_is_the_one_in_which_poisson_takes_the_two_times_of_2005() -> None:
    prediction = Prediction(COSTS, DAS2)
    problem = prediction.problem(30.0, 192.0)
    assert prediction.seconds("poisson", problem, *SHORTEST) == pytest.approx(30.0, rel=0.01)
    assert prediction.seconds("poisson", problem, *LONGEST) == pytest.approx(192.0, rel=0.01)


def test_how_fast_a_processor_of_the_das2_is_taken_to_be_hardly_matters() -> None:
    tables = []
    for point_ns in (25, 50, 100):
        prediction = Prediction(COSTS, DAS2._replace(point_s=point_ns / 1e9))
        tables.append(prediction.table(prediction.problem(30.0, 192.0)))
    for name, by_size in tables[1].items():
        for size, by_clusters in by_size.items():
            for clusters, time_s in by_clusters.items():
                assert tables[0][name][size][clusters] == pytest.approx(time_s, rel=0.1)
                assert tables[2][name][size][clusters] == pytest.approx(time_s, rel=0.1)


@pytest.mark.parametrize("longest_s", [45.0, 1e6])
def test_times_that_no_run_can_have_are_refused(longest_s: float) -> None:
    with pytest.raises(NoProblemError) as caught:
        Prediction(COSTS, DAS2).problem(30.0, longest_s)
    assert f"{longest_s:g} s on 36 in 4" in caught.value.for_user()


def test_times_too_noisy_to_tell_the_cost_of_a_point_are_refused() -> None:
    costs = {**COSTS, "poisson": COSTS["poisson"]._replace(point_s=0.0)}
    with pytest.raises(NoProblemError, match="too noisy"):
        Prediction(costs, DAS2)


def test_more_processors_are_faster_and_more_clusters_slower() -> None:
    prediction = Prediction(COSTS, DAS2)
    problem = Das2Problem(2000, 1000)
    for application in EXCHANGES:
        times = [prediction.seconds(application, problem, processors, 1) for processors in (36, 64, 72)]
        assert times == sorted(times, reverse=True)
        assert prediction.seconds(application, problem, 36, 2) > prediction.seconds(application, problem, 36, 1)


@given(st.integers(1, 500), st.integers(1, 5))
def test_shares_are_equal_but_for_one(processors: int, clusters: int) -> None:
    divided = shares(processors, clusters)
    assert sum(divided) == processors
    assert max(divided) - min(divided) <= 1


@given(st.floats(0.0, 5.0), st.floats(1.0, 500.0), st.floats(1.0, 500.0))
def test_times_of_the_form_give_the_form_back(beta: float, first_s: float, second_s: float) -> None:
    form = ExecutionTimeModel({36: first_s, 64: second_s}, beta)
    table = {size: {clusters: form.seconds(size, clusters) for clusters in CLUSTERS} for size in form.by_size}
    found = form_of(table)
    assert found.by_size == form.by_size
    assert found.beta == pytest.approx(beta, abs=1e-9)
    assert deviations(found, table) == pytest.approx([0.0] * 8, abs=1e-9)
