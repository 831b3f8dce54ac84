"""The daemon as a process: its directory, its sockets, its signals and its log, and what keeps it from starting."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from koala.client.client import NO_TLS
from koala.daemon.api.limits import HEADER_BYTES_MAX
from koala.daemon.http_server.sockets import SOCKET_PATH_BYTES_MAX, bind_tcp, bind_unix
from koala.daemon.options import DaemonOptions, StartError
from koala.daemon.run import serve
from koala.daemon.state_directory import locked, prepare
from tests.support.api_world import GRID, end_processes_of
from tests.support.certificates import self_signed
from tests.support.paths import SUPPORT
from tests.support.raw_http import error_in, sent
from tests.support.warm_koala import start_koala

WAIT_S = 120.0


class Process:
    """A daemon in a process of its own."""

    def __init__(self, state: Path, *words: str) -> None:
        said, saying = os.pipe()
        logged, logging = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            self._process = start_koala(
                [str(state), *words],
                stdin=nothing.fileno(),
                stdout=saying,
                stderr=logging,
                env=os.environ,
                program=SUPPORT / "serving_child.py",
            )
        os.close(saying)
        os.close(logging)
        self.pid = self._process.pid
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(logged,))
        self._reader.start()
        with os.fdopen(said) as told:
            words_said = told.readline().split()
        self.socket = Path(words_said[1]) if words_said else state / "koala.sock"
        self.url = words_said[2] if words_said else ""

    def _read(self, logged: int) -> None:
        with os.fdopen(logged) as lines:
            self.log.extend(lines)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end, and the exit code."""
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def client(self) -> httpx.Client:
        """The owner at the socket."""
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=NO_TLS)
        return httpx.Client(transport=transport, base_url="http://koala", timeout=WAIT_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.ended()


@contextmanager
def daemon(state: Path, *words: str) -> Iterator[Process]:
    """A daemon that is gone at the end."""
    process = Process(state, *words)
    try:
        yield process
    finally:
        process.kill()
        end_processes_of(state)


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def options(state: Path, **fields: object) -> DaemonOptions:
    return DaemonOptions(grid=GRID, state=state, **fields)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- the process


def test_it_answers_its_owner_at_the_socket_and_stops_cleanly(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with daemon(state) as process:
        assert process.url == "None"
        assert stat.S_IMODE(process.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        with process.client() as client:
            assert client.get("/v1/whoami").json()["owner"] is True
            assert client.get("/readyz").json()["status"] == "ok"
        process.send(signal.SIGTERM)
        assert process.ended() == 0
        assert not process.socket.exists()
    assert any(" stopped" in line for line in process.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_and_waits_do_not_hold_up_the_stop(tmp_path: Path, number: int) -> None:
    with daemon(tmp_path / "state") as process, process.client() as client:
        text = "components: [{processors: 3, application: {executable: /bin/true}}]"
        job = client.post("/v1/jobs", json={"description": text}).json()["job"]["id"]
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.settimeout(WAIT_S)
            waiting.connect(str(process.socket))
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: koala\r\n\r\n")
            assert b"200 OK" in waiting.recv(65_536)
            waiting.sendall(f"GET /v1/jobs/{job}/wait HTTP/1.1\r\nHost: koala\r\n\r\n".encode())
            with client.stream("GET", "/v1/events/stream?after=0") as stream:
                chunks = stream.iter_text()
                assert "retry" in next(chunks)
                process.send(number)
                assert all("data" in chunk or ":" in chunk for chunk in chunks)
            assert b"503 Service Unavailable" in waiting.recv(65_536)
        assert process.ended() == 0


def test_what_was_acknowledged_is_there_after_a_kill_and_the_stale_socket_is_replaced(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with daemon(state) as process, process.client() as client:
        text = "name: kept\ncomponents: [{processors: 3, application: {executable: /bin/true}}]"
        job = client.post("/v1/jobs", json={"description": text}).json()["job"]["id"]
        secret = client.post("/v1/tokens", json={"user": "bob", "scopes": ["read"]}).json()["secret"]
        process.send(signal.SIGKILL)
        process.ended()
        assert process.socket.exists()
    with daemon(state, "listen") as process, process.client() as client:
        assert client.get(f"/v1/jobs/{job}").json()["name"] == "kept"
        answer = httpx.get(f"{process.url}/v1/whoami", headers={"Authorization": f"Bearer {secret}"}, verify=NO_TLS)
        assert answer.json()["name"] == "bob"


def test_a_second_daemon_is_told_about_the_first(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with daemon(state) as first:
        second = Process(state)
        assert second.ended() == 1
        told = "".join(second.log)
        assert f"process {first.pid}" in told
        assert "--state" in told
        assert "Traceback" not in told
        with first.client() as client:
            assert client.get("/healthz").status_code == 200


def test_at_an_address_a_token_is_needed_and_no_secret_comes_into_the_log(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "listen") as process:
        with process.client() as client:
            secret = client.post("/v1/tokens", json={"user": "bob", "scopes": ["read"]}).json()["secret"]
            login = client.post("/v1/logins").json()["url"]
        assert login.startswith(process.url + "/login#code=")
        code = login.partition("code=")[2]
        with httpx.Client(base_url=process.url, timeout=WAIT_S, verify=NO_TLS) as outside:
            assert outside.get("/v1/jobs").status_code == 401
            wrong = "koala_" + "w" * 43
            assert outside.get("/v1/jobs", headers={"Authorization": f"Bearer {wrong}"}).status_code == 401
            assert outside.get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
            assert outside.get("/v1/jobs", params={"token": secret}).status_code == 422
            assert "set-cookie" not in outside.get(login.replace("#", "?")).headers
            own = {"Origin": process.url}
            assert outside.post("/login", data={"code": code}, headers=own).headers["location"] == "/"
            assert outside.get("/v1/whoami").json()["owner"] is True
            assert outside.get("/healthz", headers={"Host": "evil.test"}).status_code == 421
            session = outside.cookies["koala_session"]
            assert outside.get("/v1/whoami").headers.get("server") is None
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    log = "".join(process.log)
    assert "token created" in log
    for hidden in (secret, code, wrong, session):
        assert hidden not in log


def test_every_line_of_the_log_is_whole_and_of_one_form(tmp_path: Path) -> None:
    with daemon(tmp_path / "state") as process:
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    assert process.log
    for line in process.log:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) koala\S* \S", line), line


# --------------------------------------------------------------------------------- connections by hand


def test_what_is_no_http_is_refused_in_the_one_form(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "listen") as process:
        port = process.url.rpartition(":")[2]
        assert error_in(sent(int(port), b"\x16\x03\x01\x02\x00\x01\r\n\r\n")) == (400, "invalid")
        long_head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (HEADER_BYTES_MAX + 1)
        assert error_in(sent(int(port), long_head)) == (400, "invalid")


def test_a_client_that_sends_too_much_still_hears_why(tmp_path: Path) -> None:
    with daemon(tmp_path / "state") as process, process.client() as client:
        answer = client.post("/v1/jobs", content=b"x" * 6_000_000, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        pieces = iter([b"x" * 65_536] * 100)
        answer = client.post("/v1/jobs", content=pieces, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert client.get("/healthz").status_code == 200


# ------------------------------------------------------------------------- what keeps it from starting


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StartError, match=r"others may write.*chmod 700"):
        prepare(tmp_path)


def test_a_directory_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert stat.S_IMODE(prepare(tmp_path).stat().st_mode) == 0o700


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(StartError, match="belongs to another user"):
        prepare(tmp_path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for path in (tmp_path / "state", tmp_path / "state" / "below"):
        with pytest.raises(StartError, match="state directory"):
            prepare(path)


def test_the_lock_is_free_again_after_its_holder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StartError, match=f"process {os.getpid()}"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_socket_path_that_is_too_long_is_refused_with_its_limit(tmp_path: Path) -> None:
    room = SOCKET_PATH_BYTES_MAX - len(os.fsencode(tmp_path / "koala.sock")) - 1
    if room < 1:
        pytest.skip(f"the directory of the tests, {tmp_path}, is too long itself")
    fits = tmp_path / ("x" * room)
    fits.mkdir()
    bind_unix(fits).close()
    beyond = tmp_path / ("x" * (room + 1))
    beyond.mkdir()
    with pytest.raises(StartError, match="SOCKET_PATH_BYTES_MAX"):
        bind_unix(beyond)


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "koala.sock").write_text("precious")
    with pytest.raises(StartError, match="in the way"):
        bind_unix(tmp_path)
    assert (tmp_path / "koala.sock").read_text() == "precious"


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartError, match=r"cannot listen on 127\.0\.0\.1"):
            bind_tcp(options(tmp_path, listen=("127.0.0.1", taken.getsockname()[1])))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_address_that_others_reach_needs_tls_or_a_clear_word(tmp_path: Path, host: str) -> None:
    with pytest.raises(StartError, match="--insecure"):
        bind_tcp(options(tmp_path, listen=(host, 0)))


@pytest.mark.parametrize("listen", [("127.0.0.1", 65_536), ("127.0.0.1", -1), ("no such host", 0), ("x" * 300, 0)])
def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: tuple[str, int]) -> None:
    with pytest.raises(StartError):
        bind_tcp(options(tmp_path, listen=listen))


def test_tls_needs_both_files_an_address_and_a_certificate(tmp_path: Path) -> None:
    paper = tmp_path / "paper.pem"
    paper.write_text("not a certificate")
    at = ("127.0.0.1", 0)
    with pytest.raises(StartError, match="--tls-key"):
        bind_tcp(options(tmp_path, listen=at, tls_cert=paper))
    with pytest.raises(StartError, match="--listen"):
        bind_tcp(options(tmp_path, tls_cert=paper, tls_key=paper))
    with pytest.raises(StartError, match="cannot be read"):
        bind_tcp(options(tmp_path, listen=at, tls_cert=tmp_path / "none", tls_key=paper))
    with pytest.raises(StartError, match="PEM"):
        bind_tcp(options(tmp_path, listen=at, tls_cert=paper, tls_key=paper))


def test_with_a_certificate_the_address_speaks_tls(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    fields = {"tls_cert": cert, "tls_key": key, "listen": ("localhost", 0)}
    address = bind_tcp(options(tmp_path, **fields))
    assert address is not None
    try:
        assert address.url.startswith("https://localhost:")
        assert address.hosts is not None
        assert "localhost" in address.hosts
        assert address.tls is not None
        assert address.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    finally:
        address.bound.close()


@pytest.mark.parametrize("detached", [True, False])
def test_a_hangup_stops_a_daemon_that_has_a_terminal_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, detached: bool
) -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        served = asyncio.create_task(serve(options(tmp_path, detached=detached), lambda _: ready.set()))
        await ready.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(WAIT_S):
            while not any("signal" in vars(record) for record in caplog.records):
                await asyncio.sleep(0.01)
            if detached:
                assert not served.done()
                os.kill(os.getpid(), signal.SIGTERM)
            await served

    with caplog.at_level("INFO", "koala.daemon"):
        asyncio.run(scenario())
    told = [(record.message, vars(record)["signal"]) for record in caplog.records if "signal" in vars(record)]
    goes_on = [("the daemon goes on: there is nothing to read again", "SIGHUP"), ("told to stop", "SIGTERM")]
    assert told == (goes_on if detached else [("told to stop", "SIGHUP")])
