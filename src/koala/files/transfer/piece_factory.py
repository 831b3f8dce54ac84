"""Makes the transfer of an order's piece, by the route that follows from the descriptions of the two sites.

``koala.files.transfer.route`` chooses the route, ``koala.files.transfer.mover`` decides who shares a copy. This
machine reads a file at a URL, and sends it on where the target's files are remote.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from koala.files.area.directory import AreaDirectory, Copy
from koala.files.area.interface import FileArea
from koala.files.area.layout import replica_path
from koala.files.area.local import LocalArea
from koala.files.area.remote import RemoteArea
from koala.files.hosts import Host
from koala.files.sources import ByteSource, PathSource, UrlSource
from koala.files.transfer.local_piece import LocalPieceTransfer
from koala.files.transfer.method_choice import MethodChooser
from koala.files.transfer.methods import TARGET_SUFFIX, Endpoints, Method, ServerDirectory, served_name
from koala.files.transfer.order import Order, Progress, TransferResult
from koala.files.transfer.piece import Clock, Pause, PieceWork
from koala.files.transfer.remote_piece import RemotePieceTransfer
from koala.files.transfer.route import TransferRoute, route_between
from koala.model.grid import Site
from koala.model.request import SiteName


class PieceFactory:
    """Makes the transfers of pieces.

    ``whole`` returns the checksum of an order's whole file at its source, ``sharing`` the number of transfers that
    share its link now.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        areas: Mapping[SiteName, FileArea],
        here: Host,
        relays: Path,
        *,
        clock: Clock,
        pause: Pause,
        whole: Callable[[Order], Awaitable[str]],
        sharing: Callable[[Order], int],
        tries_max: int,
    ) -> None:
        self._sites = {site.name: site for site in sites}
        self._areas = areas
        self._here = here
        self._relays = relays
        self._clock = clock
        self._pause = pause
        self._whole = whole
        self._sharing = sharing
        self._tries_max = tries_max
        self._scripted = {name: _scripted(area) for name, area in areas.items()}
        self._servers = {
            site.name: ServerDirectory(areas[site.name].host, site.file_server)
            for site in self._sites.values()
            if site.file_server is not None
        }
        self._chooser = MethodChooser(here, relays, self._servers, clock=clock)

    def make(self, order: Order, copy: str, upload: Path | None = None) -> PieceWork:
        """Make the transfer of an order's piece into a copy; ``upload`` is a file of this machine to send instead."""
        if upload is not None and isinstance(self._areas[order.target], LocalArea):
            return self.copied(order, self._directory(order.target).copy_named(copy), upload)
        if upload is not None:
            return self.sent(order, copy, upload)
        if order.url is not None and not isinstance(self._areas[order.target], LocalArea):
            return _FromUrl(self, order, copy, self._relays)
        if order.url is not None:
            return self.copied(order, self._directory(order.target).copy_named(copy))
        route = route_between(self._sites[order.source], self._sites[order.target])
        if route is TransferRoute.COPY:
            return self.copied(order, self._directory(order.target).copy_named(copy))
        endpoints = Endpoints(
            order=order,
            source=self._scripted[order.source],
            path=replica_path(order.file),
            target=self._scripted[order.target],
            copy=copy,
        )
        return self._remote(endpoints, route)

    def copied(self, order: Order, copy: Copy, upload: Path | None = None) -> LocalPieceTransfer:
        """Make a copy in a directory that this machine sees; ``upload`` is a file of this machine to copy instead."""
        return LocalPieceTransfer(
            order,
            partial(self._source, order) if upload is None else partial(PathSource, upload),
            copy,
            whole=partial(self._whole, order),
            clock=self._clock,
            pause=self._pause,
            sharing=partial(self._sharing, order),
        )

    def sent(self, order: Order, copy: str, path: Path) -> RemotePieceTransfer:
        """Make the transfer of a file of this machine to a site."""
        root = RemoteArea(order.source, self._here, "/")
        target = self._scripted[order.target]
        endpoints = Endpoints(order=order, source=root, path=str(path).lstrip("/"), target=target, copy=copy)
        return self._remote(endpoints, TransferRoute.RELAY if target.host.ssh_name is None else TransferRoute.SSH)

    async def open_server(self, site: SiteName) -> None:
        """Remove what a killed daemon has left in the directory of a site's file server, if it has one."""
        if site in self._servers:
            await self._servers[site].open()

    async def remove_served(self, site: SiteName, copy: str) -> None:
        """Remove what a site's file server has written for a copy."""
        if site in self._servers:
            await self._servers[site].remove(served_name(site, copy) + TARGET_SUFFIX)

    def _source(self, order: Order) -> ByteSource:
        """Return the URL of the order, or the replica in the source's area."""
        if order.url is not None:
            return UrlSource(order.file, order.source, order.url)
        return PathSource(self._directory(order.source).replica(order.file))

    def _remote(self, endpoints: Endpoints, route: TransferRoute) -> RemotePieceTransfer:
        async def choose(anew: bool) -> Method:
            return await self._chooser.method(route, endpoints, anew=anew)

        return RemotePieceTransfer(
            endpoints,
            choose,
            whole=partial(self._whole, endpoints.order),
            clock=self._clock,
            pause=self._pause,
            sharing=partial(self._sharing, endpoints.order),
            tries_max=self._tries_max,
        )

    def _directory(self, site: SiteName) -> AreaDirectory:
        area = self._areas[site]
        assert isinstance(area, LocalArea), "its files are local"
        return area.directory


class _FromUrl:
    """The transfer of a file at a URL to a site whose files this machine does not see: copied here first, then
    sent."""

    def __init__(self, factory: PieceFactory, order: Order, copy: str, relays: Path) -> None:
        self.order = order
        self.listeners: list[Progress] = []
        self._factory = factory
        self._copy = copy
        self._home = relays / f"url-{uuid.uuid4().hex}"
        self._work: LocalPieceTransfer | RemotePieceTransfer = factory.copied(order, Copy(self._home))
        self._stopped = False

    @property
    def flowing(self) -> bool:
        """True if bytes flow now."""
        return self._work.flowing

    def stop(self) -> None:
        """End soon. See ``PieceTransfer.stop``."""
        self._stopped = True
        self._work.stop()

    async def run(self) -> TransferResult:
        """Transfer the piece. See ``PieceTransfer.run``."""
        try:
            await asyncio.to_thread(partial(self._home.mkdir, parents=True))
            here = await self._work.run()
            # Everything that arrived here is sent, be it a file or a chunk of one.
            order = msgspec.structs.replace(self.order, chunk=None, url=None, checksum=here.checksum)
            self._work = self._factory.sent(order, self._copy, self._home / "data")
            self._work.listeners = self.listeners
            if self._stopped:
                self._work.stop()
            return await self._work.run()
        finally:
            await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)


def _scripted(area: FileArea) -> RemoteArea:
    """Return an area, local or remote, in the form that scripts on its host use."""
    if isinstance(area, RemoteArea):
        return area
    assert isinstance(area, LocalArea), "there are two kinds"
    return RemoteArea(area.site, area.host, str(area.directory.root.absolute()))
