"""Routes about the replica catalogue."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Body, Path, Query, Response
from fastapi.openapi.models import Example

from koala.daemon.api.callers import Who
from koala.daemon.api.errors import declared
from koala.daemon.api.parameters import Cursor, Limit, The, routes_about
from koala.model.api import DOWNLOAD_BYTES_MAX, PAGE_ITEMS_DEFAULT, FileInfo, Forgotten, Page
from koala.model.api.questions import Forgetting, Reading, Registration, Replication
from koala.model.outputs import COLLECTED_BYTES_MAX

NAME_CHARACTERS_MAX = 1_024

router = routes_about("files")

# Each example is a valid request.
REGISTRATIONS: dict[str, Example] = {
    "path": {
        "summary": "A copy of a file",
        "value": {"name": "data/genome", "site": "west", "path": "/data/genome.fa"},
    },
    "url": {
        "summary": "A file that stays at its URL",
        "value": {"name": "data/genome", "site": "west", "url": "https://files.example/genome.fa"},
    },
}
READINGS: dict[str, Example] = {"outputs": {"value": {"names": ["jobs/1/result.h5", "jobs/2/result.h5"]}}}
REPLICATIONS: dict[str, Example] = {"site": {"value": {"name": "data/genome", "site": "east"}}}
FORGETTINGS: dict[str, Example] = {
    "replica": {"summary": "One replica", "value": {"name": "data/genome", "site": "east"}},
    "file": {"summary": "The file and all its replicas", "value": {"name": "data/genome"}},
    "job": {"summary": "What a job made, or the elements of an array", "value": {"job": 36}},
    "pattern": {"summary": "What would go of a pattern", "value": {"pattern": "data/old-*", "preview": True}},
}


@router.get("/files", summary="List files", responses=declared())
async def list_files(
    who: Who,
    service: The,
    prefix: Annotated[str, Query(max_length=NAME_CHARACTERS_MAX, description="Only names that begin so.")] = "",
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Page[FileInfo]:
    """List the files that jobs may read, by name, and the sites that hold a replica of each."""
    return await service.files(who, limit=limit, cursor=cursor, prefix=prefix)


@router.post("/files", status_code=201, summary="Register a file or a replica", responses=declared(409))
async def register_file(
    who: Who, service: The, wish: Annotated[Registration, Body(openapi_examples=REGISTRATIONS)]
) -> FileInfo:
    """Register a new file with its first replica, or another replica of a known file. The daemon reads a path on its
    own machine, so only the daemon's own user may name one."""
    return await service.register(who, wish)


@router.get("/files/{name:path}", summary="One file", responses=declared())
async def get_file(
    who: Who,
    service: The,
    name: Annotated[str, Path(min_length=1, max_length=NAME_CHARACTERS_MAX, examples=["data/genome"])],
) -> FileInfo:
    """Return the catalogue's entry of a file."""
    return await service.file(who, name)


@router.get(
    "/file-contents/{name:path}",
    summary="Bytes of a file",
    response_class=Response,
    responses={
        **declared(409),
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def read_file(
    who: Who,
    service: The,
    name: Annotated[str, Path(min_length=1, max_length=NAME_CHARACTERS_MAX, examples=["jobs/1/result.h5"])],
    offset: Annotated[int, Query(ge=0, le=COLLECTED_BYTES_MAX, description="Where the piece begins.")] = 0,
    limit: Annotated[int, Query(ge=1, le=DOWNLOAD_BYTES_MAX, description="Its most bytes.")] = DOWNLOAD_BYTES_MAX,
) -> Response:
    """Return a piece of a file; fewer bytes than requested only at its end. Continue where the last piece ended, and
    verify the whole by the catalogue's checksum. A job's outputs belong to its owner."""
    data = await service.read_file(who, name, offset=offset, limit=limit)
    return Response(data, media_type="application/octet-stream")


@router.post(
    "/file-contents",
    summary="Several small files",
    response_class=Response,
    responses={
        **declared(409),
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def read_files(who: Who, service: The, wish: Annotated[Reading, Body(openapi_examples=READINGS)]) -> Response:
    """Return several small files. The first line is a JSON list: each file's name and its number of bytes, or the
    problem that prevents reading it. Then come the bytes of these files, one after the other. Trailing files that do
    not fit into one answer are not listed: ask for them again. Verify each by the catalogue's checksum."""
    found = await service.read_files(who, wish.names)
    head = msgspec.json.encode([each for each, _ in found])
    return Response(b"".join((head, b"\n", *(data for _, data in found))), media_type="application/octet-stream")


@router.post("/replications", summary="Copy a replica to a site", responses=declared(409))
async def replicate_file(
    who: Who, service: The, wish: Annotated[Replication, Body(openapi_examples=REPLICATIONS)]
) -> FileInfo:
    """Copy a file to one more site; the answer comes when it is there."""
    return await service.replicate(who, wish)


@router.post("/forgettings", summary="Forget replicas or files", responses=declared(409))
async def forget_file(
    who: Who, service: The, wish: Annotated[Forgetting, Body(openapi_examples=FORGETTINGS)]
) -> Forgotten:
    """Forget the replicas at a site, or, without a site, all replicas and the files; outputs of a job only by its
    owner. A file that jobs wait for is refused with their numbers, and then nothing is forgotten; ``force`` forgets
    it, and these jobs go back to their queue, or end if it can never come again."""
    return await service.forget(who, wish)
