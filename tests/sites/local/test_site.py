"""The embedded site with real processes: from acceptance to the end, and every way to end early."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
from pathlib import Path

import pytest

from koala.model.launch import MAIL_BYTES_MAX, Go, LaunchError
from koala.model.messages import (
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    Outcome,
)
from koala.model.request import Application
from koala.sites import SiteError, Stream
from koala.sites.protocol import OUTPUT_BYTES_MAX
from tests.support.live_sites import all_gone, file_appears, launch, opened, processes_of


def test_a_component_is_accepted_then_ready_then_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application="echo hello; echo trouble >&2"))
            assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0)
            assert [type(event) for event in one.events] == [ComponentAccepted, ComponentReady, ComponentEnded]
            assert await one.stdout() == "hello\n"
            assert await one.site.output("1.1", Stream.STDERR, 0) == b"trouble\n"
            assert one.site.processors_held == 0
            assert one.as_site().name == "a"

    asyncio.run(scenario())


@pytest.mark.parametrize(("text", "code"), [("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)])
def test_an_application_that_fails_is_reported_with_its_exit_code(tmp_path: Path, text: str, code: int) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application=text))
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, code)
            assert str(code) in ended.reason

    asyncio.run(scenario())


# It computes in a process of its own, and has its memory until it was seen.
BUSY = f"""#!{sys.executable}
import glob, os, pathlib, time
if os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
held = b"x" * (64 << 20)
while time.process_time() < 0.5:
    pass
def looked():
    found = glob.glob(os.environ["KOALA_HOME"] + "/.memory-*")
    return any(int((pathlib.Path(each).read_text().split() or [0])[0]) > 65_536 for each in found)
while not looked():
    time.sleep(0.02)
"""


def test_the_processor_time_and_the_memory_of_an_application_are_told_with_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application=BUSY))
            assert ended.outcome is Outcome.DONE, await one.site.output("1.1", Stream.STDERR, 0)
            assert ended.processor_s is not None
            assert ended.processor_s >= 0.5
            assert ended.peak_memory_bytes is not None
            assert 64 << 20 < ended.peak_memory_bytes < 1 << 30

    asyncio.run(scenario())


LIES = (
    "echo 08 08 >$KOALA_HOME/.usage-1",
    "mkdir $KOALA_HOME/usage",
    "mkfifo $KOALA_HOME/.usage-1",
    "head -c 9000000 /dev/zero >$KOALA_HOME/.usage-1",
)


@pytest.mark.parametrize("lie", LIES)
def test_what_an_application_writes_into_the_record_of_what_it_used_harms_nobody(tmp_path: Path, lie: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application=lie))
            assert (ended.outcome, ended.processor_s, ended.peak_memory_bytes) == (Outcome.DONE, None, None)

    asyncio.run(scenario())


def test_a_program_that_is_not_there_fails_and_says_so_on_its_standard_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application=Application(executable="no-such-program")))
            assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 127)
            assert b"no-such-program" in await one.site.output("1.1", Stream.STDERR, 0)
            assert "no-such-program" in ended.stderr_line

    asyncio.run(scenario())


def test_output_can_be_read_while_it_is_written_and_piece_by_piece(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            gate = tmp_path / "gate"
            script = f"echo first; touch {tmp_path}/written; while [ ! -e {gate} ]; do sleep 0.3; done; echo second"
            await one.start(launch(application=script))
            await one.ready("1.1")
            assert await one.stdout() == ""
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "written")
            assert await one.stdout() == "first\n"
            gate.touch()
            await one.ended("1.1")
            assert await one.site.output("1.1", Stream.STDOUT, 6) == b"second\n"
            assert await one.site.output("1.1", Stream.STDOUT, 6, 3) == b"sec"
            assert await one.site.output("1.1", Stream.STDOUT, 99) == b""

    asyncio.run(scenario())


def test_one_answer_of_output_has_a_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch(application=f"head -c {OUTPUT_BYTES_MAX + 5} /dev/zero"))
            assert len(await one.site.output("1.1", Stream.STDOUT, 0, 2 * OUTPUT_BYTES_MAX)) == OUTPUT_BYTES_MAX
            assert len(await one.site.output("1.1", Stream.STDOUT, OUTPUT_BYTES_MAX)) == 5
            with pytest.raises(SiteError, match=r"no component 9\.9 here"):
                await one.site.output("9.9", Stream.STDOUT, 0)

    asyncio.run(scenario())


def test_streams_go_where_the_application_names_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        application = Application(
            executable="sh",
            arguments=("-c", "cat; pwd; echo e >&2"),
            directory="run",
            stdin="in",
            stdout="o",
            stderr="o",
        )
        async with opened(tmp_path / "a") as one:
            await one.start(launch(application=application))
            await one.ready("1.1")
            work = tmp_path / "a/components/1.1/workspace"
            (work / "run").mkdir()
            (work / "run/in").write_text("given\n")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.DONE
            assert await one.stdout() == f"given\n{work.resolve()}/run\ne\n"
            assert await one.site.output("1.1", Stream.STDERR, 0) == (await one.stdout()).encode()

    asyncio.run(scenario())


def test_a_file_for_errors_that_cannot_be_opened_is_told_in_the_output_of_errors(tmp_path: Path) -> None:
    async def scenario() -> None:
        application = Application(executable="true", stderr="/dev/null/errors")
        async with opened(tmp_path / "a") as one:
            await one.start(launch(application=application))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.FAILED
            assert b"/dev/null/errors" in await one.site.output("1.1", Stream.STDERR, 0)

    asyncio.run(scenario())


# --------------------------------------------------------------------------------------------- tokens


def test_the_same_token_twice_starts_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with opened(tmp_path / "a") as one:
            again = launch(application=f"echo ran >> {log}")
            await one.start(again, again)
            await one.ready("1.1")
            await one.start(again)
            assert isinstance(one.events[-1], ComponentReady)
            await one.site.release("1.1", Go())
            await one.ended("1.1")
            await one.start(again)
            assert isinstance(one.events[-1], ComponentEnded)
            assert log.read_text() == "ran\n"

    asyncio.run(scenario())


def test_a_token_aborted_or_asked_about_before_it_came_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.site.abort("1.1")
            await one.site.ask(["1.2"])
            assert [e.outcome for e in one.events if isinstance(e, ComponentEnded)] == [
                Outcome.ABORTED,
                Outcome.ABSENT,
            ]
        async with opened(tmp_path / "a") as one:
            for token in ("1.1", "1.2"):
                await one.start(launch(token))
                assert (await one.ended(token)).outcome is Outcome.REFUSED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_a_component_larger_than_the_site_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=2) as one:
            await one.start(launch(processors=3))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.REFUSED
            assert "3 processors" in ended.reason

    asyncio.run(scenario())


def test_a_site_that_is_asked_repeats_the_newest_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1", "sleep 60"), launch("1.2"))
            await one.ready("1.1")
            await one.site.ask(["1.2", "1.1"])
            assert [type(event) for event in one.events[-2:]] == [ComponentAccepted, ComponentReady]
            await one.site.release("1.1", Go())
            await one.site.ask(["1.1"])
            assert isinstance(one.events[-1], ComponentRunning)
            for token in ("1.1", "1.2"):
                await one.site.abort(token)
            ended = await one.ended("1.1")
            await one.site.ask(["1.1"])
            assert one.told(ComponentEnded, "1.1") == [ended, ended]

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["", "../x", "a/b", ".hidden", "x" * 129, "a b", "a\n"])
def test_a_token_that_could_leave_the_directory_is_not_taken(tmp_path: Path, token: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            with pytest.raises(LaunchError, match="token"):
                await one.site.abort(token)

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------- aborts


def test_an_abort_in_the_queue_ends_it_at_once_and_it_never_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.1"), launch("1.2"))
            await one.site.abort("1.2")
            (ended,) = (event for event in one.events if isinstance(event, ComponentEnded))
            assert (ended.token, ended.outcome) == ("1.2", Outcome.ABORTED)
            await one.ready("1.1")
            await one.site.abort("1.1")
            await one.ended("1.1")
            assert not (tmp_path / "a/components/1.2/pid").exists()

    asyncio.run(scenario())


@pytest.mark.parametrize("wait_for_barrier", [True, False])
def test_an_abort_before_the_release_means_that_a_later_release_does_nothing(
    tmp_path: Path, wait_for_barrier: bool
) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with opened(tmp_path / "a") as one:
            await one.start(launch(application=f"echo ran >> {log}"))
            if wait_for_barrier:
                await one.ready("1.1")
            await one.site.abort("1.1")
            await one.site.release("1.1", Go())
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            assert one.site.processors_held == 0
        assert not log.exists()

    asyncio.run(scenario())


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "], ids=["listens to SIGTERM", "ignores SIGTERM"])
def test_an_abort_during_the_run_ends_every_process_also_those_in_other_sessions(
    tmp_path: Path, stubborn: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", grace_s=0.3) as one:
            script = f"{stubborn}setsid sleep 61 & (sleep 62 &) ; touch {tmp_path}/on; sleep 63; sleep 64"
            await one.start(launch(application=script))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            await one.site.abort("1.1")
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_an_abort_after_the_end_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application="exit 4"))
            await one.site.abort("1.1")
            assert one.events[-1] == ended

    asyncio.run(scenario())


def test_what_an_application_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application="setsid sleep 65 & sleep 66 &"))
            assert ended.outcome is Outcome.DONE
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


def test_the_walltime_counts_from_the_release_and_ends_the_component(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            ended = await one.run(launch(application="sleep 60", walltime_s=0.3))
            assert ended.outcome is Outcome.TIMED_OUT
            assert "0.3 s" in ended.reason

    asyncio.run(scenario())


def test_a_component_that_is_forgotten_at_the_barrier_ends_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch(barrier_timeout_s=0.4))
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.ABORTED
            assert "barrier timeout" in ended.reason

    asyncio.run(scenario())


@pytest.mark.parametrize("released", [False, True])
def test_a_component_that_is_killed_without_a_word_is_a_failure_of_the_site(tmp_path: Path, released: bool) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.start(launch(application=f"touch {tmp_path}/on; sleep 67"))
            await one.ready("1.1")
            if released:
                await one.site.release("1.1", Go())
                await file_appears(tmp_path / "on")
            os.kill(int((tmp_path / "a/components/1.1/pid").read_text().split()[0]), signal.SIGKILL)
            assert (await one.ended("1.1")).outcome is Outcome.SITE_FAILED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


# --------------------------------------------------------------------------------- barrier, slots, mail


def test_no_application_starts_before_its_release(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
            await one.start(launch("1.1", f"echo one >> {log}", parts=2))
            await two.start(launch("1.2", f"echo two >> {log}", part=1, parts=2))
            await one.ready("1.1")
            await two.ready("1.2")
            # On both sites another component lives from its start to its end meanwhile.
            assert (await one.run(launch("2.1"))).outcome is Outcome.DONE
            assert (await two.run(launch("2.2"))).outcome is Outcome.DONE
            with log.open("a") as lines:
                lines.write("released\n")
            await one.site.release("1.1", Go())
            await two.site.release("1.2", Go())
            await one.ended("1.1")
            await two.ended("1.2")
            first, *others = log.read_text().split()
            assert first == "released"
            assert sorted(others) == ["one", "two"]

    asyncio.run(scenario())


def test_slots_are_all_used_at_once_and_never_exceeded(tmp_path: Path) -> None:
    rng = random.Random(20)
    log = tmp_path / "log"
    slots = 5
    # The first components end only when all have begun, so they must have all slots at the same time.
    meet = f"until [ $(grep -c ^1 {log}) -ge {slots} ]; do sleep 0.02; done"
    sizes = [1] * slots + [rng.randint(1, slots) for _ in range(20)]

    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=slots) as one:
            for number, size in enumerate(sizes):
                wait = meet if number < slots else f"sleep 0.{rng.randint(0, 2)}"
                text = f"echo {size} >> {log}; {wait}; echo -{size} >> {log}"
                await one.start(launch(f"1.{number}", text, processors=size))
                # Released early, so that each runs as soon as it has its slots.
                await one.site.release(f"1.{number}", Go())
                assert one.site.processors_held <= slots
            for number in range(len(sizes)):
                assert (await one.ended(f"1.{number}")).outcome is Outcome.DONE

    asyncio.run(scenario())
    held = peak = 0
    for change in map(int, log.read_text().split()):
        held += change
        peak = max(peak, held)
    assert held == 0
    assert peak == slots


@pytest.mark.parametrize("first_fit", [True, False])
def test_a_small_component_passes_a_large_one_only_with_first_fit(tmp_path: Path, first_fit: bool) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=2, first_fit=first_fit) as one:
            await one.start(launch("1.1"), launch("1.2", processors=2), launch("1.3"))
            assert one.site.processors_held == (2 if first_fit else 1)
            for token in ("1.3", "1.2", "1.1"):
                await one.site.abort(token)
            for token in ("1.3", "1.2", "1.1"):
                await one.ended(token)

    asyncio.run(scenario())


def test_mail_comes_out_once_for_each_opening_and_goes_in_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        wait = 'until [ -e "$KOALA_HOME/inbox/reply" ]; do sleep 0.3; done; cat "$KOALA_HOME/inbox/reply"'
        async with opened(tmp_path / "a") as one:
            text = f'cd "$KOALA_HOME/outbox"; echo ask > .new; mv .new question; {wait}'
            await one.start(launch(application=text))
            await one.ready("1.1")
            assert await one.site.fetch("1.1", "question") is None
            await one.site.release("1.1", Go())
            await one.until(lambda: bool(one.mail))
        async with opened(tmp_path / "a") as one:
            await one.until(lambda: bool(one.mail))
            assert [(mail.name, mail.data) for mail in one.mail] == [("question", b"ask\n")]
            assert await one.site.fetch("1.1", "question") == b"ask\n"
            with pytest.raises(LaunchError, match="MAIL_BYTES_MAX"):
                await one.site.deliver("1.1", "reply", b"x" * (MAIL_BYTES_MAX + 1))
            with pytest.raises(LaunchError, match="not a name for mail"):
                await one.site.deliver("1.1", "../go", b"")
            await one.site.deliver("1.1", "reply", b"the first stands\n")
            await one.site.deliver("1.1", "reply", b"not the second\n")
            await one.ended("1.1")
            assert await one.stdout() == "the first stands\n"

    asyncio.run(scenario())


def test_a_component_inherits_no_secrets_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVER_SECRET", "hunter2")

    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch(application="env"))
            names = set(re.findall(r"^(\w+)=", await one.stdout(), re.MULTILINE))
            assert "PATH" in names
            assert "DRIVER_SECRET" not in names

    asyncio.run(scenario())


def test_a_site_that_another_driver_holds_cannot_be_opened(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a"):
            with pytest.raises(SiteError, match="in use by another driver"):
                async with opened(tmp_path / "a"):
                    pass
        async with opened(tmp_path / "a"):
            pass

    asyncio.run(scenario())


def test_an_idle_site_uses_no_processor_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a") as one:
            await one.run(launch())
            used_s = []
            for _ in range(3):  # what else runs in this process may use some in one of them
                before = sum(os.times()[:2])
                await asyncio.sleep(0.5)
                used_s.append(sum(os.times()[:2]) - before)
            assert min(used_s) < 0.1, used_s

    asyncio.run(scenario())
    assert all_gone(tmp_path)
