"""The source of a file: a replica in a site's area, or a URL through fsspec, which is loaded only when it is used.

A source is read by position and keeps nothing open, so that reading may stop and continue at any byte. Everything
here blocks and raises ``OSError``; the caller turns it into an error that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from koala.files.errors import FilesError
from koala.model.errors import Fault
from koala.model.request import FileName, SiteName

# Other schemes could read the files of the driver's machine, past every site's area, as archives do.
REMOTE_SCHEMES = (
    "http", "https", "ftp", "sftp", "ssh", "smb", "s3", "s3a", "gs", "gcs", "abfs", "adl", "az", "oci",
    "hdfs", "webhdfs", "memory",
)  # fmt: skip
# A write to memory would fill the daemon, and web servers accept none.
WRITABLE_SCHEMES = tuple(scheme for scheme in REMOTE_SCHEMES if scheme not in ("http", "https", "memory"))


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a source's file: its location, its size, and its time or version there. A change shows in
    it."""

    location: str
    size_bytes: int
    version: str


class ByteSource(Protocol):
    """A file that can be read from any byte on."""

    def stamp(self) -> Stamp:
        """Return the present stamp. Raises ``OSError`` if the file is missing or not a regular file."""
        ...

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return the bytes from ``offset`` on; fewer only at the end of the file."""
        ...


class PathSource:
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def stamp(self) -> Stamp:
        """Return size and time of last change. See ``ByteSource.stamp``."""
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode):
            # Opening a pipe would wait for ever.
            raise OSError(errno.EINVAL, "is not a regular file", str(self._path))
        return Stamp(
            location=str(self._path), size_bytes=found.st_size, version=f"{found.st_ino}.{found.st_mtime_ns}"
        )

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes. See ``ByteSource.read``."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while size_bytes > 0 and (piece := os.pread(descriptor, size_bytes, offset)):
                pieces.append(piece)
                offset += len(piece)
                size_bytes -= len(piece)
            return b"".join(pieces)
        finally:
            os.close(descriptor)


def is_writable(url: str) -> bool:
    """Return True if outputs may be written to this URL, judged by its scheme."""
    return "://" in url and url.partition("://")[0] in WRITABLE_SCHEMES and "::" not in url


class _Url:
    """A URL that fsspec can open."""

    def __init__(
        self,
        file: FileName,
        site: SiteName,
        url: str,
        *,
        done: str = "read",
        schemes: tuple[str, ...] = REMOTE_SCHEMES,
    ) -> None:
        scheme = url.partition("://")[0] if "://" in url else ""
        if scheme not in schemes or "::" in url:
            raise FilesError(
                file,
                site,
                f"{url!r} is not {done} as a URL; name one with one of the schemes {', '.join(schemes)}, or "
                "register the file at a site",
            )
        self._url = url
        try:
            # Imported by name, because without the extra there is no such module to check types against.
            fsspec: Any = importlib.import_module("fsspec")
            self._system, self._path = fsspec.core.url_to_fs(url)
        except ModuleNotFoundError as error:
            if error.name != "fsspec":
                raise self._missing(file, site, error) from None
            message = f"{url!r} is {done} by the library fsspec, which is missing; install koala-scheduler[fsspec]"
            raise FilesError(file, site, message, Fault.OURS) from None
        except ImportError as error:
            raise self._missing(file, site, error) from None
        except ValueError as error:
            raise FilesError(file, site, f"{url!r} cannot be {done} ({error}); check its scheme") from None

    def _missing(self, file: FileName, site: SiteName, error: ImportError) -> FilesError:
        """Return the error for a library that fsspec needs for this scheme and no extra of Koala installs."""
        scheme = self._url.partition("://")[0]
        message = f"{self._url!r} needs a library that fsspec uses for {scheme}: {error}; install it beside Koala"
        return FilesError(file, site, message, Fault.OURS)


class UrlSource(_Url):
    """A file at a URL that fsspec can read."""

    def stamp(self) -> Stamp:
        """Return the size, and the version that the server reports. See ``ByteSource.stamp``."""
        info = self._system.info(self._path)
        if info.get("type") != "file" or info.get("size") is None:
            raise OSError(errno.EINVAL, "is not a file of known size", self._url)
        known = ("ETag", "etag", "mtime", "Last-Modified", "LastModified", "last_modified", "created", "version_id")
        version = ";".join(f"{key}={info[key]}" for key in known if info.get(key) is not None)
        return Stamp(location=self._url, size_bytes=int(info["size"]), version=version)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes. See ``ByteSource.read``."""
        return bytes(self._system.cat_file(self._path, start=offset, end=offset + size_bytes))


class UrlTarget(_Url):
    """A file that is being written to a URL, piece after piece. All errors are ``FilesError``.

    It is written beside its place and moved there when it is complete; until then an older file stays. ``lock``
    separates the calls that finish it and that give it up, which may come from several threads.
    """

    def __init__(self, file: FileName, site: SiteName, url: str, lock: AbstractContextManager[object]) -> None:
        super().__init__(file, site, url, done="written", schemes=WRITABLE_SCHEMES)
        self._file = file
        self._site = site
        self._aside = f"{self._path}.{uuid.uuid4().hex}.part"
        self._finishing = lock
        self._given_up = False
        with self._told():
            self._stream: Any = self._system.open(self._aside, "wb")

    def write(self, piece: bytes) -> None:
        """Write the next piece."""
        with self._told():
            self._stream.write(piece)

    def finish(self, size_bytes: int) -> None:
        """Check that the file is complete, and move it to its place."""
        with self._told(), self._finishing:
            if self._given_up:
                raise OSError(errno.ECANCELED, "it was given up")
            self._stream.close()
            there = self._system.info(self._aside).get("size")
            if there is not None and int(there) != size_bytes:
                raise OSError(errno.EIO, f"it has {there} bytes there and should have {size_bytes}")
            self._take_place()

    def give_up(self) -> None:
        """Remove what was written, as far as the server allows it. An older file stays in its place."""
        with self._finishing:
            self._given_up = True
            with contextlib.suppress(Exception):
                self._stream.close()
            with contextlib.suppress(Exception):
                self._system.rm_file(self._aside)

    def _take_place(self) -> None:
        try:
            self._move(self._aside, self._path)
        except Exception:  # some servers do not let a file replace another
            if not self._system.exists(self._path):
                raise
            before = f"{self._aside}.before"
            self._move(self._path, before)
            try:
                self._move(self._aside, self._path)
            except Exception:
                self._move(before, self._path)
                raise
            self._system.rm_file(before)

    def _move(self, old: str, new: str) -> None:
        general: Any = importlib.import_module("fsspec").AbstractFileSystem
        if type(self._system).mv is general.mv:
            # The general method treats paths as patterns; a store of objects shows the copy as a whole and at once.
            self._system.cp_file(old, new)
            self._system.rm_file(old)
        else:
            self._system.mv(old, new)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each kind of server has errors of its own
            said = str(error) or type(error).__name__
            raise FilesError(
                self._file, self._site, f"{self._url!r} cannot be written ({said}); check the address"
            ) from None
