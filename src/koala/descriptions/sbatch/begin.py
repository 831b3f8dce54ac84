"""The time of ``--begin`` as Slurm writes it.

A script is read without a clock: a time relative to the reader's day or hour is refused, with what to write.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from koala.descriptions.job.order import Moment, moment

BEGIN_ADVICE = (
    "write how long after the submission (now+2h, now+1hour, now+30minutes, now+2days), or a day and a time with its "
    "zone (2030-01-31T08:00:00Z, 2030-01-31T08:00+01:00)"
)
_NOW = re.compile(r"now\+([0-9]{1,9})([a-z]*)", re.IGNORECASE)
_UNITS_S = {"": 1, "second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_WITHOUT_ZONE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?")


class Begin(NamedTuple):
    """When a job may begin, and a note about it."""

    moment: Moment
    note: str | None = None


def begin_of(text: str) -> Begin | None:
    """Return when a script's job may begin; None if it is no readable time."""
    found = _NOW.fullmatch(text)
    unit = found[2].lower().removesuffix("s") if found else ""
    if found and unit in _UNITS_S:
        text = f"now+{int(found[1]) * _UNITS_S[unit]}"
    day = _WITHOUT_ZONE.fullmatch(text)
    read = moment(f"{day[1]}T{day[2] or '00:00'}Z" if day else text)
    if read is None:
        return None
    return Begin(read, f"--begin={text} names no zone and is taken as UTC; add +01:00 or the like" if day else None)
