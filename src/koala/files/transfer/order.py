"""The orders that the mover of files accepts, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from koala.files.catalogue import CatalogueEntry
from koala.files.errors import FilesError, MissingReplicaError
from koala.model.errors import Fault
from koala.model.messages import StartTransfer, TransferId
from koala.model.request import FileName, SiteName

# Called with the number of bytes that are at the target so far, in the driver's event loop.
Progress: TypeAlias = Callable[[int], None]


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Transfer ``size_bytes`` of a file to a site: all of it, or with ``chunk`` (offset, size) that piece.

    ``checksum`` is the checksum of the whole file. ``url`` is the source's address of the file if it is not in its
    own area. ``rate_bytes_s`` is the speed between the two sites; simultaneous orders share it equally.
    """

    transfer: TransferId
    file: FileName
    source: SiteName
    target: SiteName
    size_bytes: int
    checksum: str | None = None
    chunk: tuple[int, int] | None = None
    url: str | None = None
    rate_bytes_s: float | None = None

    def __post_init__(self) -> None:
        offset, size = (0, self.size_bytes) if self.chunk is None else self.chunk
        if offset < 0 or size < 0 or size != self.size_bytes:
            raise FilesError(
                self.file,
                self.target,
                f"{self.size_bytes} bytes of chunk {self.chunk} are not a piece of a file; check the order",
                Fault.OURS,
            )
        if self.rate_bytes_s is not None and not self.rate_bytes_s > 0:
            raise FilesError(
                self.file,
                self.target,
                f"{self.rate_bytes_s} bytes/s never arrive; write a rate above zero",
                Fault.OURS,
            )

    @property
    def offset(self) -> int:
        """The offset of the piece in the file."""
        return 0 if self.chunk is None else self.chunk[0]


class TransferResult(msgspec.Struct, frozen=True, kw_only=True):
    """The file, or its chunk, is at the target, complete and verified.

    ``path`` is relative to the target's file area. ``copied_bytes`` counts what was moved now rather than found
    there. ``bytes_per_s`` is the speed measured while bytes moved, None when nothing was moved.
    """

    transfer: TransferId
    path: str
    size_bytes: int
    checksum: str
    copied_bytes: int
    bytes_per_s: float | None


def order_for(command: StartTransfer, entry: CatalogueEntry, rate_bytes_s: float | None = None) -> Order:
    """Return the order that performs a command of the scheduler, completed from the catalogue's entry of the file."""
    replica = entry.replica_at(command.source)
    if replica is None:
        known = ", ".join(entry.sites) or "nowhere"
        raise MissingReplicaError(
            command.file, command.source, f"the catalogue has no replica here; replicas are at: {known}"
        )
    return Order(
        transfer=command.transfer,
        file=command.file,
        source=command.source,
        target=command.target,
        size_bytes=command.size_bytes,
        checksum=entry.checksum,
        chunk=command.chunk,
        url=replica.url,
        rate_bytes_s=rate_bytes_s,
    )
