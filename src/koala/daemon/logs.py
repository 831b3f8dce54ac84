"""The daemon's log: one line for each event, on standard error, for people and for programs.

A line has the time in UTC, the level, the source, the event, and then ``name=value`` pairs. Line breaks in them are
escaped; an error's trace is the pair ``trace``. Each place in the code may write a limited number of lines a minute;
one line then reports how many were left out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,-]+")
_USUAL = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}
# The web server's lines about each connection are noise beside the daemon's own.
_QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "sqlalchemy")

# At most this many lines of one kind are written per minute; with ``debug`` all are.
LINES_PER_MINUTE_MAX = 120
MINUTE_S = 60.0


class LineFormatter(logging.Formatter):
    """A record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        words = [f"{at}.{int(record.msecs):03d}Z", record.levelname.lower(), record.name, _value(record.getMessage())]
        pairs = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        if record.exc_info:
            pairs["trace"] = self.formatException(record.exc_info)
        return " ".join([*words, *(f"{name}={_value(str(value))}" for name, value in pairs.items())])


def _value(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


@dataclass(slots=True)
class _Kind:
    """Lines of one kind in the minute that ends at ``until``."""

    until: float
    lines: int = 0
    left_out: int = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes a limited number of lines of each kind per minute. The number left out is reported with the next line of
    any kind after that minute, and at the end."""

    def __init__(
        self,
        stream: TextIO,
        *,
        lines_per_minute_max: int = LINES_PER_MINUTE_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._lines_per_minute_max = lines_per_minute_max
        self._clock = clock
        self._kinds: dict[tuple[str, str, int], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, or count it."""
        now = self._clock()
        self._tell_left_out(now)
        kind = self._kinds.setdefault((record.name, record.pathname, record.lineno), _Kind(now + MINUTE_S))
        kind.lines += 1
        if kind.lines > self._lines_per_minute_max and record.levelno > logging.DEBUG:
            kind.left_out += 1
        else:
            super().emit(record)

    def close(self) -> None:
        """Report what was left out, and stop writing."""
        self._tell_left_out(float("inf"))
        super().close()

    def _tell_left_out(self, now: float) -> None:
        over = [place for place, kind in self._kinds.items() if kind.until <= now]
        for place in over:
            left_out = self._kinds.pop(place).left_out
            if left_out:
                name, path, line = place
                record = logging.LogRecord(name, logging.WARNING, path, line, "more lines were left out", (), None)
                record.lines = left_out
                record.written_at = f"{path.rpartition('/')[2]}:{line}"
                super().emit(record)


def log_to(stream: TextIO | None = None, level: str = "info") -> logging.Handler:
    """Send every record of this level and above to the stream, by default standard error. Returns the handler, which
    the caller removes from the root logger and closes at the end."""
    handler = LimitedHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # Lines about single requests would contain the codes and tokens in their addresses.
    logging.getLogger("uvicorn.access").disabled = True
    return handler
