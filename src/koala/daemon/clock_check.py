"""Checks the machine's clock before a daemon acts on it.

A start with a clock that is a month ahead would end running jobs by their walltime and delete output, and no later
start could undo that. While a daemon runs, it counts by a clock that nobody sets. Between two starts on the same boot
of the machine that clock goes on, so the offset between the two clocks must be unchanged. After a reboot the clock is
compared with the record, and with the clocks of sites on other machines (``koala.daemon.site_clocks``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from koala.daemon.engine.clock import through_sleep_s
from koala.daemon.options import StartError
from koala.daemon.state_directory import write_whole

# At most this much may the clock be set by between two starts without a question.
CLOCK_JUMP_S_MAX = 300.0
# After a reboot, a start may come at most this long after the last record: as long as output is kept.
CLOCK_GAP_S_MAX = 604_800.0
CLOCK_NAME = "clock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockRecord(msgspec.Struct, frozen=True):
    """The wall clock's distance from the machine's steady clock at a start, which holds for one boot."""

    boot: str
    offset_s: float


class ClockCheck:
    """The clock as a start finds it."""

    def __init__(
        self,
        state: Path,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = through_sleep_s,
        boot: str | None = None,
    ) -> None:
        self._path = state / CLOCK_NAME
        self._wall_s = wall()
        self._now = ClockRecord(_boot() if boot is None else boot, self._wall_s - steady())

    def check(self, last_at: float) -> None:
        """Raise ``StartError`` if the clock may be wrong. ``last_at`` is the last time on record, 0 for none."""
        before = self._read()
        if before is not None and before.boot and before.boot == self._now.boot:
            jump_s = self._now.offset_s - before.offset_s
            if abs(jump_s) > CLOCK_JUMP_S_MAX:
                way = "ahead" if jump_s > 0 else "back"
                self._ask(f"was set {way} by {span(abs(jump_s))} since the last start")
            return
        gap_s = self._wall_s - last_at
        if last_at and gap_s < -CLOCK_JUMP_S_MAX:
            self._ask(f"is {span(-gap_s)} before the last record ({_date(last_at)})")
        if last_at and gap_s > CLOCK_GAP_S_MAX:
            self._ask(f"is {span(gap_s)} after the last record ({_date(last_at)})")

    def check_sites(self, finding: str) -> None:
        """Raise ``StartError`` if the sites' clocks contradict this one; ``finding`` describes how."""
        if finding:
            self._ask(finding)

    def keep(self) -> None:
        """Record this clock, for the next start to compare with."""
        write_whole(self._path, msgspec.json.encode(self._now))

    def _ask(self, finding: str) -> None:
        raise StartError(
            f"is the clock right? It says {_date(self._wall_s)}, and {finding}. Nothing was done yet: by this clock "
            "jobs would be ended and output deleted. Set it, or start with `--accept clock` if it is right"
        )

    def _read(self) -> ClockRecord | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ClockRecord)
        except (OSError, msgspec.MsgspecError):
            return None


def _boot() -> str:
    """Return an identifier of this boot of the machine; empty if there is none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _date(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
    except (OverflowError, OSError, ValueError):
        return f"{at:.0f} s"


def span(s: float) -> str:
    """Format a duration in words."""
    for unit_s, word in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if s >= 2 * unit_s:
            return f"{s / unit_s:.0f} {word}"
    return f"{s:.0f} seconds"
