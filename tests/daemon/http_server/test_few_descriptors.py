"""A daemon that more connections come to than it may have descriptors, as a process with a low limit."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from koala.daemon.http_server.descriptors import DESCRIPTORS_MIN, share_out
from koala.daemon.options import StartError
from koala.model.api import Scope
from tests.support.certificates import self_signed
from tests.support.live_cli import Shell
from tests.support.live_daemon import running_daemon
from tests.support.paths import SUPPORT

WAIT_S = 120.0
DESCRIPTORS = 256
CONNECTIONS = 320
ADDRESSES = 8
LOG_BYTES_MAX = 20_000
JOB = "components: [{processors: 1, application: {executable: /bin/echo, arguments: [hello]}}]"
LOWERED = {"DESCRIPTORS": str(DESCRIPTORS)}


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
def test_more_connections_than_descriptors_keep_nobody_out_and_nothing_from_running(
    tmp_path: Path, over_tls: bool
) -> None:
    """They come from several addresses and say nothing: no head of a request, no handshake."""
    options: tuple[str, ...] = ("--listen", "localhost:0")
    verify = ssl.create_default_context()
    if over_tls:
        cert, key = self_signed(tmp_path)
        options = (*options, "--tls-cert", str(cert), "--tls-key", str(key))
        verify.load_verify_locations(cert)
    program = SUPPORT / "lowered_koala.py"
    with (
        running_daemon(tmp_path, options=options, environment=LOWERED, program=program) as daemon,
        ExitStack() as held,
    ):
        assert daemon.url is not None
        secret = daemon.client.create_token("bob", [Scope.READ]).secret
        address = ("127.0.0.1", urlsplit(daemon.url).port or 0)
        for number in range(CONNECTIONS):
            source = (f"127.0.0.{10 + number % ADDRESSES}", 0)
            held.enter_context(socket.create_connection(address, timeout=WAIT_S, source_address=source))
        Shell(daemon.server)("jobs")
        signed = {"Authorization": f"Bearer {secret}"}
        for _ in range(5):
            answer = httpx.get(f"{daemon.url}/v1/jobs", headers=signed, verify=verify, timeout=WAIT_S)
            assert answer.status_code == 200
        job = daemon.client.submit(JOB).job.id
        assert daemon.client.wait_ended(job, WAIT_S).state == "done"
        assert len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())) < DESCRIPTORS
        assert len(daemon.output) < LOG_BYTES_MAX


def test_descriptors_are_shared_out_and_too_few_are_an_error_at_the_start() -> None:
    for descriptors in (DESCRIPTORS_MIN, 256, 1_024, 65_536):
        shares = share_out(descriptors)
        assert shares.owner_connections >= 16
        assert descriptors - shares.connections - shares.owner_connections >= descriptors * 3 // 8
    with pytest.raises(StartError, match="ulimit -n"):
        share_out(DESCRIPTORS_MIN - 1)
