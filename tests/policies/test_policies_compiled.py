"""Every policy gives the same answer as Python and compiled: there is one source for both."""

from __future__ import annotations

from math import inf
from typing import Any

import numba
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_worlds import BUILTIN, idle_lists, size_lists

from koala.policies import Form


def compiled(name: str) -> Any:
    policy = BUILTIN.find(name)
    for helper in policy.helpers:
        numba.extending.register_jitable(helper)
    return numba.njit(policy.function)


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
