"""The live grid as the mapping of tasks sees it: sites as LANs, and their idle processors as machines."""

from __future__ import annotations

from koala.cli.map.live import machines_of_sites
from koala.model.api import MachineInfo, SiteInfo


def site(name: str, idle: int, *machines: tuple[int, float, float], man: str = "", wan: str = "grid") -> SiteInfo:
    return SiteInfo(
        name=name, kind="local", processors=8, usable=8, ours=0, others=8 - idle, idle=idle, earmarked=0,
        trust="usable", drained=False, errors=0, man=man or name, wan=wan,
        machines=[MachineInfo(processors=count, power=power, load=load) for count, power, load in machines],
    )  # fmt: skip


def test_idle_processors_are_machines_and_the_least_powerful_ones_count() -> None:
    tree = machines_of_sites([site("a", 3, (4, 2_000.0, 0.0), (2, 1_000.0, 0.5)), site("b", 0, (8, 1_000.0, 0.0))])
    (wan,) = tree.wans
    assert [(man.name, len(man.lans[0].machines)) for man in wan.mans] == [("a", 3), ("b", 0)]
    assert [each.current_power for each in wan.mans[0].lans[0].machines] == [500.0, 500.0, 2_000.0]
    assert tree.user_lan == "a"


def test_sites_of_one_region_are_together() -> None:
    sites = [site("a", 1, (1, 1.0, 0.0)), site("b", 1, (1, 1.0, 0.0), man="a"), site("c", 1, (1, 1.0, 0.0), wan="c")]
    assert [[[lan.name for lan in man.lans] for man in wan.mans] for wan in machines_of_sites(sites).wans] == [
        [["a", "b"]],
        [["c"]],
    ]
