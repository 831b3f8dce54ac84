"""What the live verbs say to wrong input and to jobs that can never run, against a real daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.model.api import DESCRIPTION_BYTES_MAX
from tests.support.certificates import self_signed
from tests.support.live_cli import Shell, Terminal, job_file
from tests.support.live_daemon import WAIT_S, Daemon, running_daemon, until
from tests.support.warm_koala import LimitedReader, start_koala

NEVER = "components: [{processors: 9}]"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live"), listen=True) as running:
        yield running


@pytest.fixture
def shell(daemon: Daemon) -> Shell:
    return Shell(daemon.server)


class Piped:
    """A verb in a process of its own without a terminal, and what it says in pipes; killed at the end if it runs
    still, which no test wants."""

    def __init__(self, daemon: Daemon, *arguments: str) -> None:
        reading, writing = zip(os.pipe(), os.pipe(), strict=True)
        self.stdout, self.stderr = map(LimitedReader, reading)
        with Path(os.devnull).open("rb") as nothing:
            process = start_koala(
                arguments,
                stdin=nothing.fileno(),
                stdout=writing[0],
                stderr=writing[1],
                env={**os.environ, "KOALA_SERVER": daemon.server},
            )
        for pipe in writing:
            os.close(pipe)
        self.pid, self.wait = process.pid, process.wait
        self.send_signal, self.kill = process.send_signal, process.kill

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.stdout.close()
        self.stderr.close()


def from_its_file(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    """As ``Piped``, but with Python's own start and end."""
    return subprocess.Popen(
        [sys.executable, "-m", "koala", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KOALA_SERVER": daemon.server},
    )


# ------------------------------------------------------------------------------------ jobs that never start


def test_a_job_that_can_never_fit_is_accepted_with_a_warning_and_marked_in_lists(
    shell: Shell, tmp_path: Path
) -> None:
    submitted = shell("submit", str(job_file(tmp_path, "true", NEVER)), "--json")
    job = json.loads(submitted.stdout)["job"]["id"]
    assert submitted.stderr.startswith("Warning: it can never fit: ")
    assert f"koala job explain {job}" in submitted.stderr
    assert any(line.split()[:1] == [str(job)] and "can never fit" in line for line in shell.lines("jobs"))
    assert any(line.startswith("note") and "can never fit" in line for line in shell.lines("job", "show", str(job)))
    shell("job", "cancel", str(job))
    ended = shell("job", "wait", str(job), code=1)
    assert ended.stdout == f"Job {job} was cancelled: never started.\n"
    assert "logs" not in ended.stderr


def test_a_job_that_reads_an_unknown_file_is_accepted_with_a_warning(shell: Shell, tmp_path: Path) -> None:
    path = job_file(tmp_path, "true", "processors: 1\ninput_files: [nowhere.dat]")
    submitted = shell("submit", str(path), "--json")
    assert "Warning: waiting alone will not help it" in submitted.stderr
    assert "nowhere.dat" in submitted.stderr
    shell("job", "cancel", str(json.loads(submitted.stdout)["job"]["id"]))


def test_a_job_that_fits_is_submitted_without_a_warning(shell: Shell) -> None:
    assert shell("submit", "hello", "--wait").stderr == ""


def test_without_a_terminal_the_reason_why_a_job_waits_is_told_once(daemon: Daemon, tmp_path: Path) -> None:
    held = daemon.client.submit(
        job_file(
            tmp_path,
            f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done",
            "components: [{processors: 4, count: 3}]",
        ).read_text()
    ).job.id
    until(lambda: daemon.client.job(held).state == "running", "the job runs")
    with Piped(daemon, "submit", "hello", "--wait") as verb:
        told = verb.stderr.readline()
        assert "waits: " in told
        assert "idle" in told
        (tmp_path / "end").touch()
        assert "is done" in verb.stdout.read()
        assert told not in verb.stderr.read()
        assert verb.wait(WAIT_S) == 0


def test_ctrl_c_while_waiting_for_json_prints_the_job_as_it_is_known(daemon: Daemon, tmp_path: Path) -> None:
    with Piped(daemon, "submit", str(job_file(tmp_path, "true", NEVER)), "--wait", "--json") as verb:
        assert verb.stderr.readline().startswith("Warning: it can never fit")
        waiting = daemon.client.jobs(limit=1).items[0].id
        until(lambda: _sleeps(verb.pid), "the verb waits for the daemon")
        verb.send_signal(signal.SIGINT)
        assert json.loads(verb.stdout.read())["id"] == waiting
        assert f"koala job wait {waiting}" in verb.stderr.read()
        assert verb.wait(WAIT_S) == 130
    daemon.client.cancel(waiting)


def _sleeps(pid: int) -> bool:
    """Whether the process waits for something, which after a submission is the daemon."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


# ----------------------------------------------------------------------------------------- descriptions


def test_wrong_descriptions_are_shown_at_their_place_as_place_shows_them(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("processors: 1\nwaltime: 3\napplication: {executable: 'true'}\ncolour: blue\n")
    for arguments in (("submit", str(path)), ("submit", str(path), "--dry-run")):
        told = shell(*arguments, code=2).stderr
        assert told == shell("place", str(path), "--grid", "embedded", code=2).stderr
        assert f"{path}:2:1: 'waltime'" in told
        assert "\n  waltime: 3\n  ^\n" in told
        assert f"{path}:4:1: 'colour'" in told


def test_a_job_with_nothing_to_run_is_told_with_its_file(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text("processors: 1\n")
    assert shell("submit", str(path), code=2).stderr.startswith(
        f"Error: {path}: application: there is nothing to run"
    )


def test_files_that_are_no_jobs_are_told_with_a_cure(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.touch()
    assert f"{path} is empty; write a job" in shell("submit", str(path), code=2).stderr
    path.write_bytes(b"#" * DESCRIPTION_BYTES_MAX)
    assert "DESCRIPTION_BYTES_MAX" not in shell("submit", str(path), code=2).stderr
    path.write_bytes(b"#" * (DESCRIPTION_BYTES_MAX + 1))
    assert "(DESCRIPTION_BYTES_MAX)" in shell("submit", str(path), code=2).stderr
    assert "this is a directory" in shell("submit", str(tmp_path), code=2).stderr


def test_a_token_id_that_cannot_be_used_is_wrong_use(shell: Shell, tmp_path: Path) -> None:
    for text in ("", "x" * 129, "a\nb"):
        assert "--token-id: " in shell("submit", "hello", "--token-id", text, code=2).stderr
    shell("submit", "hello", "--token-id", "taken")
    other = shell("submit", "countdown", "--token-id", "taken", code=2).stderr
    assert "--token-id: it was used for job" in other


def test_names_that_name_nothing_are_told_with_the_verb_that_lists(shell: Shell) -> None:
    for text in ("abc", "0", "-1", "1.5", "9" * 30):
        assert "koala jobs" in shell("job", "show", "--", text, code=2).stderr
    assert "beginning with a letter" in shell("token", "create", "", code=2).stderr
    assert "no file 'a/../../b'; koala files" in shell("file", "show", "a/../../b", code=2).stderr
    assert "not UTF-8" in shell("file", "show", "\udcff", code=2).stderr


def test_a_file_whose_name_has_dots_is_found_again(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    shell("file", "register", "a/../b", "amsterdam", "--path", str(tmp_path / "x"))
    assert shell.json("file", "show", "a/../b")["name"] == "a/../b"
    shell("file", "forget", "a/../b", "--all")


# --------------------------------------------------------------------------------------- pipes and terminals


def test_a_reader_that_has_enough_is_no_failure(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    job = shell.submit(tmp_path, "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; done")
    shell("job", "wait", str(job))
    verb = from_its_file(daemon, "job", "logs", str(job))
    assert verb.stdout is not None
    assert verb.stderr is not None
    assert verb.stdout.readline() == "line 1\n"
    verb.stdout.close()
    assert verb.stderr.read() == ""
    assert verb.wait(WAIT_S) == 0
    verb.stderr.close()


def test_on_a_terminal_a_whole_file_is_forgotten_after_a_yes(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    shell("file", "register", "mesh", "amsterdam", "--path", str(tmp_path / "x"))
    for reply, code, left in (("n", 2, 1), ("y", 0, 0)):
        with Terminal(daemon, "file", "forget", "mesh") as terminal:
            terminal.until("1 file, 1 byte: mesh. Forget it?")
            terminal.press(f"{reply}\n")
            assert terminal.ended() == code
        assert len(shell.json("files")) == left


def test_top_shows_the_last_events_at_once(daemon: Daemon, shell: Shell) -> None:
    job = shell.json("submit", "hello", "--wait")["id"]
    with Terminal(daemon, "top", columns=120, rows=40) as terminal:
        terminal.until(f"job {job}")
        terminal.press("q")
        assert terminal.ended() == 0


def test_events_leave_out_the_ticks_unless_all_are_asked_for(shell: Shell) -> None:
    shell("submit", "hello", "--wait")
    everything = [
        json.loads(line)
        for line in shell("events", "--after", "0", "--limit", "1000", "--all", "--json").stdout.splitlines()
    ]
    assert any(entry["what"] == "Tick" for entry in everything)
    told = [
        json.loads(line) for line in shell("events", "--after", "0", "--limit", "1000", "--json").stdout.splitlines()
    ]
    assert [entry["seq"] for entry in told if entry["seq"] <= everything[-1]["seq"]] == [
        entry["seq"] for entry in everything if entry["what"] != "Tick"
    ]
    assert len(shell("events", "--limit", "5").stdout.splitlines()) == 5


def test_a_site_that_cannot_be_used_fails_its_probe_with_what_to_do(daemon: Daemon, shell: Shell) -> None:
    others = daemon.state / "sites" / "cracow" / "others"
    others.write_text("nonsense")
    try:
        told = shell("site", "probe", "cracow", code=1)
        assert "cracow cannot be used" in told.stderr
        assert "says 'nonsense'; write a number of processors, or remove it" in told.stderr
        assert told.stdout == ""
        assert shell.json("site", "probe", "cracow", code=1)["misconfigured"]
    finally:
        others.unlink()
    assert "answers: 4 processors" in shell("site", "probe", "cracow").stdout


def test_the_shell_is_offered_examples_and_files_for_submit(daemon: Daemon) -> None:
    asked = {"_KOALA_COMPLETE": "bash_complete", "COMP_WORDS": "koala submit he", "COMP_CWORD": "2"}
    offered = Shell(daemon.server, **asked)().stdout.splitlines()
    assert "plain,hello" in offered
    assert "file,he" in offered


def test_a_token_that_others_can_read_is_warned_of(daemon: Daemon, shell: Shell, tmp_path: Path) -> None:
    assert daemon.url is not None
    path = tmp_path / "token"
    path.write_text(shell("token", "create", "eve").stdout)
    eve = Shell(daemon.url, KOALA_TOKEN_FILE=str(path))
    path.chmod(0o644)
    assert f"chmod 600 {path}" in eve("jobs").stderr
    path.chmod(0o600)
    assert eve("jobs").stderr == ""


def test_a_list_can_be_wider_than_the_terminal(shell: Shell, tmp_path: Path) -> None:
    name = "a-name-that-is-far-too-long-for-its-column"
    path = job_file(tmp_path, "true")
    path.write_text(path.read_text().replace("name: mine", f"name: {name}"))
    shell("submit", str(path), "--wait")
    assert name not in shell("jobs").stdout
    assert name in shell("jobs", "--wide").stdout
    assert "leave out --wide" in shell("jobs", "--wide", "--watch", code=2).stderr


# -------------------------------------------------------------------------------------------------- TLS


def test_mistakes_about_tls_are_told_with_their_cure(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    options = ("--listen", "localhost:0", "--tls-cert", str(cert), "--tls-key", str(key))
    with running_daemon(tmp_path, options=options) as daemon:
        assert daemon.url is not None
        trusted = {"KOALA_TOKEN": "koala_x", "KOALA_CA_FILE": str(cert)}
        assert Shell(daemon.url, **trusted)("jobs", code=3).stderr.startswith("Error: ")
        other_name = daemon.url.replace("localhost", "127.0.0.1")
        assert "certificate is for another name" in Shell(other_name, **trusted)("jobs", code=4).stderr
        assert "KOALA_CA_FILE" in Shell(daemon.url, KOALA_TOKEN="koala_x")("jobs", code=4).stderr  # noqa: S106
        plain = daemon.url.replace("https:", "http:")
        assert f"write {daemon.url}" in Shell(plain, **trusted)("jobs", code=4).stderr
        unreadable = Shell(daemon.url, KOALA_TOKEN="koala_x", KOALA_CA_FILE="no.pem")("jobs", code=2).stderr  # noqa: S106
        assert "KOALA_CA_FILE no.pem" in unreadable
        assert "name the PEM file" in unreadable


def test_https_to_a_port_without_tls_is_told_to_be_http(daemon: Daemon) -> None:
    assert daemon.url is not None
    told = Shell(daemon.url.replace("http:", "https:"), KOALA_TOKEN="koala_x")("jobs", code=4).stderr  # noqa: S106
    assert f"write {daemon.url}" in told


def test_a_number_without_a_command_is_answered_with_the_command_that_shows_the_job(shell: Shell) -> None:
    asked = shell("job", "17", code=2)
    assert "write koala job show 17" in asked.stderr
