"""A lab behind an emulated wide area: namespaces, what the links really do, jobs and files there, and the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.core import Scheduler
from koala.daemon.grid_sites import make_areas
from koala.daemon.perform.link_probes import LinkProber
from koala.descriptions import read_grid
from koala.lab import Lab, LabError, LabOptions, WideAreaLink, programs, record, requirements, up
from koala.lab.lab import plan_of, status
from koala.lab.network.namespaces import NAME
from koala.model.grid import Grid
from koala.model.messages import AnyEvent, LinkProbed, ProbeLink
from koala.policies.view import BYTES_PER_S_PER_MBIT_S
from koala.sites import processes
from tests.support.lab_making import as_root, mentioning, options_in, output, submit, taken_down, wait_for

pytestmark = as_root

RATE_MBIT_S, DELAY_S = 40.0, 0.020
MEGABYTES = 5

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5999)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    with connection:
        while connection.recv(1) == b"p":
            connection.sendall(b"p")
        while connection.recv(1 << 20):
            pass
        connection.sendall(b"e")
"""
CLIENT = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5999)) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rounds = []
    for _ in range(5):
        begun = time.monotonic()
        connection.sendall(b"p")
        connection.recv(1)
        rounds.append(time.monotonic() - begun)
    begun = time.monotonic()
    connection.sendall(b"b" * (int(sys.argv[2]) * 1_000_000))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(min(rounds), time.monotonic() - begun)
"""


@pytest.fixture(scope="module")
def wide() -> Iterator[Lab]:
    """A Slurm cluster and a Grid Engine cell, with a file server each, 40 Mbit/s and 20 ms apart."""
    link = WideAreaLink(rate_mbit_s=RATE_MBIT_S, delay_s=DELAY_S)
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "lab"
        directory.parent.chmod(0o755)
        with taken_down(directory):
            yield up(options_in(directory, sites=("alpha", "gamma"), wan=link, gridftp=True))


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


def measured(lab: Lab, one: str, other: str) -> tuple[float, float]:
    """The shortest way there and back, in seconds, and the rate of one stream, in Mbit/s."""
    address = lab.plan.site(other).address
    words = lab.command(other, sys.executable, "-c", SERVER, address)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        answer = lab.run(one, sys.executable, "-c", CLIENT, address, str(MEGABYTES))
    round_s, stream_s = map(float, answer.stdout.split())
    return round_s, MEGABYTES * 8 / stream_s


def test_a_link_has_the_delay_and_the_rate_that_were_asked_for(wide: Lab) -> None:
    round_s, rate_mbit_s = measured(wide, "alpha", "gamma")
    assert 2 * DELAY_S <= round_s < 20 * DELAY_S
    assert RATE_MBIT_S / 10 < rate_mbit_s <= RATE_MBIT_S


@pytest.mark.parametrize("site", ["alpha", "gamma"])
def test_jobs_run_inside_the_namespace_of_their_site(wide: Lab, site: str) -> None:
    submit(wide, site, "echo at $(ip -o -4 address show dev wan0 | head -n 1)")
    wait_for("the job's output", lambda: f"inet {wide.plan.site(site).address}/16" in output(wide, site))


def test_a_file_goes_from_server_to_server_and_no_server_leaves_its_directory(wide: Lab) -> None:
    need_client()
    here, there = wide.plan.site("alpha"), wide.plan.site("gamma")
    (here.files / "data").write_bytes(b"data" * 10_000)
    copied = wide.run("alpha", "globus-url-copy", f"{here.file_server}/data", f"{there.file_server}/data")
    assert copied.code == 0, copied
    assert (there.files / "data").read_bytes() == b"data" * 10_000
    outside = there.file_server.removesuffix("/gridftp") + "/out"
    refused = wide.run("alpha", "globus-url-copy", f"{here.file_server}/data", outside)
    assert refused.code != 0
    assert "not allowed" in refused.stderr


def need_client() -> None:
    if programs.find("globus-url-copy") is None:
        missing = "not installed here: globus-url-copy; install it with: apt install globus-gass-copy-progs"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def test_an_emulator_that_was_killed_is_started_again_and_the_links_are_back(wide: Lab) -> None:
    [emulator] = [each.process.pid for each in wide.record.daemons if each.name == NAME]
    subprocess.run(["kill", "-KILL", str(emulator)], check=True)
    wait_for("it has died", lambda: status(wide).dead == (NAME,))
    again = up(wide.plan.options)
    assert status(again).up
    assert measured(again, "gamma", "alpha")[0] >= 2 * DELAY_S


class Listener:
    """Who is told of probes."""

    def now(self) -> float:
        return 1.0

    def report(self, event: AnyEvent) -> None:
        raise AssertionError("these are asked for one by one")

    def settle(self, seq: int) -> None:
        raise AssertionError("a probe is nothing that is owed")


async def probes_of(grid: Grid, source: str, target: str, times: int) -> list[LinkProbed]:
    with tempfile.TemporaryDirectory() as root:
        prober = LinkProber(Listener(), grid.sites, make_areas(grid, Path(root)))
        return [await prober.probe(ProbeLink(source=source, target=target)) for _ in range(times)]


def test_a_link_that_was_slowed_down_is_believed_after_three_probes(wide: Lab) -> None:
    grid = read_grid(wide.grid_file.read_text(encoding="utf-8"), "lab")
    scheduler, believed = Scheduler(grid), []
    probed = asyncio.run(probes_of(grid, "alpha", "gamma", 1))
    settings = wide.plan.daemons / NAME / "settings.json"
    settings.write_text(settings.read_text().replace(f'"rate_mbit_s": {RATE_MBIT_S}', '"rate_mbit_s": 2.0'))
    found = record.read(wide.plan.options.directory)
    assert found is not None
    [emulator] = [each.process for each in found.daemons if each.name == NAME]
    subprocess.run(["kill", "-KILL", str(emulator.pid)], check=True)
    wait_for("it has died", lambda: not processes.is_alive(emulator))
    up(wide.plan.options)
    for event in probed + asyncio.run(probes_of(grid, "alpha", "gamma", 3)):
        assert event.reason == ""
        scheduler.handle(event)
        believed.append(scheduler.ledger.sites.view.bytes_per_s.at(0, 1) / BYTES_PER_S_PER_MBIT_S)
    assert believed[0] > 2.4
    assert 1.6 < believed[-1] < 2.4
    assert scheduler.ledger.sites.view.latency_s.at(0, 1) >= DELAY_S


def test_a_second_lab_with_these_namespaces_is_refused(wide: Lab, directory: Path) -> None:
    options = LabOptions(
        directory=directory, sites=("alpha",), wan=wide.plan.options.wan, first_port=wide.plan.options.first_port
    )
    with pytest.raises(LabError, match=r"there is a network namespace koala-\d+-alpha already.*--first-port"):
        requirements.check(plan_of(options))


def test_down_leaves_no_namespace_and_no_file(directory: Path) -> None:
    before = namespaces()
    link = WideAreaLink(rate_mbit_s=RATE_MBIT_S, delay_s=0.0, loss=0.01)
    lab = up(options_in(directory, sites=("alpha", "beta"), wan=link))
    made = {site.namespace for site in lab.plan.sites}
    assert namespaces() - before >= made
    submit(lab, "alpha", "sleep 1000")
    lab.down()
    assert not namespaces() & made
    assert not any(Path("/etc/netns", str(name)).exists() for name in made)
    assert not any(str(name) in Path("/proc/self/mountinfo").read_text() for name in made)
    assert mentioning(directory) == []
    assert not directory.exists()
