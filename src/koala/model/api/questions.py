"""The questions of the API: bodies of requests, which the daemon checks field by field with pydantic."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from koala.model.api.common import CLIENT_TOKEN_CHARACTERS_MAX, DESCRIPTION_BYTES_MAX, WALLTIME_S_MAX, Scope
from koala.model.api.files import DOWNLOAD_FILES_MAX
from koala.model.request import Priority
from koala.model.travelling import MANIFEST_CHARACTERS_MAX


class Question(BaseModel):
    """The body of a client's request."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenWish(Question):
    """A token to create for a user."""

    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    note: Annotated[str, Field(max_length=200)] = ""


class Reading(Question):
    """Read several small files in one call, each in whole."""

    names: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1_024)]],
        Field(min_length=1, max_length=DOWNLOAD_FILES_MAX),
    ]


class Registration(Question):
    """Register a file, or another replica of it. The bytes are copied from a path of the daemon's machine, or of a
    site where the path is written as SITE:/path, or stay at a URL."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]
    path: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    url: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None


class Replication(Question):
    """Copy a replica of a registered file to a site, from any site that has one."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]


class Forgetting(Question):
    """Forget files: the one with this ``name``, all that match a ``pattern`` with ``*``, ``?`` and ``[...]``, where
    ``*`` also matches slashes, or all that a ``job`` or the elements of an array made.

    With a ``site`` only the replicas there are forgotten. A file that waiting jobs read is forgotten only with
    ``force``. With ``preview`` nothing is forgotten, and the answer lists what would be.
    """

    name: Annotated[str, Field(min_length=1, max_length=1_024)] | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1_024)] | None = None
    job: Annotated[int, Field(ge=1)] | None = None
    site: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    force: bool = False
    preview: bool = False


class Submission(Question):
    """A job to submit. A repeated ``client_token`` gives the same job and makes no second one."""

    description: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_BYTES_MAX)]
    source: Annotated[
        str, Field(min_length=1, max_length=255, description="file name; its ending selects the format")
    ] = "job"
    client_token: Annotated[str, Field(min_length=1, max_length=CLIENT_TOKEN_CHARACTERS_MAX)] | None = None
    files: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=MANIFEST_CHARACTERS_MAX,
                description="the files that travel with the job: a JSON text, a list of objects with path, "
                "size_bytes, checksum (SHA-256) and mode; or directory: true; or link, its target",
            ),
        ]
        | None
    ) = None


class JobChange(Question):
    """New values for a job that waits for a place; omitted fields stay as they are."""

    walltime_s: (
        Annotated[float, Field(gt=0, le=WALLTIME_S_MAX, allow_inf_nan=False, description="how long it may run")]
        | None
    ) = None
    priority: Priority | None = None


class SpawnWish(Question):
    """Tasks for a running job of tasks: a YAML text with ``tasks`` and ``edges``."""

    description: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_BYTES_MAX)]
    source: Annotated[str, Field(min_length=1, max_length=255, description="file name, for messages")] = "spawn"


class ContentQuestion(Question):
    """A question for the contents that are still to be sent. ``files`` is a list of files as in a submission."""

    files: Annotated[str, Field(min_length=1, max_length=MANIFEST_CHARACTERS_MAX)]
