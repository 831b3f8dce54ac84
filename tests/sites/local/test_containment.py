"""A slot is idle only when nothing of its component is left, however its processes try to get away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from koala.model.launch import Go
from koala.model.messages import Outcome
from koala.sites import processes
from koala.sites.control_groups import GROUP, group_in, group_name, hierarchy, kill_group
from koala.sites.local import supervisor as program
from tests.support.live_sites import file_appears, launch, opened, processes_of

# A process in a session of its own, an orphan with nothing in its environment, that notes its number in a file.
GET_AWAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 600', sys.argv[1]], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


def _get_away(pid_file: Path) -> str:
    return shlex.join([sys.executable, "-c", GET_AWAY, str(pid_file)])


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _supervisor_of(home: Path, census: processes.Census) -> int:
    (supervisor,) = [pid for pid, each in census.supervised.items() if each == home]
    return supervisor


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "away"


@pytest.mark.parametrize("then", ["exit 0", "kill -KILL $PPID", 'rm -rf "$KOALA_HOME"; sleep 600'])
def test_a_slot_is_idle_only_when_what_left_its_session_and_environment_is_gone(
    tmp_path: Path, pid_file: Path, then: str
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            await one.start(launch(application=f"{_get_away(pid_file)}; {then}"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            ended = await one.ended("1.1")
            assert ended.outcome is (Outcome.DONE if then == "exit 0" else Outcome.SITE_FAILED)
            assert not _is_there(int(pid_file.read_text()))
            assert one.site.processors_held == 0

    asyncio.run(scenario())


def test_an_abort_reaches_what_left_its_session_and_environment(tmp_path: Path, pid_file: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            await one.start(launch(application=f"{_get_away(pid_file)}; sleep 600"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(pid_file)
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            assert not _is_there(int(pid_file.read_text()))

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["while nobody watches", "afterwards"])
def test_a_component_is_contained_also_when_its_site_was_closed_meanwhile(
    tmp_path: Path, pid_file: Path, end: str
) -> None:
    async def scenario() -> None:
        gate = tmp_path / "gate"
        async with opened(tmp_path / "a", 1) as one:
            script = f"{_get_away(pid_file)}; until [ -e {gate} ]; do sleep 0.02; done"
            await one.start(launch(application=script))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(pid_file)
        if end == "while nobody watches":
            gate.touch()
            async with asyncio.timeout(120.0):
                while _is_there(int(pid_file.read_text())):
                    await asyncio.sleep(0.02)
        async with opened(tmp_path / "a", 1) as again:
            assert _is_there(int(pid_file.read_text())) is (end == "afterwards")
            gate.touch()
            assert (await again.ended("1.1")).outcome is Outcome.DONE
            assert not _is_there(int(pid_file.read_text()))

    asyncio.run(scenario())


def test_a_supervisor_that_its_own_component_stops_goes_on(tmp_path: Path, pid_file: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            await one.start(launch(application=f"{_get_away(pid_file)}; sleep 600"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(pid_file)
            home = (tmp_path / "a" / "components" / "1.1").resolve()
            supervisor = _supervisor_of(home, processes.Census())
            os.kill(supervisor, signal.SIGSTOP)
            await one.site.abort("1.1")
            await one.ended("1.1")
            assert not _is_there(int(pid_file.read_text()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGCONT)

    asyncio.run(scenario())


def test_the_supervisor_and_the_site_know_each_other_by_the_same_names() -> None:
    assert (program.SUPERVISES, program.MARKER) == (processes.SUPERVISES, processes.MARKER)
    assert program.GROUP == GROUP


def test_an_abort_ends_a_component_whose_supervisor_was_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            await one.start(launch(application=f"touch {tmp_path}/on; sleep 600"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(tmp_path / "on")
            home = (tmp_path / "a" / "components" / "1.1").resolve()
            os.kill(_supervisor_of(home, processes.Census()), signal.SIGKILL)
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            assert not processes_of(tmp_path)

    asyncio.run(scenario())


@pytest.fixture
def control_groups() -> Path:
    """Where this machine has its control groups; skips the test where it gives none to this user."""
    probe = program.ControlGroup(f"koala-probe-{os.getpid()}")
    root = hierarchy()
    if not probe.is_used or root is None:
        pytest.skip("this machine gives its users no control groups (cgroup v2)")
    probe.remove()
    return root


def test_an_abort_reaches_all_of_a_control_group_also_after_the_supervisor_was_killed(
    tmp_path: Path, pid_file: Path, control_groups: Path
) -> None:
    """Without a group, what left its session and environment can be known no more."""

    async def scenario() -> None:
        async with opened(tmp_path / "a", 1) as one:
            await one.start(launch(application=f"{_get_away(pid_file)}; sleep 600"))
            await one.ready("1.1")
            await one.site.release("1.1", Go())
            await file_appears(pid_file)
            away = int(pid_file.read_text())
            home = (tmp_path / "a" / "components" / "1.1").resolve()
            census = processes.Census()
            group = census.groups[away]
            supervisor = _supervisor_of(home, census)
            assert group.endswith(f"/{group_name(home)}")
            assert (control_groups / group.lstrip("/")).exists()
            assert supervisor not in census.groups
            os.kill(supervisor, signal.SIGKILL)
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED
            try:
                assert not _is_there(away)
                assert not (control_groups / group.lstrip("/")).exists()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(away, signal.SIGKILL)

    asyncio.run(scenario())


def hierarchy_at(root: Path, group: str) -> tuple[str, str]:
    """Files that stand for /proc/self/mounts and /proc/self/cgroup of a process in a group of this hierarchy."""
    mounts, own = root.parent / "mounts", root.parent / "own"
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup2 {root} cgroup2 rw 0 0\n")
    own.write_text(f"4:memory:/elsewhere\n0::{group}\n")
    return str(mounts), str(own)


def test_a_control_group_holds_what_is_started_between_entering_and_leaving(tmp_path: Path) -> None:
    root, name = tmp_path / "tree", "koala-component-1"
    (root / name).mkdir(parents=True)
    for path in (root, root / name):
        (path / "cgroup.procs").touch()
        (path / "cgroup.kill").touch()
    mounts, own = hierarchy_at(root, "/")
    group = program.ControlGroup(name, mounts=mounts, own=own)
    group.enter()
    assert (root / name / "cgroup.procs").read_text() == str(os.getpid())
    assert (root / "cgroup.procs").read_text() == ""
    group.leave()
    assert (root / "cgroup.procs").read_text() == str(os.getpid())
    group.kill()
    assert (group.is_used, (root / name / "cgroup.kill").read_text()) == (True, "1")
    (root / name / "cgroup.kill").write_text("")
    kill_group(f"/{name}", Path(mounts))
    assert (root / name / "cgroup.kill").read_text() == "1"


@pytest.mark.parametrize(
    "lacks", ["a mount", "a group", "the right to make one", "cgroup.kill", "delegation", "a name"]
)
def test_where_no_control_group_may_be_had_there_is_none_and_nothing_is_written(tmp_path: Path, lacks: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    if lacks != "the right to make one":
        (root / "cgroup.procs").touch()
    mounts, own = hierarchy_at(root, "/")
    if lacks == "a mount":
        Path(mounts).write_text("proc /proc proc rw 0 0\n")
    elif lacks == "a group":
        Path(own).write_text("4:memory:/\n")
    elif lacks == "delegation":
        (root / "service").mkdir()
        Path(own).write_text("0::/service\n")
    group = program.ControlGroup("" if lacks == "a name" else "koala-component-1", mounts=mounts, own=own)
    group.enter()
    group.leave()
    group.kill()
    group.remove()
    assert not group.is_used
    assert all(path.read_text() == "" for path in root.rglob("cgroup.*"))


def test_the_group_of_a_process_is_that_of_its_component_also_in_a_group_below_it(tmp_path: Path) -> None:
    name = group_name(tmp_path)
    assert group_in(f"1:cpu:/\n0::/user.slice/{name}/made/by/it\n") == f"/user.slice/{name}"
    assert group_in(f"0::/{name}\n") == f"/{name}"
    assert [group_in(text) for text in ("", "0::/\n", "0::/user.slice\n", f"3:memory:/{name}\n")] == [""] * 4
