"""Texts that run on this machine, or behind other words: whole or not at all, bounded in time and size."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from koala.sites import processes
from koala.sites import remote_shell as commands
from koala.sites.remote_shell import RemoteShell, ShellError, ShellTimeoutError
from koala.sites.shell_script import FramedScript, printing


def test_a_text_has_its_environment_its_exit_code_and_nothing_on_standard_input() -> None:
    async def scenario() -> None:
        here = RemoteShell(environment={"GREETING": "it's\n$HOME"})
        answer = await here.run('echo "$GREETING"; cat; echo trouble >&2; exit 3', timeout_s=120)
        assert (answer.code, answer.stdout, answer.stderr) == (3, b"it's\n$HOME\n", b"trouble\n")

    asyncio.run(scenario())


def test_a_command_neither_has_the_drivers_secrets_nor_takes_itself_for_a_part_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SLURM_JOB_ID", "SGE_ROOT", "PE_HOSTFILE", "JOB_ID", "DRIVER_SECRET"):
        monkeypatch.setenv(name, "hunter2")

    async def scenario() -> None:
        answer = await RemoteShell(environment={"SLURM_CONF": "/x"}).run("env", timeout_s=120)
        assert b"hunter2" not in answer.stdout
        assert b"SLURM_CONF=/x\n" in answer.stdout
        assert b"PATH=" in answer.stdout

    asyncio.run(scenario())


def test_words_in_front_run_the_shell() -> None:
    async def scenario() -> None:
        answer = await RemoteShell(through=("env", "WHERE=there")).run('echo "$WHERE"', timeout_s=120)
        assert answer.stdout == b"there\n"
        with pytest.raises(ShellError, match="this machine: no-such-program"):
            await RemoteShell(through=("no-such-program",)).run("true", timeout_s=120)

    asyncio.run(scenario())


def test_a_text_of_which_a_part_is_missing_does_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        through = ("sh", "-c", f"head -c -40 | tee {tmp_path}/came | sh")
        answer = await RemoteShell(through=through).run(f"touch {tmp_path}/done", timeout_s=120)
        assert answer.code != 0
        assert "touch" in (tmp_path / "came").read_text()
        assert not (tmp_path / "done").exists()

    asyncio.run(scenario())


def test_time_that_is_up_ends_all_of_a_command_and_keeps_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        text = f"echo begun; sleep 86.1 & echo $! > {tmp_path}/pid; trap '' TERM; sleep 86.2"
        with pytest.raises(ShellTimeoutError, match="this machine: no answer within 5 s") as caught:
            await RemoteShell().run(text, timeout_s=5)
        assert caught.value.printed == b"begun\n"
        await gone((tmp_path / "pid").read_text())

    asyncio.run(scenario())


def test_a_caller_that_gives_up_ends_the_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        call = asyncio.create_task(RemoteShell().run(f"echo $$ > {tmp_path}/pid; sleep 86.3", timeout_s=600))
        async with asyncio.timeout(120):
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        await gone((tmp_path / "pid").read_text())

    asyncio.run(scenario())


async def gone(pid: str) -> None:
    """Wait until a process has ended; who should reap it does not matter."""
    async with asyncio.timeout(120):
        while True:
            try:
                state = Path(f"/proc/{pid.strip()}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return
            if state in "ZX":
                return
            await asyncio.sleep(0.02)


def test_what_a_command_may_write_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "COMMAND_OUTPUT_BYTES_MAX", 100_000)

    async def scenario() -> None:
        assert len((await RemoteShell().run("head -c 99999 /dev/zero", timeout_s=120)).stdout) == 99_999
        with pytest.raises(ShellError, match="COMMAND_OUTPUT_BYTES_MAX"):
            await RemoteShell().run("cat /dev/zero", timeout_s=120)

    asyncio.run(scenario())


def test_what_a_command_leaves_behind_does_not_hold_up_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LAST_WORDS_S", 0.1)

    async def scenario() -> None:
        async with asyncio.timeout(120):
            answer = await RemoteShell().run("sleep 600 & echo $!", timeout_s=300)
        os.kill(int(answer.stdout), signal.SIGKILL)

    asyncio.run(scenario())


def test_only_so_many_commands_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "COMMANDS_AT_A_TIME_MAX", 2)

    async def scenario() -> None:
        here = RemoteShell()
        text = f"cd {tmp_path}; : >$$; ls | wc -l; sleep 0.1; rm $$"
        answers = await asyncio.gather(*(here.run(text, timeout_s=120) for _ in range(8)))
        assert max(int(answer.stdout) for answer in answers) <= 2

    asyncio.run(scenario())


def test_every_byte_can_be_printed_by_a_shell() -> None:
    async def scenario() -> None:
        data = bytes(range(256)) + b"%d\\n'\\''"
        assert (await RemoteShell().run(printing(data), timeout_s=120)).stdout == data

    asyncio.run(scenario())


def test_what_a_login_shell_says_and_what_looks_like_a_mark_does_not_confuse_an_answer() -> None:
    async def scenario() -> None:
        script = FramedScript("koala_mark one 1\nprintf 'a\\n@x end\\n'\nkoala_mark two\n")
        answer = await RemoteShell(through=("sh", "-c", "echo welcome; exec sh")).run(script.text, timeout_s=120)
        sections = script.sections(answer.stdout)
        assert [(section.words, section.body) for section in sections] == [
            (("one", "1"), b"a\n@x end\n"),
            (("two",), b""),
            (("end",), b""),
        ]
        assert script.is_done(sections)
        assert not script.is_done(sections[:-1])

    asyncio.run(scenario())
