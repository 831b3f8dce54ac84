"""Looking at the machines of sites: what the program there tells, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from koala.daemon.upkeep import machine_program
from koala.daemon.upkeep.machines import (
    REFERENCE_STEPS_PER_S,
    MachinesUnknownError,
    MachineWatch,
    classes_of,
    load_of_idle,
    read_machine,
)
from koala.model.grid import NODE_POWER, BatchSettings, Site, SiteKind
from koala.model.messages import SiteMachines
from koala.sites.batch.system import BatchOutputError, NodeLoad
from koala.sites.batch.systems import system_of


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


LOCAL = Site(name="a", processors=4, kind=SiteKind.LOCAL)
END = "KOALA_MACHINES\n"


def batch_site(kind: str, queue: str | None = None) -> Site:
    """A site under this batch system."""
    return Site(name="a", processors=4, kind=kind, batch=BatchSettings(work_directory="/w", queue=queue))


def test_power_is_measured_once_and_load_at_every_look() -> None:
    answers = (f"{END}machine 4 3.2\nrate 20000000\n", f"{END}machine 4 3.2\n", f"{END}machine 4 9.0\n")
    heard, shell = looked(LOCAL, *answers, held=3)
    power = 2.0 * NODE_POWER
    assert REFERENCE_STEPS_PER_S == 10_000_000
    assert [event.machines for event in heard.events] == [((4, power, 0.2),), ((4, power, 0.9),)]
    assert ["python3 - 1 <<" in shell.scripts[0], "python3 - 0 <<" in shell.scripts[1]] == [True, True]


def test_a_batch_system_is_asked_for_the_nodes_of_its_partition_and_the_machine_for_its_power_once() -> None:
    loads = "n1|0/2/0/2|0.00\nn2|0/6/0/6|6.00\n"
    site = batch_site("slurm", "batch")
    heard, shell = looked(site, f"{loads}{END}machine 4 0.1\nrate 10000000\n", f"{loads}{END}")
    assert [event.machines for event in heard.events] == [((2, NODE_POWER, 0.0), (6, NODE_POWER, 0.5))]
    assert shell.scripts[0].startswith("sinfo -h -N -o '%N|%C|%O' -p batch\n")
    assert ["python3 - 1 <<" in script for script in shell.scripts] == [True, False]


@pytest.mark.parametrize(
    "said", ["", "python3 is missing there", "machine", "machine 4 much", "machine 0 0.5", "machine 4 -1", "rate 3",
             "machine 4 0.5\nrate 0", "machine 4 0.5\nrate nan", "machine 4 nan", "hello"],
)  # fmt: skip
def test_what_makes_no_sense_is_no_word_on_the_site(said: str) -> None:
    with pytest.raises(MachinesUnknownError):
        classes_of(read_machine(said)[0])
    heard, _ = looked(LOCAL, f"{END}{said}")
    assert heard.events == []


def test_a_batch_system_that_makes_no_sense_is_no_word_on_the_site() -> None:
    heard, _ = looked(batch_site("slurm"), f"what\n{END}machine 4 0.5\nrate 10000000\n")
    assert heard.events == []


def test_loads_that_are_near_each_other_count_as_one() -> None:
    nodes = [NodeLoad(100, 0, load) for load in (0.0, 11.0, 25.0, 43.0, 67.0, 100.0, 150.0, 233.0, 400.0, 900.0)]
    classes = classes_of(nodes)
    assert [load for _, load in classes] == [number / 10 for number in range(10)]
    assert sum(processors for processors, _ in classes) == 1_000


def test_the_load_of_those_who_hold_processors_is_not_on_the_idle_ones() -> None:
    assert load_of_idle(4.0, 8, 4) == 0.0
    assert load_of_idle(8.0, 8, 4) == 0.5
    assert load_of_idle(1_000.0, 8, 4) == 0.9
    assert load_of_idle(8.0, 8, 8) == 0.0


def loads_of(kind: str, printed: str) -> list[NodeLoad]:
    """What is read of what the batch system prints."""
    return system_of(batch_site(kind)).parse_loads(printed)


def test_sinfo_tells_of_nodes_with_their_processors_and_load() -> None:
    text = "n1|4/4/0/8|4.00\nn2|0/8/0/8|4.00\nn2|0/8/0/8|4.00\nn3|0/0/8/8|N/A\nn4|0/8/0/8|0.10\n"
    assert loads_of("slurm", text) == [NodeLoad(8, 4, 4.0), NodeLoad(8, 0, 4.0), NodeLoad(8, 0, 0.1)]
    with pytest.raises(BatchOutputError, match="'what' tells of no node"):
        loads_of("slurm", "what\n")


def test_qstat_tells_of_hosts_with_their_slots_and_load() -> None:
    text = (
        "queuename  qtype resv/used/tot. load_avg arch states\n-----\nall.q@h1  BIP  0/2/4  3.00  lx-amd64\n"
        "all.q@h2  BIP  0/0/4  -NA-  lx-amd64  au\nmore.q@h1  BIP  0/0/4  3.00  lx-amd64\n"
    )
    assert loads_of("grid_engine", text) == [NodeLoad(8, 2, 3.0)]
    assert system_of(batch_site("grid_engine", "all.q")).loads() == "qstat -f -q all.q\n"


def test_this_machine_is_timed() -> None:
    command = [sys.executable, machine_program.__file__, "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    here, rate = read_machine(told)
    assert [each.processors for each in here] == [os.cpu_count()]
    assert rate is not None
