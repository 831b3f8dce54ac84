"""The story of a job: the lines of the journal that are about it, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from koala.model.facts import Turn, TurnEntry
from koala.model.messages import AnyEvent
from koala.model.request import JobId, Request
from koala.words.facts import STORY_KINDS, JobSoFar, in_story

# The longest story that is told; beyond it the middle is left out.
STORY_LINES_MAX = 400
STORY_HEAD_LINES = 20
# An event, a command or a fact, and when it was.
Line: TypeAlias = tuple[float, AnyEvent | TurnEntry]


class ToldEntry(msgspec.Struct, frozen=True):
    """An entry of a story in words: when, and what was decided and why."""

    at: float
    text: str


def story(
    request: Request,
    submitted_at: float,
    lines: Sequence[Line],
    left_out: int = 0,
    last: Sequence[Line] = (),
    *,
    owner: str = "",
    goes_back: bool = True,
) -> list[ToldEntry]:
    """The story of the owner's job that asked for this then. Where it is long, these are its first lines and its
    ``last``, and so many between them are left out. Where the record does not go back to its beginning it says so."""
    first = [ToldEntry(submitted_at, f"submitted: {request.kind} request for {request.in_words}")]
    if not goes_back:
        first.append(ToldEntry(submitted_at, "... what came next is no longer in the journal ..."))
    first += _in_words(lines, JobSoFar(request, owner))
    ending = _in_words(last, JobSoFar(request, owner))
    if not left_out and len(first) <= STORY_LINES_MAX:
        return first
    head = first[:STORY_HEAD_LINES]
    rest = ending if left_out else first[STORY_HEAD_LINES:]
    tail = rest[STORY_HEAD_LINES - STORY_LINES_MAX :]
    gone = left_out + len(first) + len(ending) - len(head) - len(tail)
    return [*head, ToldEntry(head[-1].at, f"... {gone} lines of a long story are left out ..."), *tail]


def _in_words(lines: Iterable[Line], job: JobSoFar) -> list[ToldEntry]:
    found = ((at, in_story(body, job)) for at, body in lines)
    return [ToldEntry(at, text) for at, text in found if text is not None]


class Stories:
    """The lines of stories as a scheduler that is ``recorded`` gives them, by job, for whoever keeps no journal."""

    def __init__(self) -> None:
        self.lines: defaultdict[JobId, list[Line]] = defaultdict(list)

    def add(self, event: AnyEvent, turn: Turn) -> None:
        """What happened, and what came of it."""
        for body in (event, *turn.entries):
            job = job_of(body)
            if job is not None and type(body).__name__ in STORY_KINDS:
                self.lines[job].append((event.at, body))


def job_of(body: AnyEvent | TurnEntry) -> JobId | None:
    """The job that an entry names, by itself or by the token of a component."""
    job: JobId | None = getattr(body, "job", None)
    token: str | None = getattr(body, "token", None)
    return int(token.partition(".")[0]) if job is None and token is not None else job
