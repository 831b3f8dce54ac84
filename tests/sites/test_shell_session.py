"""A shell that stays open for many texts, whichever shell it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koala.sites.processes import own_environment
from koala.sites.shell_session import ShellSession
from tests.support.real_programs import real_program

LIMIT = 1_000_000


async def opened(*words: str) -> ShellSession:
    return await ShellSession.start(words, environment=own_environment(), output_bytes_max=LIMIT)


@pytest.mark.parametrize("shell", [("dash",), ("bash", "--posix"), ("busybox", "sh")])
def test_texts_of_any_length_and_content_run_one_after_the_other_in_every_shell(shell: tuple[str, ...]) -> None:
    real_program(shell[0])
    told = "x" * 200_000 + "Grüße \\ '$HOME' `id` EOF\n"

    async def scenario() -> None:
        session = await opened(*shell)
        try:
            for code in range(3):
                text = f"cat <<'EOF'\n{told}EOF\nprintf end; echo so >&2; cd /; exit {code}\n"
                done = await session.run(text, timeout_s=120, timeout_there_s=118)
                assert (done.code, done.stdout, done.stderr) == (code, f"{told}end".encode(), b"so\n")
                assert session.is_sound
        finally:
            await session.end()

    asyncio.run(scenario())


def test_a_text_of_which_a_part_is_missing_does_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = await opened("sh", "-c", f"head -c 1000 | tee {tmp_path}/came | sh")
        try:
            text = f"koala_text() {{\ntouch {tmp_path}/done\n: {'x' * 2000}\n}}\nkoala_text\n"
            done = await session.run(text, timeout_s=120, timeout_there_s=118)
            assert done.stdout == b""
            assert not session.is_sound
            assert "touch" in (tmp_path / "came").read_text()
            assert not (tmp_path / "done").exists()
        finally:
            await session.end()

    asyncio.run(scenario())


def test_time_that_is_up_there_leaves_a_sound_shell_and_time_that_is_up_here_does_not() -> None:
    async def scenario() -> None:
        session = await opened("sh")
        try:
            done = await session.run("echo begun; sleep 86.5\n", timeout_s=120, timeout_there_s=1)
            assert (done.code, done.stdout) == (124, b"begun\n")
            assert session.is_sound
            done = await session.run("echo begun; sleep 86.6\n", timeout_s=0.5, timeout_there_s=3)
            assert done.code is None
            assert not session.is_sound
        finally:
            await session.end()

    asyncio.run(scenario())


def test_what_a_text_may_write_is_limited_and_what_came_before_any_text_is_no_part_of_it() -> None:
    async def scenario() -> None:
        session = await opened("sh", "-c", "echo welcome; echo trouble >&2; exec sh")
        try:
            done = await session.run(f"head -c {LIMIT} /dev/zero\n", timeout_s=120, timeout_there_s=118)
            assert (len(done.stdout), done.stderr, session.greeting) == (LIMIT, b"", b"welcome\n")
            assert (await session.run("cat /dev/zero\n", timeout_s=120, timeout_there_s=118)).overflowed
            assert not session.is_sound
        finally:
            await session.end()

    asyncio.run(scenario())


def test_words_that_end_before_there_is_a_shell_tell_why() -> None:
    async def scenario() -> None:
        session = await opened("sh", "-c", "echo closed; echo today >&2; exit 7")
        try:
            done = await session.run("true\n", timeout_s=120, timeout_there_s=118)
            assert (done.code, done.stdout, done.stderr) == (7, b"closed\n", b"today\n")
            assert session.has_left
        finally:
            await session.end()

    asyncio.run(scenario())
