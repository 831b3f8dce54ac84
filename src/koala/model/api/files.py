"""The replica catalogue in the API."""

from __future__ import annotations

from koala.model.api.common import Answer

# One answer holds no more bytes of files, and one question names no more files.
DOWNLOAD_BYTES_MAX = 4_194_304
DOWNLOAD_FILES_MAX = 500
# One question forgets no more files.
FORGOTTEN_AT_ONCE_MAX = 500


class ReplicaInfo(Answer, frozen=True, kw_only=True):
    """A copy of a file at a site: in the site's own area, or at a URL."""

    site: str
    url: str | None = None


class FileInfo(Answer, frozen=True, kw_only=True):
    """A logical file in the replica catalogue; after ``kept_until`` it is forgotten."""

    name: str
    size_bytes: int
    checksum: str
    replicas: list[ReplicaInfo]
    kept_until: float | None = None


class OutputInfo(Answer, frozen=True, kw_only=True):
    """What a component of a job made: a file of the catalogue, by its name there. The archive of a ``directory`` is a
    tar file. Of an array ``job`` is the element that made it."""

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
    """One of the files that were to be read: how many bytes of the answer are its, or why it cannot be read."""

    name: str
    size_bytes: int = 0
    problem: str = ""


class WaitingReader(Answer, frozen=True, kw_only=True):
    """A job that has not started and reads a file."""

    job: int
    file: str


class Forgotten(Answer, frozen=True, kw_only=True):
    """What was forgotten, or would be: the names of up to ``FORGOTTEN_AT_ONCE_MAX`` files, and how many ``more``
    there are, which are forgotten when it is asked again; how many bytes all of them have, and the jobs that wait for
    them."""

    files: list[str]
    more: int
    size_bytes: int
    waiting: list[WaitingReader]
