"""Grids of Tiers: machines and LANs as the network has them, uplinks by the widest ways, and loads of the time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.tiers.grids import TiersGrid, TiersShape, widest
from koala.mapping.tiers.loads import LoadModel
from koala.mapping.tiers.topology import TiersParameters

QUIET = TiersShape(machine_load=LoadModel(deviation=0.0), link_load=LoadModel(mean=(0.0, 0.0), deviation=0.0))
PARAMETERS = TiersParameters(mans=3, lans_per_man=2, lan_hosts=4)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 100))
def test_a_grid_has_the_mans_lans_and_machines_of_its_network(mans: int, lans: int, hosts: int, seed: int) -> None:
    grid = TiersGrid(TiersParameters(mans=mans, lans_per_man=lans, lan_hosts=hosts), Random(seed)).at(0.0)
    (wan,) = grid.wans
    assert len(wan.mans) == mans
    assert all(len(man.lans) == lans for man in wan.mans)
    assert all(len(lan.machines) == hosts for man in wan.mans for lan in man.lans)
    assert grid.user_lan in {lan.name for man in wan.mans for lan in man.lans}


@given(st.integers(0, 100))
def test_powers_and_uplinks_are_in_their_ranges(seed: int) -> None:
    grid = TiersGrid(PARAMETERS, Random(seed), QUIET).at(0.0)
    for man in grid.wans[0].mans:
        assert 10 <= man.uplink_mbit_s <= 155
        for lan in man.lans:
            assert 100 <= lan.uplink_mbit_s <= 1000
            assert all(600 <= machine.power <= 1300 and 0.1 <= machine.load <= 0.5 for machine in lan.machines)


def test_what_others_use_changes_with_the_time_and_what_is_there_does_not() -> None:
    whole = TiersGrid(PARAMETERS, Random(3))
    one, same, later = whole.at(100.0), whole.at(100.0), whole.at(5000.0)
    assert one == same
    assert one != later
    machines, others = (
        [machine for man in each.wans[0].mans for lan in man.lans for machine in lan.machines]
        for each in (one, later)
    )
    assert [machine.power for machine in machines] == [machine.power for machine in others]
    assert [machine.load for machine in machines] != [machine.load for machine in others]
    assert one.wans[0].mans[0].uplink_mbit_s != later.wans[0].mans[0].uplink_mbit_s
    assert one.user_lan == later.user_lan


def test_the_same_seed_gives_the_same_grid_and_another_seed_another() -> None:
    first, same, other = (TiersGrid(PARAMETERS, Random(seed)).at(7.0) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_the_widest_way_is_as_wide_as_its_narrowest_link() -> None:
    mbit_s = {(0, 1): 10.0, (1, 2): 100.0, (0, 2): 5.0, (3, 2): 1.0}
    found = widest(list(mbit_s), mbit_s, (0,))
    assert found == {0: float("inf"), 1: 10.0, 2: 10.0, 3: 1.0}
    assert widest(list(mbit_s), mbit_s, (0, 2))[1] == pytest.approx(100.0)
