"""Shows the progress of a transfer on one line of a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from koala.cli.terminal.words import size


@contextlib.contextmanager
def byte_counter(word: str = "", *, wanted: bool = True) -> Iterator[Callable[[int, int], None] | None]:
    """Yield the function to call with the bytes that have arrived and their total; None without a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    widest = 0

    def progress(there: int, total: int) -> None:
        nonlocal widest
        line = f"{word} {size(there)} of {size(total)}".lstrip()
        widest = max(widest, len(line))
        # A line that is shorter than the previous one covers it.
        click.echo(f"\r{line:<{widest}}", err=True, nl=False)

    try:
        yield progress
    finally:
        if widest:
            click.echo("", err=True)
