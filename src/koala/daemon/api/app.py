"""The app behind one listener of the daemon: its routes, its guard and its OpenAPI document, put together."""

from __future__ import annotations

from fastapi import FastAPI

from koala.daemon.api import access, contents, errors, files, guard, health, jobs, journal, sites
from koala.daemon.api.callers import signed_in
from koala.daemon.api.listeners import Listener, RequestTraffic, service_of
from koala.daemon.dashboard import dashboard_router
from koala.daemon.service.principal import owner as owner_named
from koala.daemon.service.service import Service
from koala.daemon.service.tokens import AccessTokens
from koala.version import __version__

DESCRIPTION = """\
Submit jobs to many clusters at once, follow them and see why they wait. Every error has the same form: a `code` for
programs, a `message` for people, and the `problems` of a description with their lines. Times are seconds since 1970.
"""
TAGS = [
    {"name": "jobs", "description": "Submit, follow and cancel."},
    {"name": "grid", "description": "Sites, links, queues; drain and resume sites."},
    {"name": "files", "description": "The replica catalogue."},
    {"name": "contents", "description": "Programs and other files that travel with jobs."},
    {"name": "events", "description": "What happened, and what was decided."},
    {"name": "access", "description": "Tokens and logins."},
    {"name": "health", "description": "For monitoring."},
]


def make_app(
    service: Service,
    tokens: AccessTokens,
    *,
    trusted: bool,
    owner: str,
    traffic: RequestTraffic | None = None,
    secure: bool = False,
    hosts: frozenset[str] | None = None,
    url: str | None = None,
) -> FastAPI:
    """Make the app of one listener. Behind a ``trusted`` one every caller is the ``owner``. The listeners of one
    daemon share a ``traffic``; ``Listener`` has the other arguments. Call it in the event loop that serves the
    app."""
    listener = Listener(
        service=service,
        tokens=tokens,
        traffic=RequestTraffic() if traffic is None else traffic,
        owner=owner_named(owner),
        trusted=trusted,
        secure=secure,
        hosts=hosts,
        url=url,
    )
    app = FastAPI(
        title="Koala",
        summary="A co-allocating scheduler for many clusters",
        description=DESCRIPTION,
        version=__version__,
        openapi_url="/v1/openapi.json",
        openapi_tags=TAGS,
        docs_url=None,  # both would load their scripts from a third party
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.listener = listener
    # Add the routes, not their routers: from a router the app would make every route again at the first request.
    for routes in (jobs, sites, files, contents, journal, access, health):
        app.router.routes.extend(routes.router.routes)
    access.install_sign_in(app)
    app.router.routes.extend(dashboard_router(signed_in, service_of).routes)
    errors.install(app)
    guard.install(app, listener)
    return app
