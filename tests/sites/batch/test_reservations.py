"""Reservations that a batch system takes back late, or in which it takes no job: none stays behind, none is vital."""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import BatchSettings, Claims
from koala.model.messages import ComponentEnded, Outcome
from koala.sites.batch.system import BatchSubmission, WantedReservation
from tests.support.paper_batch import PaperBatch, PaperSite, component, eventually

AHEAD_S = 3_600.0


class StubbornBatch(PaperBatch):
    """With a file ``stuck`` no reservation can be given back; with a file ``unwanted`` no job may run in one. With a
    file ``cut`` a reservation is made and nobody hears of it; with a file ``false`` it is made and denied. What jobs
    run in stands in ``places``, a line each."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.wanted: list[WantedReservation] = []

    def submit(self, submission: BatchSubmission) -> str:
        inside = submission.reservation
        refuse = "if [ -e unwanted ]; then echo 'never in a reservation' >&2; exit 1; fi\n" if inside else ""
        note = f"echo {inside or 'barrier'} >>places\n"
        return f"cd {shlex.quote(str(self.root))} || exit 1\n{refuse}{super().submit(submission)}{note}"

    def reserve(self, wanted: WantedReservation) -> str:
        self.wanted.append(wanted)
        return (
            f"{super().reserve(wanted)}echo {wanted.name} >>reserved\n"
            "if [ -e cut ]; then kill -KILL $$; fi\nif [ -e false ]; then exit 1; fi\n"
        )

    def unreserve(self, name: str) -> str:
        stuck = "if [ -e stuck ]; then echo 'it is in use' >&2; exit 1; fi"
        return f"cd {shlex.quote(str(self.root))} || exit 1\n{stuck}\n{super().unreserve(name)}"

    def reservations(self) -> list[str]:
        """Their names."""
        return [path.name for path in (self.root / "reservations").iterdir()]

    def places(self) -> list[str]:
        """What the jobs that were submitted run in, in their order."""
        kept = self.root / "places"
        return kept.read_text().split() if kept.exists() else []


def site(root: Path, **options: Any) -> tuple[StubbornBatch, PaperSite]:
    batch = StubbornBatch(root / "batch")
    settings = BatchSettings(work_directory=str(root / "work"), claims=Claims.RESERVATION)
    return batch, PaperSite(root, batch=batch, settings=settings, **options)


def later() -> float:
    return time.time() + AHEAD_S


@pytest.mark.parametrize(("barrier_timeout_s", "late_s"), [(20.0, 5.0), (300.0, 60.0)])
def test_a_reservation_is_late_by_a_quarter_of_the_barrier_timeout_at_most(
    tmp_path: Path, barrier_timeout_s: float, late_s: float
) -> None:
    """However long the component itself waits at the barrier: the scheduler gives up before it."""

    async def scenario() -> None:
        batch, one = site(tmp_path, barrier_timeout_s=barrier_timeout_s)
        async with one:
            start = component("1.1", begin_at=later(), walltime_s=60, barrier_timeout_s=AHEAD_S + 700.0)
            await one.start(start)
        assert [wanted.late_s for wanted in batch.wanted] == [late_s]

    asyncio.run(scenario())


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


@pytest.mark.parametrize("record", ["", "nonsense"], ids=["readable", "unreadable"])
def test_a_reservation_is_given_back_also_at_a_site_that_reserves_no_more(tmp_path: Path, record: str) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60))
        assert len(batch.reservations()) == 1
        if record:
            (one.home("1.1") / "record.json").write_text(record)
        settings = BatchSettings(work_directory=one.settings.work_directory, claims=Claims.BARRIER)
        async with PaperSite(tmp_path, batch=batch, settings=settings) as other:
            await other.site.abort("1.1")
            await other.ended("1.1")
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_what_cannot_be_read_is_told_as_ended_once_its_reservation_is_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60))
        (one.home("1.1") / "record.json").write_text("nonsense")
        (batch.root / "stuck").touch()
        async with one.again() as other:
            await eventually(lambda: batch.job("1.1").read_text() == "over cancelled\n")
            before = other.site.calls["unreserve"]
            await eventually(lambda: other.site.calls["unreserve"] > before)
            assert not other.told(ComponentEnded, "1.1")
            (batch.root / "stuck").unlink()
            await other.ended("1.1")
            assert batch.reservations() == []

    asyncio.run(scenario())


# --------------------------------------------------------------------- reservations of which nobody heard


async def cut_off(batch: StubbornBatch, one: PaperSite, begin_at: float) -> None:
    """A component starts, and its reservation is made without an answer."""
    (batch.root / "cut").touch()
    with pytest.raises(OSError, match="before its end"):
        await one.start(component("1.1", begin_at=begin_at, walltime_s=60))
    (batch.root / "cut").unlink()
    assert len(batch.reservations()) == 1
    assert batch.places() == []


def test_a_reservation_that_was_never_answered_is_found_by_the_next_try(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        begin_at = later()
        async with one:
            await cut_off(batch, one, begin_at)
            await one.start(component("1.1", begin_at=begin_at, walltime_s=60))
            (name,) = batch.reservations()
            assert batch.places() == [f"r.{name}"]
            await one.site.abort("1.1")
            await one.ended("1.1")
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_a_reservation_that_a_killed_driver_never_heard_of_is_found_by_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            await cut_off(batch, one, later())
        async with one.again() as other:
            await eventually(lambda: batch.tokens() == ["1.1"])
            (name,) = batch.reservations()
            await eventually(lambda: batch.places() == [f"r.{name}"])
            assert (other.home("1.1") / "reservation").read_text() == f"r.{name}"

    asyncio.run(scenario())


def test_a_reservation_that_was_never_answered_is_given_back_when_it_is_too_late_for_one(tmp_path: Path) -> None:
    """Before anything is submitted: processors are never held twice."""

    async def scenario() -> None:
        offset_s = 0.0
        batch, one = site(tmp_path, clock=lambda: time.time() + offset_s)
        begin_at = later()
        async with one:
            await cut_off(batch, one, begin_at)
            offset_s = AHEAD_S
            (batch.root / "stuck").touch()
            with pytest.raises(OSError, match="it is in use"):
                await one.start(component("1.1", begin_at=begin_at, walltime_s=60))
            assert batch.places() == []
            (batch.root / "stuck").unlink()
            await eventually(lambda: batch.places() == ["barrier"])
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_a_reservation_that_was_made_and_denied_is_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        (batch.root / "false").touch()
        async with one:
            await one.start(component("1.1", begin_at=later(), walltime_s=60))
            assert batch.places() == ["barrier"]
            assert batch.reservations() == []

    asyncio.run(scenario())


def test_a_next_try_that_is_refused_in_its_reservation_goes_to_the_barrier(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch, one = site(tmp_path)
        begin_at = later()
        async with one:
            await cut_off(batch, one, begin_at)
            (batch.root / "unwanted").touch()
            await one.start(component("1.1", begin_at=begin_at, walltime_s=60))
            assert batch.places() == ["barrier"]
            assert (batch.reservations(), batch.tokens()) == ([], ["1.1"])

    asyncio.run(scenario())


def test_a_next_try_reserves_nothing_where_nothing_was_to_be_reserved(tmp_path: Path) -> None:
    """At the barrier a component stays there, however often its submission is repeated."""

    async def scenario() -> None:
        batch, one = site(tmp_path)
        async with one:
            (batch.root / "down").touch()
            with pytest.raises(OSError, match="it is down"):
                await one.start(component("1.1", begin_at=time.time(), walltime_s=60), component("1.2"))
            (batch.root / "down").unlink()
            await one.start(component("1.1", begin_at=time.time(), walltime_s=60), component("1.2"))
            assert batch.places() == ["barrier", "barrier"]
            assert not (batch.root / "reserved").exists()

    asyncio.run(scenario())
