"""The archive of an output directory, unpacked so that none of its entries leaves the target directory.

The author of the archive is not trusted, and existing links may belong to anybody. ``tarfile`` provides only the
content of files, because its judgement of entries differs between versions of Python.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
from pathlib import Path
from typing import TypeAlias

from koala.client.errors import InvalidError
from koala.client.fetching import told_of

# A name in the archive, split into its parts.
_Parts: TypeAlias = tuple[str, ...]


def unpack(archive: Path, directory: Path) -> list[str]:
    """Unpack the archive of a directory, and remove it. Existing files and links are replaced; directories stay.
    Return the entries that are left out, because they lead out of the directory or are not files."""
    with told_of(directory):
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(archive, "r:") as tar:
                left_out = _Unpacking(tar, directory.resolve()).run()
        except tarfile.TarError as error:
            raise InvalidError(f"{directory}: what came is no archive ({error}); fetch it again") from None
        archive.unlink()
    return left_out


class _Unpacking:
    """The unpacking of one archive into a directory. Symbolic links are made last, so that nothing is written through
    one of them."""

    def __init__(self, tar: tarfile.TarFile, root: Path) -> None:
        self._tar = tar
        self._root = root
        self._plain: set[_Parts] = {()}  # directories with no link on their path
        self._made: set[_Parts] = set()  # the new ones among them
        self._files: set[_Parts] = set()
        self._links: dict[_Parts, str] = {}

    def run(self) -> list[str]:
        """Unpack everything that is harmless; return the names of the rest."""
        left_out = [entry.name for entry in self._tar if not self._unpacks(entry)]
        refused = self._leading_out()
        for parts, target in self._links.items():
            if parts not in refused:
                path = self._cleared(parts)
                path.symlink_to(target)
        return left_out + ["/".join(parts) for parts in self._links if parts in refused]

    def _unpacks(self, entry: tarfile.TarInfo) -> bool:
        """Return True if the entry is harmless: it is unpacked, or noted as a link to make later."""
        parts = _parts_of(entry.name)
        if parts is None or not self._has_way(parts[:-1]):
            return False
        if entry.isdir():
            return self._has_way(parts, entry.mode & 0o755 | 0o700)
        if not parts or entry.issparse():
            return False
        if entry.issym():
            self._links[parts] = entry.linkname
            return True
        if entry.islnk():
            return self._is_another_name(parts, _parts_of(entry.linkname))
        if entry.isfile():
            self._write(parts, entry)
            return True
        return False

    def _has_way(self, parts: _Parts, mode: int | None = None) -> bool:
        """Return True if a directory exists and no link leads to it. A missing directory is made; an existing one
        keeps its mode."""
        for number in range(len(parts)) if parts not in self._plain else ():
            way = parts[: number + 1]
            if way in self._plain:
                continue
            path = self._root.joinpath(*way)
            if way in self._links or path.is_symlink():
                return False
            if not path.is_dir():
                path.mkdir()
                self._made.add(way)
            self._plain.add(way)
        if mode is not None and parts in self._made:
            self._root.joinpath(*parts).chmod(mode)
        return True

    def _write(self, parts: _Parts, entry: tarfile.TarInfo) -> None:
        path = self._cleared(parts)
        content = self._tar.extractfile(entry)
        assert content is not None, "of a plain file"
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)
            os.fchmod(file.fileno(), entry.mode & 0o755 | 0o600)
        with contextlib.suppress(OSError, OverflowError, ValueError):  # a time that this machine cannot represent
            os.utime(path, (entry.mtime, entry.mtime))
        self._files.add(parts)

    def _is_another_name(self, parts: _Parts, other: _Parts | None) -> bool:
        """Return True if this became another name of an unpacked file."""
        if other not in self._files or other == parts:
            return False
        os.link(self._root.joinpath(*other), self._cleared(parts), follow_symlinks=False)
        self._files.add(parts)
        return True

    def _cleared(self, parts: _Parts) -> Path:
        """Return the path of a new file or link, and remove what is there, unless it is a directory."""
        path = self._root.joinpath(*parts)
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.unlink(missing_ok=True)
        self._files.discard(parts)
        return path

    def _leading_out(self) -> set[_Parts]:
        """Return the links that lead out of the directory, or to such a link."""
        pointing: dict[_Parts, list[_Parts]] = {}
        refused = set()
        for parts, target in self._links.items():
            end = self._end(parts, target)
            if end is None:
                refused.add(parts)
            else:
                pointing.setdefault(end, []).append(parts)
        left = list(refused)
        while left:
            more = [parts for parts in pointing.pop(left.pop(), ()) if parts not in refused]
            refused.update(more)
            left += more
        return refused

    def _end(self, parts: _Parts, target: str) -> _Parts | None:
        """Return the target of a link: up from its directory, and from there down through directories. None if it
        leads out, through another link, or to an existing link that is not part of the archive."""
        steps = [step for step in target.split("/") if step not in ("", ".")]
        up = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
        down = steps[up:]
        if not target or target.startswith("/") or up >= len(parts) or ".." in down:
            return None
        end = (*parts[: len(parts) - 1 - up], *down)
        if any(way not in self._plain and not self._is_plain(way) for way in (end[:n] for n in range(1, len(end)))):
            return None
        return None if end not in self._links and self._root.joinpath(*end).is_symlink() else end

    def _is_plain(self, way: _Parts) -> bool:
        path = self._root.joinpath(*way)
        return way not in self._links and path.is_dir() and not path.is_symlink()


def _parts_of(name: str) -> _Parts | None:
    """Split a name into its parts; None if it leads out."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return None if name.startswith("/") or ".." in parts else parts
