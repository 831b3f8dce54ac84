"""The promises of a batch site, at every step that a batch system, a component and a driver can take."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import pytest

from koala.model.grid import BatchSettings, Claims
from koala.model.launch import MAIL_BYTES_MAX, Go, LaunchError, NodeShare
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    Outcome,
    SiteSilent,
    Token,
)
from koala.model.request import Application
from koala.runners import component_script
from koala.sites import SiteError, Stream
from koala.sites.batch.system import BatchId
from koala.sites.component_directory import MAILS_MAX
from tests.support.paper_batch import PREFIX, PaperBatch, PaperSite, brisk, component, eventually


def test_a_component_is_accepted_then_ready_then_running_then_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go(environment=(("A", "it's $HOME"),)))
            assert (one.home("1.1") / "go").read_text() == "A=it's $HOME\n"
            await one.site.ask(["1.1"])
            one.play_end("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            kinds = [ComponentAccepted, ComponentReady, ComponentRunning, ComponentEnded]
            assert one.stages("1.1") == kinds
            assert await one.site.held() == ()

    asyncio.run(scenario())


def test_one_that_waited_is_told_once_to_have_its_processors(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 3)
            assert not one.told(ComponentStarting, "1.1")
            one.batch.set("1.1", "running")
            await one.until(lambda: bool(one.told(ComponentStarting, "1.1")))
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 3)
            one.play_ready("1.1")
            await one.ready("1.1")
            assert len(one.told(ComponentStarting, "1.1")) == 1

    asyncio.run(scenario())


def test_an_exit_counts_only_when_the_job_holds_nothing_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.write("1.1", "exit", "exited 5\n")
            one.batch.set("1.1", "ending")
            before = one.site.calls["listing"]
            await eventually(lambda: one.site.calls["listing"] >= before + 3)
            assert not one.told(ComponentEnded, "1.1")
            one.batch.set("1.1", "over", "itself")
            assert (await one.ended("1.1")).exit_code == 5

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("words", "outcome", "reason"),
    [
        (("over", "cancelled"), Outcome.SITE_FAILED, "cancelled"),
        (("over", "preempted"), Outcome.SITE_FAILED, "preempted"),
        (("over", "site", "0", "node", "lost"), Outcome.SITE_FAILED, "node lost"),
        (("over", "time_limit"), Outcome.TIMED_OUT, "time limit"),
        (("over", "itself", "74"), Outcome.SITE_FAILED, "exit code 74"),
        (("pending", "site", "0", "BadConstraints"), Outcome.SITE_FAILED, "never start: BadConstraints"),
    ],
)
def test_a_job_that_ends_without_a_word_is_told_as_its_batch_system_tells_it(
    tmp_path: Path, words: tuple[str, ...], outcome: Outcome, reason: str
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
            one.batch.set("1.1", *words)
            ended = await one.ended("1.1")
            assert ended.outcome is outcome
            assert reason in ended.reason
            assert (one.home("1.1") / "pid").exists(), "a submission that comes late must not start anything"

    asyncio.run(scenario())


def test_a_job_that_is_missing_from_a_listing_is_looked_for_in_the_history(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.batch.lose("1.1", "site 0 node died")
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "node died" in ended.reason

    asyncio.run(scenario())


def test_a_job_of_which_nothing_is_known_fails_only_when_nothing_was_heard_for_a_while(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=brisk(unknown_grace_s=600.0)) as one:
            await one.begin("1.1")
            one.batch.lose("1.1")
            await eventually(lambda: one.site.calls["history"] >= 3)
            assert not one.told(ComponentEnded, "1.1")
        async with one.again(timings=brisk(unknown_grace_s=0.3)) as one:
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "vanished" in ended.reason

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------- tokens, aborts


def test_a_token_aborted_or_asked_about_before_it_came_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.site.abort("1.1")
            await one.site.ask(["1.2"])
            outcomes = [event.outcome for event in one.events if isinstance(event, ComponentEnded)]
            assert outcomes == [Outcome.ABORTED, Outcome.ABSENT]
        async with one.again() as one:
            for token in ("1.1", "1.2"):
                await one.start(component(token))
                assert (await one.ended(token)).outcome is Outcome.REFUSED
            assert one.batch.tokens() == []

    asyncio.run(scenario())


def test_a_script_that_comes_late_for_a_token_that_was_given_up_does_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.site.ask(["1.1"])
            script = component_script(component("1.1", application=Application(script=f"touch {tmp_path}/ran")))
            (one.home("1.1") / "script").write_text(script)
            late = await asyncio.create_subprocess_exec("sh", "./script", cwd=one.home("1.1"))
            assert await late.wait() == 75

    asyncio.run(scenario())


def test_an_abort_stands_and_is_carried_out_also_when_the_batch_system_was_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            (one.batch.root / "down").touch()
            await one.site.abort("1.1", outcome=Outcome.FAILED, reason="enough")
        async with one.again() as one:
            await one.site.abort("1.1")
            (one.batch.root / "down").unlink()
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (Outcome.FAILED, "enough")

    asyncio.run(scenario())


class HardOfHearing(PaperBatch):
    """The first cancellation comes to nothing."""

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        cancelled = self.root / "cancelled"
        heeded = super().cancel(token, ids)
        return f"if [ -e {cancelled} ]; then\n{heeded}else\necho {PREFIX}{token} >{cancelled}\nfi\n"


def test_a_job_that_goes_on_after_its_cancellation_is_cancelled_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        batch = HardOfHearing(tmp_path / "batch")
        async with PaperSite(tmp_path, batch=batch, timings=brisk(cancel_again_s=0.1)) as one:
            await one.begin("1.1")
            job = one.batch.job("1.1")
            await one.site.abort("1.1")
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.ABORTED
            assert (one.batch.root / "cancelled").read_text().split().count(job.name) >= 2

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["", "../x", "a/b", ".hidden", "x" * 129, "a b", "a;b", "a\n"])
def test_a_token_that_could_leave_the_directory_is_not_taken(tmp_path: Path, token: Token) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            with pytest.raises(LaunchError, match="token"):
                await one.site.abort(token)

    asyncio.run(scenario())


def test_a_component_that_is_too_large_or_too_long_is_refused_without_a_submission(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.site.probe()
            await one.start(component("1.1", processors=9), component("1.2", walltime_s=7_201.0))
            assert "9 processors" in (await one.ended("1.1")).reason
            assert "7200 s" in (await one.ended("1.2")).reason
            assert one.site.calls["submit"] == 0
            await one.start(component("1.3", walltime_s=7_000.0))
            assert (one.batch.root / "limit").read_text() == "7200.0\n", "the limit is a backstop: it gives way"

    asyncio.run(scenario())


def test_what_the_batch_system_refuses_for_good_is_refused_and_what_it_cannot_take_now_is_tried_again(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            (one.batch.root / "refuse").write_text("never heard of that account")
            await one.start(component("1.1"))
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (Outcome.REFUSED, "never heard of that account")
            (one.batch.root / "refuse").write_text("later")
            launch = component("1.2")
            with pytest.raises(OSError, match="later"):
                await one.site.start(launch, component_script(launch))
            (one.batch.root / "refuse").unlink()
            await one.start(launch)
            assert one.told(ComponentAccepted, "1.2")
            assert one.batch.tokens() == ["1.2"]

    asyncio.run(scenario())


def test_a_component_that_was_accepted_and_never_submitted_is_submitted_by_the_next_driver(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
        one.batch.job("1.1").unlink()
        (one.home("1.1") / "batch").unlink()
        async with one.again() as one:
            await eventually(lambda: one.batch.tokens() == ["1.1"])
            assert await one.site.held() == ("1.1",)

    asyncio.run(scenario())


def test_jobs_of_components_that_are_not_here_are_cancelled_and_those_of_other_koalas_are_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        # The listing that the probe asks for is the first that shows them.
        async with PaperSite(tmp_path, timings=brisk(calm_first_s=600.0, calm_most_s=600.0)) as one:
            await one.start(component("1.1"))
            mark = one.batch.job("1.1").name.rpartition("-")[2]
            for name in (f"koala-9.9-{mark}", "koala-9.9-0badcafe", "koala-9"):
                (one.batch.root / "jobs" / name).write_text("running\n")
            assert (await one.site.probe()).others == 6, "three jobs of two processors are not for what we start"
            await eventually(lambda: (one.batch.root / "cancelled").exists())
            assert (one.batch.root / "cancelled").read_text().split() == [f"koala-9.9-{mark}"]

    asyncio.run(scenario())


def test_hundreds_of_components_cost_one_listing_a_look_and_one_script_for_all_ends(tmp_path: Path) -> None:
    tokens = [f"{number}.1" for number in range(300)]

    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("0.1"))
        job = one.batch.job("0.1")
        for token in tokens[1:]:
            shutil.copytree(one.home("0.1"), one.home(token))
            shutil.copy(job, job.with_name(job.name.replace("0.1", token)))
            for name in ("record.json", "batch"):
                one.write(token, name, (one.home(token) / name).read_text().replace("0.1", token))
        for token in tokens:
            one.play_ready(token)
            one.play_end(token)
        async with one.again() as one:
            await one.until(lambda: sum(isinstance(event, ComponentEnded) for event in one.events) == len(tokens))
            assert one.site.calls["listing"] <= 3
            assert set(one.site.calls) == {"listing"}

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------- files and directories


def test_mail_goes_in_whole_once_and_comes_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            with pytest.raises(SiteError, match=r"no component 1\.1"):
                await one.site.deliver("1.1", "proxy", b"x")
            await one.begin("1.1")
            with pytest.raises(LaunchError, match="MAIL_BYTES_MAX"):
                await one.site.deliver("1.1", "reply", b"x" * (MAIL_BYTES_MAX + 1))
            await one.site.deliver("1.1", "reply", bytes(range(256)) * 64)
            await one.site.deliver("1.1", "reply", b"second")
            assert (one.home("1.1") / "inbox/reply").read_bytes() == bytes(range(256)) * 64
            await one.site.release("1.1", Go())
            one.write("1.1", "outbox/question", "why\n\n")
            one.write("1.1", "outbox/NOT-mail", "x")
            os.mkfifo(one.home("1.1") / "outbox/pipe")
            await one.until(lambda: bool(one.mail))
            assert [(mail.name, mail.data) for mail in one.mail] == [("question", b"why\n\n")]
            assert await one.site.fetch("1.1", "pipe") is None

    asyncio.run(scenario())


def test_output_stands_where_the_application_named_it(tmp_path: Path) -> None:
    application = Application(executable="x", directory="a b", stdout="o'ut", stderr="missing/err")

    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1", application=application)
            work = one.home("1.1") / "workspace" / "a b"
            work.mkdir()
            (work / "o'ut").write_bytes(b"0123456789\n")
            one.write("1.1", "stderr", "cannot open\n")
            assert await one.site.output("1.1", Stream.STDOUT, 2, 3) == b"234"
            assert await one.site.output("1.1", Stream.STDERR, 0) == b"cannot open\n"
            one.play_end("1.1")
            await one.ended("1.1")
            assert await one.site.output("1.1", Stream.STDOUT, 9) == b"9\n"

    asyncio.run(scenario())


def test_the_first_node_is_called_by_the_address_that_the_settings_name(tmp_path: Path) -> None:
    async def nodes(number: int, **fields: str) -> tuple[NodeShare, ...]:
        settings = BatchSettings(work_directory=str(tmp_path / str(number) / "work"), **fields)  # type: ignore[arg-type]
        async with PaperSite(tmp_path / str(number), settings=settings) as one:
            await one.start(component("1.1"))
            assert await one.site.nodes("1.1") == ()
            one.play_ready("1.1")
            one.write("1.1", "nodes", "n1 4\nn2 2\n")
            one.write("1.1", "addresses", "192.168.1.7 10.77.1.2 fe80::1 nonsense\n")
            return await one.site.nodes("1.1")

    async def scenario() -> None:
        rest = NodeShare("n2", 2)
        assert await nodes(1, host="127.0.0.1") == (NodeShare("127.0.0.1", 4), rest)
        assert await nodes(2, network="10.0.0.0/8") == (NodeShare("10.77.1.2", 4), rest)
        assert await nodes(3, network="172.16.0.0/12") == (NodeShare("n1", 4), rest)
        assert await nodes(4) == (NodeShare("n1", 4), rest)

    asyncio.run(scenario())


def test_an_ended_component_is_forgotten_with_everything_and_a_living_one_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            with pytest.raises(SiteError, match="has not ended"):
                await one.site.forget("1.1")
            one.play_end("1.1")
            await one.ended("1.1")
            for token in ("1.1", "1.1", "9.9"):
                await one.site.forget(token)
            assert list((one.root / "components").iterdir()) == []
            await one.site.ask(["1.1"])
            assert one.told(ComponentEnded, "1.1")[-1].outcome is Outcome.ABSENT

    asyncio.run(scenario())


def remove(home: Path) -> None:
    home.rename(home.with_name(".elsewhere"))


def replace_by_a_file(home: Path) -> None:
    remove(home)
    home.touch()


@pytest.mark.parametrize("trick", [remove, replace_by_a_file])
def test_a_component_whose_directory_is_gone_is_ended_and_its_end_is_on_record(
    tmp_path: Path, trick: Callable[[Path], None]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.start(component("1.2"))
            trick(one.home("1.1"))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "directory" in ended.reason
            assert one.batch.job("1.1").read_text() == "over cancelled\n"
            assert await one.site.held() == ("1.2",)
            await one.site.ask(["1.1"])
            assert one.events[-1] == ended

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["exit", "ended.json", "outbox/proxies", ".ended.json.x"])
@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_no_trick_with_its_files_keeps_a_component_from_its_end(
    tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            kind(one.home("1.1") / name)
            await one.site.abort("1.1")
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.ABORTED
            assert not [event for event in one.events if isinstance(event, SiteSilent)]
        async with one.again() as one:
            await one.site.ask(["1.1"])
            assert one.events == [ended]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda home: (home / "record.json").write_bytes(b'{"x": \xff'),
        lambda home: (home / "record.json").write_text((home / "record.json").read_text().replace('"1.1"', '"1.9"')),
        lambda home: (home / "released").write_text("nan"),
        lambda home: (home / "released").unlink(),
    ],
)
def test_a_bad_file_of_one_component_ends_it_and_does_not_keep_the_site_from_opening(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.start(component("1.2"))
            await one.site.release("1.1", Go())
        spoil(one.home("1.1"))
        async with one.again() as one:
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "cannot be read" in ended.reason
            assert await one.site.held() == ("1.2",)

    asyncio.run(scenario())


def sparse(path: Path) -> None:
    """A file that takes no room and that nobody reads to its end."""
    with path.open("ab") as file:
        file.truncate(1_000 << 30)


@pytest.mark.parametrize("name", ["record.json", "released", "batch", "reservation", "ended.json"])
def test_a_file_that_is_longer_than_the_site_writes_it_is_its_jobs_failure_and_is_not_read_to_its_end(
    tmp_path: Path, name: str
) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.start(component("1.2"))
            await one.site.release("1.1", Go())
        sparse(one.home("1.1") / name)
        async with one.again() as one:
            await one.site.ask(["1.1"])
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.FAILED
            assert f"the job wrote its own {name}" in ended.reason
            assert "BYTES_MAX" in ended.reason
            assert await one.site.held() == ("1.2",)
            assert not [event for event in one.events if isinstance(event, SiteSilent)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("exit", Outcome.FAILED), ("abort", Outcome.ABORTED), ("nodes", Outcome.DONE), ("outbox/m", Outcome.DONE)],
)
def test_a_sparse_file_of_one_component_holds_up_no_poll(tmp_path: Path, name: str, outcome: Outcome) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            await one.begin("1.2")
            for token in ("1.1", "1.2"):
                await one.site.release(token, Go())
            sparse(one.home("1.1") / name)
            for token in ("1.1", "1.2"):
                if name != "exit" or token != "1.1":  # noqa: S105 - a component's
                    one.write(token, "exit", "exited 0\n")
                one.batch.set(token, "over")
            assert (await one.ended("1.2")).outcome is Outcome.DONE
            ended = await one.ended("1.1")
            assert ended.outcome is outcome
            assert ("EXIT_BYTES_MAX" in ended.reason) is (name == "exit")
            assert not [event for event in one.events if isinstance(event, SiteSilent)]

    asyncio.run(scenario())


def test_of_an_outbox_with_very_many_files_a_bounded_number_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            for number in range(3 * MAILS_MAX):
                (one.home("1.1") / f"outbox/m-{number}").write_text("x")
            await one.site.release("1.1", Go())
            await eventually(lambda: len(one.mail) == MAILS_MAX)
            one.write("1.1", "exit", "exited 0\n")
            one.batch.set("1.1", "over")
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert len(one.mail) == MAILS_MAX

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------ the site as a whole


def test_a_site_that_is_silent_opens_and_is_found_when_it_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "work").touch()
        async with PaperSite(tmp_path) as one:
            assert isinstance(one.events[0], SiteSilent)
            launch = component("1.1")
            with pytest.raises(OSError, match="this machine: "):
                await one.site.start(launch, component_script(launch))
            (tmp_path / "work").unlink()
            await one.start(launch)
            assert isinstance(one.events[-1], ComponentAccepted)
        one.play_ready("1.1")
        (tmp_path / "work").rename(tmp_path / "away")
        (tmp_path / "work").touch()
        async with one.again() as one:
            assert [type(event) for event in one.events] == [SiteSilent]
            (tmp_path / "work").unlink()
            (tmp_path / "away").rename(tmp_path / "work")
            await one.ready("1.1")

    asyncio.run(scenario())


def reasons(events: Iterable[AnyEvent]) -> list[str]:
    """What is told of the site's silences."""
    return [event.reason for event in events if isinstance(event, SiteSilent)]


def test_a_driver_that_does_not_agree_with_what_is_found_gets_no_answer_and_changes_nothing(tmp_path: Path) -> None:
    shown: list[tuple[str, ...]] = []

    def disagree(site: str, tokens: Collection[Token]) -> None:
        shown.append(tuple(sorted(tokens)))
        raise SiteError(site, "is the database the newest one?")

    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.play_end("1.1")
            await one.ended("1.1")
            await one.begin("2.1")
        with pytest.raises(SiteError, match="alpha: is the database the newest one"):
            await one.again(on_found=disagree).site.open()
        assert shown == [("1.1", "2.1")], "also the one that has ended"
        (tmp_path / "work").rename(tmp_path / "away")
        (tmp_path / "work").touch()
        async with one.again(on_found=disagree) as other:  # it is silent
            (tmp_path / "work").unlink()
            (tmp_path / "away").rename(tmp_path / "work")
            await other.until(lambda: "is the database the newest one?" in reasons(other.events))
            for call in (other.site.probe(), other.site.held(), other.site.abort("2.1"), other.site.ask(["2.1"])):
                with pytest.raises(SiteError, match="the newest one"):
                    await call
            assert {type(event) for event in other.events} == {SiteSilent}
        assert one.batch.job("2.1").read_text() == "running\n"

    asyncio.run(scenario())


def test_a_work_directory_that_is_not_mounted_is_silence_and_no_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1")
            one.root.rename(tmp_path / "away")
            (one.root / "components").mkdir(parents=True)
            await one.until(lambda: any(isinstance(event, SiteSilent) for event in one.events))
            with pytest.raises(OSError, match="not the work directory"):
                await one.site.abort("1.1")
            for path in (one.root / "components", one.root):
                path.rmdir()
            (tmp_path / "away").rename(one.root)
            assert await one.site.held() == ("1.1",)
            one.play_end("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def test_a_listing_that_fails_or_makes_no_sense_concludes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.begin("1.1", processors=2)
            job = one.batch.job("1.1")
            job.unlink()
            (one.batch.root / "total").write_text("garbage\n")
            with pytest.raises(OSError, match="makes no sense"):
                await one.site.probe()
            (one.batch.root / "down").touch()
            with pytest.raises(OSError, match="it is down"):
                await one.site.probe()
            assert await one.site.held() == ("1.1",)
            job.write_text("running\n")
            (one.batch.root / "down").unlink()
            one.batch.say(8, 3)
            report = await one.site.probe()
            assert (report.processors, report.others) == (8, 3)
            assert not one.told(ComponentEnded, "1.1")

    asyncio.run(scenario())


def test_the_walltime_counts_from_the_release_through_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        now = [100.0]
        async with PaperSite(tmp_path, clock=lambda: now[0]) as one:
            await one.begin("1.1", walltime_s=50.0)
            await one.site.release("1.1", Go())
        now[0] = 200.0
        async with one.again(clock=lambda: now[0]) as one:
            ended = await one.ended("1.1")
            assert (ended.outcome, ended.reason) == (Outcome.TIMED_OUT, "it ran longer than its walltime of 50 s")

    asyncio.run(scenario())


def test_a_claim_by_reservation_has_one_until_its_end_and_a_claim_at_once_has_none(tmp_path: Path) -> None:
    settings = BatchSettings(work_directory=str(tmp_path / "work"), claims=Claims.RESERVATION)

    async def scenario() -> None:
        async with PaperSite(tmp_path, settings=settings) as one:
            soon, later = one.now() + 1, one.now() + 600
            await one.start(component("1.1", begin_at=soon, walltime_s=60.0))
            await one.start(component("1.2", begin_at=later, walltime_s=60.0))
            (reservation,) = (one.batch.root / "reservations").iterdir()
            assert reservation.name.startswith("koala_1_2_")
            assert (one.home("1.2") / "reservation").read_text() == f"r.{reservation.name}"
            await one.site.abort("1.2")
            await one.ended("1.2")
            assert not reservation.exists()

    asyncio.run(scenario())


def test_a_site_that_is_not_open_says_so_and_does_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with PaperSite(tmp_path) as one:
            await one.start(component("1.1"))
        site = one.site
        for call in (
            site.deliver("1.1", "proxy", b"x"),
            site.release("1.1", Go()),
            site.ask(["1.1", "1.2"]),
            site.abort("1.1"),
            site.output("1.1", Stream.STDOUT, 0),
            site.held(),
            site.probe(),
        ):
            with pytest.raises(SiteError, match="not open"):
                await call

    asyncio.run(scenario())


@pytest.mark.parametrize(("through", "month_s"), [(False, None), (True, 2_592_000.0)])
def test_a_site_tells_its_time_with_each_listing_unless_it_has_ours(
    tmp_path: Path, through: bool, month_s: float | None
) -> None:
    date = tmp_path / "bin" / "date"
    date.parent.mkdir()
    date.write_text('#!/bin/sh\nexec /bin/date -d "@$(($(/bin/date +%s) + 2592000))" "$@"\n')
    date.chmod(0o755)
    words = ("env", f"PATH={date.parent}:/bin:/usr/bin") if through else ()
    settings = BatchSettings(work_directory=str(tmp_path / "work"), through=words)

    async def scenario() -> None:
        async with PaperSite(tmp_path, settings=settings, clock=time.time) as one:
            await eventually(
                lambda: one.site.calls["listing"] > 0 and (one.site.clock_ahead_s is not None) is through
            )
            assert one.site.clock_ahead_s == (None if month_s is None else pytest.approx(month_s, abs=60.0))

    asyncio.run(scenario())
