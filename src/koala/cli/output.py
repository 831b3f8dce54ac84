"""What every verb prints with: JSON for programs, tables that fit the terminal for people."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console


def print_json(value: Any) -> None:
    """One JSON document on standard output, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def console(*, stderr: bool = False) -> Console:
    """A console that keeps colour for terminals and plain text for pipes."""
    return Console(stderr=stderr, highlight=False)
