"""The verbs about the grid against a real daemon: sites, files, events, top, tokens, the dashboard's link."""

from __future__ import annotations

import getpass
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.client import Client, UnreachableError
from tests.support.live_cli import Shell, Terminal, job_file
from tests.support.live_daemon import Daemon, running_daemon, shared_embedded, until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live"), grid=shared_embedded(), listen=True) as running:
        yield running


@pytest.fixture
def shell(daemon: Daemon) -> Shell:
    return Shell(daemon.server)


# ------------------------------------------------------------------------------------------------- sites


def test_the_sites_are_listed_with_who_holds_them(shell: Shell) -> None:
    lines = shell.lines("sites")
    assert [line.split()[0] for line in lines[1:4]] == ["amsterdam", "berlin", "cracow"]
    assert lines[1].split()[-5:] == ["4", "0", "0", "4", "ok"]
    assert [site["idle"] for site in shell.json("sites")] == [4, 4, 4]


def test_a_drained_site_gets_nothing_until_it_is_resumed(shell: Shell) -> None:
    assert "is drained" in shell("site", "drain", "amsterdam").stdout
    assert shell.lines("sites")[1].endswith("drained")
    assert shell.json("submit", "hello", "--dry-run")["places"][0]["site"] == "berlin"
    assert "is used again" in shell("site", "resume", "amsterdam").stdout
    assert shell.json("submit", "hello", "--dry-run")["places"][0]["site"] == "amsterdam"


def test_who_took_a_site_out_and_who_cancelled_a_job_is_told_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    me = getpass.getuser()
    shell("site", "drain", "amsterdam", "--reason", "disk change")
    try:
        assert shell.lines("sites")[-1] == f"amsterdam is drained by {me}: disk change"
        (drained, *_) = shell.json("sites")
        assert drained["drained_by"] == f"{me}: disk change"
        job = str(shell.submit(tmp_path, "true", "components: [{processors: 1, site: amsterdam}]"))
        explained = " ".join(shell("job", "explain", job).stdout.split())
        assert f"amsterdam is drained by {me}: disk change; resume it" in explained
        shell("job", "cancel", job, "--reason", "not today")
        assert shell.json("job", "show", job)["reason"] == "cancelled by its owner: not today"
    finally:
        shell("site", "resume", "amsterdam", "--reason", "it is new")
    events = [line["text"] for line in map(json.loads, shell("events", "--json").stdout.splitlines())]
    assert f"amsterdam is used again and its errors are forgotten, as {me} asked: it is new" in events
    assert (
        "reason: it has 201 characters" in shell("site", "drain", "amsterdam", "--reason", "x" * 201, code=2).stderr
    )


def test_a_site_can_be_asked_how_it_is(shell: Shell, daemon: Daemon) -> None:
    others = daemon.state / "sites" / "cracow" / "others"
    others.write_text("3\n")
    try:
        assert "3 others', 1 idle" in shell("site", "probe", "cracow").stdout
    finally:
        others.unlink()
    assert shell.json("site", "probe", "cracow")["others"] == 0


def test_a_site_is_declared_lost_only_by_somebody_who_means_it(shell: Shell) -> None:
    # It answers, so that there is nothing to ask.
    for words in ((), ("--yes",)):
        assert "koala site drain amsterdam" in shell("site", "lost", "amsterdam", *words, code=1).stderr
    asked = shell("site", "lost", "amsterdam", "--force", code=2).stderr
    assert "no job waits for it" in asked
    assert "Give --yes" in asked
    assert "had nothing to give up" in shell("site", "lost", "amsterdam", "--yes", "--force").stdout


def test_an_unknown_site_is_wrong_use(shell: Shell) -> None:
    assert "nowhere" in shell("site", "drain", "nowhere", code=2).stderr


# ----------------------------------------------------------------------------------------------- network


def test_the_network_is_as_declared_until_a_file_was_brought(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shell.lines("network")
    assert lines[0].split() == ["from", "\\", "to", "amsterdam", "berlin", "cracow"]
    assert lines[1].split() == ["amsterdam", "-", "400", "Mbit/s", "400", "Mbit/s"]
    assert "values are from the grid file" in lines[-2]
    assert "no network between sites on the daemon's own machine" in lines[-1]
    monkeypatch.chdir(tmp_path)
    Path("links.dat").write_bytes(b"x" * 10_000_000)  # on a link of 400 Mbit/s, so that its time tells of the link
    shell("file", "register", "links", "berlin", "--path", "links.dat")
    job = job_file(tmp_path, "wc -c links", "components: [{processors: 1, site: cracow, input_files: [links]}]")
    shell("submit", str(job), "--wait")
    told = shell.json("network")
    (measured,) = [each for each in told["links"] if each["bandwidth_mbit_s"]["measurements"]]
    assert (measured["source"], measured["target"]) == ("berlin", "cracow")
    assert measured["bandwidth_mbit_s"]["origin"] == "forecast"
    assert measured["bandwidth_mbit_s"]["measured_by"] == "transfer"
    (row,) = [line for line in shell.lines("network") if line.startswith("berlin to cracow")]
    assert "transfer" in row
    history = shell("network", "berlin", "cracow").stdout
    assert "From berlin to cracow" in history
    assert "10.0 MB, weight" in history
    assert "as measured on the way back" in shell("network", "cracow", "berlin").stdout
    assert len(shell.json("network", "berlin", "cracow")["bandwidth_mbit_s"]) == 1
    shell("file", "forget", "links", "--all")


def test_links_that_are_not_there_are_wrong_use(shell: Shell) -> None:
    assert "nowhere" in shell("network", "berlin", "nowhere", code=2).stderr
    assert "takes two sites" in shell("network", "berlin", code=2).stderr
    assert "from a site to itself" in shell("network", "berlin", "berlin", code=2).stderr
    assert "name two sites" in shell("network", "--probe", code=2).stderr
    assert "is not probed: there is no network" in shell("network", "berlin", "cracow", "--probe", code=1).stderr


# ------------------------------------------------------------------------------------------------- files


def test_a_file_is_registered_replicated_and_forgotten(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No files" in shell("files").stdout
    monkeypatch.chdir(tmp_path)
    Path("mesh.dat").write_bytes(b"x" * 123_456)
    assert (
        shell("file", "register", "mesh", "amsterdam", "--path", "mesh.dat").stdout == "mesh: 123 kB at amsterdam.\n"
    )
    assert "2 replicas, at amsterdam, cracow" in shell("file", "replicate", "mesh", "cracow").stdout
    assert shell.lines("files")[1].split() == ["mesh", "123", "kB", "amsterdam,", "cracow"]
    assert shell.json("file", "show", "mesh")["size_bytes"] == 123_456
    assert shell("file", "show", "mesh").stdout.splitlines()[1:] == ["  amsterdam", "  cracow"]
    assert "at amsterdam" in shell("file", "forget", "mesh", "amsterdam").stdout
    assert [each["site"] for each in shell.json("files", "--prefix", "me")[0]["replicas"]] == ["cracow"]
    assert "--all" in shell("file", "forget", "mesh", code=2).stderr, "a whole file needs a clear word"
    shell("file", "replicate", "mesh", "berlin")
    assert "Give --all" in shell("file", "forget", "me*", "cracow", code=2).stderr, "so do all that fit a pattern"
    assert "at cracow" in shell("file", "forget", "me*", "cracow", "--all").stdout
    assert [each["site"] for each in shell.json("file", "show", "mesh")["replicas"]] == ["berlin"]
    shell("file", "forget", "mesh", "--all")
    assert shell.json("files") == []
    assert "koala files" in shell("file", "forget", "mesh", code=2).stderr


def test_a_registration_needs_one_place(shell: Shell) -> None:
    assert "--path FILE or --url URL" in shell("file", "register", "mesh", "amsterdam", code=2).stderr


# ------------------------------------------------------------------------------------------------ events


def test_the_events_of_a_job_are_told_in_order(shell: Shell) -> None:
    job = shell.json("submit", "hello", "--wait")["id"]
    told = [json.loads(line) for line in shell("events", "--job", str(job), "--json").stdout.splitlines()]
    what = [entry["what"] for entry in told]
    assert what[0] == "JobSubmitted"
    assert what.index("ReleaseBarrier") < what.index("JobEnded")
    seqs = [entry["seq"] for entry in told]
    assert seqs == sorted(set(seqs))
    after = shell("events", "--after", str(seqs[0]), "--limit", "1", "--json").stdout
    assert json.loads(after)["seq"] == seqs[0] + 1


def test_without_a_beginning_the_newest_events_are_told(shell: Shell, daemon: Daemon) -> None:
    newest = [json.loads(line)["seq"] for line in shell("events", "--limit", "3", "--json").stdout.splitlines()]
    assert len(newest) == 3
    assert newest[-1] >= daemon.client.job(1).id
    assert newest[-1] <= daemon.client.overview().last_seq
    assert newest[0] > json.loads(shell("events", "--after", "0", "--limit", "1", "--json").stdout)["seq"]


def test_following_shows_what_happens_from_now_on(shell: Shell, daemon: Daemon) -> None:
    with Terminal(daemon, "events", "--follow", columns=200) as terminal:
        end = time.monotonic() + 120
        while "JobSubmitted" not in terminal.shown and time.monotonic() < end:
            # The verb says nothing until something happens, so things happen until it has begun.
            job = shell.json("submit", "hello")["job"]["id"]
            terminal.read()
        terminal.until("JobSubmitted")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
    shell("job", "wait", str(job))


# --------------------------------------------------------------------------------------------------- top


def test_one_picture_shows_sites_jobs_and_events(shell: Shell, daemon: Daemon, tmp_path: Path) -> None:
    path = job_file(tmp_path, f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.3; done")
    job = shell.json("submit", str(path))["job"]["id"]
    until(lambda: daemon.client.job(job).state == "running", "the job runs")
    lines = shell.lines("top", "--once")
    (tmp_path / "end").touch()
    assert lines[0].startswith("koala embedded")
    text = "\n".join(lines)
    for part in ("3 sites", "amsterdam", "running 1", "mine", "last events", "the barrier of job"):
        assert part in text
    shell("job", "wait", str(job))


@pytest.mark.parametrize(("columns", "rows"), [(60, 15), (120, 40)])
def test_top_fits_its_terminal_is_renewed_and_ends_with_q(
    shell: Shell, daemon: Daemon, columns: int, rows: int
) -> None:
    with Terminal(daemon, "top", columns=columns, rows=rows) as terminal:
        terminal.until("koala embedded")
        job = shell.json("submit", "hello", "--wait")["id"]
        terminal.until(f"job {job}")
        terminal.press("q")
        assert terminal.ended() == 0
        frames = terminal.shown.split("\x1b[H")[1:]
        assert frames
        for frame in frames:
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame)
            assert plain.count("\n") < rows
            assert [line for line in plain.split("\n") if len(line.rstrip("\r")) > columns] == []


def test_a_list_that_is_watched_needs_a_terminal(shell: Shell) -> None:
    assert "not a terminal" in shell("jobs", "--watch", code=2).stderr
    assert "not a terminal; use --once" in shell("top", code=2).stderr


def test_a_list_that_is_watched_is_renewed(shell: Shell, daemon: Daemon) -> None:
    with Terminal(daemon, "jobs", "--watch") as terminal:
        terminal.until("where, and what to know")
        job = shell.json("submit", "countdown")["job"]["id"]
        terminal.until("running")
        shell("job", "cancel", str(job))
        terminal.until("cancelled")
        terminal.press("q")
        assert terminal.ended() == 0


# ------------------------------------------------------------------------------------ tokens and addresses


def test_a_token_opens_the_address_for_its_scopes_until_it_is_revoked(shell: Shell, daemon: Daemon) -> None:
    assert daemon.url is not None
    made = shell("token", "create", "ada", "--scope", "read", "--note", "for a look")
    secret = made.stdout.strip()
    assert "It is not shown again" in made.stderr
    ada = Shell(daemon.url, KOALA_TOKEN=secret)
    assert ada.json("jobs") == []
    assert "scope submit" in ada("submit", "hello", code=3).stderr
    token = next(each for each in shell.json("token", "list") if each["user"] == "ada")
    assert (token["note"], token["scopes"]) == ("for a look", ["read"])
    assert secret not in shell("token", "list").stdout
    shell("token", "revoke", token["id"])
    ada("jobs", code=3)
    assert "KOALA_TOKEN" in Shell(daemon.url)("jobs", code=3).stderr


def test_jobs_of_several_owners_are_listed_with_their_owners(shell: Shell, daemon: Daemon) -> None:
    assert daemon.url is not None
    made = shell("token", "create", "bob", "--scope", "read", "--scope", "submit")
    secret = made.stdout.strip()
    assert "Notice: shared_account: jobs of all users run under the daemon's account" in made.stderr
    assert "Warning: shared_account: jobs of all users run under the daemon's account" in daemon.output
    bob = Shell(daemon.url, KOALA_TOKEN=secret)
    mine = bob.json("submit", "hello", "--wait")["id"]
    shell("submit", "hello", "--wait")
    lines = shell.lines("jobs")
    assert lines[0].split()[2] == "owner"
    assert any(line.split()[:3] == [str(mine), "hello", "bob"] for line in lines)
    assert [job["id"] for job in bob.json("jobs")] == [mine]


def test_the_dashboard_link_opens_it_once(shell: Shell, daemon: Daemon) -> None:
    link = shell("dashboard").stdout.strip()
    assert link.startswith(f"{daemon.url}/login#code=")
    assert shell.json("dashboard")["url"] != link


def test_the_shell_is_offered_jobs_and_sites(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("submit", "hello", "--wait")
    for words, expected in (("koala site drain b", "berlin"), ("koala job show 1", "1")):
        asked = {"_KOALA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        offered = Shell(shell.environment["KOALA_SERVER"], **asked)().stdout
        assert f"plain,{expected}" in offered.splitlines()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_every_shell_has_its_completion_script(shell: Shell, name: str) -> None:
    assert "_KOALA_COMPLETE" in shell("completion", name).stdout


# -------------------------------------------------------------------------------------- no daemon at all


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "hello"),
        ("jobs",),
        ("job", "show", "1"),
        ("job", "explain", "1"),
        ("job", "logs", "1"),
        ("job", "cancel", "1"),
        ("job", "wait", "1"),
        ("sites",),
        ("site", "probe", "a"),
        ("files",),
        ("file", "show", "a"),
        ("events",),
        ("events", "--follow"),
        ("top", "--once"),
        ("token", "list"),
        ("dashboard",),
    ],
    ids=" ".join,
)
def test_every_verb_says_that_no_daemon_answers_and_how_to_start_one(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    told = Shell(f"unix:{tmp_path}/none")(*arguments, code=4).stderr
    assert f"no daemon answers at unix:{tmp_path}/none" in told
    assert "`koala up`" in told


def test_an_address_that_is_none_is_wrong_use() -> None:
    assert "write unix:/" in Shell("nonsense")("jobs", code=2).stderr
    assert "write unix:/" in Shell("unix:/x")("jobs", "--server", "nonsense", code=2).stderr


def test_a_socket_that_nobody_serves_any_more_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Client(f"unix:{tmp_path}/file") as client, pytest.raises(UnreachableError):
        client.jobs()
