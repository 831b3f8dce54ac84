"""What was measured of machines and links: where jobs of tasks go by it, and where the grid file goes first."""

from __future__ import annotations

import msgspec

from koala.mapping.site_lans import (
    MAN_LATENCY_S_MAX,
    WAN_LATENCY_S_MAX,
    MachineClass,
    dendrogram_of,
    machines_of,
    region_of,
    seen_grid,
)
from koala.model.dendrogram import Machine
from koala.model.grid import NODE_POWER, Grid, Site
from koala.policies.tasks.wase import SiteLans

NEAR, FAR, FARTHER = MAN_LATENCY_S_MAX, WAN_LATENCY_S_MAX, 2 * WAN_LATENCY_S_MAX
MEASURED = [MachineClass(2, 2_000.0, 0.0), MachineClass(2, 2_000.0, 0.5)]


def grid_of(*names: str) -> Grid:
    return Grid(sites=tuple(Site(name=name, processors=4) for name in names))


def test_machines_are_as_measured_where_the_grid_file_says_nothing() -> None:
    assert machines_of(Site(name="a", processors=4), ()) == [MachineClass(4, NODE_POWER, 0.0)]
    assert machines_of(Site(name="a", processors=4), MEASURED) == MEASURED
    assert machines_of(Site(name="a", processors=3), MEASURED) == [MEASURED[0], MEASURED[1]._replace(processors=1)]
    assert machines_of(Site(name="a", processors=9), MEASURED)[1].processors == 7


def test_the_grid_files_word_goes_first() -> None:
    told = machines_of(Site(name="a", processors=4, node_power=500.0), MEASURED)
    assert [(each.power, each.load) for each in told] == [(500.0, 0.0), (500.0, 0.5)]
    told = machines_of(Site(name="a", processors=4, node_load=0.2), MEASURED)
    assert [(each.power, each.load) for each in told] == [(2_000.0, 0.2), (2_000.0, 0.2)]
    named = Site(name="a", processors=2, nodes=(Machine(name="n", power=300.0, load=0.1),))
    assert machines_of(named, MEASURED) == [MachineClass(1, 300.0, 0.1), MachineClass(1, NODE_POWER, 0.0)]


def test_near_sites_are_one_region_and_sites_a_little_farther_one_wide_area() -> None:
    grid = grid_of("a", "b", "c", "d", "e")
    latency_s = {(0, 1): NEAR, (1, 2): FAR, (2, 3): FARTHER, (0, 3): FARTHER}
    seen = seen_grid(grid, latency_s, {(0, 1): 12_500_000.0, (2, 0): 1_250_000.0})
    places = [region_of(seen, index) for index in range(5)]
    assert [(man, wan) for man, wan, _ in places] == [("a", "a"), ("a", "a"), ("c", "a"), ("d", "d"), ("e", "grid")]
    assert [uplink for _, _, uplink in places[:3]] == [100.0, 100.0, 10.0]
    assert [[man.name for man in wan.mans] for wan in dendrogram_of(seen).wans] == [["a", "c"], ["d"], ["e"]]


def test_named_regions_stay_as_they_are() -> None:
    grid = grid_of("a", "b")
    named = msgspec.structs.replace(grid.sites[1], man="there", wan="everywhere", uplink_mbit_s=1.0)
    seen = seen_grid(msgspec.structs.replace(grid, sites=(grid.sites[0], named)), {(0, 1): 0.0}, {(0, 1): 1e9})
    assert region_of(seen, 1) == ("there", "everywhere", 1.0)
    assert region_of(seen, 0)[:2] == ("a", "a")


def test_without_load_of_others_no_site_has_less_than_the_grid_file_says() -> None:
    lans = SiteLans(grid_of("a", "b"))
    assert lans.unloaded() is lans
    lans.measured(0, [(4, 100.0, 0.9)])
    lans.measured(1, [(4, 3_000.0, 0.9)])
    empty = lans.unloaded()
    assert empty.classes(0) == ([MachineClass(4, NODE_POWER, 0.0)], True)
    assert empty.classes(1) == ([MachineClass(4, 3_000.0, 0.0)], True)
    lans.measured(0, ())
    assert lans.classes(0) == ([MachineClass(4, NODE_POWER, 0.0)], False)
