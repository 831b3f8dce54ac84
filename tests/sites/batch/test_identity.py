"""Whose a job is and what a token stands for, when work directories, marks, records or databases were lost."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from koala.model.errors import Fault
from koala.model.launch import Go
from koala.model.messages import ComponentAccepted, ComponentEnded, ComponentReady, Outcome, SiteSilent, Token
from koala.model.request import Application
from koala.runners import component_script
from koala.sites.batch.system import BatchId
from tests.support.paper_batch import PREFIX, PaperBatch, PaperSite, component, eventually


def mark(one: PaperSite) -> str:
    return (one.root / "mark").read_text()


# ------------------------------------------------------------------------------------- the work directory


def test_jobs_of_a_work_directory_that_was_removed_are_known_again_and_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
        shutil.rmtree(one.root)
        async with one.again() as other:
            await other.site.ask(["1.1"])
            assert (await other.ended("1.1")).outcome is Outcome.ABSENT
            await other.site.probe()
            assert other.batch.job("1.1").read_text() == "over cancelled\n"

    asyncio.run(scenario())


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
def test_a_mark_that_was_lost_comes_back_and_what_runs_goes_on(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            before = mark(one)
        spoil(one.root / "mark")
        async with one.again() as other:
            assert mark(other) == before
            await other.ready("1.1")
            other.play_end("1.1")
            assert (await other.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_mark_that_is_there_stands_and_other_directories_and_owners_have_others(tmp_path: Path) -> None:
    async def marks(*sites: PaperSite) -> list[str]:
        found = []
        for each in sites:
            async with each:
                found.append(mark(each))
        return found

    async def scenario() -> None:
        first = PaperSite(tmp_path / "a")
        other_owner = PaperSite(tmp_path / "b", owner="somebody else")
        assert len(set(await marks(first, other_owner, PaperSite(tmp_path / "c")))) == 3
        (first.root / "mark").write_text("0badcafe")
        assert await marks(first.again()) == ["0badcafe"]

    asyncio.run(scenario())


def test_a_directory_that_another_koala_uses_is_silence_until_it_is_free(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
        (one.root / "mark").unlink()
        async with one.again(owner="somebody else") as other:
            silent = other.events[0]
            assert isinstance(silent, SiteSilent)
            assert "work is in use by another driver, 'a test'; give this site a work_directory of" in silent.reason
            launch = component("1.2")
            with pytest.raises(OSError, match="another driver"):
                await other.site.start(launch, component_script(launch))
            assert not (one.root / "mark").exists(), "nothing is changed there"
            assert one.batch.job("1.1").read_text() == "running\n"
            (one.root / "owner").unlink()
            await other.start(launch)
            assert other.told(ComponentAccepted, "1.2")

    asyncio.run(scenario())


# ------------------------------------------------------------------------------ what cannot be read any more


class SlowBatch(PaperBatch):
    """A job that is cancelled takes its time to end, as long as a test wants."""

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        job = f"jobs/{PREFIX}{token}"
        return (
            f"cd {shlex.quote(str(self.root))} || exit 1\n"
            f'case $(cat {job}) in pending | running) echo ending >"new.$$"; mv "new.$$" {job} ;; esac\n'
        )


def bad_record(home: Path) -> None:
    (home / "record.json").write_text("nonsense")


def no_time(home: Path) -> None:
    (home / "released").unlink()


async def ends_with_its_job(one: PaperSite) -> None:
    """It is told as ended when its job is gone, and no sooner."""
    await eventually(lambda: one.batch.job("1.1").read_text() == "ending\n")
    before = one.site.calls["listing"]
    await eventually(lambda: one.site.calls["listing"] >= before + 2)
    assert not one.told(ComponentEnded, "1.1")
    assert await one.site.held() == ("1.1",)
    one.batch.set("1.1", "over", "cancelled")
    ended = await one.ended("1.1")
    assert ended.outcome is Outcome.SITE_FAILED
    assert "cannot be read" in ended.reason


@pytest.mark.parametrize("spoil", [bad_record, no_time])
def test_a_component_that_cannot_be_read_when_the_site_is_opened_ends_with_its_job(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, batch=SlowBatch(tmp_path / "batch")) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
        spoil(one.home("1.1"))
        async with one.again() as other:
            await ends_with_its_job(other)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["asked about", "started", "aborted"])
def test_a_component_that_cannot_be_read_when_it_is_named_ends_with_its_job(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, batch=SlowBatch(tmp_path / "batch")) as one:
            await one.begin("1.1")
        home = one.home("1.1")
        home.rename(tmp_path / "aside")  # as if the file server showed it late
        async with one.again() as other:
            bad_record(tmp_path / "aside")
            (tmp_path / "aside").rename(home)
            if how == "asked about":
                await other.site.ask(["1.1"])
            elif how == "started":
                await other.start(component("1.1"))
            else:
                reason = "what the site kept about it cannot be read, says the test"
                await other.site.abort("1.1", outcome=Outcome.SITE_FAILED, reason=reason)
            await ends_with_its_job(other)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("written", "outcome", "fault"),
    [
        ({"outcome": "site_failed", "fault": "site"}, Outcome.SITE_FAILED, None),
        ({"token": "2.1"}, Outcome.FAILED, Fault.JOB),
        ({"exit_code": 2**63}, Outcome.FAILED, Fault.JOB),
        ({"processor_s": -1.0}, Outcome.FAILED, Fault.JOB),
    ],
)
def test_an_end_that_a_job_wrote_itself_is_no_fault_of_its_site_nor_the_end_of_another(
    tmp_path: Path, written: dict[str, Any], outcome: Outcome, fault: Fault | None
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            end = {"type": "ComponentEnded", "at": 1.0, "token": "1.1", "outcome": "done", **written}
            one.write("1.1", "ended.json", json.dumps(end))
        async with one.again() as other:
            await other.site.ask(["1.1"])
            ended = await other.ended("1.1")
            assert (ended.outcome, ended.fault) == (outcome, fault)
            assert not other.told(ComponentEnded, "2.1")

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["abort", "ended.json", "record.json"])
def test_what_a_job_nests_too_deep_to_be_read_costs_no_other_its_site(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.begin("1.2")
            await one.site.release("1.1", Go())
            one.write("1.1", name, '{"x": ' + "[" * 100_000)
            if name == "abort":
                assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            one.play_end("1.2")
            await one.ended("1.2")
        async with one.again() as other:
            await other.site.ask(["1.1"])
            await other.ended("1.1")

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------- tokens of another database


OTHERS: list[dict[str, Any]] = [
    {"processors": 2},
    {"job": 2},
    {"parts": 3, "part": 1},
    {"application": Application(executable="/bin/true")},
]


@pytest.mark.parametrize("fields", OTHERS, ids=["processors", "job", "part", "application"])
def test_a_token_that_stands_for_another_component_is_refused_and_that_one_ended(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
        async with one.again() as other:
            await other.start(component("1.1", **fields))
            ended = other.told(ComponentEnded, "1.1")[0]
            assert ended.outcome is Outcome.REFUSED
            assert "token 1.1 is taken at alpha, by part 0 of 1 of job 1, on 1 processors, of another" in ended.reason
            await eventually(lambda: other.batch.job("1.1").read_text() == "over cancelled\n")
            await other.until(lambda: len(other.told(ComponentEnded, "1.1")) == 2)
            assert await other.site.held() == ()

    asyncio.run(scenario())


def test_the_end_of_another_component_is_not_told_as_the_one_of_its_namesake(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.play_end("1.1")
            done = await one.ended("1.1")
        async with one.again() as other:
            await other.start(component("1.1", processors=2))
            assert [event.outcome for event in other.told(ComponentEnded, "1.1")] == [Outcome.REFUSED]
            await other.start(component("1.1"))
            assert other.events[-1] == done, "the same one keeps its end"

    asyncio.run(scenario())


def test_a_start_that_is_repeated_later_is_the_same_though_times_differ(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1", barrier_timeout_s=60.0, begin_at=1_000.0)
        async with one.again() as other:
            await other.ready("1.1")
            await other.start(component("1.1", barrier_timeout_s=50.0, begin_at=2_000.0, search_path=("/opt/bin",)))
            assert isinstance(other.events[-1], ComponentReady)
            assert await other.site.held() == ("1.1",)

    asyncio.run(scenario())
