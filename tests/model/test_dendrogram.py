"""The grid as a tree: valid once built, flat for the search and closest first."""

from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import given

from koala.mapping.placing.closest_first import ClosestFirst, SearchOrders
from koala.model.dendrogram import (
    LAN,
    MACHINES_MAX,
    MAN,
    WAN,
    Dendrogram,
    InvalidDendrogramError,
    Lan,
    Machine,
    Man,
    Wan,
)
from tests.support.naive_mapping import Tree, grids, lan, one_man


def two_wans() -> Dendrogram:
    """Two MANs in the first WAN, one in the second; the user is in b."""
    pisa = Man(
        name="pisa",
        uplink_mbit_s=155,
        lans=(
            lan("a", 10, uplink_mbit_s=100),
            lan("b", 20, 30, uplink_mbit_s=1000),
            lan("c", 40, uplink_mbit_s=622),
        ),
    )
    roma = Man(name="roma", uplink_mbit_s=34, lans=(lan("d", 50, uplink_mbit_s=10), lan("e", 60, uplink_mbit_s=100)))
    nizza = Man(name="nizza", lans=(lan("f", uplink_mbit_s=10), lan("g", 70, uplink_mbit_s=10)))
    return Dendrogram(
        wans=(Wan(name="italy", uplink_mbit_s=622, mans=(pisa, roma)), Wan(name="france", mans=(nizza,))),
        user_lan="b",
    )


def names(grid: Dendrogram, lans: object) -> str:
    return "".join(grid.flat.levels[LAN].names[index] for index in lans)  # type: ignore[attr-defined]


@pytest.mark.parametrize("power", [0.0, -1.0, math.inf, math.nan])
def test_a_machine_has_power(power: float) -> None:
    with pytest.raises(InvalidDendrogramError, match="machine m: its power is"):
        Machine(name="m", power=power)


@pytest.mark.parametrize("load", [-0.1, 1.1, math.nan])
def test_a_load_is_a_part_of_the_machine(load: float) -> None:
    with pytest.raises(InvalidDendrogramError, match="machine m: its load is"):
        Machine(name="m", power=1, load=load)


def test_the_current_power_is_what_the_load_leaves() -> None:
    assert Machine(name="m", power=1000, load=0.25).current_power == 750


@pytest.mark.parametrize("uplink", [0.0, -1.0, math.nan])
def test_an_uplink_carries_something(uplink: float) -> None:
    with pytest.raises(InvalidDendrogramError, match="LAN x: its uplink_mbit_s"):
        Lan(name="x", machines=(), uplink_mbit_s=uplink)
    with pytest.raises(InvalidDendrogramError, match="MAN x: its uplink_mbit_s"):
        Man(name="x", lans=(), uplink_mbit_s=uplink)
    with pytest.raises(InvalidDendrogramError, match="WAN x: its uplink_mbit_s"):
        Wan(name="x", mans=(), uplink_mbit_s=uplink)


def test_names_that_a_mapping_could_not_tell_apart_are_refused() -> None:
    twin = Machine(name="m", power=1)
    with pytest.raises(InvalidDendrogramError, match="machine m: 2 in the grid have this name"):
        one_man(Lan(name="a", machines=(twin,)), Lan(name="b", machines=(twin,)))
    with pytest.raises(InvalidDendrogramError, match="LAN a: 2 in the grid have this name"):
        one_man(lan("a"), lan("a"))
    with pytest.raises(InvalidDendrogramError, match="a LAN in it has an empty name"):
        one_man(lan(""))
    with pytest.raises(InvalidDendrogramError, match="MAN m: 2 in WAN w have this name"):
        Dendrogram(wans=(Wan(name="w", mans=(Man(name="m", lans=()),) * 2),), user_lan="a")
    with pytest.raises(InvalidDendrogramError, match="WAN w: 2 in the grid have this name"):
        Dendrogram(wans=(Wan(name="w", mans=()),) * 2, user_lan="a")


def test_the_user_is_in_a_lan_of_the_grid() -> None:
    with pytest.raises(InvalidDendrogramError) as caught:
        Dendrogram(wans=(), user_lan="nowhere")
    assert caught.value.for_user() == "user_lan: there is no LAN 'nowhere'; name one of the grid"


def test_more_machines_than_the_limit_are_refused() -> None:
    crowded = Lan(name="a", machines=(Machine(name="m", power=1),) * (MACHINES_MAX + 1))
    with pytest.raises(InvalidDendrogramError, match="MACHINES_MAX"):
        one_man(crowded)


def test_what_is_below_a_node_is_a_range() -> None:
    flat = two_wans().flat
    assert flat.power == [10, 20, 30, 40, 50, 60, 70]
    assert flat.lan_best == [10, 30, 40, 50, 60, 0, 70]
    assert flat.levels[LAN].sons == [
        range(1),
        range(1, 3),
        range(3, 4),
        range(4, 5),
        range(5, 6),
        range(6, 6),
        range(6, 7),
    ]
    assert flat.levels[MAN].lans == [range(3), range(3, 5), range(5, 7)]
    assert flat.levels[WAN].lans == [range(5), range(5, 7)]
    assert flat.levels[WAN].sons == [range(2), range(2, 3)]


def test_distance_is_the_level_where_the_ways_meet() -> None:
    flat = two_wans().flat
    assert [flat.distance(1, other) for other in range(7)] == [1, 0, 1, 2, 2, 3, 3]


def test_the_search_goes_from_the_user_outwards_by_bandwidth() -> None:
    """b itself; c and a of its MAN by their links with b; roma's by their uplinks; then France, ties by index."""
    grid = two_wans()
    assert names(grid, ClosestFirst(grid.flat, 1)) == "bcaedfg"


def test_a_narrow_uplink_of_its_own_makes_all_brothers_equally_near() -> None:
    grid = two_wans()
    assert names(grid, ClosestFirst(grid.flat, 0)) == "abcedfg"


@given(grids())
def test_closest_first_is_by_distance_then_bandwidth(grid: Dendrogram) -> None:
    tree = Tree(grid)
    lan_names = grid.flat.levels[LAN].names
    for start, name in enumerate(lan_names):
        assert [lan_names[each] for each in ClosestFirst(grid.flat, start)] == tree.closest_first(name)


def test_searches_at_the_same_time_see_the_same_order() -> None:
    flat = two_wans().flat
    order = ClosestFirst(flat, 1)
    one, other = iter(order), iter(order)
    mixed = [next(one), next(other), next(other), next(one), next(one), next(other)]
    assert mixed == [1, 1, 2, 2, 0, 0]
    assert list(order) == list(ClosestFirst(flat, 1))
    assert [*islice(one, 10)] == list(ClosestFirst(flat, 1))[3:]


def test_orders_are_worked_out_once() -> None:
    orders = SearchOrders(two_wans().flat)
    assert orders.closest_first(1) is orders.closest_first(1)
    assert orders.brothers(LAN, 1) == [2, 0]
    assert orders.brothers(LAN, 1) is orders.brothers(LAN, 1)
    assert orders.brothers(MAN, 2) == []
