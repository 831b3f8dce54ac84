"""The journal as it happens, over server-sent events: reading the stream, and going on after a lost connection.

``Client.follow`` and ``AsyncClient.follow`` feed the bytes in; the entries come out in order, each once.
"""

from __future__ import annotations

import httpx
import msgspec

from koala.client.errors import BadAnswerError, UnavailableError
from koala.client.exchange import CONNECT_TIMEOUT_S, Exchange, Pauses
from koala.model.api import JournalEntry

# The daemon says something at least every 15 s; silence for so long is a dead connection.
SILENCE_S_MAX = 45.0
# One entry is a few kilobytes at most; a line of this many is not Koala's.
LINE_BYTES_MAX = 16 * 1024 * 1024


class JournalStream:
    """One reader's position in the journal, over as many connections as it takes."""

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
        """What to ask for on the next connection."""
        asked = {"after": self._last_id, "job": self._job}
        return {name: str(value) for name, value in asked.items() if value is not None}

    @property
    def headers(self) -> dict[str, str]:
        """The header that tells the daemon where to go on."""
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self._last_id)}

    def opened(self, response: httpx.Response) -> None:
        """A connection has answered; raises what it tells if it is not the stream."""
        self._exchange.raise_for(response)
        self._connected = True
        self._pauses = Pauses(self._exchange.patience_s)
        self._buffer.clear()
        self._data.clear()

    def feed(self, piece: bytes) -> list[JournalEntry]:
        """The entries that are complete with this piece of the stream."""
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
        """Take in a line; an empty one ends an event."""
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
        """The connection ended (None: the daemon closed it); how long to pause before the next. Raises an error when
        there never was one, or none came back in time."""
        if isinstance(error, httpx.TransportError):
            problem: Exception = self._exchange.lost(error, None, sent=self._connected)
        else:
            problem = error or self._exchange.lost(httpx.ReadError("the daemon closed it"), None, sent=True)
        pause_s = self._pauses.next() if self._connected else None
        if pause_s is None:
            raise problem
        return pause_s
