"""One live component as a site of any kind watches it, and the meaning of its end."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple, TypeAlias

from koala.model.errors import Fault
from koala.model.launch import ABORTED, EXIT, EXITED, GAVE_UP, KILLED, NO_NODES, UNWRITTEN, Launch
from koala.model.messages import (
    STDERR_LINE_BYTES_MAX,
    AnyEvent,
    ComponentAccepted,
    ComponentReady,
    ComponentRunning,
    Outcome,
    Token,
)
from koala.sites.component_directory import EXIT_BYTES_MAX, OVERLONG, AbortRecord, overlong, proved

# Outcome, reason, the application's exit code, and whose fault it is, if known.
Ending: TypeAlias = tuple[Outcome, str, int | None, Fault | None]

# Exit codes above this mean, in a shell, that a signal ended the program.
SIGNALLED = 128

# The last line on a component's standard error is reported with these outcomes.
TOLD_STDERR = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.SITE_FAILED})
# How shells and other programs show the carriage return at the end of each line of a DOS text, when they take it for
# a part of a name.
_DOS_LINES = re.compile(r"\r[:']|\$'\\r'|\^M:|\\r\W*: No such file")


# A number in a component's usage record has at most this many digits.
_USAGE_DIGITS_MAX = 15


class Usage(NamedTuple):
    """What a component's application has used; None if it could not be measured. See ``ComponentEnded``."""

    processor_s: float | None = None
    peak_memory_bytes: int | None = None


NOT_MEASURED = Usage()


class LivePhase(enum.Enum):
    """The state of a component at its site. It holds slots of an embedded site from STARTING until ENDED; at a batch
    site it is QUEUED until its files show more."""

    QUEUED = "queued"
    STARTING = "starting"
    READY = "ready"  # at the barrier, or past it after the release
    ENDED = "ended"


class LiveComponent:
    """A component that has not ended.

    ``abort`` says that it is being ended, and why. A ``lost`` component has no usable directory any more.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.phase = LivePhase.QUEUED
        self.released_at: float | None = None
        self.abort: AbortRecord | None = None
        self.lost = False
        self.mailed: set[str] = set()

    @property
    def token(self) -> Token:
        """Its name."""
        return self.launch.token

    @property
    def processors(self) -> int:
        """The number of processors that it needs."""
        return self.launch.processors

    @property
    def is_ending(self) -> bool:
        """True if its end may come at any moment."""
        return self.abort is not None

    def newest(self, at: float) -> AnyEvent:
        """Return its newest event."""
        if self.phase is LivePhase.READY and self.released_at is not None:
            return ComponentRunning(at=at, token=self.token)
        if self.phase is LivePhase.READY:
            return ComponentReady(at=at, token=self.token)
        return ComponentAccepted(at=at, token=self.token)

    def walltime_left_s(self, now: float) -> float | None:
        """Return how long it may go on; None without a limit, and if it does not run or is being ended."""
        if self.launch.walltime_s is None or self.released_at is None or self.is_ending:
            return None
        return self.released_at + self.launch.walltime_s - now

    def believed(self, used: Usage, now: float, processors: int) -> Usage:
        """Return its reported use, limited to what this many processors can have done since its barrier opened: its
        application may have written the report."""
        possible_s = 0.0 if self.released_at is None else processors * max(0.0, now - self.released_at)
        return used if (used.processor_s or 0.0) <= possible_s else used._replace(processor_s=None)

    def timed_out(self) -> AbortRecord:
        """Return the abort of a component whose walltime is over."""
        reason = f"it ran longer than its walltime of {self.launch.walltime_s:g} s"
        return AbortRecord(outcome=Outcome.TIMED_OUT, reason=reason, fault=Fault.JOB)


def ending(
    launch: Launch, abort: AbortRecord | None, exit_words: list[str] | None, unrecorded: str, *, released: bool
) -> Ending:
    """Return the meaning of a component's end.

    ``exit_words`` is what its script recorded; None if it recorded nothing, and then ``unrecorded`` says why. Once it
    was ``released`` its application may have written them.
    """
    outcome, reason, exit_code, fault = _ending(launch, abort, exit_words, unrecorded)
    if abort is not None or not released:
        return outcome, reason, exit_code, fault
    if exit_words and outcome is Outcome.SITE_FAILED and exit_words[0] not in (KILLED, UNWRITTEN):
        # The script never writes that.
        return Outcome.FAILED, f"the job wrote its own {EXIT}: {' '.join(exit_words)!r}", None, Fault.JOB
    return outcome, reason, exit_code, proved(fault)


def _ending(launch: Launch, abort: AbortRecord | None, exit_words: list[str] | None, unrecorded: str) -> Ending:
    if abort is not None:
        return abort.outcome, abort.reason or "aborted", recorded_exit_code(exit_words), abort.fault
    if exit_words is None:
        return Outcome.SITE_FAILED, unrecorded, None, None
    exit_code = recorded_exit_code(exit_words)
    match exit_words[:1]:
        case [word] if word == EXITED and exit_code is not None:
            return _of_exit_code(exit_code)
        case [word] if word == ABORTED:
            return Outcome.ABORTED, "aborted", None, None
        case [word] if word == GAVE_UP:
            limit_s = launch.barrier_timeout_s
            return (
                Outcome.ABORTED,
                f"it was not released within its barrier timeout of {limit_s:g} s",
                None,
                Fault.OURS,
            )
        case [word] if word == KILLED:
            return Outcome.SITE_FAILED, "a signal ended it at the barrier", None, Fault.SITE
        case [word] if word == NO_NODES:
            why = "the site did not tell which nodes it has; the log in its directory says why"
            return Outcome.SITE_FAILED, why, None, Fault.SITE
        case [word] if word == OVERLONG:
            return Outcome.FAILED, overlong(EXIT, EXIT_BYTES_MAX, "EXIT_BYTES_MAX"), None, Fault.JOB
        case [word] if word == UNWRITTEN:
            why = "it could not write in its directory: the disk was full, or read-only"
            return Outcome.SITE_FAILED, why, None, Fault.SITE
    return Outcome.SITE_FAILED, f"its record of the exit makes no sense: {' '.join(exit_words)!r}", None, None


def _of_exit_code(exit_code: int) -> Ending:
    if exit_code == 0:
        return Outcome.DONE, "", 0, None
    if exit_code > SIGNALLED:
        return Outcome.FAILED, f"exit code {exit_code} (signal {exit_code - SIGNALLED})", exit_code, None
    return Outcome.FAILED, f"exit code {exit_code}", exit_code, None


def recorded_exit_code(exit_words: list[str] | None) -> int | None:
    """Return the application's exit code in a script's record of its end, if there is one."""
    match exit_words:
        case [word, code] if word == EXITED and code.isascii() and code.isdigit() and len(code) <= 3:
            return int(code)
    return None


def stderr_line(text: str) -> str:
    """Return a line of an application's errors for a report: printable, a single line and not too long. Of a line
    that is overwritten repeatedly, like a progress display, the last state counts."""
    is_dos = _DOS_LINES.search(text) is not None
    line = text.strip()
    line = line.replace("\r", "\\r") if is_dos else line.rpartition("\r")[2]
    if is_dos:
        line += "; the lines of its program end as in DOS (CRLF): save it with Unix line ends"
    shown = line.encode(errors="replace")[:STDERR_LINE_BYTES_MAX].decode(errors="ignore")
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in shown.replace("\t", " "))


def usage(text: str) -> Usage:
    """Parse a script's record of what its application has used. The application may have written anything there: an
    invalid record counts as unknown."""
    words = text.split()
    if len(words) != 2:
        return NOT_MEASURED
    milliseconds, kib = (
        int(word) if word.isascii() and word.isdigit() and len(word) <= _USAGE_DIGITS_MAX else None for word in words
    )
    return Usage(
        None if milliseconds is None else milliseconds / 1000,
        None if kib is None else kib * 1024,
    )
