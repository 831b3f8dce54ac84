"""The engine's queue: events with their callers, and the entries that go on record with them."""

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
    """Submissions that go on record in one transaction, or not at all. ``numbers`` and ``requests`` are by position
    in the group: a later submission may name an earlier one."""

    numbers: dict[int, JobId] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class InboxItem:
    """One future event, or a request that becomes one with its job's id; ``answer`` is the caller that waits.

    ``defect`` is the error that handling the request raised before; ``ended`` are the ended jobs that it waits for.
    An item of a ``group`` has its ``position`` there, waits for the jobs ``within``, and ``reads`` outputs of others
    there.
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
        """Answer the caller: the item is on record."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(self.row)

    def refuse(self, error: ClientError) -> None:
        """Refuse the caller: the item is not on record and will not be."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


# A site repeats these reports about itself and its components when asked, so that they may be dropped.
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
    """Return True if a site repeats the event when asked."""
    return isinstance(event, _SAID_AGAIN)


class Inbox:
    """A queue that the engine empties a batch at a time. When ``items_max`` items wait, it accepts no call, and only
    those events that nobody would repeat, which are no more than there are transfers and jobs."""

    def __init__(self, items_max: int) -> None:
        self._items: deque[InboxItem] = deque()
        self._items_max = items_max
        self.passed_over = False  # True if sites must be asked again for dropped events

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """True if the inbox accepts only what it must."""
        return len(self._items) >= self._items_max

    def put(self, item: InboxItem) -> None:
        """Append an item. When full, raises ``TooManyError`` to a caller, and drops events that are repeated when
        asked for."""
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
        """Append all items or none. Raises ``TooManyError`` if there is no room for all."""
        if len(self._items) + len(items) > self._items_max:
            raise TooManyError(
                f"there is no room for {len(items)} more: {self._items_max} events and calls may wait "
                "(INBOX_ITEMS_MAX); try again in a moment"
            )
        self._items.extend(items)

    def has_room_again(self) -> bool:
        """Return True, once, if events were dropped and it is half empty by now."""
        due = self.passed_over and 2 * len(self._items) <= self._items_max
        self.passed_over = self.passed_over and not due
        return due

    def put_first(self, items: Sequence[InboxItem]) -> None:
        """Put items before all others, in this order."""
        self._items.extendleft(reversed(items))

    def take(self, most: int) -> list[InboxItem]:
        """Remove and return the first ``most`` items, and the rest of the last one's group."""
        taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        group = taken[-1].group if taken else None
        while group is not None and self._items and self._items[0].group is group:
            taken.append(self._items.popleft())
        return taken

    def refuse_all(self, error: ClientError) -> None:
        """Refuse every item and empty the queue."""
        for item in self.take(len(self._items)):
            item.refuse(error)

    def refuse_callers(self, error: ClientError) -> None:
        """Refuse what waits, except events that nobody would repeat."""
        for item in self.take(len(self._items)):
            if item.answer is not None or isinstance(item.event, Tick) or is_said_again(item.event):
                item.refuse(error)
            else:
                self._items.append(item)


async def put_together(inbox: Inbox, items: Sequence[InboxItem], wake: asyncio.Event) -> list[StoredJob]:
    """Put a group of submissions into the inbox. Returns their rows once on record, or raises why none of them is."""
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
    """Raise ``InvalidError`` if the value holds text that cannot be written."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise half_characters(what) from None


def half_characters(what: str) -> InvalidError:
    """Return the error for text that cannot be written."""
    return InvalidError(f"{what} holds text that UTF-8 cannot write; take out the half characters")
