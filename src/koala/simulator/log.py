"""The log of a run: one JSON line for every event and every command, in order, and the hash of it all.

An event's line is the event; a command's is ``{"at": when it was given, "do": the command}``. The same seed
gives the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from koala.model.messages import AnyCommand, AnyEvent

# Messages never change, so they can wait to be encoded together.
FLUSH_LINES = 512


class LoggedCommand(msgspec.Struct, gc=False):
    """The line of a command."""

    at: float
    do: AnyCommand


class RunLog:
    """Collects lines, encodes and hashes them in pieces, and hands them on where somebody wants them."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self._sink = sink
        self._encoder = msgspec.json.Encoder()
        self._lines: list[AnyEvent | LoggedCommand] = []
        self._hash = hashlib.sha256()

    def write(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        """An event, and what the scheduler answered to it."""
        lines = self._lines
        lines.append(event)
        if commands:
            at = event.at
            lines += [LoggedCommand(at, command) for command in commands]
        if len(lines) > FLUSH_LINES:
            self._flush()

    def _flush(self) -> None:
        piece = self._encoder.encode_lines(self._lines)
        self._lines.clear()
        self._hash.update(piece)
        if self._sink is not None:
            self._sink(piece)

    def close(self) -> str:
        """Hand on what is left, and return the SHA-256 of the whole log in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()
