"""What a simulation in a terminal needs around it: a progress bar, and an interrupt that ends it with a report."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from koala.cli.errors import UserError
from koala.cli.terminal.output import console

# The libraries of the extra ``kernel``, by the names they are imported with.
_KERNEL = ("numba", "numpy")


def refuse_without_kernel(verb: str) -> None:
    """Say what to install where the libraries for traces and compiled code are missing."""
    missing = [library for library in _KERNEL if importlib.util.find_spec(library) is None]
    if missing:
        verb_is = "is" if len(missing) == 1 else "are"
        raise UserError(
            f"{verb}: {' and '.join(missing)} {verb_is} not installed; "
            "install them with: pip install 'koala-scheduler[kernel]'"
        )


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C only asks the run to end, so that what is known by then is reported; a second one kills."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, for whoever watches a terminal."""
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
