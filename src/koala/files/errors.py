"""What can go wrong with a file: each error names the file, the site, what is wrong there and what to do about it."""

from __future__ import annotations

import errno
from typing import ClassVar

from koala.model.errors import Fault
from koala.model.request import FileName, SiteName


class FilesError(ValueError):
    """A file cannot be had as asked. What was begun has left nothing behind, unless a subclass says so. ``fault`` is
    whose that is: most often of whoever registered, altered or removed the file."""

    usual_fault: ClassVar[Fault] = Fault.USER

    def __init__(self, file: FileName, site: SiteName, message: str, fault: Fault | None = None) -> None:
        super().__init__(f"file {file!r} at {site}: {message}")
        self.file = file
        self.site = site
        self.message = message
        self.fault = self.usual_fault if fault is None else fault

    def for_user(self) -> str:
        """The file, the site, what is wrong and what to do."""
        return str(self)


class MissingReplicaError(FilesError):
    """The source has no such file, or it cannot be read."""


class ChangedFileError(FilesError):
    """The source is not the file that the catalogue knows, or did not stay the same while it was read."""


class ChecksumError(FilesError):
    """The bytes are not the ones that the catalogue knows, or not the ones that were read."""


class NoSpaceError(FilesError):
    """The target has no room for the file."""

    usual_fault = Fault.SITE


class UnwritableError(FilesError):
    """The target cannot be written, for another reason than room."""

    usual_fault = Fault.SITE


class UnreachableSiteError(FilesError):
    """The bytes do not get from the source to the target, though both may be well."""

    usual_fault = Fault.SITE


class TransferCancelledError(FilesError):
    """The transfer was cancelled while it was awaited."""

    usual_fault = Fault.OURS


class TransferInterruptedError(FilesError):
    """The mover was closed. What has arrived stays, and the same order later continues there."""

    usual_fault = Fault.OURS


class LargeOutputError(Exception):
    """An output is too large to be collected at once, in between: whoever collects it waits for a turn first."""


class PathError(ValueError):
    """The path that a file is to be taken from names no file that can be read."""

    def for_user(self) -> str:
        """The path, what is wrong and what to do."""
        return str(self)


# What is said of a file in more than one place.

# What goes wrong with one file because of its name or what stands there, and not because of the site's disk.
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
    """What a failure to read a file at a site means for its user."""
    if isinstance(error, FileNotFoundError):
        return MissingReplicaError(file, site, "it is not there; forget this replica or bring it back")
    why = f"it cannot be read: {error.strerror or error}; check this site's disk"
    return MissingReplicaError(file, site, why, Fault.USER if error.errno in _OF_THE_FILE else Fault.SITE)


def of_another_size(file: FileName, site: SiteName, there_bytes: int, wanted_bytes: str) -> ChangedFileError:
    """A file that has so many bytes and should have others, told by its size alone."""
    why = f"it has {there_bytes} bytes and should have {wanted_bytes}; register it again or forget this replica"
    return ChangedFileError(file, site, why)


def damaged(file: FileName, site: SiteName, there: str, known: str) -> ChecksumError:
    """A file that has one checksum where the catalogue knows another."""
    why = f"its SHA-256 is {there} and the catalogue says {known}; forget this replica, it is damaged"
    return ChecksumError(file, site, why)
