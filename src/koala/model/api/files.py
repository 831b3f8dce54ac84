"""The replica catalogue in the API."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from koala.model.api.common import Answer, Question

# One answer holds no more bytes of files, and one question names no more files.
DOWNLOAD_BYTES_MAX = 4_194_304
DOWNLOAD_FILES_MAX = 500
# One question forgets no more files.
FORGOTTEN_AT_ONCE_MAX = 500


class ReplicaInfo(Answer):
    """A copy of a file at a site: in the site's own area, or at a URL."""

    site: str
    url: str | None = None


class FileInfo(Answer):
    """A logical file in the replica catalogue; after ``kept_until`` it is forgotten."""

    name: str
    size_bytes: int
    checksum: str
    replicas: list[ReplicaInfo]
    kept_until: float | None = None


class OutputInfo(Answer):
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


class Reading(Question):
    """Read several small files at once, each of them whole."""

    names: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1_024)]],
        Field(min_length=1, max_length=DOWNLOAD_FILES_MAX),
    ]


class ReadFile(Answer):
    """One of the files that were to be read: how many bytes of the answer are its, or why it cannot be read."""

    name: str
    size_bytes: int = 0
    problem: str = ""


class Registration(Question):
    """A file to register, or another replica of one: copied from a path of the daemon's machine or, written as
    SITE:/path, of the site, or left at a URL."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]
    path: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    url: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None


class Replication(Question):
    """Copy a replica of a known file to a site, from any site that has one."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]


class Forgetting(Question):
    """Forget files: one by its ``name``, those whose names fit a ``pattern`` with ``*``, ``?`` and ``[...]``, where
    ``*`` also stands for slashes, or all that a ``job`` made, of an array all that its elements did.

    With a ``site`` only the replicas there. What jobs wait for that have not started is forgotten only by ``force``.
    With ``preview`` nothing is forgotten, and told is what would be.
    """

    name: Annotated[str, Field(min_length=1, max_length=1_024)] | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1_024)] | None = None
    job: Annotated[int, Field(ge=1)] | None = None
    site: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    force: bool = False
    preview: bool = False


class WaitingReader(Answer):
    """A job that has not started and reads a file."""

    job: int
    file: str


class Forgotten(Answer):
    """What was forgotten, or would be: the names of up to ``FORGOTTEN_AT_ONCE_MAX`` files, and how many ``more``
    there are, which are forgotten when it is asked again; how many bytes all of them have, and the jobs that wait for
    them."""

    files: list[str]
    more: int
    size_bytes: int
    waiting: list[WaitingReader]
