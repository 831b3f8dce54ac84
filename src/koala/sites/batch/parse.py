"""What a look at the directories of living components shows, and what was found of one when the site was opened."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from koala.model.launch import ABORT, GO, READY, LaunchError, check_token
from koala.model.messages import ComponentEnded, Token
from koala.sites.batch.scripts.directory import BATCH, RESERVATION
from koala.sites.batch.scripts.framing import OutputSection
from koala.sites.component_directory import ENDED, RECORD, RELEASED, AbortRecord, AcceptanceRecord


class ComponentStatus(msgspec.Struct, kw_only=True):
    """What is to be seen of one component. ``exit_words`` is what its script recorded as its end, ``abort`` what an
    abort on record says."""

    lost: bool = False
    ready: bool = False
    abort: AbortRecord | None = None
    exit_words: list[str] | None = None
    mail: list[str] = msgspec.field(default_factory=list)


def parse_looks(text: str, tokens: Sequence[Token]) -> dict[Token, ComponentStatus]:
    """What ``directory.inspect`` printed. Lines about anything else are passed over."""
    statuses = {token: ComponentStatus() for token in tokens}
    for line in text.split("\n"):
        match line.split(" "):
            case [token, *rest] if token in statuses:
                _add(statuses[token], rest)
    return statuses


def _add(status: ComponentStatus, words: list[str]) -> None:
    match words:
        case ["lost"]:
            status.lost = True
        case ["ready"]:
            status.ready = True
        case ["abort", *rest]:
            status.abort = _abort(" ".join(rest))
        case ["exit", *rest]:
            status.exit_words = " ".join(rest).split()
        case ["mail", name]:
            status.mail.append(name)


class RecordedComponent(msgspec.Struct, kw_only=True):
    """What is on record of one component at the site. ``spoilt`` says what of it makes no sense, if anything."""

    token: Token
    record: AcceptanceRecord | None = None
    batch: str | None = None
    abort: AbortRecord | None = None
    released_at: float | None = None
    went: bool = False  # its barrier was opened
    reservation: str | None = None
    ended: ComponentEnded | None = None
    ready: bool = False
    spoilt: str = ""


def parse_found(sections: Sequence[OutputSection]) -> list[RecordedComponent]:
    """What the sections of ``directory.show`` and ``directory.open_work_directory`` say, in their order."""
    found: list[RecordedComponent] = []
    for section in sections:
        match section.words:
            case ["component", token]:
                found.append(RecordedComponent(token=token))
            case [name] if found:
                _fill(found[-1], name, section.text)
    return [_checked(each) for each in found if _is_token(each.token)]


def _is_token(name: str) -> bool:
    try:
        check_token(name)
    except LaunchError:
        return False
    return True


def _fill(found: RecordedComponent, name: str, text: str) -> None:
    try:
        match name:
            case _ if name == RECORD:
                found.record = msgspec.json.decode(text, type=AcceptanceRecord)
            case _ if name == ENDED:
                found.ended = msgspec.json.decode(text, type=ComponentEnded)
            case _ if name == ABORT:
                found.abort = _abort(text)
            case _ if name == BATCH:
                found.batch = text
            case _ if name == RESERVATION:
                found.reservation = text
            case _ if name == RELEASED:
                found.released_at = parse_time(text)
            case _ if name == READY:
                found.ready = True
            case _ if name == GO:
                found.went = True
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        found.spoilt = f"{name}: {error}"


def _abort(text: str) -> AbortRecord:
    """An abort that says nothing readable is one all the same."""
    try:
        return msgspec.json.decode(text, type=AbortRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return AbortRecord()


def parse_time(text: str) -> float | None:
    """A time on record; None for anything else."""
    try:
        at = float(text)
    except ValueError:
        return None
    return at if math.isfinite(at) else None


def _checked(found: RecordedComponent) -> RecordedComponent:
    if not found.went:
        found.released_at = None  # whoever was about to open the barrier was killed at it
    elif found.released_at is None:
        found.spoilt = f"{RELEASED} does not say when the barrier was opened"
    if found.record is not None and found.record.launch.token != found.token:
        found.spoilt = f"{RECORD} is that of component {found.record.launch.token}"
    return found
