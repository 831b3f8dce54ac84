"""Input files on real clusters: jobs go where they are, and files go from server to server."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from koala.lab import Lab
from koala.model.api import ComponentRun
from tests.support.live_daemon import until
from tests.support.real_grid import PROCESSORS, SITES, WAIT_S, RealGrid, real_grid

MEGABYTES = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of which no two pieces are the same."""
    path = tmp_path_factory.mktemp("data") / "data"
    path.write_bytes(random.Random(1).randbytes(MEGABYTES * 1_000_000))
    return path


@pytest.fixture(scope="module")
def served(the_lab: Lab, tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[RealGrid]:
    """A daemon whose sites have GridFTP servers; the file is at beta and gamma."""
    with real_grid(the_lab, tmp_path_factory.mktemp("served"), gridftp=True, mbit_s=100) as grid:
        grid.client.register("data", "beta", path=str(data))
        grid.client.replicate("data", "gamma")
        yield grid


def test_a_job_is_placed_close_to_its_files(served: RealGrid) -> None:
    """CF: the clusters with a replica, not the one that the file would have to come to."""
    job = served.submit(
        "policy: CF\ninput_files: [data]\napplication: {script: wc -c <data}\n"
        "components: [{processors: 6, count: 2}]\n"
    )
    found = served.done(job)
    assert sorted(each.site for each in served.last_run(job)) == ["beta", "gamma"]
    assert found.transfers == []
    assert [served.printed(job, part).strip() for part in range(2)] == [str(MEGABYTES * 1_000_000)] * 2


def test_a_file_goes_from_server_to_server_and_is_the_same_there(served: RealGrid, data: Path) -> None:
    job = served.submit(
        "input_files: [data]\napplication: {script: sha256sum <data}\ncomponents: [{processors: 1, site: alpha}]\n"
    )
    found = served.done(job)
    assert [each.target for each in found.transfers] == ["alpha"]
    assert found.transfers[0].ok
    assert served.printed(job).split()[0] == hashlib.sha256(data.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def small(served: RealGrid, data: Path) -> tuple[str, Path]:
    """The SHA-256 of a file of which beta has the only replica, and where that is."""
    path = data.with_name("small")
    path.write_bytes(data.read_bytes()[:10_000_000])
    served.client.register("small", "beta", path=str(path))
    replica = next(served.lab.plan.site("beta").work.parent.glob("work-*/files/replicas/=small"))
    return hashlib.sha256(path.read_bytes()).hexdigest(), replica


@pytest.fixture
def altered(served: RealGrid, small: tuple[str, Path]) -> Iterator[None]:
    """During the test its replica has another byte than the catalogue knows."""
    turn_a_byte(small[1])
    yield
    turn_a_byte(small[1])
    until(lambda: all(served.client.probe(site).idle == PROCESSORS for site in SITES), "all is free")


def turn_a_byte(path: Path) -> None:
    """Alter one byte of a file, or put it right again."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(5_000_000)
        byte = file.read(1)
        file.seek(5_000_000)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.usefixtures("altered")
def test_a_replica_that_was_altered_is_never_brought_to_a_job(served: RealGrid) -> None:
    """It would have to come from beta: the transfer says what is wrong, and the job does not run."""
    job = served.submit(
        "input_files: [small]\napplication: {script: sha256sum <small}\ncomponents: [{processors: 1, site: alpha}]\n"
    )

    def reasons() -> set[str]:
        return {each.reason for each in served.client.job(job).transfers if each.ok is False}

    until(lambda: any("it is damaged" in reason for reason in reasons()), "the transfer says what is wrong")
    served.client.cancel(job)
    found = served.ended(job)
    assert found.runs == 0, served.story(job)
    assert not any(each.ok for each in found.transfers)


@pytest.mark.usefixtures("altered")
@pytest.mark.parametrize(
    "wish", ["components: [{processors: 1, site: beta}]", "policy: CF\ncomponents: [{processors: 1}]"]
)
def test_a_replica_that_was_altered_is_never_run_on_where_it_is(served: RealGrid, wish: str, tmp_path: Path) -> None:
    """The job goes to beta, by name or to be close to its file. Nothing is brought, so that only a look at the
    replica itself can tell: the job says so instead of running."""
    log = tmp_path / "log"
    job = served.submit(f"input_files: [small]\napplication: {{script: 'sha256sum <small >>{log}'}}\n{wish}\n")

    def ends() -> list[ComponentRun]:
        return [each for each in served.client.job(job).components if each.outcome is not None]

    until(lambda: bool(ends()), "a component is ended for its file", WAIT_S)
    first = ends()[0]
    assert first.site == "beta"
    assert (first.outcome, first.fault) == ("failed", "user")
    assert "file 'small' at beta: its SHA-256 is" in first.reason
    assert "it is damaged" in first.reason
    served.client.cancel(job)
    assert served.ended(job).transfers == []
    assert not log.exists()


def test_a_replica_that_was_put_right_is_run_on_where_it_is(served: RealGrid, small: tuple[str, Path]) -> None:
    job = served.submit(
        "input_files: [small]\napplication: {script: sha256sum <small}\ncomponents: [{processors: 1, site: beta}]\n"
    )
    assert served.done(job).transfers == []
    assert served.printed(job).split()[0] == small[0]
