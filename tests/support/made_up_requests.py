"""Requests made up for every operation of an OpenAPI document, and sent to a server that must follow it.

``schemathesis`` takes over a second to import, which only the tests with this module wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

# A busy machine needs time.
ANSWER_S_MAX = 120
# The shape of a request does not show whether its text is a job, its cursor is one of Koala's, its token is valid, or
# the content that it announces is too large.
REFUSED_FOR_ITS_MEANING = frozenset({404, 409, 413, 422})


class Served(NamedTuple):
    """The address of the API, and a token for it."""

    url: str
    secret: str


class Operation(NamedTuple):
    """One operation of the document, and the function that sends requests to it."""

    label: str
    path: str
    method: str
    is_answered: Callable[[], None]


def every_operation(
    document: Any, served: Served, examples: int, *, without_posts: str = "", asked_again: str = ""
) -> Iterator[Operation]:
    """Yield every operation with this many requests, and one for every odd value of every parameter. Nothing is
    posted to paths that match ``without_posts``. If ``asked_again`` is given, another caller sends odd values to all
    read-only operations and to the paths that match it, which get none here."""
    load_all_checks()
    if not asked_again:
        yield from _sent(_read(document, without_posts), served, examples)
        return
    new = _read(document, without_posts).exclude(method="GET").exclude(path_regex=asked_again)
    yield from _sent(new, served, examples)
    known = _read(document, without_posts).include(method="GET").include(path_regex=asked_again)
    known.config.phases.coverage.enabled = False
    yield from _sent(known, served, examples)


def _read(document: Any, without_posts: str) -> Any:
    # A stream and a wait do not end by themselves; both have tests of their own.
    api = schemathesis.openapi.from_dict(document).exclude(path_regex="/(stream|wait)$")
    return api.exclude(method="POST", path_regex=without_posts) if without_posts else api


def _sent(api: Any, served: Served, examples: int) -> Iterator[Operation]:
    with requests.Session() as session:
        session.trust_env = False  # and is not looked through for proxies before every request
        for made in get_all_tests(
            schema=api, test_func=_is_answered_as_documented, settings=_made_up(examples), given_kwargs=None
        ):
            assert isinstance(made, Ok), made
            operation, send = made.ok()
            yield Operation(
                operation.label, operation.path, operation.method, partial(send, served=served, session=session)
            )


def _made_up(examples: int) -> settings:
    """Return settings for this many requests for each operation, the same in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def _is_answered_as_documented(case: schemathesis.Case[Any], served: Served, session: requests.Session) -> None:
    headers = {"Authorization": f"Bearer {served.secret}"} if served.secret else {}
    response = case.call(base_url=served.url, session=session, headers=headers, timeout=ANSWER_S_MAX)
    excluded: list[Any] = []
    if response.status_code in REFUSED_FOR_ITS_MEANING:
        excluded.append(positive_data_acceptance)
    if response.status_code == 413 or _lost_its_fault_on_the_way(case, response.request.url):
        excluded.append(negative_data_rejection)  # it knows no refusal for size, and judges what was made up
    if not served.secret:
        excluded.append(ignored_auth)  # who comes to the socket is its owner
    case.validate_response(response, excluded_checks=excluded, headers=headers)
    assert response.status_code < 500
    # A request that is not HTTP is refused with its connection, before there is an app that could report its version.
    assert response.status_code == 400 or response.headers["koala-version"]


def _lost_its_fault_on_the_way(case: schemathesis.Case[Any], url: str | None) -> bool:
    """Return True if the sent request follows the document although the made-up one did not: in a query a list of one
    text looks like that text, and the header with the token is replaced."""
    wrong = {place for place in ParameterLocation if case.meta and case.meta.is_negative_at(place)}
    if not wrong or not wrong <= {ParameterLocation.QUERY, ParameterLocation.HEADER}:
        return False
    schemas = {each.name: each.definition["schema"] for each in case.operation.query}
    components = case.operation.schema.raw_schema["components"]

    def is_valid(name: str, texts: list[str]) -> bool:
        judge = jsonschema_rs.validator_for({**schemas[name], "components": components})
        return any(judge.is_valid(value) for value in _may_mean(texts))

    asked = parse_qs(urlsplit(url or "").query, keep_blank_values=True, errors="surrogateescape")
    return all(name in schemas and is_valid(name, texts) for name, texts in asked.items())


def _may_mean(texts: list[str]) -> Iterator[Any]:
    """Yield the values that a parameter of a query may stand for."""
    yield texts
    if len(texts) == 1:
        yield texts[0]
        for number in (int, float):
            with suppress(ValueError):
                yield number(texts[0])
        if texts[0] in {"true", "false"}:
            yield texts[0] == "true"
