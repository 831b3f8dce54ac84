"""Two or three sites with real directories, and a mover between them: the common part of the tests of files."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from koala.files import AreaDirectory, FileMover, Host, LocalArea, Order
from koala.files.checksums import of_path
from koala.model.grid import Site, SiteKind
from koala.sites.remote_shell import RemoteShell

SITES = ("delft", "leiden", "utrecht")
# Names of files that are special to a file system or a shell.
HOSTILE = [
    "..",
    ".",
    "",
    "/etc/passwd",
    "../../escape",
    "a/../../b",
    "a\0b",
    "a\nb",
    "$(reboot); `id` | rm -rf ~",
    "-rf",
    "naïve ☃ file",
    "\ud800 lone surrogate",
    "=a",
    "a+b",
    "%2e%2e",
    "x" * 10_000,
    "☃" * 5_000,
    "con",
    ".hidden",
]


class World:
    """Areas below one directory. ``put`` makes a replica, ``order`` an order for it to Leiden."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.areas = {site: AreaDirectory(site, root / site) for site in SITES}

    def put(self, file: str, data: bytes, site: str = "delft") -> Path:
        area = self.areas[site]
        area.open()
        outside = area.root / "outside"
        outside.write_bytes(data)
        path = area.adopt(file, outside)
        outside.unlink()
        return path

    def order(self, file: str, transfer: str = "t1", source: str = "delft", **more: Any) -> Order:
        path = self.areas[source].replica(file)
        chunk = more.get("chunk")
        size = path.stat().st_size if chunk is None else chunk[1]
        settings: dict[str, Any] = {"size_bytes": size, "checksum": of_path(path)} | more
        return Order(transfer=transfer, file=file, source=source, target="leiden", **settings)

    def bytes_at(self, path: str, site: str = "leiden") -> bytes:
        return (self.areas[site].root / path).read_bytes()

    def left_at(self, site: str = "leiden") -> list[str]:
        """Return every file and every copy's directory except replicas."""
        root = self.areas[site].root
        found = [*(root / "copies").rglob("*"), *(root / "trash").rglob("*")]
        return sorted(str(each.relative_to(root)) for each in found)

    @asynccontextmanager
    async def mover(self, **settings: Any) -> AsyncIterator[FileMover]:
        here = Host(RemoteShell())
        sites = [Site(name=site, processors=1, kind=SiteKind.LOCAL) for site in self.areas]
        areas = {site: LocalArea(area, here) for site, area in self.areas.items()}
        mover = FileMover(sites, areas, here, self.root / "relays", **({"clock": time.monotonic} | settings))
        await mover.open()
        try:
            yield mover
        finally:
            await mover.close()


def some_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)
