"""Files that travel with a job: a program and the files beside it, sent by the user and put where the job runs.

Values and the rules of their lists. ``koala.files.contents`` keeps their bytes, ``koala.files.bundle`` makes one
archive of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

import msgspec

# Limits on one job's files: entries, directories included, and bytes, for one file and for all together.
TRAVELLING_FILES_MAX = 1_000
TRAVELLING_BYTES_MAX = 1_073_741_824
TRAVELLING_PATH_CHARACTERS_MAX = 255
# No file system allows a longer name of a file or directory.
NAME_BYTES_MAX = 255
# The size of one piece of a file on its way to the daemon.
PIECE_BYTES_MAX = 1_048_576
# A list of files as text, as part of a submission.
MANIFEST_CHARACTERS_MAX = 1_048_576
# The permission bits, without the bits that change which user runs a program.
MODE_BITS = 0o777
# The archive beside its files, until it is unpacked.
ARCHIVE_NAME = ".koala-files"

_CHECKSUM = re.compile(r"[0-9a-f]{64}")


class TravellingError(ValueError):
    """A list of files that cannot travel; ``path`` is the wrong file, empty for the list as a whole."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(self.for_user())

    def for_user(self) -> str:
        """Return the file, what is wrong with it and what to do."""
        return f"file {self.path!r}: {self.message}" if self.path else f"files: {self.message}"


class TravellingFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file, directory or link of a job, by its path below the component's work directory.

    A file has a SHA-256 and a size, a directory neither, a link has a target. An entry without any of these was named
    by a description and has not been sent yet. ``mode`` holds the permission bits.
    """

    path: str
    size_bytes: int = 0
    checksum: str = ""
    mode: int = 0o644
    directory: bool = False
    link: str = ""

    @property
    def is_content(self) -> bool:
        """True if it has bytes that are sent."""
        return bool(self.checksum)

    @property
    def is_sent(self) -> bool:
        """True if it is more than a name."""
        return self.is_content or self.directory or bool(self.link)


def named_path(path: str) -> str:
    """Return a path of a description in its plain form. Raises ``TravellingError`` for a path that leads out."""
    if path.startswith("/"):
        raise TravellingError(
            path, "is absolute; write a path below the directory of the description, or send it with --with"
        )
    plain = posixpath.normpath(path)
    if plain == "." or plain.split("/")[0] == "..":
        raise TravellingError(
            path, "is not below the directory of the description; name a file there, or send it with --with"
        )
    return plain


def check_travelling(files: Sequence[TravellingFile]) -> None:
    """Check a list of sent files. Raises ``TravellingError`` if it cannot be put into a directory as it stands."""
    if len(files) > TRAVELLING_FILES_MAX:
        raise TravellingError(
            "",
            f"{len(files)} files and directories, more than {TRAVELLING_FILES_MAX} (TRAVELLING_FILES_MAX); send "
            "fewer, or one archive that the job unpacks",
        )
    by_path: dict[str, TravellingFile] = {}
    for file in files:
        _check_one(file)
        if file.path in by_path:
            raise TravellingError(file.path, "is listed twice; send it once")
        by_path[file.path] = file
    for file in files:
        above = posixpath.dirname(file.path)
        while above:
            if above in by_path and not by_path[above].directory:
                raise TravellingError(file.path, f"would be below {above!r}, which is not a directory; rename one")
            above = posixpath.dirname(above)
    total = sum(file.size_bytes for file in files)
    if total > TRAVELLING_BYTES_MAX:
        raise TravellingError(
            "",
            f"{total} bytes together, more than {TRAVELLING_BYTES_MAX} (TRAVELLING_BYTES_MAX); register large data "
            "as input files",
        )


def _check_one(file: TravellingFile) -> None:
    path = file.path
    check_travelling_path(path)
    if not 0 <= file.mode <= MODE_BITS:
        raise TravellingError(path, f"mode {file.mode:o} has more than the bits rwx; leave out setuid and the like")
    if file.directory + bool(file.link) + file.is_content != 1:
        raise TravellingError(path, "was not sent; send it with the job, as koala submit does")
    if file.is_content:
        if _CHECKSUM.fullmatch(file.checksum) is None:
            raise TravellingError(path, f"{file.checksum[:80]!r} is not a SHA-256; write 64 digits of 0-9 and a-f")
        if not 0 <= file.size_bytes <= TRAVELLING_BYTES_MAX:
            raise TravellingError(
                path,
                f"{file.size_bytes} bytes are not a size up to {TRAVELLING_BYTES_MAX} (TRAVELLING_BYTES_MAX); "
                "register large data as an input file",
            )
    elif file.size_bytes != 0:
        raise TravellingError(path, "is not a file; leave its size out")
    if file.link:
        check_travelling_link(path, file.link)


def check_travelling_path(path: str) -> None:
    """Check a path. Raises ``TravellingError`` if it is not plain, or too long."""
    if len(path) > TRAVELLING_PATH_CHARACTERS_MAX:
        raise TravellingError(
            path[:40] + "...",
            f"its path has more than {TRAVELLING_PATH_CHARACTERS_MAX} characters (TRAVELLING_PATH_CHARACTERS_MAX); "
            "give it a shorter one",
        )
    if not path or path.startswith("/") or posixpath.normpath(path) != path or path.split("/")[0] in (".", ".."):
        raise TravellingError(
            path, "is not a plain path below the work directory; leave out '.', '..' and '/' before it"
        )
    if not path.isprintable():
        raise TravellingError(path, "has characters that cannot be printed; rename it")
    try:
        longest_bytes = max(len(name.encode()) for name in path.split("/"))
    except UnicodeEncodeError:
        raise TravellingError(path, "its name is not UTF-8; rename it") from None
    if longest_bytes > NAME_BYTES_MAX:
        raise TravellingError(
            path,
            f"a name in it has {longest_bytes} bytes, more than {NAME_BYTES_MAX} (NAME_BYTES_MAX), which no site can "
            "write; give it a shorter one",
        )
    if path.split("/")[0] == ARCHIVE_NAME:
        raise TravellingError(path, "has a name that Koala uses itself; rename it")


def check_travelling_link(path: str, target: str) -> None:
    """Check a link. Raises ``TravellingError`` if it leads out of the files that travel."""
    if "\0" in target or len(target) > TRAVELLING_PATH_CHARACTERS_MAX or not target.isprintable():
        raise TravellingError(path, "is a link to something that is not a plain path; send the file itself")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or there.split("/")[0] == "..":
        raise TravellingError(path, f"is a link to {target!r}, which leads out; send the file itself")


def roots(files: Iterable[TravellingFile]) -> tuple[str, ...]:
    """Return the names for a description: the files and directories that no other entry of the list contains."""
    every = {file.path for file in files}
    return tuple(sorted(path for path in every if not any(above in every for above in _above(path))))


def _above(path: str) -> list[str]:
    steps = path.split("/")
    return ["/".join(steps[:count]) for count in range(1, len(steps))]


def unsent(named: Iterable[TravellingFile], files: Iterable[TravellingFile]) -> list[str]:
    """Return the names of a description that are not among the sent files."""
    known = {file.path for file in files}
    known |= {above for path in list(known) for above in _above(path)}
    return [each.path for each in named if not each.is_sent and each.path not in known]


_MANIFEST = msgspec.json.Decoder(tuple[TravellingFile, ...], strict=True)


def read_manifest(text: str) -> tuple[TravellingFile, ...]:
    """Read and check the list of files of a submission. Raises ``TravellingError``."""
    try:
        files = _MANIFEST.decode(text)
    except msgspec.MsgspecError as error:
        raise TravellingError(
            "", f"the list cannot be read ({error}); send it as the reference of the API says"
        ) from None
    check_travelling(files)
    return tuple(sorted(files, key=lambda file: file.path))


def write_manifest(files: Iterable[TravellingFile]) -> str:
    """Return the list as a text, which ``read_manifest`` reads."""
    return msgspec.json.encode(sorted(files, key=lambda file: file.path)).decode()
