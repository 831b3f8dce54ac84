"""The measured runs of the real solvers, and their start with the real MPI on this machine.

``patterns`` counts the messages of a run, ``fit`` evaluates the measured times.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from koala.study.live import run_script

APPLICATIONS = ("laplace", "heat", "poisson")
PROCESSES = (1, 2, 3, 4)
# The divisions over clusters by number of processes.
_DIVIDED: dict[int, list[tuple[int, ...]]] = {2: [(1, 1)], 3: [(1, 1, 1)], 4: [(2, 2), (2, 1, 1), (1, 1, 1, 1)]}
# A longer start of the solvers hangs; all of them take seconds.
START_S_MAX = 300.0
# The runs on one process have different numbers of points, to separate the cost of a point from that of an iteration.
_SMALLER = 2
# At most this much output of a failed start is shown.
_SHOWN_CHARACTERS = 500
# The files of a start.
_ASKED, _SCRIPT, _ANSWER, _ERRORS, _CODE = "asked.json", "script", "answer.json", "errors", "code"


class SolverRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a solver: ``size`` x ``size`` points, and the processes of each cluster."""

    application: str
    size: int
    iterations: int
    clusters: tuple[int, ...]
    latency_ms: float = 0.0
    bandwidth_mbit_s: float | None = None


class MissingMpiError(ValueError):
    """There is no MPI to measure with."""

    def for_user(self) -> str:
        """Return what is missing, and what to install."""
        return str(self)


class MeasuringError(RuntimeError):
    """A start of the solvers did not return the requested times."""

    def for_user(self) -> str:
        """Return which processes, and their output."""
        return str(self)


def runs_on(
    processes: int, size: int, iterations: int, latency_ms: float, bandwidth_mbit_s: float | None
) -> list[SolverRun]:
    """Return the runs with this many processes: on one cluster, and divided over up to as many clusters as possible.

    Two processes are half as far apart as the others, so that the cost of a delay is measured at more than one delay.
    """
    if processes == 1:
        return [
            SolverRun(application=name, size=points, iterations=2 * iterations, clusters=(1,))
            for name in APPLICATIONS
            for points in (size // _SMALLER, size)
        ]
    divided = _DIVIDED[processes]
    far_ms = latency_ms / 2 if processes == 2 else latency_ms
    runs = []
    for name in APPLICATIONS:
        runs.append(SolverRun(application=name, size=size, iterations=2 * iterations, clusters=(processes,)))
        runs += [
            SolverRun(
                application=name,
                size=size,
                iterations=iterations,
                clusters=clusters,
                latency_ms=far_ms,
                bandwidth_mbit_s=bandwidth_mbit_s,
            )
            for clusters in divided
        ]
    return runs


def mpiexec() -> Path:
    """Return the launcher of this Python's own MPI, or of the system's; raise MissingMpiError if there is none."""
    own = Path(sys.executable).parent / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    missing = [library for library in ("numpy", "mpi4py") if importlib.util.find_spec(library) is None]
    if found is None:
        missing.append("mpiexec")
    if found is None or missing:
        raise MissingMpiError(
            f"calibrate runs the real solvers with MPI, and there is no {' and no '.join(missing)}; "
            "install them with: pip install 'koala-scheduler[mpi]'"
        )
    return Path(found)


def measured(runs: Sequence[SolverRun], rounds: int, *, start_s_max: float = START_S_MAX) -> dict[str, Any]:
    """Return the ``seconds`` of each run in each round, and the number of ``cores``. Nothing is left running
    afterwards."""
    processes = sum(runs[0].clusters)
    with tempfile.TemporaryDirectory(prefix="koala-calibrate-") as folder:
        home = Path(folder)
        (home / _ASKED).write_text(json.dumps({"runs": msgspec.to_builtins(runs), "rounds": rounds}))
        command = [
            mpiexec(),
            "-n",
            processes,
            sys.executable,
            "-m",
            "koala_papers.calibrate.ranks",
            home / _ASKED,
        ]
        words = " ".join(shlex.quote(str(word)) for word in command)
        (home / _SCRIPT).write_text(f"{words} >{_ANSWER} 2>{_ERRORS}\necho $? >{_CODE}\n")
        problem = _awaited(home, start_s_max) or _complaint(home)
        if not problem:
            out = (home / _ANSWER).read_text()
            try:
                answer: dict[str, Any] = json.loads(out)
            except json.JSONDecodeError:
                problem = f"they printed {out[-_SHOWN_CHARACTERS:]!r}, which is no answer"
            else:
                return answer
    raise MeasuringError(f"{processes} MPI processes with the solvers: {problem}")


def _awaited(home: Path, start_s_max: float) -> str:
    """Run the script of a directory to its end, or end all that it started; return the error, if any."""
    # The solvers are single-threaded; threads of numpy would only disturb the other processes.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if run_script(home, _SCRIPT, _ERRORS, environment, start_s_max):
        return ""
    return f"they were ended after {start_s_max:g} s without an answer; is the machine overloaded?"


def _complaint(home: Path) -> str:
    """Return the error that a finished script reports, or an empty string."""
    code = (home / _CODE).read_text().strip() if (home / _CODE).exists() else "none"
    if code == "0":
        return ""
    return f"they ended with code {code}: {(home / _ERRORS).read_text(errors='replace').strip()[-_SHOWN_CHARACTERS:]}"
