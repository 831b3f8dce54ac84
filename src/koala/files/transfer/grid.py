"""The mover of a whole grid: for each order it takes the way that the descriptions of the two sites say.

Which way is in ``koala.files.transfer.route``, who shares a copy in ``koala.files.transfer.shared``. A file at a URL
is read by this machine, and sent on where the target is not seen from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from koala.files.area.interface import FileArea, Measured, SeenArea, size_of
from koala.files.area.layout import Area, Copy, copy_name, replica_path
from koala.files.area.remote import RemoteArea
from koala.files.checksums import of_file
from koala.files.hosts import Place
from koala.files.transfer.copying import source_of
from koala.files.transfer.interface import Brought, Order, Progress
from koala.files.transfer.local_piece import OneCopy
from koala.files.transfer.method_choice import LaneChooser
from koala.files.transfer.methods import TARGET_SUFFIX, Dock, Ends, Lane, dock_name
from koala.files.transfer.piece import Clock, Pause, Work
from koala.files.transfer.remote_piece import Carried
from koala.files.transfer.remote_process import Carriage
from koala.files.transfer.route import Way, way_between
from koala.files.transfer.shared import SharingMover
from koala.model.grid import Site
from koala.model.messages import TransferId
from koala.model.request import FileName, SiteName

_UPLOAD_PREFIX = "upload."


class GridMover(SharingMover):
    """Brings files between the sites of a grid, and from URLs and this machine to them. Keeps the promises of
    ``Mover``. ``relays`` is a directory of this machine that is the mover's alone."""

    def __init__(
        self,
        sites: Iterable[Site],
        areas: Mapping[SiteName, FileArea],
        here: Place,
        relays: Path,
        *,
        clock: Clock,
        pause: Pause = asyncio.sleep,
    ) -> None:
        super().__init__(areas.values(), pause=pause)
        self._sites = {site.name: site for site in sites}
        self._here = here
        self._relays = relays
        self._clock = clock
        self._views = {name: _view(area) for name, area in areas.items()}
        self._docks = {
            site.name: Dock(areas[site.name].place, site.file_server)
            for site in self._sites.values()
            if site.file_server is not None
        }
        self._chooser = LaneChooser(here, relays, self._docks, clock=clock)
        self._uploads: dict[TransferId, Path] = {}

    async def open(self) -> None:
        """See ``SharingMover.open``. What ran on this machine is ended; the same orders go on where it was."""
        if self._relays.exists():
            for home in self._relays.iterdir():
                await Carriage(self._here, str(home)).stop()
            await asyncio.to_thread(shutil.rmtree, self._relays)
        await super().open()

    async def close(self) -> None:
        """See ``SharingMover.close``. Connections that were kept open are closed too."""
        await super().close()
        places = {id(area.place): area.place for area in self._areas.values()}
        await asyncio.gather(*(place.close() for place in places.values()), return_exceptions=True)

    async def upload(self, site: SiteName, file: FileName, path: Path, name: FileName) -> Measured:
        """Bring the file of a name that this machine has at a path into a site's area, as the replica ``name``.

        Raises ``PathError`` when it is no file that can be read, and a ``FilesError`` when it does not get there.
        """
        size_bytes = await asyncio.to_thread(size_of, path)
        checksum = await of_file(path)
        transfer = f"{_UPLOAD_PREFIX}{uuid.uuid4().hex}"
        order = Order(
            transfer=transfer, file=file, source=site, target=site, size_bytes=size_bytes, checksum=checksum
        )
        self._uploads[transfer] = path
        try:
            await self.bring(order)
            await self._areas[site].promote(name, copy_name(file, None, checksum))
        finally:
            del self._uploads[transfer]
            # At a site that is out of reach it is found, and removed, at the next start.
            with contextlib.suppress(OSError):
                await self.cancel(transfer)
        return Measured(size_bytes=size_bytes, checksum=checksum)

    # ------------------------------------------------------------------------------ what the frame asks for

    def _work(self, order: Order, copy: str) -> Work:
        target = self._area(order, order.target)
        if order.transfer in self._uploads:
            return self.sent(order, copy, self._uploads[order.transfer])
        if order.url is not None and not isinstance(target, SeenArea):
            return _FromUrl(self, order, copy, self._relays)
        if order.url is not None:
            return self.copied(order, self._blocking(order, order.target).copy_named(copy))
        self._area(order, order.source)
        way = way_between(self._sites[order.source], self._sites[order.target])
        if way is Way.COPY:
            return self.copied(order, self._blocking(order, order.target).copy_named(copy))
        ends = Ends(
            order=order,
            source=self._views[order.source],
            path=replica_path(order.file),
            target=self._views[order.target],
            copy=copy,
        )
        return self._carried(ends, way)

    def copied(self, order: Order, place: Copy) -> OneCopy:
        """A copy by this machine into a place that it sees."""
        return OneCopy(
            order,
            partial(source_of, order, self._blocking),
            place,
            whole=partial(self._whole, order),
            clock=self._clock,
            pause=self._pause,
            sharing=partial(self._sharing, order),
        )

    def sent(self, order: Order, copy: str, path: Path) -> Carried:
        """A file of this machine on its way to a site."""
        root = RemoteArea(order.source, self._here, "/")
        ends = Ends(order=order, source=root, path=str(path).lstrip("/"), target=self._views[order.target], copy=copy)
        through = self._views[order.target].place.host is None
        return self._carried(ends, Way.RELAY if through else Way.SSH)

    def _carried(self, ends: Ends, way: Way) -> Carried:
        async def choose(anew: bool) -> Lane:
            return await self._chooser.lane(way, ends, anew=anew)

        return Carried(
            ends,
            choose,
            whole=partial(self._whole, ends.order),
            clock=self._clock,
            pause=self._pause,
            sharing=partial(self._sharing, ends.order),
        )

    def _blocking(self, order: Order, site: SiteName) -> Area:
        area = self._area(order, site)
        assert isinstance(area, SeenArea), "this machine sees it"
        return area.blocking

    async def _prepare(self, area: FileArea) -> dict[str, set[TransferId]]:
        if area.site in self._docks:
            await self._docks[area.site].open()
        return await super()._prepare(area)

    async def _take_away(self, area: FileArea, copy: str) -> None:
        await super()._take_away(area, copy)
        if area.site in self._docks:
            await self._docks[area.site].remove(dock_name(area.site, copy) + TARGET_SUFFIX)


class _FromUrl:
    """A file at a URL for a site whose files this machine does not see: it is brought here first, and then sent."""

    def __init__(self, mover: GridMover, order: Order, copy: str, relays: Path) -> None:
        self.order = order
        self.listeners: list[Progress] = []
        self._mover = mover
        self._copy = copy
        self._home = relays / f"url-{uuid.uuid4().hex}"
        self._work: OneCopy | Carried = mover.copied(order, Copy(self._home))
        self._stopped = False

    @property
    def flowing(self) -> bool:
        """Whether bytes flow now."""
        return self._work.flowing

    def stop(self) -> None:
        """See ``Bringing.stop``."""
        self._stopped = True
        self._work.stop()

    async def run(self) -> Brought:
        """See ``Bringing.run``."""
        try:
            await asyncio.to_thread(partial(self._home.mkdir, parents=True))
            here = await self._work.run()
            # What is sent is all of what came here, be it a file or a chunk of one.
            order = msgspec.structs.replace(self.order, chunk=None, url=None, checksum=here.checksum)
            self._work = self._mover.sent(order, self._copy, self._home / "data")
            self._work.listeners = self.listeners
            if self._stopped:
                self._work.stop()
            return await self._work.run()
        finally:
            await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)


def _view(area: FileArea) -> RemoteArea:
    """An area as texts at its place see it, whether this machine sees it too or not."""
    if isinstance(area, RemoteArea):
        return area
    assert isinstance(area, SeenArea), "there are two kinds"
    return RemoteArea(area.site, area.place, str(area.blocking.root.absolute()))
