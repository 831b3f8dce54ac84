"""``koala up --detach`` and ``koala down``, the grid that a state remembers, and a daemon that cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.cli.daemon.background import running_pid, stop
from koala.cli.errors import FailedError, UserError
from koala.client import Client
from tests.support.live_daemon import WAIT_S
from tests.support.warm_koala import start_koala

GRID = "name: mine\nsites:\n  here: {processors: 3, kind: local}\n"


@pytest.fixture
def state() -> Iterator[Path]:
    """A short path for a state; a daemon that a test leaves behind is ended."""
    with tempfile.TemporaryDirectory(prefix="koala-bg-") as directory:
        path = Path(directory).resolve() / "state"
        yield path
        if (path / "lock").exists() and (pid := running_pid(path)) is not None:
            os.kill(pid, signal.SIGKILL)


def run(*arguments: str, code: int = 0, from_file: bool = False) -> subprocess.CompletedProcess[str]:
    if from_file:
        # With pipes: this does not return while a daemon in the background keeps one of them open.
        command = [sys.executable, "-m", "koala", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    else:
        done = run_forked(arguments)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def run_forked(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        process = start_koala(
            arguments, stdin=nothing.fileno(), stdout=out.fileno(), stderr=err.fileno(), env=os.environ
        )
        try:
            ended = process.wait(2 * WAIT_S)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, ended, out.read(), err.read())


def test_a_daemon_in_the_background_answers_at_once_and_is_stopped_by_down(state: Path) -> None:
    greeted = run("up", "--detach", "--state", str(state), from_file=True).stdout
    pid = running_pid(state)
    assert pid is not None
    assert f"process    {pid}," in greeted
    assert f"koala down --state {state} stops the daemon" in greeted
    with Client(f"unix:{state}/koala.sock", patience_s=0) as client:
        assert client.ready().status == "ok"
    assert f"process {pid}" in run("down", "--state", str(state), from_file=True).stdout
    assert running_pid(state) is None
    assert "No daemon runs" in run("down", "--state", str(state)).stdout


def test_a_daemon_that_cannot_start_in_the_background_says_why_with_its_code(state: Path) -> None:
    run("up", "--detach", "--state", str(state))
    second = run("up", "--detach", "--state", str(state), code=2)
    assert "another daemon" in second.stderr
    assert second.stdout == ""
    stop(state)
    unreachable = run("up", "--detach", "--state", str(state), "--database", "postgresql://x@127.0.0.1:1/x", code=4)
    assert "127.0.0.1" in unreachable.stderr
    assert unreachable.stderr.count("Error:") == 1, "what was in the log before is not told again"


def test_a_state_goes_on_with_the_grid_of_its_last_start(state: Path, tmp_path: Path) -> None:
    grid = tmp_path / "mine.yaml"
    grid.write_text(GRID)
    assert (
        "koala is up: mine, 1 site, 3 processors"
        in run("up", "--detach", "--state", str(state), "--grid", str(grid)).stdout
    )
    stop(state)
    grid.unlink()
    again = run("up", "--detach", "--state", str(state)).stdout
    assert "koala is up: mine, 1 site, 3 processors" in again
    assert f"grid       {state}/grid.yaml, from the last start" in again
    stop(state)
    assert "koala is up: embedded" in run("up", "--detach", "--state", str(state), "--grid", "embedded").stdout
    stop(state)
    assert (state / "grid.yaml").read_text() != GRID, "each start is remembered"


def test_a_directory_without_a_daemon_cannot_be_taken_down(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--state"):
        running_pid(tmp_path)
    result = CliRunner().invoke(koala, ["down", "--state", str(tmp_path)])
    assert result.exit_code == 2


def test_a_daemon_that_does_not_stop_is_told_of(tmp_path: Path) -> None:
    hold = (
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=file, flush=True)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "held\n"
        with pytest.raises(FailedError, match=f"kill -9 {stubborn.pid}"):
            stop(tmp_path, within_s=0.2)
        assert stubborn.poll() is None
        stubborn.kill()
    assert stop(tmp_path) is None
