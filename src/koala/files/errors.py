"""Errors of files: each names the file, the site, what is wrong there and what to do about it."""

from __future__ import annotations

import errno
from typing import ClassVar

from koala.model.errors import Fault
from koala.model.request import FileName, SiteName


class FilesError(ValueError):
    """A file operation failed. It has left nothing behind, unless a subclass says so. ``fault`` is who caused the
    failure: usually the person who registered, altered or removed the file."""

    usual_fault: ClassVar[Fault] = Fault.USER

    def __init__(self, file: FileName, site: SiteName, message: str, fault: Fault | None = None) -> None:
        super().__init__(f"file {file!r} at {site}: {message}")
        self.file = file
        self.site = site
        self.message = message
        self.fault = self.usual_fault if fault is None else fault

    def for_user(self) -> str:
        """Return the file, the site, what is wrong and what to do."""
        return str(self)


class MissingReplicaError(FilesError):
    """The source has no such file, or it cannot be read."""


class ChangedFileError(FilesError):
    """The source differs from the file in the catalogue, or changed while it was read."""


class ChecksumError(FilesError):
    """The bytes differ from the file in the catalogue, or from the bytes that were read."""


class NoSpaceError(FilesError):
    """The target has no room for the file."""

    usual_fault = Fault.SITE


class UnwritableError(FilesError):
    """The target cannot be written, for a reason other than space."""

    usual_fault = Fault.SITE


class UnreachableSiteError(FilesError):
    """The bytes do not get from the source to the target, although both may be fine."""

    usual_fault = Fault.SITE


class TransferCancelledError(FilesError):
    """The transfer was cancelled while somebody waited for it."""

    usual_fault = Fault.OURS


class TransferInterruptedError(FilesError):
    """The mover was closed. What has arrived stays, and a later order for the same continues from there."""

    usual_fault = Fault.OURS


class LargeOutputError(Exception):
    """An output is too large to be collected immediately: the caller must wait for its turn first."""


class PathError(ValueError):
    """The path that a file is to be copied from is not a readable file."""

    def for_user(self) -> str:
        """Return the path, what is wrong and what to do."""
        return str(self)


# Errors that several modules raise.

# Errors of one file that come from its name or its entry, and not from the site's disk.
_OF_THE_FILE = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
    }
)


def unreadable(file: FileName, site: SiteName, error: OSError) -> MissingReplicaError:
    """Return the user's error for a failure to read a file at a site."""
    if isinstance(error, FileNotFoundError):
        return MissingReplicaError(file, site, "it is not there; forget this replica or bring it back")
    why = f"it cannot be read: {error.strerror or error}; check this site's disk"
    return MissingReplicaError(file, site, why, Fault.USER if error.errno in _OF_THE_FILE else Fault.SITE)


def of_another_size(file: FileName, site: SiteName, there_bytes: int, wanted_bytes: str) -> ChangedFileError:
    """Return the error for a file with a wrong size, which needs no checksum."""
    why = f"it has {there_bytes} bytes and should have {wanted_bytes}; register it again or forget this replica"
    return ChangedFileError(file, site, why)


def damaged(file: FileName, site: SiteName, there: str, known: str) -> ChecksumError:
    """Return the error for a file whose checksum differs from the one in the catalogue."""
    why = f"its SHA-256 is {there} and the catalogue says {known}; forget this replica, it is damaged"
    return ChecksumError(file, site, why)
