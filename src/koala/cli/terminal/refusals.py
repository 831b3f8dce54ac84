"""A refusal for people: why a job found no places, what each site lacked, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from koala.cli.terminal.output import console, counted

# The table shows the sites that come nearest; the JSON has them all.
SITES_SHOWN_MAX = 20


class ShortageView(Protocol):
    """What one site lacked, as the core or the API tells it."""

    @property
    def site(self) -> str: ...
    @property
    def wanted(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def missing(self) -> int: ...
    @property
    def cure(self) -> str: ...


class RefusalView(Protocol):
    """Why there were no places, as the core or the API tells it."""

    @property
    def policy(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def cure(self) -> str: ...
    @property
    def permanent(self) -> bool: ...
    @property
    def shortages(self) -> Sequence[ShortageView]: ...


def print_refusal(refusal: RefusalView) -> None:
    """The refusal in sentences, with a table of the sites that come nearest."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text(f"Refused by {refusal.policy}: {refusal.reason}."))
    if refusal.shortages:
        table = Table(box=None, pad_edge=False)
        table.add_column("site")
        for column in ("wanted", "idle", "missing"):
            table.add_column(column, justify="right")
        table.add_column("would help there")
        for short in sorted(refusal.shortages, key=lambda short: short.missing)[:SITES_SHOWN_MAX]:
            cells = (short.site, str(short.wanted), str(short.idle), str(short.missing), short.cure)
            table.add_row(*map(Text, cells))
        out.print(table)
        unshown = len(refusal.shortages) - SITES_SHOWN_MAX
        if unshown > 0:
            out.print(Text(f"and {counted(unshown, 'site')} more, which miss as much or more"))
    out.print(Text(f"{'It can never fit' if refusal.permanent else 'What would help'}: {refusal.cure}."))
