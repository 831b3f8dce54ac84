"""Every error answer, in the one form of ``koala.model.api.ErrorAnswer``: from the service, from the framework, and
unexpected errors, for which the caller gets a reference and the log the rest. A browser that asks for a page gets the
same on a page."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from koala.daemon.api.limits import RateError
from koala.daemon.dashboard.rendering import error_page
from koala.descriptions.errors import printable
from koala.model.api import ErrorAnswer, ErrorBody, ProblemAt
from koala.model.errors import ClientError, NotSignedInError, UnavailableError
from koala.store.errors import StoreError

PROBLEMS_MAX = 50
SHOWN_CHARACTERS_MAX = 200

log = logging.getLogger("koala.daemon.api")

MEANINGS = {
    400: ("invalid", "The daemon does not understand this HTTP request."),
    401: ("not_signed_in", "The caller did not say who it is, or its token or session is not valid."),
    403: ("forbidden", "The caller may not do this."),
    404: ("not_found", "There is no such thing, or the caller may not know of it."),
    405: ("method_not_allowed", "This method is not for this address."),
    408: ("too_slow", "The request did not come in time."),
    409: ("conflict", "It cannot be done as things are now."),
    413: ("too_large", "More than a limit allows."),
    421: ("wrong_host", "The daemon does not answer to this host name."),
    422: ("invalid", "The request makes no sense."),
    429: ("too_many", "More calls or streams than a limit allows; Retry-After says when to come back."),
    500: ("internal", "The daemon failed; its log has the reference that the message names."),
    503: ("unavailable", "The daemon cannot do anything now; try again."),
}
ERROR_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
ALWAYS = (400, 401, 403, 404, 405, 408, 413, 421, 422, 429, 500, 503)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a route for the OpenAPI document: those of every route, and these. The first one
    puts their form into the document, and the others refer to it: the framework makes a validator for each model of a
    route, which nothing here uses, and there would be hundreds at every start."""
    first, *others = (*ALWAYS, *statuses)
    return {
        first: {"model": ErrorAnswer, "description": MEANINGS[first][1]},
        **{status: {"description": MEANINGS[status][1], "content": ERROR_CONTENT} for status in others},
    }


def error_answer(status: int, code: str, message: str, problems: Sequence[ProblemAt] = ()) -> Response:
    """Return an error in the one form."""
    body = ErrorAnswer(error=ErrorBody(code=code, message=message, problems=list(problems)))
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def answer_to(error: ClientError, scope: Scope) -> Response:
    """Return the answer that reports a service error to a caller."""
    answer = _answer(scope, error.http_status, error.code, sound(error.message), error.problems)
    if isinstance(error, NotSignedInError):
        answer.headers["WWW-Authenticate"] = 'Bearer realm="koala"'
    elif isinstance(error, RateError):
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    elif isinstance(error, UnavailableError):
        answer.headers["Retry-After"] = "1"
    return answer


def answer_to_unexpected(error: Exception, what: str, scope: Scope) -> Response:
    """Return the answer to an error of the daemon itself: a reference for the caller, everything else for the log."""
    reference = secrets.token_hex(6)
    log.error("internal error", exc_info=error, extra={"reference": reference, "request": what})
    message = f"the daemon failed; its log has the reason under the reference {reference}"
    return _answer(scope, 500, "internal", message)


def install(app: FastAPI) -> None:
    """Answer every error of this app in the one form."""
    app.add_exception_handler(ClientError, _on_service_error)
    app.add_exception_handler(StoreError, _on_store_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)


def sound(text: str) -> str:
    """Return a message without what JSON or a terminal cannot take; a message may quote what a caller sent."""
    return text.encode("utf-8", errors="replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _wants_page(scope: Scope) -> bool:
    """Return True if a browser asks for a page to show to a person, or sends a form from one."""
    if scope["method"] not in ("GET", "POST") or scope["path"].startswith(("/v1/", "/metrics")):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def _answer(scope: Scope, status: int, code: str, message: str, problems: Sequence[ProblemAt] = ()) -> Response:
    """Return an error, on a page if a browser asked for one."""
    if _wants_page(scope):
        return error_page(status, f"{message[:1].upper()}{message[1:]}.")
    return error_answer(status, code, message, problems)


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    if isinstance(error, NotSignedInError) and _wants_page(request.scope) and request.url.path != "/login":
        return RedirectResponse("/login", status_code=303)
    return answer_to(error, request.scope)


async def _on_store_error(request: Request, error: Exception) -> Response:
    log.warning("the store did not do it", extra={"reason": str(error)})
    reported = UnavailableError("the daemon's store cannot be used at present; nothing was changed, try again")
    return answer_to(reported, request.scope)


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:PROBLEMS_MAX]
    problems = [ProblemAt(message=_problem(detail)) for detail in found]
    first = problems[0].message if problems else "it is not as it should be"
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return error_answer(422, "invalid", f"the request is not valid: {first}{more}", problems)


def _problem(detail: dict[str, Any]) -> str:
    """Return where in the request the problem is and what is wrong, without quoting what was sent."""
    place = ".".join(printable(str(part)) for part in detail.get("loc", ()))
    message = str(detail.get("msg", "not valid"))
    if detail.get("type") == "json_invalid":
        message = f"this is not JSON: {detail.get('ctx', {}).get('error', '')}"
    return sound(f"{place}: {printable(message, SHOWN_CHARACTERS_MAX)}")


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 422 if error.status_code == HTTPStatus.BAD_REQUEST else error.status_code
    path = printable(request.url.path, SHOWN_CHARACTERS_MAX)
    if status == HTTPStatus.NOT_FOUND and _wants_page(request.scope):
        message = f"there is no page at {path}"
    elif status == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at {path}; GET /v1/openapi.json lists what there is"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        method = printable(request.method)
        message = f"{method} is not for {path}; GET /v1/openapi.json lists what is"
    else:
        message = str(error.detail)
    code = MEANINGS[status][0] if status in MEANINGS else "error"
    answer = _answer(request.scope, status, code, sound(message))
    answer.headers.update(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of one route, but several routes may share an address.
        route = getattr(request.scope.get("route"), "path", "")
        methods = request.app.openapi()["paths"].get(route)
        if methods:
            answer.headers["Allow"] = ", ".join(sorted(method.upper() for method in methods))
    return answer
