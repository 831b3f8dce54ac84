"""What waits to be handled by the engine: events with their callers, and what is put on record with them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from koala import files
from koala.daemon.engine.projection import Submitter
from koala.model.dependency import Dependency
from koala.model.errors import ClientError, InvalidError, TooManyError
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    EndedJob,
    SiteMachines,
    SiteReported,
    SiteSilent,
    Tick,
)
from koala.model.outputs import OutputOfGraph
from koala.model.request import JobId, Request
from koala.store.rows import StoredJob


@dataclass(slots=True)
class SubmissionGroup:
    """Submissions that go on record in one transaction, or none of them. ``numbers`` and ``requests`` are by position
    in the group: a later submission may name an earlier one."""

    numbers: dict[int, JobId] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class InboxItem:
    """One event to come, or a request that becomes one with its job's id; ``answer`` is the caller that waits.

    ``defect`` is what was raised when the request was handled before, ``ended`` how jobs ended that it waits for. One
    of several that go on record in a ``group`` has its ``position`` there, waits for those ``within``, and ``reads``
    what others there make.
    """

    event: AnyEvent | None = None
    request: Request | None = None
    defect: str = ""
    ended: Sequence[EndedJob] = ()
    submitter: Submitter | None = None
    files: Sequence[files.CatalogueEntry] = ()
    answer: asyncio.Future[StoredJob | None] | None = field(default=None)
    row: StoredJob | None = None
    group: SubmissionGroup | None = None
    position: int = 0
    within: tuple[Dependency, ...] = ()
    reads: tuple[OutputOfGraph, ...] = ()

    def done(self) -> None:
        """It is on record."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(self.row)

    def refuse(self, error: ClientError) -> None:
        """It is not, and will not be."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


# What a site says of itself and of its components it says again when it is asked, so that it may be passed over.
_SAID_AGAIN = (
    ComponentAccepted,
    ComponentStarting,
    ComponentReady,
    ComponentRunning,
    ComponentEnded,
    SiteReported,
    SiteMachines,
    SiteSilent,
)


def is_said_again(event: AnyEvent | None) -> bool:
    """Whether a site says it again when it is asked."""
    return isinstance(event, _SAID_AGAIN)


class Inbox:
    """A queue that the engine empties a batch at a time. It is full with so many items: then it takes no call, and of
    the events only those that nobody would tell again, of which there are no more than transfers and jobs."""

    def __init__(self, items_max: int) -> None:
        self._items: deque[InboxItem] = deque()
        self._items_max = items_max
        self.passed_over = False  # whether sites must be asked for what they said

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more than it must."""
        return len(self._items) >= self._items_max

    def put(self, item: InboxItem) -> None:
        """At the end. Raises ``TooManyError`` to a caller when it is full, and passes over what is said again."""
        if self.is_full:
            if item.answer is not None:
                raise TooManyError(
                    f"{self._items_max} events and calls wait already (INBOX_ITEMS_MAX); try again in a moment"
                )
            if is_said_again(item.event):
                self.passed_over = True
                return
        self._items.append(item)

    def put_together(self, items: Sequence[InboxItem]) -> None:
        """At the end, all of them or none: ``TooManyError`` where there is no room for all."""
        if len(self._items) + len(items) > self._items_max:
            raise TooManyError(
                f"there is no room for {len(items)} more: {self._items_max} events and calls may wait "
                "(INBOX_ITEMS_MAX); try again in a moment"
            )
        self._items.extend(items)

    def has_room_again(self) -> bool:
        """Whether something was passed over and it is half empty by now; True once, for whoever asks the sites."""
        due = self.passed_over and 2 * len(self._items) <= self._items_max
        self.passed_over = self.passed_over and not due
        return due

    def put_first(self, items: Sequence[InboxItem]) -> None:
        """Before all others, in this order."""
        self._items.extendleft(reversed(items))

    def take(self, most: int) -> list[InboxItem]:
        """The first items, at most so many, or so many more that what goes on record group is taken whole."""
        taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        group = taken[-1].group if taken else None
        while group is not None and self._items and self._items[0].group is group:
            taken.append(self._items.popleft())
        return taken

    def refuse_all(self, error: ClientError) -> None:
        """Nothing of it can be handled."""
        for item in self.take(len(self._items)):
            item.refuse(error)

    def refuse_callers(self, error: ClientError) -> None:
        """Nothing of it can be handled now. Sites say again what they said; what nobody says again stays."""
        for item in self.take(len(self._items)):
            if item.answer is not None or isinstance(item.event, Tick) or is_said_again(item.event):
                item.refuse(error)
            else:
                self._items.append(item)


async def put_together(inbox: Inbox, items: Sequence[InboxItem], wake: asyncio.Event) -> list[StoredJob]:
    """Put submissions into the inbox that go on record group; their rows when they are, or why none of them is."""
    loop = asyncio.get_running_loop()
    answers = []
    for item in items:
        item.answer = loop.create_future()
        answers.append(item.answer)
    inbox.put_together(items)
    wake.set()
    found = await asyncio.gather(*answers, return_exceptions=True)
    for error in found:
        if isinstance(error, BaseException):
            raise error
    return [row for row in found if isinstance(row, StoredJob)]


def check_text(what: str, value: object) -> None:
    """What cannot be written as text cannot be put on record."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise half_characters(what) from None


def half_characters(what: str) -> InvalidError:
    """Something holds text that cannot be written."""
    return InvalidError(f"{what} holds text that UTF-8 cannot write; take out the half characters")
