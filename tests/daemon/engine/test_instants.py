"""What the daemon handles together is one instant: waiting jobs are tried once, on all that has come free in it."""

from __future__ import annotations

import itertools

from koala.daemon.engine.batch import EngineState, PendingBatch
from koala.daemon.engine.inbox import InboxItem
from koala.daemon.engine.recovery import nothing_yet
from koala.descriptions import read_grid
from koala.model.facts import Turn
from koala.model.messages import AnyEvent, SiteReported, Tick
from koala.policies import Catalogue

GRID = "sites: {a: {processors: 4}, b: {processors: 4}}"  # that names no interval between scans


def test_the_events_of_a_batch_have_one_time_and_a_tick_comes_last() -> None:
    grid = read_grid(GRID, "grid.yaml")
    state = EngineState(nothing_yet(grid, Catalogue.builtin()))
    clock = itertools.count(1_000)
    seen: list[AnyEvent] = []
    handle = state.scheduler.handle

    def watched(event: AnyEvent) -> Turn:
        seen.append(event)
        commands = handle(event)
        state.scheduler.due_at = 1_000.0
        return commands

    state.scheduler.handle = watched  # type: ignore[method-assign]
    reports = [SiteReported(at=0.0, site=site, processors=4, others=2) for site in ("a", "b")]
    PendingBatch(state, "WF", lambda: float(next(clock))).handle([InboxItem(event=each) for each in reports])
    assert [type(event) for event in seen] == [SiteReported, SiteReported, Tick]
    assert seen[0].at == seen[1].at < seen[2].at
