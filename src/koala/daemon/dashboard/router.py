"""The dashboard's routes: pages, the forms on them, and the static files. The service provides all contents.

A form is sent with the session's cookie. The guard checks, before any route, that it comes from one of these pages;
the service checks the caller's rights. The API signs callers in and out; the sign-in page is here.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from fastapi.routing import APIRoute

from koala.daemon.dashboard.page_contents import (
    STATES,
    JobSelection,
    OutputSelection,
    PageContents,
    day,
    may_cancel,
    may_hold,
    window_min,
)
from koala.daemon.dashboard.rendering import STATIC, error_page, page
from koala.daemon.service.principal import Principal
from koala.daemon.service.service import Service
from koala.model.api import DOWNLOAD_BYTES_MAX, Scope
from koala.model.errors import ClientError, InvalidError, NotFoundError, NotSignedInError
from koala.store import NUMBER_MAX

_PROBLEMS = {
    "wrong": "This token or code is not valid: it is wrong, was used before, ran out or was revoked. Get a new one.",
    "many": "Too many wrong tokens came from this address. Wait a minute, then try again.",
}
_NOTICES = {
    "cancel": "The job is being cancelled.",
    "requeue": "The job is back in its placement queue.",
    "hold": "The job is held: it is not tried until it is released.",
    "release": "Nobody holds the job any more.",
    "drain": "The site is drained: nothing new goes there, what runs there goes on.",
    "lost": "The site is lost: its jobs start again elsewhere, and what it still runs counts for nothing.",
    "resume": "The site is used again, and its errors are forgotten.",
    "probe": "The site was asked for its state.",
}

Who = Callable[..., Principal | Awaitable[Principal]]
ServiceOf = Callable[[Request], Awaitable[Service]]
Number = Annotated[int, Query(ge=0, le=NUMBER_MAX)]


class _PageRoute(APIRoute):
    """Reports errors of a page to a person instead of as an API's error; strangers are sent to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def tell(request: Request) -> Response:
            try:
                return await handle(request)
            except NotSignedInError:
                return RedirectResponse("/login", status_code=303)
            except ClientError as error:
                return error_page(error.http_status, error.message)
            except RequestValidationError:
                return error_page(404, "There is no such page; its address has a part that makes no sense.")

        return tell


@functools.cache
def dashboard_router(who: Who, service_of: ServiceOf) -> APIRouter:
    """Return the dashboard, to be mounted at ``/``, the same for every listener. ``who`` is the dependency that
    returns the caller, or raises ``NotSignedInError``; ``service_of`` the one that returns the service."""
    router = APIRouter(route_class=_PageRoute, include_in_schema=False)
    _add_pages(router, Depends(who), Depends(service_of))
    _add_forms(router, Depends(who), Depends(service_of))
    _add_open_to_all(router)
    return router


def _answer(template: str, service: Service, caller: Principal, did: str, **context: Any) -> HTMLResponse:
    return page(template, who=caller, failure=service.failure, notice=_NOTICES.get(did, ""), **context)


def _add_pages(router: APIRouter, known: Any, served: Any) -> None:
    @router.get("/")
    async def overview_page(caller: Principal = known, service: Service = served, minutes: str = "") -> Response:
        context = await PageContents(service).overview(caller, window_min(minutes))
        return _answer("overview.html", service, caller, "", here="overview", **context)

    @router.get("/jobs")
    async def jobs_page(
        caller: Principal = known,
        service: Service = served,
        state: str = "",
        owner: str = "",
        name: str = "",
        since: str = "",
        until: str = "",
        cursor: str = "",
    ) -> Response:
        if state not in ("", "live", *STATES):
            raise NotFoundError(f"there is no state {state[:40]!r}; a job is one of: {', '.join(STATES)}")
        asked = JobSelection(state, owner.strip(), name.strip(), day(since), day(until))
        context = await PageContents(service).jobs(caller, asked, cursor)
        return _answer("jobs.html", service, caller, "", here="jobs", **context)

    @router.get("/jobs/{job}")
    async def job_page(
        job: int,
        caller: Principal = known,
        service: Service = served,
        part: Number | None = None,
        run: Number = 0,
        stream: str = "",
        elements: str = "",
        did: str = "",
    ) -> Response:
        wanted = OutputSelection(
            job=job,
            part=part,
            run=run or None,
            stream=stream if stream in ("stdout", "stderr") else "",
            elements_cursor=elements,
        )
        context = await PageContents(service).job(caller, wanted)
        context["may_cancel"] = may_cancel(caller, context["job"])
        context["may_requeue"] = context["job"].state == "quarantined" and caller.may(Scope.OPERATE)
        context["may_hold"] = may_hold(caller, context["job"])
        context["may_release"] = context["explanation"].held and may_cancel(caller, context["job"])
        return _answer("job.html", service, caller, did, here="job", **context)

    @router.get("/words")
    async def words_page(caller: Principal = known, service: Service = served) -> Response:
        return _answer("words.html", service, caller, "", here="words", refresh_s=0)

    @router.get("/network")
    async def network_page(caller: Principal = known, service: Service = served) -> Response:
        context = await PageContents(service).network(caller)
        return _answer("links.html", service, caller, "", here="network", **context)

    @router.get("/download/{name:path}")
    async def download(name: str, caller: Principal = known, service: Service = served) -> Response:
        found = await service.file(caller, name)
        first = await service.read_file(caller, name, limit=DOWNLOAD_BYTES_MAX)  # an error is reported as a page

        async def pieces() -> AsyncIterator[bytes]:
            offset, piece = 0, first
            while piece:
                yield piece
                offset += len(piece)
                piece = await service.read_file(caller, name, offset=offset, limit=DOWNLOAD_BYTES_MAX)

        headers = {
            "Content-Length": str(found.size_bytes),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rsplit('/', 1)[-1], safe='')}",
            "X-Content-Type-Options": "nosniff",
        }
        return StreamingResponse(pieces(), media_type="application/octet-stream", headers=headers)

    @router.get("/sites/{site}")
    async def site_page(
        site: str, caller: Principal = known, service: Service = served, minutes: str = "", did: str = ""
    ) -> Response:
        context = await PageContents(service).site(caller, site, window_min(minutes))
        return _answer("site.html", service, caller, did, here="site", operator=caller.may(Scope.OPERATE), **context)


def _add_forms(router: APIRouter, known: Any, served: Any) -> None:
    @router.post("/jobs/{job}/{act}")
    async def job_form(
        request: Request, job: int, act: str, caller: Principal = known, service: Service = served
    ) -> Response:
        calls = {
            "cancel": service.changes.cancel,
            "hold": service.changes.hold,
            "release": service.changes.unhold,
            "requeue": service.changes.requeue,
        }
        if act not in calls:
            raise NotFoundError(f"a job can be cancelled, held, released or requeued; {act[:40]!r} is none of these")
        await calls[act](caller, job, reason=await _reason(request))
        return RedirectResponse(f"/jobs/{job}?did={act}", status_code=303)

    @router.post("/sites/{site}/probe")
    async def probe_form(
        request: Request, site: str, caller: Principal = known, service: Service = served
    ) -> Response:
        await service.grid.probe(caller, site)
        return _back(request, "probe")

    @router.post("/sites/{site}/{act}")
    async def site_form(
        request: Request, site: str, act: str, caller: Principal = known, service: Service = served
    ) -> Response:
        calls = {
            "drain": service.grid.drain,
            "resume": service.grid.resume,
            "lost": service.grid.declare_lost,
        }
        if act not in calls:
            raise NotFoundError(
                f"a site can be drained, resumed, probed or declared lost; {act[:40]!r} is none of these"
            )
        await calls[act](caller, site, reason=await _reason(request))
        return _back(request, act)


def _back(request: Request, act: str) -> Response:
    """Redirect to the page of the site. The path without the act is that page's, with the name quoted as it came."""
    return RedirectResponse(f"{request.url.path.rpartition('/')[0]}?did={act}", status_code=303)


async def _reason(request: Request) -> str:
    """Return the reason that somebody gave in a form; empty without one."""
    try:
        fields = parse_qs((await request.body()).decode("utf-8"), max_num_fields=1)
        return fields.get("reason", [""])[0]
    except ValueError:
        raise InvalidError("the form cannot be read; open its page again, and send it from there") from None


def _add_open_to_all(router: APIRouter) -> None:
    @router.get("/login")
    async def login_page(problem: str = "") -> Response:
        return page("login.html", status=200, problem=_PROBLEMS.get(problem, ""))

    @router.get("/static/{name}")
    async def static_file(name: str, v: str = "") -> Response:
        found = STATIC.get(name)
        if found is None:
            raise NotFoundError(f"there is no file {name[:80]!r} here")
        # A name with its mark always means the same content, so it may be kept for ever.
        keep = "public, max-age=31536000, immutable" if v == found.mark else "no-cache"
        return Response(found.content, media_type=found.media_type, headers={"Cache-Control": keep})
