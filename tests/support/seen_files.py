"""The file areas of an engine whose sites are all seen by this machine, for tests that look into them."""

from __future__ import annotations

from koala.daemon.engine.loop import Engine
from koala.files import Area, SeenArea


def seen(engine: Engine) -> dict[str, Area]:
    """The areas by site."""
    found = {}
    for site, area in engine.areas.items():
        assert isinstance(area, SeenArea)
        found[site] = area.blocking
    return found
