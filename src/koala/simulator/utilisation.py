"""The use of a grid's processors over a run, and the times at which clusters were taken out, as the scheduler saw
them.

The events of the log go into a separate scheduler, which holds the beliefs of the run's scheduler at each moment: who
holds what, and which sites it no longer uses. Nothing of that is computed again here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from koala.core import Scheduler
from koala.core.state.site_belief import Trust
from koala.model.grid import Grid
from koala.model.messages import AnyEvent
from koala.model.request import SiteName

# Use is reported for each of these periods; the busiest hour is as many of them in a row.
WINDOW_S = 600.0
WINDOWS_PER_HOUR = 6

# The beginning of an event's line; a command's line begins with its time.
_EVENT = b'{"event"'


class _Window:
    """Processor-seconds within one period: held by our jobs, by others, and available."""

    __slots__ = ("available", "others", "ours")

    def __init__(self) -> None:
        self.ours = 0.0
        self.others = 0.0
        self.available = 0.0


class UtilisationRecorder:
    """Follows a run through the pieces of its log; ``taken_out_s`` says when each site was first taken out.

    >>> from koala.simulator import UtilisationRecorder, example_grid, example_workload, simulate
    >>> recorder = UtilisationRecorder(example_grid("das2"))
    >>> result = simulate(example_grid("das2"), example_workload("koala2006-w1"), policy="CM", log=recorder.take)
    >>> sorted(recorder.as_json(result.end_s))
    ['busiest_hour', 'busiest_window', 'mean', 'mean_others', 'others', 'total', 'while_submitting']
    """

    def __init__(self, grid: Grid) -> None:
        self._scheduler = Scheduler(grid)
        self._decoder = msgspec.json.Decoder(AnyEvent)
        self._windows: list[_Window] = []
        self._from_s: float | None = None  # the first event
        self._now_s = 0.0
        self._held = (0, 0, 0)
        self.taken_out_s: dict[SiteName, float] = {}

    def take(self, piece: bytes) -> None:
        """Take the next lines of the log; lines of commands follow from the events and are skipped."""
        for line in piece.splitlines():
            if line.startswith(_EVENT):
                self._event(self._decoder.decode(line))

    def _event(self, event: AnyEvent) -> None:
        if self._from_s is None:
            self._from_s = self._now_s = event.at
        self._pass_time(event.at)
        self._scheduler.handle(event)
        ours = others = available = 0
        for site in self._scheduler.ledger.sites:
            if site.trust is Trust.UNUSABLE:
                self.taken_out_s.setdefault(site.name, event.at)
            else:
                ours += site.ours
                others += site.others
                available += site.processors
        self._held = ours, others, available

    def _pass_time(self, until_s: float) -> None:
        """Account for everything held since the last event, window by window."""
        assert self._from_s is not None
        ours, others, available = self._held
        while self._now_s < until_s:
            number = int((self._now_s - self._from_s) / WINDOW_S)
            end_s = self._from_s + (number + 1) * WINDOW_S
            if end_s <= self._now_s:  # rounded down to the previous window
                number, end_s = number + 1, end_s + WINDOW_S
            while len(self._windows) <= number:
                self._windows.append(_Window())
            passed_s = min(until_s, end_s) - self._now_s
            window = self._windows[number]
            window.ours += ours * passed_s
            window.others += others * passed_s
            window.available += available * passed_s
            self._now_s = min(until_s, end_s)

    def as_json(self, submitted_s: float) -> dict[str, Any]:
        """Return shares by window, and their totals; ``submitted_s`` is when the last job was submitted."""
        windows = [window for window in self._windows if window.available > 0]
        submitting = max(1, int((submitted_s - (self._from_s or 0.0)) / WINDOW_S))
        return {
            "total": [_used(window) / window.available for window in windows],
            "others": [window.others / window.available for window in windows],
            "busiest_window": _busiest(windows, 1),
            "busiest_hour": _busiest(windows, WINDOWS_PER_HOUR),
            "while_submitting": _share(windows[:submitting], _used),
            "mean": _share(windows, _used),
            "mean_others": _share(windows, lambda window: window.others),
        }


def _used(window: _Window) -> float:
    return window.ours + window.others


def _share(windows: Sequence[_Window], amount: Callable[[_Window], float]) -> float:
    available = sum(window.available for window in windows)
    return sum(map(amount, windows)) / available if available > 0 else 0.0


def _busiest(windows: Sequence[_Window], length: int) -> float:
    """Return the highest share over this many windows in a row, or over all if there are fewer."""
    last = max(0, len(windows) - length)
    return max((_share(windows[start : start + length], _used) for start in range(last + 1)), default=0.0)
