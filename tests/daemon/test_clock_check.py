"""A clock that may be wrong is asked about before anything is done by it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from koala.daemon.clock_check import CLOCK_GAP_S_MAX, CLOCK_JUMP_S_MAX, CLOCK_NAME, ClockCheck, ClockRecord
from koala.daemon.options import DaemonOptions, StartError
from koala.daemon.run import serve
from tests.support.api_world import GRID

DAY_S = 86_400.0
NOW_S = 1_800_000_000.0


def checked(state: Path, wall_s: float, steady_s: float, *, boot: str = "one", last_at: float = NOW_S) -> None:
    """A start at these times; its clock is kept where it is not asked about."""
    clock = ClockCheck(state, wall=lambda: wall_s, steady=lambda: steady_s, boot=boot)
    clock.check(last_at)
    clock.keep()


def test_a_daemon_that_was_away_for_long_while_the_machine_ran_goes_on(tmp_path: Path) -> None:
    checked(tmp_path, NOW_S, 1_000.0)
    checked(tmp_path, NOW_S + 90 * DAY_S, 1_000.0 + 90 * DAY_S)


@pytest.mark.parametrize(("days", "way"), [(30, "ahead by 30 days"), (-30, "back by 30 days")])
def test_a_clock_that_was_set_while_the_machine_ran_is_asked_about_and_not_adopted(
    tmp_path: Path, days: int, way: str
) -> None:
    checked(tmp_path, NOW_S, 1_000.0)
    kept = (tmp_path / CLOCK_NAME).read_bytes()
    with pytest.raises(StartError, match=rf"was set {way} since the last start.*--accept clock"):
        checked(tmp_path, NOW_S + days * DAY_S + 5.0, 1_005.0)
    assert (tmp_path / CLOCK_NAME).read_bytes() == kept
    checked(tmp_path, NOW_S + 60.0, 1_060.0)  # it was set right


def test_small_corrections_of_a_clock_are_nothing_to_ask_about(tmp_path: Path) -> None:
    checked(tmp_path, NOW_S, 1_000.0)
    for steps in range(1, 4):
        checked(tmp_path, NOW_S + steps * (10.0 + CLOCK_JUMP_S_MAX - 1.0), 1_000.0 + 10.0 * steps)


@pytest.mark.parametrize(
    ("gap_s", "words"),
    [
        (CLOCK_GAP_S_MAX + DAY_S, "8 days after the last record"),
        (-2 * CLOCK_JUMP_S_MAX, "10 minutes before the last record"),
        (-400 * DAY_S, "400 days before the last record"),
    ],
)
def test_after_another_boot_the_clock_is_compared_with_the_record(tmp_path: Path, gap_s: float, words: str) -> None:
    checked(tmp_path, NOW_S, 1_000.0)
    with pytest.raises(StartError, match=words):
        checked(tmp_path, NOW_S + gap_s, 5.0, boot="two")
    checked(tmp_path, NOW_S + 2 * DAY_S, 5.0, boot="two")


@pytest.mark.parametrize("text", ["", "{", '{"boot": 1}', "\x00"])
def test_a_clock_record_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / CLOCK_NAME).write_text(text)
    checked(tmp_path, NOW_S, 1_000.0, last_at=0.0)
    assert msgspec.json.decode((tmp_path / CLOCK_NAME).read_bytes(), type=ClockRecord).offset_s == NOW_S - 1_000.0


def started_and_stopped(state: Path, *accepts: str) -> None:
    options = DaemonOptions(grid=GRID, state=state, accepts=frozenset(accepts))
    asyncio.run(serve(options, lambda _: os.kill(os.getpid(), signal.SIGTERM)))


def test_a_daemon_whose_clock_is_a_month_ahead_starts_only_when_it_is_told_that_this_is_right(tmp_path: Path) -> None:
    started_and_stopped(tmp_path)
    path = tmp_path / CLOCK_NAME
    kept = msgspec.json.decode(path.read_bytes(), type=ClockRecord)
    # As if the machine's clock had been a month behind what it is now.
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, offset_s=kept.offset_s - 30 * DAY_S)))
    with pytest.raises(StartError, match="is the clock right"):
        started_and_stopped(tmp_path)
    started_and_stopped(tmp_path, "clock")
    started_and_stopped(tmp_path)
