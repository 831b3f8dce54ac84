"""Looking at the machines of sites: what the program there tells, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from koala.daemon.upkeep import machine_program
from koala.daemon.upkeep.machine_program import load_of_idle
from koala.daemon.upkeep.machines import (
    REFERENCE_STEPS_PER_S,
    MachinesUnknownError,
    MachineWatch,
    read_machines,
)
from koala.model.grid import NODE_POWER, BatchSettings, Site, SiteKind
from koala.model.messages import MACHINE_CLASSES_MAX, SiteMachines


class Shell:
    """Stands for a site's shell: says what it is told to say."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.scripts: list[str] = []
        self.host = self

    async def run(self, script: str, *, timeout_s: float) -> str:
        self.scripts.append(script)
        return self.answers.pop(0)


class Heard:
    """Stands for the engine."""

    def __init__(self) -> None:
        self.events: list[SiteMachines] = []

    def now(self) -> float:
        return 7.0

    def report(self, event: Any) -> None:
        self.events.append(event)


def looked(site: Site, *answers: str, held: int = 0) -> tuple[Heard, Shell]:
    """So many looks at one site."""
    heard, shell = Heard(), Shell(*answers)
    watch = MachineWatch(heard, [site], {site.name: shell}, lambda _: held)  # type: ignore[arg-type, dict-item]

    async def scenario() -> None:
        for _ in range(len(answers)):
            await watch.look(site.name)

    asyncio.run(scenario())
    return heard, shell


def test_power_is_measured_once_and_load_at_every_look() -> None:
    site = Site(name="a", processors=4, kind=SiteKind.LOCAL)
    answers = ("class 4 0.2\nrate 20000000\n", "class 4 0.2\n", "class 4 0.7\n")
    heard, shell = looked(site, *answers, held=3)
    power = 2.0 * NODE_POWER
    assert REFERENCE_STEPS_PER_S == 10_000_000
    assert [event.machines for event in heard.events] == [((4, power, 0.2),), ((4, power, 0.7),)]
    assert [" 3 1 <<" in shell.scripts[0], " 3 0 <<" in shell.scripts[1]] == [True, True]


def test_a_site_under_a_batch_system_is_asked_for_its_partition() -> None:
    settings = BatchSettings(work_directory="/w", queue="batch")
    site = Site(name="a", processors=4, kind=SiteKind.SLURM, batch=settings)
    heard, shell = looked(site, "class 2 0.0\nclass 6 0.5\nrate 10000000\n")
    assert heard.events[0].machines == ((2, NODE_POWER, 0.0), (6, NODE_POWER, 0.5))
    assert "python3 - slurm batch 1 <<" in shell.scripts[0]


@pytest.mark.parametrize(
    "said", ["", "error python3 is missing there", "class", "class 4 much", "class 0 0.5", "class 4 1.5", "rate 3",
             "class 4 0.5\nrate 0", "class 4 0.5\nrate nan", "hello"],
)  # fmt: skip
def test_what_makes_no_sense_is_no_word_on_the_site(said: str) -> None:
    with pytest.raises(MachinesUnknownError):
        read_machines(said)
    heard, _ = looked(Site(name="a", processors=4, kind=SiteKind.LOCAL), said)
    assert heard.events == []


def test_of_very_many_loads_the_highest_count_as_one() -> None:
    lines = "".join(f"class 1 {number / 100}\n" for number in range(100))
    classes, rate = read_machines(lines)
    assert (len(classes), sum(processors for processors, _ in classes), rate) == (MACHINE_CLASSES_MAX, 100, None)
    assert classes[-1] == (100 - MACHINE_CLASSES_MAX + 1, 0.99)


def test_the_load_of_those_who_hold_processors_is_not_on_the_idle_ones() -> None:
    assert load_of_idle(4.0, 8, 4) == 0.0
    assert load_of_idle(8.0, 8, 4) == 0.5
    assert load_of_idle(1_000.0, 8, 4) == 0.9
    assert load_of_idle(8.0, 8, 8) == 0.0


def told_by(tmp_path: Path, command: str, text: str, *words: str) -> str:
    """What the program prints where a command of the batch system says this."""
    (tmp_path / command).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    (tmp_path / command).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, machine_program.__file__, *words],
        env=environment, capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip


def test_sinfo_tells_of_nodes_with_their_processors_and_load(tmp_path: Path) -> None:
    text = "n1|4/4/0/8|4.00\nn2|0/8/0/8|4.00\nn2|0/8/0/8|4.00\nn3|0/0/8/8|N/A\nn4|0/8/0/8|0.10"
    assert told_by(tmp_path, "sinfo", text, "slurm", "", "0") == "class 16 0.0\nclass 8 0.3\n"


def test_qstat_tells_of_hosts_with_their_slots_and_load(tmp_path: Path) -> None:
    text = (
        "queuename  qtype resv/used/tot. load_avg arch states\n-----\nall.q@h1  BIP  0/2/4  3.00  lx-amd64\n"
        "all.q@h2  BIP  0/0/4  -NA-  lx-amd64  au\nmore.q@h1  BIP  0/0/4  3.00  lx-amd64"
    )
    assert told_by(tmp_path, "qstat", text, "grid_engine", "all.q", "0") == "class 8 0.1\n"


def test_this_machine_is_timed_and_what_cannot_be_asked_is_told(tmp_path: Path) -> None:
    classes, rate = read_machines(told_by(tmp_path, "unused", "", "local", "0", "1"))
    assert sum(processors for processors, _ in classes) == os.cpu_count()
    assert rate is not None
    assert told_by(tmp_path, "sinfo", "what", "slurm", "", "0").startswith("error slurm: ")
