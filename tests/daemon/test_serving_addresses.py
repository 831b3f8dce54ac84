"""The daemon at its addresses, as a process and with its own clients: TLS, a plain address for others, asyncio."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from koala.client import AsyncClient, Client, ForbiddenError, NotSignedInError, UnreachableError
from koala.client.client import NO_TLS
from koala.model.api import Scope
from tests.support.certificates import self_signed
from tests.support.live_daemon import running_daemon, shared_embedded

WAIT_S = 120.0
JOB = "components: [{processors: 1, application: {executable: /bin/echo, arguments: [hello]}}]"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path)


def test_over_tls_a_client_that_knows_the_authority_runs_a_job(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    options = ("--listen", "localhost:0", "--tls-cert", str(cert), "--tls-key", str(key))
    with running_daemon(tmp_path, grid=shared_embedded(), options=options) as daemon:
        assert daemon.url is not None
        assert daemon.url.startswith("https://localhost:")
        secret = daemon.client.create_token("bob", [Scope.READ, Scope.SUBMIT]).secret
        monkeypatch.delenv("KOALA_CA_FILE", raising=False)
        with Client(daemon.url, token=secret, patience_s=0) as stranger, pytest.raises(UnreachableError) as refused:
            stranger.whoami()
        assert "KOALA_CA_FILE" in refused.value.message
        monkeypatch.setenv("KOALA_CA_FILE", str(cert))
        with Client(daemon.url, token=secret) as bob:
            job = bob.submit(JOB).job.id
            assert bob.wait_ended(job, WAIT_S).state == "done"
            assert bob.output(job).text == "hello\n"
            assert bob.job(job).owner == "bob"
            with Client(daemon.url, token="koala_" + "w" * 43) as wrong, pytest.raises(NotSignedInError):
                wrong.whoami()
        with httpx.Client(verify=ssl.create_default_context(cafile=cert), timeout=WAIT_S) as browser:
            page = browser.get(f"{daemon.url}/login")
            assert "max-age" in page.headers["strict-transport-security"]
            link = daemon.client.login().url
            assert link is not None
            code = link.partition("#code=")[2]
            signed_in = browser.post(f"{daemon.url}/login", data={"code": code}, headers={"Origin": daemon.url})
            assert "Secure" in signed_in.headers["set-cookie"]


def test_with_the_risk_accepted_others_may_call_it_without_tls_by_any_name(tmp_path: Path) -> None:
    with running_daemon(tmp_path, options=("--listen", "0.0.0.0:0", "--insecure")) as daemon:
        assert daemon.url is not None
        assert daemon.url.startswith("http://0.0.0.0:")
        url = daemon.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 -- what it listens on
        secret = daemon.client.create_token("bob", [Scope.READ, Scope.SUBMIT]).secret
        with Client(url, token=secret) as bob:
            assert bob.whoami().name == "bob"
            with pytest.raises(ForbiddenError, match="shared_account"):
                bob.submit(JOB)  # which could reach the socket, and be the owner there
        named = {"Host": "koala.example"}
        assert httpx.get(f"{url}/v1/jobs", headers=named, timeout=WAIT_S, verify=NO_TLS).status_code == 401
        signed = {**named, "Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/v1/jobs", headers=signed, timeout=WAIT_S, verify=NO_TLS).status_code == 200


def test_the_asyncio_client_does_with_a_daemon_what_the_plain_one_does(tmp_path: Path) -> None:
    with running_daemon(tmp_path, grid=shared_embedded(), listen=True) as daemon:
        secret = daemon.client.create_token("bob", list(Scope)).secret

        async def scenario(server: str, token: str | None) -> None:
            async with AsyncClient(server, token=token) as client, asyncio.timeout(WAIT_S):
                begin = (await client.overview()).last_seq
                submitted = await asyncio.gather(*(client.submit(JOB) for _ in range(5)))
                jobs = [each.job.id for each in submitted]
                ends = await asyncio.gather(*(client.wait_ended(job, WAIT_S) for job in jobs))
                assert {each.state for each in ends} == {"done"}
                assert (await client.output(jobs[0])).text == "hello\n"
                ended: list[int | None] = []
                async for entry in client.follow(after=begin):
                    if entry.what == "JobEnded":
                        ended.append(entry.job)
                    if len(ended) == len(jobs):
                        break
                assert sorted(each or 0 for each in ended) == sorted(jobs)
                listed = [each.id async for each in client.each_job(limit=2)]
                assert listed[: len(jobs)] == sorted(jobs, reverse=True)

        assert daemon.url is not None
        asyncio.run(scenario(daemon.server, None))
        asyncio.run(scenario(daemon.url, secret))
