"""Where generated jobs arrive and how they communicate: what is drawn, and that it changes no other draw."""

from __future__ import annotations

from collections import Counter

import pytest

from koala.descriptions.workload.form import read_workload
from koala.model.request import Communication, Pattern
from koala.policies import Catalogue
from koala.simulator import Arrival, WorkloadError
from koala.simulator.workloads.generators import workload_from_file
from tests.support.hand_driven import grid, site

GRID = grid(site("a", 100), site("b", 100), site("c", 100))


def text(fields: str) -> str:
    return f"""generate:
  - jobs: 900
    interarrival_s: {{exponential: 40}}
    execution_s: {{exponential: 450}}
    request: flexible
    mix: [{{application: x, sizes: [{{processors: {{uniform: [10, 50]}}}}]}}]
    {fields}
"""


def drawn(fields: str, seed: int = 1) -> list[Arrival]:
    return list(workload_from_file(read_workload(text(fields), "w.yaml")).arrivals(GRID, seed))


def communications(fields: str) -> list[Communication]:
    found = [each.request.communication for each in drawn(f"communication: {fields}")]
    assert all(found)
    return [each for each in found if each is not None]


def test_homes_are_none_or_any_site_alike_or_by_weight() -> None:
    assert {each.request.home for each in drawn("home: none")} == {None}
    alike = Counter(each.request.home for each in drawn("home: drawn"))
    assert set(alike) == {"a", "b", "c"}
    assert all(230 <= count <= 370 for count in alike.values())
    weighted = Counter(each.request.home for each in drawn("home: {c: 1, a: 8}"))
    assert set(weighted) == {"a", "c"}
    assert 730 <= weighted["a"] <= 870


def test_bandwidths_are_constant_uniform_or_chosen() -> None:
    assert set(communications("{bisection_mbit_s: 300}")) == {Communication(bisection_mbit_s=300.0)}
    uniform = [each.bisection_mbit_s or 0.0 for each in communications("{bisection_mbit_s: {uniform: [200, 900]}}")]
    assert min(uniform) >= 200.0
    assert max(uniform) <= 900.0
    assert 500 <= sum(uniform) / len(uniform) <= 600
    chosen = Counter(
        each.per_processor_mbit_s for each in communications("{per_processor_mbit_s: {choices: [1, 5]}}")
    )
    assert set(chosen) == {1.0, 5.0}
    assert all(380 <= count <= 520 for count in chosen.values())


def test_patterns_are_drawn_by_weight_and_share_and_dimensions_are_the_same_for_all() -> None:
    found = communications("{bisection_mbit_s: 1, pattern: {ring: 1, cube: 3}, share: 0.5, dimensions: 3}")
    patterns = Counter(each.pattern for each in found)
    assert set(patterns) == {Pattern.RING, Pattern.CUBE}
    assert 600 <= patterns[Pattern.CUBE] <= 750
    assert {(each.share, each.dimensions) for each in found} == {(0.5, 3)}


@pytest.mark.parametrize(
    "fields",
    [
        "home: drawn",
        "communication: {bisection_mbit_s: 300}",
        "communication: {bisection_mbit_s: {uniform: [200, 900]}, pattern: {ring: 1, cube: 1}}",
    ],
)
def test_arrivals_sizes_and_times_do_not_depend_on_homes_and_communication(fields: str) -> None:
    plain = [(each.at_s, each.request.processors, each.execution_s) for each in drawn("")]
    assert [(each.at_s, each.request.processors, each.execution_s) for each in drawn(fields)] == plain


def test_equal_jobs_share_one_request_unless_hardly_any_are_equal() -> None:
    few = drawn("home: drawn\n    communication: {bisection_mbit_s: {choices: [200, 900]}}")
    assert len({id(each.request) for each in few}) <= 41 * 3 * 2
    assert drawn("communication: {bisection_mbit_s: {uniform: [1, 2]}}", seed=4) == drawn(
        "communication: {bisection_mbit_s: {uniform: [1, 2]}}", seed=4
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("home: {z: 1}", "generator 1 names the site 'z'; there are: a, b, c"),
        ("policy: B33(0.9)", "generator 1 names the policy 'B33'; did you mean"),
        ("policy: B3(chnk=0.9)", "generator 1: the policy 'B3(chnk=0.9)': "),
    ],
)
def test_a_name_that_is_not_there_is_told_before_the_run(fields: str, told: str) -> None:
    workload = workload_from_file(read_workload(text(fields), "w.yaml"))
    with pytest.raises(WorkloadError) as caught:
        workload.check(GRID, Catalogue.builtin())
    assert caught.value.for_user().startswith(told)


def test_policies_with_parameters_are_known() -> None:
    workload_from_file(read_workload(text("policy: b3(chunk=0.9)"), "w.yaml")).check(GRID, Catalogue.builtin())
