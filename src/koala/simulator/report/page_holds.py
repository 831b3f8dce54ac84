"""The picture of a run of the scheduler: who held which processors when, from the run's log.

The collector receives the log while the run writes it and keeps only what is drawn, so a long run needs no file for
it. A component holds its processors from the command that starts it until the event that ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koala.model.grid import Grid
from koala.model.messages import NEVER_HELD
from koala.simulator.report.page_data import PageHold, RunPicture
from koala.simulator.result import JobRow

_START, _END = "StartComponent", "ComponentEnded"
_NEVER_HELD = frozenset(map(str, NEVER_HELD))


class _Start(msgspec.Struct):
    command: str
    job: int = 0
    token: str = ""
    site: str = ""
    processors: int = 0


class _Line(msgspec.Struct):
    """The relevant part of a line: the start of a component, which is a command, or its end, which is an event."""

    at: float
    event: str = ""
    token: str = ""
    outcome: str = ""
    do: _Start | None = None


class HoldCollector:
    """Receives pieces of a log, whole lines each, and keeps the holds in the order in which they began."""

    def __init__(self, grid: Grid) -> None:
        self._sites = {site.name: place for place, site in enumerate(grid.sites)}
        self._decode = msgspec.json.Decoder(_Line).decode
        self._held: dict[str, tuple[int, int, int, float]] = {}
        self._ended: list[PageHold] = []

    def take(self, piece: bytes) -> None:
        """Take some lines of the log."""
        start, end = f'"{_START}"'.encode(), f'"{_END}"'.encode()
        for line in piece.split(b"\n"):
            # Most lines are of neither kind, and decoding them would take longer than everything else.
            if start in line or end in line:
                self._take(self._decode(line))

    def _take(self, line: _Line) -> None:
        if line.do is not None and line.do.command == _START:
            begun = line.do
            self._held.setdefault(begun.token, (begun.job, self._sites[begun.site], begun.processors, line.at))
        elif line.event == _END:
            held = self._held.pop(line.token, None)
            if held is not None and line.outcome not in _NEVER_HELD:
                self._ended.append(PageHold(*held, line.at))

    def holds(self) -> list[PageHold]:
        """Return all holds by job number and start; holds that were open when the log ended have no end."""
        still = [PageHold(*held, float("inf")) for held in self._held.values()]
        return sorted([*self._ended, *still], key=lambda hold: (hold.job, hold.from_s, hold.site))


def run_picture(
    rows: Sequence[JobRow],
    holds: Sequence[PageHold],
    grid: Grid,
    *,
    title: str,
    subtitle: str,
    facts: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
    ids: Sequence[int] | None = None,
    start_unix_s: float | None = None,
) -> RunPicture:
    """Return the picture of a run from its table of jobs, ordered by job, and its holds, which name jobs by number.

    ``ids`` are shown for the jobs instead of their numbers.
    """
    places = {row.job: place for place, row in enumerate(rows)}
    return RunPicture(
        title=title,
        subtitle=subtitle,
        facts=facts,
        notes=notes,
        sites=[(site.name, site.processors) for site in grid.sites],
        ids=[row.job for row in rows] if ids is None else ids,
        sizes=[row.processors for row in rows],
        submit_s=[row.submitted for row in rows],
        start_s=[row.started for row in rows],
        end_s=[row.finished if row.started is not None else None for row in rows],
        holds=[hold._replace(job=places[hold.job]) for hold in holds],
        start_unix_s=start_unix_s,
    )
