"""``koala simulate --workload``: the jobs of a workload file in the scheduler, under the simulator.

``run_scheduler`` and the types around it also serve traces, see ``trace``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.cli.policies import full_catalogue
from koala.cli.simulate.failures import read_failures
from koala.cli.simulate.report import facts
from koala.cli.terminal.output import OutputFile, console

if TYPE_CHECKING:
    from koala.model.grid import Grid
    from koala.policies import Catalogue
    from koala.simulator import Result, Workload
    from koala.simulator.report.page_data import PageHold, RunPicture
    from koala.simulator.traces.node_mapping import SiteFailures

# The disciplines that a trace can run under in addition to the placement policies; see ``trace``.
DISCIPLINES = ("fcfs", "first-fit", "easy")


class RunOptions(NamedTuple):
    """The options of a run, from the command line."""

    policy: str | None
    policy_files: tuple[str, ...]
    seed: int
    until_s: float | None
    failures_path: Path | None
    failures_from_s: float | None
    engine: str | None
    plan_depth: int | None = None
    estimates: str | None = None
    order: str | None = None

    def inputs(self) -> list[tuple[str, str]]:
        """Return the files that are read, by option."""
        return [
            ("--failures", str(self.failures_path or "")),
            *(("--policy-file", name) for name in self.policy_files),
        ]


class RunOutputs(NamedTuple):
    """The outputs that a run writes while it goes: its log, and whether a picture is needed; ``stop`` ends it
    early."""

    log: OutputFile | None
    picture: bool
    stop: Callable[[], bool]


class RunResult(NamedTuple):
    """The result of a run; the table of jobs and the picture are made on demand."""

    metrics: dict[str, Any]
    csv: Callable[[], str]
    picture: Callable[[], RunPicture]


class SchedulerRun(NamedTuple):
    """A run of the scheduler, and who held which processors, if a picture was requested."""

    result: Result
    holds: list[PageHold]


def run_workload(grid: Grid, workload_name: str, options: RunOptions, outputs: RunOutputs) -> RunResult:
    """Run the workload of that name on the grid."""
    from koala.descriptions.workload.form import read_workload
    from koala.simulator.workloads.generators import workload_from_file

    if options.policy is not None and options.policy.casefold() in DISCIPLINES:
        raise UserError(
            f"--policy {options.policy}: a discipline is for traces, which --trace FILE runs; "
            "for a workload name a placement policy, see koala policies"
        )
    workload = workload_from_file(read_workload(*read_named("workload", workload_name)))
    catalogue = full_catalogue(options.policy_files, grid)
    failures, about_failures = read_failures(grid, options.failures_path, options.failures_from_s)
    run = run_scheduler(grid, workload, workload_name, catalogue, options, outputs, failures)
    metrics = {"grid": grid.name, "workload": workload.name, **about_failures, **run.result.metrics()}

    def picture() -> RunPicture:
        from koala.simulator.report.page_holds import run_picture

        return run_picture(
            list(run.result.rows()),
            run.holds,
            grid,
            title=f"{workload.name} on {grid.name}",
            subtitle=f"policy {metrics['policy']}, seed {metrics['seed']}",
            facts=facts(metrics),
            notes=metrics["notes"],
        )

    return RunResult(metrics, run.result.csv, picture)


def run_scheduler(
    grid: Grid,
    workload: Workload,
    workload_name: str,
    catalogue: Catalogue,
    options: RunOptions,
    outputs: RunOutputs,
    failures: SiteFailures | None,
) -> SchedulerRun:
    """Run jobs in the scheduler with a progress bar; messages about invalid jobs name the ``workload_name``."""
    from koala.simulator import simulate
    from koala.simulator.report.page_holds import HoldCollector
    from koala.simulator.workloads.workload import WorkloadError

    collector = HoldCollector(grid) if outputs.picture else None
    sinks = [sink for sink in (outputs.log and outputs.log.write, collector and collector.take) if sink]

    def log(piece: bytes) -> None:
        for sink in sinks:
            sink(piece)

    with _progress_bar() as progress:
        try:
            result = simulate(
                grid,
                workload,
                policy=options.policy,
                seed=options.seed,
                progress=progress,
                catalogue=catalogue,
                log=log if sinks else None,
                until_s=math.inf if options.until_s is None else options.until_s,
                stop=outputs.stop,
                failures=failures,
            )
        except WorkloadError as error:
            raise UserError(f"{workload_name}: {error.for_user()}") from None
    return SchedulerRun(result, [] if collector is None else collector.holds())


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on standard error, if it is a terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("jobs", total=None)

        def update(ended: int, jobs: int) -> None:
            bar.update(task, completed=ended, total=jobs)

        yield update
