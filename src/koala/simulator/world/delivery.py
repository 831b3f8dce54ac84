"""The way of events to the scheduler: at once, or late, twice or never while answers are unreliable."""

from __future__ import annotations

from collections import deque

import msgspec

from koala.model.messages import AnyEvent
from koala.simulator.world.event_heap import ANSWER_ARRIVES, EventHeap
from koala.simulator.world.faults import Channel


class Delivery:
    """The next messages for the scheduler, and those still on their way. ``channel`` None is reliable."""

    __slots__ = ("channel", "event_heap", "outbox", "under_way")

    def __init__(self, event_heap: EventHeap, channel: Channel | None) -> None:
        self.event_heap = event_heap
        self.channel = channel
        self.outbox: deque[AnyEvent] = deque()
        self.under_way = 0

    def tell(self, event: AnyEvent) -> None:
        """Deliver the driver's own observation now, over any channel."""
        self.outbox.append(event)

    def answer(self, event: AnyEvent) -> None:
        """Send a site's answer now: it may be lost, come late or come twice."""
        if self.channel is None:
            self.outbox.append(event)
            return
        for delay_s in self.channel.answer_delays_s():
            if delay_s > 0.0:
                self.plan(event, event.at + delay_s)
            else:
                self.outbox.append(event)

    def repeat(self, event: AnyEvent, now: float) -> None:
        """Answer with an event that may have been sent before."""
        self.answer(msgspec.structs.replace(event, at=now))

    def plan(self, event: AnyEvent, at: float) -> None:
        """Deliver it at a later time."""
        self.under_way += 1
        self.event_heap.add(at, ANSWER_ARRIVES, event)

    def arrives(self, event: AnyEvent, sequence: int, at: float) -> None:
        """Deliver a planned event that is due, with the time of this moment."""
        self.under_way -= 1
        self.outbox.append(msgspec.structs.replace(event, at=at))
