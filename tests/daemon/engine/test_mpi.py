"""An MPI job through the whole engine: one world over two sites, with the mpiexec of this Python environment."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from koala.daemon.engine.loop import Engine
from koala.daemon.launches import search_path
from koala.model.api import TrafficInfo
from koala.model.grid import Grid, SchedulerParameters, Site, SiteKind
from koala.model.request import Application, Component, JobType, Request
from koala.policies import Catalogue
from koala.sites import Stream
from koala.store import Store

WAIT_S = 120.0
SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.rank, w.size, w.allreduce(w.rank + 1), flush=True)"
THREADS = """
import os
from mpi4py import MPI
print(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, os.environ["OMP_NUM_THREADS"], flush=True)
"""
NO_PROXIES = "#!/bin/sh\necho HYDRA_LAUNCH: rm -rf /\necho HYDRA_LAUNCH_END\nsleep 60\n"


def mpi_request(program: str, sizes: tuple[int, ...] = (3, 1), per_task: int = 1, **fields: object) -> Request:
    """Three ranks here and one there, if nothing else is asked for."""
    application = Application(executable=sys.executable, arguments=("-c", program), processors_per_task=per_task)
    return Request(
        components=tuple(Component(processors=size, application=application) for size in sizes),
        job_type=JobType.MPI,
        **fields,  # type: ignore[arg-type]
    )


async def run(root: Path, request: Request) -> tuple[str, str, str]:
    """State, reason and output of a job on two sites."""
    grid = Grid(
        sites=tuple(Site(name=name, processors=3, kind=SiteKind.LOCAL) for name in "ab"),
        scheduler=SchedulerParameters(scan_interval_s=0.0),
    )
    store = Store.open(f"sqlite:///{root / 'koala.db'}")
    engine = Engine(grid, Catalogue.builtin(), store, root)
    await engine.open()
    try:
        row, _ = await engine.submit(request, owner="anna")
        await engine.wait_ended(row.id, WAIT_S)
        ended = store.job(row.id)
        assert ended is not None
        output = b""
        for component in store.components(row.id):
            output += await engine.site(component.site).output(component.token, Stream.STDOUT, 0)
        reasons = "; ".join(component.reason for component in store.components(row.id))
        return ended.state, f"{ended.reason}; {reasons}", output.decode()
    finally:
        await engine.close()
        store.close()


def test_the_ranks_of_an_mpi_job_over_two_sites_are_one_world(tmp_path: Path) -> None:
    if not search_path():
        assert not os.environ.get("CI"), "CI installs the extra mpi"
        pytest.skip("this Python environment has no mpiexec; install the extra mpi")
    state, reason, output = asyncio.run(run(tmp_path, mpi_request(SUM)))
    assert (state, reason.strip("; ")) == ("done", "")
    assert sorted(output.splitlines()) == [f"{rank} 4 10" for rank in range(4)]


def test_a_rank_with_several_processors_has_as_many_threads(tmp_path: Path) -> None:
    if not search_path():
        assert not os.environ.get("CI"), "CI installs the extra mpi"
        pytest.skip("this Python environment has no mpiexec; install the extra mpi")
    state, reason, output = asyncio.run(run(tmp_path, mpi_request(THREADS, sizes=(2, 2), per_task=2)))
    assert (state, reason.strip("; ")) == ("done", "")
    assert sorted(output.splitlines()) == ["0 2 2", "1 2 2"]


def test_an_mpiexec_that_prints_nonsense_ends_the_job_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mpiexec").write_text(NO_PROXIES)
    (programs / "mpiexec").chmod(0o755)
    monkeypatch.setattr("koala.daemon.launches.search_path", lambda: (str(programs),))
    state, reason, _ = asyncio.run(run(tmp_path, mpi_request(SUM, restarts_max=0)))
    assert state == "failed"
    assert "is it MPICH's mpiexec" in reason


# Ranks at different sites exchange 20 kB at a time over TCP until a file says that it is enough.
CHATTER = """
import os
os.environ["UCX_TLS"] = "tcp,self"
from mpi4py import MPI
import pathlib, time
world, going = MPI.COMM_WORLD, True
while going:
    if world.rank in (0, 3):
        world.Sendrecv(bytearray(20_000), 3 - world.rank, recvbuf=bytearray(20_000), source=3 - world.rank)
    time.sleep(0.05)
    going = world.bcast(not pathlib.Path({stop!r}).exists() if world.rank == 0 else None)
"""


async def measured_run(root: Path, stop: Path) -> tuple[TrafficInfo, dict[str, float], str]:
    """What the service tells of the traffic of a running job, what was learned of its name, and how it ended."""
    grid = Grid(
        sites=tuple(Site(name=name, processors=3, kind=SiteKind.LOCAL) for name in "ab"),
        scheduler=SchedulerParameters(scan_interval_s=0.0),
    )
    store = Store.open(f"sqlite:///{root / 'koala.db'}")
    engine = Engine(grid, Catalogue.builtin(), store, root)
    await engine.open()
    try:
        row, _ = await engine.submit(mpi_request(CHATTER.format(stop=str(stop)), name="chatter"), owner="anna")
        async with asyncio.timeout(WAIT_S):
            while (told := engine.scheduler.traffic(row.id)) is None or told.unmeasured:
                await asyncio.sleep(0.1)
        stop.touch()
        await engine.wait_ended(row.id, WAIT_S)
        learned = dict(engine.scheduler.ledger.sites.view.learned_bisection_bit_s)
        ended = store.job(row.id)
        assert ended is not None
        return told, learned, ended.state
    finally:
        stop.touch()
        await engine.close()
        store.close()


def test_what_a_running_job_sends_between_sites_is_measured_and_learned(tmp_path: Path) -> None:
    if not search_path():
        assert not os.environ.get("CI"), "CI installs the extra mpi"
        pytest.skip("this Python environment has no mpiexec; install the extra mpi")
    found, learned, state = asyncio.run(measured_run(tmp_path, tmp_path / "stop"))
    assert state == "done"
    assert found.belief == "measured"
    assert found.measured_mbit_s is not None
    # 160 kbit at most twenty times a second each way, and a little for the rest.
    assert 0.0 < found.measured_mbit_s < 2 * 2 * 20 * 0.16
    assert found.in_words.startswith("It was measured to send")
    assert list(learned) == ["chatter"]
