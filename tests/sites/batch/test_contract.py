"""What every batch system must do for Koala, tried on each: Slurm, Grid Engine, and one that only tests know.

The third one is registered by a line. So these tests are also the proof that a new one needs no more than its folder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from koala.model.grid import BatchSettings, Site
from koala.model.launch import Go
from koala.model.messages import ComponentAccepted, ComponentEnded, ComponentReady, Outcome
from koala.sites.batch.check.check import CheckContext, Finding, StepStatus, check_batch_site, steps_for
from koala.sites.batch.discovery import discovery_script, parse_discovery
from koala.sites.batch.system import BatchListing
from koala.sites.batch.systems import SYSTEMS, system_of
from koala.sites.batch.timings import BatchTimings
from koala.sites.remote_shell import RemoteShell
from tests.sites.batch.spool import SPOOL
from tests.sites.batch.spool.cluster import SpoolCluster
from tests.support.batch_settings import batch_settings
from tests.support.batch_sites import BatchWatcher, opened_batch
from tests.support.grid_engine_cell import SLOTS, grid_engine_cell
from tests.support.live_sites import file_appears, launch, processes_of
from tests.support.slurm_cluster import slurm_cluster


class Running(Protocol):
    """A cluster that runs."""

    environment: dict[str, str]


class Place(NamedTuple):
    """An idle cluster: under which system, what a grid file says of it, how many processors it has, and
    options that it refuses."""

    kind: str
    cluster: Running
    processors: int
    keys: dict[str, Any]
    refused: tuple[str, ...]

    def site(self, directory: Path, **keys: Any) -> Site:
        """The site, with its work directory there."""
        settings = batch_settings(
            str(directory / "work"),
            **{"environment": tuple(self.cluster.environment.items()), "host": "127.0.0.1", **self.keys, **keys},
        )
        return Site(name="alpha", processors=self.processors, kind=self.kind, batch=settings)


@contextmanager
def running(kind: str, root: Path) -> Iterator[Place]:
    if kind == "slurm":
        with slurm_cluster() as cluster:
            yield Place(kind, cluster, 8, {"queue": "main"}, ("--nodelist=nosuch",))
    elif kind == "grid_engine":
        with grid_engine_cell() as cell:
            yield Place(kind, cell, SLOTS, {"queue": "all.q", "parallel_environment": "mpi"}, ("--nonsense",))
    else:
        yield Place(kind, SpoolCluster(root), 4, {"queue": "batch", "job_class": "high"}, ("--nonsense",))


@pytest.fixture(scope="module", params=["slurm", "grid_engine", SPOOL.name])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    patch = pytest.MonkeyPatch()
    patch.setitem(SYSTEMS, SPOOL.name, SPOOL)
    with patch.context(), running(request.param, tmp_path_factory.mktemp("cluster")) as found:
        yield found
    patch.undo()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def settings_of(site: Site) -> BatchSettings:
    assert site.batch is not None
    return site.batch


def opened(place: Place, directory: Path, **keys: Any) -> AbstractAsyncContextManager[BatchWatcher]:
    site = place.site(directory, **keys)
    timings = BatchTimings(fresh_s=0.0, unknown_grace_s=3.0)
    return opened_batch(settings_of(site), system_of(site), place.processors, timings=timings)


def run_there(place: Place, text: str) -> str:
    """What a script prints at the cluster."""

    async def asked() -> str:
        shell = RemoteShell(environment=place.cluster.environment)
        try:
            answer = await shell.run(text, timeout_s=60.0)
        finally:
            await shell.close()
        assert answer.code == 0, answer.stderr
        return answer.stdout.decode()

    return asyncio.run(asked())


def listing(place: Place, directory: Path) -> BatchListing:
    system = system_of(place.site(directory))
    return system.parse_listing(run_there(place, system.listing()))


def test_components_run_and_end_with_their_exit_codes(place: Place, directory: Path) -> None:
    async def scenario() -> None:
        async with opened(place, directory, job_environment=(("GREETING", "it's a site"),)) as one:
            await one.start(launch("1.1", 'echo "$GREETING"', processors=2), launch("1.2", "exit 3"))
            await one.ready("1.1", "1.2")
            assert [share.processors for share in await one.site.nodes("1.1")] == [2]
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
            first, second = await one.ended("1.1"), await one.ended("1.2")
            assert (first.outcome, first.exit_code) == (Outcome.DONE, 0)
            assert (second.outcome, second.exit_code) == (Outcome.FAILED, 3)
            assert await one.stdout("1.1") == "it's a site\n"
            assert one.stages("1.1") == [ComponentAccepted, ComponentReady, ComponentEnded]

    asyncio.run(scenario())


def test_what_runs_and_what_waits_is_listed_and_ends_when_it_is_told_to(place: Place, directory: Path) -> None:
    async def scenario() -> None:
        async with opened(place, directory) as one:
            text = f"trap '' TERM; touch {directory}/on; while :; do sleep 0.1; done"
            await one.start(launch("1.1", text, processors=place.processors))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(directory / "on")
            await one.start(launch("1.2"))
            for token in ("1.2", "1.1"):
                await one.site.abort(token, reason="enough")
            for token in ("1.1", "1.2"):
                ended = await one.ended(token)
                assert (ended.outcome, ended.reason) == (Outcome.ABORTED, "enough")
            assert not processes_of(directory)

    asyncio.run(scenario())
    assert listing(place, directory).processors == place.processors


def test_a_refusal_is_told_in_the_words_of_the_batch_system(place: Place, directory: Path) -> None:
    async def scenario() -> None:
        async with opened(place, directory, submit_options=place.refused) as one:
            await one.start(launch("1.1"))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.REFUSED
            assert ended.reason

    asyncio.run(scenario())


def test_a_cluster_is_found_with_its_queue_and_what_its_grid_file_must_say(place: Place, tmp_path: Path) -> None:
    systems = {name: each.parts().discovery for name, each in SYSTEMS.items()}
    found = parse_discovery(run_there(place, discovery_script(systems)), systems)
    (cluster,) = [each for each in found.clusters if each.kind == place.kind]
    (queue,) = [each for each in cluster.queues if each.name == place.keys["queue"]]
    assert queue.processors >= place.processors
    keys = {key.name for key in SYSTEMS[place.kind].keys}
    assert {name for name, _ in queue.own} <= keys
    assert set(systems[place.kind].variables) >= {name for name, _ in cluster.environment} - {"PATH"}


def test_every_step_of_a_check_passes(place: Place, directory: Path) -> None:
    site = place.site(directory)
    parts = SYSTEMS[place.kind].parts()

    async def look() -> list[Finding]:
        shell = RemoteShell(environment=place.cluster.environment)
        context = CheckContext(
            site,
            shell,
            parts.system,
            parts.checks,
            owner="a test",
            clock=time.time,
            nonce="abcd",
            patience_s=100.0,
        )
        try:
            return [each async for each in check_batch_site(context, steps_for(site, parts.checks, run=True))]
        finally:
            await shell.close()

    found = {each.step: each for each in asyncio.run(look())}
    wrong = {name: each.words for name, each in found.items() if each.sign is not StepStatus.PASSED}
    assert set(wrong) <= {"mpiexec", "memory", "consumables"}
    assert found["job"].sign is StepStatus.PASSED


def test_loads_are_told_of_all_processors(place: Place, directory: Path) -> None:
    system = system_of(place.site(directory))
    nodes = system.parse_loads(run_there(place, system.loads()))
    assert sum(node.processors for node in nodes) == place.processors
    assert all(0 <= node.held <= node.processors for node in nodes)
