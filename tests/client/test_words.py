"""What the client says of itself and of what cannot be sent: signatures for ``help``, and words for wrong input."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import httpx
import pytest

from koala.client import (
    AsyncClient,
    Client,
    ClientError,
    InvalidError,
    NotFoundError,
    TooLargeError,
    UnreachableError,
)
from koala.client.address import token_file
from koala.client.exchange import SILENCES_MAX
from koala.model.api import DESCRIPTION_BYTES_MAX, JobSummary, Scope, Submitted
from tests.client.test_exchange import LOST, NOBODY, SERVER, TOKEN, Script, answer, client, refusal

# ---------------------------------------------------------------------------------------------- signatures


def test_a_method_tells_its_arguments_and_what_it_gives() -> None:
    signature = inspect.signature(Client.submit)
    assert list(signature.parameters) == ["self", "description", "source", "client_token", "files", "progress"]
    assert signature.return_annotation is Submitted
    assert inspect.signature(AsyncClient.submit).return_annotation == Awaitable[Submitted]
    assert inspect.signature(Client.wait_ended).return_annotation is JobSummary
    assert inspect.signature(Client.each_job).return_annotation == Iterator[JobSummary]
    assert inspect.signature(AsyncClient.each_job).return_annotation == AsyncIterator[JobSummary]
    assert inspect.getdoc(Client.submit).startswith("Submit a job")  # type: ignore[union-attr]


def test_a_bound_method_has_no_self_and_the_same_words() -> None:
    with client(Script(answer([]))) as each:
        told = list(inspect.signature(each.submit).parameters)
        assert told == ["description", "source", "client_token", "files", "progress"]
        assert each.submit.__annotations__["return"] is Submitted
        assert Client.sites(each) == []


def test_every_method_of_the_class_is_listed_as_one() -> None:
    kinds = {each.name: each.kind for each in inspect.classify_class_attrs(Client)}
    assert {kinds[name] for name in ("submit", "wait_ended", "each_entry", "follow")} == {"method"}


# --------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("wish", "kind", "told"),
    [
        (lambda each: each.submit(""), InvalidError, "description is empty; write a job into it"),
        (lambda each: each.submit("x" * (DESCRIPTION_BYTES_MAX + 1)), TooLargeError, "DESCRIPTION_BYTES_MAX"),
        (lambda each: each.submit("x", client_token=""), InvalidError, "client_token is empty"),
        (lambda each: each.submit("x", client_token="x" * 129), InvalidError, "write at most 128"),
        (lambda each: each.create_token("", [Scope.READ]), InvalidError, "beginning with a letter or a digit"),
        (lambda each: each.create_token("ada", []), InvalidError, "give at least one of read"),
        (lambda each: each.register("\udcff", "a", path="/x"), InvalidError, "not UTF-8"),
        (lambda each: each.file("\udcff"), InvalidError, "not UTF-8"),
        (lambda each: each.files(prefix="\udcff"), InvalidError, "not UTF-8"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_told_with_its_cure(wish: object, kind: type[ClientError], told: str) -> None:
    script = Script(answer([]))
    assert callable(wish)
    with client(script) as each, pytest.raises(kind) as caught:
        wish(each)
    assert told in caught.value.for_user()
    assert script.requests == [], "nothing is sent"


def test_dots_in_a_file_name_are_no_way_up() -> None:
    script = Script(refusal(404, "not_found"))
    with client(script) as each:
        for name in ("a/../../b", "./x", "a..b/c.nc"):
            with pytest.raises(NotFoundError):
                each.file(name)
    raw = [request.url.raw_path.decode() for request in script.requests]
    assert raw == ["/v1/files/a/%2E%2E/%2E%2E/b", "/v1/files/%2E/x", "/v1/files/a..b/c.nc"]


def test_words_about_lists_name_the_verbs_that_list() -> None:
    script = Script(refusal(404, "not_found", "there is no job 9; look at the list of jobs"))
    with client(script) as each, pytest.raises(NotFoundError, match="koala jobs lists"):
        each.job(9)


# ------------------------------------------------------------------------------------------- tls and waiting


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "write http://127.0.0.1:1"),
        ("[SSL] record layer failure (_ssl.c:1006)", "write http://127.0.0.1:1"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, certificate is not valid",
            "use the name that the certificate has",
        ),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired", "has expired; give"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "KOALA_CA_FILE"),
    ],
)
def test_a_mistake_about_tls_is_told_with_its_cure_at_once(said: str, cure: str) -> None:
    script = Script(httpx.ConnectError(said))
    transport = httpx.MockTransport(script)
    with (
        Client("https://127.0.0.1:1", token=TOKEN, transport=transport) as each,
        pytest.raises(UnreachableError) as caught,
    ):
        each.sites()
    assert cure in caught.value.for_user()
    assert "_ssl.c" not in caught.value.for_user()
    assert len(script.requests) == 1


def test_plain_http_to_a_port_that_ends_the_connection_is_told_of_https_soon() -> None:
    script = Script(httpx.RemoteProtocolError("Server disconnected without sending a response."))
    with (
        client(script, patience_s=600) as each,
        pytest.raises(UnreachableError, match="if it speaks TLS, write https:"),
    ):
        each.sites()
    assert len(script.requests) == SILENCES_MAX


def test_the_first_wait_of_an_absence_is_told_once() -> None:
    away = refusal(503, "unavailable", "the store is away")
    script = Script(away, away, answer([]), answer([]), away, answer([]))
    told: list[tuple[str, float]] = []
    with client(script, patience_s=30) as each:
        each.exchange.on_wait = lambda problem, patience_s: told.append((problem.message, patience_s))
        each.sites()
        assert told == [("the store is away", 30)]
        each.sites()
        assert len(told) == 1
        each.sites()
        assert len(told) == 2


def test_a_daemon_that_restarts_before_it_was_met_is_waited_for() -> None:
    script = Script(LOST, NOBODY, LOST, NOBODY, LOST, NOBODY, LOST, answer([]))
    with client(script) as each:
        assert each.sites() == []
    assert str(each.address) == SERVER


def test_the_file_of_the_token_is_known_when_it_is_the_one_used(tmp_path: Path) -> None:
    path = tmp_path / "token"
    environment = {"KOALA_TOKEN_FILE": str(path)}
    assert token_file(environment) is None
    path.write_text("koala_x\n")
    assert token_file(environment) == path
    assert token_file({**environment, "KOALA_TOKEN": "koala_y"}) is None
