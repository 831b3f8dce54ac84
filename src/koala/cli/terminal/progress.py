"""How many bytes of a transfer are there, on one line of a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from koala.cli.terminal.words import size


@contextlib.contextmanager
def byte_counter(word: str = "", *, wanted: bool = True) -> Iterator[Callable[[int, int], None] | None]:
    """What to call with the bytes that are there and all of them; None where nobody looks on."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    widest = 0

    def progress(there: int, total: int) -> None:
        nonlocal widest
        line = f"{word} {size(there)} of {size(total)}".lstrip()
        widest = max(widest, len(line))
        # A line that is shorter than the one before it covers that one.
        click.echo(f"\r{line:<{widest}}", err=True, nl=False)

    try:
        yield progress
    finally:
        if widest:
            click.echo("", err=True)
