"""Input files on real clusters: jobs go where they are, and files go from server to server."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_grid import PROCESSORS, SITES, RealGrid, real_grid

from koala.lab import Lab
from live_daemon import until

MEGABYTES = 200


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


def test_a_replica_that_was_altered_is_never_run_on(served: RealGrid, data: Path) -> None:
    """Its one replica has another byte than the catalogue knows: the job says so instead of running."""
    small = data.with_name("small")
    small.write_bytes(data.read_bytes()[:10_000_000])
    served.client.register("small", "beta", path=str(small))
    replica = next(served.lab.plan.site("beta").work.parent.glob("work-*/files/replicas/=small"))
    replica.chmod(0o644)
    with replica.open("r+b") as file:
        file.seek(5_000_000)
        byte = file.read(1)
        file.seek(5_000_000)
        file.write(bytes([byte[0] ^ 1]))
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
    until(lambda: all(served.client.probe(site).idle == PROCESSORS for site in SITES), "all is free")
