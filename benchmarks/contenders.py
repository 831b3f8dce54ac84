"""The simulators that are compared: how each is built and started, and what to do where one is missing.

Each runs in a process of its own and prints what ``jobs_file.Measured`` says. What is measured on which platform, and
how it is shown, is ``simulators``.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs_file import Measured, write_jobs
from workloads import Jobs

HERE = Path(__file__).resolve().parent


class Platform(NamedTuple):
    """Clusters of equal size."""

    clusters: int
    processors: int

    def __str__(self) -> str:
        return f"{self.clusters}x{self.processors}"


class Missing(Exception):  # noqa: N818
    """A simulator that cannot be run here; says how to get it."""


class Contender(NamedTuple):
    """A simulator: its name, the start of its command line, which may have to be built first in a folder, how often a
    process of it runs the jobs, and what else ends the command line."""

    name: str
    command: Callable[[Path], list[str]]
    rounds: int = 1
    after: tuple[str, ...] = ()


def _python(*arguments: str) -> Callable[[Path], list[str]]:
    return lambda _folder: [sys.executable, *arguments]


def _accasim(_folder: Path) -> list[str]:
    if importlib.util.find_spec("accasim") is None:
        raise Missing("not installed: pip install accasim")
    return [sys.executable, "-W", "ignore", str(HERE / "accasim_first_fit.py")]


def _limit(folder: Path) -> list[str]:
    return [_built(folder, "limit.c", ("gcc", "cc"), ())]


def _simgrid(folder: Path) -> list[str]:
    return [_built(folder, "simgrid_first_fit.cpp", ("g++", "c++"), ("-lsimgrid",))]


def _built(folder: Path, source: str, compilers: tuple[str, ...], libraries: tuple[str, ...]) -> str:
    """The program, compiled with -O2 unless that was done before."""
    program = folder / Path(source).stem
    if not program.exists():
        compiler = next(filter(None, map(shutil.which, compilers)), None)
        if compiler is None:
            raise Missing(f"no compiler: install {compilers[0]}")
        command = [compiler, "-O2", "-o", str(program), str(HERE / source), *libraries]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "simgrid" in done.stderr and "-lsimgrid" in libraries:
                raise Missing("not installed: apt-get install libsimgrid-dev")
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return str(program)


LIMIT = Contender("C, the limit", _limit, rounds=5)
KERNEL = Contender("kernel", _python(str(HERE / "python_first_fit.py"), "kernel"), rounds=5)
CORE = Contender("core under the simulator", _python(str(HERE / "python_first_fit.py"), "core"))
LOOP = Contender("plain Python loop", _python(str(HERE / "python_first_fit.py"), "loop"))
SIMGRID = Contender("SimGrid, C++", _simgrid, after=("together",))
SIMGRID_OWN_ORDER = Contender("SimGrid, C++, its order of ties", _simgrid)
ACCASIM = Contender("AccaSim", _accasim)


class Arena:
    """A folder with the programs and the files of jobs, and all that was measured so far."""

    def __init__(self, folder: Path, told: Callable[[str], None]) -> None:
        self._folder = folder
        self._told = told
        self._measured: dict[tuple[str, str, Platform], Measured | Missing] = {}

    def write(self, name: str, jobs: Jobs) -> None:
        """Have these jobs ready under a name."""
        write_jobs(jobs, self._path(name))

    def best(
        self, contenders: Sequence[Contender], name: str, platform: Platform, turns: int
    ) -> dict[str, Measured | Missing]:
        """The best of so many turns for each, taken in turn; what was measured before is not measured again."""
        wanted = [each for each in contenders if (each.name, name, platform) not in self._measured]
        for turn in range(turns):
            for contender in wanted:
                key = contender.name, name, platform
                before = self._measured.get(key)
                if isinstance(before, Missing):
                    continue
                self._told(f"{contender.name}, {platform}, {name} jobs, turn {turn + 1} of {turns} ...")
                taken = self._run(contender, name, platform)
                if isinstance(taken, Missing) or before is None or taken.s < before.s:
                    self._measured[key] = taken
        return {each.name: self._measured[each.name, name, platform] for each in contenders}

    def _run(self, contender: Contender, name: str, platform: Platform) -> Measured | Missing:
        try:
            command = contender.command(self._folder)
        except Missing as missing:
            return missing
        numbers = (platform.clusters, platform.processors, contender.rounds)
        command = [*command, str(self._path(name)), *map(str, numbers), *contender.after]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return Measured(**json.loads(done.stdout.splitlines()[-1]))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace(',', '')}.jobs"
