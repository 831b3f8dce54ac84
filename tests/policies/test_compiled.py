"""Every policy gives the same answer as Python and compiled: there is one source for both."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, RING, SILENT, UNLIMITED_BIT_S
from koala.policies import Form
from koala.policies.minigrid.case import PlacementCase, SharedRoutes
from koala.policies.minigrid.meta_scheduling import metaschedule, placeable_most
from koala.policies.minigrid.routed_scheduling import metaschedule_routed
from koala.simulator.kernels import compiling
from tests.support.compiled_policies import compiled_policy
from tests.support.policy_worlds import BUILTIN, idle_lists, size_lists


def compiled(name: str) -> Any:
    policy = BUILTIN.find(name)
    # What kernels compile of the modules: this calls all of them, with links that sites share and without.
    return compiling.compiled(metaschedule_routed) if policy.form is Form.LINKS else compiled_policy(name)


COMPILED = {name: compiled(name) for name in BUILTIN.names()}


def whole(values: Any) -> Any:
    return numpy.array(values, dtype=numpy.int64)


def test_every_form_has_a_policy_that_is_compiled_here() -> None:
    assert {BUILTIN.find(name).form for name in COMPILED} == set(Form)


@pytest.mark.parametrize("name", ["WF", "CM"])
@settings(deadline=None)
@given(idle=idle_lists, sizes=size_lists)
def test_a_compiled_policy_places_components_as_python_does(name: str, idle: list[int], sizes: list[int]) -> None:
    left, chosen = list(idle), [-1] * len(sizes)
    answer = BUILTIN.find(name).function(idle, sizes, left, chosen)
    fast_left, fast_chosen = whole(idle), whole([-1] * len(sizes))
    assert COMPILED[name](whole(idle), whole(sizes), fast_left, fast_chosen) == answer
    assert (fast_left.tolist(), fast_chosen.tolist()) == (left, chosen)


@settings(deadline=None)
@given(idle=idle_lists, sizes=size_lists, data=st.data())
def test_compiled_close_to_files_chooses_as_python_does(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    row = st.lists(st.sampled_from([0.0, 0.5, 2.0, inf]), min_size=len(idle), max_size=len(idle))
    rows = data.draw(st.lists(row, min_size=len(sizes), max_size=len(sizes)))
    left, chosen = list(idle), [-1] * len(sizes)
    answer = BUILTIN.find("CF").function(idle, sizes, rows, left, chosen)
    fast_left, fast_chosen = whole(idle), whole([-1] * len(sizes))
    assert COMPILED["CF"](whole(idle), whole(sizes), numpy.array(rows), fast_left, fast_chosen) == answer
    assert (fast_left.tolist(), fast_chosen.tolist()) == (left, chosen)


@settings(deadline=None)
@given(idle=idle_lists, total=st.integers(1, 80), least=st.integers(1, 12), parts_max=st.integers(1, 6))
def test_compiled_flexible_cluster_minimization_divides_as_python_does(
    idle: list[int], total: int, least: int, parts_max: int
) -> None:
    parts = [0] * len(idle)
    answer = BUILTIN.find("FCM").function(idle, total, least, parts_max, parts)
    fast_parts = whole([0] * len(idle))
    assert COMPILED["FCM"](whole(idle), total, least, parts_max, fast_parts) == answer
    assert fast_parts.tolist() == parts


LINKS = [name for name in BUILTIN.names() if BUILTIN.find(name).form is Form.LINKS]
CHOICES = [*LINKS, "A1(order=most-free)", "A1(objective=fewest-clusters)", "A1(objective=least-bandwidth)"]


@st.composite
def link_worlds(draw: st.DrawFn) -> tuple[list[int], int, int, list[int], list[int], float]:
    """Idle processors, a total, a home, demands and capacities (of four sites and two shared links), bandwidth."""
    sites = 4
    idle = draw(st.lists(st.integers(0, 30), min_size=sites, max_size=sites))
    capacity = draw(st.lists(st.sampled_from([1000, 10**9, UNLIMITED_BIT_S]), min_size=sites + 2, max_size=sites + 2))
    demand = [draw(st.one_of(st.just(0), st.integers(0, min(most, 10**9) * 2))) for most in capacity]
    own_bit_s = draw(st.one_of(st.just(0.0), st.floats(0.1, 1e9)))
    return idle, draw(st.integers(1, 80)), draw(st.integers(-1, sites - 1)), demand, capacity, own_bit_s


@st.composite
def divided_worlds(draw: st.DrawFn) -> tuple[list[int], int, int, list[int], list[int], float]:
    """The same, of a job that only several sites together hold, and of links that its parts may just fill."""
    sites = 4
    idle = draw(st.lists(st.integers(1, 9), min_size=sites, max_size=sites))
    capacity = draw(
        st.lists(st.sampled_from([50, 100, 100, UNLIMITED_BIT_S]), min_size=sites + 2, max_size=sites + 2)
    )
    demand = [draw(st.integers(0, min(most, 100))) for most in capacity]
    total = draw(st.integers(max(idle) + 1, sum(idle)))
    own_bit_s = draw(st.sampled_from([1.0, 2.5, 7.5, 20.0, 60.0]))
    return idle, total, draw(st.integers(-1, sites - 1)), demand, capacity, own_bit_s


# Sites 0 and 1 behind the shared link 4, sites 2 and 3 behind 5; or nothing between any two.
SHARED = [0, 0, 0, 2, 4, 4, 4, 6, 8, 8, 8, 8, 8, 8, 8, 8, 8], [4, 5] * 4
UNSHARED: tuple[list[int], list[int]] = [0] * 17, []


@pytest.mark.parametrize("name", CHOICES)
@settings(deadline=None, max_examples=60)
@given(
    world=st.one_of(divided_worlds(), link_worlds()),
    other_threshold=st.sampled_from([0.0, 0.6, 1.0]),
    pattern=st.sampled_from([ALL_TO_ALL, RING, CUBE, MASTER_WORKER, SILENT]),
    between=st.sampled_from([SHARED, UNSHARED]),
)
def test_a_compiled_module_places_as_python_does(
    name: str,
    world: tuple[list[int], int, int, list[int], list[int], float],
    other_threshold: float,
    pattern: int,
    between: tuple[list[int], list[int]],
) -> None:
    idle, total, home, demand, capacity, own_bit_s = world
    choice = BUILTIN.find(name).module
    assert choice is not None
    module, threshold, chunk = choice
    threshold = other_threshold or threshold
    parts, fast_parts = [9] * 4, whole([9] * 4)
    case = PlacementCase(total, demand, capacity, own_bit_s, threshold, [0] * 4, home, chunk, pattern, 2, 1, 9)
    routes = SharedRoutes(*between, [0.0] * 6, [0] * 6, [0] * 4, [0] * 4)
    answer = metaschedule_routed(module, case, routes, idle, parts)
    fast = COMPILED[name.partition("(")[0]]
    fast_case = case._replace(demand=whole(demand), capacity=whole(capacity), spare=whole([0] * 4))
    crossed: Any = numpy.zeros(6)
    scratch = crossed, whole([0] * 6), whole([0] * 4), whole([0] * 4)
    fast_routes = SharedRoutes(whole(between[0]), whole(between[1]), *scratch)
    assert fast(module, fast_case, fast_routes, whole(idle), fast_parts) == answer
    assert answer > 0 or fast_parts.tolist() == parts
    if not between[1]:
        star_parts = [9] * 4
        assert metaschedule(module, case, idle, star_parts) == answer
        assert answer > 0 or star_parts == parts


@pytest.mark.parametrize("name", CHOICES)
@settings(deadline=None, max_examples=40)
@given(world=link_worlds())
def test_compiled_the_most_that_can_be_placed_is_what_python_finds(
    name: str, world: tuple[list[int], int, int, list[int], list[int], float]
) -> None:
    idle, _, _, demand, capacity, _ = world
    choice = BUILTIN.find(name).module
    assert choice is not None
    module, threshold, chunk = choice
    fast: Any = compiling.compiled(placeable_most)
    most = placeable_most(module, idle, demand, capacity, threshold, chunk)
    assert fast(module, whole(idle), whole(demand), whole(capacity), threshold, chunk) == most
