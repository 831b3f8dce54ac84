"""The story of a job: the journal's lines about it, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from koala.model.facts import Turn, TurnEntry
from koala.model.messages import AnyEvent
from koala.model.request import JobId, Request
from koala.words.facts import STORY_KINDS, JobSoFar, in_story

# The longest story that is shown; the middle of a longer one is left out.
STORY_LINES_MAX = 400
STORY_HEAD_LINES = 20
# An event, a command or a fact, with its time.
Line: TypeAlias = tuple[float, AnyEvent | TurnEntry]


class ToldEntry(msgspec.Struct, frozen=True):
    """An entry of a story in words: the time, the decision and the reason."""

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
    """Return the story of the owner's job with this request, submitted at this time. A long story has its first lines
    and its ``last`` ones, with ``left_out`` lines between them. A note stands at its beginning if the record does not
    go back that far."""
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
    """Collects the lines of stories by job from a scheduler that is ``recorded``, for callers without a journal."""

    def __init__(self) -> None:
        self.lines: defaultdict[JobId, list[Line]] = defaultdict(list)

    def add(self, event: AnyEvent, turn: Turn) -> None:
        """Add an event, and the turn that followed from it."""
        for body in (event, *turn.entries):
            job = job_of(body)
            if job is not None and type(body).__name__ in STORY_KINDS:
                self.lines[job].append((event.at, body))


def job_of(body: AnyEvent | TurnEntry) -> JobId | None:
    """Return the job that an entry names, directly or by the token of a component."""
    job: JobId | None = getattr(body, "job", None)
    token: str | None = getattr(body, "token", None)
    return int(token.partition(".")[0]) if job is None and token is not None else job
