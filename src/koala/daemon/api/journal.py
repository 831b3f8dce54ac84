"""Routes about what happened: a piece of the journal, and the stream that goes on with it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from koala.daemon.api.callers import Who, caller_of
from koala.daemon.api.errors import declared
from koala.daemon.api.lobby import door_of
from koala.daemon.api.parameters import After, JobFilter, Limit, The
from koala.daemon.api.sse import EventStream
from koala.model.api import PAGE_ITEMS_DEFAULT, JournalEntry
from koala.store import NUMBER_MAX

router = APIRouter(prefix="/v1/events", tags=["events"])

STREAM_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events without end: `id` is the entry's number, `event` is `journal`, `data` the "
        "entry as JSON. A comment comes every 15 s.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 17\nevent: journal\ndata: {"seq":17,"what":"JobSubmitted"}\n\n',
            }
        },
    }
}


@router.get("", summary="A piece of the journal", responses=declared())
async def list_events(
    who: Who, service: The, after: After = 0, limit: Limit = PAGE_ITEMS_DEFAULT, job: JobFilter = None
) -> list[JournalEntry]:
    """What happened and what was decided, oldest first, from the entry after `after` on."""
    return await service.journal(who, after=after, limit=limit, job=job)


@router.get(
    "/stream",
    summary="The journal as it grows",
    response_class=Response,
    responses={**declared(), **STREAM_ANSWER},
)
async def stream_events(
    request: Request,
    who: Who,
    service: The,
    after: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="By default only what is new.")] = None,
    job: JobFilter = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=NUMBER_MAX, description="Goes before `after`; browsers send it by themselves.")
    ] = None,
) -> Response:
    """Entries from the one after `Last-Event-ID`, or `after`, on; nothing is left out in between."""
    door, caller = door_of(request), caller_of(request)
    begin = last_event_id if last_event_id is not None else after
    if begin is None:
        begin = service.last_seq
    # What the caller may not read is refused here, while the answer can still say so.
    await service.journal(who, after=begin, limit=1, job=job)
    return EventStream(
        service.follow_rounds(who, after=begin, job=job),
        check=lambda: caller.check(door),
        stopped=door.lobby.stopped,
        place=door.lobby.stream_of(who),
    )
