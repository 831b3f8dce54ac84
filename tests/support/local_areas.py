"""The file areas of an engine whose sites are all local, for tests that look into them."""

from __future__ import annotations

from koala.daemon.engine.loop import Engine
from koala.files import AreaDirectory, LocalArea


def local_areas(engine: Engine) -> dict[str, AreaDirectory]:
    """Return the areas by site."""
    found = {}
    for site, area in engine.areas.items():
        assert isinstance(area, LocalArea)
        found[site] = area.directory
    return found
