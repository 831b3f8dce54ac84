"""Random grids: as many machines, LANs, MANs and WANs as asked for, within their ranges, the same for one seed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.random_grids import SHAPE, GridShape, random_grid


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(0, 100))
def test_every_level_is_full_but_for_its_last_node(
    machines: int, per_lan: int, per_man: int, per_wan: int, seed: int
) -> None:
    shape = GridShape(lans_per_man=per_man, mans_per_wan=per_wan)
    grid = random_grid(machines, per_lan, Random(seed), shape)
    mans = [man for wan in grid.wans for man in wan.mans]
    lans = [lan for man in mans for lan in man.lans]
    assert sum(len(lan.machines) for lan in lans) == machines
    for nodes, size in (
        ([lan.machines for lan in lans], per_lan),
        ([man.lans for man in mans], per_man),
        ([wan.mans for wan in grid.wans], per_wan),
    ):
        assert all(len(node) == size for node in nodes[:-1])
        assert 1 <= len(nodes[-1]) <= size
    assert grid.user_lan in {lan.name for lan in lans}


@given(st.integers(0, 200))
def test_powers_loads_and_uplinks_are_in_their_ranges(seed: int) -> None:
    shape = GridShape(load=(0.0, 0.2))
    grid = random_grid(40, 4, Random(seed), shape)
    for wan in grid.wans:
        assert SHAPE.wan_uplink_mbit_s[0] <= wan.uplink_mbit_s <= SHAPE.wan_uplink_mbit_s[1]
        for man in wan.mans:
            assert SHAPE.man_uplink_mbit_s[0] <= man.uplink_mbit_s <= SHAPE.man_uplink_mbit_s[1]
            for lan in man.lans:
                assert SHAPE.lan_uplink_mbit_s[0] <= lan.uplink_mbit_s <= SHAPE.lan_uplink_mbit_s[1]
                for machine in lan.machines:
                    assert 600 <= machine.power <= 1300
                    assert 0.0 <= machine.load <= 0.2


def test_the_user_sits_in_different_lans_under_different_seeds() -> None:
    assert len({random_grid(64, 4, Random(seed)).user_lan for seed in range(40)}) > 5


def test_the_same_seed_gives_the_same_grid_and_another_seed_another() -> None:
    assert random_grid(64, 8, Random(3)) == random_grid(64, 8, Random(3))
    assert random_grid(64, 8, Random(3)) != random_grid(64, 8, Random(4))


@pytest.mark.parametrize(("machines", "per_lan"), [(0, 4), (4, 0)])
def test_a_grid_or_lan_without_machines_is_refused(machines: int, per_lan: int) -> None:
    with pytest.raises(ValueError, match="at least 1 of each"):
        random_grid(machines, per_lan, Random(1))


def test_a_shape_with_ends_exchanged_or_empty_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"load from 0\.5 to 0\.1"):
        GridShape(load=(0.5, 0.1))
    with pytest.raises(ValueError, match="at least one LAN"):
        GridShape(lans_per_man=0)
