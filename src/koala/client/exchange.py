"""The steps of a call, without input or output: a generator yields steps, takes replies, and ends with a value or an
error.

``Client`` and ``AsyncClient`` perform the steps. For both, this module decides what is repeated, when, and what an
answer means.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import httpx
import msgspec

from koala.client import calls
from koala.client.address import Address
from koala.client.calls import Call
from koala.client.errors import (
    BadAnswerError,
    ClientError,
    TooManyError,
    UnavailableError,
    UnreachableError,
    error_of,
)
from koala.model.api import WAIT_S_MAX, ErrorAnswer, Health, JobSummary
from koala.model.messages import JobOutcome

# How long a repeatable call is repeated while the daemon is away, unless the client sets another time.
PATIENCE_S = 20.0
PAUSE_FIRST_S = 0.1
PAUSE_S_MAX = 2.0
CONNECT_TIMEOUT_S = 5.0
# A server that never answered and closes this many connections in a row is not a restarting daemon.
SILENCES_MAX = 3
# An error shows at most this much of an answer that is not Koala's.
SHOWN_CHARACTERS_MAX = 200

ENDED_STATES = frozenset(map(str, JobOutcome))

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send this call. The reply is the answer, or the error of the transport."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: let this time pass. The reply is None."""

    pause_s: float


Step: TypeAlias = Send | Pause
Reply: TypeAlias = httpx.Response | httpx.TransportError | None
Steps: TypeAlias = Generator[Step, Reply, Value]

# The connection failed before anything was sent.
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class Exchange:
    """A client's knowledge of its daemon: its address, and whether it has answered before.

    A daemon that never answered is reported at once. For a daemon that went away, or cannot work now, repeatable
    calls wait up to ``patience_s``; ``on_wait`` is called at the first wait of an absence.
    """

    def __init__(self, address: Address, patience_s: float) -> None:
        self.address = address
        self.patience_s = patience_s
        self.on_wait: Callable[[ClientError, float], None] | None = None
        self._met = False
        self._waits = False

    def perform(self, call: Call[Value]) -> Steps[Value]:
        """Make one call, and repeat it where that is safe and may help."""
        sent = False
        silences = 0
        pauses = Pauses(self.patience_s)
        while True:
            reply = yield Send(call)
            if isinstance(reply, httpx.Response):
                self._met = True
                try:
                    answered = self.value(call, reply)
                except (UnavailableError, TooManyError) as error:
                    problem: ClientError = error
                    worth = call.repeatable
                else:
                    self._waits = False
                    return answered
            else:
                assert isinstance(reply, httpx.TransportError)
                sent = sent or not isinstance(reply, _NOTHING_SENT)
                silences = silences + 1 if not self._met and self._may_speak_tls(reply) else 0
                problem = self.lost(reply, call, sent)
                hopeless = _is_hopeless(reply) or silences >= SILENCES_MAX
                worth = call.repeatable and (sent or self._met) and not hopeless
            pause_s = pauses.next() if worth else None
            if pause_s is None:
                raise problem
            self._tell_wait(problem)
            yield Pause(pause_s)

    def _tell_wait(self, problem: ClientError) -> None:
        if self.on_wait is not None and not self._waits:
            self.on_wait(problem, self.patience_s)
        self._waits = True

    def wait_ended(self, job: int, timeout_s: float | None = None) -> Steps[JobSummary]:
        """Return the job when it has ended, or at the timeout (None: however long it takes)."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = WAIT_S_MAX if end is None else max(0.0, min(WAIT_S_MAX, end - time.monotonic()))
            seen = yield from self.perform(calls.wait(job, timeout_s=left_s))
            if seen.state in ENDED_STATES or (end is not None and time.monotonic() >= end):
                return seen

    def value(self, call: Call[Value], response: httpx.Response) -> Value:
        """Return the value of an answer, or raise its error."""
        self.raise_for(response)
        try:
            return call.read(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAnswerError(
                f"the answer of {self.address} to {call.method} {call.path} cannot be read ({error}); "
                "is a Koala of this version running there?",
                status=response.status_code,
            ) from None

    def raise_for(self, response: httpx.Response) -> None:
        """Raise the error of an answer, unless the answer is a success."""
        if response.is_success:
            return
        try:
            error = msgspec.json.decode(response.content, type=ErrorAnswer).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._raise_unready(response)
            text = " ".join(response.text.split())[:SHOWN_CHARACTERS_MAX]
            raise BadAnswerError(
                f"{self.address} answers with status {response.status_code}, but not as Koala does"
                f"{': ' if text else ''}{text}; check the address",
                status=response.status_code,
            ) from None
        raise error_of(response.status_code, error.code, error.message, error.problems)

    def _raise_unready(self, response: httpx.Response) -> None:
        """Raise the error in an answer about the daemon's own health, which has a form of its own."""
        try:
            health = msgspec.json.decode(response.content, type=Health)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        reason = health.reason or "it does not say why"
        raise UnavailableError(f"the daemon at {self.address} cannot work now: {reason}", status=response.status_code)

    def lost(self, error: httpx.TransportError, call: Call[Any] | None, sent: bool) -> UnreachableError:
        """Return the error for a connection that failed, or was lost after something was sent on it."""
        detail = _detail(error)
        cure = tls_cure(error, self.address.url)
        if cure:
            message = f"the connection to {self.address} failed{detail}; {cure}"
        elif sent and not self._met and self._may_speak_tls(error):
            message = (
                f"{self.address} accepts the connection and closes it without an answer{detail}; if it speaks TLS, "
                f"write https:{self.address.url.removeprefix('http:')}, else see whether a Koala daemon runs there"
            )
        elif isinstance(error, httpx.ReadTimeout):
            message = f"the daemon at {self.address} did not answer in time; look at its log, and try again"
        elif not sent and not self._met:
            return UnreachableError(
                f"no daemon answers at {self.address}{detail}; start one with `koala up`, "
                "or name another with --server or KOALA_SERVER"
            )
        else:
            message = f"the connection to {self.address} was lost{detail}; see whether the daemon runs, and try again"
        if sent and call is not None and not call.repeatable:
            message += ". It is not known whether the call was carried out: check before you repeat it"
        return UnreachableError(message)

    def _may_speak_tls(self, error: httpx.TransportError) -> bool:
        plain = self.address.socket is None and self.address.url.startswith("http:")
        return plain and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)


class Pauses:
    """The pauses between tries, each longer than the one before, until the patience is used up."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._end: float | None = None
        self._pause_s = PAUSE_FIRST_S

    def next(self) -> float | None:
        """Return how long to pause before the next try; None if there should be none."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self._patience_s
        if now >= self._end:
            return None
        pause_s = min(self._pause_s, self._end - now)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        return pause_s


def timeout_of(call: Call[Any]) -> httpx.Timeout:
    """Return how long each part of a call may take."""
    return httpx.Timeout(call.timeout_s, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)


def _is_hopeless(error: httpx.TransportError) -> bool:
    """Return True if another try would end the same way."""
    return isinstance(error, httpx.ReadTimeout | httpx.UnsupportedProtocol) or bool(tls_cure(error, ""))


_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_TLS_NUMBER = re.compile(r" \(_ssl\.c:\d+\)$")
# Signs in the library's message that a server does not answer a TLS greeting with TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "record layer failure", "UNKNOWN_PROTOCOL")
_OTHER_NAME = ("Hostname mismatch", "IP address mismatch", "not valid for")


def tls_cure(error: httpx.TransportError, url: str) -> str:
    """Return the cure for a connection that failed over TLS; empty where TLS is not the cause."""
    said = str(error)
    if any(sign in said for sign in _NOT_TLS):
        return f"it does not speak TLS; write http:{url.removeprefix('https:')}"
    if "CERTIFICATE" not in said:
        return ""
    if any(sign in said for sign in _OTHER_NAME):
        return "its certificate is for another name; use the name that the certificate has, or give it one for this"
    if "expired" in said:
        return "its certificate has expired; give the daemon a new one"
    return "name the certificate of the authority that signed it with KOALA_CA_FILE"


def _detail(error: httpx.TransportError) -> str:
    said = _TLS_NUMBER.sub("", _ERROR_NUMBER.sub("", str(error).strip()))
    return f" ({said})" if said and said != "All connection attempts failed" else ""
