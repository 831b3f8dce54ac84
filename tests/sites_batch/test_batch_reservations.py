"""Reservations that a batch system takes back late, or in which it takes no job: none stays behind, none is vital."""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path

from paper_batch import PaperBatch, PaperSite, component, eventually

from koala.grid import BatchSettings, Claims
from koala.messages import ComponentEnded, Outcome
from koala.sites.batch.system import Submission

AHEAD_S = 3_600.0


class StubbornBatch(PaperBatch):
    """With a file ``stuck`` no reservation can be given back; with a file ``unwanted`` no job may run in one."""

    def submit(self, submission: Submission) -> str:
        if submission.reservation is None:
            return super().submit(submission)
        refuse = "if [ -e unwanted ]; then echo 'never in a reservation' >&2; exit 1; fi"
        return f"cd {shlex.quote(str(self.root))} || exit 1\n{refuse}\n{super().submit(submission)}"

    def unreserve(self, name: str) -> str:
        stuck = "if [ -e stuck ]; then echo 'it is in use' >&2; exit 1; fi"
        return f"cd {shlex.quote(str(self.root))} || exit 1\n{stuck}\n{super().unreserve(name)}"

    def reservations(self) -> list[str]:
        """Their names."""
        return [path.name for path in (self.root / "reservations").iterdir()]


def site(root: Path) -> tuple[StubbornBatch, PaperSite]:
    batch = StubbornBatch(root / "batch")
    settings = BatchSettings(work_directory=str(root / "work"), claims=Claims.RESERVATION)
    return batch, PaperSite(root, batch=batch, settings=settings)


def later() -> float:
    return time.time() + AHEAD_S


def test_an_end_is_told_once_its_reservation_is_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60), component("1.2"))
            assert len(batch.reservations()) == 1
            (batch.root / "stuck").touch()
            await one.site.abort("1.1")
            await one.site.abort("1.2")
            await one.ended("1.2")
            await one.site.probe()
            assert not one.told(ComponentEnded, "1.1")
        # Another driver finds it, and goes on.
        async with one.again() as other:
            assert await other.site.held() == ("1.1",)
            (batch.root / "stuck").unlink()
            assert (await other.ended("1.1")).outcome is Outcome.ABORTED
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_where_no_job_is_taken_in_a_reservation_it_is_given_back_and_the_barrier_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        (batch.root / "unwanted").touch()
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60))
            assert batch.reservations() == []
            assert batch.tokens() == ["1.1"]
            assert not (one.home("1.1") / "reservation").exists()
            (batch.root / "refuse").write_text("never at all\n")
            await one.start(component("1.2", begin_at=later(), walltime_s=60))
            assert (await one.ended("1.2")).outcome is Outcome.REFUSED
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_a_component_that_cannot_be_found_again_leaves_no_reservation(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60))
        (one.home("1.1") / "record.json").write_text("nonsense")
        async with one.again() as other:
            assert (await other.ended("1.1")).outcome is Outcome.SITE_FAILED
            await eventually(lambda: batch.reservations() == [])

    asyncio.run(scenario())
