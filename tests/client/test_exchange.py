"""What the client does on the wire: what it sends, what it repeats, and which error an answer becomes."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import koala
from koala.client import (
    AsyncClient,
    BadAnswerError,
    Client,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotSignedInError,
    TooLargeError,
    TooManyError,
    UnavailableError,
    UnreachableError,
    calls,
)
from koala.daemon.workers.pool import WORK_WAIT_S_MAX
from koala.model.api import PAGE_ITEMS_MAX, Scope

SERVER = "http://127.0.0.1:1"
TOKEN = "koala_x"  # noqa: S105 -- of no daemon
MINE = "mine"
SUMMARY = {
    "id": 7, "name": "heat", "owner": "ada", "state": "waiting", "priority": "low", "job_type": "plain",
    "kind": "non-fixed", "policy": "WF", "processors": 4, "submitted_at": 1.0, "since": 1.0,
}  # fmt: skip
OVERVIEW = {
    "grid": "g", "version": "1", "now": 1.0, "started_at": 0.0, "policy": "WF", "sites": [], "links": [],
    "transfers": [], "waiting_high": [], "waiting_low": [], "claiming": [], "active": [], "counts": {}, "last_seq": 4,
}  # fmt: skip

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, *, patience_s: float = 20.0, token: str = TOKEN) -> Client:
    return Client(SERVER, token=token, transport=httpx.MockTransport(handler), patience_s=patience_s)


class Script:
    """Answers one request after the other, an error by raising it; the last one is repeated."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def answer(value: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=value)


def refusal(status: int, code: str, message: str = "no", problems: Any = ()) -> httpx.Response:
    return answer({"error": {"code": code, "message": message, "problems": list(problems)}}, status)


def entry(seq: int) -> dict[str, Any]:
    return {"seq": seq, "at": 1.0, "kind": "event", "what": "Tick", "text": f"entry {seq}"}


def events(*seqs: int) -> httpx.Response:
    text = "".join(f": note\n\nid: {seq}\nevent: journal\ndata: {json.dumps(entry(seq))}\n\n" for seq in seqs)
    return httpx.Response(200, content=text.encode(), headers={"Content-Type": "text/event-stream"})


SUBMITTED = answer({"job": SUMMARY, "new": True}, 201)
LOST = httpx.ReadError("connection reset")
NOBODY = httpx.ConnectError("connection refused")


# ------------------------------------------------------------------------------------------ what is sent


def test_what_is_described_is_waited_for_until_the_daemon_gives_up_both_reading_and_clustering_it() -> None:
    for call in (calls.submit, calls.dry_run, calls.submit_graph, calls.dry_run_graph):
        timeout_s = call("text").timeout_s
        assert timeout_s is not None
        assert timeout_s > 2 * WORK_WAIT_S_MAX


def test_a_submission_gets_a_client_token_of_its_own_each_time() -> None:
    script = Script(SUBMITTED)
    with client(script) as each:
        assert each.submit("processors: 4", source="job.yaml").job.id == 7
        each.submit("processors: 4")
        each.submit("processors: 4", client_token=MINE)
    first, second, third = script.bodies()
    assert first["source"] == "job.yaml"
    assert first["client_token"] != second["client_token"]
    assert third["client_token"] == MINE


def test_the_token_goes_with_every_call_over_a_network_and_never_to_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(answer({"name": "ada", "scopes": ["read"], "owner": False}))
    with client(script) as each:
        assert each.whoami().scopes == [Scope.READ]
    assert script.requests[0].headers["Authorization"] == "Bearer koala_x"
    monkeypatch.setenv("KOALA_TOKEN", "koala_env")
    with Client("unix:/nowhere", transport=httpx.MockTransport(script)) as each:
        each.whoami()
    assert "Authorization" not in script.requests[1].headers


def test_names_in_paths_are_quoted() -> None:
    script = Script(refusal(404, "not_found"))
    with client(script) as each:
        with pytest.raises(NotFoundError):
            each.file("data/ä b?.nc")
        with pytest.raises(NotFoundError):
            each.drain("../x")
    assert [request.url.raw_path for request in script.requests] == [
        b"/v1/files/data/%C3%A4%20b%3F.nc",
        b"/v1/sites/..%2Fx/drain",
    ]


def test_several_states_are_several_parameters() -> None:
    script = Script(answer({"items": []}))
    with client(script) as each:
        each.jobs(states={"running", "done"}, limit=5)
    assert script.requests[0].url.params.multi_items() == [("state", "done"), ("state", "running"), ("limit", "5")]


def test_what_the_forms_refuse_is_never_sent() -> None:
    script = Script(SUBMITTED)
    with client(script) as each, pytest.raises(InvalidError, match="description"):
        each.submit("")
    assert script.requests == []


# -------------------------------------------------------------------------------------- what is repeated


def test_a_lost_submission_is_repeated_with_the_same_client_token() -> None:
    script = Script(LOST, NOBODY, refusal(503, "unavailable"), SUBMITTED)
    with client(script) as each:
        assert each.submit("processors: 4").new
    tokens = {body["client_token"] for body in script.bodies()}
    assert (len(script.requests), len(tokens)) == (4, 1)


def test_a_daemon_that_never_answered_is_reported_at_once_with_what_to_do() -> None:
    script = Script(NOBODY)
    with client(script) as each, pytest.raises(UnreachableError) as caught:
        each.sites()
    assert len(script.requests) == 1
    assert caught.value.for_user() == (
        f"no daemon answers at {SERVER} (connection refused); start one with `koala up`, "
        "or name another with --server or KOALA_SERVER"
    )


def test_a_daemon_that_answered_before_is_waited_for() -> None:
    script = Script(answer([]), NOBODY, NOBODY, answer([]))
    with client(script) as each:
        each.sites()
        assert each.sites() == []
    assert len(script.requests) == 4


def test_patience_has_an_end() -> None:
    script = Script(LOST)
    script.answers.insert(0, answer([]))
    with client(script, patience_s=0.25) as each:
        each.sites()
        with pytest.raises(UnreachableError, match="was lost"):
            each.sites()
    assert len(script.requests) >= 3


def test_what_may_not_be_done_twice_is_not_repeated_and_the_doubt_is_told() -> None:
    script = Script(LOST)
    with client(script) as each, pytest.raises(UnreachableError, match="not known whether the call was carried out"):
        each.create_token("ada", [Scope.READ])
    assert len(script.requests) == 1


def test_a_certificate_that_is_not_trusted_is_no_matter_of_patience() -> None:
    script = Script(answer([]), httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"))
    with client(script) as each:
        each.sites()
        with pytest.raises(UnreachableError, match="KOALA_CA_FILE"):
            each.sites()
    assert len(script.requests) == 2


def test_waiting_for_a_job_asks_again_until_it_has_ended() -> None:
    running = answer({**SUMMARY, "state": "running"})
    script = Script(running, running, answer({**SUMMARY, "state": "done"}))
    with client(script) as each:
        assert each.wait_ended(7).state == "done"
    assert len(script.requests) == 3


def test_waiting_for_a_job_ends_when_the_time_is_up() -> None:
    script = Script(answer({**SUMMARY, "state": "running"}))
    with client(script) as each:
        assert each.wait_ended(7, 0).state == "running"
    assert script.requests[0].url.params["timeout_s"] == "0.0"


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError),
        (401, NotSignedInError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, TooLargeError),
        (422, InvalidError),
        (429, TooManyError),
        (500, BadAnswerError),
        (503, UnavailableError),
    ],
)
def test_each_status_has_an_error_of_its_own(status: int, kind: type[ClientError]) -> None:
    with (
        client(Script(refusal(status, "the_code", "what to do")), patience_s=0) as each,
        pytest.raises(kind) as caught,
    ):
        each.job(7)
    assert (caught.value.code, caught.value.status) == ("the_code", status)
    assert "what to do" in caught.value.for_user()


def test_a_caller_without_a_token_is_told_first_where_to_put_one() -> None:
    with (
        client(Script(refusal(401, "not_signed_in"))) as each,
        pytest.raises(NotSignedInError, match=r"^set KOALA_TOKEN"),
    ):
        each.jobs()


def test_problems_of_a_description_are_told_with_place_and_cure() -> None:
    problem = {"line": 3, "column": 5, "message": "no such key", "cure": "write processors"}
    script = Script(refusal(422, "invalid", "the job is wrong", [problem]))
    with client(script) as each, pytest.raises(InvalidError) as caught:
        each.submit("x")
    assert caught.value.problems[0].line == 3
    assert caught.value.for_user() == "the job is wrong\n  line 3, column 5: no such key\n    write processors"


@pytest.mark.parametrize("status", [200, 404, 502])
def test_something_else_that_answers_is_no_daemon(status: int) -> None:
    page = httpx.Response(status, text="<html>Welcome</html>")
    with client(Script(page)) as each, pytest.raises(BadAnswerError, match=SERVER):
        each.overview()


def test_a_daemon_that_cannot_work_says_why() -> None:
    health = answer({"status": "unavailable", "version": "1", "reason": "the disk is full"}, 503)
    with client(Script(health)) as each, pytest.raises(UnavailableError, match="the disk is full"):
        each.ready()


# ------------------------------------------------------------------------------------- lists and streams


def test_a_list_is_read_page_after_page() -> None:
    pages = [
        {"items": [{**SUMMARY, "id": 9}, {**SUMMARY, "id": 8}], "next": "c8"},
        {"items": [{**SUMMARY, "id": 7}], "next": None},
    ]
    script = Script(*map(answer, pages))
    with client(script) as each:
        assert [job.id for job in each.each_job(states=["running"])] == [9, 8, 7]
    assert script.requests[0].url.params["limit"] == str(PAGE_ITEMS_MAX)
    assert "cursor" not in script.requests[0].url.params
    assert (script.requests[1].url.params["cursor"], script.requests[1].url.params["state"]) == ("c8", "running")


def test_the_journal_is_read_on_from_its_last_entry() -> None:
    script = Script(answer([entry(3), entry(5)]), answer([entry(9)]), answer([]))
    with client(script) as each:
        assert [one.seq for one in each.each_entry(after=2)] == [3, 5, 9]
    assert [request.url.params["after"] for request in script.requests] == ["2", "5", "9"]


def test_following_goes_on_after_a_lost_connection_where_it_was() -> None:
    script = Script(events(5, 6), NOBODY, refusal(503, "unavailable"), events(7))
    seen = []
    with client(script) as each:
        for one in each.follow(after=4, job=7):
            seen.append(one.seq)
            if one.seq == 7:
                break
    assert seen == [5, 6, 7]
    assert [request.headers["Last-Event-ID"] for request in script.requests] == ["4", "6", "6", "6"]
    assert all(request.url.params["job"] == "7" for request in script.requests)


def test_following_from_now_on_begins_at_a_number_so_that_nothing_falls_between_two_connections() -> None:
    script = Script(answer(OVERVIEW), events(), events(5))
    with client(script) as each:
        assert next(iter(each.follow())).seq == 5
    assert [request.headers.get("Last-Event-ID") for request in script.requests] == [None, "4", "4"]


def test_following_is_refused_at_once_where_nobody_answers_or_the_caller_may_not() -> None:
    with client(Script(NOBODY)) as each, pytest.raises(UnreachableError):
        next(iter(each.follow(after=0)))
    with client(Script(refusal(403, "forbidden"))) as each, pytest.raises(ForbiddenError):
        next(iter(each.follow(after=0)))


def test_following_gives_up_when_the_daemon_stays_away() -> None:
    script = Script(events(5), NOBODY)
    with client(script, patience_s=0.2) as each, pytest.raises(UnreachableError, match="was lost"):
        list(each.follow(after=4))


class Pieces(httpx.SyncByteStream):
    """A body that comes in pieces of one byte."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Any:
        return (self._content[index : index + 1] for index in range(len(self._content)))


def test_an_event_may_come_in_any_pieces_and_with_any_character() -> None:
    told = {**entry(5), "text": "line\u2028separator ä"}
    content = f"id: 5\r\ndata: {json.dumps(told, ensure_ascii=False)}\r\n\r\n".encode()

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Pieces(content))

    with client(handler) as each:
        assert next(iter(each.follow(after=4))).text == "line\u2028separator ä"


def test_a_socket_where_nobody_listens_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "koala.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with Client(f"unix:{path}") as each, pytest.raises(UnreachableError, match="no daemon answers"):
        each.sites()
    gc.collect()  # a socket that was not closed warns here, and a warning is an error


# ------------------------------------------------------------------------------------------ the async one


def test_the_async_client_does_the_same() -> None:
    script = Script(
        LOST,
        SUBMITTED,
        answer({"items": [SUMMARY], "next": "c"}),
        answer({"items": [{**SUMMARY, "id": 6}]}),
        answer({**SUMMARY, "state": "done"}),
        events(5),
        NOBODY,
        events(6),
    )

    async def use() -> list[Any]:
        async with AsyncClient(SERVER, token=TOKEN, transport=httpx.MockTransport(script)) as each:
            seen: list[Any] = [(await each.submit("processors: 4")).job.id]
            seen += [job.id async for job in each.each_job()]
            seen.append((await each.wait_ended(7)).state)
            async for one in each.follow(after=4):
                seen.append(one.seq)
                if one.seq == 6:
                    return seen
            return seen

    assert asyncio.run(use()) == [7, 7, 6, "done", 5, 6]


def test_both_clients_have_the_same_calls_and_tell_what_they_do() -> None:
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert names - {"close"} == {name for name in dir(AsyncClient) if not name.startswith("_")} - {"aclose"}
    with client(Script(answer([]))) as each:
        assert "durable" in (each.submit.__doc__ or "")


def test_the_clients_are_found_in_the_package_itself() -> None:
    assert (koala.Client, koala.AsyncClient, koala.ClientError) == (Client, AsyncClient, ClientError)
    with pytest.raises(AttributeError):
        _ = koala.Clients  # type: ignore[attr-defined]
