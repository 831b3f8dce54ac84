"""The mover for areas that all are seen by this machine: it copies, and reads URLs.

Who shares which copy is in ``koala.files.transfer.shared``; the bytes themselves are moved in
``koala.files.transfer.local_piece``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from koala.files.area.interface import SeenArea
from koala.files.area.layout import Area
from koala.files.hosts import Place
from koala.files.sources import PathSource, Source, UrlSource
from koala.files.transfer.interface import Order
from koala.files.transfer.local_piece import OneCopy
from koala.files.transfer.piece import Clock, Pause, Work
from koala.files.transfer.shared import SharingMover
from koala.model.request import SiteName
from koala.sites.remote_shell import RemoteShell


class CopyMover(SharingMover):
    """Copies between the areas it was built with, and from URLs into them. Keeps the promises of ``Mover``."""

    def __init__(self, areas: Iterable[Area], *, clock: Clock, pause: Pause = asyncio.sleep) -> None:
        here = Place(RemoteShell())
        self._seen = {area.site: SeenArea(area, here) for area in areas}
        super().__init__(self._seen.values(), pause=pause)
        self._clock = clock

    def _work(self, order: Order, copy: str) -> Work:
        return OneCopy(
            order,
            lambda: source_of(order, self._blocking),
            self._blocking(order, order.target).copy_named(copy),
            whole=lambda: self._whole(order),
            clock=self._clock,
            pause=self._pause,
            sharing=lambda: self._sharing(order),
        )

    def _blocking(self, order: Order, site: SiteName) -> Area:
        self._area(order, site)
        return self._seen[site].blocking


def source_of(order: Order, area_of: Callable[[Order, SiteName], Area]) -> Source:
    """What a copy reads: the URL that the order names, or the replica in the source's area."""
    if order.url is not None:
        return UrlSource(order.file, order.source, order.url)
    return PathSource(area_of(order, order.source).replica(order.file))
