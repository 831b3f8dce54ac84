"""Programs travel with jobs, from the command line and the clients, over a kill of the daemon too."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.client import AsyncClient, InvalidError
from koala.model.travelling import PIECE_BYTES_MAX
from tests.support.live_cli import Shell
from tests.support.live_daemon import Daemon, running_daemon

JOB = """\
name: travels
application: {executable: ./solver, arguments: [four]}
files: [solver, config/]
limits: {restarts: 0}
components: [{processors: 1}, {processors: 1}]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A job beside its program and a directory."""
    (tmp_path / "job.yaml").write_text(JOB)
    solver = tmp_path / "solver"
    solver.write_text('#!/bin/sh\necho "$1 $(cat config/deep/input)"\n')
    solver.chmod(0o755)
    (tmp_path / "config" / "deep").mkdir(parents=True)
    (tmp_path / "config" / "deep" / "input").write_text("times two")
    return tmp_path


def test_a_program_and_a_directory_travel_with_the_job(daemon: Daemon, project: Path) -> None:
    shell = Shell(daemon.server)
    job = str(project / "job.yaml")
    assert "nothing is submitted" in shell("submit", job, "--dry-run").stdout
    assert not list((daemon.state / "contents" / "data").iterdir()), "a dry run sends nothing"
    number = shell.json("submit", job)["job"]["id"]
    assert daemon.client.wait_ended(number).state == "done"
    assert [daemon.client.output(number, part=part).text for part in (0, 1)] == ["four times two\n"] * 2
    files = shell.json("job", "show", str(number))["files"]
    assert [(each["path"], each["kind"], each["mode"]) for each in files][-1] == ("solver", "file", "0755")
    shown = shell("job", "show", str(number)).stdout
    assert "solver" in shown
    assert files[-1]["checksum"][:16] in shown


def test_with_sends_a_path_under_its_last_name(daemon: Daemon, project: Path) -> None:
    (project / "bare.yaml").write_text(JOB.replace("files: [solver, config/]\n", ""))
    options = ("--with", str(project / "solver"), "--with", f"{project / 'config'}/")
    told = Shell(daemon.server)("submit", str(project / "bare.yaml"), *options, "--wait").stdout
    assert "is done" in told


def test_the_clients_send_files_too(daemon: Daemon, project: Path) -> None:
    async def play() -> str:
        async with AsyncClient(daemon.server) as client:
            files = {"solver": project / "solver", "config": project / "config"}
            assert (await client.dry_run(JOB, files=files)).places
            job = (await client.submit(JOB, files=files)).job.id
            await client.wait_ended(job)
            return (await client.output(job)).text

    assert asyncio.run(play()) == "four times two\n"


def test_what_cannot_be_sent_is_told_and_nothing_is_submitted(daemon: Daemon, project: Path) -> None:
    shell = Shell(daemon.server)
    job = project / "job.yaml"
    before = len(list(daemon.client.each_job()))

    def refused(text: str, said: str, *options: str) -> None:
        job.write_text(text)
        told = shell("submit", str(job), *options, code=2).stderr
        assert said in " ".join(told.split()), told

    refused(JOB.replace("[solver,", "[absent,"), "files: there is no absent in ")
    refused(JOB.replace("[solver,", "[/etc/passwd,"), "is absolute")
    (project / "away").symlink_to("/etc/passwd")
    refused(JOB.replace("[solver,", "[away,"), "leads out of the directory of the description")
    refused(JOB, "there is no such file or directory", "--with", str(project / "absent"))
    refused(JOB.replace("./solver", "./other"), "is not among the files that travel")
    (project / "solver").chmod(0o644)
    refused(JOB, "no x bit")
    assert len(list(daemon.client.each_job())) == before


def test_a_killed_daemon_goes_on_with_the_bytes_that_it_has(daemon: Daemon, project: Path) -> None:
    data = project / "data"
    data.write_bytes(random.Random(1).randbytes(3 * PIECE_BYTES_MAX + 5))
    program = project / "compare"
    program.write_text("#!/bin/sh\nsha256sum <data\n")
    program.chmod(0o755)
    seen: list[int] = []
    parts: list[int] = []

    def killed(there: int, total: int) -> None:
        seen.append(there)
        if len(seen) == 3:  # the program, and two pieces
            daemon.kill()
            parts.extend(each.stat().st_size for each in daemon.state.glob("contents/users/*/parts/*"))
            daemon.start()

    job = daemon.client.submit(
        "application: {executable: ./compare}\ncomponents: [{processors: 1}]\n",
        files=[data, program],
        progress=killed,
    ).job.id
    assert parts == [2 * PIECE_BYTES_MAX]
    assert len(seen) == 5, "nothing was sent twice"
    assert daemon.client.wait_ended(job).state == "done"
    assert daemon.client.output(job).text.split()[0] == hashlib.sha256(data.read_bytes()).hexdigest()


def test_a_file_that_changes_while_it_is_sent_is_told(daemon: Daemon, project: Path) -> None:
    data = project / "data"
    data.write_bytes(random.Random(2).randbytes(2 * PIECE_BYTES_MAX))

    def changed(there: int, total: int) -> None:
        data.write_bytes(random.Random(3).randbytes(2 * PIECE_BYTES_MAX))

    with pytest.raises(InvalidError, match="changed while it was sent"):
        daemon.client.submit(JOB, files=[data, project / "solver", project / "config"], progress=changed)
