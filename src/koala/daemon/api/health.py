"""Routes for monitoring: whether the daemon answers and works, and its metrics."""

from __future__ import annotations

from fastapi import Request, Response

from koala.daemon.api.callers import CALLER, Caller, Who
from koala.daemon.api.errors import declared
from koala.daemon.api.listeners import listener_of
from koala.daemon.api.metrics import CONTENT_TYPE_LATEST, exposition
from koala.daemon.api.parameters import The, routes_about
from koala.model.api import Health, Scope
from koala.version import __version__

router = routes_about("health", prefix="")

HIDDEN_REASON = "the daemon cannot work at present; its log says why"


@router.get("/healthz", summary="Does the daemon answer", responses=declared())
async def healthz() -> Health:
    """Return `ok`, if the daemon answers at all. Needs no token."""
    return Health(status="ok", version=__version__)


@router.get(
    "/readyz",
    summary="Does the daemon work",
    responses={**declared(), 503: {"model": Health, "description": "It does not; `reason` says why."}},
)
async def readyz(request: Request, service: The, response: Response) -> Health:
    """Return 503 while the daemon cannot answer calls. Needs no token, but only signed-in callers see the reason, and
    the warnings for operators while it works."""
    failure = service.failure
    caller = request.scope[CALLER]
    known = isinstance(caller, Caller)
    if not failure:
        warnings = service.warnings(caller.principal) if isinstance(caller, Caller) else []
        return Health(status="ok", version=__version__, warnings=warnings)
    response.status_code = 503
    return Health(status="unavailable", version=__version__, reason=failure if known else HIDDEN_REASON)


@router.get(
    "/metrics",
    summary="Numbers for monitoring",
    response_class=Response,
    responses={
        **declared(),
        200: {
            "description": "OpenMetrics text.",
            "content": {"application/openmetrics-text": {"schema": {"type": "string"}}},
        },
    },
)
async def metrics(request: Request, who: Who, service: The) -> Response:
    """Return jobs, sites, queues, transfers, the store and the requests in numbers. Needs `read`."""
    who.need(Scope.READ)
    traffic = listener_of(request).traffic
    numbers = await service.numbers()
    text = exposition(numbers, traffic.requests, streams_open=traffic.streams_open)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
