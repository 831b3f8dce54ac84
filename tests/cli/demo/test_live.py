"""``koala demo`` itself: real runs, what they tell, and that nothing of them is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.cli.daemon.background import running_pid
from koala.cli.demo.daemon import SOCKET_PATH_BYTES_MAX, DemoDaemon
from koala.cli.demo.live import mpi_is_installed, show_live
from koala.cli.errors import FailedError
from koala.client import Client
from tests.support.koala_in_scripts import FORKING_PYTHON, koala_for_scripts
from tests.support.live_cli import Terminal
from tests.support.live_daemon import Daemon, processes_below, until
from tests.support.paths import SUPPORT
from tests.support.warm_koala import LimitedReader, WarmProcess, start_koala

RUN_S_MAX = 240.0
DEMO_CHILD = SUPPORT / "demo_child.py"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo makes its directory, as short as a socket's path must be; empty again after every test."""
    made = Path(tempfile.mkdtemp(prefix="kd-")).resolve()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("COLUMNS", "80")
    try:
        yield made
        left, files = processes_below(made), [path.name for path in made.iterdir()]
        assert left == [], "the demo left processes behind"
        assert files == [], "the demo left files behind"
    finally:
        for pid in processes_below(made):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def forked(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that runs demos whose daemons are forked instead of started, in this process too; without MPI.
    None of these daemons may run on at the end."""
    with tempfile.TemporaryDirectory() as directory, koala_for_scripts(Path(directory)) as folder:
        python = str(folder / FORKING_PYTHON)
        monkeypatch.setenv("KOALA_TEST_PYTHON", python)
        monkeypatch.setattr("koala.cli.demo.daemon.sys", SimpleNamespace(executable=python))
        yield DEMO_CHILD


@contextlib.contextmanager
def begun(program: Path | None = None) -> Iterator[tuple[WarmProcess, LimitedReader, IO[str]]]:
    """The demo, what it says in a pipe, and the file of its errors; killed at the end if it runs still, which no test
    wants."""
    reading, writing = os.pipe()
    lines = LimitedReader(reading)
    with contextlib.closing(lines), tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        with Path(os.devnull).open("rb") as nothing, os.fdopen(writing, "wb") as output:
            process = start_koala(
                ["demo"],
                stdin=nothing.fileno(),
                stdout=output.fileno(),
                stderr=errors.fileno(),
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                program=program,
            )
        try:
            yield process, lines, errors
        finally:
            process.kill()


def ended(process: WarmProcess, lines: LimitedReader, errors: IO[str]) -> tuple[int, str]:
    """The exit code of a demo that was begun, and its errors. What else it says is read, or it could not end."""
    lines.read()
    code = process.wait(RUN_S_MAX)
    errors.seek(0)
    return code, errors.read()


def read_until(lines: LimitedReader, text: str) -> None:
    for line in lines:
        if text in line:
            return
    pytest.fail(f"the demo ended without saying {text!r}")


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["name"]: job for job in document["jobs"]}


def test_it_splits_preempts_and_restarts_for_real_and_can_be_kept(temporary: Path) -> None:
    demo = [sys.executable, "-m", "koala", "demo", "--keep", "--json"]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    kept = document["kept"]
    try:
        check_the_story(document)
        with Client(kept["server"]) as client:
            assert client.ready().status == "ok"
            assert {job.state for job in client.each_job()} == {"done"}
        assert kept["dashboard"].startswith("http://127.0.0.1:")
    finally:
        with Client(kept["server"]) as client:
            client.submit("name: late\nprocessors: 1\napplication: {script: sleep 1000}\n")
        ended = CliRunner().invoke(koala, ["demo", "--end", kept["directory"]])
        assert ended.exit_code == 0, ended.output
        assert "is gone" in ended.stdout


def check_the_story(document: dict[str, Any]) -> None:
    jobs = by_name(document)
    if os.environ.get("CI"):
        assert document["mpi"], "CI installs the extra mpi, so the demo must run its MPI job"
    first = document["jobs"][0]
    assert first["name"] == ("laplace" if document["mpi"] else "pair")
    assert sorted((place["site"], place["processors"]) for place in first["places"]) == [
        ("amsterdam", 4),
        ("berlin", 4),
    ]
    assert first["wait_s"] > 0, "it waited for its file"
    if document["mpi"]:
        assert "8, 2 x 4" in document["printed"]
        assert "2, with 4 + 4 processes" in document["printed"]
        assert "equal to the serial solution" in document["printed"]
    assert [(job["outcome"], job["exit_code"]) for job in document["jobs"]] == [("done", 0)] * 4
    assert {name: job["preemptions"] for name, job in jobs.items() if job["preemptions"]} == {"sweep": 1}
    assert {name: job["failures"] for name, job in jobs.items() if job["failures"]} == {"fragile": 1}
    assert {name: job["runs"] for name, job in jobs.items()} == {
        first["name"]: 1,
        "alarm": 1,
        "sweep": 2,
        "fragile": 2,
    }
    assert jobs["alarm"]["places"] == [{"site": "cracow", "processors": 4}]
    moves = {(move["file"], move["target"]) for move in document["transfers"]}
    assert moves == {("plate.dat", "amsterdam"), ("alarm.dat", "cracow")}
    told = [remark["text"] for remark in document["story"]]
    assert "requeued: preempted by high-priority job B on cracow" in told
    assert any(text.startswith("requeued: component 1 failed on ") for text in told)
    assert "split: 4 on amsterdam, 4 on berlin" in told
    times = [remark["at_s"] for remark in document["story"]]
    assert times == sorted(times)


@pytest.mark.usefixtures("forked")
def test_without_mpi_it_says_so_and_runs_a_plain_job_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    show_live(mpi=False)
    text = capsys.readouterr().out
    assert text.startswith("MPI is not installed here")
    assert "A pair     " in text
    assert "component 0 of 2 has 4 processors and plate.dat" in text
    assert "restarted, done" in text
    assert "preempted, done" in text
    assert "koala demo --keep" in text
    story, _, summary = text.partition("Koala: one queue over three clusters")
    assert "split: 4 on amsterdam, 4 on berlin" in story
    assert "split: 4 on amsterdam" not in summary, "in a pipe the story is told once, as it happens"
    assert "░ at the barrier" in summary
    assert all(len(line) <= 80 for line in summary.splitlines())


def test_on_a_terminal_it_moves_until_it_is_interrupted(temporary: Path, forked: Path) -> None:
    nowhere = Daemon(temporary, temporary / "none", "embedded", (), {}, ())
    nowhere.client.close()
    with Terminal(nowhere, "demo", columns=80, rows=24, program=forked) as terminal:
        terminal.until("Starting a daemon")
        terminal.until("live, ")
        terminal.until("split: 4 on amsterdam, 4 on berlin")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert "Interrupted." in terminal.shown
        assert "Traceback" not in terminal.shown


def test_a_demo_that_is_told_to_end_puts_everything_in_order(temporary: Path) -> None:
    with begun() as (process, lines, errors):
        read_until(lines, "C sweep    all components are at the barrier")
        process.send_signal(signal.SIGTERM)
        code, told = ended(process, lines, errors)
    assert code == 130
    assert "Interrupted." in told
    assert "Traceback" not in told


def test_a_demo_interrupted_while_its_daemon_starts_leaves_nothing(temporary: Path) -> None:
    with begun() as (process, lines, errors):
        until(lambda: bool(processes_below(temporary)), "the daemon has been started")
        process.send_signal(signal.SIGINT)
        code, told = ended(process, lines, errors)
    assert code == 130, told


def test_a_daemon_that_dies_ends_the_demo_with_one_message(temporary: Path, forked: Path) -> None:
    with begun(forked) as (process, lines, errors):
        read_until(lines, "C sweep    placed")
        daemon = running_pid(next(temporary.glob("koala-demo-*")) / "state")
        assert daemon is not None
        os.kill(daemon, signal.SIGKILL)
        code, told = ended(process, lines, errors)
    assert code == 1, told
    assert told.startswith("Error: the demo's daemon has ended")
    assert "the end of its log:\n  koala is up: demo, 3 sites, 12 processors" in told
    assert "Traceback" not in told


def test_a_daemon_that_cannot_start_is_told_with_its_log(temporary: Path) -> None:
    with pytest.raises(FailedError, match=r"the demo's daemon has ended(?s:.*)  no port is free"):
        show_live(make_daemon=lambda: DemoDaemon(command="echo no port is free >&2; exit 2"))


def test_a_daemon_that_never_answers_is_given_up(temporary: Path) -> None:
    with pytest.raises(FailedError, match="START_S_MAX"):
        show_live(make_daemon=lambda: DemoDaemon(command="exec sleep 1000", start_s_max=0.5))


def test_a_daemon_that_does_not_stop_when_asked_is_killed(temporary: Path) -> None:
    deaf = "trap '' TERM; while :; do sleep 0.1; done"
    with pytest.raises(FailedError, match="START_S_MAX"):
        show_live(make_daemon=lambda: DemoDaemon(command=deaf, start_s_max=0.5, stop_s_max=0.5))


@pytest.mark.usefixtures("forked")
def test_jobs_that_never_end_are_given_up() -> None:
    with pytest.raises(FailedError, match="STORY_S_MAX"):
        show_live(story_s_max=0.5)


def test_a_long_path_for_temporary_files_is_no_obstacle_for_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    daemon = DemoDaemon()
    try:
        socket = daemon.server.removeprefix("unix:")
        assert len(os.fsencode(socket)) <= SOCKET_PATH_BYTES_MAX
        assert list(deep.iterdir()) == []
    finally:
        daemon.remove()
    assert not daemon.directory.exists()


def test_only_the_directory_of_a_kept_demo_can_be_ended(tmp_path: Path) -> None:
    mine = tmp_path / "koala-demo-mine"
    mine.mkdir()
    for directory in (mine, tmp_path):
        result = CliRunner().invoke(koala, ["demo", "--end", str(directory)])
        assert result.exit_code == 2
        assert "is not the directory of a kept demo" in result.stderr
    assert mine.is_dir()


def test_it_knows_whether_mpi_is_here() -> None:
    here = (Path(sys.executable).parent / "mpiexec").exists()
    assert mpi_is_installed() == here
