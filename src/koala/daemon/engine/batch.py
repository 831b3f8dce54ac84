"""Events through the core, a batch at a time, into rows, journal entries and commands: all that one commit holds.

The memory here is what a recovery replaces as a whole: after a failed commit nothing of it is right any more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import msgspec

from koala import files
from koala.core import Scheduler
from koala.daemon.engine.inbox import Item
from koala.daemon.engine.live_rows import Draft, LiveRows
from koala.daemon.engine.news import is_news
from koala.daemon.engine.outbox import Owed, is_owed
from koala.daemon.engine.projection import EntryWriter, Projector, Submitter
from koala.daemon.engine.recovery import Recovery
from koala.model.messages import AnyCommand, AnyEvent, JobSubmitted, Tick, TransferEnded, WakeAt
from koala.model.request import FileName
from koala.store import Batch


class Memory:
    """The engine's state: the core, which may be a batch ahead of the record, and what is on record of the living."""

    def __init__(self, recovery: Recovery) -> None:
        self.scheduler: Scheduler = recovery.scheduler
        self.rows: LiveRows = recovery.rows
        self.owed: Owed = recovery.owed
        self.entries: dict[FileName, files.CatalogueEntry] = recovery.entries
        self.last_seq = recovery.last_seq
        self.last_job = recovery.last_job
        self.last_at = recovery.last_at
        self.events_since_snapshot = 0
        self._wakes = sorted(recovery.wakes)  # when the core wants to be told that time has passed; a heap

    def next_wake_at(self) -> float:
        """When the next tick is due; infinity when none is wanted."""
        return self._wakes[0] if self._wakes else float("inf")

    def wake_at(self, at: float) -> None:
        """The core wants a tick."""
        heapq.heappush(self._wakes, at)

    def ticked(self, at: float) -> None:
        """A tick was handled: what was wanted until then is done."""
        while self._wakes and self._wakes[0] <= at:
            heapq.heappop(self._wakes)


class Round:
    """What came of some events: not on record before ``batch`` is, and then ``take_effect`` makes it so in memory."""

    def __init__(self, memory: Memory, policy: str, now: Callable[[], float]) -> None:
        self._memory = memory
        self._now = now
        self._draft = Draft(memory.rows)
        self._writer = EntryWriter(self._draft, memory.last_seq)
        self._projector = Projector(memory.scheduler, self._draft, policy)
        self._files: list[files.CatalogueEntry] = []
        self.commands: list[tuple[int, AnyCommand]] = []
        self.events = 0

    def handle(self, items: Sequence[Item]) -> None:
        """Handle these in order, and a tick at the end when one is due. What the core would pass over is left out."""
        memory = self._memory
        for item in items:
            event = self._event_of(item)
            if item.answer is not None or is_news(event, memory.scheduler.ledger):
                self._handle(event, item.submitter)
            self._files += item.files
            if item.request is not None:
                item.row = self._draft.jobs[memory.last_job]
        if memory.next_wake_at() <= self._now():
            self._handle(Tick(at=self._next_at()), None)

    def _next_at(self) -> float:
        """Events are in order of time, whatever the clock does."""
        self._memory.last_at = max(self._memory.last_at, self._now())
        return self._memory.last_at

    def _event_of(self, item: Item) -> AnyEvent:
        memory, at = self._memory, self._next_at()
        if item.request is not None:
            memory.last_job += 1
            return JobSubmitted(at=at, job=memory.last_job, request=item.request)
        assert item.event is not None, "an item is an event or a request"
        return msgspec.structs.replace(item.event, at=at)

    def _handle(self, event: AnyEvent, submitter: Submitter | None) -> None:
        memory = self._memory
        commands = memory.scheduler.handle(event)
        self._projector.project(event, commands, submitter)
        self._writer.event(event)
        if isinstance(event, TransferEnded):
            memory.owed.transfer_is_over(event.transfer)
        elif isinstance(event, Tick):
            memory.ticked(event.at)
        for command in commands:
            if isinstance(command, WakeAt):
                memory.wake_at(command.at)  # for the moment alone: after a restart the core asks anew
            else:
                self.commands.append((self._writer.command(command, event.at), command))
        self.events += 1

    def batch(self) -> Batch | None:
        """Everything for the store, with the commands that were performed since the last time; None for nothing."""
        settled = self._memory.owed.take_settled()
        if not (self._writer.entries or settled):
            return None
        return Batch(
            entries=tuple(self._writer.entries),
            owed=tuple(seq for seq, command in self.commands if is_owed(command)),
            settled=settled,
            jobs=tuple(self._draft.jobs.values()),
            components=tuple(self._draft.components.values()),
            transfers=tuple(self._draft.transfers.values()),
            files=tuple(self._files),
        )

    def take_effect(self) -> None:
        """The batch is on record: now everybody may see it."""
        memory = self._memory
        memory.last_seq = self._writer.seq
        memory.events_since_snapshot += self.events
        memory.rows.take(self._draft)
        for entry in self._files:
            if entry.replicas:
                memory.entries[entry.name] = entry
            else:
                memory.entries.pop(entry.name, None)
        for seq, command in self.commands:
            if is_owed(command):
                memory.owed.add(seq, command)
