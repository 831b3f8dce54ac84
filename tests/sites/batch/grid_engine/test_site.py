"""Components as jobs of a real Grid Engine cell: from acceptance to the end, and what happens to them on the way."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import Claims
from koala.model.launch import Go, Launch, NodeShare
from koala.model.messages import ComponentAccepted, ComponentEnded, ComponentReady, Outcome, SiteSilent
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.timings import BatchTimings
from koala.sites.protocol import SiteError
from tests.support.batch_settings import batch_settings
from tests.support.batch_sites import BatchWatcher, opened_batch, unanswered, until_true
from tests.support.grid_engine_cell import SLOTS, GridEngineCell, grid_engine_cell
from tests.support.live_sites import file_appears, launch, processes_of


@pytest.fixture(scope="module")
def running_cell() -> Iterator[GridEngineCell]:
    with grid_engine_cell() as cell:
        yield cell


@pytest.fixture
def cell(running_cell: GridEngineCell, tmp_path: Path) -> Iterator[GridEngineCell]:
    """From which every job goes with the test."""
    tmp_path.chmod(0o755)
    yield running_cell
    running_cell.clear()


def opened(cell: GridEngineCell | CellAt, root: Path, **fields: Any) -> Any:
    """An open site on the cell, with its work directory below ``root``."""
    settings = batch_settings(
        work_directory=str(root / "work"),
        environment=tuple(cell.environment.items()),
        host="127.0.0.1",
        **{"queue": "all.q", "parallel_environment": "mpi"} | fields,
    )
    return opened_batch(settings, GridEngineSystem(settings), SLOTS, timings=BatchTimings(unknown_grace_s=3.0))


def jobs_of_ours(cell: GridEngineCell) -> list[str]:
    """The ids of Koala's jobs, as qstat lists them."""
    lines = [line.split() for line in cell.run("qstat", "-u", "*").splitlines()[2:]]
    return [words[0] for words in lines if words[2].startswith("koala-")]


async def three_stages(one: BatchWatcher, tmp_path: Path) -> None:
    """1.1 runs, 1.2 is at the barrier, 1.3 waits in the queue of a cell that is full."""
    text = f"trap '' TERM; touch {tmp_path}/on; while :; do sleep 0.1; done"
    await one.start(launch("1.1", text, processors=2), launch("1.2", processors=SLOTS - 2))
    await one.ready("1.1", "1.2")
    await one.start(launch("1.3"))
    await one.site.release("1.1", Go())
    await file_appears(tmp_path / "on")


def test_components_are_accepted_then_ready_then_done_with_their_exit_codes(
    cell: GridEngineCell, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, job_environment=(("GREETING", "it's a site"),)) as one:
            # What looks like an option to qsub is the user's text.
            await one.start(
                launch("1.1", '#$ -N another\necho "$GREETING $NSLOTS"', processors=2), launch("1.2", "exit 3")
            )
            await one.ready("1.1", "1.2")
            assert await one.site.nodes("1.1") == (NodeShare("127.0.0.1", 2),)
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
            first, second = await one.ended("1.1"), await one.ended("1.2")
            assert (first.outcome, first.exit_code) == (Outcome.DONE, 0)
            assert (second.outcome, second.exit_code) == (Outcome.FAILED, 3)
            assert await one.stdout("1.1") == "it's a site 2\n"
            assert one.stages("1.1") == [ComponentAccepted, ComponentReady, ComponentEnded]
            assert one.site.calls["submit"] == 2

    asyncio.run(scenario())


def test_an_abort_ends_the_job_wherever_it_is(cell: GridEngineCell, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path) as one:
            await three_stages(one, tmp_path)
            for token in ("1.3", "1.2", "1.1"):
                await one.site.abort(token, reason="enough")
            for token in ("1.1", "1.2", "1.3"):
                ended = await one.ended(token)
                assert (ended.outcome, ended.reason) == (Outcome.ABORTED, "enough")
            assert not jobs_of_ours(cell)
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_a_job_that_a_local_user_deletes_is_a_failure_of_the_site(cell: GridEngineCell, tmp_path: Path) -> None:
    """Grid Engine knows nothing of one that never started."""

    async def scenario() -> None:
        async with opened(cell, tmp_path) as one:
            await three_stages(one, tmp_path)
            cell.run("qdel", *reversed(jobs_of_ours(cell)))
            for token, why in (("1.1", "killed"), ("1.2", "killed"), ("1.3", "vanished")):
                ended = await one.ended(token)
                assert ended.outcome is Outcome.SITE_FAILED
                assert why in ended.reason
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_a_component_that_grid_engine_cannot_start_fails_with_the_reason(
    cell: GridEngineCell, tmp_path: Path
) -> None:
    """The job is in error; it would stay in the queue for ever."""

    async def scenario() -> None:
        async with opened(cell, tmp_path, submit_options=("-S", "/nowhere/sh")) as one:
            await one.start(launch("1.1"))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "/nowhere/sh" in ended.reason
            assert not jobs_of_ours(cell)

    asyncio.run(scenario())


def test_grid_engines_own_time_limit_is_a_time_out(cell: GridEngineCell, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, submit_options=("-l", "h_rt=3")) as one:
            await one.start(launch("1.1", "sleep 60", walltime_s=900.0))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.TIMED_OUT
            assert "h_rt" in ended.reason

    asyncio.run(scenario())


def test_a_queue_that_does_not_exist_refuses_for_good(cell: GridEngineCell, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, submit_options=("-q", "nowhere.q")) as one:
            await one.start(launch("1.1"))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.REFUSED
            assert "nowhere.q" in ended.reason

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"queue": "nosuch.q"}, "there is no queue nosuch.q that is open to this account; correct 'queue: ...'"),
        (
            {"queue": "all.q,nosuch.q"},
            "there is no queue nosuch.q that is open to this account; correct 'queue: ...'",
        ),
        ({"parallel_environment": "nosuch"}, "there is no parallel environment nosuch; correct"),
    ],
)
def test_a_site_without_its_queue_or_parallel_environment_answers_and_cannot_be_used(
    cell: GridEngineCell, tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, **fields) as one:
            with pytest.raises(SiteError, match=re.escape(told)):
                await one.site.probe()

    asyncio.run(scenario())


def test_a_claim_by_reservation_starts_at_its_time_and_the_reservation_goes_with_it(
    cell: GridEngineCell, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, claims=Claims.RESERVATION) as one:
            begin_at = one.now() + 7
            text = f"date +%s >{tmp_path}/began"
            await one.start(launch("1.1", text, processors=3, begin_at=begin_at, walltime_s=60.0))
            assert "koala_1_1_" in cell.run("qrstat", "-xml")
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert int((tmp_path / "began").read_text()) >= int(begin_at)
            await until_true(lambda: not cell.run("qrstat").strip())

    asyncio.run(scenario())


def test_a_reservation_that_was_never_answered_is_the_one_that_the_component_runs_in(
    cell: GridEngineCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(cell, tmp_path, claims=Claims.RESERVATION) as one:
            wanted = launch("1.1", processors=3, begin_at=one.now() + 600, walltime_s=60.0)
            with monkeypatch.context() as patched:
                patched.setattr(GridEngineSystem, "reserve", unanswered(GridEngineSystem.reserve))
                with pytest.raises(OSError, match="before its end"):
                    await one.start(wanted)
            assert cell.run("qrstat", "-xml").count("<name>koala_1_1_") == 1
            await one.start(wanted)
            (reservation,) = re.findall(r"<id>(\d+)</id>", cell.run("qrstat", "-xml"))
            (job,) = jobs_of_ours(cell)
            assert re.search(rf"^ar_id: *{reservation}$", cell.run("qstat", "-j", job), re.MULTILINE)
            await one.site.abort("1.1")
            await one.ended("1.1")
            await until_true(lambda: cell.is_empty)

    asyncio.run(scenario())


DRIVER = """
import asyncio, sys
from pathlib import Path
sys.path[:] = {path!r}
from tests.sites.batch.grid_engine.test_site import CellAt, opened, two_launches

async def drive():
    async with opened(CellAt({environment!r}), Path({root!r})) as one:
        await one.start(*two_launches())
        await asyncio.sleep(600)

asyncio.run(drive())
"""


class CellAt:
    """A cell that somebody else runs."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment


def two_launches() -> tuple[Launch, Launch]:
    return launch("1.1", "echo found again", processors=2), launch("1.2", "exit 4")


def test_a_driver_that_is_killed_finds_its_components_again(cell: GridEngineCell, tmp_path: Path) -> None:
    """It is killed when the first job is there, whether it has heard of it or not."""
    text = DRIVER.format(path=sys.path, environment=cell.environment, root=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", text]) as driver:
        cell.wait(lambda: driver.poll() is not None or bool(jobs_of_ours(cell)), "nothing is submitted")
        driver.kill()
    assert driver.returncode == -signal.SIGKILL

    async def scenario() -> None:
        async with opened(cell, tmp_path) as one:
            assert "1.1" in await one.site.held()
            await one.start(*two_launches())
            await one.ready("1.1", "1.2")
            # A submission of the driver that was killed may come through late: that job leaves at once.
            await asyncio.to_thread(cell.wait, lambda: len(jobs_of_ours(cell)) == 2, "there is not one job for each")
            await one.site.release("1.1", Go())
            await one.site.release("1.2", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert (await one.ended("1.2")).exit_code == 4
            assert await one.stdout("1.1") == "found again\n"

    asyncio.run(scenario())


def test_a_qmaster_that_is_gone_for_a_while_loses_nothing(cell: GridEngineCell, tmp_path: Path) -> None:
    """Components end while nobody is there to tell it."""

    async def scenario() -> None:
        async with opened(cell, tmp_path) as one:
            await one.start(launch("1.1", "exit 5"), launch("1.2", "echo done"))
            await one.ready("1.1", "1.2")
            cell.stop_qmaster()
            try:
                for token in ("1.1", "1.2"):
                    await one.site.release(token, Go())
                    await until_true((one.home(token) / "exit").exists)
                with pytest.raises(OSError, match="qmaster"):
                    await one.start(launch("1.3", "exit 7"))
                await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
                assert not any(isinstance(event, ComponentEnded) for event in one.events)
            finally:
                cell.stop_execd()
                cell.start_qmaster()
                cell.start_execd()
            await until_true(lambda: not jobs_of_ours(cell))
            assert (await one.ended("1.1")).exit_code == 5
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            assert (await one.run(launch("1.3", "exit 7"))).exit_code == 7

    asyncio.run(scenario())
