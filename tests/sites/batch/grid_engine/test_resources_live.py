"""Slots that Koala takes for idle on a real Grid Engine whose resources are used up: the scheduler says the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from koala.model.grid import BatchSettings
from koala.model.launch import Launch
from koala.model.request import Application
from koala.sites.batch.grid_engine.system import GridEngineSystem
from koala.sites.batch.system import BatchSubmission
from tests.support.batch_settings import batch_settings
from tests.support.grid_engine_cell import SLOTS, WAIT_S, GridEngineCell, grid_engine_cell

# Memory that each slot uses up, licences that a job does, and two of which the one has a default.
COMPLEXES = """\
h_vmem h_vmem MEMORY <= YES YES 0 0
lic li INT <= YES JOB 0 0
tok tk INT <= YES YES 0 0
none none INT <= YES YES 0 0
scratch scr MEMORY <= YES YES 500M 0
"""
HOST = "h_vmem=8100M,lic=2,tok=3,scratch=1800M"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngineCell]:
    """One slot is in use, with 1000M of memory and one of the tokens. The queue gives a slot no more than 6G."""
    with grid_engine_cell() as running:
        file: Path = tmp_path_factory.mktemp("complexes") / "complexes"
        kept = [line for line in running.run("qconf", "-sc").splitlines() if not line.startswith("h_vmem")]
        file.write_text("\n".join(kept) + f"\n{COMPLEXES}")
        running.run("qconf", "-Mc", file)
        running.run("qconf", "-mattr", "exechost", "complex_values", HOST, running.host)
        running.run("qconf", "-mattr", "queue", "h_vmem", "6G", "all.q")
        running.run(
            "qsub", "-b", "y", "-o", "/dev/null", "-j", "y", "-l", "h_vmem=1000M,tok=1,h_rt=1000", "sleep", "600"
        )
        running.wait(lambda: " r " in running.run("qstat", "-u", "*"), "the job does not start")
        yield running


SETTINGS = {
    "": 2,  # of the scratch space 1300M are left
    "scr=0": SLOTS - 1,
    "scratch=400M": SLOTS - 1,
    "scr=0,h_vmem=3G": 2,
    "scr=0,h_vmem=2366M": 3,
    "scr=0,h_vmem=2367M": 2,
    "scr=0,h_vmem=3551M": 1,
    "scr=0,h_vmem=6G": 1,
    "scr=0,h_vmem=6200M": 0,
    "scr=0,tok=1": 2,
    "scr=0,tk=2": 1,
    "scr=0,tok=3": 0,
    "scr=0,lic=2": SLOTS - 1,
    "scr=0,lic=3": 0,
    "scr=0,none=1": 0,
    "scr=0,mem_free=1M": SLOTS - 1,
    "scr=0,mf=900T": 0,
}


@pytest.mark.parametrize(("request_text", "idle"), SETTINGS.items(), ids=[text or "nothing" for text in SETTINGS])
def test_so_many_slots_are_idle_as_a_job_could_get_and_not_one_more(
    cell: GridEngineCell, request_text: str, idle: int
) -> None:
    options = ("-l", request_text) if request_text else ()
    settings = batch_settings(queue="all.q", parallel_environment="mpi", submit_options=options)
    system = GridEngineSystem(settings)
    told = system.parse_listing(cell.run("sh", stdin=system.listing()))
    assert (told.processors - told.others, told.processors) == (idle, SLOTS)
    assert idle == 0 or could_start(cell, idle, options)
    assert not could_start(cell, idle + 1, options)


def test_a_listing_tells_when_a_job_reaches_its_time_limit_in_whatever_time_zone(cell: GridEngineCell) -> None:
    system = GridEngineSystem(BatchSettings(work_directory="/w", queue="all.q"))
    told = system.parse_listing(cell.run("env", "TZ=Asia/Tokyo", "sh", stdin=system.listing()))
    ((end_at, slots),) = told.releases
    assert slots == 1
    assert -9 * 3_600 < end_at - 1_000 - time.time() <= 1, "it began lately, and not nine hours before or after"


def test_a_job_of_as_many_slots_as_are_told_idle_starts(cell: GridEngineCell) -> None:
    options = ("-l", "scr=0,h_vmem=2366M")
    number = cell.run("qsub", "-terse", "-b", "y", "-o", "/dev/null", "-j", "y", *asking(3, options), "sleep", "600")
    try:
        deadline = time.monotonic() + WAIT_S
        while " r " not in next(
            line for line in cell.run("qstat", "-u", "*").splitlines() if number.strip() in line.split()
        ):
            assert time.monotonic() < deadline, cell.run("qstat", "-j", number.strip())
            time.sleep(0.1)
    finally:
        cell.run("qdel", number.strip())
        cell.wait(lambda: number.strip() not in cell.run("qstat", "-u", "*").split(), "it stays")


def asking(slots: int, options: tuple[str, ...]) -> tuple[str, ...]:
    return ("-q", "all.q", "-pe", "mpi", str(slots), *options)


def could_start(cell: GridEngineCell, slots: int, options: tuple[str, ...]) -> bool:
    """What the scheduler says of such a job, with the cell as it is."""
    done = cell.call("qsub", "-w", "p", "-b", "y", *asking(slots, options), "sleep", "1")
    said = done.stdout + done.stderr
    found = "found suitable queue" in said
    assert found or "no suitable queues" in said, said
    return found


def test_a_component_holds_the_licences_that_it_asks_for(cell: GridEngineCell, tmp_path: Path) -> None:
    system = GridEngineSystem(BatchSettings(work_directory="/w", queue="all.q"))
    tmp_path.chmod(0o755)
    (tmp_path / "script").write_text("#!/bin/sh\nexec sleep 600\n")
    launch = Launch(token="1.1-ab", job=1, processors=1, application=Application(executable="x"))  # noqa: S106
    wanted = msgspec.structs.replace(launch, licenses=(("lic", 2),))
    submission = BatchSubmission(launch=wanted, home=str(tmp_path), script="script", log="log", limit_s=None)
    asked = system.submit(submission).replace("qsub ", "qsub -l h_vmem=100M,scratch=0 ", 1)
    number = system.parse_submitted(cell.run("sh", stdin=asked))
    try:
        cell.wait(lambda: "hc:lic=0" in cell.run("qhost", "-F", "lic"), "the licences are not taken")
    finally:
        cell.run("qdel", number)
    unknown = msgspec.structs.replace(submission, launch=msgspec.structs.replace(launch, licenses=(("nosuch", 1),)))
    refused = cell.call("sh", stdin=system.submit(unknown))
    why = system.refusal(refused.returncode, refused.stdout, refused.stderr)
    assert why is not None
    assert system.is_for_what_it_asks(why)
