"""``koala up``: how it starts, stops and starts again, and what wrong options are told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.cli.daemon.start_record import (
    DATABASE_FILE_BYTES_MAX,
    StartRecord,
    chosen_database,
    database_options,
    with_address,
)
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
        assert f"Sites have components with numbers that it has not given yet: {job}.1. Nothing was done" in told
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


def test_an_address_holds_for_later_starts_until_it_is_taken_back(tmp_path: Path) -> None:
    with running_daemon(tmp_path, listen=True) as daemon:
        state = ("--state", str(daemon.state))
        for options, listens in (state, True), ((*state, "--no-listen"), False), (state, False):
            assert daemon.stop() == 0
            daemon.start(options)
            assert (daemon.url is not None) is listens
            assert ("--listen 127.0.0.1:0, from the last start" in daemon.output) is listens


def test_a_database_holds_for_later_starts_and_its_password_is_kept_nowhere(tmp_path: Path) -> None:
    named = tmp_path / "database"
    named.write_text(f"sqlite:///{tmp_path}/elsewhere.db\n", encoding="utf-8")
    with running_daemon(tmp_path, options=("--database-file", str(named))) as daemon:
        job = daemon.client.submit("components: [{processors: 1, application: {script: 'true'}}]").job.id
        assert daemon.client.wait(job).state == "done"
        assert daemon.stop() == 0
        state = ("--state", str(daemon.state))
        assert json.loads(CliRunner().invoke(koala, ["admin", "jobs", *state, "--json"]).stdout)[0]["job"] == job
        daemon.start(state)
        assert daemon.client.job(job).state == "done"
        assert not (daemon.state / "koala.db").exists()


SECRET = "postgresql://koala:geheim@127.0.0.1:1/koala"  # noqa: S105 - nobody lets anybody in with it


def test_a_password_is_not_taken_on_the_command_line_but_from_a_file_or_the_environment(tmp_path: Path) -> None:
    def up(*options: str, database: str | None = None) -> str:
        environment = {"XDG_STATE_HOME": str(tmp_path), "KOALA_DATABASE": database}
        result = CliRunner(env=environment).invoke(koala, ["up", *options])
        assert result.exit_code in (2, 4)
        assert "geheim" not in result.output
        return " ".join(result.stderr.split())

    for url in (SECRET, "postgresql://127.0.0.1:1/koala?user=koala&password=geheim"):
        assert "list of processes; write the address into a file" in up("--database", url)
    unreachable = "check that the server runs and can be reached"
    assert unreachable in up(database=SECRET)
    named = tmp_path / "database"
    named.write_text(SECRET, encoding="utf-8")
    named.chmod(0o644)
    assert "others may read the password in it; chmod 600 it" in up("--database-file", str(named))
    named.chmod(0o600)
    assert unreachable in up("--database-file", str(named))
    assert "given together" in up("--database-file", str(named), "--database", "postgresql://x@127.0.0.1:1/x")
    for text in ("one\ntwo\n", "", "x" * (DATABASE_FILE_BYTES_MAX + 1)):
        named.write_text(text, encoding="utf-8")
        assert "one address alone" in up("--database-file", str(named))
    assert "No such file" in up("--database-file", str(tmp_path / "gone"))


def test_what_is_kept_of_a_database_of_the_environment_has_no_password() -> None:
    @click.command()
    @database_options
    @click.pass_context
    def told(ctx: click.Context, /, database: str | None, database_file: Path | None) -> None:
        url, record = chosen_database(ctx, StartRecord(), database, database_file)
        click.echo(f"{url} {record.in_words()}")

    said = CliRunner(env={"KOALA_DATABASE": SECRET}).invoke(told).output
    assert said == f"{SECRET} --database postgresql://koala@127.0.0.1:1/koala\n"


def test_a_record_of_a_start_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text("{", encoding="utf-8")
    told = CliRunner().invoke(koala, ["up", "--state", str(tmp_path)])
    assert told.exit_code == 2
    assert f"{tmp_path}/start.json cannot be read" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--grid", "embeded"), "did you mean embedded?"),
        (("--grid", "das2"), "simulated"),
        (("--listen", "8080"), "names no host and port"),
        (("--listen", "localhost:http"), "is not a port"),
        (("--listen", "localhost:65536"), "is not a port"),
        (("--listen", "::1:80"), "[::1]:8080"),
        (("--tls-cert", "x"), "give both"),
        (("--insecure",), "about --listen"),
        (("--listen", "127.0.0.1:0", "--no-listen"), "keep one of the two"),
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
    assert "far does not answer: nobody is\N{REPLACEMENT CHARACTER} at home; koala site check far shows more" in said


@pytest.mark.parametrize(
    ("options", "has_certificate"),
    [
        ({}, True),
        ({"listen": "[::1]:2"}, True),
        ({"listen": "[::1]:2", "insecure": True}, False),
        ({"no_listen": True}, False),
    ],
)
def test_an_address_keeps_the_certificate_of_the_last_start_unless_it_is_to_be_without(
    options: dict[str, Any], has_certificate: bool
) -> None:
    known = StartRecord(listen="127.0.0.1:1", tls_cert="/a.pem", tls_key="/k.pem")
    asked = {"listen": None, "no_listen": False, "cert": None, "key": None, "insecure": False, **options}
    record = with_address(known, **asked)
    assert ((record.tls_cert, record.tls_key) == ("/a.pem", "/k.pem")) is has_certificate
    assert (record.tls_cert is None) is not has_certificate
