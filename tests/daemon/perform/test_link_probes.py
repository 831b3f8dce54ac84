"""Probes of links with the program that runs at sites, here at both ends on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.daemon.grid_sites import this_machine
from koala.daemon.perform import probe_program
from koala.daemon.perform.link_probes import LinkProber
from koala.files import AreaDirectory, FileArea, LocalArea
from koala.files.hosts import Host
from koala.model.grid import BatchSettings, Site
from koala.model.messages import AnyEvent, LinkProbed, ProbeLink
from koala.sites.remote_shell import RemoteShell


class Engine:
    def __init__(self) -> None:
        self.told: list[AnyEvent] = []

    def now(self) -> float:
        return 7.0

    def report(self, event: AnyEvent) -> None:
        self.told.append(event)

    def settle(self, seq: int) -> None:
        raise AssertionError("a probe is nothing that is owed")


def area(name: str, root: Path, host: Host | None = None) -> FileArea:
    return LocalArea(AreaDirectory(name, root / name), host or this_machine(), asyncio.to_thread)


def site(name: str, host: str | None) -> Site:
    return Site(name=name, processors=1, kind="slurm", batch=BatchSettings(work_directory=f"/{name}", host=host))


async def probed(
    root: Path, *, host: str = "127.0.0.1", there: Host | None = None, probe_s: float = 45.0
) -> LinkProbed:
    engine = Engine()
    sites = (site("delft", None), site("leiden", host))
    areas = {"delft": area("delft", root), "leiden": area("leiden", root, there)}
    prober = LinkProber(engine, sites, areas, probe_s=probe_s, stream_s=30.0)
    prober.start(ProbeLink(source="delft", target="leiden", size_bytes=300_000))
    while not engine.told:
        await asyncio.sleep(0.02)
    await prober.stop()
    (told,) = engine.told
    assert isinstance(told, LinkProbed)
    assert (told.at, told.source, told.target) == (7.0, "delft", "leiden")
    return told


def test_the_way_from_one_site_to_another_is_measured(tmp_path: Path) -> None:
    told = asyncio.run(probed(tmp_path))
    assert told.reason == ""
    assert told.size_bytes == 300_000
    assert told.bytes_per_s is not None
    assert told.bytes_per_s > 0
    assert told.latency_s is not None
    assert 0 < told.latency_s < probe_program.CONNECT_S


def test_a_site_that_cannot_be_reached_gives_a_reason(tmp_path: Path) -> None:
    told = asyncio.run(probed(tmp_path, host="nowhere.invalid"))
    assert "delft: send to nowhere.invalid port" in told.reason
    assert told.bytes_per_s is None


def test_a_site_without_python_says_what_to_do(tmp_path: Path) -> None:
    bare = Host(RemoteShell(environment={"PATH": str(tmp_path)}))
    told = asyncio.run(probed(tmp_path, there=bare))
    assert told.reason == "leiden: python3 is missing there: install it, or write probes: false"


def test_a_probe_has_a_deadline(tmp_path: Path) -> None:
    silent = Host(RemoteShell(through=("sh", "-c", "sleep 60")))
    told = asyncio.run(probed(tmp_path, there=silent, probe_s=0.3))
    assert told.reason


def test_a_listener_takes_no_stream_of_others(tmp_path: Path) -> None:
    assert probe_program.main(["listen", "0", "secret", "1", "0.05"]).startswith("error listen: timed out")


@pytest.mark.parametrize(("host", "network", "found"), [("here", "", "here"), ("", "127.0.0.0/8", "127.0.0.1")])
def test_a_site_is_reached_where_the_grid_file_says(host: str, network: str, found: str) -> None:
    said, name, port = probe_program.main(["address", host, network]).split()
    assert (said, name) == ("at", found)
    assert int(port) > 0
