"""The texts of Grid Engine against a real cell: each one is run by ``sh``, and what it printed is parsed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.system import BatchEnd, BatchId, BatchJob, BatchListing, BatchState, BatchSubmission, EndKind
from tests.support.grid_engine_cell import SLOTS, GridEngineCell, grid_engine_cell

MPI = {"queue": "all.q", "parallel_environment": "mpi"}


@pytest.fixture(scope="module")
def running_cell() -> Iterator[GridEngineCell]:
    with grid_engine_cell() as cell:
        yield cell


@pytest.fixture
def desk(running_cell: GridEngineCell, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(running_cell, tmp_path)
    running_cell.clear()


class Desk:
    """A user's desk at a cell."""

    def __init__(self, cell: GridEngineCell, home: Path) -> None:
        self.cell = cell
        self.home = home
        home.chmod(0o755)
        self.system = self.with_settings(**MPI)

    def with_settings(self, **settings: Any) -> GridEngineSystem:
        return GridEngineSystem(BatchSettings(work_directory=str(self.home), **settings))

    def sh(self, text: str) -> subprocess.CompletedProcess[str]:
        return self.cell.call("sh", stdin=text)

    def said(self, text: str) -> str:
        done = self.sh(text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submission(self, token: str, script: str = "sleep 60", processors: int = 1, **fields: Any) -> BatchSubmission:
        (self.home / f"{token}.sh").write_text(script)
        launch = Launch(token=token, job=1, processors=processors, application=Application(script=script))
        given = {"home": str(self.home), "script": f"{token}.sh", "log": f"{token}.log", **fields}
        return BatchSubmission(launch=launch, **given)

    def submit(self, token: str, script: str = "sleep 60", processors: int = 1, **fields: Any) -> BatchId:
        text = self.system.submit(self.submission(token, script, processors, **fields))
        return self.system.parse_submitted(self.said(text))

    def listing(self, system: GridEngineSystem | None = None) -> BatchListing:
        system = system or self.system
        return system.parse_listing(self.said(system.listing()))

    def job(self, token: str) -> BatchJob | None:
        found = [job for job in self.listing().jobs if job.token == token]
        assert len(found) <= 1
        return found[0] if found else None

    def state(self, token: str) -> BatchState | None:
        job = self.job(token)
        return None if job is None else job.state

    def until_running(self, *tokens: str) -> None:
        self.cell.wait(lambda: all(self.state(token) is BatchState.RUNNING for token in tokens), "jobs do not start")

    def history(self, **ids: BatchId) -> dict[str, BatchEnd]:
        """The ends of these jobs by their tokens, once all are told."""
        jobs = [BatchJob(id=each, token=token, state=BatchState.OVER) for token, each in ids.items()]
        told: dict[BatchId, BatchEnd] = {}

        def is_told() -> bool:
            told.update(self.system.parse_history(self.said(self.system.history(jobs)), jobs))
            return len(told) == len(jobs)

        self.cell.wait(is_told, "an end is not told")
        return {token: told[each] for token, each in ids.items()}


def test_jobs_are_seen_from_their_start_to_their_end(desk: Desk) -> None:
    """One returns 3, one is cancelled; a job that is not Koala's has a slot meanwhile."""
    local = ("qsub", "-terse", "-N", "local", "-o", "/dev/null", "-j", "y", "-wd", "/")
    desk.cell.run(*local, stdin="sleep 60")
    waiting = "#$ -N another\n#$ -pe mpi 99\nuntil [ -e go ]; do sleep 0.1; done\nexit 3\n"
    ids = {"returned": desk.submit("returned", waiting, processors=2), "cancelled": desk.submit("cancelled")}
    desk.until_running("returned", "cancelled")
    seen = desk.listing()
    assert {job.token: job.processors for job in seen.jobs} == {"returned": 2, "cancelled": 1}
    assert (seen.processors, seen.others) == (SLOTS, 1)

    (desk.home / "go").touch()
    desk.said(desk.system.cancel("cancelled", [ids["cancelled"]]))
    desk.cell.wait(lambda: not desk.listing().jobs, "jobs stay")
    desk.said(desk.system.cancel("cancelled", [ids["cancelled"]]))
    ends = desk.history(**ids)

    assert ends["returned"] == BatchEnd(kind=EndKind.ITSELF, exit_code=3)
    assert (ends["cancelled"].kind, ends["cancelled"].exit_code) == (EndKind.CANCELLED, 137)


def test_a_job_that_cannot_start_says_why(desk: Desk) -> None:
    missing = str(desk.home / "missing")
    given = desk.submission("bad")
    moved = msgspec.structs.replace(given, home=missing, script=str(desk.home / given.script))
    desk.said(desk.system.submit(moved))

    desk.cell.wait(lambda: (job := desk.job("bad")) is not None and job.end is not None, "it is not in error")

    job = desk.job("bad")
    assert job is not None
    assert job.state is BatchState.PENDING
    assert job.end is not None
    assert job.end.kind is EndKind.SITE
    assert missing in job.end.reason
    desk.said(desk.system.cancel("bad", []))
    desk.cell.wait(lambda: desk.job("bad") is None, "it stays")


def test_one_cancel_ends_all_jobs_of_a_name(desk: Desk) -> None:
    desk.system = desk.with_settings(submit_options=("-h",))
    desk.submit("twice")
    desk.submit("twice")
    assert [job.state for job in desk.listing().jobs] == [BatchState.HELD, BatchState.HELD]

    desk.said(desk.system.cancel("twice", []))

    desk.cell.wait(lambda: not desk.listing().jobs, "one of them stays")


def test_without_a_setting_an_environment_of_the_queue_is_taken(desk: Desk) -> None:
    desk.system = desk.with_settings()

    desk.submit("chosen", processors=2)

    desk.until_running("chosen")
    job = desk.job("chosen")
    assert job is not None
    assert job.processors == 2


def test_a_queue_that_is_not_there_offers_nothing_and_refuses_for_good(desk: Desk) -> None:
    system = desk.with_settings(queue="nowhere.q")
    done = desk.sh(system.submit(desk.submission("lost")))
    assert done.returncode != 0
    reason = system.refusal(done.returncode, done.stdout, done.stderr)
    assert reason is not None
    assert "nowhere.q" in reason

    assert desk.listing(system).processors == 0
    # Nor is there an environment for more processors in it.
    done = desk.sh(system.submit(desk.submission("lost", processors=2)))
    assert done.returncode != 0
    assert system.refusal(done.returncode, done.stdout, done.stderr) is not None


def test_a_disabled_queue_offers_nothing(desk: Desk) -> None:
    desk.cell.run("qmod", "-d", "all.q")
    try:
        assert desk.listing().processors == 0
    finally:
        desk.cell.run("qmod", "-e", "all.q")
    assert desk.listing().processors == SLOTS


def test_a_silent_qmaster_is_told_from_an_answer(desk: Desk) -> None:
    """No text takes silence for success, and no refusal is concluded from it."""
    silent = f"SGE_QMASTER_PORT={desk.cell.unused_port}; export SGE_QMASTER_PORT\n"
    chosen = desk.with_settings()

    for text in (
        desk.system.listing(),
        desk.system.cancel("any", []),
        desk.system.reserve("koala-any", 1, 0.0, 60.0),
        desk.system.unreserve("koala-any"),
    ):
        assert desk.sh(silent + text).returncode != 0
    for system, processors in ((desk.system, 1), (chosen, 2)):
        done = desk.sh(silent + system.submit(desk.submission("any", processors=processors)))
        assert done.returncode != 0
        assert system.refusal(done.returncode, done.stdout, done.stderr) is None


def test_a_reservation_is_made_once_and_given_back(desk: Desk) -> None:
    text = desk.system.reserve("koala_kept", SLOTS, time.time() + 600, 60.0)
    name = desk.system.parse_reserved(desk.said(text))
    assert desk.system.parse_reserved(desk.said(text)) == name
    desk.submit("kept", processors=SLOTS, reservation=name, limit_s=10_000)

    desk.said(desk.system.unreserve("koala_kept"))

    desk.cell.wait(lambda: desk.cell.is_empty, "the reservation or its job stays")
    desk.said(desk.system.unreserve("koala_kept"))


def test_of_two_reservations_of_one_name_the_first_stands_and_all_are_given_back(desk: Desk) -> None:
    """As when two tries to reserve come through at once: Grid Engine takes a name twice."""
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(time.time() + 600))
    twice = ["qrsub", "-N", "koala_twice", "-a", at, "-d", "60", "-pe", "mpi", "1"]
    first, _ = [desk.system.parse_reserved(desk.cell.run(*twice)) for _ in range(2)]

    text = desk.system.reserve("koala_twice", 1, time.time() + 600, 60.0)
    assert desk.system.parse_reserved(desk.said(text)) == first
    assert desk.cell.run("qrstat", "-xml").count("<name>koala_twice</name>") == 1

    desk.cell.run(*twice)
    desk.said(desk.system.unreserve("koala_twice"))
    desk.cell.wait(lambda: desk.cell.is_empty, "a reservation stays")


def test_a_reservation_whose_time_has_come_begins_at_once(desk: Desk) -> None:
    desk.said(desk.system.reserve("koala_late", SLOTS - 1, time.time() - 5, 60.0))

    desk.cell.wait(lambda: desk.listing().others == SLOTS - 1, "its processors are not kept")


def test_a_reservation_that_never_fits_is_refused(desk: Desk) -> None:
    assert desk.sh(desk.system.reserve("koala-huge", SLOTS + 1, time.time() + 60, 60.0)).returncode != 0


def test_a_command_runs_on_another_node_with_arguments_and_environment(desk: Desk) -> None:
    """There is one host; the job is made to believe that it is on another one, so the way leads through qrsh."""
    (desk.home / "site").write_text(desk.system.on_node())
    script = """
. ./site
koala_nodes >nodes
KOALA_SAID="a  'b' \\"c\\" \\$HOME
and a second line"
export KOALA_SAID
node=$HOSTNAME
HOSTNAME=elsewhere
(koala_on_node "$node" sh -c 'printf "%s|" "$HOSTNAME" "$KOALA_SAID" "$PWD" "$@"; exit 7' x 'one  two' "it's" '*' '')
printf '%s' "$?" >code
"""
    desk.submit("nodes", script, processors=2)

    desk.cell.wait(lambda: (desk.home / "code").exists() and desk.job("nodes") is None, "it does not end")

    host = desk.cell.host
    assert (desk.home / "nodes").read_text() == f"{host} 2\n"
    said = "a  'b' \"c\" $HOME\nand a second line"
    assert (desk.home / "nodes.log").read_text() == f"{host}|{said}|{desk.home}|one  two|it's|*||"
    assert (desk.home / "code").read_text() == "7"


def test_the_version_is_one_line(desk: Desk) -> None:
    said = desk.said(desk.system.version())

    assert said.startswith("Grid Engine: ")
    assert said.count("\n") == 1
