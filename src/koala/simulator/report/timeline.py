"""A run as a picture needs it: who held which site's processors from when to when, which files moved, which remarks
fell.

It is built from the lines of a run's log alone, so that the picture shows what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koala.model.facts import ElementMade, JobEnded, JobPlaced, JobRequeued, TurnEntry
from koala.model.job_array import element_name
from koala.model.messages import (
    AnyEvent,
    CancelTransfer,
    ComponentEnded,
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
    """A period in which a site did not answer."""

    site: SiteName
    from_s: float
    to_s: float = float("inf")


class Remark(msgspec.Struct, frozen=True):
    """A remark about a job at one moment."""

    at_s: float
    job: JobId
    text: str


class _Line(msgspec.Struct):
    at: float
    event: str | None = None
    do: TurnEntry | None = None


class Timeline:
    """All parts of a run that have a beginning and an end, in the order in which they began."""

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
        """Return the timeline of a whole log."""
        timeline = cls()
        as_line = msgspec.json.Decoder(_Line)
        as_event = msgspec.json.Decoder(AnyEvent)
        for line in lines:
            parsed = as_line.decode(line)
            timeline.end_s = parsed.at
            timeline._take(parsed.at, parsed.do if parsed.do is not None else as_event.decode(line))
        return timeline

    def _take(self, at_s: float, message: Any) -> None:
        match message:
            case JobSubmitted(job=job, request=request):
                self.submitted(at_s, job, request.name, request.kind, request.processors, request.priority)
            case ElementMade(job=job, array=array, index=index):
                self.names[job] = element_name(self.names.get(array, "job"), index)
                self.remark(at_s, job, f"element {index} of array {array}")
            case JobPlaced(job=job, places=places):
                self.remark(at_s, job, "placed: " + ", ".join(f"{size} on {site}" for site, size in places))
            case StartComponent(token=token):
                self.claimed(at_s, token, message.job, message.site, message.processors)
            case ReleaseBarrier(job=job, tokens=tokens):
                self.barrier_opened(at_s, job, tokens)
            case ComponentEnded(token=token):
                self.component_ended(at_s, token)
            case StartTransfer():
                self.transfer_started(at_s, message.transfer, message.file, message.source, message.target)
            case TransferEnded(transfer=transfer) | CancelTransfer(transfer=transfer):
                self.transfer_ended(at_s, transfer)
            case JobRequeued(job=job, reason=reason):
                self.remark(at_s, job, f"requeued: {reason}")
            case JobEnded(job=job, outcome=outcome, reason=reason):
                self.remark(at_s, job, f"{outcome}: {reason}" if reason else str(outcome))
            case SiteSilent(site=site):
                self.site_silent(at_s, site)
            case SiteReported(site=site):
                self.site_reported(at_s, site)
            case _:
                pass

    # -------------------------------------------------------------------------------------------- the kinds of events

    def remark(self, at_s: float, job: JobId, text: str) -> None:
        """Add a remark about a job."""
        self.remarks.append(Remark(at_s, job, text))

    def submitted(self, at_s: float, job: JobId, name: str, kind: str, processors: int, priority: str | None) -> None:
        """Add a submitted job; its priority may be unknown."""
        self.names[job] = name
        rank = f", {priority} priority" if priority is not None else ""
        self.remark(at_s, job, f"submitted: {kind}, {processors} processors{rank}")

    def claimed(self, at_s: float, token: str, job: JobId, site: SiteName, processors: int) -> None:
        """Record that a component claims processors."""
        hold = Hold(job, site, processors, at_s)
        self._by_token[token] = hold
        self.holds.append(hold)

    def barrier_opened(self, at_s: float, job: JobId, tokens: Iterable[str]) -> bool:
        """Record that the components may start. Return False for a repeated opening after a late answer, which does
        not start the application again."""
        waiting = [hold for token in tokens if (hold := self._by_token[token]).runs_s > at_s]
        for hold in waiting:
            hold.runs_s = at_s
        if waiting:
            self.remark(at_s, job, "all components are at the barrier: it runs")
        return bool(waiting)

    def component_ended(self, at_s: float, token: str) -> None:
        """Record that a component holds nothing any more."""
        if token in self._by_token:
            self._by_token[token].to_s = min(at_s, self._by_token[token].to_s)

    def transfer_started(self, at_s: float, transfer: str, file: str, source: SiteName, target: SiteName) -> None:
        """Record that a file is moving."""
        move = Move(file, source, target, at_s)
        self._by_transfer[transfer] = move
        self.moves.append(move)

    def transfer_ended(self, at_s: float, transfer: str) -> Move | None:
        """Record that a transfer arrived, broke or was cancelled; None if it never started."""
        move = self._by_transfer.get(transfer)
        if move is not None:
            move.to_s = min(at_s, move.to_s)
        return move

    def site_silent(self, at_s: float, site: SiteName) -> None:
        """Record that a site does not answer."""
        self.silences.append(Silence(site, at_s))

    def site_reported(self, at_s: float, site: SiteName) -> None:
        """Record that a site answers."""
        for silence in self.silences:
            if silence.site == site:
                silence.to_s = min(at_s, silence.to_s)
