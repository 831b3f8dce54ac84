"""Ten clients submit at once while connections are cut and the daemon is killed: each job is there exactly once.

The sites are drained, so that every job waits and all of them can be counted in the queue at the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from koala.client import Client
from koala.model.api import Submitted
from tests.support.cutting_relay import CuttingRelay, cutting_relay
from tests.support.live_daemon import Daemon, running_daemon, until
from tests.support.postgres_server import PostgresServer

CLIENTS = 10
SUBMISSIONS = 1_000
SUBMISSIONS_POSTGRES = 200
# How long a client goes on trying while the daemon is away.
PATIENCE_S = 600.0
SEED = 1
# A submission is about 500 bytes and its answer about 1,000, so a connection lives for a few submissions.
UPWARD_BYTES = 5_000
DOWNWARD_BYTES = 10_000
DESCRIPTION = "name: {name}\napplication: {{script: sleep 600}}\ncomponents: [{{processors: 1, count: 2}}]\n"


class Crowd:
    """Ten clients with their submissions; every second one reaches the daemon by way of the relay."""

    def __init__(self, direct: str, relayed: str, submissions: int) -> None:
        self.names = [f"job-{number}" for number in range(submissions)]
        self.acknowledged: dict[str, Submitted] = {}
        self._ends: list[Future[None]] = []
        self._servers = [relayed if number % 2 else direct for number in range(CLIENTS)]
        self._all_have_met = threading.Barrier(CLIENTS)
        self.may_end = threading.Event()

    def submit_all(self, pool: ThreadPoolExecutor) -> None:
        """Begin; the clients take turns at the names. None submits its last one before ``may_end`` is set."""
        self._ends = [pool.submit(self._submit, number) for number in range(CLIENTS)]

    def _submit(self, number: int) -> None:
        with Client(self._servers[number], patience_s=PATIENCE_S) as client:
            client.whoami()
            self._all_have_met.wait(PATIENCE_S)
            *names, last = self.names[number::CLIENTS]
            for name in names:
                self.acknowledged[name] = submit(client, name)
            assert self.may_end.wait(PATIENCE_S)
            self.acknowledged[last] = submit(client, last)

    def finish(self) -> None:
        """Wait until every client has had all its submissions acknowledged."""
        for end in self._ends:
            end.result(PATIENCE_S)


def submit(client: Client, name: str) -> Submitted:
    """The client repeats a call whose connection was lost, each time with this token."""
    return client.submit(DESCRIPTION.format(name=name), client_token=f"token of {name}")


def storm(daemon: Daemon, submissions: int) -> tuple[Crowd, CuttingRelay]:
    """Submit everything; the daemon is killed and started again when about a third is acknowledged."""
    for site in daemon.client.sites():
        daemon.client.drain(site.name)
    socket = daemon.state.parent / "cut.sock"
    with (
        cutting_relay(
            socket, daemon.socket, seed=SEED, upward_bytes=UPWARD_BYTES, downward_bytes=DOWNWARD_BYTES
        ) as relay,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        crowd = Crowd(daemon.server, f"unix:{socket}", submissions)
        crowd.submit_all(pool)
        try:
            until(lambda: len(crowd.acknowledged) >= submissions // 3, "a third of the submissions are acknowledged")
            daemon.kill()
        finally:
            crowd.may_end.set()
        daemon.start()
        crowd.finish()
    return crowd, relay


def check(daemon: Daemon, crowd: Crowd, relay: CuttingRelay) -> None:
    jobs = list(daemon.client.each_job())
    assert Counter(job.name for job in jobs) == Counter(crowd.names), "each name is there once, and no other"
    on_record = {job.name: job.id for job in jobs}
    assert {name: said.job.id for name, said in crowd.acknowledged.items()} == on_record
    assert len(set(on_record.values())) == len(crowd.names), "no two jobs have one id"
    # The core's own queue holds what the list shows.
    assert {job.state for job in jobs} == {"waiting"}
    assert sorted(job.place_in_line or 0 for job in jobs) == list(range(1, len(jobs) + 1))
    # The storm was one: submissions were on record whose acknowledgement never came.
    assert relay.asks_cut > 0
    assert relay.answers_cut > 0
    assert any(not said.new for said in crowd.acknowledged.values())
    for name in crowd.names[::10]:
        again = submit(daemon.client, name)
        assert (again.job.id, again.new) == (on_record[name], False)


def survive(directory: Path, submissions: int, *options: str) -> None:
    with running_daemon(directory, options=options) as daemon:
        crowd, relay = storm(daemon, submissions)
        check(daemon, crowd, relay)
        daemon.kill()  # nothing runs, and cancelling all of them would take as long as submitting them


def test_a_thousand_submissions_through_cuts_and_a_kill_are_a_thousand_jobs(tmp_path: Path) -> None:
    survive(tmp_path, SUBMISSIONS)


def test_the_same_with_postgresql(tmp_path: Path, server: PostgresServer) -> None:
    survive(tmp_path, SUBMISSIONS_POSTGRES, "--database", server.new_database())
