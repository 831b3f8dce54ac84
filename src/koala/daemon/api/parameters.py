"""Parts that several routes share: their groups, and the parameters with their ranges."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.routing import APIRoute

from koala.daemon.api.listeners import service_of
from koala.daemon.service.cursors import CURSOR_CHARACTERS_MAX
from koala.daemon.service.service import Service
from koala.model.api import PAGE_ITEMS_MAX, WHY_CHARACTERS_MAX
from koala.model.request import TIME_S_MAX
from koala.store import NUMBER_MAX

TIME_MAX = TIME_S_MAX

The = Annotated[Service, Depends(service_of)]

JobPath = Annotated[int, Path(ge=1, le=NUMBER_MAX, description="The job's number.", examples=[1])]
SitePath = Annotated[str, Path(min_length=1, max_length=255, description="The site's name.", examples=["west"])]
Force = Annotated[bool, Query(description="Also a site that answers.")]
_WHY = f"Why, for the record and for whom it concerns: one line of at most {WHY_CHARACTERS_MAX} characters."
Reason = Annotated[str, Query(description=_WHY)]
Limit = Annotated[int, Query(ge=1, le=PAGE_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARACTERS_MAX, description="`next` of the page before; leave out for the first page."),
]
JobFilter = Annotated[int | None, Query(ge=1, le=NUMBER_MAX, description="Only what concerns this job.")]
After = Annotated[int, Query(ge=0, le=NUMBER_MAX, description="The number of the last entry that is known already.")]
Moment = Annotated[float, Query(ge=0, le=TIME_MAX, allow_inf_nan=False, description="Seconds since 1970 (UTC).")]


def routes_about(tag: str, *, prefix: str = "/v1") -> APIRouter:
    """Make an empty group of routes. The document calls each operation by the name of its function."""
    return APIRouter(prefix=prefix, tags=[tag], generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return route.name
