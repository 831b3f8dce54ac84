"""Routes about the files that travel with jobs: which bytes are missing, and sending them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path, Query, Request
from fastapi.openapi.models import Example

from koala.daemon.api.callers import Who
from koala.daemon.api.errors import declared
from koala.daemon.api.parameters import The, routes_about
from koala.model.api import ContentState, MissingContents
from koala.model.api.questions import ContentQuestion
from koala.model.travelling import TRAVELLING_BYTES_MAX

router = routes_about("contents")

# SHA-256 of the text "hello" with a newline.
_HELLO = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
QUESTIONS: dict[str, Example] = {
    "program": {
        "value": {"files": f'[{{"path": "solver", "size_bytes": 6, "checksum": "{_HELLO}", "mode": 493}}]'},
    }
}


@router.post("/missing-contents", summary="What is still to be sent", responses=declared())
async def missing_contents(
    who: Who, service: The, question: Annotated[ContentQuestion, Body(openapi_examples=QUESTIONS)]
) -> MissingContents:
    """Return the files of a job whose bytes the caller has not sent completely, and how many bytes of each are here.
    Bytes from others do not count."""
    return await service.missing_contents(who, question.files)


@router.put(
    "/contents/{checksum}",
    summary="Send a piece of a file",
    responses=declared(409),
    openapi_extra={
        "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def send_content(
    request: Request,
    who: Who,
    service: The,
    checksum: Annotated[
        str, Path(min_length=64, max_length=64, description="SHA-256 of the file.", examples=[_HELLO])
    ],
    size_bytes: Annotated[int, Query(ge=0, description="The size of the whole file.", examples=[6])],
    offset: Annotated[
        int, Query(ge=0, le=TRAVELLING_BYTES_MAX, description="Where the piece begins.", examples=[0])
    ] = 0,
) -> ContentState:
    """Receive a piece of at most PIECE_BYTES_MAX bytes, which begins where the previous one ended. When this is
    answered the piece is on disk. After the last piece the checksum is verified. Repeating a piece changes
    nothing."""
    return await service.receive_content(who, checksum, size_bytes, offset, await request.body())
