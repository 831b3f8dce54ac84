"""The live journal over server-sent events: reading the stream, and continuing after a lost connection.

``Client.follow`` and ``AsyncClient.follow`` feed the bytes in; the entries come out in order, each once.
"""

from __future__ import annotations

import httpx
import msgspec

from koala.client.errors import BadAnswerError, UnavailableError
from koala.client.exchange import CONNECT_TIMEOUT_S, Exchange, Pauses
from koala.model.api import JournalEntry

# The daemon sends something at least every 15 s; after a silence this long the connection is dead.
SILENCE_S_MAX = 45.0
# One entry has a few kilobytes at most; a line of this size is not Koala's.
LINE_BYTES_MAX = 16 * 1024 * 1024


class JournalStream:
    """One reader's position in the journal, over any number of connections."""

    path = "/v1/events/stream"
    timeout = httpx.Timeout(SILENCE_S_MAX, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)

    def __init__(self, exchange: Exchange, after: int, job: int | None) -> None:
        self._exchange = exchange
        self._job = job
        self._last_id = after
        self._pauses = Pauses(exchange.patience_s)
        self._connected = False
        self._buffer = bytearray()
        self._data: list[str] = []

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the next connection."""
        asked = {"after": self._last_id, "job": self._job}
        return {name: str(value) for name, value in asked.items() if value is not None}

    @property
    def headers(self) -> dict[str, str]:
        """The headers with the position to continue from."""
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self._last_id)}

    def opened(self, response: httpx.Response) -> None:
        """Note that a connection has answered. Raises its error if the answer is not the stream."""
        self._exchange.raise_for(response)
        self._connected = True
        self._pauses = Pauses(self._exchange.patience_s)
        self._buffer.clear()
        self._data.clear()

    def feed(self, piece: bytes) -> list[JournalEntry]:
        """Return the entries that this piece of the stream completes."""
        self._buffer += piece
        if b"\n" not in piece:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise BadAnswerError(f"{self._exchange.address} sends a line without end; is it a Koala daemon?")
            return []
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer[:] = rest
        entries = (self._line(line.decode("utf-8", errors="replace").rstrip("\r")) for line in lines)
        return [entry for entry in entries if entry is not None]

    def _line(self, line: str) -> JournalEntry | None:
        """Process a line; an empty one ends an event."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "id" and value.strip().isdigit():
                self._last_id = int(value)
            return None
        text = "\n".join(self._data)
        self._data.clear()
        if not text:
            return None
        try:
            entry = msgspec.json.decode(text, type=JournalEntry)
        except msgspec.DecodeError as error:
            raise BadAnswerError(f"an event from {self._exchange.address} cannot be read: {error}") from None
        self._last_id = entry.seq
        return entry

    def broken(self, error: httpx.TransportError | UnavailableError | None) -> float:
        """Note the end of a connection (None: the daemon closed it); return how long to pause before the next. Raises
        an error when there never was a connection, or none came back in time."""
        if isinstance(error, httpx.TransportError):
            problem: Exception = self._exchange.lost(error, None, sent=self._connected)
        else:
            problem = error or self._exchange.lost(httpx.ReadError("the daemon closed it"), None, sent=True)
        pause_s = self._pauses.next() if self._connected else None
        if pause_s is None:
            raise problem
        return pause_s
