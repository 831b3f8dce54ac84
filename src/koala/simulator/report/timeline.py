"""A run as a picture needs it: who held which site's processors from when to when, which files moved, what was said.

Built from the lines of a run's log and from nothing else, so that what is drawn is what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koala.model.messages import (
    AnyCommand,
    AnyEvent,
    CancelTransfer,
    ComponentEnded,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobSubmitted,
    ReleaseBarrier,
    SiteReported,
    SiteSilent,
    StartComponent,
    StartTransfer,
    TransferEnded,
)
from koala.model.request import JobId, SiteName


class Hold(msgspec.Struct):
    """A component on its site: it has processors from ``from_s``, runs from ``runs_s`` and is gone at ``to_s``."""

    job: JobId
    site: SiteName
    processors: int
    from_s: float
    runs_s: float = float("inf")
    to_s: float = float("inf")


class Move(msgspec.Struct):
    """A file on its way."""

    file: str
    source: SiteName
    target: SiteName
    from_s: float
    to_s: float = float("inf")


class Silence(msgspec.Struct):
    """A time at which a site did not answer."""

    site: SiteName
    from_s: float
    to_s: float = float("inf")


class Remark(msgspec.Struct, frozen=True):
    """One thing that happened to a job."""

    at_s: float
    job: JobId
    text: str


class _Line(msgspec.Struct):
    at: float
    event: str | None = None
    do: AnyCommand | None = None


class Timeline:
    """Everything of a run that has a beginning and an end, in the order in which it began."""

    def __init__(self) -> None:
        self.names: dict[JobId, str] = {}
        self.holds: list[Hold] = []
        self.moves: list[Move] = []
        self.silences: list[Silence] = []
        self.remarks: list[Remark] = []
        self.end_s = 0.0
        self._by_token: dict[str, Hold] = {}
        self._by_transfer: dict[str, Move] = {}

    @classmethod
    def from_log(cls, lines: Iterable[bytes]) -> Timeline:
        """The timeline of a whole log."""
        timeline = cls()
        as_line = msgspec.json.Decoder(_Line)
        as_event = msgspec.json.Decoder(AnyEvent)
        for line in lines:
            parsed = as_line.decode(line)
            timeline.end_s = parsed.at
            timeline._take(parsed.at, parsed.do if parsed.do is not None else as_event.decode(line))
        return timeline

    def _take(self, at: float, message: Any) -> None:
        match message:
            case JobSubmitted(job=job, request=request):
                self.names[job] = request.name
                size = f"{request.kind}, {request.processors} processors"
                self._remark(at, job, f"submitted: {size}, {request.priority} priority")
            case StartComponent(token=token):
                hold = Hold(message.job, message.site, message.processors, at)
                self._by_token[token] = hold
                self.holds.append(hold)
            case ReleaseBarrier(tokens=tokens):
                # One that is repeated, because an answer was late, does not start the application again.
                waiting = [hold for token in tokens if (hold := self._by_token[token]).runs_s > at]
                for hold in waiting:
                    hold.runs_s = at
                if waiting:
                    self._remark(at, message.job, "all components are at the barrier: it runs")
            case ComponentEnded(token=token):
                if token in self._by_token:
                    self._by_token[token].to_s = min(at, self._by_token[token].to_s)
            case StartTransfer():
                move = Move(message.file, message.source, message.target, at)
                self._by_transfer[message.transfer] = move
                self.moves.append(move)
            case TransferEnded(transfer=transfer) | CancelTransfer(transfer=transfer):
                move_ended = self._by_transfer.get(transfer)
                if move_ended is not None:
                    move_ended.to_s = min(at, move_ended.to_s)
            case _:
                self._take_report(at, message)

    def _take_report(self, at: float, message: Any) -> None:
        match message:
            case SiteSilent(site=site):
                self.silences.append(Silence(site, at))
            case SiteReported(site=site):
                for silence in self.silences:
                    if silence.site == site:
                        silence.to_s = min(at, silence.to_s)
            case JobPlaced(job=job, places=places):
                self._remark(at, job, "placed: " + ", ".join(f"{size} on {site}" for site, size in places))
            case JobRequeued(job=job, reason=reason):
                self._remark(at, job, f"requeued: {reason}")
            case JobEnded(job=job, outcome=outcome, reason=reason):
                self._remark(at, job, f"{outcome}: {reason}" if reason else str(outcome))
            case _:
                pass

    def _remark(self, at: float, job: JobId, text: str) -> None:
        self.remarks.append(Remark(at, job, text))
