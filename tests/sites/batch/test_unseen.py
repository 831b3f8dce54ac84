"""Files that a file server shows late, or not at all for a while: nothing is taken for over or lost for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Go
from koala.model.messages import ComponentEnded, Outcome, SiteSilent, Token
from koala.sites.batch import poller
from koala.sites.batch.parse import ComponentStatus, parse_statuses
from koala.sites.batch.scripts.runner import ScriptResult, ScriptRunner
from koala.sites.remote_shell import ShellError
from tests.support.paper_batch import PaperSite, brisk, component, eventually

# What the batch system tells of a job whose script has recorded its end, where nobody sees the record yet.
WORDS: list[Callable[[PaperSite], None]] = [
    lambda one: one.batch.set("1.1", "over", "itself", "0"),
    lambda one: one.batch.set("1.1", "over", "itself"),
    lambda one: one.batch.lose("1.1", "itself 0"),
]
IDS = ["listed", "listed without a code", "told by the history"]


async def running(one: PaperSite) -> None:
    await one.begin("1.1")
    await one.site.release("1.1", Go())


@pytest.mark.parametrize("tell", WORDS, ids=IDS)
def test_a_record_that_is_not_to_be_seen_yet_is_waited_for(tmp_path: Path, tell: Callable[[PaperSite], None]) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(unknown_grace_s=0.0, unseen_grace_s=600.0)) as one:
            await running(one)
            tell(one)
            await eventually(lambda: one.site.calls["history"] >= 3)
            assert not one.told(ComponentEnded, "1.1")
            one.write("1.1", "exit", "exited 0\n")
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("tell", WORDS, ids=IDS)
def test_a_record_that_never_comes_is_a_failure_of_the_site_after_a_while(
    tmp_path: Path, tell: Callable[[PaperSite], None]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(unknown_grace_s=600.0, unseen_grace_s=0.3)) as one:
            await running(one)
            tell(one)
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "without recording how the application ended" in ended.reason

    asyncio.run(scenario())


def test_a_directory_in_doubt_is_written_to_before_it_is_looked_at(tmp_path: Path) -> None:
    """So the client of a file server asks anew what is in it."""

    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(unseen_grace_s=600.0)) as one:
            await running(one)
            home = one.home("1.1")
            before, names = home.stat().st_mtime_ns, sorted(path.name for path in home.iterdir())
            one.batch.set("1.1", "over", "itself", "0")
            await eventually(lambda: home.stat().st_mtime_ns > before)
            # What was written is gone again after each look; one that closes the site half way would leave it.
            await eventually(lambda: sorted(path.name for path in home.iterdir()) == names)

    asyncio.run(scenario())


# ----------------------------------------------------------------------------------- what is taken for lost


def played(root: Path, ls: str) -> BatchSettings:
    """Settings of a site where ``ls`` begins with these words."""
    tools = root / "bin"
    tools.mkdir()
    (tools / "ls").write_text(f'#!/bin/sh\n{ls}\nPATH=/usr/bin:/bin\nexec ls "$@"\n')
    (tools / "ls").chmod(0o755)
    return BatchSettings(work_directory=str(root / "work"), environment=(("PATH", f"{tools}:/usr/bin:/bin"),))


def hide(one: PaperSite) -> None:
    """A file that is there cannot be seen."""
    (one.home("1.1") / "record.json").rename(one.root / "hidden")


def show(one: PaperSite) -> None:
    (one.root / "hidden").rename(one.home("1.1") / "record.json")


async def goes_on(one: PaperSite) -> None:
    """The component runs to its end."""
    assert await one.site.held() == ("1.1",)
    one.play_end("1.1")
    assert (await one.ended("1.1")).outcome is Outcome.DONE


def test_where_nothing_can_be_listed_the_site_is_silent_and_no_component_is_lost(tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    async def scenario() -> None:
        async with PaperSite(tmp_path, settings=played(tmp_path, f"if [ -e {broken} ]; then exit 2; fi")) as one:
            await running(one)
            broken.touch()
            hide(one)
            await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
            show(one)
            broken.unlink()
            await goes_on(one)

    asyncio.run(scenario())


def test_a_file_that_is_listed_and_cannot_be_seen_is_not_lost(tmp_path: Path) -> None:
    listed = f"if [ -e {tmp_path}/work/hidden ]; then echo record.json; fi"

    async def scenario() -> None:
        async with PaperSite(tmp_path, settings=played(tmp_path, listed)) as one:
            await running(one)
            hide(one)
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 3)
            show(one)
            await goes_on(one)
            assert not [event for event in one.events if isinstance(event, SiteSilent)]

    asyncio.run(scenario())


def test_one_look_that_does_not_find_a_component_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_looks = [1]

    def wrong(text: str, tokens: Sequence[Token]) -> dict[Token, ComponentStatus]:
        statuses = parse_statuses(text, tokens)
        if wrong_looks and "1.1" in statuses and statuses["1.1"].ready:
            wrong_looks.pop()
            statuses["1.1"] = ComponentStatus(lost=True)
        return statuses

    monkeypatch.setattr(poller, "parse_statuses", wrong)

    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
            one.play_ready("1.1")
            await one.ready("1.1")
            assert not wrong_looks
            await one.site.release("1.1", Go())
            await goes_on(one)

    asyncio.run(scenario())


def test_an_abort_whose_answer_was_lost_is_told_as_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its walltime is over, the job is cancelled, and nobody hears that this was done."""
    run = ScriptRunner.try_to_run

    async def cut(runner: ScriptRunner, body: str, **options: Any) -> tuple[ScriptResult, ShellError | None]:
        done = await run(runner, body, **options)
        if options.get("calls") != "cancel":
            return done
        return ScriptResult(sections=[], complaint=""), ShellError("this machine", "the line was cut")

    monkeypatch.setattr(ScriptRunner, "try_to_run", cut)

    async def scenario() -> None:
        now = [100.0]
        async with PaperSite(tmp_path, clock=lambda: now[0]) as one:
            await one.begin("1.1", walltime_s=50.0)
            await one.site.release("1.1", Go())
            now[0] = 200.0
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (Outcome.TIMED_OUT, "it ran longer than its walltime of 50 s")

    asyncio.run(scenario())
