"""What waits to be handled by the engine: events with their callers, and what is put on record with them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from koala import files
from koala.daemon.engine.projection import Submitter
from koala.model.errors import ClientError, InvalidError
from koala.model.messages import AnyEvent
from koala.model.request import Request
from koala.store.rows import StoredJob


@dataclass(slots=True, kw_only=True)
class InboxItem:
    """One event to come, or a request that becomes one with its job's id; ``answer`` is the caller that waits.

    ``defect`` is what was raised when the request was handled before.
    """

    event: AnyEvent | None = None
    request: Request | None = None
    defect: str = ""
    submitter: Submitter | None = None
    files: Sequence[files.CatalogueEntry] = ()
    answer: asyncio.Future[StoredJob | None] | None = field(default=None)
    row: StoredJob | None = None

    def done(self) -> None:
        """It is on record."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(self.row)

    def refuse(self, error: ClientError) -> None:
        """It is not, and will not be."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class Inbox:
    """A queue that the engine empties a batch at a time."""

    def __init__(self) -> None:
        self._items: deque[InboxItem] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: InboxItem) -> None:
        """At the end."""
        self._items.append(item)

    def put_first(self, items: Sequence[InboxItem]) -> None:
        """Before all others, in this order."""
        self._items.extendleft(reversed(items))

    def take(self, most: int) -> list[InboxItem]:
        """The first items, at most so many."""
        return [self._items.popleft() for _ in range(min(most, len(self._items)))]

    def refuse_all(self, error: ClientError) -> None:
        """Nothing of it can be handled."""
        for item in self.take(len(self._items)):
            item.refuse(error)


def check_text(what: str, value: object) -> None:
    """What cannot be written as text cannot be put on record."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise half_characters(what) from None


def half_characters(what: str) -> InvalidError:
    """Something holds text that cannot be written."""
    return InvalidError(f"{what} holds text that UTF-8 cannot write; take out the half characters")
