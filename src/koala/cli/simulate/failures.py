"""``koala simulate --failures``: reads a failure trace for a grid, and describes the part that is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koala.cli.errors import UserError
from koala.cli.terminal.output import console, counted

if TYPE_CHECKING:
    from koala.model.grid import Grid
    from koala.simulator.traces.failures import FailureTrace
    from koala.simulator.traces.node_mapping import SiteFailures

_DAY_S = 86_400.0


def read_failures(grid: Grid, path: Path | None, from_s: float | None) -> tuple[SiteFailures | None, dict[str, Any]]:
    """Return the failures of the grid's nodes from a trace, and their description for the results; nothing without a
    file."""
    if path is None:
        if from_s is not None:
            raise UserError("--failures-from says where in a failure trace to begin; give --failures FILE too")
        return None, {}
    from koala.simulator.traces.failures import read_failure_trace
    from koala.simulator.traces.node_mapping import SiteFailures

    with _progress(path) as progress:
        trace = read_failure_trace(path, progress)
    from_s = from_s or 0.0
    _check_window(path, trace, from_s)
    failures = SiteFailures(trace, grid, from_s=from_s)
    return failures, {"failure_trace": _summary(path, trace, failures, from_s)}


def in_words(summary: dict[str, Any]) -> str:
    """Format the line about the trace for people."""
    covered = ", ".join(f"{site} {nodes}" for site, nodes in summary["nodes_by_site"].items() if nodes)
    span = f"{(summary['span_s'] - summary['from_s']) / _DAY_S:.1f} days"
    return f"failures from {summary['file']}: {counted(summary['events'], 'event')}, {span}; nodes: {covered}"


def _check_window(path: Path, trace: FailureTrace, from_s: float) -> None:
    span_s = trace.end_s - trace.begin_s
    if from_s >= span_s:
        raise UserError(f"--failures-from {from_s:.0f}: {path} lasts {span_s:.0f} s; choose an earlier beginning")


def _summary(path: Path, trace: FailureTrace, failures: SiteFailures, from_s: float) -> dict[str, Any]:
    return {
        "file": path.name,
        "events": trace.events,
        "nodes": len(trace.nodes),
        "nodes_by_site": {site: len(nodes) for site, nodes in failures.by_site.items()},
        "from_s": from_s,
        "span_s": trace.end_s - trace.begin_s,
    }


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on standard error, if it is a terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(path.name, total=None)

        def update(read_bytes: int, of_bytes: int) -> None:
            bar.update(task, completed=read_bytes, total=of_bytes)

        yield update
