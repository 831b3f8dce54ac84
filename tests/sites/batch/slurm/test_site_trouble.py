"""Drivers that are killed, answers that never come and a controller that is away: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Go
from koala.model.messages import ComponentAccepted, ComponentEnded, ComponentReady, Outcome, SiteSilent
from koala.runners import component_script
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchJob, BatchState
from koala.sites.batch.timings import BatchTimings
from koala.sites.remote_shell import RemoteShell
from tests.support.batch_sites import opened_batch, until_true
from tests.support.live_sites import file_appears, launch
from tests.support.paths import SUPPORT
from tests.support.slurm_cluster import SlurmCluster, slurm_cluster
from tests.support.warm_koala import PipedProgram

SURVIVOR = SUPPORT / "batch_survivor.py"
COMPONENTS = 8
KILLS = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as running:
        yield running


def settings_of(cluster: SlurmCluster, tmp_path: Path, **variables: str) -> BatchSettings:
    environment = {**cluster.environment, **variables}
    return BatchSettings(work_directory=str(tmp_path / "work"), environment=tuple(environment.items()))


def test_a_driver_killed_at_random_points_neither_loses_nor_doubles_anything(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    rng = random.Random(7)
    log, gate = tmp_path / "log", tmp_path / "gate"
    conf = cluster.environment["SLURM_CONF"]
    words = [str(tmp_path / "work"), str(log), str(COMPONENTS), str(gate), conf]
    try:
        for _ in range(KILLS):
            with PipedProgram(SURVIVOR, *words) as driver:
                assert driver.stdout.readline() == "begin\n"
                # The point of the kill is the thing under test, so here time passes without a sign to wait for.
                time.sleep(rng.uniform(0.0, 0.4))
                assert driver.poll() is None, "a driver works as long as its first component lasts"
                driver.kill()
    finally:
        gate.touch()  # or the first component stays for ever
    with PipedProgram(SURVIVOR, *words) as driver:
        told = driver.stdout.read()
        assert driver.wait(120) == 0
    outcomes = dict(line.split() for line in told.splitlines()[1:])
    assert outcomes == {f"7.{n}": "aborted" if n % 2 else "done" for n in range(COMPONENTS)}
    lines = Counter(tuple(line.split()) for line in log.read_text().splitlines())
    assert lines == {(f"7.{n}", word): 1 for n in range(0, COMPONENTS, 2) for word in ("begin", "end")}
    deadline = time.monotonic() + 120
    while cluster.ids_of("koala-7."):
        assert time.monotonic() < deadline, "a job of a component that has ended is still there"
        time.sleep(0.1)


def test_a_new_site_object_finds_what_waits_what_runs_and_what_has_ended(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    settings = settings_of(cluster, tmp_path)
    gate = tmp_path / "gate"

    async def scenario() -> None:
        async with opened_batch(settings, SlurmSystem(settings)) as one:
            wait = f"touch {tmp_path}/on; while [ ! -e {gate} ]; do sleep 0.3; done; exit 6"
            await one.start(launch("1.1", processors=3), launch("1.2", wait, processors=3))
            await one.start(launch("1.3", processors=2), launch("1.4", processors=4))
            await one.ready("1.1", "1.2", "1.3")
            await one.site.release("1.2", Go())
            await one.site.release("1.3", Go())
            await file_appears(tmp_path / "on")
            await file_appears(one.home("1.3") / "exit")
        async with opened_batch(settings, SlurmSystem(settings)) as one:
            await one.ready("1.1")
            await one.site.ask(["1.3"])  # the first driver may have heard of its end, just before it closed
            assert (await one.ended("1.3")).outcome is Outcome.DONE
            assert not one.told(ComponentReady, "1.2")
            assert await one.site.held() == ("1.1", "1.2", "1.4")
            gate.touch()
            assert (await one.ended("1.2")).exit_code == 6
            await one.ready("1.4")
            for token in ("1.1", "1.4"):
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_submission_that_was_never_answered_is_found_again_by_its_name(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sbatch").write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/mute ] || exec {shutil.which("sbatch")} "$@"\n'
        f'rm {tmp_path}/mute; {shutil.which("sbatch")} "$@" >/dev/null; kill -9 $PPID\n'
    )
    (tools / "sbatch").chmod(0o755)
    settings = settings_of(cluster, tmp_path, PATH=f"{tools}:{os.environ['PATH']}")

    async def scenario() -> None:
        async with opened_batch(settings, SlurmSystem(settings)) as one:
            mine = launch("1.1", "echo once")
            (tmp_path / "mute").touch()
            with pytest.raises(OSError, match=r"Killed|before its end"):
                await one.site.start(mine, component_script(mine))
            assert not one.told(ComponentAccepted, "1.1")
            assert len(cluster.ids_of("koala-1.1")) == 1
            await one.start(mine)
            # Its newest event is told, and it may have come to the barrier by now.
            accepted, ready = one.told(ComponentAccepted, "1.1"), one.told(ComponentReady, "1.1")
            assert accepted or ready
            assert cluster.ids_of("koala-1.1") == [(one.home("1.1") / "batch").read_text()]
            # A driver that was killed instead finds it as well.
            (tmp_path / "mute").touch()
            other = launch("1.2", "echo once")
            with pytest.raises(OSError, match=r"Killed|before its end"):
                await one.site.start(other, component_script(other))
        async with opened_batch(settings, SlurmSystem(settings)) as one:
            await one.ready("1.1", "1.2")
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE
                assert await one.stdout(token) == "once\n"
            assert one.site.calls["submit"] == 0

    asyncio.run(scenario())


def test_a_controller_that_is_away_makes_the_site_silent_and_costs_no_component(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    timings = BatchTimings(rest_most_s=1.0)
    # Commands that the site runs wait less long for a controller that does not answer.
    impatient = tmp_path / "slurm.conf"
    impatient.write_text((cluster.root / "slurm.conf").read_text().replace("MessageTimeout=5", "MessageTimeout=1"))
    settings = settings_of(cluster, tmp_path, SLURM_CONF=str(impatient))
    gate = tmp_path / "gate"

    async def scenario() -> None:
        async with opened_batch(settings, SlurmSystem(settings), timings=timings) as one:
            wait = f"touch {tmp_path}/on; while [ ! -e {gate} ]; do sleep 0.3; done; exit 6"
            await one.start(launch("1.1", wait), launch("1.2"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            cluster.stop_controller()
            try:
                gate.touch()
                await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
                await one.site.release("1.2", Go())  # files are enough for that
                await asyncio.sleep(timings.fresh_s)  # what it listed before is too old then
                with pytest.raises(OSError, match="contact slurm controller"):
                    await one.site.probe()
                assert await one.site.held() == ("1.1", "1.2")
                assert not one.told(ComponentEnded, "1.1")
                assert not one.told(ComponentEnded, "1.2")
            finally:
                cluster.start_controller()
            assert (await one.ended("1.1")).exit_code == 6
            assert (await one.ended("1.2")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_slurm_tells_how_a_job_ended_and_says_of_one_that_it_does_not_know_that_it_does_not(
    cluster: SlurmCluster,
) -> None:
    system = SlurmSystem(BatchSettings(work_directory="/w"))

    async def scenario() -> None:
        here = RemoteShell(environment=cluster.environment)
        numbers = [cluster.submit("-J", f"koala-{code}", text=f"exit {code}") for code in (0, 3)]
        jobs = [
            BatchJob(id=number, token=str(code), state=BatchState.OVER)
            for number, code in zip(numbers, (0, 3), strict=True)
        ]
        await until_true(lambda: not cluster.ids_of("koala-"))
        unknown = BatchJob(id="987654", token="9", state=BatchState.OVER)  # noqa: S106
        answer = await here.run(system.history([*jobs, unknown]), timeout_s=120)
        assert answer.code == 0
        told = system.parse_history(answer.stdout.decode(), [*jobs, unknown])
        assert {number: end.exit_code for number, end in told.items()} == {numbers[0]: 0, numbers[1]: 3}
        version = await here.run(system.version(), timeout_s=120)
        assert version.stdout.startswith(b"slurm")

    asyncio.run(scenario())
