"""What is on disk is enough: drivers are killed, and the next one finds everything again, once."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from koala.model.launch import Go
from koala.model.messages import ComponentEnded, ComponentReady, Outcome
from tests.support.live_sites import file_appears, launch, opened
from tests.support.paths import SUPPORT
from tests.support.survivor import SLOTS
from tests.support.warm_koala import PipedProgram

SURVIVOR = SUPPORT / "survivor.py"
COMPONENTS = 16
KILLS = 24


@pytest.mark.parametrize("seed", [1])
def test_a_driver_killed_at_random_points_neither_loses_nor_doubles_anything(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log, gate = tmp_path / "log", tmp_path / "gate"
    words = [str(tmp_path / "site"), str(log), str(COMPONENTS), str(gate)]
    try:
        for _ in range(KILLS):
            with PipedProgram(SURVIVOR, *words) as driver:
                assert driver.stdout.readline() == "begin\n"
                # The point of the kill is the thing under test, so here time passes without a sign to wait for.
                time.sleep(rng.uniform(0.0, 0.12))
                assert driver.poll() is None, "a driver works as long as its first component lasts"
                driver.kill()
    finally:
        gate.touch()  # or the first component stays for ever
    with PipedProgram(SURVIVOR, *words) as driver:
        told = driver.stdout.read()
        assert driver.wait(120) == 0
    outcomes = dict(line.split() for line in told.splitlines()[1:])
    assert outcomes == {f"7.{n}": "aborted" if n % 2 else "done" for n in range(COMPONENTS)}
    lines = Counter(tuple(line.split()[:2]) for line in log.read_text().splitlines())
    assert lines == {(f"7.{n}", word): 1 for n in range(0, COMPONENTS, 2) for word in ("begin", "end")}
    held = 0
    for line in log.read_text().splitlines():
        _, word, size = line.split()
        held += int(size) if word == "begin" else -int(size)
        assert held <= SLOTS


def test_a_new_site_object_finds_what_waits_what_runs_and_what_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = tmp_path / "gate"
        async with opened(tmp_path / "a", processors=3) as one:
            await one.start(launch("1.1"))
            await one.start(launch("1.2", f"touch {tmp_path}/on; while [ ! -e {gate} ]; do sleep 0.3; done; exit 6"))
            await one.start(launch("1.3", f"touch {tmp_path}/three"), launch("1.4"))
            await one.ready("1.1", "1.2", "1.3")
            await one.site.release("1.2", Go())
            await one.site.release("1.3", Go())
            await file_appears(tmp_path / "on")
        await file_appears(tmp_path / "a/components/1.3/exit")
        async with opened(tmp_path / "a", processors=3) as one:
            await one.ready("1.1")
            await one.site.ask(["1.3"])  # the first driver may have heard of its end, just before it closed
            assert (await one.ended("1.3")).outcome is Outcome.DONE
            assert not one.told(ComponentReady, "1.2")
            gate.touch()
            assert (await one.ended("1.2")).exit_code == 6
            await one.ready("1.4")
            for token in ("1.1", "1.4"):
                await one.site.release(token, Go())
                assert (await one.ended(token)).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_walltime_and_an_abort_hold_through_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        now = [100.0]
        options: dict[str, Any] = {"clock": lambda: now[0], "grace_s": 0.0}
        async with opened(tmp_path / "a", **options) as one:
            await one.start(launch("1.1", "sleep 60", walltime_s=50.0), launch("1.2", "sleep 60"))
            await one.ready("1.1", "1.2")
            await one.site.release("1.1", Go())
            await one.site.abort("1.2")
        now[0] = 200.0
        async with opened(tmp_path / "a", **options) as one:
            await one.site.ask(["1.2"])  # its end may have come before the first driver closed
            assert (await one.ended("1.1")).outcome is Outcome.TIMED_OUT
            assert (await one.ended("1.2")).outcome is Outcome.ABORTED

    asyncio.run(scenario())


@pytest.mark.parametrize("changed", [1, 2], ids=["another process has its id", "the machine was restarted"])
def test_a_process_id_that_is_used_again_is_not_taken_for_the_component(tmp_path: Path, changed: int) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch())
            await one.ready("1.1")
            await one.site.abort("1.1")
            await one.ended("1.1")
        home = tmp_path / "a/components/1.1"
        for name in ("ended.json", "exit", "abort"):
            (home / name).unlink()
        # Our own process id, with a start or a boot that is not ours.
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        identity = [str(os.getpid()), stat, boot]
        identity[changed] = "1234"
        (home / "pid").write_text(" ".join(identity))
        async with opened(tmp_path / "a") as one:
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED

    asyncio.run(scenario())


def test_a_driver_killed_between_marking_and_starting_a_process_starts_it_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1"), launch("1.2", f"echo ran >> {log}"))
            await one.ready("1.1")
        (tmp_path / "a/components/1.2/spawned").touch()
        (tmp_path / "a/components/.1.3.new").mkdir()
        async with opened(tmp_path / "a", processors=2) as one:
            await one.ready("1.1", "1.2")
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
                await one.ended(token)
            await one.site.ask(["1.3"])
            assert one.told(ComponentEnded, "1.3")[-1].outcome is Outcome.ABSENT
        assert log.read_text() == "ran\n"

    asyncio.run(scenario())
