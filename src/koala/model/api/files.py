"""The replica catalogue in the API."""

from __future__ import annotations

from koala.model.api.common import Answer

# Limits on one download: the bytes of files in its answer, and the files that it names.
DOWNLOAD_BYTES_MAX = 4_194_304
DOWNLOAD_FILES_MAX = 500
# At most this many files are forgotten in one call.
FORGOTTEN_AT_ONCE_MAX = 500


class ReplicaInfo(Answer, frozen=True, kw_only=True):
    """A copy of a file at a site: in the site's own area, or at a URL."""

    site: str
    url: str | None = None


class FileInfo(Answer, frozen=True, kw_only=True):
    """A logical file in the replica catalogue. The daemon forgets it after ``kept_until``."""

    name: str
    size_bytes: int
    checksum: str
    replicas: list[ReplicaInfo]
    kept_until: float | None = None


class OutputInfo(Answer, frozen=True, kw_only=True):
    """An output of a component, with its name in the catalogue. A ``directory`` is kept as a tar archive. For an
    array, ``job`` is the element that made the output."""

    name: str
    job: int
    part: int
    path: str
    directory: bool
    size_bytes: int
    checksum: str
    replicas: list[ReplicaInfo]
    kept_until: float | None = None


class ReadFile(Answer, frozen=True, kw_only=True):
    """One file of a download: the number of its bytes in the answer, or why it cannot be read."""

    name: str
    size_bytes: int = 0
    problem: str = ""


class WaitingReader(Answer, frozen=True, kw_only=True):
    """A job that reads a file and has not started."""

    job: int
    file: str


class Forgotten(Answer, frozen=True, kw_only=True):
    """The files that were forgotten, or that a preview would forget. ``files`` holds at most
    ``FORGOTTEN_AT_ONCE_MAX`` names; ``more`` counts the rest, which the next call forgets. ``size_bytes`` is the size
    of all of them, and ``waiting`` lists the jobs that wait for them."""

    files: list[str]
    more: int
    size_bytes: int
    waiting: list[WaitingReader]
