"""The scripts for Grid Engine against a real cell: each one is run by ``sh``, and what it printed is parsed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.system import (
    BatchEnd,
    BatchId,
    BatchJob,
    BatchListing,
    BatchState,
    BatchSubmission,
    EndKind,
    WantedReservation,
)
from tests.support.batch_settings import batch_settings
from tests.support.grid_engine_cell import SLOTS, GridEngineCell, grid_engine_cell

MPI = {"queue": "all.q", "parallel_environment": "mpi"}


@pytest.fixture(scope="module")
def running_cell() -> Iterator[GridEngineCell]:
    with grid_engine_cell() as cell:
        yield cell


@pytest.fixture
def user(running_cell: GridEngineCell, tmp_path: Path) -> Iterator[CellUser]:
    yield CellUser(running_cell, tmp_path)
    running_cell.clear()


class CellUser:
    """A user at a cell."""

    def __init__(self, cell: GridEngineCell, home: Path) -> None:
        self.cell = cell
        self.home = home
        home.chmod(0o755)
        self.system = self.with_settings(**MPI)

    def with_settings(self, **settings: Any) -> GridEngineSystem:
        return GridEngineSystem(batch_settings(str(self.home), **settings))

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


def test_jobs_are_seen_from_their_start_to_their_end(user: CellUser) -> None:
    """One returns 3, one is cancelled; a job that is not Koala's has a slot meanwhile."""
    local = ("qsub", "-terse", "-N", "local", "-o", "/dev/null", "-j", "y", "-wd", "/")
    user.cell.run(*local, stdin="sleep 60")
    waiting = "#$ -N another\n#$ -pe mpi 99\nuntil [ -e go ]; do sleep 0.3; done\nexit 3\n"
    ids = {"returned": user.submit("returned", waiting, processors=2), "cancelled": user.submit("cancelled")}
    user.until_running("returned", "cancelled")
    seen = user.listing()
    assert {job.token: job.processors for job in seen.jobs} == {"returned": 2, "cancelled": 1}
    assert (seen.processors, seen.others) == (SLOTS, 1)

    (user.home / "go").touch()
    user.said(user.system.cancel("cancelled", [ids["cancelled"]]))
    user.cell.wait(lambda: not user.listing().jobs, "jobs stay")
    user.said(user.system.cancel("cancelled", [ids["cancelled"]]))
    ends = user.history(**ids)

    assert ends["returned"] == BatchEnd(kind=EndKind.ITSELF, exit_code=3)
    assert (ends["cancelled"].kind, ends["cancelled"].exit_code) == (EndKind.CANCELLED, 137)


def test_a_job_that_cannot_start_says_why(user: CellUser) -> None:
    missing = str(user.home / "missing")
    given = user.submission("bad")
    moved = msgspec.structs.replace(given, home=missing, script=str(user.home / given.script))
    user.said(user.system.submit(moved))

    user.cell.wait(lambda: (job := user.job("bad")) is not None and job.end is not None, "it is not in error")

    job = user.job("bad")
    assert job is not None
    assert job.state is BatchState.PENDING
    assert job.end is not None
    assert job.end.kind is EndKind.SITE
    assert missing in job.end.reason
    user.said(user.system.cancel("bad", []))
    user.cell.wait(lambda: user.job("bad") is None, "it stays")


def test_a_job_that_is_kept_off_all_nodes_is_refused_and_not_left_in_the_queue(user: CellUser) -> None:
    """The nodes have the names by which they are told."""
    names = [node.name for node in user.listing().named]
    assert names == [user.cell.host]
    submission = user.submission("1.1")
    for excluded, is_refused in (((*names,), True), (("elsewhere",), False)):
        launch = msgspec.structs.replace(submission.launch, exclude_nodes=excluded)
        done = user.sh(user.system.submit(msgspec.structs.replace(submission, launch=launch)))
        assert (user.system.refusal(done.returncode, done.stdout, done.stderr) is not None) is is_refused
    assert user.job("1.1") is not None


def test_one_cancel_ends_all_jobs_of_a_name(user: CellUser) -> None:
    user.system = user.with_settings(submit_options=("-h",))
    user.submit("twice")
    user.submit("twice")
    assert [job.state for job in user.listing().jobs] == [BatchState.HELD, BatchState.HELD]

    user.said(user.system.cancel("twice", []))

    user.cell.wait(lambda: not user.listing().jobs, "one of them stays")


def test_without_a_setting_an_environment_of_the_queue_is_taken(user: CellUser) -> None:
    user.system = user.with_settings()

    user.submit("chosen", processors=2)

    user.until_running("chosen")
    job = user.job("chosen")
    assert job is not None
    assert job.processors == 2


def test_a_queue_that_is_not_there_offers_nothing_and_refuses_for_good(user: CellUser) -> None:
    system = user.with_settings(queue="nowhere.q")
    done = user.sh(system.submit(user.submission("lost")))
    assert done.returncode != 0
    reason = system.refusal(done.returncode, done.stdout, done.stderr)
    assert reason is not None
    assert "nowhere.q" in reason

    assert user.listing(system).processors == 0
    # Nor is there an environment for more processors in it.
    done = user.sh(system.submit(user.submission("lost", processors=2)))
    assert done.returncode != 0
    assert system.refusal(done.returncode, done.stdout, done.stderr) is not None


def test_a_disabled_queue_offers_nothing(user: CellUser) -> None:
    user.cell.run("qmod", "-d", "all.q")
    try:
        assert user.listing().processors == 0
    finally:
        user.cell.run("qmod", "-e", "all.q")
    assert user.listing().processors == SLOTS


def test_a_silent_qmaster_is_told_from_an_answer(user: CellUser) -> None:
    """No script takes silence for success, and no refusal is concluded from it."""
    silent = f"SGE_QMASTER_PORT={user.cell.unused_port}; export SGE_QMASTER_PORT\n"
    chosen = user.with_settings()

    for text in (
        user.system.listing(),
        user.system.cancel("any", []),
        user.system.reserve(WantedReservation("koala-any", 1, 0.0, 60.0)),
        user.system.unreserve("koala-any"),
    ):
        assert user.sh(silent + text).returncode != 0
    for system, processors in ((user.system, 1), (chosen, 2)):
        done = user.sh(silent + system.submit(user.submission("any", processors=processors)))
        assert done.returncode != 0
        assert system.refusal(done.returncode, done.stdout, done.stderr) is None


def test_a_reservation_is_made_once_and_given_back(user: CellUser) -> None:
    text = user.system.reserve(WantedReservation("koala_kept", SLOTS, time.time() + 600, 60.0))
    name = user.system.parse_reserved(user.said(text))
    assert user.system.parse_reserved(user.said(text)) == name
    user.submit("kept", processors=SLOTS, reservation=name, limit_s=10_000)

    user.said(user.system.unreserve("koala_kept"))

    user.cell.wait(lambda: user.cell.is_empty, "the reservation or its job stays")
    user.said(user.system.unreserve("koala_kept"))


def test_of_two_reservations_of_one_name_the_first_stands_and_all_are_given_back(user: CellUser) -> None:
    """As when two tries to reserve come through at once: Grid Engine takes a name twice."""
    at = time.strftime("%Y%m%d%H%M.%S", time.localtime(time.time() + 600))
    twice = ["qrsub", "-N", "koala_twice", "-a", at, "-d", "60", "-pe", "mpi", "1"]
    first, _ = [user.system.parse_reserved(user.cell.run(*twice)) for _ in range(2)]

    text = user.system.reserve(WantedReservation("koala_twice", 1, time.time() + 600, 60.0))
    assert user.system.parse_reserved(user.said(text)) == first
    assert user.cell.run("qrstat", "-xml").count("<name>koala_twice</name>") == 1

    user.cell.run(*twice)
    user.said(user.system.unreserve("koala_twice"))
    user.cell.wait(lambda: user.cell.is_empty, "a reservation stays")


def test_a_reservation_whose_time_has_come_begins_at_once(user: CellUser) -> None:
    user.said(user.system.reserve(WantedReservation("koala_late", SLOTS - 1, time.time() - 5, 60.0)))

    user.cell.wait(lambda: user.listing().others == SLOTS - 1, "its processors are not kept")


def test_a_reservation_that_never_fits_is_refused(user: CellUser) -> None:
    assert (
        user.sh(user.system.reserve(WantedReservation("koala-huge", SLOTS + 1, time.time() + 60, 60.0))).returncode
        != 0
    )


def test_a_command_runs_on_another_node_with_arguments_and_environment(user: CellUser) -> None:
    """There is one host; the job is made to believe that it is on another one, so the way leads through qrsh."""
    (user.home / "site").write_text(user.system.on_node())
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
    user.submit("nodes", script, processors=2)

    user.cell.wait(lambda: (user.home / "code").exists() and user.job("nodes") is None, "it does not end")

    host = user.cell.host
    assert (user.home / "nodes").read_text() == f"{host} 2\n"
    said = "a  'b' \"c\" $HOME\nand a second line"
    assert (user.home / "nodes.log").read_text() == f"{host}|{said}|{user.home}|one  two|it's|*||"
    assert (user.home / "code").read_text() == "7"


def test_the_version_is_one_line(user: CellUser) -> None:
    said = user.said(user.system.version())

    assert said.startswith("Grid Engine: ")
    assert said.count("\n") == 1
