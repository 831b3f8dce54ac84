"""The daemon's log: one line for each thing, on standard error, for people and for programs alike.

A line has the time in UTC, the level, where it comes from, what happened, and then ``name=value`` pairs. Whatever is
in them stays on the line; an error's trace is the pair ``trace``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import TextIO

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,-]+")
_USUAL = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}
# What the web server says of each connection is noise beside what the daemon itself says.
_QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "alembic", "sqlalchemy")


class LineFormatter(logging.Formatter):
    """A record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        words = [f"{at}.{int(record.msecs):03d}Z", record.levelname.lower(), record.name, _value(record.getMessage())]
        pairs = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        if record.exc_info:
            pairs["trace"] = self.formatException(record.exc_info)
        return " ".join([*words, *(f"{name}={_value(str(value))}" for name, value in pairs.items())])


def _value(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def log_to(stream: TextIO | None = None, level: str = "info") -> logging.Handler:
    """Send every record of this level and above to the stream, by default standard error. Gives the handler, which
    the caller takes off the root logger at the end."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # Lines about single requests would hold the codes and tokens of their addresses.
    logging.getLogger("uvicorn.access").disabled = True
    return handler
