"""The directory of a component, the same at every kind of site: the names of its files, and the meaning of its
records.

``koala.model.launch`` defines what its script uses. An embedded site reads and writes it directly, in
``koala.sites.local.directory``, a batch site by shell scripts. The component's application can do anything to the
directory, so a site trusts nothing in it: files may be missing, of another type, invalid or overlong. A site reads no
more of a file than it writes there itself: a longer file is the job's doing.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from koala.model.errors import Fault
from koala.model.launch import (
    ABORT,
    GO,
    READY,
    STDERR,
    STDOUT,
    WORK,
    Launch,
    LaunchError,
    check_token,
    stream_parts,
)
from koala.model.messages import ComponentEnded, Outcome, Token
from koala.model.request import Application
from koala.sites.protocol import Stream

T = TypeVar("T")

# The directories of a site: the one of all components, and its file area.
COMPONENTS = "components"
FILES = "files"

# The files of a component's directory that only its site uses.
RECORD = "record.json"  # what was accepted
ENDED = "ended.json"  # how it ended
RELEASED = "released"  # when the barrier was opened
SPAWNED = "spawned"  # at an embedded site: its process was started, or was about to be
BATCH = "batch"  # at a batch site: the batch system's answer to the submission
RESERVATION = "reservation"  # at a batch site: the reservation of its job, if any

# A record contains a launch: a request is REQUEST_CHARACTERS_MAX, and a character takes at most 6 bytes of JSON.
RECORD_BYTES_MAX = 16_777_216
# Any other file that a site writes about a component, such as how it ended.
NOTE_BYTES_MAX = 262_144
# The script's record of its end: a word and a number.
EXIT_BYTES_MAX = 100
# At most this many pieces of mail are taken from an outbox; no script writes more than a third of that.
MAILS_MAX = 64

# Numbers that a site writes are below this; databases store no larger ones.
_NUMBERS_END = 2**63
# Replaces the record of an end that is too long.
OVERLONG = "overlong"


class AbortRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of an abort, kept until the component's end is reported."""

    outcome: Outcome = Outcome.ABORTED
    reason: str = ""
    fault: Fault | None = None


class AcceptanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was accepted, and its position in the order of acceptance."""

    sequence: int
    launch: Launch


class RecordedComponent(msgspec.Struct, kw_only=True):
    """What is on record about one component at its site. ``spoilt`` says what is invalid, if anything, and ``by_job``
    is set if only the component's own job can have caused that."""

    token: Token
    record: AcceptanceRecord | None = None
    batch: str | None = None
    abort: AbortRecord | None = None
    released_at: float | None = None
    reservation: str | None = None
    ended: ComponentEnded | None = None
    ready: bool = False
    spoilt: str = ""
    by_job: bool = False

    @property
    def spoilt_fault(self) -> Fault | None:
        """Whose fault the invalid record is, if that is known."""
        return Fault.JOB if self.by_job else None

    @property
    def problem(self) -> str:
        """Why a live component cannot be watched; empty if it can."""
        return self.spoilt or ("there is no record of it" if self.record is None else "")


def bytes_max(name: str) -> int:
    """Return the maximum length of a file that the site has written in a component's directory."""
    return RECORD_BYTES_MAX if name == RECORD else NOTE_BYTES_MAX


def overlong(name: str, limit: int, limit_name: str) -> str:
    """Return the message about a file that is longer than its site or its script writes it."""
    return f"the job wrote its own {name}: it has more than {limit} bytes ({limit_name}), and Koala writes fewer"


def parse_component(token: Token, files: Mapping[str, bytes]) -> RecordedComponent:
    """Parse the files of a component's directory, by their names. For ``GO`` and ``READY`` only the name counts. A
    file that is too long comes with one extra byte."""
    found = RecordedComponent(token=token, ready=READY in files)
    for name, data in files.items():
        if name in (GO, READY):
            continue
        if len(data) > bytes_max(name):
            _take_overlong(found, name)
            continue
        text = data.decode(errors="replace")
        try:
            if name == RECORD:
                found.record = _decoded(text, AcceptanceRecord)
            elif name == ENDED:
                _take_end(found, _decoded(text, ComponentEnded))
            elif name == ABORT:
                found.abort = parse_abort(text)
            elif name == BATCH:
                found.batch = text.partition("\n")[0]
            elif name == RESERVATION:
                found.reservation = text.partition("\n")[0]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            found.spoilt = f"{name}: {error}"
    # Without GO, the process that was about to open the barrier was killed there.
    if GO in files:
        found.released_at = parse_time(files.get(RELEASED, b"").decode(errors="replace"))
        if found.released_at is None:
            found.spoilt = found.spoilt or f"{RELEASED} does not say when the barrier was opened"
    if found.record is not None and found.record.launch.token != token:
        found.spoilt = f"{RECORD} is that of component {found.record.launch.token}"
    return found


def _decoded(text: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=form)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None


def _take_end(found: RecordedComponent, ended: ComponentEnded) -> None:
    """Accept an end on record, if a site can have written it."""
    codes, used = (ended.exit_code or 0, ended.peak_memory_bytes or 0), ended.processor_s or 0.0
    if ended.token != found.token or not (0 <= min(codes) <= max(codes) < _NUMBERS_END and 0 <= used < _NUMBERS_END):
        found.spoilt, found.by_job = f"the job wrote its own {ENDED}", True
        return
    found.ended = msgspec.structs.replace(ended, fault=proved(ended.fault))


def proved(fault: Fault | None) -> Fault | None:
    """Return whose fault a failure is by the word of a component's directory. Its application may have written that
    the fault is the site's, so that proves nothing."""
    return None if fault is Fault.SITE else fault


def _take_overlong(found: RecordedComponent, name: str) -> None:
    if name == ABORT:
        found.abort = AbortRecord()  # it is an abort, whatever its content
        return
    limit_name = "RECORD_BYTES_MAX" if name == RECORD else "NOTE_BYTES_MAX"
    found.spoilt, found.by_job = overlong(name, bytes_max(name), limit_name), True


def parse_abort(text: str) -> AbortRecord:
    """Parse an abort on record. Unreadable content is an abort all the same."""
    try:
        found = _decoded(text, AbortRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return AbortRecord()
    return msgspec.structs.replace(found, fault=proved(found.fault))


def parse_time(text: str) -> float | None:
    """Parse a time on record; None for anything else."""
    try:
        at = float(text)
    except ValueError:
        return None
    return at if math.isfinite(at) else None


def is_token(name: str) -> bool:
    """Return True if a directory belongs to a component."""
    try:
        check_token(name)
    except LaunchError:
        return False
    return True


def output_paths(stream: Stream, application: Application) -> tuple[str, ...]:
    """Return the files that may contain an application's output; the first existing one counts. If a file for errors
    could not be opened, the shell's complaint is in the usual place."""
    usual = STDOUT if stream is Stream.STDOUT else STDERR
    named = application.stdout if stream is Stream.STDOUT else application.stderr
    if named is None:
        return (usual,)
    pieces = [piece for piece in stream_parts(named) if isinstance(piece, str)]
    if len(pieces) < len(stream_parts(named)):
        return (usual,)  # it contains something of the site; the script has made a second name for it there
    path = posixpath.join(WORK, application.directory or ".", "".join(pieces))
    return (path, STDERR) if stream is Stream.STDERR else (path,)
