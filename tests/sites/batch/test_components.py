"""What a look at a batch system means for a site's components: processors that are not for us, submissions that came
through twice, ends that only the history tells, and how much all this costs the batch system and the event loop."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koala.model.launch import Go
from koala.model.messages import ComponentEnded, Outcome
from koala.sites import Stream
from koala.sites.batch.scripts import directory, runner
from koala.sites.batch.scripts.runner import ScriptRunner
from koala.sites.batch.system import BatchListing
from koala.sites.remote_shell import ShellTimeoutError
from tests.support.paper_batch import (
    BRISK,
    ONLY_AT_THE_SITE,
    WAIT_S,
    PaperBatch,
    PaperSite,
    brisk,
    component,
    eventually,
)

# --------------------------------------------------------------------------------------------- processors


def test_what_a_job_holds_beyond_what_it_asked_for_is_not_idle(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
            one.batch.set("1.1", "running@4")  # a node is given as a whole
            assert (await one.site.probe()).others == 3
            one.batch.set("1.1", "pending@1")
            assert (await one.site.probe()).others == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("jobs", "others"),
    [
        (["running@3"], 3),
        (["pending@3"], 3),
        (["pending@9"], 0),  # no room for it: the site is not full for as long as it waits
        (["running@6", "pending@4", "pending@1"], 7),
        (["held@3"], 0),
        (["pending@3 site 0 never"], 0),
        (["over@3 itself"], 0),
    ],
)
def test_jobs_of_another_koala_count_as_those_of_any_other_user(tmp_path: Path, jobs: list[str], others: int) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            for number, job in enumerate(jobs):
                (one.batch.root / "jobs" / f"koala-9.{number}-0badcafe").write_text(f"{job}\n")
            assert (await one.site.probe()).others == others

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------- jobs


def test_a_submission_that_came_through_twice_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            twin = one.batch.job("1.1").with_name(one.batch.job("1.1").name + "~2")
            twin.write_text("pending\n")
            await one.site.release("1.1", Go())
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 2)
            assert twin.read_text() == "pending\n", "while one runs nothing is cancelled: they have one name"
            one.play_end("1.1", "exited 3")
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 3)
            assert twin.read_text() == "over cancelled\n"

    asyncio.run(scenario())


def test_a_history_that_cannot_be_told_holds_up_nobody_whose_end_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            for token in ("1.1", "1.2"):
                await one.begin(token)
                await one.site.release(token, Go())
            (one.batch.root / "no-history").touch()
            one.batch.lose("1.1", "site 0 node died")
            one.play_end("1.2")
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            assert not one.told(ComponentEnded, "1.1")
            (one.batch.root / "no-history").unlink()
            assert "node died" in (await one.ended("1.1")).reason

    asyncio.run(scenario())


def test_a_history_that_takes_too_long_is_asked_for_in_smaller_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    run = ScriptRunner.run

    async def slow(self: ScriptRunner, body: str, **options: object) -> runner.ScriptResult:
        if options.get("calls") == "history":
            asked.append(body.count("history/j."))
            if asked[-1] > 2:
                raise ShellTimeoutError("this machine", "no answer")
        return await run(self, body, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ScriptRunner, "run", slow)

    async def scenario() -> None:
        tokens = [f"1.{number}" for number in range(5)]
        async with PaperSite(tmp_path, timings=brisk(history_jobs_max=8)) as one:
            for token in tokens:
                await one.begin(token)
                await one.site.release(token, Go())
            for token in tokens:
                one.batch.lose(token, "site 0 node died")
            for token in tokens:
                assert "node died" in (await one.ended(token)).reason

    asyncio.run(scenario())
    assert asked[0] <= 8
    assert 2 in asked


# ------------------------------------------------------------------------------------------------- its cost


def test_a_long_listing_is_read_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    class Watched(PaperBatch):
        def parse_listing(self, printed: str) -> BatchListing:
            threads.append(threading.current_thread())
            return super().parse_listing(printed)

    async def scenario() -> None:
        async with PaperSite(tmp_path, batch=Watched(tmp_path / "batch")) as one:
            await one.site.probe()
            assert threads[-1] is threading.main_thread(), "a short one is not worth a thread"
            monkeypatch.setattr(runner, "PARSE_IN_LOOP_BYTES_MAX", 1)
            await one.site.probe()
            assert threads[-1] is not threading.main_thread()

    asyncio.run(scenario())


def test_a_batch_system_that_takes_long_to_list_rests_as_long_whatever_is_to_be_confirmed(
    tmp_path: Path,
) -> None:
    evenly = brisk(confirm_most_s=BRISK.confirm_first_s)

    class Slow(PaperBatch):
        def listing(self) -> str:
            times = self.root / "times"
            return f"date +%s.%N >>{times}; sleep 0.3; date +%s.%N >>{times}\n{super().listing()}"

    async def scenario() -> None:
        async with PaperSite(tmp_path, batch=Slow(tmp_path / "batch"), timings=evenly) as one:
            await one.begin("1.1")
            before = one.site.calls["listing"]
            one.write("1.1", "exit", "exited 0\n")
            await eventually(lambda: one.site.calls["listing"] >= before + 5)
        times = [float(line) for line in (one.batch.root / "times").read_text().split()]
        pairs = list(zip(times[::2], times[1::2], strict=False))
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(pairs)]
        assert len(gaps) >= 3
        assert min(gaps[-2:]) >= 0.25, "as long as it takes, but for the time that a process takes to start"

    asyncio.run(scenario())


def test_what_is_about_to_change_is_waited_for_at_the_site(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=ONLY_AT_THE_SITE) as one, asyncio.timeout(WAIT_S):
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            one.write("1.1", "outbox/question", "why\n")
            await one.until(lambda: bool(one.mail))
            one.write("1.1", "outbox/another", "where\n")
            await one.until(lambda: len(one.mail) == 2)
            one.play_end("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_too_many_to_be_waited_for_at_the_site_are_polled_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[str] = []
    run = ScriptRunner.try_to_run

    def noted(runner: ScriptRunner, body: str, **options: Any) -> Any:
        bodies.append(body)
        return run(runner, body, **options)

    monkeypatch.setattr(ScriptRunner, "try_to_run", noted)

    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(awaited_components_max=1)) as one:
            await one.start(component("1.1"))
            await eventually(lambda: any("\nkoala_await " in body for body in bodies))
            await one.start(component("1.2"))
            bodies.clear()
            one.play_ready("1.1")
            one.play_ready("1.2")
            await one.ready("1.1")
            await one.ready("1.2")
            looks = [body for body in bodies if "\nkoala_inspect " in body and " 1.2" in body]
            assert looks
            assert not any("\nkoala_await " in body for body in looks)

    asyncio.run(scenario())


def test_a_component_that_comes_while_a_poll_waits_for_others_is_seen_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=ONLY_AT_THE_SITE) as one, asyncio.timeout(WAIT_S):
            await one.begin("1.1")
            await one.begin("1.2")
            await one.begin("1.3")

    asyncio.run(scenario())


def test_a_sign_that_is_no_news_does_not_have_the_site_polled_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something in the place of a file shows at once and for ever."""
    rare = brisk(calm_first_s=600.0, calm_most_s=600.0, poll_first_s=600.0, poll_most_s=600.0)
    looks = 0
    inspect = directory.inspect

    def counted(*arguments: Any) -> str:
        nonlocal looks
        looks += 1
        return inspect(*arguments)

    monkeypatch.setattr(directory, "inspect", counted)

    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=rare) as one:
            (one.root / "components/1.1").mkdir()
            await one.start(component("1.1"))
            (one.home("1.1") / "exit").mkdir()
            await eventually(lambda: looks >= 1)
            before = looks
            for _ in range(20):
                await one.site.output("1.1", Stream.STDOUT, 0)  # time passes at the site
            assert looks <= before + 2

    asyncio.run(scenario())


# --------------------------------------------------------------- what a power cut of a file server may leave


def empty_all(home: Path) -> None:
    for path in home.iterdir():
        if path.is_file():
            path.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (empty_all, Outcome.SITE_FAILED),
        (lambda home: (home / "record.json").unlink(), Outcome.ABSENT),
        (shutil.rmtree, Outcome.ABSENT),
    ],
    ids=["emptied", "without a record", "gone"],
)
def test_a_component_whose_files_were_never_on_disk_is_ended_and_so_is_its_job(
    tmp_path: Path, spoil: Callable[[Path], object], outcome: Outcome
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
        spoil(one.home("1.1"))
        async with one.again() as other:
            await other.site.ask(["1.1"])
            ended = await other.ended("1.1")
            assert (ended.outcome, ended.fault) == (outcome, None), "its application may have removed them"
            await other.site.probe()
            assert other.batch.job("1.1").read_text() == "over cancelled\n"

    asyncio.run(scenario())


def test_a_component_whose_id_was_never_on_disk_is_known_by_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
        (one.home("1.1") / "batch").write_bytes(b"")
        async with one.again() as other:
            await eventually(lambda: (other.home("1.1") / "batch").read_text() != "")
            other.play_end("1.1")
            assert (await other.ended("1.1")).outcome is Outcome.DONE
            assert other.batch.tokens() == ["1.1"]

    asyncio.run(scenario())
