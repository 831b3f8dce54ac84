"""The log of a run: one JSON line for every event and every command, in order, and the hash of it all.

An event's line is the event; a command's is ``{"at": when it was given, "do": the command}``. The same seed
gives the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from koala.messages import AnyCommand, AnyEvent

_FLUSH_BYTES = 1 << 16


class Done(msgspec.Struct, gc=False):
    """The line of a command."""

    at: float
    do: AnyCommand


class RunLog:
    """Collects lines, hashes them in pieces, and hands them on where somebody wants them."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self._sink = sink
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._hash = hashlib.sha256()

    def write(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        """An event, and what the scheduler answered to it."""
        at = event.at
        lines = [event, *[Done(at, command) for command in commands]]
        self._buffer += self._encoder.encode_lines(lines)
        if len(self._buffer) > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._hash.update(self._buffer)
        if self._sink is not None:
            self._sink(bytes(self._buffer))
        self._buffer.clear()

    def close(self) -> str:
        """Hand on what is left, and return the SHA-256 of the whole log in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()
