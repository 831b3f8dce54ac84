"""``koala up``: how it starts, stops and starts again, and what wrong options are told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.cli.daemon.up import greeting, parse_listen
from koala.cli.errors import UserError
from koala.daemon.options import Listening
from koala.model.grid import Grid, Site
from tests.support.live_cli import Shell, Terminal, job_file
from tests.support.live_daemon import running_daemon, until


def test_it_says_where_it_answers_and_what_to_do_next(tmp_path: Path) -> None:
    # It is started from its file, so that its end is Python's own.
    with running_daemon(tmp_path, listen=True, through=("env",)) as daemon:
        assert daemon.output.startswith("koala is up: embedded, 3 sites, 12 processors\n")
        assert f"  socket     unix:{daemon.socket}\n" in daemon.output
        assert f"koala submit hello --wait -s unix:{daemon.socket}\n" in daemon.output
        assert daemon.url is not None
        assert daemon.url.startswith("http://127.0.0.1:")
        assert daemon.client.whoami().owner
        assert daemon.client.ready().status == "ok"
        assert "koala" in daemon.client.metrics()
        assert daemon.stop() == 0
    assert not daemon.socket.exists()
    for word in ("Traceback", "Exception ignored", "Fatal Python error", "never awaited", "destroyed"):
        assert word not in daemon.output


def test_a_job_outlives_a_killed_daemon_and_is_waited_for_across_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        shell = Shell(daemon.server)
        job = shell.submit(tmp_path, f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done; echo through")
        until(lambda: daemon.client.job(job).state == "running", "the job runs")
        with Terminal(daemon, "job", "wait", str(job)) as terminal:
            terminal.until("running")
            daemon.kill()
            assert "no daemon answers" in shell("jobs", code=4).stderr
            daemon.start()
            (tmp_path / "end").touch()
            assert terminal.ended() == 0
            assert f"Job {job} is done" in terminal.shown
        assert shell("job", "logs", str(job)).stdout == "through\n"


def test_a_second_daemon_for_the_same_state_is_refused(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        with Terminal(daemon, "up", "--state", str(daemon.state)) as second:
            assert second.ended() not in (0, 1)
            told = second.shown
        assert told.startswith("Error: ")
        assert str(daemon.pid) in told
        assert "Traceback" not in told
        assert daemon.client.ready().status == "ok"


def test_an_older_database_that_was_put_back_is_asked_about_and_the_running_job_goes_on(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        shell = Shell(daemon.server)
        daemon.stop()
        older, newer = tmp_path / "older.db", tmp_path / "newer.db"
        shutil.copy(daemon.state / "koala.db", older)
        daemon.start()
        job = shell.submit(tmp_path, f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done; echo through")
        until(lambda: daemon.client.job(job).state == "running", "the job runs")
        daemon.stop()
        shutil.move(daemon.state / "koala.db", newer)
        shutil.copy(older, daemon.state / "koala.db")
        with Terminal(daemon, "up", "--state", str(daemon.state)) as refused:
            assert refused.ended() == 2
            told = " ".join(refused.shown.split())
        assert f"Components are there with numbers that it has not given yet: {job}.1. Nothing was done" in told
        assert "`--accept database`" in told
        assert "Traceback" not in told
        shutil.copy(newer, daemon.state / "koala.db")
        daemon.start()
        (tmp_path / "end").touch()
        shell("job", "wait", str(job))
        assert shell("job", "logs", str(job)).stdout == "through\n"


def test_without_an_address_there_is_no_dashboard_to_open(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        assert "--listen 127.0.0.1:8080" in Shell(daemon.server)("dashboard", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--grid", "embeded"), "did you mean embedded?"),
        (("--grid", "das2"), "simulated"),
        (("--listen", "8080"), "names no host and port"),
        (("--listen", "localhost:http"), "is no port"),
        (("--listen", "localhost:65536"), "is no port"),
        (("--listen", "::1:80"), "[::1]:8080"),
        (("--tls-cert", "x"), "give both"),
        (("--insecure",), "about --listen"),
        (("--listen", "0.0.0.0:0"), "--insecure"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "no.pem", "--tls-key", "no.key"), "no.pem"),
        (("--database", "nonsense"), "write sqlite:///PATH or postgresql://"),
    ],
)
def test_wrong_options_are_told(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = CliRunner(env={"XDG_STATE_HOME": str(tmp_path)}).invoke(koala, ["up", *arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    assert told in result.stderr


def test_an_address_to_listen_at_is_a_host_and_a_port() -> None:
    assert parse_listen("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_listen("[::1]:0") == ("::1", 0)
    with pytest.raises(UserError):
        parse_listen(":80")


def test_a_job_that_fails_to_be_read_leaves_no_trace(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        shell = Shell(daemon.server)
        path = job_file(tmp_path, "true", "components: [{processors: 1, site: nowhere}]")
        assert "nowhere" in shell("submit", str(path), code=2).stderr
        assert shell.json("jobs") == []


def test_the_greeting_warns_of_sites_that_do_not_answer() -> None:
    grid = Grid(name="mine", sites=(Site(name="far", processors=4),))
    listening = Listening(socket=Path("/x/koala.sock"), silent=(("far", "does not answer: nobody is\x1b at home"),))
    said = greeting(grid, listening, None, kept_grid=None, detached=False)
    assert "far does not answer: nobody is\N{REPLACEMENT CHARACTER} at home; koala site check far tells more" in said
