"""Directories for the sockets of ssh: private, given back, and swept when their maker was killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from koala.sites.remote_shell import RemoteShell, SocketDirectory

MAKER = """
import sys, time
from pathlib import Path
from koala.sites.remote_shell import SocketDirectory
print(SocketDirectory(Path(sys.argv[1])).path, flush=True)
time.sleep(600)
"""


def directories(above: Path) -> set[Path]:
    return {path for path in (above / f"koala-ssh-{os.getuid()}").iterdir() if path.is_dir()}


def test_each_has_its_own_which_only_the_user_sees_and_which_goes_when_it_is_given_back(tmp_path: Path) -> None:
    one, other = SocketDirectory(tmp_path), SocketDirectory(tmp_path)
    assert directories(tmp_path) == {one.path, other.path}
    for path in (one.path, one.path.parent):
        assert path.stat().st_mode & 0o077 == 0
    one.remove()
    one.remove()
    assert directories(tmp_path) == {other.path}
    other.remove()


def test_what_a_killed_process_left_goes_at_the_next_making_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        paths = [Path((maker.stdout.readline() if maker.stdout else "").strip()) for maker in makers]
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(paths[0] / "socket"))
        makers[0].send_signal(signal.SIGKILL)
        makers[0].wait()
        assert directories(tmp_path) == set(paths), "after a kill it stays"
        one = SocketDirectory(tmp_path)
        assert directories(tmp_path) == {paths[1], one.path}
        one.remove()
    finally:
        for maker in makers:
            maker.kill()
            maker.communicate()


def test_one_whose_lock_was_cleaned_away_is_not_taken_for_left_behind(tmp_path: Path) -> None:
    one = SocketDirectory(tmp_path)
    (one.path / ".lock").unlink()
    (one.path / "socket").touch()
    other = SocketDirectory(tmp_path)
    assert directories(tmp_path) == {one.path, other.path}
    one.remove()
    other.remove()


def test_a_name_that_somebody_else_has_taken_is_not_used(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (tmp_path / f"koala-ssh-{os.getuid()}").symlink_to(trap)
    one = SocketDirectory(tmp_path)
    assert one.path.parent == tmp_path
    assert one.path.stat().st_mode & 0o077 == 0
    assert not list(trap.iterdir())
    one.remove()
    assert not one.path.exists()


def test_commands_over_ssh_get_another_directory_when_theirs_was_cleaned_away() -> None:
    commands = RemoteShell(ssh="nowhere")
    path = commands._socket_directory().path
    assert commands._socket_directory().path == path
    for each in path.iterdir():
        each.unlink()
    path.rmdir()
    other = commands._socket_directory().path
    assert other.is_dir()
    del commands
    assert not other.exists(), "it goes with who used it"
