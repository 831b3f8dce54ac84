"""Computes the units of an experiment on many cores, and stores each result in a file so that a run can resume later.

The results do not depend on the number of processes, their place or the stored results. The caller shows progress and
reports interruptions; ``dask_run`` computes on other machines.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from koala.study.frame.experiment import Experiment, FinishedUnit, Unit

UNITS_FOLDER = "units"
# More units than this indicate a mistake in a parameter.
UNITS_MAX = 100_000


# The results of some of the units, each with its number, as they come; closed early if the rest is not needed.
Computed = Generator[tuple[int, bytes], None, None]
# A function that computes units: given the experiment, all units, and the numbers of those to compute.
Computer = Callable[[Experiment[Any], Sequence[Unit], Sequence[int]], Computed]


class UnitError(RuntimeError):
    """A unit could not be computed: which one, and the error there."""

    def __init__(self, experiment: str, label: str, problem: str) -> None:
        super().__init__(f"{experiment}, {label}: {problem}")
        self.experiment = experiment
        self.label = label
        self.problem = problem

    def for_user(self) -> str:
        """Return which unit, the error, and that nothing else is lost."""
        return f"{self}; what is finished is kept: the same command goes on from there"


class TooManyUnitsError(ValueError):
    """An experiment has more units than anybody can wait for."""

    def for_user(self) -> str:
        """Return how many, and what to change."""
        return str(self)


class StoredResults:
    """The results on disk: one file for each unit, named after everything that the result depends on."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self._folder = folder
        self._experiment = experiment
        folder.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Delete every result."""
        for path in self._folder.glob("*.json"):
            path.unlink()

    def find(self, unit: Unit) -> dict[str, Any] | None:
        """Return the result of this unit, if it is here; an unreadable file counts as none."""
        try:
            content = msgspec.json.decode(self._path(unit).read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        result = content.get("result")
        return result if content.get("work") == unit.work and isinstance(result, dict) else None

    def count(self, units: Iterable[Unit]) -> int:
        """Return how many of these units have a result here."""
        return sum(self._path(unit).exists() for unit in units)

    def keep(self, unit: Unit, result: bytes) -> dict[str, Any]:
        """Write a result, complete or not at all, and return it in the form in which it will be read."""
        path = self._path(unit)
        text = msgspec.json.encode({"label": unit.label, "work": unit.work, "result": msgspec.Raw(result)})
        beside = path.with_suffix(f".{os.getpid()}.part")
        beside.write_bytes(text)
        beside.replace(path)
        return msgspec.json.decode(result, type=dict[str, Any])

    def _path(self, unit: Unit) -> Path:
        return self._folder / f"{unit.identity(self._experiment)}.json"


def run_units(
    experiment: Experiment[Any],
    units: Sequence[Unit],
    folder: Path,
    *,
    processes: int | None = None,
    computer: Computer | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
    units_max: int = UNITS_MAX,
) -> list[FinishedUnit]:
    """Return the results of all units, in order; those stored in the folder are not computed again.

    The given number of processes of this machine, or the given computer, computes them. ``progress`` receives the
    numbers of finished and of all units. After a UnitError or a KeyboardInterrupt all finished results are stored.
    """
    if len(units) > units_max:
        raise TooManyUnitsError(
            f"{experiment.name}: {len(units):,} units are more than the {units_max:,} that one run may have; "
            "ask for fewer repetitions"
        )
    stored = StoredResults(folder / UNITS_FOLDER, experiment.name)
    if fresh:
        stored.clear()
    results = {index: result for index, unit in enumerate(units) if (result := stored.find(unit)) is not None}
    left = [index for index in range(len(units)) if index not in results]
    tell = progress or _say_nothing
    tell(len(results), len(units))
    compute = computer or partial(_computed_here, processes_for(experiment, processes, len(left)))
    try:
        with closing(compute(experiment, units, left)) as computed:
            for index, text in computed:
                results[index] = stored.keep(units[index], text)
                tell(len(results), len(units))
    except BaseException:
        tell(stored.count(units), len(units))  # it may have come after one was written and before its report
        raise
    return [FinishedUnit(unit, results[index]) for index, unit in enumerate(units)]


def processes_for(experiment: Experiment[Any], asked: int | None, units: int) -> int:
    """Return the number of processes: as requested or one for each core, within the amount of work and the
    experiment's limit."""
    count = min(asked or len(os.sched_getaffinity(0)), max(1, units))
    return count if experiment.processes_max is None else min(count, experiment.processes_max)


def _say_nothing(_finished: int, _units: int) -> None:
    return None


def _work(experiment: Experiment[Any], unit: Unit) -> bytes:
    """Return the result of one unit as JSON. Raises UnitError with the error in words."""
    try:
        return msgspec.json.encode(experiment.run(unit))
    except Exception as error:
        report = getattr(error, "for_user", None)
        problem = report() if report is not None else f"{type(error).__name__}: {error}"
        raise UnitError(experiment.name, unit.label, problem) from error


def _computed_here(
    processes: int, experiment: Experiment[Any], units: Sequence[Unit], left: Sequence[int]
) -> Computed:
    """Yield the results of the remaining units, from processes of this machine."""
    if processes == 1:
        for index in left:
            yield index, _work(experiment, units[index])
        return
    # Spawned and not forked: a fork would inherit all threads and locks of the caller.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_die_of_interrupts) as pool:
        try:
            futures = {pool.submit(run_in_worker, experiment, units[index]): index for index in left}
            for future in as_completed(futures):
                yield futures[future], _outcome(experiment, units[futures[future]], future)
        except BaseException:
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()  # SIGTERM reaches this process alone
            pool.shutdown(cancel_futures=True)  # its own thread must end before this process does
            raise


def _die_of_interrupts() -> None:
    """Let Ctrl-C end a worker at once and without a stack trace; its parent writes the results."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_in_worker(experiment: Experiment[Any], unit: Unit) -> bytes | tuple[str, str]:
    """Return the result of one unit, in a worker; for an error, the unit's label and the message, since not every
    exception can be sent to another process."""
    try:
        return _work(experiment, unit)
    except UnitError as error:
        return error.label, error.problem


def _outcome(experiment: Experiment[Any], unit: Unit, future: Future[bytes | tuple[str, str]]) -> bytes:
    try:
        outcome = future.result()
    except BrokenProcessPool:
        raise UnitError(
            experiment.name, unit.label, "its process, or one beside it, was killed, perhaps for lack of memory"
        ) from None
    return result_of(experiment, outcome)


def result_of(experiment: Experiment[Any], outcome: bytes | tuple[str, str]) -> bytes:
    """Return the result that a worker sent; raise UnitError if it sent a label and a message instead."""
    if isinstance(outcome, tuple):
        raise UnitError(experiment.name, *outcome)
    return outcome
