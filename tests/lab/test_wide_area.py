"""A lab behind an emulated wide area: namespaces, what the links really do, jobs and files there, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from koala.cli import koala
from koala.core import Scheduler
from koala.daemon.engine.loop import Engine
from koala.daemon.grid_sites import make_areas
from koala.daemon.launches import search_path
from koala.daemon.perform.link_probes import LinkProber
from koala.descriptions import read_grid
from koala.lab import Lab, LabError, LabOptions, WideAreaLink, down, leftovers, programs, requirements, up
from koala.lab.daemons import Daemons
from koala.lab.lab import plan_of, status
from koala.lab.network import namespaces as network
from koala.lab.plan import LabPlan
from koala.lab.record import LabRecord, Recorder
from koala.model.grid import Grid
from koala.model.messages import AnyEvent, LinkProbed, ProbeLink, TrafficMeasured
from koala.model.request import Application, Component, JobType, Request
from koala.policies import Catalogue
from koala.policies.view import BYTES_PER_S_PER_MBIT_S
from koala.store import Store
from tests.support.lab_making import WAIT_S, as_root, mentioning, options_in, output, submit, taken_down, wait_for

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


def emulator_of(lab: Lab) -> int:
    """The process that emulates the wide area, as it was started with the lab."""
    [emulator] = [each.process.pid for each in lab.record.daemons if each.name == network.NAME]
    return emulator


def test_the_emulator_that_runs_has_the_rate_and_the_delay_that_were_asked_for(wide: Lab) -> None:
    # What it makes of them, tests/lab/test_emulator.py shows.
    *_, settings, _ = Path(f"/proc/{emulator_of(wide)}/cmdline").read_text().split("\0")
    [link] = json.loads(Path(settings).read_text())["links"]
    assert link == {
        "between": [wide.plan.site(name).number for name in ("alpha", "gamma")],
        "rate_mbit_s": RATE_MBIT_S,
        "delay_s": DELAY_S,
        "loss": 0.0,
    }


def test_a_link_has_no_less_delay_and_no_more_rate_than_was_asked_for(wide: Lab) -> None:
    # A busy machine adds delay and takes rate, so that there are no other bounds to what is measured.
    round_s, rate_mbit_s = measured(wide, "alpha", "gamma")
    assert round_s >= 2 * DELAY_S
    assert rate_mbit_s <= RATE_MBIT_S


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
    subprocess.run(["kill", "-KILL", str(emulator_of(wide))], check=True)
    wait_for("it has died", lambda: status(wide).dead == (network.NAME,))
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


# Each component sends so many bytes to the other one, and stays until a file says that it is enough.
THERE, BACK = 1_500_000, 500_000
RANKS = f"""
from mpi4py import MPI
import pathlib, sys, time
world = MPI.COMM_WORLD
if world.rank == 0:
    world.Send(bytearray({THERE}), 1)
    world.Recv(bytearray({BACK}), 1)
else:
    world.Recv(bytearray({THERE}), 0)
    world.Send(bytearray({BACK}), 0)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""
SOCKETS = f"""
import os, pathlib, socket, sys, time
host, port = os.environ["KOALA_RENDEZVOUS"].rsplit(":", 1)
first = os.environ["KOALA_COMPONENT"] == "0"
if first:
    with socket.create_server((host, int(port))) as server:
        peer = server.accept()[0]
else:
    peer = None
    while peer is None:
        try:
            peer = socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.1)
if first:
    peer.sendall(bytes({THERE}))
left = {BACK} if first else {THERE}
while left:
    left -= len(peer.recv(left))
if not first:
    peer.sendall(bytes({BACK}))
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


class Carried:
    """What was measured of components, in bytes, as the journal has it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, token: str) -> tuple[float, float]:
        """Bytes that the component sent and received."""
        told = [each.body for each in self._store.journal(limit=10_000) if isinstance(each.body, TrafficMeasured)]
        sent = received = before_s = 0.0
        for each in told:
            if each.token == token and not each.reason:
                sent += each.sent_bit_s / 8 * (each.elapsed_s - before_s)
                received += each.received_bit_s / 8 * (each.elapsed_s - before_s)
                before_s = each.elapsed_s
        return sent, received


async def measured_jobs(grid: Grid, root: Path, programs: dict[JobType, str]) -> dict[JobType, tuple[float, ...]]:
    """What jobs of these types, with a component at each site, were measured to send there and back, at both ends."""
    stop = root / "stop"
    store = Store.open(f"sqlite:///{root / 'koala.db'}")
    engine = Engine(grid, Catalogue.builtin(), store, root)
    await engine.open()
    try:
        jobs = {}
        for job_type, program in programs.items():
            application = Application(executable=sys.executable, arguments=("-c", program, str(stop)))
            components = [Component(processors=1, site=name, application=application) for name in ("alpha", "gamma")]
            request = Request(components=tuple(components), job_type=job_type, name=str(job_type))
            jobs[job_type] = (await engine.submit(request, owner="anna"))[0].id
        carried = Carried(store)

        def seen(job: int) -> tuple[float, ...]:
            tokens = [each.token for each in store.components(job)]
            return tuple(number for token in tokens for number in carried.of(token))

        async with asyncio.timeout(WAIT_S):
            while not all(len(ends := seen(job)) == 4 and min(ends) >= 0.9 * BACK for job in jobs.values()):
                await asyncio.sleep(0.5)
        assert set(engine.scheduler.ledger.sites.view.learned_bisection_bit_s) == set(map(str, programs))
        stop.touch()
        for job in jobs.values():
            await engine.wait_ended(job, WAIT_S)
            ended = store.job(job)
            assert ended is not None
            assert ended.state == "done", ended.reason
        return {job_type: seen(job) for job_type, job in jobs.items()}
    finally:
        stop.touch()
        await engine.close()
        store.close()


def test_what_jobs_send_from_cluster_to_cluster_is_measured_as_they_send_it(wide: Lab, tmp_path: Path) -> None:
    if not search_path():
        assert not os.environ.get("CI"), "CI installs the extra mpi"
        pytest.skip("this Python environment has no mpiexec; install the extra mpi")
    grid = read_grid(wide.grid_file.read_text(encoding="utf-8"), "lab")
    found = asyncio.run(measured_jobs(grid, tmp_path, {JobType.MPI: RANKS, JobType.PLAIN: SOCKETS}))
    for sent, received, sent_back, received_back in found.values():
        for seen, bytes_really in ((sent, THERE), (received, BACK), (sent_back, BACK), (received_back, THERE)):
            # The reports have two digits of their times. MPI says a little more than the application.
            assert 0.95 * bytes_really <= seen <= 1.05 * bytes_really + 10_000, found


def test_a_link_that_was_slowed_down_is_believed_to_be_as_its_probes_measured_it(wide: Lab) -> None:
    grid = read_grid(wide.grid_file.read_text(encoding="utf-8"), "lab")
    scheduler = Scheduler(grid)
    view = scheduler.ledger.sites.view
    assert view.bytes_per_s.at(0, 1) == RATE_MBIT_S * BYTES_PER_S_PER_MBIT_S
    words = ["lab", "link", "--directory", str(wide.plan.directory), "gamma,alpha,2mbit,20ms"]
    changed = CliRunner().invoke(koala, words)
    assert changed.output == "The link between gamma and alpha has 2 Mbit/s and 20 ms one way now.\n"
    measured_bytes_per_s = []
    for event in asyncio.run(probes_of(grid, "alpha", "gamma", 3)):
        assert event.reason == ""
        assert event.bytes_per_s is not None
        measured_bytes_per_s.append(event.bytes_per_s)
        scheduler.handle(event)
    # A probe at a busy machine may see less than the link has, but not all of them see a link of the old rate.
    assert min(measured_bytes_per_s) < RATE_MBIT_S / 4 * BYTES_PER_S_PER_MBIT_S
    assert min(measured_bytes_per_s) <= view.bytes_per_s.at(0, 1) <= max(measured_bytes_per_s)
    assert view.latency_s.at(0, 1) >= DELAY_S


def test_a_second_lab_with_these_namespaces_is_refused(wide: Lab, directory: Path) -> None:
    options = LabOptions(
        directory=directory, sites=("alpha",), wan=wide.plan.options.wan, first_port=wide.plan.options.first_port
    )
    words = (
        rf"there is a network namespace koala-\d+-alpha already, of the lab in {wide.plan.directory}; .*--first-port"
    )
    with pytest.raises(LabError, match=words):
        requirements.check(plan_of(options))


@contextlib.contextmanager
def network_alone(plan: LabPlan) -> Iterator[None]:
    """A lab of which nothing is up but its namespaces and the links between them."""
    plan.directory.mkdir()
    recorder = Recorder(LabRecord(options=plan.options))
    recorder.write()
    try:
        network.start(plan, Daemons(plan, recorder))
        yield
    finally:
        leftovers.end(plan.directory)
        network.remove(plan)


def test_namespaces_of_a_lab_that_has_died_are_made_anew_for_another_and_stay_with_that_one(directory: Path) -> None:
    link = WideAreaLink(rate_mbit_s=RATE_MBIT_S, delay_s=0.0)
    options = options_in(directory, sites=("alpha", "beta"), wan=link)
    dead, living = (
        plan_of(replace(options, directory=place)) for place in (directory, directory.with_name("living"))
    )
    names = {str(site.namespace) for site in living.sites}
    with network_alone(dead):
        whose = f"of the lab in {dead.directory};"
        with pytest.raises(LabError, match=whose):
            requirements.check(living)
        # Nor does one get them that asked before they were there; it leaves them alone when it is taken down.
        with pytest.raises(LabError, match=whose), network_alone(living):
            pytest.fail("two labs have the same namespaces")
        living.directory.rename(directory.with_name("refused"))
        assert names <= namespaces()
        leftovers.end(dead.directory)
        requirements.check(living)
        with network_alone(living):
            assert down(dead.directory) == 0
            assert names <= namespaces()
            assert all(str(living.directory) in Path("/etc/netns", name, "hosts").read_text() for name in names)
            leftovers.end(living.directory)
            shutil.rmtree(living.directory)
            requirements.check(living)
    assert not names & namespaces()


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
