"""The live grid for ``koala map``: sites as LANs, and their idle processors as machines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from koala.cli.connection import open_client
from koala.cli.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from koala.model.api import SiteInfo
    from koala.model.dendrogram import Dendrogram, Machine

# The value of --grid for the daemon's grid.
LIVE = "live"


def live_machines(server: str | None) -> Dendrogram:
    """Return the idle machines of the daemon's grid, with their known power and load."""
    return machines_of_sites(open_client(server).sites())


def machines_of_sites(sites: Sequence[SiteInfo]) -> Dendrogram:
    """Return sites in their regions and wide areas. A site itself chooses the processors that it gives: at one in use
    the processors with the least power count as idle."""
    from koala.model.dendrogram import MACHINES_MAX, Dendrogram, Lan, Man, Wan

    idle = sum(max(0, site.idle) for site in sites)
    if idle > MACHINES_MAX:
        raise UserError(f"--grid live: {idle} idle processors are more machines than {MACHINES_MAX} (MACHINES_MAX)")
    wans: dict[str, dict[str, list[Lan]]] = {}
    for site in sites:
        uplink = math.inf if site.uplink_mbit_s is None else site.uplink_mbit_s
        lan = Lan(name=site.name, machines=tuple(_idle_machines(site)), uplink_mbit_s=uplink)
        wans.setdefault(site.wan, {}).setdefault(site.man, []).append(lan)
    return Dendrogram(
        wans=tuple(
            Wan(
                name=wan,
                mans=tuple(
                    Man(
                        name=man,
                        lans=tuple(lans),
                        uplink_mbit_s=lans[0].uplink_mbit_s if len(lans) == 1 else math.inf,
                    )
                    for man, lans in mans.items()
                ),
            )
            for wan, mans in wans.items()
        ),
        user_lan=sites[0].name,
    )


def _idle_machines(site: SiteInfo) -> list[Machine]:
    from koala.model.dendrogram import Machine

    machines: list[Machine] = []
    for each in sorted(site.machines, key=lambda each: each.power * (1 - each.load)):
        for _ in range(min(each.processors, site.idle - len(machines))):
            machines.append(Machine(name=f"{site.name}/{len(machines) + 1}", power=each.power, load=each.load))
    return machines
