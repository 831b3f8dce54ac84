"""A component whose directory cannot be written: what it has to say is tried again, and nothing is held in silence.

A link to /dev/full stands for a file for which there is no room; whoever removes it makes room.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from koala.model.launch import Go, Launch
from koala.model.messages import Outcome
from koala.runners import component_script
from koala.runners.script import EXIT_UNWRITTEN, ScriptTimings
from tests.support.live_fixtures import no_process_is_left
from tests.support.live_sites import launch, opened
from tests.support.real_programs import real_program

__all__ = ["no_process_is_left"]

WAIT_S = 120.0
HASTY = ScriptTimings(write_tenths=3)

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")


@pytest.fixture(params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    return [real_program(request.param), *(["sh"] if request.param == "busybox" else [])]


def _home(tmp_path: Path, one: Launch, *full: str) -> Path:
    """The directory of a component that is released already, without room for these files."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "script").write_text(component_script(one, HASTY))
    (home / "go").write_text(Go().text)
    for name in full:
        (home / name).symlink_to("/dev/full")
    return home


def _start(shell: list[str], home: Path) -> subprocess.Popen[bytes]:
    with (home / "log").open("ab") as log:
        return subprocess.Popen([*shell, "./script"], cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _until_logged(home: Path, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in (home / "log").read_text():
        assert time.monotonic() < deadline, (home / "log").read_text()
        time.sleep(0.02)


def test_an_exit_that_cannot_be_written_waits_for_room(tmp_path: Path, shell: list[str]) -> None:
    home = _home(tmp_path, launch(application="echo x >>runs"), ".exit.new")
    with _start(shell, home) as script:
        _until_logged(home, "exit cannot be written")
        with pytest.raises(subprocess.TimeoutExpired):
            script.wait(HASTY.write_tenths / 10 + 0.7)  # longer than anything else is tried
        assert not (home / "exit").exists()
        (home / ".exit.new").unlink()
        assert script.wait(WAIT_S) == 0
    assert (home / "exit").read_text() == "exited 0\n"
    assert (home / "workspace" / "runs").read_text() == "x\n"


@pytest.mark.parametrize("how", ["abort", "gone"])
def test_an_exit_that_cannot_be_written_waits_no_longer_than_somebody_wants_it(tmp_path: Path, how: str) -> None:
    home = _home(tmp_path, launch(), ".exit.new")
    with _start(["sh"], home) as script:
        _until_logged(home, "exit cannot be written")
        if how == "abort":
            (home / "abort").touch()
        else:
            home.rename(tmp_path / "elsewhere")
        assert script.wait(WAIT_S) == EXIT_UNWRITTEN


@pytest.mark.parametrize(("name", "blocked"), [("ready", ".ready.new"), ("nodes", "nodes")])
def test_a_component_that_cannot_say_that_it_is_ready_gives_up_with_a_reason(
    tmp_path: Path, shell: list[str], name: str, blocked: str
) -> None:
    home = _home(tmp_path, launch(application="echo x >>runs"), blocked)
    with _start(shell, home) as script:
        assert script.wait(WAIT_S) == EXIT_UNWRITTEN
    assert (home / "exit").read_text() == "unwritten\n"
    assert f"{name} cannot be written" in (home / "log").read_text()
    assert not (home / "workspace" / "runs").exists(), "what nobody could hear of has not run"


@pytest.mark.parametrize("name", ["job-script", "stderr"])
def test_a_component_without_room_for_what_its_application_needs_does_not_blame_the_application(
    tmp_path: Path, shell: list[str], name: str
) -> None:
    home = _home(tmp_path, launch())
    (home / name).mkdir()  # nothing can be written where a directory is
    with _start(shell, home) as script:
        assert script.wait(WAIT_S) == EXIT_UNWRITTEN
    assert (home / "exit").read_text() == "unwritten\n"


def test_a_directory_in_which_no_process_can_be_noted_is_not_taken_for_a_second_start(
    tmp_path: Path, shell: list[str]
) -> None:
    home = _home(tmp_path, launch())
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ln").write_text("#!/bin/sh\nexit 1\n")  # as on a disk that is read-only
    (programs / "ln").chmod(0o755)
    script = f"PATH={programs}:$PATH\n" + (home / "script").read_text()
    (home / "script").write_text(script)
    with _start(shell, home) as started:
        assert started.wait(WAIT_S) == EXIT_UNWRITTEN


@pytest.mark.parametrize("also", [(), (".exit.new",)])
def test_a_site_gives_the_slot_of_a_component_that_cannot_be_ready_to_the_next(
    tmp_path: Path, also: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            one.site.others_file.write_text("1")
            await one.site.probe()
            mine = launch()
            await one.site.start(mine, component_script(mine, HASTY))
            for name in (".ready.new", *also):
                (tmp_path / "a" / "components" / "1.1" / name).symlink_to("/dev/full")
            one.site.others_file.write_text("0")
            await one.site.probe()
            ended = await one.ended("1.1")
            assert ended.outcome is Outcome.SITE_FAILED
            assert "directory" in ended.reason
            assert one.site.processors_held == 0
            await one.start(launch("1.2"))
            await one.ready("1.2")
            await one.site.release("1.2", Go())
            assert (await one.ended("1.2")).outcome is Outcome.DONE

    asyncio.run(scenario())
