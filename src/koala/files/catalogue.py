"""The replica catalogue as values: logical files and the sites of their replicas.

Every change gives a new entry and the event for the scheduler. Nothing is read or written here: the driver keeps the
entries, and has measured size and checksum before it calls.
"""

from __future__ import annotations

import msgspec

from koala.files.checksums import is_checksum
from koala.files.errors import FilesError
from koala.model.messages import FileChanged
from koala.model.request import TEXT_CHARACTERS_MAX, FileName, SiteName

# One file has at most this many replicas.
REPLICAS_MAX = 1_000


class Replica(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole copy of a file at a site, as it was measured there.

    Without ``url`` it is in the site's own file area; with ``url`` it is at that address, and is read as if from that
    site.
    """

    site: SiteName
    size_bytes: int
    checksum: str
    url: str | None = None


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A logical file. All its replicas have its size and its checksum. A file without replicas is forgotten, and so
    is a file after ``kept_until``."""

    name: FileName
    size_bytes: int
    checksum: str
    replicas: tuple[Replica, ...] = ()
    kept_until: float | None = None

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The sites of its replicas, the oldest first."""
        return tuple(replica.site for replica in self.replicas)

    def replica_at(self, site: SiteName) -> Replica | None:
        """Return the replica at a site; None if there is none."""
        return next((replica for replica in self.replicas if replica.site == site), None)


def register(name: FileName, replica: Replica, *, at: float) -> tuple[CatalogueEntry, FileChanged]:
    """Return the entry of a new file with its first replica, and the event."""
    if not name or len(name) > TEXT_CHARACTERS_MAX:
        raise FilesError(
            name[:80], replica.site, f"a name has 1 to {TEXT_CHARACTERS_MAX} characters (TEXT_CHARACTERS_MAX)"
        )
    if replica.size_bytes < 0:
        raise FilesError(name, replica.site, f"{replica.size_bytes} bytes is not a size; measure the file again")
    if not is_checksum(replica.checksum):
        raise FilesError(
            name, replica.site, f"{replica.checksum[:80]!r} is not a SHA-256; write its 64 hexadecimal digits"
        )
    entry = CatalogueEntry(name=name, size_bytes=replica.size_bytes, checksum=replica.checksum, replicas=(replica,))
    return entry, _changed(entry, at)


def replicate(entry: CatalogueEntry, replica: Replica, *, at: float) -> tuple[CatalogueEntry, FileChanged]:
    """Return the entry with one more replica, or a new measurement of a known one, and the event. The replica must be
    the same file, byte for byte."""
    if replica.size_bytes != entry.size_bytes:
        raise FilesError(
            entry.name,
            replica.site,
            f"it has {replica.size_bytes} bytes and the catalogue says {entry.size_bytes}; "
            "bring the right file, or register this one under another name",
        )
    if replica.checksum != entry.checksum:
        raise FilesError(
            entry.name,
            replica.site,
            f"its SHA-256 is {replica.checksum} and the catalogue says {entry.checksum}; "
            "bring the right file, or register this one under another name",
        )
    if entry.replica_at(replica.site) is not None:
        kept = tuple(replica if each.site == replica.site else each for each in entry.replicas)
    elif len(entry.replicas) >= REPLICAS_MAX:
        raise FilesError(
            entry.name, replica.site, f"it has {REPLICAS_MAX} replicas (REPLICAS_MAX); forget one of them first"
        )
    else:
        kept = (*entry.replicas, replica)
    changed = msgspec.structs.replace(entry, replicas=kept)
    return changed, _changed(changed, at)


def forget(
    entry: CatalogueEntry, site: SiteName | None = None, *, at: float, by: str = "", reason: str = ""
) -> tuple[CatalogueEntry, FileChanged]:
    """Return the entry with one replica less, or without any if no site is named, which forgets the file itself; and
    the event."""
    if site is not None and entry.replica_at(site) is None:
        known = ", ".join(entry.sites) or "nowhere"
        raise FilesError(entry.name, site, f"there is no replica here to forget; replicas are at: {known}")
    kept = tuple(each for each in entry.replicas if site is not None and each.site != site)
    changed = msgspec.structs.replace(entry, replicas=kept)
    return changed, msgspec.structs.replace(_changed(changed, at), by=by, reason=reason)


def expired(entry: CatalogueEntry, *, at: float) -> FileChanged:
    """Return the event that the time of a file is over."""
    return FileChanged(at=at, file=entry.name, size_bytes=entry.size_bytes, replicas=(), time_is_over=True)


def _changed(entry: CatalogueEntry, at: float) -> FileChanged:
    return FileChanged(at=at, file=entry.name, size_bytes=entry.size_bytes, replicas=entry.sites)
